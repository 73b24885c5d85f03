"""CSDS under a policy: a caller learns nothing of the clients of another rule, in a server and in a relay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.status.v3.csds_pb2 import ClientStatusRequest, ClientStatusResponse
from envoy.type.matcher.v3.node_pb2 import NodeMatcher

from tests.client.doors import boot
from tests.wire.rig import SOTW, Stream, cluster, put, unary, until
from xdsprism import CLUSTER, Server, Store
from xdsprism.core.model.settings import Engine
from xdsprism.core.model.types import TYPES
from xdsprism.core.policy.policy import Policy
from xdsprism.relay.relay import Relay
from xdsprism.sources.policy_file import parse_policy

FREE = "127.0.0.1:0"
FETCH = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus"
STREAM = FETCH.replace("Fetch", "Stream")
TENANTS = """
rules:
- {identity: any, node: a-*, names: {"*": [a-*]}}
- {identity: any, node: b-*, names: {"*": [b-*]}}
"""
DEFAULT = "default: allow\n" + TENANTS.lstrip()
OPERATORS = f"""{TENANTS}
- identity: any
  types: [{", ".join(spec.url for spec in TYPES)}]
  params: any
"""


def policy(text: str) -> Policy:
    return parse_policy(text, "policy.yaml")


@pytest.fixture(params=["server", "relay"])
def relayed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "relay")


@asynccontextmanager
async def site(text: str, engine: Engine, *, relayed: bool) -> AsyncIterator[Server]:
    """A server with this policy, or a relay with it in front of a server without."""
    store = Store()
    put(store, cluster("a-1"), cluster("b-1"), cluster("c-1"))
    async with AsyncExitStack() as stack:
        if relayed:
            origin = await stack.enter_async_context(Server(store, FREE))
            relay = Relay(boot(origin.address), FREE, engine=engine, policy=policy(text))
            yield (await stack.enter_async_context(relay)).server
        else:
            yield await stack.enter_async_context(Server(store, FREE, engine=engine, policy=policy(text)))


async def seen_by(server: Server, node: str, *matchers: NodeMatcher) -> ClientStatusResponse:
    request = ClientStatusRequest(node=Node(id=node), node_matchers=matchers)
    return ClientStatusResponse.FromString(await unary(server.address, FETCH, request.SerializeToString()))


def names(answer: ClientStatusResponse) -> dict[str, list[str]]:
    return {config.node.id: sorted(each.name for each in config.generic_xds_configs) for config in answer.config}


def timeless(answer: ClientStatusResponse) -> ClientStatusResponse:
    for config in answer.config:
        for each in config.generic_xds_configs:
            each.ClearField("last_updated")
    return answer


async def join(server: Server, stack: AsyncExitStack, node: str, *asked: str) -> None:
    """Connect a client that asks for these clusters, each of which is answered, and ACKs."""
    stream = await stack.enter_async_context(Stream(server.address))
    fields: dict[str, Any] = {"node": Node(id=node, metadata={"of": node})}
    answered: set[str] = set()
    await stream.send(type_url=CLUSTER, resource_names_subscribe=asked, **fields)
    while answered < set(asked):
        response = await stream.read()
        answered |= {*response.removed_resources, *(each.name for each in response.resources)}
        await stream.ack(response)
    (live,) = [each.stream for each in server.hub.connected() if each.stream.node and each.stream.node.id == node]
    await until(lambda: live.is_answered)


async def test_a_caller_learns_the_same_whether_or_not_there_are_clients_of_another_rule(
    engine: Engine, relayed: bool
) -> None:
    # CSD-1, OPS-2
    answers = []
    for others in ([], ["b-1", "b-2"]):
        async with site(OPERATORS, engine, relayed=relayed) as server, AsyncExitStack() as stack:
            for other in others:
                await join(server, stack, other, "b-1", "a-1", "c-1")
            await join(server, stack, "a-1", "a-1", "b-1")
            await join(server, stack, "a-2", "a-1", "a-none")
            found = await seen_by(server, "a-9")
            one_of = NodeMatcher()
            one_of.node_id.prefix = "b"
            assert await seen_by(server, "a-9", one_of) == ClientStatusResponse()
            answers.append(timeless(found))
            # Of its own clients it sees the names that its rule allows, and no other that these have asked for.
            assert names(found) == {"a-1": ["a-1"], "a-2": ["a-1", "a-none"]}
            assert b"b-" not in found.SerializeToString()
    assert answers[0] == answers[1]


async def test_whose_rule_allows_everything_on_any_node_sees_all(engine: Engine, relayed: bool) -> None:
    # CSD-1, OPS-2
    async with site(OPERATORS, engine, relayed=relayed) as server, AsyncExitStack() as stack:
        await join(server, stack, "a-1", "a-1")
        await join(server, stack, "b-1", "b-1", "a-1")
        assert names(await seen_by(server, "operator")) == {"a-1": ["a-1"], "b-1": ["a-1", "b-1"]}
        assert names(await seen_by(server, "b-9")) == {"b-1": ["b-1"]}


@pytest.mark.parametrize(
    "less",
    [
        "{identity: any, params: any}",  # no secrets
        f"{{identity: any, types: [{', '.join(spec.url for spec in TYPES)}]}}",  # no params
        f"{{identity: any, node: o*, types: [{', '.join(spec.url for spec in TYPES)}], params: any}}",  # these nodes
        f"{{identity: any, types: [{', '.join(spec.url for spec in TYPES)}], names: {{'*': [a-*]}}, params: any}}",
    ],
)
async def test_whose_rule_allows_less_sees_only_the_clients_of_the_rule(engine: Engine, less: str) -> None:
    # CSD-1, OPS-2
    async with site(f"{TENANTS}\n- {less}", engine, relayed=False) as server, AsyncExitStack() as stack:
        await join(server, stack, "a-1", "a-1")
        await join(server, stack, "operator", "a-1")
        assert names(await seen_by(server, "operator")) == {"operator": ["a-1"]}


@pytest.mark.parametrize("path", [FETCH, STREAM])
async def test_who_may_have_nothing_is_told_nothing(engine: Engine, relayed: bool, path: str) -> None:
    # OPS-2
    async with site(TENANTS, engine, relayed=relayed) as server, Stream(server.address, path) as stranger:
        async with AsyncExitStack() as stack:
            await join(server, stack, "a-1", "a-1")
            await join(server, stack, "stranger", "a-1")
            await stranger.send_bytes(ClientStatusRequest(node=Node(id="stranger")).SerializeToString())
            code, text = await stranger.outcome()
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "no rule of the policy is for a client with this identity and node id" in text


async def test_a_stream_keeps_the_node_that_it_named_and_follows_the_policy(engine: Engine) -> None:
    # CSD-1, OPS-2
    async with site(TENANTS, engine, relayed=False) as server, AsyncExitStack() as stack:
        await join(server, stack, "a-1", "a-1")
        await join(server, stack, "b-1", "b-1")
        call = await stack.enter_async_context(Stream(server.address, STREAM))
        await call.send_bytes(ClientStatusRequest(node=Node(id="a-2")).SerializeToString())
        assert names(ClientStatusResponse.FromString(await call.read_bytes())) == {"a-1": ["a-1"]}
        await call.send_bytes(b"")
        assert names(ClientStatusResponse.FromString(await call.read_bytes())) == {"a-1": ["a-1"]}
        server.enforce(policy(TENANTS.replace("a-*", "x-*")))
        await call.send_bytes(b"")
        assert (await call.outcome())[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_a_client_that_a_changed_policy_has_not_reached_is_shown_to_nobody(engine: Engine) -> None:
    # OPS-2: its grant is of the policy before, which said another thing of who belongs together
    async with site(TENANTS, engine, relayed=False) as server, AsyncExitStack() as stack:
        await join(server, stack, "a-1", "a-1")
        server.hub.policy = policy(TENANTS)
        assert await seen_by(server, "a-2") == ClientStatusResponse()
        server.enforce(policy(TENANTS))
        streams = [each.stream for each in server.hub.connected() if each.method.endswith("DeltaAggregatedResources")]
        await until(lambda: all(not each.is_regranted for each in streams))
        assert names(await seen_by(server, "a-2")) == {"a-1": ["a-1"]}


async def test_without_a_policy_everybody_sees_everybody(engine: Engine) -> None:
    # CSD-1
    async with Server(Store(), FREE, engine=engine) as server, Stream(server.address, SOTW) as client:
        await client.send(type_url=CLUSTER, node=Node(id="envoy"))
        await client.read()
        assert names(await seen_by(server, "anybody")) == {"envoy": []}


async def test_clients_that_no_rule_is_for_see_each_other_if_they_may_have_all_but_secrets(engine: Engine) -> None:
    # OPS-2
    async with site(DEFAULT, engine, relayed=False) as server, AsyncExitStack() as stack:
        await join(server, stack, "a-1", "a-1")
        await join(server, stack, "other", "b-1", "c-1")
        assert names(await seen_by(server, "another")) == {"other": ["b-1", "c-1"]}
        assert names(await seen_by(server, "a-2")) == {"a-1": ["a-1"]}
