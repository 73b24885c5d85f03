"""Builds what the admin port shows of the loads that clients report (LRS)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ..core.loads.load_reports import ClientLoads, ClusterRates, LoadReports, LocalityRates
from .cache_model import ClockReading
from .read_model import LIMIT, Page, Row

SHOWN = 2_000  # clusters, localities, metrics and drops of one client


def loads(
    reports: LoadReports, clients: list[ClientLoads], moment: ClockReading, *, offset: int = 0, limit: int = LIMIT
) -> Page:
    """List the clients that report loads (`reports.clients`), with the rates of each cluster and locality."""
    settings = reports.settings
    head = {
        "interval": settings.load_interval,
        "clusters": sorted(settings.load_clusters) if settings.load_clusters is not None else "*",
        "total": len(clients),
        "offset": offset,
    }
    return Page(head, "clients", (_client(each, moment) for each in clients[offset : offset + limit]))


def _client(client: ClientLoads, moment: ClockReading) -> Row:
    row: Row = {
        "node": client.node,
        "streams": client.streams,
        "clusters": [_cluster(each, moment) for each in _first(client.clusters)],
        "errors": [
            {"cluster": cluster, "time": moment.time_of_day(at), "message": message}
            for cluster, (at, message) in client.errors.items()
        ],
    }
    left_out = len(client.clusters) - len(row["clusters"])
    return row | ({"clusters_left_out": left_out} if left_out else {})


def _first(clusters: tuple[ClusterRates, ...]) -> Iterator[ClusterRates]:
    """Yield the first clusters, and of each the first localities, drops and metrics: SHOWN in all."""
    left = SHOWN
    for each in clusters:
        left -= 1
        if left < 0:
            return
        localities: list[LocalityRates] = []
        for place in each.localities[:left]:
            localities.append(replace(place, metrics=dict(islice(place.metrics.items(), max(left, 0)))))
            left -= 1 + len(place.metrics)
            if left <= 0:
                break
        drops = dict(islice(each.drops.items(), max(left, 0)))
        left -= len(drops)
        yield replace(each, localities=tuple(localities), drops=drops)


def _cluster(rates: ClusterRates, moment: ClockReading) -> Row:
    return {
        "cluster": rates.cluster,
        "service": rates.service,
        "time": moment.time_of_day(rates.heard_at),
        "localities": [_locality(each) for each in rates.localities],
        "drops_per_second": rates.drops,
    }


def _locality(rates: LocalityRates) -> Row:
    place = rates.locality
    return {
        "region": place.region,
        "zone": place.zone,
        "sub_zone": place.sub_zone,
        "issued_per_second": rates.issued,
        "succeeded_per_second": rates.succeeded,
        "failed_per_second": rates.failed,
        "in_progress": rates.in_progress,
        "metrics": {
            name: {"requests_per_second": metric.per_second, "mean": metric.mean}
            for name, metric in rates.metrics.items()
        },
    }
