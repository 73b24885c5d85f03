"""Virtual hosts on demand, with a real Envoy: what a request sees, and what goes over the wire for it.

No timer ends a wait here: `initial_fetch_timeout` is off, and Envoy has none for a request that waits for its host.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.lab import Lab
from tests.support.on_demand import LABS, STREAMS, Client, Scene, host
from tests.support.resources import Document

BY_ENV = {"$match": [{"when": "env=prod", "value": "for production"}, {"value": "for everybody"}]}


@pytest.fixture(scope="module", params=LABS)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with LABS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module", params=STREAMS)
def scene(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with Scene(lab, request.param) as running:
        running.server.write(
            "hosts",
            host("main/shop", ["shop.example"], "shop"),
            host("main/pair", ["pair.example", "www.pair.example"], "pair"),
            host("main/special", ["special.wild.example"], "special"),
            host("main/wild", ["*.wild.example"], "wild"),
            host("main/prefix", ["prefix.*"], "prefix"),
            host("main/port", ["port.example:8080"], "8080"),
            host("main/upper", ["Upper.Example"], "upper"),
            host("main/other", ["other.example"], "other"),
            host("main/variants", ["variants.example"], BY_ENV),
            host("main/base", ["base.example"], "base") | {"$base": True},
        )
        running.server.write("updated", *_updated("old"))
        running.server.write("brief", host("main/brief", ["brief.example"], "first"))
        running.server.write("moves", *_moves(["a.moves", "b.moves"], ["c.moves"]))
        yield running


def _updated(says: str) -> list[Document]:
    return [host(f"main/{name}", [f"{name}.example"], says) for name in ("updated", "unused")]


def _moves(one: list[str], two: list[str]) -> list[Document]:
    return [host("main/one", one, "one"), host("main/two", two, "two")]


@pytest.fixture(scope="module")
def client(scene: Scene) -> Client:
    """One Envoy for the whole file. Every test has hosts of its own."""
    return scene.start({"env": "prod"})


@pytest.fixture(autouse=True)
def _nothing_before_and_nothing_refused(client: Client) -> Iterator[None]:
    """A test sees only what it asks for itself; and Envoy accepts all that it is told."""
    client.asked()
    yield
    assert client.nacks() == []


# VHD-1, VHD-3, VHD-9, VHD-20
def test_the_first_request_to_a_host_fetches_it_and_a_warm_one_asks_nothing(client: Client):
    assert client.get("shop.example") == "shop"
    assert client.asked() == ["main/shop.example"]
    assert client.get("shop.example") == "shop"
    assert client.asked() == []


# VHD-13
def test_a_host_of_the_base_set_is_there_before_the_first_request_and_no_other_is(client: Client):
    assert client.get("base.example") == "base"
    assert client.asked() == []
    first = next(each for each in client.tap.responses if each.kind == "VirtualHost")
    assert [resource.name for resource in first.body.resources] == ["main/base"]


# VHD-5
def test_the_second_domain_of_a_host_needs_no_second_answer(client: Client):
    assert [client.get(name) for name in ("pair.example", "www.pair.example")] == ["pair", "pair"]
    assert client.asked() == ["main/pair.example"]


# VHD-6
def test_a_wildcard_host_answers_for_its_suffix_and_an_exact_one_goes_first(client: Client):
    assert client.get("special.wild.example") == "special"
    assert client.get("any.wild.example") == "wild"
    assert client.asked() == ["main/special.wild.example", "main/any.wild.example"]
    assert client.get("next.wild.example") == "wild"
    assert client.get("prefix.anything") == "prefix"
    assert client.asked() == ["main/prefix.anything"]


# VHD-6: a port is part of the host.
def test_a_host_with_a_port_is_another_host_than_the_one_without(client: Client):
    assert [client.get(f"port.example{port}") for port in (":8080", ":9090", "")] == ["8080", "HTTP 404", "HTTP 404"]
    assert client.asked() == ["main/port.example:8080", "main/port.example:9090", "main/port.example"]


# VHD-6
def test_upper_case_makes_no_difference_in_the_request_or_in_the_domain(client: Client):
    assert [client.get(name) for name in ("UPPER.example", "upper.EXAMPLE", "Upper.Example")] == ["upper"] * 3
    assert client.get("OTHER.example") == "other"
    assert client.asked() == ["main/upper.example", "main/other.example"]


# VHD-7, VHD-8
def test_a_host_that_does_not_exist_is_404_and_200_once_it_is_created(scene: Scene, client: Client):
    assert client.get("late.example") == "HTTP 404"
    assert client.get("late.example") == "HTTP 404"
    assert client.asked() == ["main/late.example"]
    streams = dict(client.tap.streams)
    scene.server.write("late", host("main/late", ["late.example"], "here now"))
    client.becomes("late.example", "here now")
    assert client.asked() == [], "it was pushed"
    assert client.tap.streams == streams, "over the stream that was there"


# VHD-9
def test_an_update_reaches_the_clients_that_hold_the_host(scene: Scene, client: Client):
    assert client.get("updated.example") == "old"
    scene.server.write("updated", *_updated("new"))
    client.becomes("updated.example", "new")
    assert client.asked() == ["main/updated.example"]
    assert "main/unused" not in client.hosts_told()


# VHD-10, VHD-8
def test_a_removed_host_is_404_and_200_again_when_it_is_back(scene: Scene, client: Client):
    assert client.get("brief.example") == "first"
    scene.server.remove("brief")
    client.becomes("brief.example", "HTTP 404")
    scene.server.write("brief", host("main/brief", ["brief.example"], "second"))
    client.becomes("brief.example", "second")
    assert client.asked() == ["main/brief.example"]


# VHD-12
def test_a_domain_moves_from_one_host_to_another(scene: Scene, client: Client):
    assert [client.get(name) for name in ("a.moves", "b.moves", "c.moves")] == ["one", "one", "two"]
    scene.server.write("moves", *_moves(["a.moves"], ["b.moves", "c.moves"]))
    client.becomes("b.moves", "two")
    assert [client.get(name) for name in ("a.moves", "c.moves")] == ["one", "two"]


# VHD-18, DYN-12
def test_two_envoys_get_their_own_variants_of_one_host(scene: Scene, client: Client):
    other = scene.client({"env": "test"})
    assert client.get("variants.example") == "for production"
    assert other.get("variants.example") == "for everybody"
