"""What Envoy refuses by the annotations in its protos is refused here, and what it accepts is accepted."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.envoy import binary
from xdsprism.sources.parse import parse

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


def endpoint(port: int) -> dict[str, Any]:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]}


def options(**fields: Any) -> dict[str, Any]:
    kind = {"@type": f"type.googleapis.com/{OPTIONS}", "explicit_http_config": {"http2_protocol_options": fields}}
    return {"typed_extension_protocol_options": {OPTIONS: kind}}


def tls(**fields: Any) -> dict[str, Any]:
    return {"transport_socket": {"name": "tls", "typed_config": {"@type": TLS, **fields}}}


GOOD: dict[str, dict[str, Any]] = {
    "plain": {},
    "limits at their edge": {"per_connection_buffer_limit_bytes": 0, "connect_timeout": "0.001s"},
    "nested typed config": options(max_concurrent_streams=1),
    "health check": {"health_checks": [{"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1,
                                        "healthy_threshold": 1, "tcp_health_check": {}}]},
    "TLS": tls(sni="x.test"),
}  # fmt: skip
BAD: dict[str, dict[str, Any]] = {
    "no name": {"name": ""},
    "negative duration": {"connect_timeout": "-1s"},
    "zero duration": {"connect_timeout": "0s"},
    "unknown enum value": {"lb_policy": 77},
    "port above the range": {"load_assignment": {"cluster_name": "c", **endpoint(70_000)}},
    "too small, behind a wrapper": options(max_concurrent_streams=0),
    "oneof is required": {"health_checks": [{"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1,
                                             "healthy_threshold": 1}]},
    "message is required": {"health_checks": [{"interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1,
                                               "tcp_health_check": {}}]},
    "string too long, in a typed config": tls(sni="x" * 300),
    "item of a list": {"load_assignment": {"cluster_name": "c", "policy": {"drop_overloads": [{"category": ""}]}}},
    "number above the range": {"outlier_detection": {"max_ejection_percent": 101}},
    "undefined field": {"connect_timeoutt": "1s"},
}  # fmt: skip


def cluster(fields: dict[str, Any]) -> dict[str, Any]:
    base = {"name": "c", "type": "STATIC", "load_assignment": {"cluster_name": "c", **endpoint(80)}}
    return {**base, **fields}


def envoy_refuses(document: dict[str, Any], folder: Path) -> str | None:
    file = folder / "envoy.yaml"
    file.write_text(yaml.safe_dump({"static_resources": {"clusters": [document]}}))
    done = subprocess.run(
        [binary(), "--mode", "validate", "-c", file, "-l", "error"], capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else done.stdout + done.stderr


def we_refuse(document: dict[str, Any]) -> list[str]:
    parsed = parse(yaml.safe_dump({"@type": CLUSTER, **document}), "cluster.yaml")
    return [str(problem) for problem in parsed.problems]


@pytest.mark.parametrize("kind", GOOD)
def test_both_accept(kind: str, tmp_path: Path):
    document = cluster(GOOD[kind])
    assert envoy_refuses(document, tmp_path) is None
    assert not we_refuse(document)


@pytest.mark.parametrize("kind", BAD)
def test_both_refuse(kind: str, tmp_path: Path):
    document = cluster(BAD[kind])
    assert envoy_refuses(document, tmp_path)
    (problem,) = we_refuse(document)
    assert problem.startswith("cluster.yaml:")
