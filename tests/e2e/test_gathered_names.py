"""A real Envoy whose users made it gather more names than fit into one message: it comes back all the same.

Envoy never forgets a host or a cluster that it asked for on demand, and names all of them when it connects again. No
answer of a server makes it forget one.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.lab import Lab
from tests.support.on_demand import LABS, Client, Scene, host, listener, route_config, source
from tests.support.resources import static_cluster
from tests.support.waiting import becomes, eventually

LIMIT = 64 * 1024 * 1024
CALLERS = 8
MANY = 10_050  # names: more than are remembered


@pytest.fixture(params=LABS)
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    with LABS[request.param](tmp_path) as running:
        yield running


@pytest.fixture
def scene(lab: Lab) -> Iterator[Scene]:
    with Scene(lab, "ads") as running:
        running.server.engine = "h2"  # grpcio can't read a message in pieces
        on_demand = {"source": source("ads"), "timeout": "3600s"}
        web = listener("web", "main", odcds=on_demand)
        web["filter_chains"][0]["filters"][0]["typed_config"]["max_request_headers_kb"] = 96
        running.server.write("listener", web)
        by_header = {"match": {"prefix": "/"}, "route": {"cluster_header": "cluster"}}
        chosen = {"name": "chosen", "domains": ["chosen.example"], "routes": [by_header]}
        running.server.write("routes", route_config("main", "ads", chosen))
        running.server.write("hosts", *(host(f"main/{name}", [f"{name}.example"], name) for name in "abc"))
        yield running


def ask_all(client: Client, requests: Iterable[dict[str, str]], status: int) -> None:
    """Send requests with these headers, on connections that are kept."""
    port = eventually(lambda: client.envoy.listeners().get("web"))
    todo = [*requests]

    def send(mine: list[dict[str, str]]) -> set[int]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        found = set()
        for headers in mine:
            connection.request("GET", "/", headers=headers)
            response = connection.getresponse()
            response.read()
            found.add(response.status)
        connection.close()
        return found

    with ThreadPoolExecutor(CALLERS) as pool:
        shares = [todo[number::CALLERS] for number in range(CALLERS)]
        assert set().union(*pool.map(send, shares)) == {status}


def largest(client: Client, kind: str) -> int:
    return max(message.body.ByteSize() for message in client.tap.requests if message.kind == kind)


# VHD-26, SRV-24
def test_an_envoy_with_more_hosts_than_fit_into_a_message_comes_back(scene: Scene):
    client = scene.start()
    assert client.get("a.example") == "a"
    streams = len(client.tap.streams)
    long = 60_000
    ask_all(client, ({"Host": f"{number:05}{'x' * long}"} for number in range(LIMIT // long + 100)), 404)
    assert client.get("b.example") == "b"
    assert len(client.tap.streams) == streams, "no stream ended"

    assert scene.server.stop() == 0
    scene.server.start()
    client.tap.cut()  # where there is a relay, that is still connected
    becomes(lambda: largest(client, "VirtualHost") > LIMIT, True)
    scene.server.write("hosts", *(host(f"main/{name}", [f"{name}.example"], f"new {name}") for name in "abc"))
    for name in "ab":
        client.becomes(f"{name}.example", f"new {name}")
    assert client.get("c.example") == "new c"
    assert client.nacks() == []


# VHD-25, VHD-26, VHD-8
def test_a_host_and_a_cluster_that_were_forgotten_are_there_when_they_are_created(scene: Scene, lab: Lab):
    client = scene.start()
    assert client.get("a.example") == "a"
    streams = dict(client.tap.streams)
    ask_all(client, ({"Host": f"h{number}.example"} for number in range(MANY)), 404)
    ask_all(client, ({"Host": "chosen.example", "cluster": f"c{number}"} for number in range(MANY)), 503)
    assert client.get("b.example") == "b"
    assert client.get("h1.example") == "HTTP 404"
    port = lab.http_backend("blue").port
    scene.server.write("late", host("main/late", ["h1.example"], "late"), static_cluster("c1", "127.0.0.1", port))
    client.becomes("h1.example", "late")
    becomes(lambda: client.get("chosen.example", cluster="c1"), "blue")
    assert client.tap.streams == streams, "no stream ended"
    assert client.nacks() == []
