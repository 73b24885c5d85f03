"""What no rule of HTTP/2 forbids and yet wears a server down. Each ends with a code and a fact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.http2.rig import (
    CALL,
    REQUEST,
    Client,
    Frame,
    block,
    data,
    goaway_code,
    headers,
    message,
    of,
    only,
    reset_code,
)
from tests.support import insides
from xdsprism.http2 import frames
from xdsprism.http2.codes import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PRIORITY,
    RST_STREAM,
    Code,
)
from xdsprism.http2.facts import CallRefused, Limited
from xdsprism.http2.grpc import framed
from xdsprism.http2.limits import MAX_REFUSALS, ConnectionCount, Limit, Limits, Times
from xdsprism.http2.rpc import Called, Ended
from xdsprism.token_bucket import Rate, TokenBucket

CALM = Code.ENHANCE_YOUR_CALM
HEAVY = (*CALL, *((f"x-{number}", "v" * 100) for number in range(20)))


def limited(client: Client) -> list[tuple[Limit, Code, bool]]:
    facts = [fact for fact in client.connection.facts if not isinstance(fact, CallRefused)]
    assert all(isinstance(fact, Limited) and fact.peer == "peer" for fact in facts)
    return [(fact.limit, fact.code, fact.connection) for fact in facts if isinstance(fact, Limited)]


def flood(client: Client, say: Callable[[int], bytes], most: int) -> int:
    """How many are taken until the connection ends."""
    for number in range(most):
        found = client.say(say(number))
        if of(GOAWAY, found):
            assert goaway_code(found) is CALM
            return number
    return most


def noise(number: int) -> bytes:
    return frames.frame(0x77, 0, number)


FLOODS: dict[Limit, tuple[Limits, Callable[[int], bytes]]] = {
    Limit.PINGS: (Limits(pings=Rate(20, 1)), lambda _: frames.ping(bytes(8))),
    Limit.SETTINGS: (Limits(settings=Rate(21, 1)), lambda _: frames.settings([])),
    Limit.EMPTY_FRAMES: (Limits(empty_frames=Rate(20, 1)), lambda _: data(1)),
    Limit.NOISE: (Limits(noise=Rate(20, 1)), noise),
    Limit.WINDOW_UPDATES: (Limits(window_updates=Rate(20, 1)), lambda _: frames.window_update(0, 1)),
}


@pytest.mark.parametrize("limit", FLOODS)
def test_a_flood_ends_the_connection(limit: Limit) -> None:
    limits, say = FLOODS[limit]
    client = Client(limits)
    client.say(headers(1, CALL))
    assert flood(client, say, 100) == 20
    assert limited(client) == [(limit, CALM, True)]
    assert isinstance(client.take()[-1], Ended)


@pytest.mark.parametrize("limit", FLOODS)
def test_the_same_at_an_honest_pace_does_not(limit: Limit) -> None:
    limits, say = FLOODS[limit]
    client = Client(limits)
    client.say(headers(1, CALL))
    for second in range(100):
        client.now = float(second)
        client.say(say(second))
    assert client.connection.failed is None
    assert limited(client) == []


@pytest.mark.parametrize(
    "say",
    [
        lambda number: frames.frame(PRIORITY, 0, 2 * number + 1, b"\0\0\0\2\0"),
        lambda _: frames.SETTINGS_ACK,
        lambda _: frames.PING_ACK + bytes(8),
        lambda _: frames.goaway(0, Code.NO_ERROR),
        lambda _: frames.window_update(1, 1),
        lambda _: frames.reset(1, Code.CANCEL),
    ],
    ids=["priority", "settings ack", "ping ack", "goaway", "window_update", "rst_stream"],
)
def test_frames_that_are_ignored_count_towards_the_limit_on_noise(say: Callable[[int], bytes]) -> None:
    client = Client(Limits(noise=Rate(30, 1)))
    client.say(headers(1, last=True))  # it is over now
    assert flood(client, say, 100) == 30
    assert limited(client) == [(Limit.NOISE, CALM, True)]


def test_a_ping_flood_is_told_in_words_that_grpc_clients_know() -> None:
    client = Client(Limits(pings=Rate(1, 0)))
    (goaway,) = of(GOAWAY, client.say(frames.ping(bytes(8)), frames.ping(bytes(8))))
    assert goaway.payload[8:] == b"too_many_pings"


def test_pings_that_measure_what_we_send_are_free() -> None:
    client = Client(Limits(pings=Rate(3, 0)))
    client.say(headers(1, CALL))
    rpc = only(client.take(), Called).rpc
    for _ in range(50):
        client.rpcs.send(rpc, framed(b"news"))
        client.hear()
        assert len(client.say(frames.ping(bytes(8)), frames.ping(bytes(8)))) == 2


def test_window_updates_that_follow_from_what_we_send_are_free() -> None:
    client = Client(Limits(window_updates=Rate(3, 0)), settings=[(INITIAL_WINDOW_SIZE, 1 << 20)])
    client.say(headers(1, CALL))
    rpc = only(client.take(), Called).rpc
    for _ in range(50):
        client.rpcs.send(rpc, framed(b"news"))
        client.hear()
        assert client.say(frames.window_update(0, 9), frames.window_update(1, 9)) == []


# -- streams


def test_a_stream_above_the_limit_is_refused_and_may_be_tried_again() -> None:
    client = Client(Limits(streams=2))
    client.say(headers(1, CALL), headers(3, CALL))
    assert reset_code(client.say(headers(5, CALL)), 5) is Code.REFUSED_STREAM
    assert limited(client) == [(Limit.STREAMS, Code.REFUSED_STREAM, False)]
    client.say(frames.reset(1, Code.CANCEL))
    client.take()
    client.say(headers(7, CALL))
    only(client.take(), Called)


def hasty(number: int) -> bytes:
    return headers(2 * number + 1, CALL) + frames.reset(2 * number + 1, Code.CANCEL)


def test_streams_that_are_opened_and_reset_at_once_end_the_connection() -> None:
    client = Client(Limits(resets=Rate(20, 1)))  # CVE 2023-44487
    assert flood(client, hasty, 100) == 20
    assert limited(client) == [(Limit.RESETS, CALM, True)]


def test_streams_that_the_peer_makes_us_reset_are_counted_too() -> None:
    client = Client(Limits(resets=Rate(20, 1)))  # CVE 2025-8671
    assert flood(client, lambda number: headers(2 * number + 1, REQUEST[1:]), 100) == 20
    assert limited(client) == [(Limit.RESETS, CALM, True)]


def test_a_client_may_leave_many_streams_that_it_had_for_a_while() -> None:
    client = Client(Limits(resets=Rate(20, 1)))
    for number in range(100):
        client.say(headers(2 * number + 1, CALL))
    client.now = 10.0
    for number in range(100):
        client.say(frames.reset(2 * number + 1, Code.CANCEL))
    assert client.connection.failed is None
    assert client.connection.streams == {}


def test_the_memory_of_closed_streams_is_bounded() -> None:
    client = Client(Limits(resets=Rate(10_000, 0)))
    for number in range(5_000):
        client.say(hasty(number))
    assert len(client.connection._streams._closed._streams) <= 512  # noqa: SLF001 # a memory of what is over: its bound shows in memory only
    assert client.connection.streams == {}


# -- headers


def test_headers_above_the_limit_are_refused_and_the_connection_goes_on() -> None:
    client = Client(Limits(header_bytes=1_000))
    (answer, reset) = client.say(headers(1, HEAVY))
    assert client.fields(answer)["grpc-status"] == "8"  # RESOURCE_EXHAUSTED
    assert reset.code is Code.NO_ERROR
    assert limited(client) == [(Limit.HEADER_LIST, Code.NO_ERROR, False)]
    assert client.alive


def test_headers_far_above_the_limit_end_the_connection() -> None:
    client = Client(Limits(header_bytes=500))
    assert goaway_code(client.say(headers(1, HEAVY))) is CALM
    assert limited(client) == [(Limit.HEADER_LIST, CALM, True)]


def test_small_headers_that_become_large_ones_end_the_connection() -> None:
    client = Client(Limits(header_bytes=500))
    bomb = b"\x40\x01a\x7f\x81\x01" + b"v" * 256 + b"\xbe" * 30
    assert goaway_code(client.say(frames.headers(1, bomb, last=False))) is CALM
    assert limited(client) == [(Limit.HEADER_LIST, CALM, True)]


def test_a_header_block_that_never_ends_is_cut_off_by_its_size() -> None:
    client = Client(Limits(header_bytes=1_000, continuations=1_000))
    client.say(frames.frame(HEADERS, 0, 1, block()))
    assert flood(client, lambda _: frames.frame(CONTINUATION, 0, 1, bytes(100)), 1_000) <= 40
    assert limited(client) == [(Limit.HEADER_LIST, CALM, True)]


@pytest.mark.parametrize("payload", [b"", b"\x82"])
def test_a_header_block_that_never_ends_is_cut_off_by_its_frames(payload: bytes) -> None:
    client = Client()  # CVE 2024-27316
    client.say(frames.frame(HEADERS, 0, 1, b""))
    assert flood(client, lambda _: frames.frame(CONTINUATION, 0, 1, payload), 1_000) == 64
    assert limited(client) == [(Limit.CONTINUATIONS, CALM, True)]


# -- windows


def test_windows_of_a_few_bytes_end_the_connection() -> None:
    client = Client(Limits(tiny_frames=Rate(20, 1), window_updates=Rate(0, 0)), settings=[(INITIAL_WINDOW_SIZE, 1)])
    client.say(headers(1, CALL))
    client.rpcs.send(only(client.take(), Called).rpc, framed(bytes(10_000)))
    client.hear()
    assert flood(client, lambda _: frames.window_update(1, 1), 100) == 19
    assert limited(client) == [(Limit.TINY_WINDOWS, CALM, True)]


def test_a_stream_that_is_never_read_is_reset_in_the_end_and_no_other() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 10)], times=Times(stall=100, keepalive=1e9, first_request=1e9))
    client.say(headers(1, CALL), headers(3, CALL), headers(5, CALL))
    stuck, slow, _ = (event.rpc for event in client.take())
    for rpc in (stuck, slow):
        client.rpcs.send(rpc, framed(bytes(1_000)))
    client.hear()
    found: list[Frame] = []
    for now in range(0, 150, 5):
        found += client.tick(float(now))
        if now % 50 == 0:
            found += client.say(frames.window_update(3, 1))
    assert reset_code(found, 1) is CALM
    assert limited(client) == [(Limit.STALLED, CALM, False)]
    assert only(client.take(), Ended).rpc is stuck
    assert list(client.connection.streams) == [3, 5]


def test_answers_that_are_not_read_end_the_connection() -> None:
    client = Client(Limits(unread_bytes=200, pings=Rate(1_000, 0)))
    client.rpcs.out.pause()
    assert flood(client, lambda _: frames.ping(bytes(8)), 100) == 11  # of 17 bytes each
    assert limited(client) == [(Limit.UNREAD, CALM, True)]


# -- messages


def test_a_message_above_the_limit_is_refused_before_it_is_there() -> None:
    client = Client(Limits(message_bytes=100))
    client.say(headers(1, CALL))
    answer, reset = client.say(data(1, message(bytes(101))[:20]))
    assert client.fields(answer)["grpc-status"] == "8"
    assert reset.kind == RST_STREAM
    assert limited(client) == [(Limit.MESSAGE_SIZE, Code.NO_ERROR, False)]
    assert client.alive


def test_unfinished_messages_on_many_streams_are_bounded_together() -> None:
    client = Client(Limits(message_bytes=1_000, unfinished_bytes=500))
    refused: list[Frame] = []
    for number in range(1, 21, 2):
        refused += client.say(headers(number, CALL), data(number, message(bytes(900))[:300]))
    assert [frame.number for frame in of(HEADERS, refused)] == [11, 13, 15, 17, 19]
    assert {client.fields(frame)["grpc-status"] for frame in of(HEADERS, refused)} == {"8"}
    assert limited(client)[0] == (Limit.UNFINISHED, Code.NO_ERROR, False)
    client.take()
    client.say(data(1, bytes(605)), headers(21, CALL), data(21, message(bytes(900))[:300]))
    assert insides.unfinished(client.rpcs) == 1_500
    assert client.alive


def test_the_bytes_of_an_unfinished_message_are_dropped_with_its_stream() -> None:
    client = Client()
    client.say(headers(1, CALL), data(1, message(bytes(900))[:300]), frames.reset(1, Code.CANCEL))
    assert insides.unfinished(client.rpcs) == 0


# -- the measure itself


def test_an_allowance_is_a_burst_and_a_rate() -> None:
    allowance = TokenBucket(Rate(2, 0.5), 0.0)
    assert [allowance.spend(0.0) for _ in range(3)] == [True, True, False]
    assert [allowance.spend(2.0) for _ in range(2)] == [True, False]
    assert [allowance.spend(1_000.0) for _ in range(3)] == [True, True, False]
    allowance.refill()
    assert allowance.spend(1_000.0)


def test_end_headers_in_the_last_frame_that_is_allowed_is_fine() -> None:
    client = Client(Limits(continuations=3))
    client.say(frames.frame(HEADERS, 0, 1, block(CALL)))
    client.say(*[frames.frame(CONTINUATION, 0, 1)] * 2, frames.frame(CONTINUATION, END_HEADERS, 1))
    only(client.take(), Called)


# -- what is met again and again


def test_limits_of_streams_that_are_met_all_the_time_end_the_connection() -> None:
    client = Client(Limits(message_bytes=10, resets=Rate(20, 1)))
    found: list[Frame] = []
    for number in range(1, 100, 2):
        found += client.say(headers(number, CALL), data(number, b"\0\0\0\0\x0b"))
    assert goaway_code(found) is CALM
    met = [(Limit.MESSAGE_SIZE, Code.NO_ERROR, False)] * 21
    assert limited(client) == [*met, (Limit.RESETS, CALM, True)]
    ended = [event.rpc.stream.number for event in client.take() if isinstance(event, Ended)]
    assert ended == list(range(1, 43, 2))


def test_a_connection_that_fails_of_a_header_list_says_nothing_after_its_goaway() -> None:
    client = Client(Limits(header_bytes=1_000, resets=Rate(1, 0)))
    client.say(headers(1, HEAVY))
    found = client.say(headers(3, HEAVY), headers(5, CALL))
    assert [frame.kind for frame in found] == [GOAWAY]
    assert limited(client)[-1] == (Limit.RESETS, CALM, True)


# -- what is kept of streams


def test_a_stream_that_waits_for_its_turn_is_forgotten_when_it_is_reset() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 1 << 20)])
    client.say(*[headers(number, CALL) for number in (1, 3, 5)])
    for event in client.take():
        client.rpcs.send(event.rpc, framed(bytes(100_000)))
    client.hear()
    client.say(frames.reset(3, Code.CANCEL))
    assert 3 not in [stream.number for stream in client.rpcs.out.ready]
    found = client.say(frames.window_update(0, 1 << 20))
    assert {frame.number for frame in of(DATA, found)} == {1, 5}


@pytest.mark.parametrize("last", [True, False])
def test_ended_calls_count_as_unread_bytes_too(last: bool) -> None:
    client = Client(Limits(unread_bytes=2_000))
    client.rpcs.out.pause()
    number = 1
    while client.connection.failed is None:
        client.say(headers(number, CALL, last=last))
        client.rpcs.end(only(client.take(), Called).rpc, "UNIMPLEMENTED", "no such method" * 10)
        client.say(frames.ping(bytes(8)))
        number += 2
    assert number < 30
    assert limited(client) == [(Limit.UNREAD, CALM, True)]


def test_a_message_that_does_not_go_on_ends_its_call_and_no_other() -> None:
    client = Client(times=Times(stall=100, keepalive=1e9))
    client.say(headers(1, CALL), data(1, message(bytes(90))[:30]), headers(3, CALL))
    for now in range(0, 100, 5):
        client.tick(float(now))
        client.say(data(3, message(bytes(9))[: now % 14]), data(3, message(bytes(9))[now % 14 :]))
    assert limited(client) == []
    (answer, reset) = client.tick(105.0)
    assert (answer.number, client.fields(answer)["grpc-status"], reset.code) == (1, "8", Code.NO_ERROR)
    assert limited(client) == [(Limit.STALLED, Code.NO_ERROR, False)]
    assert insides.unfinished(client.rpcs) == client.count.unfinished == 0
    assert list(client.connection.streams) == [3]


def test_messages_that_overlap_each_have_their_own_time() -> None:
    client = Client(times=Times(stall=100, keepalive=1e9))
    client.say(headers(1, CALL))
    said = message(bytes(9)) * 20
    for at in range(10):  # there is always one that is not finished, and none for long
        client.tick(20.0 * at)
        client.say(data(1, said[20 * at : 20 * at + 20]))
    assert limited(client) == []


# -- all connections together


def test_there_are_so_many_connections_and_of_one_address_fewer() -> None:
    count = ConnectionCount(Limits(connections=8))
    assert [count.admit("a") for _ in range(7)] == [None] * 6 + [Limit.ADDRESS]
    assert [count.admit("b") for _ in range(3)] == [None, None, Limit.CONNECTIONS]
    assert count.open == 8
    count.release("a")
    assert count.admit("a") is None


def test_nothing_is_kept_of_the_addresses_of_closed_connections() -> None:
    count = ConnectionCount(Limits(connections=8))
    for _ in range(2):
        joined = [str(number) for number in range(100) if count.admit(str(number)) is None]
        told = [str(number) for number in range(100) if count.begin_refusal(str(number))]
        assert (len(joined), len(told)) == (8, MAX_REFUSALS)
        for address in joined:
            count.release(address)
        for address in told:
            count.end_refusal(address)
        assert (count.open, count._addresses, count.refusing, count._refusing) == (0, {}, 0, {})  # noqa: SLF001 # addresses that are left behind cost memory, and nobody sees them


def test_one_address_that_is_refused_again_and_again_keeps_nobody_out() -> None:
    count = ConnectionCount(Limits(connections=8))
    assert [count.admit("a") for _ in range(600)].count(Limit.ADDRESS) == 594
    assert [count.begin_refusal("a") for _ in range(594)].count(True) == MAX_REFUSALS // 2
    assert count.begin_refusal("b")
    assert count.admit("b") is None


def test_one_connection_may_be_the_only_one() -> None:
    count = ConnectionCount(Limits(connections=1))
    assert [count.admit("a"), count.admit("b")] == [None, Limit.CONNECTIONS]


def test_unfinished_bytes_count_no_more_when_their_connection_is_lost() -> None:
    client = Client()
    client.say(headers(1, CALL), data(1, message(bytes(90))[:30]))
    assert client.count.unfinished == 30
    client.rpcs.release()
    assert client.count.unfinished == 0


# -- HPACK


@pytest.mark.parametrize("size", [b"\x20", b"\x3e", b"\x3f\xe1\x1f"])
def test_a_header_block_has_at_most_two_sizes_of_the_table(size: bytes) -> None:
    client = Client()
    client.say(frames.headers(1, size * 2 + block(CALL), last=False))
    only(client.take(), Called)
    found = client.say(frames.headers(3, size * 3 + block(CALL), last=False))
    assert goaway_code(found) is Code.COMPRESSION_ERROR
    assert limited(client) == [(Limit.HEADER_LIST, Code.COMPRESSION_ERROR, True)]
