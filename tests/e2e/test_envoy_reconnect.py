"""A real Envoy and a server that is stopped and started again, on the same port with the same files."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.lab import Lab
from tests.support.resources import eds_cluster, endpoints, listener, routes, to
from tests.support.waiting import becomes, eventually

pytestmark = pytest.mark.usefixtures("engine")  # each test on both


class Scene(NamedTuple):
    """One Envoy with clusters `blue`, which has all traffic, and `green`."""

    server: ControlPlane
    envoy: Envoy


def _scene(lab: Lab, mode: str) -> Scene:
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    server = lab.control_plane()
    server.write("listener", listener("web", "main"))
    server.write("routes", routes("main", to("blue")))
    server.write("clusters", eds_cluster("blue"), eds_cluster("green"))
    server.write("endpoints", endpoints("blue", blue.port), endpoints("green", green.port))
    server.start()
    envoy = lab.envoy(server, mode)
    becomes(lambda: envoy.get("/"), "blue")
    return Scene(server, envoy)


def _stop(scene: Scene) -> None:
    assert scene.server.stop() == 0
    becomes(lambda: scene.envoy.stat("control_plane.connected_state"), 0)
    assert scene.envoy.get("/") == "blue"


def _start_again(scene: Scene) -> None:
    """Envoy asks for routes last: where the server knows of them, it has had every first request of the new stream."""
    scene.server.start()
    eventually(lambda: scene.server.get("/api/clients"), lambda page: "RouteConfiguration" in page)


# DLT-13, SOT-12, SRV-10, SRV-12. Endpoints are sent again (DLT-13), and routes in SotW (SOT-12: a named subscription).
@pytest.mark.parametrize(("mode", "routes_again"), [("delta", 0), ("sotw", 1)])
def test_after_a_restart_nothing_is_sent_that_envoy_has(lab: Lab, mode: str, routes_again: int):
    scene = _scene(lab, mode)
    _stop(scene)
    _start_again(scene)
    # One visible change, of the last type on the stream. What came before it has arrived when it has arrived.
    scene.server.write("routes", routes("main", to("green")))
    becomes(lambda: scene.envoy.get("/"), "green")
    sent = {kind: scene.server.counter("sent_resources", kind) for kind in ("cds", "lds", "rds")}
    assert sent == {"cds": 0, "lds": 0, "rds": routes_again + 1}


# DLT-12, DLT-14, SOT-13
@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_changes_during_an_outage_arrive_when_the_server_is_back(lab: Lab, mode: str):
    scene = _scene(lab, mode)
    _stop(scene)
    scene.server.write("routes", routes("main", to("green")))
    scene.server.write("clusters", eds_cluster("green"))
    scene.server.start()
    becomes(lambda: scene.envoy.get("/"), "green")
    becomes(lambda: set(scene.envoy.clusters()), {"green"})


# ORD-2, DLT-14. In SotW nothing can be done: what `blue` was is gone with the server that knew it.
def test_a_cluster_that_went_while_the_server_was_down_outlives_its_last_request(lab: Lab):
    scene = _scene(lab, "delta")
    _stop(scene)
    scene.server.write("routes", routes("main", to("green")))
    scene.server.write("clusters", eds_cluster("green"))
    with scene.envoy.traffic() as traffic:
        scene.server.start()
        becomes(lambda: set(scene.envoy.clusters()), {"green"})
        becomes(lambda: traffic.answers[-1:], ["green"])
    assert set(traffic.answers) == {"blue", "green"}
