"""Clusters on demand, with a real Envoy: a request that names a cluster waits for it, and for no other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.lab import Lab
from tests.support.on_demand import LABS, STREAMS, Client, Scene, host, listener, route_config, source
from tests.support.resources import eds_cluster, endpoints, static_cluster, to
from tests.support.waiting import becomes

FENCES = itertools.count(1)


@pytest.fixture(scope="module", params=LABS)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with LABS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def ports(lab: Lab) -> dict[str, int]:
    return {name: lab.http_backend(name).port for name in ("blue", "green")}


@pytest.fixture(scope="module", params=STREAMS)
def scene(lab: Lab, ports: dict[str, int], request: pytest.FixtureRequest) -> Iterator[Scene]:
    with Scene(lab, request.param) as running:
        # Without an answer a request would wait longer than any test.
        on_demand = {"source": source(request.param), "timeout": "3600s"}
        running.server.write("listener", listener("web", "main", odcds=on_demand))
        by_header = {"match": {"prefix": "/"}, "route": {"cluster_header": "cluster"}}
        chosen = {"name": "chosen", "domains": ["chosen.example"], "routes": [by_header]}
        running.server.write("routes", route_config("main", request.param, chosen))
        for name in ("first", "updated", "brief", "unused", "of-a-host"):
            running.server.write(name, static_cluster(name, "127.0.0.1", ports["blue"]))
        running.server.write("eds", eds_cluster("eds"), endpoints("eds", ports["blue"]))
        running.server.write("hosts", host("main/host", ["host.example"], "") | {"routes": [to("of-a-host")]})
        yield running


@pytest.fixture(scope="module")
def client(scene: Scene) -> Client:
    """One Envoy for the whole file. Every test has clusters of its own."""
    return scene.start()


def get(client: Client, cluster: str) -> str:
    return client.get("chosen.example", cluster=cluster)


def asked(client: Client) -> list[str]:
    """The clusters asked for so far; as with hosts, one more bounds them."""
    fence = f"fence-{next(FENCES)}"
    assert get(client, fence) == "HTTP 503"
    names = client.tap.subscribed("Cluster")
    assert names[-1] == fence
    return [name for name in names if not name.startswith("fence")]


# VHD-21
def test_the_first_request_to_a_cluster_fetches_it_and_a_warm_one_asks_nothing(client: Client):
    assert get(client, "first") == "blue"
    assert get(client, "first") == "blue"
    assert asked(client).count("first") == 1
    assert "unused" not in client.envoy.clusters()


# VHD-21, VHD-3
def test_a_host_on_demand_brings_its_cluster_on_demand(client: Client):
    assert client.get("host.example") == "blue"
    assert client.hosts_asked().count("main/host.example") == 1
    assert asked(client).count("of-a-host") == 1


# VHD-21. Only an answer ends the wait for it; and since Envoy does not ask twice, the next request waits for a push.
def test_a_cluster_that_does_not_exist_is_503_at_once_and_200_when_it_is_created(
    scene: Scene, client: Client, ports: dict[str, int]
):
    assert get(client, "late") == "HTTP 503"
    waiting = client.send("chosen.example", cluster="late")
    streams = dict(client.tap.streams)
    scene.server.write("late", static_cluster("late", "127.0.0.1", ports["green"]))
    assert [waiting.answer(), get(client, "late")] == ["green", "green"]
    assert asked(client).count("late") == 1, "it was pushed"
    assert client.tap.streams == streams, "over the stream that was there"


# VHD-21
def test_an_update_of_a_cluster_moves_its_traffic(scene: Scene, client: Client, ports: dict[str, int]):
    assert get(client, "updated") == "blue"
    scene.server.write("updated", static_cluster("updated", "127.0.0.1", ports["green"]))
    becomes(lambda: get(client, "updated"), "green")


# VHD-21
def test_a_removed_cluster_is_gone_and_carries_traffic_again_when_it_is_back(
    scene: Scene, client: Client, ports: dict[str, int]
):
    assert get(client, "brief") == "blue"
    scene.server.remove("brief")
    becomes(lambda: "brief" in client.envoy.clusters(), False)
    scene.server.write("brief", static_cluster("brief", "127.0.0.1", ports["green"]))
    becomes(lambda: "brief" in client.envoy.clusters(), True)
    assert get(client, "brief") == "green"


# VHD-21, ORD-5
def test_a_cluster_on_demand_gets_its_endpoints(client: Client):
    assert get(client, "eds") == "blue"
