"""Virtual hosts on demand, with a real Envoy, while things around them change: routes, the server, what is wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.lab import Lab
from tests.support.on_demand import (
    STREAMS,
    WITH_AND_WITHOUT_RELAY,
    Client,
    Scene,
    host,
    inline_host,
    listener,
    route_config,
)
from tests.support.resources import Document
from tests.support.waiting import becomes, eventually

pytestmark = WITH_AND_WITHOUT_RELAY


@pytest.fixture(params=STREAMS)
def scene(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with Scene(lab, request.param) as running:
        yield running


def _same(name: str, says: str | None = None) -> Document:
    """A host of one domain, both called the same."""
    return host(f"main/{name}", [f"{name}.example"], says or name)


def _told(client: Client, since: int, stream: str) -> list[set[str]]:
    """The hosts of each response since then; where routes go the same way, of those after the first routes."""
    said = client.tap.responses[since:]
    if stream == "ads":
        said = list(itertools.dropwhile(lambda each: each.kind != "RouteConfiguration", said))
    return [{host.name for host in each.body.resources} for each in said if each.kind == "VirtualHost"]


# VHD-15, VHD-16
def test_a_changed_route_configuration_keeps_its_hosts_and_they_are_sent_again_after_it(scene: Scene):
    scene.server.write("hosts", _same("a"), _same("b"))
    client = scene.start()
    assert [client.get("a.example"), client.get("b.example")] == ["a", "b"]
    before = len(client.tap.responses)

    inline = inline_host("inline", ["inline.example"], "inline")
    scene.server.write("routes", route_config("main", scene.stream, inline))
    client.becomes("inline.example", "inline")
    held = {"main/a", "main/b"}
    eventually(lambda: _told(client, before, scene.stream), lambda told: any(held <= each for each in told))

    scene.server.write("hosts", _same("a", "new"), _same("b"))
    client.becomes("a.example", "new")
    assert client.get("b.example") == "b"
    assert client.nacks() == []


# VHD-15: one that is in the route configuration comes with it, and not over VHDS.
def test_a_host_inside_the_route_configuration_is_updated_with_it(scene: Scene):
    def write(says: str) -> None:
        inline = inline_host("inline", ["inline.example"], says)
        scene.server.write("routes", route_config("main", scene.stream, inline))

    write("old")
    client = scene.start()
    assert client.get("inline.example") == "old"
    write("new")
    client.becomes("inline.example", "new")
    assert client.asked() == []


# VHD-23, VHD-13. Without a word about the second one, its listener would stay closed for ever.
def test_a_second_route_configuration_on_the_same_stream_opens_its_listener_and_has_hosts_of_its_own(scene: Scene):
    scene.server.write("hosts", _same("a"))
    client = scene.start()
    assert client.get("a.example") == "a"

    scene.server.write("second", listener("two", "team/two"), route_config("team/two", scene.stream))
    assert client.get("a.example", web="two") == "HTTP 404"
    scene.server.write("more", host("team/two/a", ["a.example"], "a of two"), host("team/two/b", ["b.example"], "b"))
    client.becomes("a.example", "a of two", "two")
    assert client.get("b.example", web="two") == "b"
    assert client.get("a.example") == "a"
    assert len(client.tap.streams) == {"ads": 1, "dedicated": 3}[scene.stream], "apart, each has one of its own"
    assert client.nacks() == []


# VHD-23, VHD-13
def test_a_second_route_configuration_brings_its_base_hosts(scene: Scene):
    client = scene.start()
    base = host("two/base", ["base.example"], "base") | {"$base": True}
    scene.server.write("second", listener("two", "two"), route_config("two", scene.stream), base)
    assert client.get("base.example", web="two") == "base"
    assert client.asked() == []


# VHD-6
def test_a_route_configuration_that_ignores_ports_finds_its_hosts_without(scene: Scene):
    scene.server.write("routes", route_config("main", scene.stream, ignore_port_in_host_matching=True))
    scene.server.write("hosts", _same("a"), host("main/b", ["*.b.example"], "b"))
    client = scene.start()
    assert [client.get(name) for name in ("a.example:8080", "a.example", "x.b.example:1")] == ["a", "a", "b"]


# SRV-12, DLT-12, VHD-3, VHD-7: what waits in Envoy is asked with the first message of the new stream.
def test_requests_that_wait_while_the_server_is_down_are_answered_when_it_is_back(scene: Scene):
    scene.server.write("hosts", _same("held"), _same("changed", "old"), _same("gone"), _same("new"))
    client = scene.start()
    answers = [client.get(f"{name}.example") for name in ("held", "changed", "gone", "later")]
    assert answers == ["held", "old", "gone", "HTTP 404"]

    assert scene.server.stop() == 0
    waiting = {name: client.send(f"{name}.example") for name in ("new", "missing", "other")}
    becomes(client.pending, len(waiting))
    scene.server.write("hosts", _same("held"), _same("changed", "new"), *map(_same, ("new", "other", "later")))
    scene.server.start()
    answers = {name: request.answer() for name, request in waiting.items()}
    assert answers == {"new": "new", "other": "other", "missing": "HTTP 404"}
    for name, expected in {"changed": "new", "gone": "HTTP 404", "later": "later"}.items():
        client.becomes(f"{name}.example", expected)
    assert client.get("held.example") == "held"
    assert client.nacks() == []


# VHD-20, VHD-24
def test_a_thousand_hosts_that_are_requested_at_once_are_all_answered(scene: Scene):
    names = [f"h{number}" for number in range(1_000)]
    scene.server.write("hosts", *map(_same, names))
    client = scene.start()
    assert client.get("elsewhere.example") == "HTTP 404"
    requests = client.send_all([f"{name}.example" for name in names])
    assert [request.answer() for request in requests] == names
    responses = [each for each in client.tap.responses if each.kind == "VirtualHost"]
    assert len(responses) < 100, "what waits together is answered together"
    assert sorted(client.asked()) == sorted(f"main/{name}.example" for name in ["elsewhere", *names])
    assert client.nacks() == []


# Both pass what a control plane can check, and Envoy refuses every response that has one.
HAS_A_DOMAIN_THAT_IS_TAKEN = _same("bad") | {"domains": ["bad.example", "taken.example"]}
HAS_NO_SUCH_COMMAND = _same("bad") | {
    "request_headers_to_add": [{"header": {"key": "a", "value": "%NO_SUCH_COMMAND%"}}]
}


# VHD-24, NAK-29. After a restart Envoy asks for all that waits with one message, and so one response has them all.
def test_one_bad_host_among_good_ones_that_wait_holds_back_only_itself(scene: Scene):
    taken = inline_host("taken", ["taken.example"], "taken")
    scene.server.write("routes", route_config("main", scene.stream, taken))
    scene.server.write("hosts", _same("a"), HAS_A_DOMAIN_THAT_IS_TAKEN, _same("b"))
    client = scene.start()
    assert client.get("taken.example") == "taken"
    assert scene.server.stop() == 0
    a, bad, b = (client.send(f"{name}.example") for name in ("a", "bad", "b"))
    becomes(client.pending, 3)
    scene.server.start()
    assert [a.answer(), b.answer()] == ["a", "b"]
    assert bad.waits

    scene.server.write("hosts", _same("a", "new"), HAS_A_DOMAIN_THAT_IS_TAKEN, _same("b"))
    client.becomes("a.example", "new")
    assert bad.waits
    scene.server.write("hosts", _same("a"), _same("bad", "mended"), _same("b"))
    assert bad.answer() == "mended"
    client.becomes("a.example", "a")


# VHD-24, NAK-29, NAK-12. One edit changes three hosts that Envoy holds, and makes one of them bad.
def test_one_bad_host_in_an_edit_of_several_holds_back_only_itself(scene: Scene):
    scene.server.write("hosts", _same("a"), _same("bad", "still good"), _same("b"))
    client = scene.start()
    assert [client.get(f"{name}.example") for name in ("a", "bad", "b")] == ["a", "still good", "b"]

    scene.server.write("hosts", _same("a", "new a"), HAS_NO_SUCH_COMMAND, _same("b", "new b"))
    client.becomes("a.example", "new a")
    client.becomes("b.example", "new b")
    assert client.get("bad.example") == "still good"
    assert client.nacks()
    scene.server.write("hosts", _same("a", "new a"), _same("bad", "mended"), _same("b", "new b"))
    client.becomes("bad.example", "mended")
