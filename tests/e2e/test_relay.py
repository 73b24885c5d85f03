"""Real Envoys and a real gRPC client behind `xdsprism relay` behind `xdsprism serve`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import grpcio_caller, scenarios
from tests.support.relay_process import RelayedLab
from tests.support.resources import eds_cluster, endpoints, listener, routes, to
from tests.support.waiting import becomes

CLIENT = [sys.executable, Path(grpcio_caller.__file__)]


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[RelayedLab]:
    with RelayedLab(tmp_path, "--node-params", "env") as lab:
        yield lab
        for name, log in lab.logs().items():
            print(f"end of {name}:\n{log}")


def by_env(blue: str, green: str) -> dict[str, object]:
    return {"$match": [{"when": "env=prod", "value": green}, {"value": blue}]}


# PRX-4, PRX-6, PRX-7, PRX-10, PRX-15
def test_two_envoys_get_their_own_variants_and_outlive_the_server(relayed: RelayedLab):
    blue, green, red = (relayed.http_backend(name) for name in ("blue", "green", "red"))
    server = relayed.control_plane()
    server.write("main", routes("main", to(by_env("blue", "green"))), *map(eds_cluster, ("blue", "green", "red")))
    server.write("listener", listener("web", "main"))
    backends = {"blue": blue, "green": green, "red": red}
    server.write("endpoints", *[endpoints(name, backend.port) for name, backend in backends.items()])
    server.start()
    prod = relayed.envoy(server, "delta", {"env": "prod", "host": "one"})
    test = relayed.envoy(server, "sotw", {"env": "test", "host": "two"})
    becomes(lambda: prod.get("/"), "green")
    becomes(lambda: test.get("/"), "blue")
    server.write("main", routes("main", to(by_env("blue", "red"))), *map(eds_cluster, ("blue", "red")))
    becomes(lambda: prod.get("/"), "red")
    assert test.get("/") == "blue"
    server.stop()
    late = relayed.envoy(server, "delta", {"env": "prod", "host": "three"})
    becomes(lambda: late.get("/"), "red")  # PRX-2: from the cache, since nobody else is there
    assert (prod.get("/"), test.get("/")) == ("red", "blue")
    server.write("main", routes("main", to("blue")), *map(eds_cluster, ("blue", "red")))
    server.start()
    becomes(lambda: [envoy.get("/") for envoy in (prod, test, late)], ["blue", "blue", "blue"])
    rejected = [value for envoy in (prod, test, late) for value in envoy.stats("update_rejected").values()]
    assert not any(rejected)


# PRX-15, PRX-18
def test_grpc_calls_reach_the_backend_and_an_update_moves_them(relayed: RelayedLab):
    scenarios.calls_reach_the_backend_and_an_update_moves_them(relayed, CLIENT)


# PRX-12
def test_a_removed_listener_fails_grpc_calls_and_they_recover(relayed: RelayedLab):
    scenarios.a_removed_listener_fails_the_calls_and_they_recover(relayed, CLIENT)


# PRX-4, PRX-7
def test_two_grpc_clients_get_their_own_variants(relayed: RelayedLab):
    scenarios.two_clients_get_their_own_variants(relayed, CLIENT)
