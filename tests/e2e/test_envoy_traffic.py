"""A real Envoy carries traffic as the configuration says, over both forms of ADS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tests.support.backends import HttpBackend
from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.lab import Lab
from tests.support.resources import eds_cluster, endpoints, listener, routes, to
from tests.support.waiting import becomes, eventually

pytestmark = pytest.mark.usefixtures("engine")  # each test on both


class Scene(NamedTuple):
    """One Envoy that sends everything to the backend `blue`, with `green` waiting for its turn."""

    server: ControlPlane
    envoy: Envoy
    green: HttpBackend


def publish(server: ControlPlane, route: str, clusters: Sequence[str]) -> None:
    """One edit: everything goes to the cluster `route`, and only these clusters exist."""
    server.write("main", routes("main", to(route)), *map(eds_cluster, clusters))


@pytest.fixture(params=["delta", "sotw"])
def scene(lab: Lab, request: pytest.FixtureRequest) -> Scene:
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    server = lab.control_plane()
    publish(server, "blue", ["blue", "green"])
    server.write("listener", listener("web", "main"))
    server.write("endpoints", endpoints("blue", blue.port), endpoints("green", green.port))
    server.start()
    envoy = lab.envoy(server, request.param)
    becomes(lambda: envoy.get("/"), "blue")
    return Scene(server, envoy, green)


# SRV-1, SRV-6, SRV-18, SRV-23, ORD-1, SOT-1, DLT-1
def test_a_request_reaches_the_upstream_through_all_four_resource_types(scene: Scene):
    assert set(scene.envoy.clusters()) == {"blue", "green"}
    assert set(scene.envoy.listeners()) == {"web"}
    rejected = {name: value for name, value in scene.envoy.stats("update_rejected").items() if value}
    assert rejected == {}


# SOT-5, DLT-2
def test_a_changed_route_moves_the_traffic(scene: Scene):
    publish(scene.server, "green", ["blue", "green"])
    becomes(lambda: scene.envoy.get("/"), "green")


# SOT-5, DLT-2
def test_changed_endpoints_move_the_traffic(scene: Scene):
    scene.server.write("endpoints", endpoints("blue", scene.green.port), endpoints("green", scene.green.port))
    becomes(lambda: scene.envoy.get("/"), "green")


# SOT-6, DLT-6
def test_a_removed_listener_is_closed_and_opens_again_when_it_is_back(scene: Scene):
    scene.server.remove("listener")
    becomes(lambda: scene.envoy.get("/"), "no listener")
    scene.server.write("listener", listener("web", "main"))
    becomes(lambda: scene.envoy.get("/"), "blue")


# ORD-2, ORD-3, SOT-6, DLT-6: make before break.
def test_a_cluster_that_one_edit_leaves_and_removes_fails_no_request(scene: Scene):
    with scene.envoy.traffic() as traffic:
        eventually(lambda: traffic.answers)
        publish(scene.server, "green", ["green"])
        becomes(lambda: set(scene.envoy.clusters()), {"green"})
        becomes(lambda: traffic.answers[-1], "green")
    assert set(traffic.answers) == {"blue", "green"}


# ORD-8: the endpoints of a cluster that comes back are sent again, though they did not change.
def test_a_cluster_that_was_removed_carries_traffic_when_it_is_back(scene: Scene):
    publish(scene.server, "blue", ["green"])
    becomes(lambda: scene.envoy.get("/"), "HTTP 503")
    publish(scene.server, "blue", ["blue", "green"])
    becomes(lambda: scene.envoy.get("/"), "blue")
