"""A real Envoy and gRPC's own xDS client over TLS, certificates at both ends, and one that is replaced meanwhile."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import callers, envoy, grpcio_caller
from tests.support.certificates import Authority, Pair
from tests.support.control_plane import ControlPlane
from tests.support.lab import Lab
from tests.support.resources import api_listener, eds_cluster, endpoints, listener, routes, to
from tests.support.waiting import becomes

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

CLIENT = [sys.executable, Path(grpcio_caller.__file__)]
TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


def _envoy(port: int, roots: Authority, own: Pair) -> dict[str, Any]:
    pair = {"certificate_chain": {"filename": str(own.certificate)}, "private_key": {"filename": str(own.key)}}
    named = {"san_type": "DNS", "matcher": {"exact": "localhost"}}
    validation = {"trusted_ca": {"filename": str(roots.certificate)}, "match_typed_subject_alt_names": [named]}
    context = {"tls_certificates": [pair], "validation_context": validation}
    config = envoy.bootstrap("delta", port, {"id": "envoy", "cluster": "lab"})
    (control_plane,) = config["static_resources"]["clusters"]
    typed = {"@type": TLS, "sni": "localhost", "common_tls_context": context}
    control_plane["transport_socket"] = {"name": "envoy.transport_sockets.tls", "typed_config": typed}
    return config


def _caller(port: int, roots: Authority, own: Pair) -> dict[str, Any]:
    config = callers.bootstrap(port, {"kind": "grpc"})
    files = {"ca_certificate_file": str(roots.certificate), "certificate_file": str(own.certificate)}
    files["private_key_file"] = str(own.key)
    config["xds_servers"][0]["channel_creds"] = [{"type": "tls", "config": files}]
    return config


def _identities(server: ControlPlane) -> dict[str, list[str]]:
    clients = json.loads(server.get("/api/clients"))["clients"]
    return {client["node"]["id"]: client["identities"] for client in clients if client["node"] is not None}


def test_a_certificate_is_replaced_while_envoy_stays_and_grpc_comes(lab: Lab, tmp_path: Path):
    first, second, clients = (Authority(tmp_path, name) for name in ("first", "second", "clients"))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    first.make("server").put(certificate, key)
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    said = lab.grpc_backend("said")
    server = lab.control_plane()
    server.flags = ["--tls-cert", str(certificate), "--tls-key", str(key), "--tls-client-ca", str(clients.certificate)]
    server.write("listener", listener("web", "main"), {"$when": "kind=grpc", **api_listener("svc", "calls")})
    server.write("routes", routes("main", to("blue")), routes("calls", to("said")))
    server.write("clusters", *map(eds_cluster, ("blue", "green", "said")))
    server.write("endpoints", *(endpoints(each.name, each.port) for each in (blue, green, said)))
    server.start()
    proxy = lab.start_envoy(_envoy(server.port, first, clients.make("envoy", ("URI:spiffe://lab/envoy",))))
    becomes(lambda: proxy.get("/"), "blue")

    second.make("server").put(certificate, key)  # only who trusts the second authority gets in from now on
    becomes(lambda: 'xdsprism_tls_loads_total{result="ok"} 2.0' in server.get("/metrics"), expected=True)
    caller = lab.start_caller(CLIENT, _caller(server.port, second, clients.make("caller", ("DNS:caller.lab",))))
    caller.reaches("said")
    assert _identities(server) == {"envoy": ["spiffe://lab/envoy"], "caller": ["caller.lab"]}

    server.write("routes", routes("main", to("green")), routes("calls", to("said")))
    becomes(lambda: proxy.get("/"), "green")
    assert proxy.stat("cluster.control_plane.upstream_cx_total") == 1, "by the connection that it has had"

    assert server.stop() == 0
    becomes(lambda: proxy.stat("control_plane.connected_state"), 0)
    assert proxy.get("/") == "green"
