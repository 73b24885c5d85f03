"""A real Envoy with route configurations of its own, with virtual hosts by VHDS, beside others by RDS (VHD-27)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import resources
from tests.support.envoy import bootstrap
from tests.support.lab import Lab
from tests.support.on_demand import Client, host, inline_host, listener, route_config
from tests.support.resources import Document
from tests.support.tap import Tap


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path) as running:
        yield running


def with_routes(name: str, route_name: str) -> Document:
    """A listener that has its route configuration in it; no timer ends its wait for virtual hosts."""
    document = listener(name, route_name)
    hcm = document["filter_chains"][0]["filters"][0]["typed_config"]
    del hcm["rds"]
    hcm["route_config"] = {key: value for key, value in route_config(route_name, "ads").items() if key != "@type"}
    return document


def routes_that_say(name: str, says: str) -> Document:
    inline = inline_host("all", ["*"], says)
    return {key: value for key, value in route_config(name, "ads", inline).items() if key != "vhds"}


# VHD-27, VHD-13
def test_virtual_hosts_under_static_route_configurations_beside_others_by_rds(lab: Lab):
    server = lab.control_plane()
    server.write("listener", listener("web", "main"), resources.listener("plain", "no-vhds"))
    server.write("routes", route_config("main", "ads"), resources.routes("no-vhds"))
    based = [
        host("based/base", ["base.example"], "base") | {"$base": True},
        host("based/more", ["more.example"], "more"),
    ]
    bare = [host("bare/own", ["own.example"], "own"), host("main/shop", ["shop.example"], "shop")]
    server.write("hosts", *based, *bare)
    server.start()
    with Tap(server.port) as tap:
        config = bootstrap("delta", tap.port, {"id": "envoy", "cluster": "lab"})
        del config["dynamic_resources"]["cds_config"]
        static = [with_routes(name, name) for name in ("based", "bare")]
        config["static_resources"]["listeners"] = [
            {key: value for key, value in each.items() if key != "@type"} for each in static
        ]
        client = Client(lab.start_envoy(config), tap)

        assert client.get("own.example", "bare") == "own"  # its listener is open, though it has no base host
        assert client.get("base.example", "based") == "base"
        assert client.get("more.example", "based") == "more"
        assert client.get("shop.example", "web") == "shop"
        assert client.get("none.example", "bare") == "HTTP 404"
        assert "main" in tap.subscribed("RouteConfiguration")
        assert not {"based", "bare"}.intersection(tap.subscribed("RouteConfiguration"))

        server.write("hosts", *based[1:], host("bare/own", ["own.example"], "changed"), *bare[1:])
        server.write("late", host("bare/late", ["none.example"], "late"), host("based/base", ["base.example"], "again"))
        client.becomes("own.example", "changed", "bare")
        client.becomes("none.example", "late", "bare")
        client.becomes("base.example", "again", "based")
        assert client.nacks() == []


# VHD-27: when Envoy asks for virtual hosts, the server has sent it a route configuration, but not this one.
def test_virtual_hosts_under_a_route_configuration_inside_a_listener_that_comes_after_another_by_rds(lab: Lab):
    server = lab.control_plane()
    server.write("listener", resources.listener("web", "main"))
    server.write("routes", routes_that_say("main", "shop"))
    server.write("hosts", host("inside/own", ["own.example"], "own"))
    server.start()
    with Tap(server.port) as tap:
        config = bootstrap("delta", tap.port, {"id": "envoy", "cluster": "lab"})
        del config["dynamic_resources"]["cds_config"]
        client = Client(lab.start_envoy(config), tap)
        client.becomes("shop.example", "shop")
        server.write("listener", resources.listener("web", "main"), with_routes("with-routes", "inside"))
        assert client.get("own.example", "with-routes") == "own"
        server.write("hosts", host("inside/own", ["own.example"], "new"))
        client.becomes("own.example", "new", "with-routes")
        assert client.nacks() == []
