"""A policy in a relay: it decides before anything is taken from the cache, and before any server is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import bootstrap, both, cluster, endpoint, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, Origin, Raw, Station, pair, station
from tests.relay.test_groups import Legacy
from tests.relay.test_vhds import host, routes
from tests.relay.test_vhds import shown as hosts
from xdsprism.core.model.events import Key
from xdsprism.core.model.facts import Denied
from xdsprism.core.model.types import LB_ENDPOINT, Params
from xdsprism.core.policy.identity import parse_identity
from xdsprism.core.policy.policy import Policy
from xdsprism.core.relay.revisiting import EVERY
from xdsprism.server.calls import Peer
from xdsprism.server.fetch import open_fetch
from xdsprism.sources.policy_file import parse_policy
from xdsprism.testing import ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

A, B, C = (f"spiffe://example.com/{each}" for each in "abc")
PROD, TEST = {"env": "prod"}, {"env": "test"}
LINGER = 30.0
TENANTS = """
rules:
- {identity: spiffe://example.com/a, names: {"*": [a*]}, params: any}
- {identity: spiffe://example.com/b, names: {"*": [b*]}, params: any}
"""
PINNED = """
rules:
- {identity: spiffe://example.com/a, params: {env: {pin: prod}}}
- {identity: spiffe://example.com/b, params: {env: {pin: test}}}
"""


def policy(text: str) -> Policy:
    return parse_policy(text, "policy.yaml")


def names(*patterns: str, params: str = "any") -> Policy:
    """What tenant A may have, and nobody else."""
    return policy(f'rules: [{{identity: {A}, names: {{"*": [{", ".join(patterns)}]}}, params: {params}}}]')


def _cluster(each: Any) -> Cluster:
    body = each.resource if isinstance(each, pb.Resource) else each
    return (
        _cluster(pb.Resource.FromString(body.value)) if "Resource" in body.type_url else Cluster.FromString(body.value)
    )


def tokens(response: Any) -> list[str]:
    """`name=mark` of each cluster, `-name` of what is removed, `!name` of what is denied."""
    found = [f"{made.name}={made.alt_stat_name}" for made in map(_cluster, response.resources)]
    if isinstance(response, pb.DeltaDiscoveryResponse):
        found += [f"-{name}" for name in response.removed_resources]
        found += [f"-{each.name}" for each in response.removed_resource_names]
    for error in response.resource_errors:
        assert error.error_detail.code == 7, error
        found.append(f"!{error.resource_name.name}")
    return sorted(found)


class Tenant:
    """A client that ACKs what comes, and in SotW repeats what it wants."""

    def __init__(self, raw: Raw, *, delta: bool) -> None:
        self.raw = raw
        self._delta = delta
        self._wanted: dict[str, dict[str, Any]] = {}  # by type, what each further request repeats

    async def want(self, type_url: str, *names: str, params: Any = None, **fields: Any) -> None:
        await self.raw.want(type_url, *names, params=params, **fields)
        if not self._delta and names:
            located = [pb.ResourceLocator(name=name, dynamic_parameters=params or {}) for name in names]
            kind = "resource_names" if params is None else "resource_locators"
            self._wanted[type_url] = {kind: names if params is None else located}

    async def ask(self, *names: str, params: Any = None) -> list[str]:
        """Subscribe to clusters, and return what comes."""
        await self.want(xp.CLUSTER, *names, params=params)
        return await self.heard()

    async def heard(self, seconds: float = 1.0) -> list[str]:
        """What came until all are quiet."""
        return sorted(token for response in await self.responses(seconds) for token in tokens(response))

    async def responses(self, seconds: float = 1.0) -> list[Any]:
        found: list[Any] = []
        await quiet(seconds)
        while came := await self.raw.rest():
            for response in came:
                await self.raw.ack(response, **self._wanted.get(response.type_url, {}))
            found += came
        return found


async def tenant(relay: Station, identity: str | None = None, *, delta: bool = True, **metadata: str) -> Tenant:
    raw = await relay.raw(delta=delta, identity=identity)
    return Tenant(raw.of(**metadata), delta=delta)


def constrained(name: str, mark: str, when: str) -> pb.Resource:
    made = pb.Resource(version=mark)
    made.resource_name.name = name
    made.resource_name.dynamic_parameter_constraints.CopyFrom(xp.parse(when).to_proto())
    made.resource.Pack(cluster(name, mark))
    return made


def asked(origin: Origin, type_url: str = xp.CLUSTER) -> set[Key]:
    """What the relay is subscribed to."""
    return {Key(*each) for each in origin.asked(type_url)}


def located(name: str, **params: str) -> Key:
    return Key(name, Params(params))


# -- before any server is asked


@modes
@timeless
async def test_what_is_denied_is_asked_of_no_server(up: bool, down: bool) -> None:
    # OPS-2, DYN-44
    async with pair(delta=up, policy=policy(TENANTS)) as (origin, relay):
        origin.put(cluster("a", "1"), cluster("b", "1"))
        facts = relay.facts(Denied)
        one, other = await tenant(relay, A, delta=down), await tenant(relay, delta=down)
        await one.want(xp.SECRET, "a")
        assert "a=1" in await one.ask("b", "a")
        await other.want(xp.LISTENER)
        await other.ask("a")
        assert {key.name for key in asked(origin)} == {"a"}
        assert asked(origin, xp.SECRET) == asked(origin, xp.LISTENER) == set()
        assert not any('"b"' in str(request) for request in origin.wire.requests)
        kinds = {("name", "b"), ("type", "a"), ("client", "*"), ("client", "a")}
        assert {(each.kind, each.name) for each in facts} == kinds


@timeless
async def test_a_glob_collection_whose_names_may_not_be_had_is_asked_of_no_server() -> None:
    # OPS-2, XTP-3
    foo, bar = (f"xdstp://auth/envoy.config.cluster.v3.Cluster/{path}/" for path in ("foo", "bar"))
    origin = Origin()
    source = bootstrap(authorities={"auth": {}})
    async with station(origin.wire.connect, source, policy=names(f"{foo}x*")) as relay:
        origin.put(*[cluster(name, "1") for name in (f"{foo}x", f"{foo}y", f"{bar}x")])
        client = await tenant(relay, A)
        assert await client.ask(f"{foo}*", f"{bar}*") == [f"-{bar}*", f"{foo}x=1"]
        assert {key.name for key in asked(origin)} == {f"{foo}*"}
        relay.relay.enforce(policy(f"rules: [{{identity: '{A}', names: {{eds: [a]}}}}]"))
        assert await client.heard() == [f"-{foo}x"]
        assert await client.ask("*") == []
        assert {key.name for key in asked(origin)} == {f"{foo}*"}
        assert await client.heard(2 * LINGER) == []
        assert asked(origin) == set()


@modes
@timeless
async def test_a_server_is_asked_with_the_param_that_is_pinned(up: bool, down: bool) -> None:
    # DYN-44
    async with pair(delta=up, upstream_form="locators", policy=policy(PINNED)) as (origin, relay):
        origin.vary(prod=cluster("a", "1"), test=cluster("a", "2"))
        assert [await (await tenant(relay, each, delta=down)).ask("a") for each in (A, B)] == [["a=1"], ["a=2"]]
        expected = {Key("a", Params(PROD)), Key("a", Params(TEST))}
        assert asked(origin) == expected
        assert "!a" in await (await tenant(relay, A, delta=down, **TEST)).ask("a")
        assert "!a" in await (await tenant(relay, A, delta=down)).ask("a", params=TEST)
        assert asked(origin) == expected


@both
@timeless
async def test_a_client_belongs_to_the_group_of_its_pin_and_can_claim_no_other(delta: bool) -> None:
    # DYN-44, PRX-20
    legacy = Legacy()
    options: Any = {"delta": delta, "group_by": ["env"], "policy": policy(PINNED)}
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(legacy.serve())
        async with station(legacy.peer.connect, bootstrap(node={"id": "relay"}), **options) as relay:
            assert await (await tenant(relay, A, **TEST)).ask("both") == ["!both", "-both"]
            assert legacy.asked == []
            one, other = await tenant(relay, A), await tenant(relay, B, zone="1")
            assert [await each.ask("both") for each in (one, other)] == [["both=prod-1"], ["both=test-2"]]
            assert legacy.asked == [("prod", "both"), ("test", "both")]
            assert {token.partition("=")[0] for token in await one.ask("*")} == {"both", "prod-1", "prod-2"}
        serving.cancel()


@timeless
async def test_a_key_that_is_not_listed_is_not_sent_upstream_and_decides_nothing() -> None:
    # DYN-44
    rules = policy(f"rules: [{{identity: '{A}', params: {{env: any}}}}]")
    async with pair(policy=rules) as (origin, relay):
        with origin.store.transaction() as tx:
            tx.put(cluster("a", "none"), when="not zone exists")
            tx.put(cluster("a", "1"), when="zone exists")
            tx.put(cluster("b", "1"), when="env=prod")
        client = await tenant(relay, A, zone="1", env="prod")
        assert await client.ask("a", "b") == ["a=none", "b=1"]
        # A locator says what the client believes: where it matters, that is denied.
        assert await client.ask("a", "b", params={"zone": "1", "env": "prod"}) == ["!a", "-a", "b=1"]
        assert {key.tag for key in asked(origin)} == {Params(PROD)}


@pytest.mark.parametrize("others", [False, True])
@timeless
async def test_which_keys_the_answers_to_others_mention_denies_nothing(others: bool) -> None:
    # OPS-2: what somebody else has asked makes no difference
    rules = policy(f"rules: [{{identity: '{A}', params: {{env: any}}}}, {{identity: '{B}', params: any}}]")
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators", policy=rules) as relay:
        if others:
            other = await tenant(relay, B)
            await other.want(xp.CLUSTER, "a", params={**TEST, "zone": "1"})
            stream = await peer.accept()
            await quiet()
            stream.respond(xp.CLUSTER, constrained("a", "2", "env=test and zone=1"))
            assert await other.heard() == ["a=2"]
        one = await tenant(relay, A)
        await one.want(xp.CLUSTER, "a", params={**PROD, "zone": "1"})
        stream = stream if others else await peer.accept()
        assert await one.heard() == []
        stream.respond(xp.CLUSTER, constrained("a", "1", "env=prod"), nonce="n2")
        assert await one.heard() == ["a=1"]


# -- before anything is taken from the cache


@modes
@timeless
async def test_what_is_cached_for_one_is_not_given_to_another(up: bool, down: bool) -> None:
    # OPS-2: a variant, an absence, or a listing
    async with pair(delta=up, policy=policy(TENANTS)) as (origin, relay):
        origin.put(cluster("a1", "1"), cluster("b1", "1"))
        other, wild = await tenant(relay, B, delta=down), await tenant(relay, B, delta=down)
        assert await other.ask("b1", "b2") == (["-b2", "b1=1"] if down else ["b1=1"])
        assert await wild.ask() == ["b1=1"]
        one, everything = await tenant(relay, A, delta=down), await tenant(relay, A, delta=down)
        assert await one.ask("b1", "b2") == (["!b1", "!b2", "-b1", "-b2"] if down else ["!b1", "!b2"])
        assert await everything.ask() == ["a1=1"]
        origin.put(cluster("b1", "2"), cluster("b2", "2"))
        assert [await each.heard() for each in (one, everything)] == [[], []]
        assert "b1=2" in await wild.heard()


@modes
@timeless
async def test_a_variant_that_others_have_does_not_follow_a_claim(up: bool, down: bool) -> None:
    # DYN-44
    async with pair(delta=up, policy=policy(PINNED)) as (origin, relay):
        origin.vary(prod=cluster("a", "1"), test=cluster("a", "2"))
        other, one = await tenant(relay, B, delta=down), await tenant(relay, A, delta=down)
        assert await other.ask("a") == ["a=2"]
        assert await one.ask() == ["a=1"]
        origin.vary(prod=cluster("a", "1"), test=cluster("a", "3"))
        assert [await each.heard() for each in (one, other)] == [[], ["a=3"]]


@timeless
async def test_a_resource_is_denied_under_its_aliases() -> None:
    # OPS-2: the relay knows it by the string that it asked for
    async with pair(policy=names("a*", "alias")) as (origin, relay):
        with origin.store.transaction() as tx:
            tx.put(cluster("b1", "1"), aliases=["alias"])
            tx.put(cluster("a1", "1"), aliases=["a-alias"])
        one, everything = await tenant(relay, A), await tenant(relay, A)
        assert await one.ask("alias", "a-alias") == ["-alias", "a1=1"]
        assert {*await everything.ask()} == {"a1=1"}


@timeless
async def test_a_host_is_denied_with_the_virtual_host_that_serves_it() -> None:
    # VHD-3, OPS-2
    own = "{rds: [rc], vhds: [rc/shop, 'rc/*.test']}"
    rules = policy(f"rules: [{{identity: '{A}', names: {own}}}, {{identity: '{B}'}}]")
    async with pair(policy=rules) as (origin, relay):
        origin.put(routes("rc"), host("rc/shop", "shop.test", mark="1"), host("rc/other", "other.test", mark="2"))
        found = []
        for each in (B, A):
            client = await tenant(relay, each)
            await client.want(xp.ROUTE, "rc")
            await client.want(xp.VIRTUAL_HOST)
            await client.want(xp.VIRTUAL_HOST, "rc/other.test", "rc/shop.test", "rc/own.example")
            came = [response for response in await client.responses() if response.type_url == xp.VIRTUAL_HOST]
            found.append(sorted(token for response in came for token in hosts(response) if token != "-rc/_"))
        assert found == [
            ["?rc/own.example", "rc/other(rc/other.test)=2", "rc/shop(rc/shop.test)=1"],
            ["?rc/other.test", "?rc/own.example", "rc/shop(rc/shop.test)=1"],
        ]


@both
@timeless
async def test_a_resource_that_must_not_be_cached_reaches_a_client_that_may_have_few_names(delta: bool) -> None:
    # PRX-17
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators", policy=policy(TENANTS)) as relay:
        clients = [await tenant(relay, A, delta=delta) for _ in range(2)]
        for number, client in enumerate(clients):
            await client.want(xp.CLUSTER, "a")
            stream = stream if number else await peer.accept()  # noqa: F821 # the first round made it
            await quiet()
            secret = constrained("a", str(number), "true")
            secret.cache_control.do_not_cache = True
            stream.respond(xp.CLUSTER, secret, nonce=f"n{number}")
            assert f"a={number}" in await client.heard()


@timeless
async def test_lists_of_endpoints_obey_a_policy() -> None:
    # XTP-10, OPS-2
    origin = Origin()
    url = "xdstp://auth/envoy.config.endpoint.v3.LbEndpoint"
    own, others = f"{url}/a/1", f"{url}/b/1"
    source = bootstrap(authorities={"auth": {}})
    async with station(origin.wire.connect, source, policy=names(f"{url}/a/*")) as relay:
        with origin.store.transaction() as tx:
            for name in (own, others):
                tx.put(LbEndpoint(health_status="HEALTHY"), name=name)
        client = await tenant(relay, A)
        await client.want(LB_ENDPOINT, f"{url}/a/*", f"{url}/b/*", others)
        (*_, last) = responses = await client.responses()
        assert [each.name for response in responses for each in response.resources] == [own]
        assert {each.name for each in asked(origin, LB_ENDPOINT)} == {f"{url}/a/*"}
        assert last.type_url == LB_ENDPOINT


# -- names that sessions forgot, and clients that give way


FEW = 3
SMALL = xp.Settings(limits=xp.Limits(unresolved=FEW))


@timeless
async def test_a_forgotten_name_that_is_denied_is_not_asked_for_until_it_is_allowed() -> None:
    # VHD-25, OPS-2
    async with pair(settings=SMALL, policy=names("a*")) as (origin, relay):
        client = await tenant(relay, A)
        for name in ("b1", "a1", "b2", "a2", "b3", "b4", "b5"):
            await client.ask(name)
        assert len(relay.sessions()[0].subscriptions) == FEW
        await quiet(4 * EVERY)
        assert not any('"b' in str(request) for request in origin.wire.requests)
        before = len(origin.wire.requests)
        relay.relay.enforce(names("b*"))
        assert await client.heard(4 * EVERY) == []
        assert not any('"a' in str(request) for request in origin.wire.requests[before:])
        origin.put(cluster("b2", "1"))
        assert await client.heard(4 * EVERY) == ["b2=1"]
        relay.relay.enforce(names("a*"))
        origin.put(cluster("b1", "1"), cluster("a1", "1"))
        assert await client.heard(4 * EVERY) == ["-b2", "a1=1"]


@both
@timeless
async def test_who_may_not_have_a_resource_does_not_hear_that_there_is_no_room_for_it(
    delta: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PRX-35, OPS-2: nor does it count among those who share the room
    monkeypatch.setattr("xdsprism.core.relay.spread.STREAMS", 1)
    monkeypatch.setattr("xdsprism.core.relay.spread.SUBSCRIPTIONS_PER_STREAM", 4)
    rules = policy(TENANTS + f"- {{identity: '{C}', params: {{env: {{pin: prod}}}}}}")
    async with pair(policy=rules, settings=xp.Settings(resource_errors="all")) as (origin, relay):
        wanted = [f"b{number}" for number in range(8)]
        origin.put(*[cluster(name, "1") for name in (*wanted, "a")])
        other = await tenant(relay, B, delta=delta)
        await other.want(xp.CLUSTER, *wanted)
        await quiet(60)
        told = [error for response in await other.responses() for error in response.resource_errors]
        assert [error.error_detail.code for error in told] == [3] * 4  # PRX-35: there is no room
        for identity, said in ((A, {}), (C, TEST)):
            one = await tenant(relay, identity, delta=delta, **said)
            assert [token for token in await one.ask(*wanted) if token[0] != "-"] == [f"!{name}" for name in wanted]
            assert await one.heard(60) == []
        assert len([*relay.hub.interest.wanting(xp.CLUSTER, wanted[0], Params())]) == 1
        assert {key.name[0] for key in asked(origin)} == {"b"}


# -- another policy


@modes
@timeless
async def test_another_policy_takes_and_gives_on_open_streams(up: bool, down: bool) -> None:
    # OPS-2
    async with pair(delta=up, policy=names("a1", "c")) as (origin, relay):
        origin.put(*[cluster(name, "1") for name in ("a1", "a2", "c", "d")])
        named, everything = [await tenant(relay, A, delta=down) for _ in range(2)]
        assert [token for token in await named.ask("a1", "a2", "c") if "=" in token] == ["a1=1", "c=1"]
        assert await everything.ask() == ["a1=1", "c=1"]
        relay.relay.enforce(names("a2", "c"))
        assert await named.heard() == (["-a1", "a2=1"] if down else ["!a1", "a2=1", "c=1"])
        assert await everything.heard() == (["-a1", "a2=1"] if down else ["a2=1", "c=1"])


@modes
@timeless
async def test_a_relay_asks_for_what_is_allowed_now_and_lets_go_of_what_is_not(up: bool, down: bool) -> None:
    # OPS-2, PRX-9
    async with pair(delta=up, linger=LINGER, policy=names("a1")) as (origin, relay):
        origin.put(*[cluster(name, "1") for name in ("a1", "a2")])
        client = await tenant(relay, A, delta=down)
        await client.ask("a1", "a2")
        assert {key.name for key in asked(origin)} == {"a1"}
        relay.relay.enforce(names("a2"))
        assert "a2=1" in await client.heard()
        assert {key.name for key in asked(origin)} == {"a1", "a2"}
        await client.heard(2 * LINGER)
        assert {key.name for key in asked(origin)} == {"a2"}
        origin.put(cluster("a1", "2"))
        assert await client.heard() == []


@both
@timeless
async def test_what_is_allowed_now_is_asked_for_although_nothing_else_happens(delta: bool) -> None:
    # OPS-2
    async with pair(policy=names("a1")) as (origin, relay):
        origin.put(cluster("a2", "1"))
        client = await tenant(relay, A, delta=delta)
        await client.ask("a2")
        relay.relay.enforce(names("a2"))
        assert await client.heard() == ["a2=1"]


@modes
@timeless
async def test_with_other_params_a_client_keeps_what_it_may_until_the_server_has_answered(up: bool, down: bool) -> None:
    # PRX-11, DYN-44
    before, after = (names("a*", params=f"{{env: {{pin: {env}}}}}") for env in ("prod", "test"))
    stricter = names("a1", params="{env: {pin: test}}")
    async with pair(delta=up, upstream_form="locators", policy=before) as (origin, relay):
        for name in ("a1", "a2"):
            origin.vary(prod=cluster(name, "1"), test=cluster(name, "2"))
        named, everything = [await tenant(relay, A, delta=down) for _ in range(2)]
        assert [await named.ask("a1", "a2"), await everything.ask()] == [["a1=1", "a2=1"]] * 2
        await quiet(5)
        origin.wire.cut(down=True)
        await quiet()
        relay.relay.enforce(after)
        assert [await named.heard(), await everything.heard()] == [[], []]
        relay.relay.enforce(stricter)
        gone = [token for client in (named, everything) for token in await client.heard() if not token.startswith("!")]
        assert gone == (["-a2", "-a2"] if down else ["a1=1", "a1=1"])
        origin.wire.down = False
        assert await named.heard(60) == ["a1=2"]
        assert await everything.heard(60) == ["a1=2"]


@timeless
async def test_a_fetch_that_waits_is_answered_by_the_policy_in_force() -> None:
    # OPS-2
    def resource(name: str) -> pb.Resource:
        made = pb.Resource(version="1")
        made.resource_name.name = name
        made.resource_name.dynamic_parameter_constraints.SetInParent()
        made.resource.Pack(endpoint(name))
        return made

    peer = ScriptedPeer()
    async with station(peer.connect, policy=names("a*")) as relay:
        call = open_fetch(relay.hub, "fetch", Peer("client", proved=parse_identity(A)), xp.ENDPOINT, v2=False)
        call.receive(pb.DiscoveryRequest(resource_names=["a1", "a2"]).SerializeToString())
        stream = await peer.accept()
        await quiet(0.1)
        stream.respond(xp.ENDPOINT, resource("a1"))
        await quiet(0.1)
        assert [*call.poll()] == []  # it waits for a2
        relay.relay.enforce(names("a2"))
        await quiet(0.1)
        assert [*call.poll()] == []
        stream.respond(xp.ENDPOINT, resource("a2"), nonce="n2")
        await quiet(0.1)
        (answer,) = [*call.poll()]
        (only,) = pb.DiscoveryResponse.FromString(answer).resources
        assert ClusterLoadAssignment.FromString(only.value).cluster_name == "a2"
        call.close()
