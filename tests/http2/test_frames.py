"""RFC 9113, sections 3, 4 and 6: the preface, frames, and what each may hold."""

from __future__ import annotations

import pytest

from tests.http2.rig import (
    REQUEST,
    Client,
    block,
    bodies,
    data,
    goaway_code,
    headers,
    increment,
    of,
    reset_code,
    setting,
)
from xdsprism.http2 import frames
from xdsprism.http2.codes import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    PADDED,
    PING,
    PREFACE,
    PRIORITISED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Code,
)
from xdsprism.http2.limits import Limits
from xdsprism.http2.rpc import NOT_GRPC

NUMBER = b"\0\0\0\1"

# -- section 3.4: the preface


def test_the_server_speaks_first_of_its_limits() -> None:
    settings, update = Client(Limits(streams=7, header_bytes=900, stream_window=66_000, connection_window=70_000)).hello
    assert setting(settings) == {MAX_CONCURRENT_STREAMS: 7, INITIAL_WINDOW_SIZE: 66_000, MAX_HEADER_LIST_SIZE: 900}
    assert (update.number, increment(update)) == (0, 70_000 - 65_535)


def test_settings_are_acknowledged() -> None:
    (ack,) = Client().greeting
    assert (ack.kind, ack.flags, ack.payload) == (SETTINGS, ACK, b"")


@pytest.mark.parametrize("wrong", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nXX", b"\x16\x03\x01"])
def test_a_wrong_preface_ends_the_connection_at_its_first_wrong_byte(wrong: bytes) -> None:
    assert goaway_code(Client(greet=False).say(wrong)) is Code.PROTOCOL_ERROR


def test_the_first_frame_is_settings() -> None:
    assert goaway_code(Client(greet=False).say(PREFACE, frames.ping(bytes(8)))) is Code.PROTOCOL_ERROR
    assert goaway_code(Client(greet=False).say(PREFACE, frames.SETTINGS_ACK)) is Code.PROTOCOL_ERROR


def test_a_preface_may_come_byte_by_byte() -> None:
    client = Client(greet=False)
    for byte in PREFACE + frames.settings([]):
        client.say(bytes((byte,)))
    assert client.alive


# -- section 4.2: size


@pytest.mark.parametrize("kind", [DATA, HEADERS, SETTINGS, 200])
def test_a_frame_above_the_limit_ends_the_connection_before_it_is_there(kind: int) -> None:
    client = Client()
    header = frames.HEADER.pack(16_385 >> 8, 16_385 & 255, kind, 0, 1)
    assert goaway_code(client.say(header)) is Code.FRAME_SIZE_ERROR


def test_a_frame_at_the_limit_is_taken() -> None:
    client = Client()
    client.say(headers(1))
    assert client.say(data(1, bytes(16_384))) == []
    assert client.alive


WRONG_SIZES = {
    "ping": frames.frame(PING, 0, 0, bytes(7)),
    "rst_stream": frames.frame(RST_STREAM, 0, 1, bytes(3)),
    "settings": frames.frame(SETTINGS, 0, 0, bytes(5)),
    "settings ack": frames.frame(SETTINGS, ACK, 0, bytes(6)),
    "window_update": frames.frame(WINDOW_UPDATE, 0, 0, bytes(3)),
    "goaway": frames.frame(GOAWAY, 0, 0, bytes(7)),
    "headers with priority": frames.frame(HEADERS, PRIORITISED | END_HEADERS, 3, bytes(4)),
}


@pytest.mark.parametrize("name", WRONG_SIZES)
def test_a_frame_of_a_wrong_size_ends_the_connection(name: str) -> None:
    client = Client()
    client.say(headers(1))
    assert goaway_code(client.say(WRONG_SIZES[name])) is Code.FRAME_SIZE_ERROR


def test_a_priority_of_a_wrong_size_ends_its_stream_only() -> None:
    client = Client()
    client.say(headers(1))
    assert reset_code(client.say(frames.frame(PRIORITY, 0, 1, bytes(4)))) is Code.FRAME_SIZE_ERROR
    assert client.alive


WRONG_STREAMS = {
    "data": data(0, b"x"),
    "headers": headers(0),
    "priority": frames.frame(PRIORITY, 0, 0, bytes(5)),
    "rst_stream": frames.reset(0, Code.CANCEL),
    "settings": frames.frame(SETTINGS, 0, 1),
    "ping": frames.frame(PING, 0, 1, bytes(8)),
    "goaway": frames.frame(GOAWAY, 0, 1, bytes(8)),
    "continuation": frames.frame(CONTINUATION, END_HEADERS, 0),
    "push_promise": frames.frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)),
}


@pytest.mark.parametrize("name", WRONG_STREAMS)
def test_a_frame_on_a_stream_that_it_can_t_be_on_ends_the_connection(name: str) -> None:
    client = Client()
    client.say(headers(1))
    assert goaway_code(client.say(WRONG_STREAMS[name])) is Code.PROTOCOL_ERROR


# -- sections 4.1 and 5.5: what is unknown


def test_unknown_frames_flags_and_settings_are_ignored() -> None:
    client = Client()
    assert client.say(frames.frame(0x77, 0xFF, 1, b"whatever")) == []
    assert len(of(PING, client.say(frames.frame(PING, 0xFE, 0, bytes(8))))) == 1
    (ack,) = client.say(frames.settings([(0x99, 1), (0xF000, 0)]))
    assert ack.flags == ACK


def test_the_reserved_bit_of_a_stream_number_is_ignored() -> None:
    client = Client()
    client.say(headers(1))
    found = client.say(data(1 | 1 << 31, b"x", last=True))
    assert bodies(found) == NOT_GRPC.encode()


def test_frames_after_a_goaway_of_the_server_are_ignored() -> None:
    client = Client()
    client.say(frames.frame(PING, 0, 1, bytes(8)))
    assert client.say(frames.ping(bytes(8)), headers(1)) == []


# -- section 6.1 and 6.2: padding


def padded(body: bytes, padding: int) -> bytes:
    return bytes((padding,)) + body + bytes(padding)


def test_padding_is_taken_off() -> None:
    client = Client()
    found = client.say(frames.frame(HEADERS, PADDED | END_HEADERS | END_STREAM, 1, padded(block(), 200)))
    assert bodies(found) == NOT_GRPC.encode()
    fields = (*REQUEST, ("content-length", "4"))
    client.say(headers(3, fields))
    found = client.say(frames.frame(DATA, PADDED | END_STREAM, 3, padded(b"four", 9)))
    assert bodies(found, 3) == NOT_GRPC.encode()


@pytest.mark.parametrize("kind", [DATA, HEADERS])
@pytest.mark.parametrize("payload", [b"", b"\1", b"\5abcd", b"\xffabc"])
def test_more_padding_than_frame_ends_the_connection(kind: int, payload: bytes) -> None:
    client = Client()
    client.say(headers(1))
    wrong = frames.frame(kind, PADDED, 1 if kind == DATA else 3, payload)
    assert goaway_code(client.say(wrong)) is Code.PROTOCOL_ERROR


# -- section 5.3: priority


def test_priorities_are_ignored_in_any_state() -> None:
    client = Client()
    client.say(headers(1, last=True))
    for number in (1, 3, 99):
        assert client.say(frames.frame(PRIORITY, 0, number, b"\0\0\0\x0b\x10")) == []
    found = client.say(frames.frame(HEADERS, PRIORITISED | END_HEADERS | END_STREAM, 3, b"\x80\0\0\1\x05" + block()))
    assert bodies(found, 3) == NOT_GRPC.encode()


def test_a_stream_that_depends_on_itself_is_reset() -> None:
    client = Client()
    found = client.say(frames.frame(HEADERS, PRIORITISED | END_HEADERS, 1, NUMBER + b"\0" + block()))
    assert reset_code(found) is Code.PROTOCOL_ERROR
    client.say(headers(3))
    assert reset_code(client.say(frames.frame(PRIORITY, 0, 3, b"\0\0\0\3\0")), 3) is Code.PROTOCOL_ERROR
    assert client.alive


# -- section 6.5: settings


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        (2, 2, Code.PROTOCOL_ERROR),
        (INITIAL_WINDOW_SIZE, 1 << 31, Code.FLOW_CONTROL_ERROR),
        (MAX_FRAME_SIZE, 16_383, Code.PROTOCOL_ERROR),
        (MAX_FRAME_SIZE, 1 << 24, Code.PROTOCOL_ERROR),
    ],
)
def test_settings_out_of_bounds_end_the_connection(key: int, value: int, code: Code) -> None:
    assert goaway_code(Client().say(frames.settings([(key, value)]))) is code


def test_settings_at_their_bounds_are_taken() -> None:
    values = [(2, 0), (2, 1), (INITIAL_WINDOW_SIZE, (1 << 31) - 1), (MAX_FRAME_SIZE, (1 << 24) - 1), (3, 0)]
    assert Client(settings=values).alive


def test_a_smaller_header_table_is_acknowledged_in_the_next_header_block() -> None:
    client = Client(settings=[(1, 100)])
    client.decoder.header_table_size = 4_096
    client.decoder.max_allowed_table_size = 100  # it insists
    (first,) = of(HEADERS, client.say(headers(1, last=True)))
    assert client.fields(first)[":status"] == "415"
    (second,) = of(HEADERS, client.say(headers(3, last=True)))
    assert first.payload == b"\x20" + second.payload


# -- section 6.7: ping


def test_a_ping_is_answered_with_its_payload_and_an_answer_is_not() -> None:
    client = Client()
    (pong,) = client.say(frames.ping(b"abcdefgh"))
    assert (pong.kind, pong.flags, pong.payload) == (PING, ACK, b"abcdefgh")
    assert client.say(frames.PING_ACK + b"abcdefgh") == []


# -- section 6.8: goaway


def test_a_client_that_says_goodbye_is_served_to_the_end() -> None:
    client = Client()
    client.say(headers(1))
    assert client.say(frames.goaway(0, Code.NO_ERROR, "leaving")) == []
    assert bodies(client.say(data(1, last=True))) == NOT_GRPC.encode()


# -- section 6.10: continuation


def test_a_header_block_may_come_in_parts() -> None:
    client = Client()
    whole = block()
    client.say(frames.frame(HEADERS, END_STREAM, 1, whole[:10]))
    client.say(frames.frame(CONTINUATION, 0, 1, whole[10:11]))
    found = client.say(frames.frame(CONTINUATION, END_HEADERS, 1, whole[11:]))
    assert bodies(found) == NOT_GRPC.encode()


@pytest.mark.parametrize(
    "other",
    [
        data(1, b"x"),
        headers(3),
        frames.ping(bytes(8)),
        frames.frame(0x77, 0, 1),
        frames.frame(CONTINUATION, END_HEADERS, 3, b""),
        frames.frame(PRIORITY, 0, 1, bytes(5)),
    ],
)
def test_another_frame_between_headers_and_continuation_ends_the_connection(other: bytes) -> None:
    client = Client()
    client.say(frames.frame(HEADERS, 0, 1, block()))
    assert goaway_code(client.say(other)) is Code.PROTOCOL_ERROR


@pytest.mark.parametrize("before", [headers(1), headers(1) + data(1, b"x"), b""])
def test_a_continuation_of_nothing_ends_the_connection(before: bytes) -> None:
    client = Client()
    client.say(before)
    assert goaway_code(client.say(frames.frame(CONTINUATION, END_HEADERS, 1, block()))) is Code.PROTOCOL_ERROR
