"""A route that looks at the header before Envoy asks for a cluster of that name: what docs/security.md advises.

Envoy 1.40 was seen to die of a segmentation fault when clusters on demand come over ADS and a request names the cluster
`*`. A header match keeps such a request from asking for anything.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.lab import Lab
from tests.support.on_demand import STREAMS, WITH_AND_WITHOUT_RELAY, Client, Scene, listener, route_config, source
from tests.support.resources import static_cluster
from tests.support.waiting import eventually

PAGE = Path(__file__).parents[2] / "docs/security.md"
ODD = (b"*", b"\xe9", b"a/b", b"xdstp://a/b", b"a,b", b"x" * 5_000 + b"*")


def guarded_route() -> dict[str, Any]:
    """The route as the page has it."""
    (block,) = re.findall(r"^```yaml\n(routes:\n.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (route,) = yaml.safe_load(block)["routes"]
    return dict(route)


pytestmark = WITH_AND_WITHOUT_RELAY


@pytest.fixture(params=STREAMS)
def scene(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with Scene(lab, request.param) as running:
        on_demand = {"source": source(request.param), "timeout": "3600s"}
        running.server.write("listener", listener("web", "main", odcds=on_demand))
        chosen = {"name": "chosen", "domains": ["chosen.example"], "routes": [guarded_route()]}
        running.server.write("routes", route_config("main", request.param, chosen))
        running.server.write("one", static_cluster("one", "127.0.0.1", lab.http_backend("blue").port))
        yield running


def status(client: Client, cluster: bytes) -> bytes:
    """Of a request in bytes, as no client library would send it."""
    with socket.create_connection(("127.0.0.1", client.envoy.listeners()["web"]), timeout=30) as connection:
        head = b"GET / HTTP/1.1\r\nHost: chosen.example\r\nConnection: close\r\ncluster: "
        connection.sendall(head + cluster + b"\r\n\r\n")
        return connection.recv(4_096)[9:12]


# VHD-21
def test_a_header_match_keeps_names_from_envoy_that_it_dies_of(scene: Scene):
    client = scene.start()
    assert client.get("chosen.example", cluster="one") == "blue"
    for name in ODD:
        assert status(client, name) == b"404", name
    assert client.get("chosen.example", cluster="none") == "HTTP 503"
    assert client.get("chosen.example", cluster="one") == "blue"
    eventually(lambda: "none" in client.tap.subscribed("Cluster"))
    assert set(client.tap.subscribed("Cluster")) == {"one", "none"}
