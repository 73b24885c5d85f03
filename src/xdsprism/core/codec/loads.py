"""Load reports as protobuf. A30: version 2 has the same bytes, so everything is written and read as version 3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import nan
from typing import Any

from envoy.config.endpoint.v3.load_report_pb2 import ClusterStats, UpstreamLocalityStats
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest, LoadStatsResponse
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue

from ...errors import PeerError
from ..loads.load_reports import LoadMessage
from ..loads.loads import (
    UTILIZATIONS,
    ClusterReport,
    LoadAnswer,
    LoadRequest,
    Locality,
    LocalityReport,
    MetricReport,
)
from ..model.node_params import node_of
from ..model.truncation import NAME_BYTES, bounded

_NANOS = 1_000_000_000


def encode_request(request: LoadRequest, node: bytes) -> bytes:
    """`node` is the encoded Node of the server's version, and goes out as it is.

    A BytesValue has a length and bytes in field 1, which is just what a request's node is on the wire.
    """
    head = BytesValue(value=node).SerializeToString() if request.first else b""
    body: bytes = LoadStatsRequest(cluster_stats=map(_cluster, request.reports)).SerializeToString()
    return head + body


def decode_answer(message: bytes) -> LoadAnswer:
    """Raises PeerError for what is no answer at all."""
    try:
        proto = LoadStatsResponse.FromString(message)
    except DecodeError as error:
        raise PeerError("INVALID_ARGUMENT", f"not a load stats response: {error}") from error
    interval = _seconds(proto.load_reporting_interval)
    return LoadAnswer(interval, frozenset(proto.clusters), proto.send_all_clusters)


def encode_answer(answer: LoadAnswer) -> bytes:
    proto = LoadStatsResponse(clusters=sorted(answer.clusters), send_all_clusters=answer.send_all)
    proto.load_reporting_interval.FromNanoseconds(round(answer.interval * _NANOS))
    return bytes(proto.SerializeToString(deterministic=True))


def decode_request(message: bytes, node_params: Collection[str] | None = None) -> LoadMessage:
    """`node_params`: what the settings name of a node (node_params.py).

    Raises PeerError for what is no request at all; whether the numbers make sense is for others to say.
    """
    try:
        proto = LoadStatsRequest.FromString(message)
    except DecodeError as error:
        raise PeerError("INVALID_ARGUMENT", f"not a load stats request: {error}") from error
    node = node_of(proto.node, node_params) if proto.HasField("node") else None
    return LoadMessage(node, tuple(_heard(stats) for stats in proto.cluster_stats))


def _heard(stats: Any) -> ClusterReport:
    drops = Counter[str]()
    for drop in stats.dropped_requests:
        drops[_name(drop.category)] += drop.dropped_count
    drops[""] += max(0, stats.total_dropped_requests - drops.total())  # it counts those too that have a category
    return ClusterReport(
        _name(stats.cluster_name),
        _name(stats.cluster_service_name),
        0.0,
        _seconds(stats.load_report_interval),
        tuple(map(_heard_at, stats.upstream_locality_stats)),
        tuple((category, count) for category, count in drops.items() if count),
    )


def _name(text: str) -> str:
    """By what loads are kept and shown: a name that is cut is still another than all others."""
    return bounded(text, NAME_BYTES, distinct=True)


def _heard_at(stats: Any) -> LocalityReport:
    place = stats.locality
    return LocalityReport(
        Locality(_name(place.region), _name(place.zone), _name(place.sub_zone)),
        stats.total_issued_requests,
        stats.total_successful_requests,
        stats.total_error_requests,
        stats.total_requests_in_progress,
        _heard_metrics(stats),
    )


def _heard_metrics(stats: Any) -> tuple[MetricReport, ...]:
    """LRS-3: utilization has fields of its own. Where it is among the named metrics too, it is there twice."""
    found = {name: getattr(stats, name) for name in UTILIZATIONS if stats.HasField(name)}
    named = [(_name(each.metric_name), each) for each in stats.load_metric_stats if each.metric_name not in found]
    return tuple(
        MetricReport(name, each.num_requests_finished_with_metric, each.total_metric_value)
        for name, each in (*found.items(), *named)
    )


def _seconds(duration: Any) -> float:
    """Not a number where the parts of a Duration do not go together."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(nanos) >= _NANOS or seconds * nanos < 0:
        return nan
    return float(seconds + nanos / _NANOS)


def _cluster(report: ClusterReport) -> Any:
    proto = ClusterStats(
        cluster_name=report.cluster,
        cluster_service_name=report.service,
        upstream_locality_stats=map(_locality, report.localities),
        total_dropped_requests=sum(count for _, count in report.drops),
    )
    for category, count in report.drops:
        if category:  # what has none is in the total only
            proto.dropped_requests.add(category=category, dropped_count=count)
    proto.load_report_interval.FromNanoseconds(round(report.interval * _NANOS))
    return proto


def _locality(report: LocalityReport) -> Any:
    proto = UpstreamLocalityStats(
        total_issued_requests=report.issued,
        total_successful_requests=report.succeeded,
        total_error_requests=report.failed,
        total_requests_in_progress=report.in_progress,
    )
    proto.locality.region = report.locality.region
    proto.locality.zone = report.locality.zone
    proto.locality.sub_zone = report.locality.sub_zone
    for metric in report.metrics:
        own = metric.name in UTILIZATIONS  # LRS-3
        stats = getattr(proto, metric.name) if own else proto.load_metric_stats.add(metric_name=metric.name)
        stats.num_requests_finished_with_metric = metric.requests
        stats.total_metric_value = metric.total
    return proto
