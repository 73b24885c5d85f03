"""Whatever bytes come, the connection answers in frames or ends with a GOAWAY; it never fails in another way."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import example, given

from tests.http2.rig import CALL, Client, block, data, headers, message
from tests.support import insides
from xdsprism.http2 import frames
from xdsprism.http2.codes import END_HEADERS, END_STREAM, HEADERS
from xdsprism.http2.grpc import framed
from xdsprism.http2.limits import Limits
from xdsprism.http2.rpc import Called

LIMITS = Limits(streams=5, header_bytes=600, message_bytes=2_000, stream_window=65_535, connection_window=70_000)

numbers = st.sampled_from([0, 1, 1, 1, 2, 3, 5, 7, 9, 11, 13, 99, (1 << 31) - 1, 1 << 31, (1 << 31) + 1])
payloads = st.one_of(
    st.binary(max_size=60),
    st.integers(0, (1 << 32) - 1).map(frames.UINT32.pack),
    st.sampled_from([bytes(8), block(), block(CALL), message(b"hello"), message(b"hello", flag=1), bytes(1_500)]),
)
any_frame = st.builds(frames.frame, st.integers(0, 11), st.integers(0, 255), numbers, payloads)
calls = st.builds(headers, numbers, st.just(CALL), last=st.booleans())
bodies = st.builds(data, numbers, payloads, last=st.booleans())
settings = st.lists(st.tuples(st.integers(0, 8), st.integers(0, (1 << 32) - 1)), max_size=4).map(frames.settings)
conversations = st.lists(st.one_of(any_frame, calls, bodies, settings, st.binary(max_size=30)), max_size=40)


def converse(parts: list[bytes]) -> Client:
    """Each call that is opened is answered, one is ended, so that both directions take part."""
    client = Client(LIMITS)
    for second, part in enumerate(parts):
        client.now = float(second)
        client.say(part)
        for event in client.take():
            if isinstance(event, Called):
                client.rpcs.send(event.rpc, framed(bytes(3_000)))
                if event.rpc.stream.number % 4 == 1:
                    client.rpcs.end(event.rpc)
        client.hear()
        client.tick(client.now)
    return client


@given(conversations)
@example([headers(1, CALL), frames.frame(3, 0, 1, bytes(4)), data(1, b"late")])
def test_any_frames_at_all(parts: list[bytes]) -> None:
    client = converse(parts)
    alive = client.connection.failed is None
    assert alive or client.connection.streams == {}
    assert insides.unfinished(client.rpcs) == sum(
        stream.owner.reader.unfinished for stream in client.connection.streams.values() if stream.owner is not None
    )


@given(st.binary(max_size=120))
@example(b"\x3f" + b"\xff" * 100)
@example(b"\xff" * 100 + b"\x01")
@example(b"\x00\xff" + b"\xff" * 80)
@example(b"\x40\x81")
def test_any_header_block_at_all(octets: bytes) -> None:
    client = Client(LIMITS)
    client.say(frames.frame(HEADERS, END_HEADERS | END_STREAM, 1, octets))
    assert client.connection.failed is not None or client.alive


@given(st.binary(max_size=200), st.integers(0, 60))
def test_any_bytes_at_all(noise: bytes, cut: int) -> None:
    client = Client(greet=False)
    client.say(noise[:cut])
    client.say(noise[cut:])
    client.tick(10.0)
    assert client.connection.failed is not None
