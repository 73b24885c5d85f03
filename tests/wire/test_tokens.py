"""Bearer tokens at a server with a policy: on every way in, call by call, and when they end."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio
import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest, LoadStatsResponse
from envoy.service.status.v3.csds_pb2 import ClientStatusResponse

from tests.support.certificates import Authority, Pair
from tests.support.tokens import AUDIENCE, Signer, bearer, write_jwks
from tests.wire.rig import DELTA, OPTIONS, PATIENCE, SOTW, Stream, cluster, put, until
from xdsprism import CLUSTER, Client, Server, Settings, Store, Tls
from xdsprism.admin.read_model import clients
from xdsprism.core.model.facts import Closed, Fact, Facts, TokenRefused
from xdsprism.core.model.type_versions import as_v2
from xdsprism.core.policy.tokens import LEEWAY, MAX_TOKEN, Tokens
from xdsprism.errors import PeerError
from xdsprism.server.bearers import BAD_CHECKS, MEMORY, Bearers
from xdsprism.server.calls import Peer
from xdsprism.sources.jwks import parse_keys
from xdsprism.sources.policy_file import load_policy, parse_policy

FREE = "127.0.0.1:0"
RULES = """
- identity: jwt:a
  names: {"*": [a-*]}
- identity: jwt:b/*
  node: b-*
  names: {"*": [b-*]}
- identity: spiffe://example.com/*
  names: {"*": [c-*]}
- identity: anonymous
  names: {"*": [d-*]}
"""
V2_DELTA = "/envoy.service.discovery.v2.AggregatedDiscoveryService/DeltaAggregatedResources"
V2_SOTW = "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources"
FETCH = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
STATUSES = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus"
LOADS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
HEALTH = "/grpc.health.v1.Health/Check"
LONG = 3600.0


class Call(Stream):
    """A stream with metadata of its own."""

    metadata: tuple[tuple[str, str], ...] = ()

    async def __aenter__(self) -> Self:
        self._call = self._channel.stream_stream(self._method, None, None)(metadata=self.metadata)
        return self


class Site:
    """A server that secures its ports, and verifies tokens."""

    def __init__(self, folder: Path, *, client_ca: bool = False) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        files = folder / "tls.crt", folder / "tls.key"
        self.authority.make("server").put(*files)
        self.signer = Signer("one")
        self.store = Store()
        put(self.store, cluster("a-1"), cluster("b-1"), cluster("c-1"), cluster("d-1"))
        tls = Tls(*files, self.authority.certificate if client_ca else None)
        settings = Settings(poll_hold=LONG)
        policy = self.policy(self.signer)
        self.server = Server(self.store, FREE, rest=FREE, tls=tls, settings=settings, policy=policy)
        self.facts: list[Fact] = []

    def policy(self, *signers: Signer, rules: str = RULES) -> Any:
        write_jwks(self.folder / "keys.json", *signers)
        return parse_policy(f"jwks: keys.json\naudience: {AUDIENCE}\nrules:{rules}", str(self.folder / "policy.yaml"))

    @asynccontextmanager
    async def channel(self, client: Pair | None = None, calls: Any = None) -> AsyncIterator[grpc.aio.Channel]:
        """A connection; `calls` are call credentials, as gRPC has them."""
        credentials = grpc.ssl_channel_credentials(self.authority.pem, *(client.pem if client else (None, None)))
        if calls is not None:
            credentials = grpc.composite_channel_credentials(credentials, calls)
        async with grpc.aio.secure_channel(self.server.address, credentials, options=OPTIONS) as channel:
            yield channel

    @asynccontextmanager
    async def stream(self, *values: str, method: str = DELTA, client: Pair | None = None) -> AsyncIterator[Call]:
        """A stream with these `authorization` values."""
        async with self.channel(client) as channel:
            call = Call("", method, channel=channel)
            call.metadata = tuple(("authorization", value) for value in values)
            async with call:
                yield call

    async def rest(self, *values: str, path: str = "/v3/discovery:clusters", **fields: Any) -> Any:
        """Ask the REST port. Returns the status, the headers and the body."""
        return await asyncio.to_thread(self._rest, path, values, {"node": {"id": "b-1"}} | fields)

    def _rest(self, path: str, values: tuple[str, ...], body: Any) -> Any:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        host, _, port = self.server.rest_address.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=PATIENCE)
        try:
            data = json.dumps(body).encode()
            connection.putrequest("POST", path)
            for value in values:
                connection.putheader("authorization", value)
            connection.putheader("content-length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def refusals(self) -> list[str]:
        return [fact.cause for fact in self.facts if isinstance(fact, TokenRefused)]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    async with made.server:
        made.server.hub.readers.append(made.facts.extend)
        yield made


def names(response: Any) -> list[str]:
    if isinstance(response, pb.DiscoveryResponse):
        return sorted(Cluster.FromString(each.value).name for each in response.resources)
    return sorted(each.name for each in response.resources)


def soon() -> float:
    """An `exp` that is over in a moment, for a server that allows for clocks that differ."""
    return time.time() - LEEWAY + 3


# -- who a call is


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("method", "type_url"),
    [(DELTA, CLUSTER), (SOTW, CLUSTER), (V2_DELTA, as_v2(CLUSTER)), (V2_SOTW, as_v2(CLUSTER))],
    ids=["delta", "sotw", "v2-delta", "v2-sotw"],
)
async def test_a_stream_gets_what_its_token_may_have(site: Site, method: str, type_url: str):
    # OPS-1, OPS-16
    for subject, node, expected in (("a", "x", "a-1"), ("b/1", "b-7", "b-1"), ("b/1", "x", ""), ("c", "x", "")):
        async with site.stream(f"Bearer {site.signer.token(subject)}", method=method) as stream:
            await stream.send(type_url=type_url, node={"id": node})
            assert names(await stream.read()) == ([expected] if expected else [])
    async with site.stream(method=method) as stream:
        await stream.send(type_url=type_url, node={"id": "x"})
        assert names(await stream.read()) == ["d-1"]


@pytest.mark.usefixtures("engine")
async def test_each_call_of_a_connection_has_its_own_token(site: Site):  # OPS-16
    async with site.channel() as channel:
        for values, expected in (
            (bearer(site.signer.token("a")), "a-1"),
            (bearer(site.signer.token("b/1")), "b-1"),
            ((), "d-1"),
            (bearer(site.signer.token("a")), "a-1"),
        ):
            call = Call("", channel=channel)
            call.metadata = values
            async with call:
                await call.send(type_url=CLUSTER, node={"id": "b-1"})
                assert names(await call.read()) == [expected]


@pytest.mark.usefixtures("engine")
async def test_call_credentials_of_grpc_are_accepted(site: Site):
    def plugin(context: Any, callback: Callable[[Any, Any], None]) -> None:
        callback(bearer(site.signer.token("b/2")), None)

    tokens = grpc.access_token_call_credentials(site.signer.token("a")), grpc.metadata_call_credentials(plugin)
    for credentials, expected in zip(tokens, ("a-1", "b-1"), strict=True):
        async with site.channel(calls=credentials) as channel, Stream("", channel=channel) as stream:
            await stream.send(type_url=CLUSTER, node={"id": "b-1"})
            assert names(await stream.read()) == [expected]


@pytest.mark.usefixtures("engine")
async def test_a_fetch_and_rest_give_what_the_token_may_have(site: Site):
    request = pb.DiscoveryRequest(node={"id": "b-1"}).SerializeToString()
    for subject, expected in (("a", "a-1"), ("b/1", "b-1")):
        async with site.channel() as channel:
            call = channel.unary_unary(FETCH, None, None)
            answer = await call(request, metadata=bearer(site.signer.token(subject)), timeout=PATIENCE)
            assert names(pb.DiscoveryResponse.FromString(answer)) == [expected]
        for path in ("/v3/discovery:clusters", "/v2/discovery:clusters"):
            status, _, body = await site.rest(f"Bearer {site.signer.token(subject)}", path=path)
            assert (status, [each["name"] for each in body["resources"]]) == (200, [expected])


@pytest.mark.usefixtures("engine")
async def test_a_client_is_asked_for_the_loads_that_its_token_is_for(site: Site):
    async with site.channel() as channel:
        call = channel.stream_stream(LOADS, None, None)(metadata=bearer(site.signer.token("a")))
        await call.write(LoadStatsRequest(node={"id": "n"}).SerializeToString())
        assert list(LoadStatsResponse.FromString(await call.read()).clusters) == ["a-1"]
        call.cancel()


@pytest.mark.usefixtures("engine")
async def test_a_client_with_certificate_and_token_has_both_identities(tmp_path: Path):
    site = Site(tmp_path, client_ca=True)
    client = site.authority.make("c", ("URI:spiffe://example.com/c",))
    async with site.server:
        for values, expected in (([f"Bearer {site.signer.token('a')}"], "a-1"), ([], "c-1")):
            async with site.stream(*values, client=client) as stream:
                await stream.send(type_url=CLUSTER, node={"id": "n"})
                assert names(await stream.read()) == [expected]
        async with site.stream(f"Bearer {site.signer.token('z')}", client=client) as stream:
            await stream.send(type_url=CLUSTER, node={"id": "n"})
            assert names(await stream.read()) == ["c-1"]
            (row,) = clients(site.server.hub.connected(), 0.0, 0.0).rows
            assert row is not None
            assert row["policy"]["identities"] == ["spiffe://example.com/c", "subject:CN=c", "jwt:z"]
            assert row["identities"] == ["spiffe://example.com/c", "jwt:z"]
        async with site.stream("Bearer x", client=client) as stream:  # a good certificate mends no bad token
            await stream.send(type_url=CLUSTER, node={"id": "n"})
            assert (await stream.outcome())[0] is grpc.StatusCode.UNAUTHENTICATED


# -- what is refused


def bad_tokens(site: Site) -> dict[str, tuple[str, ...]]:
    """Values of `authorization`, by the cause for which they are refused."""
    good = f"Bearer {site.signer.token('a')}"
    return {
        "header": (good, good),
        "form": (f"Bearer {'x' * (MAX_TOKEN + 1)}",),
        "signature": (f"Bearer {Signer('one').token('a')}",),
        "key": (f"Bearer {Signer('other').token('a')}",),
        "expired": (f"Bearer {site.signer.token('a', exp=time.time() - 60)}",),
        "early": (f"Bearer {site.signer.token('a', nbf=time.time() + 600)}",),
        "audience": (f"Bearer {site.signer.token('a', aud='other')}",),
        "claims": (f"Bearer {site.signer.token(None)}",),
    }


@pytest.mark.usefixtures("engine")
async def test_a_bad_token_is_not_taken_for_none(site: Site):  # OPS-16
    for cause, values in bad_tokens(site).items():
        async with site.stream(*values) as stream:
            await stream.send(type_url=CLUSTER, node={"id": "n"})
            code, text = await stream.outcome()
        assert (cause, code) == (cause, grpc.StatusCode.UNAUTHENTICATED)
        assert "token" in text or "authorization" in text
        await until(lambda cause=cause: site.refusals() == [cause])
        site.facts.clear()
    assert not [*site.server.hub.connected()]


@pytest.mark.usefixtures("engine")
async def test_headers_of_up_to_16_kb_are_read_each_time(site: Site):  # OPS-16
    for _ in range(5):
        async with site.stream(f"Bearer {'x' * 15_000}") as stream:
            assert (await stream.outcome())[0] is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("method", [SOTW, V2_SOTW, FETCH, LOADS, STATUSES])
async def test_a_bad_token_is_refused_by_each_method(site: Site, method: str):
    async with site.stream("Bearer x.y.z", method=method) as stream:
        await stream.send_bytes(b"")
        code, text = await stream.outcome()
        assert (code, text) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "the token is no signed JWT: its header can't be read",
        )
    async with site.stream("Bearer x.y.z", method=method) as stream:  # nor does it wait for a client that is silent
        assert (await stream.outcome())[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_rest_says_401_and_why(site: Site):  # OPS-16
    for cause, values in bad_tokens(site).items():
        status, headers, body = await site.rest(*values)
        assert (cause, status) == (cause, 401)
        assert headers["www-authenticate"] == f'Bearer error="invalid_token", error_description="{body["error"]}"'
    await until(lambda: site.refusals() == [*bad_tokens(site)])


@pytest.mark.usefixtures("engine")
async def test_methods_that_no_policy_is_about_look_at_no_token(site: Site):
    async with site.channel() as channel:
        answer = await channel.unary_unary(HEALTH, None, None)(b"", metadata=bearer("x"), timeout=PATIENCE)
        assert answer == b"\x08\x01"


@pytest.mark.usefixtures("engine")
async def test_without_a_jwks_tokens_are_ignored(site: Site):
    site.server.enforce(parse_policy("rules: [{identity: anonymous}]", "policy.yaml"))
    async with site.stream("Bearer x", "Basic y") as stream:
        await stream.send(type_url=CLUSTER, node={"id": "n"})
        assert len(names(await stream.read())) == 4
    assert (await site.rest("Bearer x"))[0] == 200


# -- when a token ends, and when other tokens are accepted


@pytest.mark.usefixtures("engine")
async def test_a_stream_ends_when_its_token_does_and_others_go_on(site: Site):  # OPS-18
    async with site.channel() as channel:
        short, long = Call("", channel=channel), Call("", channel=channel)
        short.metadata, long.metadata = bearer(site.signer.token("a", exp=soon())), bearer(site.signer.token("a"))
        async with short, long:
            for each in (short, long):
                await each.send(type_url=CLUSTER, node={"id": "n"})
                await each.ack(await each.read())
            code, text = await short.outcome()
            assert (code, text) == (
                grpc.StatusCode.UNAUTHENTICATED,
                "the token has expired: come back with a fresh one",
            )
            put(site.store, cluster("a-1", "other"))
            assert names(await long.read()) == ["a-1"]
    await until(lambda: any(isinstance(fact, Closed) and fact.is_usual for fact in site.facts))


@pytest.mark.usefixtures("engine")
async def test_load_reports_end_with_the_token(site: Site):  # OPS-18
    async with site.stream(f"Bearer {site.signer.token('a', exp=soon())}", method=LOADS) as stream:
        await stream.send_bytes(LoadStatsRequest(node={"id": "n"}).SerializeToString())
        await stream.read_bytes()
        assert (await stream.outcome())[0] is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.usefixtures("engine")
async def test_a_caller_is_told_of_the_clients_that_its_token_is_for_as_long_as_that_holds(site: Site):
    # CSD-1, OPS-2, OPS-18
    async with (
        site.stream(f"Bearer {site.signer.token('a')}") as one,
        site.stream(f"Bearer {site.signer.token('b/1')}") as other,
        site.stream(f"Bearer {site.signer.token('a', exp=soon())}", method=STATUSES) as caller,
    ):
        for stream, node in ((one, "a-7"), (other, "b-7")):
            await stream.send(type_url=CLUSTER, node={"id": node})
            await stream.read()
        await caller.send_bytes(b"")
        told = ClientStatusResponse.FromString(await caller.read_bytes()).config
        seen = [(config.node.id, [each.name for each in config.generic_xds_configs]) for config in told]
        assert seen == [("a-7", ["a-1"])]
        assert (await caller.outcome())[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_a_rest_request_that_waits_ends_with_the_token(site: Site):  # OPS-18
    value = f"Bearer {site.signer.token('a', exp=soon())}"
    _, _, first = await site.rest(value)
    status, headers, body = await site.rest(value, version_info=first["version_info"])
    assert (status, body["error"]) == (401, "the token has expired: come back with a fresh one")
    assert headers["www-authenticate"].startswith('Bearer error="invalid_token"')


@pytest.mark.usefixtures("engine")
async def test_a_changed_jwks_ends_only_the_streams_whose_key_is_gone(site: Site):  # OPS-18
    other = Signer("two")
    async with site.stream(f"Bearer {site.signer.token('a')}") as old:
        await old.send(type_url=CLUSTER, node={"id": "n"})
        await old.ack(await old.read())
        site.server.enforce(site.policy(site.signer, other))
        async with site.stream(f"Bearer {other.token('b/1')}") as new:
            await new.send(type_url=CLUSTER, node={"id": "b-1"})
            await new.ack(await new.read())
            put(site.store, cluster("a-1", "other"))
            await old.ack(await old.read())
            site.server.enforce(site.policy(other))
            assert await old.outcome() == (
                grpc.StatusCode.UNAUTHENTICATED,
                "the server accepts other tokens now: come back",
            )
            put(site.store, cluster("b-1", "other"))
            assert names(await new.read()) == ["b-1"]
            async with site.stream(f"Bearer {site.signer.token('a')}") as again:
                await again.send(type_url=CLUSTER, node={"id": "n"})
                assert (await again.outcome())[0] is grpc.StatusCode.UNAUTHENTICATED
            site.server.enforce(None)
            assert (await new.outcome())[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_a_rest_request_whose_key_goes_while_it_is_read_is_refused(site: Site):  # OPS-18
    policy = site.policy(site.signer)
    site.server.enforce(policy)
    assert policy.tokens is not None
    context = ssl.create_default_context(cafile=str(site.authority.certificate))
    host, _, port = site.server.rest_address.rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=PATIENCE)
    body = json.dumps({"node": {"id": "n"}}).encode()

    def begin() -> None:
        connection.putrequest("POST", "/v3/discovery:clusters")
        connection.putheader("authorization", f"Bearer {site.signer.token('a')}")
        connection.putheader("content-length", str(len(body)))
        connection.endheaders()

    def end() -> Any:
        connection.send(body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["error"]

    await asyncio.to_thread(begin)
    await until(lambda: policy.tokens.remembered == 1)
    site.server.enforce(site.policy(Signer("two")))
    assert await asyncio.to_thread(end) == (401, "the server accepts other tokens now: come back")
    connection.close()


@pytest.mark.usefixtures("engine")
async def test_streams_whose_token_nobody_looked_at_come_back_when_a_policy_does(site: Site):  # OPS-18
    # Otherwise a client that has sent a good token all along would lose what it has.
    site.server.enforce(None)
    async with site.stream(f"Bearer {site.signer.token('a')}") as stream, site.stream() as none:
        for each in (stream, none):
            await each.send(type_url=CLUSTER, node={"id": "n"})
            await each.ack(await each.read())
        site.server.enforce(site.policy(site.signer))
        assert (await stream.outcome())[0] is grpc.StatusCode.UNAUTHENTICATED
        assert list((await none.read()).removed_resources) == ["a-1", "b-1", "c-1"]


async def test_our_client_comes_back_with_the_token_that_its_file_has_then(site: Site, tmp_path: Path):
    # BST-4, OPS-18: it misses nothing, and is told of no removal
    file = tmp_path / "token"
    file.write_text(site.signer.token("a", exp=soon()))
    entry = {
        "server_uri": site.server.address.replace("127.0.0.1", "localhost"),
        "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": str(site.authority.certificate)}}],
        "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": str(file)}}],
        "server_features": ["xds_v3"],
    }
    seen: list[Any] = []
    bootstrap = {"xds_servers": [entry], "node": {"id": "n"}}
    async with asyncio.timeout(PATIENCE), Client(bootstrap) as client:
        async for update in client.watch(CLUSTER, "a-1"):
            seen.append(update)
            if len(seen) == 1:
                file.write_text(site.signer.token("a"))
                await until(lambda: any(isinstance(fact, Closed) and fact.is_usual for fact in site.facts))
                put(site.store, cluster("a-1", "other"))
            elif update.resource is not None and update.resource.alt_stat_name == "other":
                break
    assert all(update.resource is not None for update in seen)


# -- what it costs


class Clock:
    now = 1_000.0
    wall = 1_700_000_000.0


def test_one_address_may_have_so_many_signatures_checked_in_vain():  # OPS-17
    clock, signer, facts = Clock(), Signer("one"), Facts()
    tokens = Tokens(parse_keys(json.dumps({"keys": [signer.jwk()]}).encode(), "k"), [AUDIENCE])
    bearers = Bearers(lambda: clock.now, lambda: clock.wall, facts)
    forged = Signer("one").token("a", now=clock.wall)

    def outcome(token: str, address: str = "ipv4:10.0.0.1:5") -> str:
        try:
            return str(bearers.identify(Peer(address, authorization=(f"Bearer {token}",)), tokens).proved[0])
        except PeerError as error:
            return error.status

    known = signer.token("known", now=clock.wall)
    assert outcome(known) == "jwt:known"
    found = [outcome(forged) for _ in range(BAD_CHECKS.burst + 5)]
    assert found == ["UNAUTHENTICATED"] * BAD_CHECKS.burst + ["RESOURCE_EXHAUSTED"] * 5
    # From another port it is the same address; who is known is not kept waiting; other addresses are not concerned.
    assert outcome(signer.token("new", now=clock.wall), "ipv4:10.0.0.1:6") == "RESOURCE_EXHAUSTED"
    assert outcome(known) == "jwt:known"
    assert outcome(signer.token("new", now=clock.wall), "ipv4:10.0.0.2:5") == "jwt:new"
    clock.now += 1.0
    assert outcome(signer.token("new too", now=clock.wall), "ipv4:10.0.0.1:6") == "jwt:new too"
    assert [outcome(forged) for _ in range(21)].count("UNAUTHENTICATED") == BAD_CHECKS.per_second
    # What is remembered of addresses is bounded.
    for number in range(MEMORY + 1):
        outcome(forged, f"ipv4:10.{number >> 16}.{number >> 8 & 255}.{number & 255}.9:5")
    assert outcome(forged) == "UNAUTHENTICATED"
    assert {fact.cause for fact in facts.take() if isinstance(fact, TokenRefused)} == {"signature", "rate"}


async def test_a_token_is_not_kept(site: Site):  # OPS-14
    token = site.signer.token("a")
    async with site.stream(f"Bearer {token}") as stream:
        await stream.send(type_url=CLUSTER, node={"id": "n"})
        await stream.read()
        (connected,) = site.server.hub.connected()
        assert connected.peer.authorization == ()
        assert token not in repr(connected.peer)


# -- ports without TLS


@pytest.mark.parametrize(("listen", "rest", "warns"), [(FREE, FREE, False), (FREE, "0.0.0.0:0", True)])
async def test_tokens_in_plain_text_from_elsewhere_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, listen: str, rest: str, warns: bool
):
    (tmp_path / "p.yaml").write_text(f"jwks: keys.json\naudience: {AUDIENCE}")
    write_jwks(tmp_path / "keys.json", Signer())
    with caplog.at_level(logging.WARNING, "xdsprism"):
        async with Server(Store(), listen, rest=rest, policy=load_policy(tmp_path / "p.yaml")) as server:
            server.enforce(load_policy(tmp_path / "p.yaml"))
            found = [record.getMessage() for record in caplog.records]
            expected = f"bearer tokens come in plain text to {server.rest_address}, and whoever reads one can use it"
    assert [text.partition(":  ")[0].startswith(expected) for text in found] == [True] * warns
