"""gRPC over HTTP/2, as its protocol document has it."""

from __future__ import annotations

import gzip
import itertools
import random
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http2.rig import CALL, REQUEST, Client, bodies, data, headers, message, of, only, reset_code
from xdsprism.errors import STATUS
from xdsprism.http2 import frames
from xdsprism.http2.codes import END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, RST_STREAM, Code
from xdsprism.http2.grpc import (
    ALWAYS,
    INFLATED,
    RATIO,
    GrpcError,
    MessageReader,
    framed,
    is_grpc,
    metadata,
    percent_encoded,
    timeout,
    trailers,
)
from xdsprism.http2.limits import Limits
from xdsprism.http2.rpc import DEADLINE_GRACE, NOT_GRPC, Called, Ended, HalfClosed, Message, RpcEvent

GZIP = (*CALL, ("grpc-encoding", "gzip"))


def messages(events: list[RpcEvent]) -> list[bytes]:
    return [event.message for event in events if isinstance(event, Message)]


# -- requests


def test_a_call_with_one_message() -> None:
    client = Client()
    client.say(headers(1, CALL), data(1, message(b"question"), last=True))
    called, heard, closed = client.take()
    assert isinstance(called, Called)
    assert called.path == "/x"
    assert isinstance(heard, Message)
    assert (heard.rpc, heard.message) == (called.rpc, b"question")
    assert closed == HalfClosed(called.rpc)
    client.rpcs.send(called.rpc, framed(b"answer"))
    client.rpcs.end(called.rpc)
    head, body, end = client.hear()
    assert client.fields(head) == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-accept-encoding": "identity,gzip",
    }
    assert body.payload == message(b"answer")
    assert client.fields(end) == {"grpc-status": "0"}
    assert end.flags & END_STREAM
    assert client.connection.streams == {}


def test_a_call_that_ends_before_its_client_does_is_reset_without_an_error() -> None:
    client = Client()
    client.say(headers(1, CALL))
    client.rpcs.end(only(client.take(), Called).rpc, "UNIMPLEMENTED", "no such method")
    answer, reset = client.hear()
    assert client.fields(answer)[":status"] == "200"
    assert client.fields(answer)["grpc-status"] == "12"
    assert client.fields(answer)["grpc-message"] == "no such method"
    assert answer.flags & END_STREAM
    assert (reset.kind, reset.code) == (RST_STREAM, Code.NO_ERROR)


def test_a_call_has_one_status_though_it_is_ended_twice() -> None:
    client = Client()
    client.say(headers(1, CALL, last=True))
    rpc = only(client.take()[:1], Called).rpc
    client.rpcs.end(rpc, "ABORTED")
    client.rpcs.end(rpc, "OK")
    (answer,) = client.hear()
    assert client.fields(answer)["grpc-status"] == "10"


@pytest.mark.parametrize(
    "fields",
    [
        REQUEST,
        (*REQUEST, ("content-type", "application/json")),
        (*REQUEST, ("content-type", "application/grpc-web")),
        ((":method", "GET"), *CALL[1:]),
    ],
    ids=["none", "json", "grpc-web", "GET"],
)
def test_a_request_that_is_not_grpc_gets_415_once_its_body_has_ended(fields: tuple[tuple[str, str], ...]) -> None:
    client = Client()
    assert client.say(headers(1, fields), data(1, b"any"), data(1, b"thing")) == []
    head, *body = client.say(data(1, last=True))
    assert client.fields(head) == {":status": "415", "content-type": "text/plain; charset=utf-8"}
    assert bodies(body) == NOT_GRPC.encode()
    assert client.take() == []
    assert client.connection.streams == {}


@pytest.mark.parametrize("kind", [b"application/grpc", b"application/grpc+proto", b"application/grpc;charset=utf-8"])
def test_content_types_of_grpc(kind: bytes) -> None:
    assert is_grpc(kind)


# -- messages


def test_messages_may_be_cut_anywhere() -> None:
    client = Client()
    client.say(headers(1, CALL))
    whole = message(b"one") + message(b"") + message(bytes(300))
    for byte in whole:
        client.say(data(1, bytes((byte,))))
    assert messages(client.take()) == [b"one", b"", bytes(300)]


def test_many_messages_may_be_in_one_frame() -> None:
    client = Client()
    client.say(headers(1, CALL), data(1, message(b"one") + message(b"two") + message(b"three")[:6]))
    assert messages(client.take()) == [b"one", b"two"]
    client.say(data(1, b"hree", last=True))
    assert messages(client.take()) == [b"three"]


def test_a_message_that_is_not_complete_at_the_end_is_an_error() -> None:
    client = Client()
    client.say(headers(1, CALL))
    (answer,) = client.say(data(1, message(b"one")[:-1], last=True))
    assert client.fields(answer)["grpc-status"] == str(STATUS.index("INTERNAL"))
    assert only(client.take(), Ended).why == "the last message is not complete"


def test_gzip_is_read() -> None:
    client = Client()
    client.say(headers(1, GZIP), data(1, message(gzip.compress(b"squeezed"), flag=1) + message(b"plain")))
    assert messages(client.take()) == [b"squeezed", b"plain"]


@pytest.mark.parametrize(
    ("fields", "body", "status"),
    [
        (CALL, message(gzip.compress(b"x"), flag=1), "INTERNAL"),
        (GZIP, message(b"not gzip at all", flag=1), "INTERNAL"),
        (GZIP, message(gzip.compress(b"x")[:-3], flag=1), "INTERNAL"),
        (GZIP, message(gzip.compress(b"x") + b"more", flag=1), "INTERNAL"),
        (GZIP, message(b"x", flag=2), "INTERNAL"),
        (GZIP, message(gzip.compress(bytes(1_001)), flag=1), "RESOURCE_EXHAUSTED"),
        ((*CALL, ("grpc-encoding", "snappy")), b"", "UNIMPLEMENTED"),
    ],
    ids=["not announced", "no gzip", "truncated", "more behind", "flag", "bomb", "unknown"],
)
def test_a_message_that_can_t_be_decompressed_ends_the_call(
    fields: tuple[tuple[str, str], ...], body: bytes, status: str
) -> None:
    client = Client(Limits(message_bytes=1_000))
    found = client.say(headers(1, fields), data(1, body))
    (answer,) = of(HEADERS, found)
    assert client.fields(answer)["grpc-status"] == str(STATUS.index(status))
    assert "gzip" in client.fields(answer)["grpc-accept-encoding"]
    assert client.alive


def test_a_bomb_is_not_unpacked_beyond_the_limit() -> None:
    packed = gzip.compress(bytes(50_000_000))
    reader = MessageReader(b"gzip", 100_000)
    with pytest.raises(GrpcError, match=r"100,001 vs\. 100,000"):
        reader.feed(message(packed, flag=1))


def test_a_message_is_inflated_to_so_many_times_its_size_and_no_further() -> None:
    # SRV-24
    packed = gzip.compress(bytes(10_000_000))
    reader = MessageReader(b"gzip", 64 << 20)
    with pytest.raises(GrpcError, match="send it uncompressed") as refused:
        reader.feed(message(packed, flag=1))
    assert refused.value.status == "RESOURCE_EXHAUSTED"
    assert f"{RATIO * len(packed):,}" in refused.value.message


def test_a_message_is_inflated_to_so_many_bytes_whatever_its_size() -> None:
    # SRV-24
    noise = random.Random(1).randbytes(500_000)
    packed = gzip.compress(noise * 2 + bytes(INFLATED))
    assert len(packed) * RATIO > INFLATED
    reader = MessageReader(b"gzip", 64 << 20)
    with pytest.raises(GrpcError, match=f"{INFLATED:,}"):
        reader.feed(message(packed, flag=1))


def test_a_small_message_may_be_mostly_the_same() -> None:
    # SRV-24
    plain = bytes(ALWAYS)
    assert MessageReader(b"gzip", 64 << 20).feed(message(gzip.compress(plain), flag=1)) == [plain]


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_an_inbox_gives_what_was_put_in_however_it_is_cut(sent: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(map(message, sent))
    reader = MessageReader(b"", 1_000)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    heard: list[bytes] = []
    for begin, end in itertools.pairwise(edges):
        part = whole[begin:end]
        found = reader.read_single(part)
        heard += reader.feed(part) if found is None else [found]
    assert heard == sent
    reader.check_complete()


# -- statuses


@given(st.text(max_size=400))
def test_a_message_of_a_status_is_printable_and_comes_back(text: str) -> None:
    encoded = percent_encoded(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    cut = text.encode("utf-8", "replace")[:1_300].decode("utf-8", "ignore")
    assert unquote(encoded.decode("ascii")) == cut


def test_a_long_message_of_a_status_is_cut_between_characters() -> None:
    encoded = percent_encoded("é" * 10_000)
    assert len(encoded) < 4_000
    assert set(unquote(encoded.decode("ascii"))) == {"é"}


def test_a_long_status_can_be_read_as_headers() -> None:
    client = Client()
    block = trailers("UNKNOWN", "x" * 1_200, alone=True)
    assert dict(client.decoder.decode(block))["grpc-message"] == "x" * 1_200


# -- deadlines


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"2H", 7200.0), (b"3M", 180.0), (b"4S", 4.0), (b"5m", 0.005), (b"6u", 6e-6), (b"7n", 7e-9), (b"", None)],
)
def test_timeouts(text: bytes, seconds: float | None) -> None:
    assert timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("wrong", ["5", "S", "5s", "-1S", "123456789S", "1.5S", "five"])
def test_a_malformed_timeout_ends_the_call(wrong: str) -> None:
    client = Client()
    answer, _ = client.say(headers(1, (*CALL, ("grpc-timeout", wrong))))
    assert client.fields(answer)["grpc-status"] == str(STATUS.index("INTERNAL"))
    assert client.take() == []


def test_a_deadline_ends_the_call_in_time() -> None:
    client = Client()
    client.say(headers(1, (*CALL, ("grpc-timeout", "5S"))), headers(3, (*CALL, ("grpc-timeout", "1S"))))
    client.take()
    assert client.rpcs.due == 1.0
    assert client.tick(0.9) == []
    answer, reset = client.tick(1.0)
    assert (answer.number, client.fields(answer)["grpc-status"]) == (3, "4")  # DEADLINE_EXCEEDED
    assert reset.number == 3
    assert only(client.take(), Ended).why
    assert client.rpcs.due == 5.0


def test_a_deadline_in_the_middle_of_a_message_resets_the_stream() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 5)])
    client.say(headers(1, (*CALL, ("grpc-timeout", "1S"))))
    client.rpcs.send(only(client.take(), Called).rpc, framed(b"hello"))
    client.hear()
    assert client.tick(1.0) == []  # the caller is to say so itself, and not to hear of a cancellation
    assert client.rpcs.due == 1.0 + DEADLINE_GRACE
    assert reset_code(client.tick(1.0 + DEADLINE_GRACE)) is Code.CANCEL
    only(client.take(), Ended)
    assert client.say(frames.window_update(1, 100)) == []


def test_a_call_that_ended_has_no_deadline() -> None:
    client = Client()
    client.say(headers(1, (*CALL, ("grpc-timeout", "1S")), last=True))
    client.rpcs.end(only(client.take()[:1], Called).rpc)
    client.hear()
    assert client.tick(2.0) == []
    assert client.take() == []


def test_deadlines_of_calls_that_are_over_do_not_pile_up() -> None:
    client = Client()
    for number in range(1, 2_001, 2):
        client.say(headers(number, (*CALL, ("grpc-timeout", "1H")), last=True))
        client.rpcs.end(only(client.take(), Called).rpc)
        client.hear()
    assert client.rpcs._deadlines.entries < 100  # noqa: SLF001 # timers that pile up cost memory, and nobody sees them


# -- metadata


def test_metadata_is_what_the_caller_added() -> None:
    client = Client()
    extra = (("user-agent", "x/1"), ("authorization", "Bearer t"), ("id-bin", "AAE"), ("id-bin", "/w==,AQ"))
    client.say(headers(1, (*CALL, ("grpc-timeout", "5S"), *extra, ("broken-bin", "!"))))
    found = list(metadata(only(client.take(), Called).fields))
    assert found == [("authorization", "Bearer t"), ("id-bin", b"\0\1"), ("id-bin", b"\xff"), ("id-bin", b"\1")]


# -- sharing


def test_a_large_message_is_not_copied() -> None:
    large = bytes(1_000_000)
    made = framed(large)
    assert made.rest is not None
    assert made.rest.obj is large
    assert made.first + bytes(made.rest) == message(large)


# -- what crosses on the way


def test_a_call_that_is_taken_back_at_once_is_never_told() -> None:
    client = Client()
    assert client.say(headers(1, CALL), data(1, message(b"a")), frames.reset(1, Code.CANCEL)) == []
    assert client.say(headers(3, last=True), frames.reset(3, Code.CANCEL)) == []
    assert client.say(headers(5), data(5, last=True), frames.reset(5, Code.CANCEL)) == []
    assert client.take() == []
    assert client.connection.streams == {}


def test_a_broken_message_of_a_caller_who_left_needs_no_answer() -> None:
    client = Client()
    client.say(headers(1, CALL))
    client.take()
    assert client.say(data(1, message(b"a", flag=7)), frames.reset(1, Code.CANCEL)) == []
    only(client.take(), Ended)


def test_messages_for_a_call_that_ended_are_ignored_while_its_last_bytes_wait() -> None:
    client = Client(settings=[(INITIAL_WINDOW_SIZE, 3)])
    client.say(headers(1, CALL))
    rpc = only(client.take(), Called).rpc
    client.rpcs.send(rpc, framed(b"hello"))
    client.rpcs.end(rpc)
    client.hear()
    assert client.say(data(1, message(b"too late"), last=True)) == []
    assert client.take() == []
    found = client.say(frames.window_update(1, 100))
    assert bodies(found) == message(b"hello")[3:]
    assert not of(RST_STREAM, found)  # both have said all
    assert client.connection.streams == {}
