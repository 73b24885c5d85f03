"""xdstp names in the hands of real clients: Envoy's collections, gRPC's federation, and our own command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.support import callers, envoy, grpcio_caller
from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.lab import Lab
from tests.support.resources import Document, api_listener, eds_cluster, endpoints, listener, routes, static_cluster, to
from tests.support.waiting import becomes

CLIENT = [sys.executable, Path(grpcio_caller.__file__)]

LISTENERS = "xdstp://lab.example/envoy.config.listener.v3.Listener"
ROUTES = "xdstp://lab.example/envoy.config.route.v3.RouteConfiguration"
CLUSTERS = "xdstp://lab.example/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "xdstp://lab.example/envoy.config.endpoint.v3.ClusterLoadAssignment"

WEB, BLUE, GREEN = f"{LISTENERS}/edge/web?shard=1", f"{CLUSTERS}/edge/blue", f"{CLUSTERS}/edge/green"


def _collecting_envoy(lab: Lab, server: ControlPlane) -> Envoy:
    config = envoy.bootstrap("delta", server.port, {"id": "collector", "cluster": "lab"})
    config["dynamic_resources"]["lds_resources_locator"] = f"{LISTENERS}/edge/*?shard=1"
    config["dynamic_resources"]["cds_resources_locator"] = f"{CLUSTERS}/edge/*"
    return lab.start_envoy(config)


def _cluster(lab: Lab, name: str) -> Document:
    return static_cluster(name, "127.0.0.1", lab.http_backend(name.rpartition("/")[2]).port)


# XTP-3, XTP-4, WLD-11
def test_envoy_follows_its_collections(lab: Lab):
    blue, green = _cluster(lab, BLUE), _cluster(lab, GREEN)
    others = [static_cluster(f"{CLUSTERS}/{path}", "127.0.0.1", 1) for path in ("other/a", "edge/deep/b", "edge/c?k=v")]
    server = lab.control_plane()
    server.write("listeners", listener(WEB, "main"), listener(f"{LISTENERS}/edge/web?shard=2", "main"))
    server.write("main", routes("main", to(BLUE)), blue, *others)
    server.start()
    proxy = _collecting_envoy(lab, server)
    becomes(lambda: proxy.get("/", WEB), "blue")
    assert set(proxy.clusters()) == {BLUE}
    assert set(proxy.listeners()) == {WEB}

    server.write("main", routes("main", to(GREEN)), blue, green, *others)
    becomes(lambda: proxy.get("/", WEB), "green")
    server.write("main", routes("main", to(GREEN)), green, *others)
    becomes(lambda: set(proxy.clusters()), {GREEN})
    assert server.counter("nacks", "cds") == server.counter("nacks", "lds") == 0


# XTP-5
def test_envoy_starts_with_empty_collections_and_gets_what_comes(lab: Lab):
    server = lab.control_plane()
    server.write("main", routes("main", to(BLUE)))
    server.start()
    proxy = _collecting_envoy(lab, server)
    becomes(lambda: proxy.admin("/ready").strip(), "LIVE")

    server.write("clusters", _cluster(lab, BLUE))
    server.write("listeners", listener(WEB, "main"))
    becomes(lambda: proxy.get("/", WEB), "blue")


# XTP-3, DLT-17. Envoy 1.40 does not tell a new stream which members it has: what went meanwhile, it keeps.
def test_envoy_goes_on_with_its_collections_after_a_restart_of_the_server(lab: Lab):
    blue, green = _cluster(lab, BLUE), _cluster(lab, GREEN)
    server = lab.control_plane()
    server.write("listeners", listener(WEB, "main"))
    server.write("main", routes("main", to(BLUE)), blue)
    server.start()
    proxy = _collecting_envoy(lab, server)
    becomes(lambda: proxy.get("/", WEB), "blue")

    server.stop()
    server.write("main", routes("main", to(GREEN)), blue, green)
    server.start()
    becomes(lambda: proxy.get("/", WEB), "green")
    server.write("main", routes("main", to(GREEN)), green)
    becomes(lambda: set(proxy.clusters()), {GREEN})


def _federated_envoy(lab: Lab, server: ControlPlane) -> Envoy:
    """One that asks for the names of an authority at the server of that authority; a switch that is off by default."""
    config = envoy.bootstrap("delta", server.port, {"id": "federated", "cluster": "lab"})
    ads = config["dynamic_resources"]["ads_config"]
    api = ads | {"api_type": "AGGREGATED_DELTA_GRPC"}
    config["config_sources"] = [{"api_config_source": api, "authorities": [{"name": "lab.example"}]}]
    flag = "envoy.reloadable_features.xdstp_based_config_singleton_subscriptions"
    config["layered_runtime"] = {"layers": [{"name": "static", "static_layer": {flag: True}}]}
    return lab.start_envoy(config)


# XTP-1, XTP-2: Envoy writes `:` as `%3A` and the context in order; what is inside must be as the listener has it
def test_envoy_asks_an_authority_for_single_names(lab: Lab):
    server = lab.control_plane()
    name = f"{ROUTES}/edge:8080?b=2&a=1"
    server.write("listeners", listener("web", name))
    server.write("clusters", _cluster(lab, BLUE), _cluster(lab, GREEN))
    server.write("main", routes(name, to(BLUE)))
    server.start()
    proxy = _federated_envoy(lab, server)
    becomes(lambda: proxy.get("/"), "blue")
    server.write("main", routes(name, to(GREEN)))
    becomes(lambda: proxy.get("/"), "green")
    assert server.counter("nacks", "rds") == 0


# -- gRPC


def _federated(server: ControlPlane) -> dict[str, Any]:
    """Everything is asked for at an authority; the context is not in the order in which it is compared."""
    config = callers.bootstrap(server.port, {})
    template = f"{LISTENERS}/client/%s?b=2&a=1"
    authority = {"xds_servers": config["xds_servers"], "client_listener_resource_name_template": template}
    return config | {"authorities": {"lab.example": authority}}


# XTP-1, XTP-2
def test_grpcio_resolves_a_target_of_an_authority(lab: Lab):
    blue, green = lab.grpc_backend("blue"), lab.grpc_backend("green")
    server = lab.control_plane()
    cluster = eds_cluster(f"{CLUSTERS}/a")
    cluster["eds_cluster_config"]["service_name"] = f"{ENDPOINTS}/a?y=2&x=1"
    server.write("listener", api_listener(f"{LISTENERS}/client/svc?b=2&a=1", f"{ROUTES}/main?b=2&a=1"))
    server.write("main", routes(f"{ROUTES}/main?a=1&b=2", to(f"{CLUSTERS}/a")), cluster)
    server.write("endpoints", endpoints(f"{ENDPOINTS}/a?x=1&y=2", blue.port))
    server.start()
    caller = lab.start_caller(CLIENT, _federated(server), target="xds://lab.example/svc")
    caller.reaches("blue")

    server.write("endpoints", endpoints(f"{ENDPOINTS}/a?y=2&x=1", green.port))
    caller.reaches("green")
    server.remove("listener")
    caller.fails("Say")
    replies = caller.replies()
    assert None not in replies[replies.index("blue") : replies.index("green")]
