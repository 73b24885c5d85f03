"""Encode and decode load reports (LRS), for client and server.

    client                                     server
    encode_request ── LoadStatsRequest ──────▶ decode_request, decoding
    decode_answer ◀── LoadStatsResponse ────── encode_answer

The messages of v2 and v3 have the same bytes (A30), so everything is written and read as v3.
"""

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
from ..model.steps import EVERY, Steps, finish
from ..model.truncation import NAME_BYTES, bounded
from .trimming import TEXT, Inside, node_field
from .wire import fields_of, split_fields

_NANOS = 1_000_000_000

# Field numbers of LoadStatsRequest, and of ClusterStats.
NODE, CLUSTER_STATS, CLUSTER_NAME = 1, 2, 1

LARGEST = 1024 * 1024  # bytes of the report of one cluster; 10,000 localities have less


def encode_request(request: LoadRequest, node: bytes) -> bytes:
    """Encode a load report; the first one of a stream has the node.

    `node` is the encoded Node in the server's version, and goes out unchanged. BytesValue frames it: its field 1, a
    length and bytes, is on the wire the same as field 1 of LoadStatsRequest.
    """
    head = BytesValue(value=node).SerializeToString() if request.first else b""
    body: bytes = LoadStatsRequest(cluster_stats=map(_cluster, request.reports)).SerializeToString()
    return head + body


def decode_answer(message: bytes) -> LoadAnswer:
    """Decode what the server wants to hear. Raise PeerError if the bytes are no LoadStatsResponse at all."""
    try:
        proto = LoadStatsResponse.FromString(message)
    except DecodeError as error:
        raise PeerError("INVALID_ARGUMENT", f"not a load stats response: {error}") from error
    interval = _seconds(proto.load_reporting_interval)
    return LoadAnswer(interval, frozenset(proto.clusters), proto.send_all_clusters)


def encode_answer(answer: LoadAnswer) -> bytes:
    """Encode which clusters a client reports, and how often."""
    proto = LoadStatsResponse(clusters=sorted(answer.clusters), send_all_clusters=answer.send_all)
    proto.load_reporting_interval.FromNanoseconds(round(answer.interval * _NANOS))
    return bytes(proto.SerializeToString(deterministic=True))


def decode_request(message: bytes, node_params: Collection[str] | None = None) -> LoadMessage:
    """Decode a load report. `node_params`: the metadata that the settings name (node_params.py).

    Raise PeerError if the bytes are no LoadStatsRequest at all. `LoadReports` decides whether the numbers are
    plausible.
    """
    proto = _parsed(LoadStatsRequest, message)
    node = node_of(proto.node, node_params) if proto.HasField("node") else None
    return LoadMessage(node, tuple(finish(_hearing(stats)) for stats in proto.cluster_stats))


def decoding(message: bytes, node_params: Collection[str] | None = None) -> Steps[LoadMessage]:
    """Do what `decode_request` does, in steps.

    The report of a cluster that has more than LARGEST bytes is not read: `LoadMessage.oversize` has its name.
    """
    parted = yield from split_fields(message, {CLUSTER_STATS})
    if parted is None:
        return decode_request(message, node_params)  # raises PeerError: it is no protobuf message
    rest, lists = parted
    head = decode_request((yield from Inside({NODE: node_field(node_params)})(rest)), node_params)
    reports: list[ClusterReport] = []
    oversize: list[str] = []
    for piece in lists.get(CLUSTER_STATS, ()):
        for _, start, body, end in fields_of(piece):
            if body is not None and end - body > LARGEST:
                name = yield from Inside({CLUSTER_NAME: TEXT})(piece[body:end])
                oversize.append(_name(_parsed(ClusterStats, name).cluster_name))
                continue
            (stats,) = _parsed(LoadStatsRequest, piece[start:end]).cluster_stats
            reports.append((yield from _hearing(stats)))
            if len(reports) % EVERY == 0:
                yield
        yield
    return LoadMessage(head.node, tuple(reports), tuple(oversize))


def _parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise PeerError("INVALID_ARGUMENT", f"not a load stats request: {error}") from error


def _hearing(stats: Any) -> Steps[ClusterReport]:
    """Decode the report of one cluster, in steps; its drops by category, with the drops of no category under ""."""
    # A category may be there several times.
    drops = Counter[str]()
    for count, drop in enumerate(stats.dropped_requests, 1):
        drops[_name(drop.category)] += drop.dropped_count
        if count % EVERY == 0:
            yield
    drops[""] += max(0, stats.total_dropped_requests - drops.total())  # the total includes those with a category
    localities: list[LocalityReport] = []
    for place in stats.upstream_locality_stats:
        localities.append((yield from _hearing_of(place)))
        if len(localities) % EVERY == 0:
            yield
    return ClusterReport(
        _name(stats.cluster_name),
        _name(stats.cluster_service_name),
        0.0,
        _seconds(stats.load_report_interval),
        tuple(localities),
        tuple((category, count) for category, count in drops.items() if count),
    )


def _name(text: str) -> str:
    """Cut a name that is too long, in a way that keeps it distinct from all others."""
    return bounded(text, NAME_BYTES, distinct=True)


def _hearing_of(stats: Any) -> Steps[LocalityReport]:
    """Decode the report of one locality, in steps."""
    place = stats.locality
    return LocalityReport(
        Locality(_name(place.region), _name(place.zone), _name(place.sub_zone)),
        stats.total_issued_requests,
        stats.total_successful_requests,
        stats.total_error_requests,
        stats.total_requests_in_progress,
        (yield from _hearing_metrics(stats)),
    )


def _hearing_metrics(stats: Any) -> Steps[tuple[MetricReport, ...]]:
    """Decode metrics, in steps.

    Utilizations have fields of their own (LRS-3); a named metric of the same name is a duplicate.
    """
    # The fields of their own come first and win over named metrics.
    own = {name: getattr(stats, name) for name in UTILIZATIONS if stats.HasField(name)}
    found = [_metric(name, each) for name, each in own.items()]
    for count, each in enumerate(stats.load_metric_stats, 1):
        if each.metric_name not in own:
            found.append(_metric(_name(each.metric_name), each))
        if count % EVERY == 0:
            yield
    return tuple(found)


def _metric(name: str, stats: Any) -> MetricReport:
    return MetricReport(name, stats.num_requests_finished_with_metric, stats.total_metric_value)


def _seconds(duration: Any) -> float:
    """Return a Duration in seconds; NaN if its parts contradict each other."""
    seconds, nanos = duration.seconds, duration.nanos
    # Both parts must have the same sign, and nanos less than a second.
    if abs(nanos) >= _NANOS or seconds * nanos < 0:
        return nan
    return float(seconds + nanos / _NANOS)


def _cluster(report: ClusterReport) -> Any:
    """Encode the report of one cluster."""
    proto = ClusterStats(
        cluster_name=report.cluster,
        cluster_service_name=report.service,
        upstream_locality_stats=map(_locality, report.localities),
        # With and without a category.
        total_dropped_requests=sum(count for _, count in report.drops),
    )
    for category, count in report.drops:
        if category:  # drops without a category are in the total only
            proto.dropped_requests.add(category=category, dropped_count=count)
    proto.load_report_interval.FromNanoseconds(round(report.interval * _NANOS))
    return proto


def _locality(report: LocalityReport) -> Any:
    """Encode the report of one locality."""
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
