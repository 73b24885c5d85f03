"""RFC 9113, sections 5.1, 5.4 and 8: the life of a stream, and what a request may look like."""

from __future__ import annotations

import pytest

from tests.http2.rig import CALL, REQUEST, Client, bodies, data, goaway_code, headers, message, of, only, reset_code
from xdsprism.http2 import frames
from xdsprism.http2.codes import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    RST_STREAM,
    WINDOW_UPDATE,
    Code,
)
from xdsprism.http2.rpc import NOT_GRPC, Called, Ended, HalfClosed

# -- section 5.1: states


@pytest.mark.parametrize(
    "first",
    [data(1, b"x"), frames.reset(1, Code.CANCEL), frames.window_update(1, 5), frames.frame(CONTINUATION, 4, 1, b"")],
    ids=["data", "rst_stream", "window_update", "continuation"],
)
def test_an_idle_stream_begins_with_headers(first: bytes) -> None:
    assert goaway_code(Client().say(first)) is Code.PROTOCOL_ERROR


@pytest.mark.parametrize("more", [data(1, b"x"), data(1, last=True), headers(1)], ids=["data", "end", "headers"])
def test_more_data_or_headers_on_a_half_closed_stream_reset_it(more: bytes) -> None:
    client = Client()
    client.say(headers(1, CALL, last=True))
    client.take()
    assert reset_code(client.say(more)) is Code.STREAM_CLOSED
    assert only(client.take(), Ended).why
    assert client.alive


def test_windows_and_priorities_still_count_on_a_half_closed_stream() -> None:
    client = Client()
    client.say(headers(1, CALL, last=True))
    assert client.say(frames.window_update(1, 100), frames.frame(2, 0, 1, b"\0\0\0\5\0")) == []
    assert client.connection.streams[1].window == 65_535 + 100


def test_frames_that_were_under_way_when_the_server_reset_the_stream_are_ignored() -> None:
    client = Client()
    client.say(headers(1, CALL))
    rpc = only(client.take(), Called).rpc
    client.rpcs.end(rpc, "CANCELLED", "no more")
    assert reset_code(client.hear()) is Code.NO_ERROR
    late = (data(1, b"late"), frames.window_update(1, 1), headers(1, [("x", "y")], last=True))
    assert client.say(*late, frames.reset(1, Code.CANCEL)) == []
    assert client.alive
    assert client.take() == []


def test_data_on_a_stream_that_its_client_reset_is_answered_with_a_reset() -> None:
    client = Client()
    client.say(headers(1, CALL), frames.reset(1, Code.CANCEL))
    assert reset_code(client.say(data(1, b"x"))) is Code.STREAM_CLOSED
    assert client.say(frames.window_update(1, 1), frames.reset(1, Code.CANCEL)) == []
    assert client.alive


@pytest.mark.parametrize("close", [b"", frames.reset(1, Code.CANCEL)], ids=["ended", "reset"])
def test_headers_on_a_stream_that_is_over_end_the_connection(close: bytes) -> None:
    client = Client()
    client.say(headers(1, last=not close), close)
    assert 1 not in client.connection.streams
    assert goaway_code(client.say(headers(1))) is Code.STREAM_CLOSED


def test_stream_numbers_that_fall_or_are_even_end_the_connection() -> None:
    client = Client()
    client.say(headers(5, CALL))
    assert goaway_code(client.say(headers(3, CALL))) is Code.PROTOCOL_ERROR
    assert goaway_code(Client().say(headers(2, CALL))) is Code.PROTOCOL_ERROR


def test_a_goaway_names_the_last_stream_that_was_received() -> None:
    client = Client()
    client.say(headers(7, CALL))
    (goaway,) = client.say(frames.frame(5, 0, 7, bytes(4)))
    assert goaway.kind == GOAWAY
    assert frames.UINT32.unpack_from(goaway.payload)[0] == 7
    assert goaway.payload[8:] == b"clients can't push"
    assert only(client.take(), Ended).why == "clients can't push"


def test_a_reset_stream_is_over_at_once_and_no_other_is() -> None:
    client = Client()
    client.say(headers(1, CALL), headers(3, CALL))
    client.take()
    assert client.say(frames.reset(1, Code.CANCEL)) == []
    (ended,) = client.take()
    assert (ended.rpc.stream.number, ended.why) == (1, "")
    assert list(client.connection.streams) == [3]


def test_unknown_error_codes_in_resets_and_goaways_are_accepted() -> None:
    client = Client()
    client.say(headers(1, CALL))
    client.say(frames.frame(RST_STREAM, 0, 1, b"\xff\xff\xff\xff"), frames.frame(GOAWAY, 0, 0, bytes(4) + b"\xff" * 4))
    assert client.alive


# -- section 8.1: the order of frames in a message


def test_trailers_end_a_request() -> None:
    client = Client()
    client.say(headers(1, CALL), data(1, message(b"m")), headers(1, [("checksum", "7")], last=True))
    only(client.take(), HalfClosed)


def test_headers_in_the_middle_are_malformed() -> None:
    client = Client()
    client.say(headers(1, CALL))
    assert reset_code(client.say(headers(1, [("x", "y")]))) is Code.PROTOCOL_ERROR
    assert client.alive


@pytest.mark.parametrize("field", [(":path", "/"), ("Upper", "x"), ("connection", "close")])
def test_malformed_trailers_reset_the_stream(field: tuple[str, str]) -> None:
    client = Client()
    client.say(headers(1, CALL))
    assert reset_code(client.say(headers(1, [field], last=True))) is Code.PROTOCOL_ERROR


# -- sections 8.2 and 8.3: fields

WITHOUT = [[field for field in REQUEST if field[0] != name] for name in (":method", ":scheme", ":path")]
MALFORMED = {
    "no method": WITHOUT[0],
    "no scheme": WITHOUT[1],
    "no path": WITHOUT[2],
    "empty path": [*WITHOUT[2], (":path", "")],
    "method twice": [*REQUEST, (":method", "POST")],
    "path twice": [*REQUEST, (":path", "/")],
    "unknown pseudo-header": [*REQUEST, (":protocol", "x")],
    "pseudo-header of a response": [*REQUEST, (":status", "200")],
    "pseudo-header after others": [("x", "y"), *REQUEST],
    "upper case": [*REQUEST, ("X-Upper", "y")],
    "empty name": [*REQUEST, ("", "y")],
    "space in a name": [*REQUEST, ("a b", "y")],
    "colon in a name": [*REQUEST, ("a:b", "y")],
    "line break in a value": [*REQUEST, ("a", "b\r\nc: d")],
    "zero byte in a value": [*REQUEST, ("a", "b\0")],
    "space before a value": [*REQUEST, ("a", " b")],
    "space after a value": [*REQUEST, ("a", "b\t")],
    "line break in a path": [*WITHOUT[2], (":path", "/\n")],
    "connection": [*REQUEST, ("connection", "close")],
    "proxy-connection": [*REQUEST, ("proxy-connection", "close")],
    "keep-alive": [*REQUEST, ("keep-alive", "timeout=5")],
    "transfer-encoding": [*REQUEST, ("transfer-encoding", "chunked")],
    "upgrade": [*REQUEST, ("upgrade", "h2c")],
    "te": [*REQUEST, ("te", "trailers, deflate")],
    "content-length of no number": [*REQUEST, ("content-length", "-1")],
    "two content-lengths": [*REQUEST, ("content-length", "1"), ("content-length", "2")],
    "connect with a path": [(":method", "CONNECT"), (":path", "/"), (":authority", "here")],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_resets_its_stream_and_no_more(name: str) -> None:
    client = Client()
    assert reset_code(client.say(headers(1, MALFORMED[name], last=True))) is Code.PROTOCOL_ERROR
    assert client.take() == []
    assert bodies(client.say(headers(3, last=True)), 3) == NOT_GRPC.encode()


WELL_FORMED = {
    "te": [*REQUEST, ("te", "trailers")],
    "no authority": REQUEST[:3],
    "connect": [(":method", "CONNECT"), (":authority", "here")],
    "same content-length twice": [*REQUEST, ("content-length", "0"), ("content-length", "0")],
    "odd characters": [*REQUEST, ("!#$%&'*+-.^_`|~09az", "\x80\xff any \t thing")],
    "empty value": [*REQUEST, ("a", "")],
}


@pytest.mark.parametrize("name", WELL_FORMED)
def test_an_odd_but_well_formed_request_is_answered(name: str) -> None:
    found = Client().say(headers(1, WELL_FORMED[name], last=True))
    assert bodies(found) == NOT_GRPC.encode()


# -- section 8.1.1: content-length


@pytest.mark.parametrize(
    "parts",
    [
        [data(1, b"12345", last=True)],
        [data(1, b"123"), data(1, b"45")],
        [data(1, b"123", last=True)],
        [data(1, b"12"), data(1, last=True)],
        [data(1, b"12"), headers(1, [("x", "y")], last=True)],
        [data(1, b""), data(1, b"", last=True)],
    ],
    ids=["more", "more in parts", "less", "less in parts", "less with trailers", "nothing"],
)
def test_a_body_that_differs_from_its_content_length_is_malformed(parts: list[bytes]) -> None:
    client = Client()
    client.say(headers(1, [*REQUEST, ("content-length", "4")]))
    assert reset_code(client.say(*parts)) is Code.PROTOCOL_ERROR


def test_a_body_of_its_content_length_is_fine() -> None:
    client = Client()
    client.say(headers(1, [*REQUEST, ("content-length", "4")]))
    assert bodies(client.say(data(1, b"12"), data(1, b"34"), data(1, last=True))) == NOT_GRPC.encode()


# -- RFC 7541


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xff\xff\xff\xff\x7f",  # an index far beyond the table
        b"\xc6",  # an index just beyond it
        b"\x82\x3f\xe1\x1f",  # a table size update after a field
        b"\x3f\xe2\x1f",  # a table larger than allowed
        b"\x00\x83\xff\xff\xff\x01x",  # Huffman: padding of more than seven bits
        b"\x00\x81\x00\x01x",  # Huffman: padded with zeros
        b"\x00\x84\xff\xff\xff\xfc\x01x",  # Huffman: the end of the string, spelled out
        b"\x00\x05ab",  # longer than the block
        b"\x40",  # nothing after the first byte
    ],
)
def test_headers_that_can_t_be_decompressed_end_the_connection(block: bytes) -> None:
    found = Client().say(frames.frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
    assert goaway_code(found) is Code.COMPRESSION_ERROR


def test_headers_of_refused_streams_still_count_for_the_table() -> None:
    client = Client()
    # A malformed request puts a field into the table, and the next refers to it.
    indexed = b"\x40\x01x\x05first"
    reset_code(client.say(frames.headers(1, indexed, last=True)))
    client.say(frames.headers(3, b"\x83\x86\x84\x5f\x10application/grpc\xbf", last=True))
    assert (b"x", b"first") in only(client.take(), Called).fields


def test_response_headers_leave_the_header_table_of_the_client_empty() -> None:
    client = Client()
    first, second = (of(HEADERS, client.say(headers(number, last=True)))[0] for number in (1, 3))
    assert first.payload == second.payload
    assert client.fields(first) == client.fields(second)
    assert len(client.decoder.header_table.dynamic_entries) == 0


def test_a_window_update_of_a_stream_that_is_over_is_ignored() -> None:
    client = Client()
    client.say(headers(1, last=True))
    assert of(WINDOW_UPDATE, client.say(frames.window_update(1, 5))) == []
    assert client.alive
