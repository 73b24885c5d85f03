"""Load reports as protobuf. A30: version 2 has the same bytes, so everything is written and read as version 3."""

from __future__ import annotations

from typing import Any

from envoy.config.endpoint.v3.load_report_pb2 import ClusterStats, UpstreamLocalityStats
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest, LoadStatsResponse
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue

from ..errors import PeerError
from .loads import ClusterReport, LoadAnswer, LoadRequest, LocalityReport

# Of the node: without it a server must list the clusters that it wants to hear of (lrs.proto, send_all_clusters).
SEND_ALL_CLUSTERS = "envoy.lrs.supports_send_all_clusters"

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
    interval = proto.load_reporting_interval
    return LoadAnswer(interval.seconds + interval.nanos / _NANOS, frozenset(proto.clusters), proto.send_all_clusters)


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
        proto.load_metric_stats.add(
            metric_name=metric.name,
            num_requests_finished_with_metric=metric.requests,
            total_metric_value=metric.total,
        )
    return proto
