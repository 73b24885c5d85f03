"""What clients send above the transport: discovery requests, constraints, and requests over HTTP/1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import DecodeError
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from xdsprism.core.codec.client_status import CONDITIONS, decode_question
from xdsprism.core.codec.constraints import constraint_from_proto, constraint_to_proto
from xdsprism.core.codec.pieces import Piece, RequestPieces
from xdsprism.core.codec.server_requests import Decoder, Known
from xdsprism.core.codec.trimming import LARGE, discovery_request
from xdsprism.core.model.constraints import canonical
from xdsprism.core.model.events import DeltaRequest, Node, Request
from xdsprism.core.model.limits import Limits
from xdsprism.core.model.steps import Steps
from xdsprism.core.model.types import CLUSTER, PREFIX, ROUTE, Params
from xdsprism.core.serve.node_matchers import matching_any
from xdsprism.errors import PeerError, UsageError
from xdsprism.http2.limits import Limits as PortLimits
from xdsprism.messages.sensitive import is_secret_metadata
from xdsprism.server.connection_limits import ConnectionLimits
from xdsprism.server.http_port import HttpPort
from xdsprism.server.rest_json import read_request

from .script import Script
from .sound import must
from .texts import printable
from .transport import pieces as parts

T = TypeVar("T")

LIMITS = Limits(request_names=6, params=3)
V2 = PREFIX + "envoy.api.v2.Cluster"
TYPE_URLS = (CLUSTER, ROUTE, V2, "", PREFIX, "x" * 80, "type.googleapis.com/ü")

# Field numbers of the requests, and of what is in them, that are worth saying more often than others.
FIELDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 300)
NAMES = ("wanted", "subscribe", "unsubscribe")  # of the bodies of requests
VARINT, BYTES = 0, 2


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(payload)) + payload


def built(script: Script, depth: int = 4, times: int = 1) -> bytes:
    """A message of fields that are whole. Texts, messages in messages, numbers, and some that are none of these."""
    found = []
    for _ in range(1 + script.byte() % 6):
        number, kind = script.choice(FIELDS), script.byte()
        if kind < 0x50 and depth:
            found.append(field(number, built(script, depth - 1, times)))
        elif kind < 0x80:
            found.append(field(number, script.choice(TYPE_URLS).encode()))
        elif kind < 0xB0:
            found.append(field(number, script.text().encode("utf-8", "replace") * (times if kind & 1 else 1)))
        elif kind < 0xC0:
            found.append(field(number, script.raw(kind & 7)))
        elif kind < 0xD0:
            found.append(varint(number << 3 | VARINT) + varint(script.byte()))
        elif kind < 0xE0 and found and len(found[-1]) < 20_000:
            found.append(found[-1] * (1 + (kind & 15)))
        elif kind < 0xE8:
            found.append(varint(number << 3 | script.byte() & 7) + script.raw(kind & 15))
        else:
            found.append(field(number, b"ab\xff" * (kind & 3)))
    return b"".join(found)


def run(steps: Steps[T]) -> T:
    """All at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found


def attempt(work: Callable[[], T]) -> T | str:
    """What it returns, or as what it is refused."""
    try:
        return work()
    except PeerError as error:
        str(error).encode()
        return error.status


def requests(data: bytes) -> None:
    """Requests of one stream, one after the other: read at once, in steps, and by a server that read them before."""
    script = Script(data)
    how = script.byte()
    delta, names = bool(how & 1), ("env", "a.b", "node.id") if how & 2 else None
    known: Known = {False: {}, True: {}}
    decoders = [Decoder(delta=delta, limits=LIMITS, known=each, node_params=names) for each in (None, known, known)]
    stepped = Decoder(delta=delta, limits=LIMITS, node_params=names)
    for _ in range(4):
        message = script.rest() if how & 4 else built(script)
        if how & 8 and message:
            message = Piece(message)
        found = [attempt(partial(each.decode, message)) for each in decoders]
        found.append(attempt(partial(_in_steps, stepped, message)))
        alike = all(_told(each) == _told(found[0]) for each in found)
        # The node of a later request is skipped unread only where it is in front: a malformed one is refused elsewhere.
        must(alike or not _is_message(message, delta=delta), "a request is read in another way")
        if isinstance(found[0], str) or not alike:
            return
        _request(found[0], delta=delta)
        if not script:
            return


def statuses(data: bytes) -> None:
    """Questions about clients (CSDS). Two nodes that differ in what is hidden have to look the same to any matcher."""
    script = Script(data)
    names = ("labels.app", "replicas") if script.byte() & 1 else None
    found = attempt(partial(decode_question, script.rest(), names))
    if isinstance(found, str):
        must(found == "INVALID_ARGUMENT", f"a question about clients is refused as {found}")
        return
    must(len(found.matchers) <= CONDITIONS, "a question has more conditions than it may")
    named = Params({"labels.app": "shop", "replicas": "3"})
    nodes = [Node("web-1", metadata=Params({"env": "prod", "token": token}), named=named) for token in ("a", "prod")]
    first, second = [run(matching_any(found.matchers, node, is_secret_metadata)) for node in nodes]
    must(first == second, "a matcher tells what is hidden")
    must(first or found.matchers, "a question about all clients is not about all")


def _is_message(message: bytes, *, delta: bool) -> bool:
    try:
        (pb.DeltaDiscoveryRequest if delta else pb.DiscoveryRequest).FromString(message)
    except DecodeError:
        return False
    return True


def _in_steps(decoder: Decoder, message: bytes) -> Request:
    return run(decoder.decoding(message))


def _told(found: Request | str) -> object:
    """A request, whatever the order of its names: in steps, those that are not UTF-8 come elsewhere."""
    if isinstance(found, str):
        return found
    lists = {name: value for name in NAMES if isinstance(value := getattr(found.body, name, None), tuple)}
    body = replace(found.body, **{name: tuple(sorted(keys, key=repr)) for name, keys in lists.items()})  # type: ignore[arg-type]
    return replace(found, body=body)


def _request(found: Request, *, delta: bool) -> None:
    must(isinstance(found.body, DeltaRequest) == delta, "a request of the other protocol")
    must(found.unread >= 0, "names that were not read")
    found.type_url.encode()


def pieces(data: bytes) -> None:
    """A request that is too large, in parts: the same names, wherever its bytes are cut."""
    script = Script(data)
    how, stride = script.byte(), script.byte()
    message = script.rest() if how & 1 else b"".join(built(script, 3, 8) for _ in range(1 + how % 5))
    one, other = attempt(lambda: _pieces(message, 0)), attempt(lambda: _pieces(message, stride + 1))
    must(isinstance(one, str) == isinstance(other, str), "it matters where the bytes are cut")
    if isinstance(one, str) or isinstance(other, str):
        return
    must(_fields(one) == _fields(other), "names depend on where the bytes are cut")
    try:
        whole = pb.DeltaDiscoveryRequest.FromString(message)
    except DecodeError:
        return
    if all(len(name) < 40 for name in whole.resource_names_subscribe):
        must(_fields(one) == list(whole.resource_names_subscribe), "names are lost, or made up")


def _pieces(message: bytes, stride: int) -> list[bytes]:
    reader = RequestPieces(200)
    found: list[bytes] = []
    for part in parts(message, stride):
        found += reader.feed(part)
        must(reader.held <= 1_000, "a request that is parted is kept as a whole")
    return found + reader.end()


def _fields(found: list[bytes]) -> list[str] | None:
    try:
        return [name for part in found for name in pb.DeltaDiscoveryRequest.FromString(part).resource_names_subscribe]
    except DecodeError:
        return None


def trimming(data: bytes) -> None:
    """A long request: what is cut from it before it is parsed is what a server does not use."""
    script = Script(data)
    how = script.byte()
    delta, names = bool(how & 1), ("env", "a.b") if how & 2 else None
    times = (1, 20, 200, 600)[how >> 6]
    message = built(script, 5, times)
    if len(message) > 4 * LARGE:
        return
    if how & 4:
        message = field(15, bytes(LARGE)) + message
    trimmed = attempt(lambda: run(discovery_request(delta=delta, limits=LIMITS, names=names)(message)))
    if isinstance(trimmed, str):
        must(not _parses(message, delta=delta), "a request that can be read is refused")
        return
    must(len(trimmed) <= len(message), "a trimmed request is longer")
    must(_parses(trimmed, delta=delta) or not _parses(message, delta=delta), "a trimmed request can't be read")
    at_once = attempt(lambda: Decoder(delta=delta, limits=LIMITS, node_params=names).decode(message))
    in_steps = attempt(lambda: run(Decoder(delta=delta, limits=LIMITS, node_params=names).decoding(message)))
    must(isinstance(in_steps, Request) or isinstance(at_once, str), "a long request that can be read is refused")
    if isinstance(at_once, Request) and isinstance(in_steps, Request):
        must(_told(at_once) == _told(in_steps), "a server uses what was trimmed")


def _parses(message: bytes, *, delta: bool) -> bool:
    try:
        Decoder(delta=delta, limits=LIMITS).decode(message)
    except PeerError:
        return False
    return True


def constraints(data: bytes) -> None:
    """Constraints of a server: any bytes, or a tree of them."""
    script = Script(data)
    message = _tree(script, 34) if script.byte() & 1 else script.rest()
    try:
        proto = pb.DynamicParameterConstraints.FromString(message)
        found = constraint_from_proto(proto)
    except DecodeError:
        return
    except UsageError as error:
        str(error).encode()
        return
    must(canonical(constraint_from_proto(constraint_to_proto(found))) == canonical(found), "another message")
    try:
        printable(found, at_once=False)
    except UsageError as error:
        must("deep" in str(error) or "large" in str(error), f"what is printed can't be read: {error}")


def _tree(script: Script, depth: int) -> bytes:
    kind = script.byte()
    if not depth or kind < 0x40:
        value = field(2, script.text().encode()) if kind & 1 else field(3, b"")
        return field(1, field(1, script.text().encode()) * (kind != 2) + value * (kind != 3))
    if kind < 0x80:
        return field(4, _tree(script, depth - 1))
    if kind < 0xFF:
        return field(2 + (kind & 1), b"".join(field(1, _tree(script, depth - 1)) for _ in range(kind >> 1 & 3)))
    return field(9, b"")


def rest(data: bytes) -> None:
    """The body of a REST request: what is accepted is a request as gRPC would carry it."""
    try:
        message = read_request(data)
    except PeerError as error:
        must(error.status == "INVALID_ARGUMENT", f"a body is refused with {error.status}")
        str(error).encode("utf-8", "surrogatepass")
        return
    Decoder(delta=False, limits=LIMITS).decode(message)


# -- HTTP/1


class Wire(asyncio.Transport):
    """What the peer of a connection is sent."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 9), "sockname": ("127.0.0.1", 80)})
        self.said = bytearray()
        self.is_over = False

    def write(self, data: Any) -> None:
        self.said += data

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


async def _page(request: HttpRequest) -> Response:
    return PlainTextResponse(f"{len(await request.body())}")


class Port:
    """A port that listens nowhere."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._fail)
        self.failed: list[str] = []
        self.limits = ConnectionLimits(PortLimits(), self.loop.time, is_admin=True)
        app = Starlette(routes=[Route("/", _page, methods=["GET", "POST"])])
        self._port = HttpPort(app, "127.0.0.1:0", "fuzz", connection_limits=self.limits)
        self._port._socket.close()
        self._server = self._port._server
        self._server.config.load()

    def _fail(self, _: object, context: dict[str, Any]) -> None:
        self.failed.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def talk(self, said: bytes, stride: int) -> bytes:
        make: Any = self._server.config.http_protocol_class
        connection = make(config=self._server.config, server_state=self._server.server_state, app_state={})
        wire = Wire()
        connection.connection_made(wire)
        for part in parts(said, stride):
            if wire.is_over:
                break
            connection.data_received(part)
            await self._settle(2)
        connection.eof_received()
        connection.connection_lost(None)
        await self._settle()
        must(not self._server.server_state.connections, "a connection that is lost is kept")
        must(not self._server.server_state.tasks, "a request of a connection that is lost goes on")
        return bytes(wire.said)

    @staticmethod
    async def _settle(turns: int = 12) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)


@lru_cache(1)
def _port() -> Port:
    return Port()


LINES = (
    "GET / HTTP/1.1\r\n",
    "POST / HTTP/1.1\r\n",
    "host: a\r\n",
    "content-length: 3\r\n",
    "transfer-encoding: chunked\r\n",
    "\r\n",
    "abc",
    "3\r\nabc\r\n",
    "0\r\n\r\n",
    "connection: close\r\n",
    "connection: upgrade\r\nupgrade: websocket\r\n",
    "expect: 100-continue\r\n",
    "GET /%ff?a=%zz HTTP/1.1\r\n",
    "GET http://a/ HTTP/1.0\r\n",
    "x: " + "y" * 300 + "\r\n",
    " folded\r\n",
    "origin: http://b\r\n",
    "content-length: 99999999999999999999\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\n",
    "\n",
    "\0",
    "ü",
    "upgrade: h2c\r\n",
    "HEAD / HTTP/1.1\r\n",
    "content-length: -1\r\n",
    "GET * HTTP/1.1\r\n",
)


def http1(data: bytes) -> None:
    """A connection of HTTP/1: any bytes, or lines of requests, cut anywhere."""
    script = Script(data)
    how, stride = script.byte(), script.byte()
    said = script.rest() if how & 1 else "".join(script.choice(LINES) for _ in range(min(len(data), 20))).encode()
    port = _port()
    answers = [port.loop.run_until_complete(port.talk(said[:1_000], each)) for each in (0, 8 + stride)]
    must(not port.failed, f"an error that nobody handles: {port.failed}")
    for each in answers:
        must(not each or each.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")), "an answer that is no HTTP")
        must(b"HTTP/1.1 500" not in each, "an error of ours")
