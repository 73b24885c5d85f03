"""A real Envoy whose users made it gather more names than fit into one message: it comes back all the same.

Envoy never forgets a host or a cluster that it asked for on demand, and names all of them when it connects again. No
answer of a server makes it forget one.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from bench.attacks import scan_clusters
from tests.support.envoy import Envoy, bootstrap
from tests.support.lab import Lab
from tests.support.on_demand import WITH_AND_WITHOUT_RELAY, Client, Request, Scene, host, listener, route_config, source
from tests.support.relay_process import RelayedLab
from tests.support.resources import static_cluster
from tests.support.waiting import becomes, eventually
from xdsprism.core.model.settings import ENGINE
from xdsprism.core.relay.revisiting import AT_ONCE

LIMIT = 64 * 1024 * 1024
PATIENCE = 240.0  # seconds for a scan, on a busy machine
CALLERS = 8
REMEMBERED = 10_000  # names that nothing has
MANY = REMEMBERED + 50
CONNECTIONS = 200  # of a scan
SCANNED = 24_000  # names; `python -m bench chaos --attack cluster-scan` has ten times as many


pytestmark = WITH_AND_WITHOUT_RELAY


@pytest.fixture
def scene(lab: Lab) -> Iterator[Scene]:
    with Scene(lab, "ads") as running:
        on_demand = {"source": source("ads"), "timeout": "3600s"}
        web = listener("web", "main", odcds=on_demand)
        web["filter_chains"][0]["filters"][0]["typed_config"]["max_request_headers_kb"] = 96
        running.server.write("listener", web)
        by_header = {"match": {"prefix": "/"}, "route": {"cluster_header": "cluster"}}
        chosen = {"name": "chosen", "domains": ["chosen.example"], "routes": [by_header]}
        running.server.write("routes", route_config("main", "ads", chosen))
        running.server.write("hosts", *(host(f"main/{name}", [f"{name}.example"], name) for name in "abc"))
        running.server.write("any", host("main/any", ["*.any.example"], "any"))
        yield running


def ask_all(envoy: Envoy, requests: Iterable[dict[str, str]], status: int) -> None:
    """Send requests with these headers, on connections that are kept."""
    port = eventually(lambda: envoy.listeners().get("web"))
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
@pytest.mark.usefixtures("engine")  # on both
def test_an_envoy_with_more_hosts_than_fit_into_a_message_comes_back(scene: Scene):
    client = scene.start()
    assert client.get("a.example") == "a"
    streams = len(client.tap.streams)
    long = 60_000
    ask_all(client.envoy, ({"Host": f"{number:05}{'x' * long}"} for number in range(LIMIT // long + 100)), 404)
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
    scene.server.engine = ENGINE
    client = scene.start()
    assert client.get("a.example") == "a"
    streams = dict(client.tap.streams)
    ask_all(client.envoy, ({"Host": f"h{number}.example"} for number in range(MANY)), 404)
    ask_all(client.envoy, ({"Host": "chosen.example", "cluster": f"c{number}"} for number in range(MANY)), 503)
    assert client.get("b.example") == "b"
    assert client.get("h1.example") == "HTTP 404"
    port = lab.http_backend("blue").port
    scene.server.write("late", host("main/late", ["h1.example"], "late"), static_cluster("c1", "127.0.0.1", port))
    client.becomes("h1.example", "late")
    becomes(lambda: client.get("chosen.example", cluster="c1"), "blue")
    assert client.tap.streams == streams, "no stream ended"
    assert client.nacks() == []


def untapped(scene: Scene, name: str) -> Envoy:
    """An Envoy that talks to the server or relay itself: a tap is slower than both."""
    entrance = scene.lab.relay(scene.server) if isinstance(scene.lab, RelayedLab) else scene.server
    config = bootstrap("delta", entrance.port, {"id": name, "cluster": "lab"})
    del config["dynamic_resources"]["cds_config"]
    config["dynamic_resources"]["ads_config"]["set_node_on_first_message_only"] = True
    return scene.lab.start_envoy(config)


# VHD-25, VHD-26, PRX-27, PRX-35
def test_a_scan_of_clusters_ends_no_stream_and_another_envoy_is_answered_all_along(scene: Scene, lab: Lab):
    scene.server.start()
    scanned, other = untapped(scene, "scanned"), untapped(scene, "other")
    ports = {each: eventually(lambda each=each: each.listeners().get("web")) for each in (scanned, other)}
    names = (f"c{number}" for number in range(SCANNED))
    answers = []
    with ThreadPoolExecutor(1) as pool:
        scan = pool.submit(scan_clusters, ports[scanned], names, CONNECTIONS, PATIENCE)
        while not wait([scan], timeout=0.05).done:
            answers.append(Request(ports[other], f"h{len(answers)}.any.example").answer())
    assert scan.result() == {b"503": SCANNED}
    assert set(answers) == {"any"}
    relayed = isinstance(lab, RelayedLab)

    def subscriptions() -> int:
        streams = scene.server.clients("relay" if relayed else "scanned")
        (clusters,) = [each for stream in streams for each in stream["types"] if each["type"] == "cds"]
        return clusters["subscriptions"]["total"]

    # A relay asks again for a batch of what was forgotten, and keeps as many again as it remembers for some seconds.
    most = REMEMBERED + AT_ONCE if relayed else REMEMBERED
    assert 0 < subscriptions() <= (most + REMEMBERED if relayed else most)
    becomes(lambda: 0 < subscriptions() <= most, True)

    port = lab.http_backend("blue").port
    scene.server.write("late", static_cluster("c1", "127.0.0.1", port))
    for envoy in (other, scanned):
        becomes(lambda envoy=envoy: Request(ports[envoy], "chosen.example", {"cluster": "c1"}).answer(), "blue")
    for envoy in (other, scanned):
        assert envoy.stat("cluster.control_plane.upstream_rq_total") == 1, "no stream ended"
