"""RFC 9113, sections 5.2 and 6.9: windows, both ways."""

from __future__ import annotations

import pytest

from tests.http2.rig import (
    CALL,
    Client,
    Frame,
    bodies,
    data,
    goaway_code,
    headers,
    increment,
    message,
    of,
    only,
    reset_code,
)
from xdsprism.errors import UsageError
from xdsprism.http2 import frames
from xdsprism.http2.codes import (
    DATA,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    WINDOW_UPDATE,
    Code,
)
from xdsprism.http2.grpc import framed
from xdsprism.http2.limits import Limits
from xdsprism.http2.outbound import WRITE_BYTES
from xdsprism.http2.rpc import NOT_GRPC, Called, Drained, Rpc

WIDE = ((INITIAL_WINDOW_SIZE, 1 << 30),)


def called(client: Client, number: int = 1) -> Rpc:
    client.say(headers(number, CALL))
    rpc: Rpc = only(client.take(), Called).rpc
    return rpc


def sizes(found: list[Frame]) -> list[int]:
    return [len(frame.payload) for frame in of(DATA, found)]


# -- what we send


def test_a_message_that_fits_the_window_is_one_frame() -> None:
    client = Client()
    rpc = called(client)
    client.rpcs.send(rpc, framed(b"hello"))
    head, body = client.hear()
    assert (head.kind, head.number) == (HEADERS, 1)
    assert body == Frame(DATA, 0, 1, message(b"hello"))


def test_headers_are_sent_once() -> None:
    client = Client()
    rpc = called(client)
    client.rpcs.send(rpc, framed(b"1"))
    client.rpcs.send(rpc, framed(b"2"))
    assert [frame.kind for frame in client.hear()] == [HEADERS, DATA, DATA]


def test_a_stream_waits_for_its_window_and_goes_on() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 10)])
    rpc = called(client)
    client.rpcs.send(rpc, framed(b"0123456789"))
    assert sizes(client.hear()) == [10]
    assert client.take() == []
    assert sizes(client.say(frames.window_update(1, 2))) == [2]
    assert sizes(client.say(frames.window_update(1, 50))) == [3]
    assert client.take() == [Drained(rpc)]


def test_streams_share_the_window_of_the_connection_in_turns() -> None:
    client = Client(settings=WIDE)
    one, two = called(client, 1), called(client, 3)
    client.rpcs.send(one, framed(bytes(100_000)))
    client.rpcs.send(two, framed(bytes(100_000)))
    found = client.hear()
    assert sum(sizes(found)) == 65_535
    assert [frame.number for frame in of(DATA, found)] == [1, 3, 1, 3]
    assert sizes(client.say(frames.window_update(1, 1_000))) == []
    found = client.say(frames.window_update(0, 1 << 20))
    assert len(bodies(found, 1)) + len(bodies(found, 3)) == 2 * 100_005 - 65_535


def test_a_setting_opens_the_windows_of_streams_that_wait() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 0)])
    rpc = called(client)
    client.rpcs.send(rpc, framed(b"hello"))
    assert sizes(client.hear()) == []
    found = client.say(frames.settings([(INITIAL_WINDOW_SIZE, 1)]))
    assert sizes(found) == [1]
    assert sizes(client.say(frames.settings([(INITIAL_WINDOW_SIZE, 10)]))) == [9]


def test_a_setting_may_make_a_window_negative() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 20)])
    rpc = called(client)
    client.rpcs.send(rpc, framed(bytes(30)))
    assert sizes(client.hear()) == [20]
    client.say(frames.settings([(INITIAL_WINDOW_SIZE, 5)]))
    assert client.connection.streams[1].window == -15
    assert sizes(client.say(frames.window_update(1, 15))) == []
    assert sizes(client.say(frames.window_update(1, 1))) == [1]


def test_only_the_last_value_of_a_setting_counts() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 0)])
    rpc = called(client)
    client.rpcs.send(rpc, framed(b"hello"))
    client.hear()
    found = client.say(frames.settings([(INITIAL_WINDOW_SIZE, 10), (INITIAL_WINDOW_SIZE, 2)]))
    assert sizes(found) == [2]


def test_frames_are_no_larger_than_the_peer_takes() -> None:
    client = Client(settings=WIDE)
    client.say(frames.window_update(0, 1 << 20))
    rpc = called(client)
    client.rpcs.send(rpc, framed(bytes(50_000)))
    assert max(sizes(client.hear())) == 16_384
    client.say(frames.settings([(MAX_FRAME_SIZE, 20_000)]))
    client.rpcs.send(rpc, framed(bytes(50_000)))
    assert max(sizes(client.hear())) == 20_000


def test_a_small_message_does_not_overtake_a_large_one() -> None:
    client = Client(settings=WIDE)
    client.say(frames.window_update(0, 1 << 20))
    rpc = called(client)
    client.rpcs.send(rpc, framed(bytes(30_000)))
    client.rpcs.send(rpc, framed(b"small"))
    assert bodies(client.hear()) == message(bytes(30_000)) + message(b"small")


def test_one_write_is_bounded_and_others_follow() -> None:
    client = Client(settings=WIDE)
    client.say(frames.window_update(0, 1 << 24))
    rpc = called(client)
    client.rpcs.send(rpc, framed(bytes(1_000_000)))
    client.rpcs.send_queued()
    first = client.rpcs.out.take_output()
    assert WRITE_BYTES <= len(first) <= WRITE_BYTES + 1_000
    assert len(bodies(client.hear())) == 1_000_005 - WRITE_BYTES
    assert client.take() == [Drained(rpc)]


def test_a_paused_transport_gets_no_data_but_answers() -> None:
    client = Client()
    rpc = called(client)
    client.rpcs.out.pause()
    client.rpcs.send(rpc, framed(b"hello"))
    assert sizes(client.hear()) == []
    assert client.alive
    client.rpcs.out.resume()
    assert bodies(client.hear()) == message(b"hello")


def test_trailers_need_no_window_but_wait_for_the_messages_before_them() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 0)])
    one, two = called(client, 1), called(client, 3)
    client.rpcs.send(one, framed(b"hello"))
    client.rpcs.end(one)
    client.rpcs.end(two, "NOT_FOUND", "nothing here")
    assert [frame.number for frame in of(HEADERS, client.hear())] == [1, 3]
    found = client.say(frames.window_update(1, 100))
    assert [frame.kind for frame in found][:2] == [DATA, HEADERS]
    assert found[1].flags & END_STREAM
    assert client.connection.streams == {}


def test_a_plain_answer_waits_for_its_window_and_ends_with_its_last_byte() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 0)])
    assert sizes(client.say(headers(1, last=True))) == []
    found = of(DATA, client.say(frames.window_update(1, 10), frames.window_update(1, 1_000)))
    assert bodies(found) == NOT_GRPC.encode()
    assert [bool(frame.flags & END_STREAM) for frame in found] == [False] * (len(found) - 1) + [True]


def test_a_stream_that_is_reset_while_it_waits_is_forgotten() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 5)])
    one, two = called(client, 1), called(client, 3)
    client.rpcs.send(one, framed(bytes(100)))
    client.rpcs.send(two, framed(bytes(100)))
    client.say(frames.reset(1, Code.CANCEL))
    found = client.say(frames.window_update(0, 1_000), frames.window_update(3, 1_000))
    assert {frame.number for frame in of(DATA, found)} == {3}


@pytest.mark.parametrize("number", [0, 1])
def test_a_window_update_of_nothing_is_an_error(number: int) -> None:
    client = Client()
    called(client)
    found = client.say(frames.window_update(number, 0))
    assert (reset_code(found) if number else goaway_code(found)) is Code.PROTOCOL_ERROR


@pytest.mark.parametrize("number", [0, 1])
def test_a_window_beyond_its_bounds_is_an_error(number: int) -> None:
    client = Client()
    called(client)
    assert client.say(frames.window_update(number, (1 << 31) - 1 - 65_535)) == []
    found = client.say(frames.window_update(number, 1))
    assert (reset_code(found) if number else goaway_code(found)) is Code.FLOW_CONTROL_ERROR


def test_a_setting_that_makes_a_window_overflow_ends_the_connection() -> None:
    client = Client()
    called(client)
    client.say(frames.window_update(1, 1 << 30))
    found = client.say(frames.settings([(INITIAL_WINDOW_SIZE, (1 << 31) - 1)]))
    assert goaway_code(found) is Code.FLOW_CONTROL_ERROR


# -- what we take

SMALL = Limits(stream_window=65_535, connection_window=70_000)


def test_a_stream_s_window_is_made_whole_once_half_of_it_is_used() -> None:
    client = Client(SMALL)
    called(client)
    assert client.say(data(1, bytes(16_383)), data(1, bytes(16_384))) == []
    (update,) = client.say(data(1, bytes(1)))
    assert (update.kind, update.number, increment(update)) == (WINDOW_UPDATE, 1, 32_768)


def test_the_window_of_the_connection_is_respected_too() -> None:
    client = Client(SMALL)
    called(client, 1)
    called(client, 3)
    assert client.say(*[data(number, bytes(8_750)) for number in (1, 3, 1, 3)]) == []
    (update,) = client.say(data(1, bytes(1)))
    assert (update.number, increment(update)) == (0, 35_001)


def test_a_stream_that_has_said_all_gets_no_more_room() -> None:
    client = Client(SMALL)
    called(client)
    client.say(data(1, bytes(16_384)), data(1, bytes(16_383)))
    assert of(WINDOW_UPDATE, client.say(data(1, bytes(16), last=True))) == []


def test_padding_counts() -> None:
    client = Client(SMALL)
    called(client)
    padded = frames.frame(DATA, 0x8, 1, b"\xff\0" + bytes(255))
    (update,) = client.say(*[padded] * 128)
    assert increment(update) == 128 * 257


def test_data_for_closed_streams_counts_towards_the_window_of_the_connection() -> None:
    client = Client(SMALL)
    rpc = called(client)
    client.rpcs.end(rpc)
    client.hear()
    found = client.say(*[data(1, bytes(16_000))] * 3)
    assert [(frame.kind, frame.number) for frame in found] == [(WINDOW_UPDATE, 0)]


def test_windows_are_not_smaller_than_what_a_peer_takes_for_granted() -> None:
    with pytest.raises(UsageError, match="65,535"):
        Limits(stream_window=65_534)
    with pytest.raises(UsageError, match="65,535"):
        Limits(connection_window=65_534)


# -- what nobody takes for now


def test_the_window_of_a_stream_that_is_held_back_is_made_whole_when_it_goes_on() -> None:
    # RFC 9113, section 5.2.1
    client = Client(Limits(stream_window=100_000))
    rpc, other = called(client), called(client, 3)
    half = [data(1, message(b"x" * 9_995)) for _ in range(6)]
    assert not client.rpcs.hold_back(rpc, waits=True)
    assert not of(WINDOW_UPDATE, client.say(*half))
    assert [frame.number for frame in of(WINDOW_UPDATE, client.say(*(_on(3, each) for each in half)))] == [3]
    assert client.rpcs.hold_back(rpc, waits=False)
    (update,) = of(WINDOW_UPDATE, client.hear())
    assert (update.number, increment(update)) == (1, 60_000)
    assert not client.rpcs.hold_back(other, waits=False)  # it owes nothing


def test_more_than_the_window_of_a_stream_that_is_held_back_resets_it() -> None:
    # RFC 9113, section 6.9.1
    client = Client(Limits(stream_window=100_000))
    client.rpcs.hold_back(called(client), waits=True)
    full = [data(1, message(b"x" * 9_995)) for _ in range(10)]
    assert not client.say(*full)
    assert reset_code(client.say(data(1, b"x"))) is Code.FLOW_CONTROL_ERROR
    assert client.alive


def _on(number: int, frame: bytes) -> bytes:
    return frame[:5] + number.to_bytes(4, "big") + frame[9:]
