"""Keepalive, age and the end of a connection, told by numbers instead of a clock."""

from __future__ import annotations

from math import inf

import pytest

from tests.http2.rig import CALL, Client, Frame, goaway_code, headers, of, only
from xdsprism.http2 import frames
from xdsprism.http2.codes import ACK, GOAWAY, HEADERS, LAST_STREAM, PING, PREFACE, RST_STREAM, Code
from xdsprism.http2.facts import Limited
from xdsprism.http2.grpc import framed
from xdsprism.http2.limits import Limit, Times
from xdsprism.http2.rpc import Called, Ended

TIMES = Times(preface=10, keepalive=30, keepalive_timeout=20, notice=1, age_grace=5, linger=1)


def last_stream(goaway: Frame) -> int:
    return int(frames.UINT32.unpack_from(goaway.payload)[0])


def pong(found: list[Frame]) -> bytes:
    (ping,) = [frame for frame in of(PING, found) if not frame.flags & ACK]
    return frames.PING_ACK + ping.payload


# -- the preface


@pytest.mark.parametrize("said", [b"", PREFACE[:20], PREFACE])
def test_a_client_without_a_preface_in_time_is_cut_off(said: bytes) -> None:
    client = Client(greet=False, times=TIMES)
    client.now = 9.0
    client.say(said)
    assert client.rpcs.due == 10.0
    assert goaway_code(client.tick(10.0)) is Code.PROTOCOL_ERROR
    assert client.connection.facts == [Limited("peer", Limit.PREFACE, Code.PROTOCOL_ERROR, connection=True)]
    assert not client.rpcs.is_closing  # it may still read why
    client.tick(client.rpcs.due)
    assert (client.now, client.rpcs.is_closing) == (11.0, True)


def test_a_client_with_a_preface_in_time_stays() -> None:
    client = Client(times=TIMES)
    assert client.tick(10.0) == []
    assert client.alive


# -- keepalive


def test_a_silent_peer_is_asked_and_cut_off_if_it_does_not_answer() -> None:
    client = Client(times=TIMES)
    client.tick(29.9)
    (ping,) = client.tick(30.0)
    assert ping.kind == PING
    assert client.rpcs.due == 50.0
    assert client.tick(49.9) == []
    assert goaway_code(client.tick(50.0)) is Code.NO_ERROR
    assert client.connection.facts == [Limited("peer", Limit.KEEPALIVE, Code.NO_ERROR, connection=True)]


def test_a_peer_that_answers_is_asked_again_later() -> None:
    client = Client(times=TIMES)
    answer = pong(client.tick(30.0))
    client.now = 31.0
    client.say(answer)
    assert client.tick(50.0) == []
    assert client.rpcs.due == 61.0
    assert len(client.tick(61.0)) == 1


def test_a_peer_that_answers_before_the_clock_ticks_has_answered() -> None:
    # that of uvloop has milliseconds
    client = Client(times=TIMES)
    client.say(pong(client.tick(30.0)))
    assert client.tick(50.0) == []
    assert client.alive


def test_a_peer_that_was_asked_has_its_time_whatever_else_is_due() -> None:
    client = Client(times=TIMES)
    client.tick(30.0)
    client.rpcs.life.drain(31.0, 100.0)
    client.hear()
    assert [frame.kind for frame in client.tick(32.0)] == [GOAWAY]
    assert client.connection.failed is None


def test_a_peer_that_speaks_is_not_asked() -> None:
    client = Client(times=TIMES)
    for now in range(0, 300, 10):
        client.now = float(now)
        client.say(frames.ping(bytes(8)))
        assert client.tick(float(now)) == []


def test_a_peer_stuck_in_a_header_block_can_t_answer() -> None:
    client = Client(times=TIMES)
    client.say(frames.frame(HEADERS, 0, 1, b"\x82"))
    answer = pong(client.tick(30.0))
    assert goaway_code(client.say(answer)) is Code.PROTOCOL_ERROR


# -- draining


def test_a_drain_is_two_goaways_with_a_round_trip_between() -> None:
    # OPS-9
    client = Client(times=TIMES)
    client.say(headers(1, CALL))
    rpc = only(client.take(), Called).rpc
    client.rpcs.life.drain(0.0, 5.0)
    first = client.hear()
    assert last_stream(of(GOAWAY, first)[0]) == LAST_STREAM
    client.say(headers(3, CALL))  # it did not know
    late = only(client.take(), Called).rpc
    (second,) = client.say(pong(first))
    assert (second.kind, last_stream(second), second.code) == (GOAWAY, 3, Code.NO_ERROR)
    assert client.say(headers(5, CALL), frames.frame(0, 0, 5, b"x")) == []
    assert client.take() == []
    for each in (rpc, late):
        assert not client.rpcs.is_closing
        client.rpcs.end(each)
        client.hear()
    assert client.rpcs.is_closing


def test_the_second_goaway_does_not_wait_for_ever() -> None:
    client = Client(times=TIMES)
    client.rpcs.life.drain(0.0, 100.0)
    client.hear()
    assert client.rpcs.due == 1.0
    (second,) = client.tick(1.0)
    assert second.kind == GOAWAY
    assert client.rpcs.is_closing


def test_streams_that_do_not_end_in_the_grace_are_reset() -> None:
    client = Client(times=TIMES)
    client.say(headers(1, CALL))
    client.rpcs.send(only(client.take(), Called).rpc, framed(b"news"))
    client.rpcs.life.drain(0.0, 5.0)
    client.say(pong(client.hear()))
    assert client.rpcs.due == 5.0
    (reset,) = client.tick(5.0)
    assert (reset.kind, reset.code) == (RST_STREAM, Code.CANCEL)
    assert client.rpcs.is_closing
    assert only(client.take(), Ended).why


def test_a_drain_may_be_hastened_but_not_begun_again() -> None:
    client = Client(times=TIMES)
    client.say(headers(1, CALL))
    client.rpcs.life.drain(0.0, 20.0)
    client.say(pong(client.hear()))
    client.rpcs.life.drain(1.0, 2.0)
    assert client.hear() == []
    assert client.rpcs.due == 3.0
    client.rpcs.life.drain(1.0, 50.0)
    assert client.rpcs.due == 3.0


def test_without_grace_all_is_over_at_once() -> None:
    client = Client(times=TIMES)
    client.say(headers(1, CALL))
    client.rpcs.life.drain(0.0, 0.0)
    found = client.tick(0.0)
    assert [frame.kind for frame in found] == [GOAWAY, PING, GOAWAY, RST_STREAM]
    assert client.rpcs.is_closing


# -- age


def test_an_old_connection_is_drained() -> None:
    # OPS-9
    client = Client(times=TIMES, age=25.0)
    client.say(headers(1, CALL))
    assert client.tick(24.9) == []
    assert client.rpcs.due == 25.0
    assert [frame.kind for frame in client.tick(25.0)] == [GOAWAY, PING]
    assert client.rpcs.life.is_draining
    client.tick(26.0)
    assert client.rpcs.due == 30.0
    client.tick(30.0)
    assert client.rpcs.is_closing


def test_by_default_no_connection_is_too_old() -> None:
    client = Client(times=Times(keepalive=inf, idle_connection=inf))
    client.tick(1e9)
    assert client.connection.failed is None
    assert not client.rpcs.life.is_draining


def test_a_connection_that_failed_is_not_drained() -> None:
    client = Client(times=TIMES)
    client.say(frames.frame(PING, 0, 1, bytes(8)))
    client.rpcs.life.drain(0.0, 5.0)
    assert client.hear() == []
    assert client.rpcs.is_closing
