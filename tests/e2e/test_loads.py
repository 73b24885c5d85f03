"""Load reports of real clients."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support import envoy, grpcio_caller
from tests.support.control_plane import ControlPlane
from tests.support.lab import Lab
from tests.support.resources import api_listener, eds_cluster, endpoints, listener, routes, to
from tests.support.waiting import becomes, eventually


def _server(lab: Lab, port: int, **fields: Any) -> ControlPlane:
    server = lab.control_plane()
    server.flags = ["--load-interval", "0.5"]
    cluster = eds_cluster("blue", **fields)
    server.write("main", api_listener("svc", "main"), listener("web", "main"), routes("main", to("blue")), cluster)
    server.write("endpoints", endpoints("blue", port))
    server.start()
    return server


def _place(server: ControlPlane, node: str) -> dict[str, Any] | None:
    """What this client reports of the only place of the cluster."""
    clients = {each["node"]: each for each in json.loads(server.get("/api/loads"))["clients"]}
    clusters = {each["cluster"]: each for each in clients.get(node, {}).get("clusters", [])}
    return next(iter(clusters["blue"]["localities"]), None) if "blue" in clusters else None


def _reports(server: ControlPlane, node: str) -> None:
    seen = eventually(
        lambda: _place(server, node), lambda place: place is not None and place["succeeded_per_second"] > 0
    )
    assert seen is not None
    assert (seen["region"], seen["zone"]) == ("here", "")
    assert seen["issued_per_second"] > 0
    assert f'client="{node}",cluster="blue",locality="here",result="succeeded"' in server.get("/metrics")
    assert 'xdsprism_load_reports_total{result="refused"}' not in server.get("/metrics")


# LRS-1
def test_grpcio_reports_what_it_calls(lab: Lab):
    blue = lab.grpc_backend("blue")
    server = _server(lab, blue.port, lrs_server={"self": {}})
    caller = lab.caller([sys.executable, Path(grpcio_caller.__file__)], server)
    caller.reaches("blue")
    _reports(server, "caller")
    caller.close()
    becomes(lambda: json.loads(server.get("/api/loads"))["total"], 0)


# LRS-1
def test_envoy_reports_what_it_forwards(lab: Lab):
    blue = lab.http_backend("blue")
    server = _server(lab, blue.port)
    config = envoy.bootstrap("delta", server.port, {"id": "forwarder", "cluster": "lab"})
    ads = config["dynamic_resources"]["ads_config"]
    config["cluster_manager"] = {"load_stats_config": {**ads, "api_type": "GRPC"}}
    running = lab.start_envoy(config)
    becomes(lambda: running.get("/"), "blue")
    with running.traffic():
        _reports(server, "forwarder")
