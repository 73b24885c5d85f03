"""Builds what the admin port shows of the loads that clients report (LRS)."""

from __future__ import annotations

from ..core.loads.load_reports import ClientLoads, ClusterRates, LoadReports, LocalityRates
from .cache_model import ClockReading
from .read_model import LIMIT, Page, Row


def loads(reports: LoadReports, moment: ClockReading, *, offset: int = 0, limit: int = LIMIT) -> Page:
    """List the clients that report loads, with the rates of each cluster and locality."""
    clients = reports.clients(moment.now)
    settings = reports.settings
    head = {
        "interval": settings.load_interval,
        "clusters": sorted(settings.load_clusters) if settings.load_clusters is not None else "*",
        "total": len(clients),
        "offset": offset,
    }
    return Page(head, "clients", (_client(each, moment) for each in clients[offset : offset + limit]))


def _client(client: ClientLoads, moment: ClockReading) -> Row:
    return {
        "node": client.node,
        "streams": client.streams,
        "clusters": [_cluster(each, moment) for each in client.clusters],
        "errors": [
            {"cluster": cluster, "time": moment.time_of_day(at), "message": message}
            for cluster, (at, message) in client.errors.items()
        ],
    }


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
