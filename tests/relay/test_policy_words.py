"""What a relay tells clients of what a server says of a string that may be an alias of somebody else's resource.

The server has no policy. A client of the relay may ask for any name that begins with `a`, and some of these strings are
aliases, or hosts, of resources that it may not have.
"""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import both, quiet, timeless
from tests.relay.rig import Raw, pair, station
from tests.relay.test_policy import A, B, constrained, names, policy, tenant, tokens
from tests.relay.test_vhds import host, routes
from tests.relay.test_vhds import shown as hosts
from xdsprism.core.model.cached import NOT_QUOTED
from xdsprism.testing import ScriptedPeer

WORDS = "zebra-1 of the team zebra is broken"


def failed(name: str, code: int, *, delta: bool) -> Any:
    """A response in which there is an error of one name, with words that tell of another."""
    response = (pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse)(type_url=xp.CLUSTER, nonce="e1")
    error = response.resource_errors.add()
    error.resource_name.name, error.error_detail.code, error.error_detail.message = name, code, WORDS
    return response


async def problems(raw: Raw) -> list[tuple[str, int, str]]:
    """The errors that came."""
    errors = [error for response in await raw.rest() for error in response.resource_errors]
    return [(error.resource_name.name, error.error_detail.code, error.error_detail.message) for error in errors]


@both
@pytest.mark.parametrize("code", [7, 13, 14], ids=["denied", "internal", "unavailable"])
@timeless
async def test_words_of_a_server_are_for_clients_that_may_have_every_name(delta: bool, code: int) -> None:
    # OPS-2, PRX-22
    peer = ScriptedPeer()
    rules = policy(f"rules: [{{identity: '{A}', names: {{cds: [a*]}}, params: any}}, {{identity: '{B}', params: any}}]")
    async with station(peer.connect, delta=delta, policy=rules) as relay:
        clients = [await relay.raw(identity=each) for each in (A, B)]
        for client in clients:
            await client.want(xp.CLUSTER, "a", params={"env": "prod"})
        await quiet()
        stream = await peer.accept()
        stream.send(failed("a", code, delta=delta))
        assert [await problems(client) for client in clients] == [[("a", code, NOT_QUOTED)], [("a", code, WORDS)]]


@both
@timeless
async def test_for_which_params_there_is_nothing_is_told_in_the_words_of_the_client(delta: bool) -> None:
    # OPS-2, DYN-11: the server says that there is something for a zebra
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators", policy=names("a*")) as relay:
        client = await tenant(relay, A, delta=delta)
        await client.want(xp.CLUSTER, "a", params={"env": "prod", "v": "1"})
        stream = await peer.accept()
        await quiet()
        response = pb.DeltaDiscoveryResponse(type_url=xp.CLUSTER, nonce="n1")
        absent = response.removed_resource_names.add(name="a")
        absent.dynamic_parameter_constraints.CopyFrom(xp.parse("not (zebra=1 and env=prod)").to_proto())
        stream.send(response)
        (said,) = await client.responses()
        about = said.removed_resource_names if delta else [error.resource_name for error in said.resource_errors]
        expected = xp.parse("env=prod and v=1").to_proto()
        assert [(each.name, each.dynamic_parameter_constraints) for each in about] == [("a", expected)]
        assert b"zebra" not in said.SerializeToString()


@timeless
async def test_a_variant_that_is_not_allowed_does_not_show_in_what_comes_later() -> None:
    # OPS-2: the alias moves to a resource of the client, and to another one again
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators", policy=names("a*")) as relay:
        client = await tenant(relay, A)
        await client.want(xp.CLUSTER, "a-alias", params={"env": "prod"})
        stream = await peer.accept()
        await quiet()
        told = []
        for number, name in enumerate(["zebra", "zebra", "a1", "zebra", "a2"]):
            made = constrained(name, str(number), "env=prod")
            made.aliases.append("a-alias")
            stream.respond(xp.CLUSTER, made, nonce=f"n{number}")
            told.append([token for response in await client.responses() for token in tokens_of(response)])
        assert told == [["-a-alias"], [], ["a1=2"], ["-a1"], ["a2=4"]]


def tokens_of(response: Any) -> list[str]:
    """The same as `tokens`, of a response without errors but NOT_FOUND."""
    del response.resource_errors[:]
    assert b"zebra" not in response.SerializeToString()
    return tokens(response)


@timeless
async def test_that_a_host_is_served_by_somebody_else_shows_where_the_client_would_have_a_wildcard_for_it() -> None:
    # docs/security.md, What a relay can't hide: the server chooses, and knows of no policy
    own = "{rds: [rc], vhds: [rc/a, 'rc/*.test']}"
    rules = policy(f"rules: [{{identity: '{A}', names: {own}}}]")
    async with pair(policy=rules) as (origin, relay):
        origin.put(routes("rc"), host("rc/a", "*.test", mark="1"), host("rc/zebra", "shop.test", mark="2"))
        client = await tenant(relay, A)
        await client.want(xp.ROUTE, "rc")
        await client.want(xp.VIRTUAL_HOST)
        await client.want(xp.VIRTUAL_HOST, "rc/shop.test", "rc/other.test")
        came = [response for response in await client.responses() if response.type_url == xp.VIRTUAL_HOST]
        assert sorted(token for response in came for token in hosts(response) if token != "-rc/_") == [
            "?rc/shop.test",
            "rc/a(rc/other.test)=1",
        ]
        assert not any(b"zebra" in response.SerializeToString() for response in came)
