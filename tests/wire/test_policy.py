"""A policy in a server, and in a relay of one: by certificate, over every way in, and while streams are open."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest, LoadStatsResponse

from tests.client.doors import boot
from tests.support.certificates import Authority, Pair
from tests.wire.rig import DELTA, OPTIONS, PATIENCE, Stream, cluster, put, unary, until
from xdsprism import CLUSTER, ENDPOINT, Server, Store, Tls
from xdsprism.admin.read_model import clients
from xdsprism.core.model.facts import Denied, Fact
from xdsprism.core.policy.policy import Policy
from xdsprism.relay.relay import Relay
from xdsprism.sources.policy_file import parse_policy

FREE = "127.0.0.1:0"
TENANTS = """
rules:
- identity: spiffe://example.com/a
  names: {"*": [a-*]}
- identity: spiffe://example.com/b
  node: b-*
  names: {"*": [b-*]}
- identity: subject:CN=c,O=*
  names: {cds: ["*"]}
"""
FETCH = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
FETCH_ENDPOINTS = "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints"
LOADS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"


def policy(text: str) -> Policy:
    return parse_policy(text, "policy.yaml")


class Site:
    """A server with a policy, or a relay with a policy in front of a server without, and clients with certificates."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        files = folder / "tls.crt", folder / "tls.key"
        self.authority.make("server").put(*files)
        self.store = Store()
        put(self.store, cluster("a-1"), cluster("b-1"), cluster("c-1"))
        self.tls = Tls(*files, self.authority.certificate)
        self.server: Server  # with the policy
        self.facts: list[Fact] = []
        self.clients = {name: self.authority.make(name, (f"URI:spiffe://example.com/{name}",)) for name in "abx"}

    @asynccontextmanager
    async def run(self, *, relayed: bool) -> AsyncIterator[Site]:
        own: Any = {"rest": FREE, "tls": self.tls, "policy": policy(TENANTS)}
        async with AsyncExitStack() as stack:
            if relayed:
                origin = await stack.enter_async_context(Server(self.store, FREE))
                self.server = (await stack.enter_async_context(Relay(boot(origin.address), FREE, **own))).server
            else:
                self.server = await stack.enter_async_context(Server(self.store, FREE, **own))
            self.server.hub.readers.append(self.facts.extend)
            yield self

    @asynccontextmanager
    async def channel(self, client: Pair) -> AsyncIterator[grpc.aio.Channel]:
        credentials = grpc.ssl_channel_credentials(self.authority.pem, *client.pem)
        async with grpc.aio.secure_channel(self.server.address, credentials, options=OPTIONS) as channel:
            yield channel

    @asynccontextmanager
    async def stream(self, client: str, method: str = DELTA) -> AsyncIterator[Stream]:
        async with self.channel(self.clients[client]) as channel, Stream("", method, channel=channel) as stream:
            yield stream


@pytest.fixture(params=["server", "relay"])
async def site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    async with Site(tmp_path).run(relayed=request.param == "relay") as made:
        yield made


def names(response: Any) -> list[str]:
    return sorted(each.name for each in response.resources)


@pytest.mark.usefixtures("engine")
async def test_a_stream_gets_what_its_certificate_may_have(site: Site):
    # OPS-1, OPS-2
    for client, node, expected in (("a", "any", ["a-1"]), ("b", "b-7", ["b-1"]), ("b", "a-7", []), ("x", "b-1", [])):
        async with site.stream(client) as stream:
            await stream.send(type_url=CLUSTER, node={"id": node})
            assert names(await stream.read()) == expected


@pytest.mark.usefixtures("engine")
async def test_a_denial_is_an_error_of_one_resource_and_the_stream_goes_on(site: Site):
    async with site.stream("a") as stream:
        await stream.send(type_url=CLUSTER, node={"id": "n"}, resource_names_subscribe=["b-1", "a-1"])
        responses = [await stream.read()]
        while not any(names(each) for each in responses):  # a relay asks for the one, and answers the other at once
            responses.append(await stream.read())
        assert [name for each in responses for name in names(each)] == ["a-1"]
        assert [name for each in responses for name in each.removed_resources] == ["b-1"]
        (error,) = [error for each in responses for error in each.resource_errors]
        assert (error.resource_name.name, error.error_detail.code) == ("b-1", 7)
        put(site.store, cluster("b-1", "other"), cluster("a-1", "other"))
        assert names(await stream.read()) == ["a-1"]
    await until(lambda: any(isinstance(fact, Denied) for fact in site.facts))
    (denied,) = [fact for fact in site.facts if isinstance(fact, Denied)]
    assert (denied.kind, denied.name, denied.count) == ("name", "b-1", 1)
    assert denied.rule == "rule 1, spiffe://example.com/a (policy.yaml:3)"


@pytest.mark.usefixtures("engine")
async def test_another_policy_takes_effect_on_open_streams(site: Site):
    async with site.stream("a") as stream:
        await stream.send(type_url=CLUSTER, node={"id": "n"})
        first = await stream.read()
        assert names(first) == ["a-1"]
        await stream.send(type_url=CLUSTER, response_nonce=first.nonce)
        site.server.enforce(policy(TENANTS.replace("[a-*]", "[c-*]", 1)))
        changed = await stream.read()
        assert (names(changed), list(changed.removed_resources)) == (["c-1"], ["a-1"])
        await stream.send(type_url=CLUSTER, response_nonce=changed.nonce)
        site.server.enforce(None)
        assert names(await stream.read()) == ["a-1", "b-1"]


async def test_a_certificate_subject_decides(site: Site, tmp_path: Path):
    assert site.server.hub.policy is not None
    made = site.authority.make("c", ())
    async with site.channel(made) as channel, Stream("", channel=channel) as stream:
        await stream.send(type_url=CLUSTER, node={"id": "n"})
        assert names(await stream.read()) == []  # its subject is CN=c, without an organization
    site.server.enforce(policy("rules: [{identity: 'subject:CN=c'}]"))
    async with site.channel(made) as channel, Stream("", channel=channel) as stream:
        await stream.send(type_url=CLUSTER, node={"id": "n"})
        assert names(await stream.read()) == ["a-1", "b-1", "c-1"]


@pytest.mark.usefixtures("engine")
async def test_a_fetch_gets_what_its_certificate_may_have(site: Site):
    async with site.channel(site.clients["a"]) as channel:
        for wanted, expected in (([], ["a-1"]), (["b-1"], [])):
            request = pb.DiscoveryRequest(node={"id": "n"}, resource_names=wanted)
            answer = await channel.unary_unary(FETCH, None, None)(request.SerializeToString(), timeout=PATIENCE)
            found = pb.DiscoveryResponse.FromString(answer)
            assert sorted(Cluster.FromString(each.value).name for each in found.resources) == expected


async def test_rest_gives_what_the_certificate_may_have(site: Site):
    def ask(client: Pair) -> list[str]:
        context = ssl.create_default_context(cafile=str(site.authority.certificate))
        context.load_cert_chain(client.certificate, client.key)
        host, _, port = site.server.rest_address.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=PATIENCE)
        try:
            connection.request("POST", "/v3/discovery:clusters", json.dumps({"node": {"id": "n"}}))
            return [each["name"] for each in json.loads(connection.getresponse().read()).get("resources", [])]
        finally:
            connection.close()

    assert await asyncio.to_thread(ask, site.clients["a"]) == ["a-1"]
    assert await asyncio.to_thread(ask, site.clients["x"]) == []


@pytest.mark.usefixtures("engine")
async def test_a_client_is_asked_for_the_loads_of_clusters_that_it_may_have(site: Site):
    async with site.channel(site.clients["a"]) as channel, site.stream("a") as stream, site.stream("b") as other:
        for each in (stream, other):  # a relay knows the clusters that somebody subscribed to
            await each.send(type_url=CLUSTER, node={"id": "b-1"})
            await each.read()
        call = channel.stream_stream(LOADS, None, None)()
        await call.write(LoadStatsRequest(node={"id": "n"}).SerializeToString())
        assert list(LoadStatsResponse.FromString(await call.read()).clusters) == ["a-1"]
        site.server.enforce(policy(TENANTS.replace("[a-*]", "[c-*]", 1)))
        assert list(LoadStatsResponse.FromString(await call.read()).clusters) == ["c-1"]
        call.cancel()


async def test_the_admin_page_says_which_rule_is_for_a_client_and_what_was_denied(site: Site):
    async with site.stream("a") as stream:
        await stream.send(type_url=CLUSTER, node={"id": "n"}, resource_names_subscribe=["b-1", "a-1"])
        await stream.read()
        (row,) = clients(site.server.hub.connected(), 0.0, 0.0).rows
    assert row is not None
    assert row["policy"] == {
        "identities": ["spiffe://example.com/a", "subject:CN=a"],
        "rule": "rule 1, spiffe://example.com/a (policy.yaml:3)",
        "denied": {"name": 1},
    }
    shown = {each["name"]: each for each in row["types"][0]["subscriptions"]["first"]}
    assert shown["b-1"]["variant"] is None
    assert "denied" in shown["b-1"]
    assert "denied" not in shown["a-1"]


async def test_a_provider_is_asked_only_for_what_a_client_may_have():
    # DYN-44: with the params that the policy leaves it
    store = Store()
    calls: list[tuple[str, bool]] = []

    @store.provider(ENDPOINT, keys=["env"])
    async def endpoints(name: str, params: Any) -> ClusterLoadAssignment:
        calls.append((name, params["env"] == "prod"))
        return ClusterLoadAssignment(cluster_name=name)

    text = "rules: [{identity: anonymous, names: {eds: [a-*]}, params: {env: {pin: prod}}}]"
    async with Server(store, FREE, policy=policy(text)) as server, Stream(server.address) as stream:
        await stream.send(type_url=ENDPOINT, node={"id": "n"}, resource_names_subscribe=["b-1", "a-1"])
        first = await stream.read()
        found = [first] if first.resources else [first, await stream.read()]
        assert [each.name for response in found for each in response.resources] == ["a-1"]
        assert [name for response in found for name in response.removed_resources] == ["b-1"]
        # A fetch of what is denied does not wait for the provider.
        request = pb.DiscoveryRequest(node={"id": "n"}, resource_names=["b-1"]).SerializeToString()
        answer = await asyncio.wait_for(unary(server.address, FETCH_ENDPOINTS, request), 5)
        assert not pb.DiscoveryResponse.FromString(answer).resources
    assert calls == [("a-1", True)]
