"""A real Envoy whose users send Host headers as long as it takes: each is its own trouble (VHD-26).

No timer ends a wait here: `initial_fetch_timeout` is off, and Envoy has none for a request that waits for its host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.lab import Lab
from tests.support.on_demand import STREAMS, WITH_AND_WITHOUT_RELAY, Client, Scene, host, listener
from tests.support.relay_process import RelayedLab
from tests.support.waiting import becomes

LENGTHS = (4_092, 60_000)  # with `main/`, the first is one byte past the limit on names


pytestmark = WITH_AND_WITHOUT_RELAY


@pytest.fixture(params=STREAMS)
def scene(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with Scene(lab, request.param) as running:
        web = listener("web", "main")
        web["filter_chains"][0]["filters"][0]["typed_config"]["max_request_headers_kb"] = 96
        running.server.write("listener", web)
        running.server.write("hosts", *(host(f"main/{name}", [f"{name}.example"], name) for name in "abcd"))
        yield running


def streams_opened(client: Client) -> int:
    return len(client.tap.streams)


def asked_of_the_server(scene: Scene) -> int:
    """The longest name that a client of the server has subscribed or was refused; a relay is such a client."""
    clients = json.loads(scene.server.get("/api/clients"))["clients"]
    refused = sum(sum(each["refused"].values()) for each in clients)
    names = [sub["name"] for each in clients for kind in each["types"] for sub in kind["subscriptions"]["first"]]
    return max(map(len, names), default=0) + 10_000 * refused


# VHD-26
def test_a_long_host_is_404_and_all_else_goes_on_also_after_a_restart(scene: Scene):
    client = scene.start()
    assert client.get("a.example") == "a"
    streams = streams_opened(client)
    for length in LENGTHS:
        assert client.get("x" * length) == "HTTP 404"
    assert client.get("b.example") == "b"
    assert client.get("x" * LENGTHS[0]) == "HTTP 404"  # again
    assert streams_opened(client) == streams
    assert client.nacks() == []
    if isinstance(scene.lab, RelayedLab):
        assert asked_of_the_server(scene) < 100  # it did not get there

    assert scene.server.stop() == 0
    waiting = client.send("y" * LENGTHS[0])
    scene.server.start()
    assert waiting.answer() == "HTTP 404"
    assert client.get("c.example") == "c"
    scene.server.write("hosts", *(host(f"main/{name}", [f"{name}.example"], f"new {name}") for name in "abcd"))
    for name in "abc":
        client.becomes(f"{name}.example", f"new {name}")
    assert client.get("z" * LENGTHS[1]) == "HTTP 404"
    assert client.get("d.example") == "new d"
    assert client.nacks() == []
    becomes(client.pending, 0)
