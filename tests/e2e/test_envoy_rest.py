"""A real Envoy that polls: every type over REST, with a config source of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.lab import Lab
from tests.support.resources import Document, eds_cluster, endpoints, listener, routes, to
from tests.support.waiting import becomes, eventually


def _rest(**fields: Any) -> Document:
    source = {
        "api_type": "REST",
        "transport_api_version": "V3",
        "cluster_names": ["control_plane"],
        "refresh_delay": "0.05s",
    }
    return {"api_config_source": source | fields, "resource_api_version": "V3"}


def _bootstrap(port: int, **fields: Any) -> Document:
    endpoint = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}
    cluster = {
        "name": "control_plane",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "control_plane", "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
    }
    return {
        "node": {"id": "poller", "cluster": "lab", "metadata": {"env": "prod"}},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {"lds_config": _rest(**fields), "cds_config": _rest(**fields)},
        "static_resources": {"clusters": [cluster]},
    }


def _listener() -> Document:
    found = listener("web", "main")
    manager = found["filter_chains"][0]["filters"][0]["typed_config"]
    manager["rds"]["config_source"] = _rest()
    return found


def _publish(server: ControlPlane, cluster: str, **fields: str) -> None:
    """The route is for production only: the metadata of a node counts here too."""
    choice = {"$match": [{"when": "env=prod", "value": cluster}, {"value": "nowhere"}]}
    clusters = [eds_cluster(name, eds_cluster_config={"eds_config": _rest()}, **fields) for name in ("blue", "green")]
    server.write("main", routes("main", to(choice)), _listener(), *clusters)


@pytest.fixture
def server(lab: Lab) -> ControlPlane:
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    server = lab.control_plane()
    server.flags = ["--rest", "127.0.0.1:0"]
    _publish(server, "blue")
    server.write("endpoints", endpoints("blue", blue.port), endpoints("green", green.port))
    server.start()
    return server


def _failures(envoy: Envoy) -> dict[str, int]:
    found = envoy.stats("update_failure") | envoy.stats("update_rejected")
    return {name: value for name, value in found.items() if value}


# RST-1, RST-2: Envoy waits for one second, and is answered before that
def test_four_types_come_over_rest_and_an_update_too(lab: Lab, server: ControlPlane):
    envoy = lab.start_envoy(_bootstrap(server.rest_port))
    becomes(lambda: envoy.get("/"), "blue")
    eventually(lambda: 'xdsprism_rest_answers_total{status="304"}' in server.get("/metrics"))
    _publish(server, "green")
    becomes(lambda: envoy.get("/"), "green")
    assert _failures(envoy) == {}


# RST-2
def test_a_long_poll_brings_an_update_before_it_is_time_to_ask_again(lab: Lab, server: ControlPlane):
    envoy = lab.start_envoy(_bootstrap(server.rest_port, request_timeout="300s", refresh_delay="0.001s"))
    becomes(lambda: envoy.get("/"), "blue")
    attempts = envoy.stat("cluster_manager.cds.update_attempt")
    server.write("more", eds_cluster("red", type="STATIC", eds_cluster_config=None))
    becomes(lambda: set(envoy.clusters()), {"blue", "green", "red"})
    assert envoy.stat("cluster_manager.cds.update_attempt") <= attempts + 2, "it waited, and did not poll"
    assert _failures(envoy) == {}


# RST-1, ORD-11: the new cluster asks anew for its endpoints, and is not told that nothing is
def test_a_changed_cluster_has_its_endpoints_at_once(lab: Lab, server: ControlPlane):
    envoy = lab.start_envoy(_bootstrap(server.rest_port))
    becomes(lambda: envoy.get("/"), "blue")
    _publish(server, "blue", connect_timeout="2s")
    changed = {"blue": "2s", "green": "2s"}
    look = lambda: {name: cluster["connect_timeout"] for name, cluster in envoy.clusters().items()}  # noqa: E731
    becomes(look, changed, within=10)  # if it had to wait, then for 15 seconds
    assert envoy.get("/") == "blue"
    assert _failures(envoy) == {}


# RST-1: the server goes, and comes back with something else
def test_a_server_that_was_away_is_found_again(lab: Lab, server: ControlPlane):
    server.stop()
    server.flags = ["--rest", f"127.0.0.1:{server.rest_port}"]
    server.start()
    envoy = lab.start_envoy(_bootstrap(server.rest_port))
    becomes(lambda: envoy.get("/"), "blue")
    assert server.stop() == 0
    _publish(server, "green")
    server.start()
    becomes(lambda: envoy.get("/"), "green")
