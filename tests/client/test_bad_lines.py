"""Servers that break off, stall or send too much, over real connections; `test_bad_servers.py` has the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client import doors
from tests.client.doors import Door, boot, leading_to, saying, serving
from tests.client.rig import both, cluster, follow, status, within
from tests.client.soundness import sound, soundly
from tests.wire.rig import PATIENCE, put, until
from xdsprism.client.transport import Ended, GrpcStream, GrpcTransport
from xdsprism.core.model.backoff import Backoff
from xdsprism.core.watch import stream_lifecycle

# Not yet there, or in trouble: what a watcher is told while a server can't be talked to.
TROUBLE = {"UNAVAILABLE", "INTERNAL", "UNKNOWN", "UNIMPLEMENTED", "CANCELLED", "RESOURCE_EXHAUSTED"}


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock does not jump here, so pauses are short."""
    monkeypatch.setattr(stream_lifecycle, "Backoff", partial(Backoff, first=0.02, ceiling=0.1))


@pytest.fixture
async def server() -> AsyncIterator[xp.Server]:
    store = xp.Store()
    put(store, cluster("a", "1"))
    async with xp.Server(store, listen="127.0.0.1:0") as running:
        yield running


async def outcome(watched: Any) -> tuple[list[str], Any]:
    """Errors until a resource comes, and the resource."""
    errors = []
    async with asyncio.timeout(PATIENCE):
        while (update := await watched.next()).resource is None:
            errors.append((update.error or update.ambient_error).status)
    return errors, update.resource


BELOW = {
    "closes": doors.slam,
    "closes when spoken to": doors.close_when_spoken_to,
    "speaks HTTP/1": doors.speak_http1,
    "babbles": doors.babble,
    "says goodbye after the request": saying(doors.FAREWELL),
    "closes after the request": saying(),
    "closes after the headers": saying(doors.OPENING),
    "closes in the middle of a message": saying(doors.OPENING, doors.A_PART),
    "says goodbye in the middle of a message": saying(doors.OPENING, doors.A_PART, doors.FAREWELL),
    "compresses as nobody agreed to": saying(doors.OPENING, doors.COMPRESSED),
}


@both
@pytest.mark.parametrize("treat", BELOW.values(), ids=BELOW)
async def test_a_server_that_breaks_connections_is_reported_and_retried(
    server: xp.Server, treat: doors.Treatment, delta: bool
) -> None:
    # CLI-17
    async with sound(), Door(treat) as door, xp.Client(boot(door.address), delta=delta) as client:
        watched = follow(client, xp.CLUSTER, "a")
        failure = await within(PATIENCE, watched.next())
        assert failure.error is not None
        assert failure.error.status in TROUBLE
        await until(lambda: door.came >= 2)
        door.treat = leading_to(server.address)
        assert (await outcome(watched))[1] == cluster("a", "1")
        await watched.close()


async def test_an_unreachable_port_is_reported_and_retried() -> None:
    # CLI-17
    async with Door(doors.slam) as door:
        address = door.address
    store = xp.Store()
    put(store, cluster("a", "1"))
    async with sound(), xp.Client(boot(address)) as client:
        watched = follow(client, xp.CLUSTER, "a")
        assert status(await within(PATIENCE, watched.next())) == ("error", "UNAVAILABLE")
        async with xp.Server(store, listen=address):
            assert (await outcome(watched))[1] == cluster("a", "1")
        await watched.close()


@both
async def test_wherever_a_connection_breaks_the_value_comes_by_the_next_one(server: xp.Server, delta: bool) -> None:
    # CLI-16, CLI-17
    async def one(cut: int) -> list[str]:
        async with Door(leading_to(server.address, cut)) as door, xp.Client(boot(door.address), delta=delta) as client:
            watched = follow(client, xp.CLUSTER, "a")
            await until(lambda: door.came >= 2)
            door.treat = leading_to(server.address)
            errors, resource = await outcome(watched)
            assert resource == cluster("a", "1"), cut
            await watched.close()
            return errors

    cuts = [*range(1, 60, 7), *range(60, 200, 10)]
    async with sound():
        told = await asyncio.gather(*map(one, cuts))
    assert all(set(errors) <= TROUBLE for errors in told)
    assert told[0]  # a greeting that is cut off is a failure


@both
@pytest.mark.parametrize("stage", ["at once", "after the request"])
@soundly
async def test_every_status_of_a_server_is_reported(stage: str, delta: bool) -> None:
    # CLI-17
    async def refuse(code: grpc.StatusCode, requests: Any, context: Any) -> AsyncIterator[bytes]:
        if stage == "after the request":
            await anext(aiter(requests))
        context.set_code(code)
        context.set_details("so there")
        return
        yield b""

    for code in grpc.StatusCode:
        async with serving(partial(refuse, code)) as address, xp.Client(boot(address), delta=delta) as client:
            with pytest.raises(xp.WatchError) as caught:
                await client.get(xp.CLUSTER, "a", timeout=PATIENCE)
            expected = {"UNAVAILABLE" if code is grpc.StatusCode.OK else code.name}
            if stage == "at once":  # a write that meets the end hides the status in grpc.aio (grpc#36066)
                expected.add("UNAVAILABLE")
            assert caught.value.status in expected


@both
async def test_a_stream_that_ends_after_its_response_is_followed_by_another_in_silence(delta: bool) -> None:
    # CLI-16
    kind = pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse
    streams = 0

    async def answer_and_go(requests: Any, _context: Any) -> AsyncIterator[bytes]:
        nonlocal streams
        streams += 1
        await anext(aiter(requests))
        response = kind(type_url=xp.CLUSTER, nonce="1")
        body = cluster("a", str(min(streams, 4)))
        if delta:
            response.resources.add(name="a", version=body.alt_stat_name).resource.Pack(body)
        else:
            response.resources.add().Pack(body)
        yield response.SerializeToString()
        if streams >= 4:
            await anext(aiter(requests), None)
            await asyncio.Event().wait()

    async with serving(answer_and_go) as address, sound(), xp.Client(boot(address), delta=delta) as client:
        watched = follow(client, xp.CLUSTER, "a")
        seen = [await within(PATIENCE, watched.next()) for _ in range(4)]
        assert [each.resource.alt_stat_name for each in seen] == ["1", "2", "3", "4"]
        await watched.close()


@both
async def test_garbage_on_the_wire_is_reported(delta: bool) -> None:
    # CLI-17
    async def babble(requests: Any, _context: Any) -> AsyncIterator[bytes]:
        await anext(aiter(requests))
        yield b"\xff" * 1000
        await asyncio.Event().wait()

    async with serving(babble) as address, sound(), xp.Client(boot(address), delta=delta) as client:
        with pytest.raises(xp.WatchError, match="not a discovery response") as caught:
            await client.get(xp.CLUSTER, "a", timeout=PATIENCE)
        assert caught.value.status == "INTERNAL"


# -- too much


@both
async def test_a_response_above_the_limit_is_reported_and_the_last_good_value_stays(
    server: xp.Server, delta: bool
) -> None:
    # CLI-16, CLI-17, NAK-15
    async with sound(), xp.Client(boot(server.address), delta=delta, max_message_bytes=100_000) as client:
        watched = follow(client, xp.CLUSTER, "a")
        assert (await outcome(watched))[1] == cluster("a", "1")
        put(server.store, cluster("a", "2" * 200_000))
        assert status(await within(PATIENCE, watched.next())) == ("ambient", "RESOURCE_EXHAUSTED")
        assert await client.get(xp.CLUSTER, "a") == cluster("a", "1")
        put(server.store, cluster("a", "3"))
        assert (await outcome(watched))[1] == cluster("a", "3")
        await watched.close()


async def test_the_limit_is_far_above_what_grpc_would_take_by_itself(server: xp.Server) -> None:
    # SRV-24 from the other side
    put(server.store, cluster("a", "2" * 8_000_000))
    async with sound(), xp.Client(boot(server.address)) as client:
        assert (await client.get(xp.CLUSTER, "a", timeout=PATIENCE)).ByteSize() > 8_000_000


@both
async def test_thousands_of_updates_in_a_second_end_with_the_newest(delta: bool) -> None:
    # CLI-20
    many = 3000
    kind = pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse

    async def flood(requests: Any, _context: Any) -> AsyncIterator[bytes]:
        await anext(aiter(requests))
        for number in range(many):
            response = kind(type_url=xp.CLUSTER, nonce=str(number))
            if delta:
                response.resources.add(name="a", version=str(number)).resource.Pack(cluster("a", str(number)))
            else:
                response.resources.add().Pack(cluster("a", str(number)))
            yield response.SerializeToString()
        async for _ in requests:
            answers.append(1)  # noqa: PERF401 # as they come, not when all have come

    answers: list[int] = []
    async with serving(flood) as address, sound(), xp.Client(boot(address), delta=delta) as client:
        watched = follow(client, xp.CLUSTER, "a")
        async with asyncio.timeout(PATIENCE):
            while (await watched.next()).resource.alt_stat_name != str(many - 1):
                pass
        await until(lambda: len(answers) == many)  # NAK-23
        await watched.close()


# -- nothing at all


async def test_a_server_that_accepts_and_says_nothing_is_given_up_and_the_next_one_asked(server: xp.Server) -> None:
    # CLI-17, FBK-1
    clock = asyncio.get_running_loop().time

    def connect(config: Any) -> GrpcTransport:
        return GrpcTransport(config, clock, connect_seconds=0.2)

    async with sound(), Door(doors.say_nothing) as door:
        async with xp.Client(boot(door.address), connect=connect) as client:
            watched = follow(client, xp.CLUSTER, "a")
            failure = await within(PATIENCE, watched.next())
            assert status(failure) == ("error", "UNAVAILABLE")
            assert "timed out" in str(failure.error)
            door.treat = leading_to(server.address)
            assert (await outcome(watched))[1] == cluster("a", "1")
            await watched.close()
        door.treat = doors.say_nothing
        async with xp.Client(boot(door.address, server.address), connect=connect) as client:
            assert await client.get(xp.CLUSTER, "a", timeout=PATIENCE) == cluster("a", "1")


async def test_a_client_that_is_still_connecting_is_closed_at_once(server: xp.Server) -> None:
    # CLI-24
    async with sound(), Door(doors.say_nothing) as door:
        async with xp.Client(boot(door.address)) as client:
            asked = asyncio.ensure_future(client.get(xp.CLUSTER, "a"))
            await until(lambda: door.came)
            await within(5, client.close())
        with pytest.raises(xp.WatchError, match="CANCELLED"):
            await asked


async def test_a_client_is_closed_while_responses_are_coming_in(server: xp.Server) -> None:
    # CLI-24
    put(server.store, *[cluster(f"c{number}", "x" * 10_000) for number in range(200)])
    async with sound():
        async with xp.Client(boot(server.address)) as client:
            async for _ in client.watch(xp.CLUSTER):
                break
        await until(lambda: not server.hub.connected())


async def test_a_server_that_is_down_is_not_tried_more_often_than_the_pauses_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # CLI-17: a gRPC channel would go on connecting by itself, each second
    monkeypatch.setattr(stream_lifecycle, "Backoff", partial(Backoff, first=0.05, factor=100, ceiling=1000))
    async with sound(), Door(doors.slam) as door, xp.Client(boot(door.address)) as client:
        watched = follow(client, xp.CLUSTER, "a")
        await until(lambda: door.came == 2)
        await asyncio.sleep(1.5)  # by then a channel of its own mind would have tried again
        assert door.came == 2
        await watched.close()


# -- what grpc.aio makes of it


class Call:
    """A call of grpc.aio, as far as a stream uses it."""

    def __init__(self) -> None:
        self.is_cancelled = False

    async def wait_for_connection(self) -> None:
        await asyncio.Event().wait()

    async def write(self, _message: bytes) -> None:
        raise asyncio.InvalidStateError("RPC already finished.")

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INTERNAL

    async def details(self) -> str:
        return "Internal error from Core"

    def cancel(self) -> None:
        self.is_cancelled = True


async def test_a_status_that_was_lost_on_the_way_is_not_passed_on_as_the_servers() -> None:
    # CLI-17; grpc#36066: the text is in place of what the server said
    with pytest.raises(Ended) as caught:
        await GrpcStream(Call, "one:1").send(b"")
    assert (caught.value.status, caught.value.message) == ("UNAVAILABLE", "one:1 ended the stream")


async def test_a_call_is_cancelled_when_its_caller_stops_waiting_for_the_connection() -> None:
    # CLI-24
    call = Call()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(GrpcStream(lambda: call, "one:1").connected(), 0.01)
    assert call.is_cancelled
