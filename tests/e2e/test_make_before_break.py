"""A listener moves to other routes and the cluster behind the old ones goes, in one edit: no request may fail."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import grpcio_caller, scenarios, web
from tests.support.envoy import Envoy, bootstrap
from tests.support.lab import Lab
from tests.support.relay_process import RelayedLab
from tests.support.resources import (
    Document,
    eds_cluster,
    endpoints,
    inline_listener,
    listener,
    routes,
    static_cluster,
    to,
)
from tests.support.tap import Tap
from tests.support.waiting import becomes, eventually

CLIENT = [sys.executable, Path(grpcio_caller.__file__)]
ROUNDS = 8


def edit(number: int, kind: str, port: int) -> list[Document]:
    """Everything goes to one cluster, and there is no other. Every second round the routes are inline, or never.

    Envoy uses inline routes as soon as it has them, be their cluster warm or not. So that is one which is warm at once.
    """
    cluster = f"c{number}"
    if kind == "inline" and number % 2 == 0:
        return [inline_listener("web", to(cluster)), static_cluster(cluster, "127.0.0.1", port)]
    return [listener("web", f"r{number}"), routes(f"r{number}", to(cluster)), eds_cluster(cluster)]


@contextmanager
def load(envoy: Envoy) -> Iterator[list[str]]:
    """Requests without a pause, each on a connection of its own: one that is open is still the old listener's."""
    answers: list[str] = []
    ended = threading.Event()
    port = envoy.listeners()["web"]

    def run() -> None:
        while not ended.is_set():
            try:
                answer = web.get("127.0.0.1", port, "/")
                answers.append(answer.body if answer.status == 200 else f"HTTP {answer.status}")
            except OSError as error:
                answers.append(repr(error))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def moves_without_a_failure(lab: Lab, mode: str, kind: str) -> None:
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    server = lab.control_plane()
    ports = [(blue if number % 2 == 0 else green).port for number in range(ROUNDS)]
    server.write("endpoints", *(endpoints(f"c{number}", port) for number, port in enumerate(ports)))
    server.write("main", *edit(0, kind, ports[0]))
    server.start()
    envoy = lab.envoy(server, mode)
    becomes(lambda: envoy.get("/"), "blue")
    with load(envoy) as answers:
        eventually(lambda: answers)
        for number in range(1, ROUNDS):
            server.write("main", *edit(number, kind, ports[number]))
            becomes(lambda: set(envoy.clusters()), {f"c{number}"})
            becomes(lambda: answers[-1], ("blue", "green")[number % 2])
    assert set(answers) == {"blue", "green"}


# ORD-2, ORD-3
@pytest.mark.parametrize("kind", ["inline", "rds"])
@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_envoy_fails_no_request_while_its_listener_moves_to_other_routes(lab: Lab, mode: str, kind: str):
    moves_without_a_failure(lab, mode, kind)


# ORD-2, PRX-29
@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_nor_behind_a_relay(tmp_path: Path, mode: str):
    with RelayedLab(tmp_path, "--node-params", "env") as lab:
        moves_without_a_failure(lab, mode, "inline")


# ORD-2
def test_grpcio_fails_no_call_while_its_listener_moves_to_other_routes(lab: Lab):
    scenarios.a_listener_moves_to_other_routes_and_no_call_fails(lab, CLIENT)


# ORD-7
def test_a_sotw_envoy_that_waits_for_endpoints_asks_for_clusters_when_the_wait_is_over(lab: Lab):
    """S20 in docs/clients.md: with an `initial_fetch_timeout` of 0s this Envoy would never ask for clusters again."""
    blue = lab.http_backend("blue")
    server = lab.control_plane()
    source = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "12s"}

    def write(route: str, *clusters: str, with_endpoints: str) -> None:
        made = [eds_cluster(name, eds_cluster_config={"eds_config": source}) for name in clusters]
        served = endpoints(with_endpoints, blue.port)
        server.write("main", listener("web", "r"), routes("r", to(route)), *made, served)

    write("old", "old", with_endpoints="old")
    server.start()
    with Tap(server.port) as tap:
        envoy = lab.start_envoy(bootstrap("sotw", tap.port, {"id": "envoy", "cluster": "lab"}))
        becomes(lambda: envoy.get("/"), "blue")
        write("old", "old", "gone", with_endpoints="old")
        becomes(lambda: set(envoy.clusters("dynamic_warming_clusters")), {"gone"})

        assert server.stop() == 0
        write("new", "old", "new", with_endpoints="new")
        server.start()
        becomes(lambda: set(envoy.clusters()), {"old", "new"})
        becomes(lambda: envoy.get("/"), "blue")
        last = max(tap.streams)
        asked = [each.kind for each in tap.requests if each.stream == last]
        assert asked.index("RouteConfiguration") < asked.index("Cluster"), "Envoy's own order"
