"""The transport: what reads frames, headers and messages."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress

import hpack

from xdsprism.http2 import frames as wire
from xdsprism.http2.blocks import HeaderBlocks
from xdsprism.http2.codes import END_HEADERS, END_STREAM, HEADERS, PADDED, PREFACE, Code
from xdsprism.http2.faults import ConnectionFault, StreamFault
from xdsprism.http2.grpc import GrpcError, MessageReader, framed, metadata, percent_encoded, timeout, trailers
from xdsprism.http2.limits import Limit, Limits, Times
from xdsprism.http2.requests import Field, check_trailers, read_request
from xdsprism.http2.rpc import Rpc, RpcConnection, RpcEvent
from xdsprism.token_bucket import Rate

from .sound import Story, Unsound, connection, must, written

LIMITS = Limits(
    streams=6,
    header_bytes=600,
    continuations=6,
    message_bytes=2_000,
    unfinished_bytes=1_000,
    stream_window=65_535,
    connection_window=70_000,
    unread_bytes=200,
    empty_frames=Rate(5, 1),
    resets=Rate(5, 1),
    settings=Rate(8, 1),
    pings=Rate(5, 1),
    noise=Rate(20, 1),
    window_updates=Rate(20, 1),
    tiny_frames=Rate(10, 1),
)
TIMES = Times(preface=30, keepalive=40, keepalive_timeout=20, stall=50, notice=2, age_grace=20)
GREETING = PREFACE + wire.settings([])

# A request that most inputs want somewhere, and that chance would be long to find.
REQUEST = (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x"), (b"content-type", b"application/grpc")


def literals(fields: tuple[Field, ...]) -> bytes:
    return b"".join(b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in fields)


CALL = literals(REQUEST)
GZIP_CALL = literals((*REQUEST, (b"grpc-encoding", b"gzip"), (b"grpc-timeout", b"9S")))


def pieces(data: bytes, stride: int) -> Iterator[bytes]:
    """Cut into parts; without a stride it is whole."""
    step = stride or len(data) or 1
    return (data[at : at + step] for at in range(0, len(data), step))


# -- frames


def frames(data: bytes) -> None:
    """Anything on a connection: two bytes say how, the rest is the wire, or what it is made of."""
    if len(data) < 2:
        return
    how, stride, rest = data[0], data[1], data[2:]
    said = rest if how & 1 else built(rest)
    if how & 2:
        said = GREETING + said
    _cuts_do_not_matter(said, stride)
    _converse(said, stride, how)


def built(script: bytes) -> bytes:
    """Frames with a length that is right, so that chance is spent on the rest. A type of ours adds a request."""
    found = []
    at = 0
    while len(script) - at >= 4:
        kind, flags, number, size = script[at : at + 4]
        payload = script[at + 4 : at + 4 + size]
        at += 4 + size
        if kind >= 0xF0:
            payload = payload * 64
        if kind & 0xF0 == 0x80:
            kind, flags, payload = HEADERS, flags | END_HEADERS, (GZIP_CALL if kind & 1 else CALL) + payload
        elif kind & 0xF0 == 0x90:
            kind, payload = 0, bytes((kind & 1,)) + wire.UINT32.pack(len(payload)) + payload
        found.append(wire.frame(kind & 15, flags, number, payload[:16_384]))
    return b"".join(found)


def _heard(said: bytes, stride: int) -> tuple[object, ...]:
    """What is left of it, if nobody answers and no time goes by.

    Of streams that are gone nothing is compared: one that was taken back at once may have been answered, or not.
    """
    rpcs = RpcConnection(LIMITS, TIMES, 0.0, "peer")
    for part in pieces(said, stride):
        rpcs.receive(part, 0.0)
    found = rpcs.connection
    if found.failed is not None:
        return found.failed.code, found.failed.limit
    streams = {
        number: (each.window, each.credit, each.can_receive, each.expected_bytes)
        for number, each in found.streams.items()
    }
    return streams, found._windows.credit, rpcs._unfinished


def _cuts_do_not_matter(said: bytes, stride: int) -> None:
    one, other = _heard(said, 0), _heard(said, stride + 1)
    # Limits of calls are met after all of a part was read, and so after other faults in it.
    must(one == other or Limit.RESETS in (*one, *other), "it matters where the bytes are cut")


class Talk:
    """A server that answers, ends, stalls and drains, as the input has it."""

    def __init__(self, how: int) -> None:
        self.rpcs = RpcConnection(LIMITS, TIMES, 0.0, "peer", age=60.0 if how & 4 else float("inf"))
        self._story = Story()
        self._how = how
        self._open: list[Rpc] = []
        self.now = 0.0

    def hear(self, part: bytes) -> None:
        self.now += 0.5
        self._take(self.rpcs.receive(part, self.now))
        self._answer()
        self._take(self.rpcs.tick(self.now))
        self._send()

    def _take(self, events: list[RpcEvent]) -> None:
        self._open += self._story.take(events, LIMITS)
        self._open = [rpc for rpc in self._open if not rpc.is_over]

    def _answer(self) -> None:
        for rpc in list(self._open):
            if not rpc.stream.queue:
                self.rpcs.send(rpc, framed(bytes(700 if self._how & 8 else 40)))
            if self._how & 16 and rpc.stream.number % 4 == 1:
                self.rpcs.end(rpc, "ABORTED", "enough: 100 %")
                self._story.ended(rpc)

    def _send(self) -> None:
        if self._how & 32:  # the socket takes nothing now and then
            (self.rpcs.out.pause if int(self.now) % 3 == 0 else self.rpcs.out.resume)()
        while True:
            self._take(self.rpcs.send_queued())
            out = self.rpcs.out.take_output()
            written(out)
            if not out or not self.rpcs.out.can_write_more:
                break
        connection(self.rpcs, LIMITS)

    def leave(self) -> None:
        """However it went, it ends."""
        if self._how & 64:
            self.rpcs.life.drain(self.now, 5.0)
        for _ in range(400):
            if self.rpcs.is_closing:
                return
            due = self.rpcs.due
            must(due >= self.now - 1.0, "something is due that was due long ago")
            self.now = max(self.now, min(due, self.now + 100))
            self._take(self.rpcs.tick(self.now))
            self._send()
        raise Unsound("it never ends")


def _converse(said: bytes, stride: int, how: int) -> None:
    talk = Talk(how)
    for part in pieces(said, 1 + stride * 4):
        talk.hear(part)
    talk.leave()


# -- headers


def headers(data: bytes) -> None:
    """Header blocks one after the other, in any number of frames, padded or not: as if each had come in one piece."""
    blocks = HeaderBlocks(LIMITS)
    plain = hpack.Decoder(max_header_list_size=4 * LIMITS.header_bytes)
    at = 0
    while len(data) - at >= 3:
        cut, padding, size = data[at : at + 3]
        octets = data[at + 3 : at + 3 + size]
        at += 3 + size
        try:
            fields = _gathered(blocks, octets, cut, padding)
        except ConnectionFault as fault:
            must(fault.code in (Code.ENHANCE_YOUR_CALM, Code.COMPRESSION_ERROR), f"a fault of {fault.code!r}")
            return
        must(fields == _decoded(plain, octets), "fields depend on the frames that they came in")
        _read(fields)


def _gathered(blocks: HeaderBlocks, octets: bytes, cut: int, padding: int) -> Sequence[Field]:
    parts = list(pieces(octets, cut)) or [b""]
    pad = padding & 31
    block = None
    for number, part in enumerate(parts):
        flags = END_HEADERS if number == len(parts) - 1 else 0
        if number:
            block = blocks.continue_block(flags, 1, part)
        else:
            payload, flags = _dressed(part, flags, padding, pad)
            block = blocks.begin(flags | END_STREAM, 1, payload)
    must(block is not None and blocks.in_progress is None, "a block that is not over")
    must(block is not None and block.octets == octets, "a block is not what came")
    return blocks.decode(block) if block is not None else []


def _dressed(part: bytes, flags: int, padding: int, pad: int) -> tuple[bytes, int]:
    if padding & 64:
        part, flags = bytes(5) + part, flags | 0x20
    if padding & 32:
        part, flags = bytes((pad,)) + part + bytes(pad), flags | PADDED
    return part, flags


def _decoded(plain: hpack.Decoder, octets: bytes) -> list[Field]:
    return [(bytes(name), bytes(value)) for name, value in plain.decode(octets, raw=True)]


def _read(fields: Sequence[Field]) -> None:
    with suppress(StreamFault):
        request = read_request(fields)
        must(request.size == sum(32 + len(name) + len(value) for name, value in fields), "a header list's size")
        must(all(name == name.lower() for name, _ in request.fields), "a name in upper case")
        must(request.length is None or request.length >= 0, "a length below nothing")
        for key, value in metadata(request.fields):
            must(isinstance(value, bytes) == key.endswith("-bin"), "metadata of a wrong kind")
        with suppress(GrpcError):
            seconds = timeout(request.get(b"grpc-timeout"))
            must(seconds is None or 0 <= seconds < 1e12, "a timeout without bounds")
    with suppress(StreamFault):
        check_trailers(fields)


# -- messages


def messages(data: bytes) -> None:
    """Framing as gRPC has it, plain and gzip, cut anywhere; and the text of a status."""
    if len(data) < 3:
        return
    how, stride, body = data[0], data[1], data[2:]
    limit = (10, 300, 5_000, 70_000)[how >> 6]
    said = body if how & 1 else _packed(body)
    encoding = b"gzip" if how & 2 else b"identity"
    (one, status), (other, cut) = _unpacked(encoding, limit, said, 0), _unpacked(encoding, limit, said, stride + 1)
    must(status == cut, "what is wrong depends on where it is cut")
    must(one == other or (cut != "OK" and other[: len(one)] == one), "messages depend on where they are cut")
    _whole(encoding, limit, said)
    _said(body)


def _packed(script: bytes) -> bytes:
    """Messages with a length that is right; some are compressed, and some of those are not what they say."""
    found = []
    at = 0
    while len(script) - at >= 2:
        kind, size = script[at], script[at + 1]
        body = script[at + 2 : at + 2 + size]
        at += 2 + size
        if kind & 2:
            body *= 1 + 40 * (kind >> 4)
        if kind & 1:
            packer = zlib.compressobj(1, wbits=31)
            body = packer.compress(body) + packer.flush()
        if kind & 4:
            body = body[: len(body) // 2]
        if kind & 8:
            body += b"more"
        found.append(bytes((kind & 1,)) + wire.UINT32.pack(len(body)) + body)
    return b"".join(found)


def _unpacked(encoding: bytes, limit: int, said: bytes, stride: int) -> tuple[list[bytes], str]:
    reader = MessageReader(encoding, limit)
    found: list[bytes] = []
    try:
        for part in pieces(said, stride):
            found += reader.feed(part)
        reader.check_complete()
    except GrpcError as broken:
        return found, broken.status
    must(all(len(message) <= limit for message in found), "a message above the limit")
    return found, "OK"


def _whole(encoding: bytes, limit: int, said: bytes) -> None:
    """The short way says what the long one says."""
    message = MessageReader(encoding, limit).read_single(said)
    if message is not None:
        must(_unpacked(encoding, limit, said, 0) == ([message], "OK"), "the short way is another")


def _said(body: bytes) -> None:
    text = body.decode("utf-8", "surrogateescape" if body[:1] < b"\x80" else "replace")
    encoded = percent_encoded(text)
    must(all(0x20 <= byte <= 0x7E for byte in encoded), "a status that is not ASCII")
    must(len(trailers("ABORTED", text, alone=True)) < 8_192, "a status that clients refuse")
