"""Serve gRPC methods with grpc.aio: the transport loop around each call, without any xDS.

`GrpcioEngine` is the server: options, TLS, start, stop. `Conversation` runs one RPC by the contract of calls.py: one
task reads messages into `Call.receive`, another writes what `Call.poll` returns, and sleeps until the call wakes it.

engine_h2.py does the same on a transport of our own. This engine has fewer limits, since grpc hides connections and
buffers. Comments below say where that matters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing, suppress
from math import inf
from typing import Any

import grpc
import grpc.aio

from ..errors import PeerError, UsageError
from ..http2.codes import Code
from ..http2.facts import CallRefused, Fact, Limited, RefusalCause
from ..http2.grpc import GrpcError, PiecesFactory, inflated
from ..http2.limits import Limit, Limits, Times
from .addresses import find_fault, why_not
from .calls import DETAILS, Call, CallPort, Method, Peer, reason_of, status_of
from .certificates import identities_of, proved_by
from .connection_limits import connections_for, descriptor_limit
from .large_messages import LARGEST, LargeMessages
from .tls import Material

log = logging.getLogger("xdsprism.server")

OPTIONS = (
    ("grpc.max_send_message_length", -1),
    # grpc inflates 58 kB of gzip to 60 MB before it calls us, and limits that only by its limit on messages. So it is
    # told to hand us messages as they came, and we inflate them. Identity is bit 0 and gzip bit 2; a call with another
    # encoding ends with UNIMPLEMENTED.
    ("grpc.per_message_decompression", 0),
    ("grpc.compression_enabled_algorithms_bitset", 0b101),
    # Keep the window of a stream that nobody reads at 64 KiB. With its own measuring, grpc widens it to 128 MiB, and
    # keeps whatever a client then sends into it.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.so_reuseport", 0),  # two servers on one port by mistake must fail, not share
    # Envoy and gRPC send keepalive pings; do not answer those with GOAWAY.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)

# As many streams on a connection as in http2/: an Envoy may have one for each cluster. Each stream can make grpc hold a
# message of up to LARGEST before we see it (docs/limits.md).
LIMITS = Limits()
GZIP = b"\x1f\x8b"  # how gzip begins, and no protobuf message: 0x1f is a field of wire type 7, which does not exist
AGE_GRACE = Times().age_grace
# To grpc a call is over when its last bytes are in a buffer of grpc's own, and grpc does not tell when they have left
# it. If a client took more than SLOW seconds to end its streams, it has LINGER seconds to read the rest before the
# process may end.
SLOW = 0.05
LINGER = 0.5
# Sometimes grpc loses a call that arrives while the server stops, and would wait for it until the grace is over. So,
# once every call that we know of is over, grpc has so many seconds to send their last bytes.
LAST_BYTES = 5.0


class GrpcioEngine(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """A gRPC server for methods that take and return bytes, on grpc.aio."""

    def __init__(
        self,
        methods: Iterable[Method],
        *,
        receive_bytes: int,
        limits: Limits = LIMITS,
        times: Times | None = None,
        age: float | None = None,
        tls: Material | None = None,
    ) -> None:
        """Make a server for these methods. It serves after `start`.

        Of `limits`, grpc can enforce those on connections, and on streams per connection; of `times`, `preface` and
        `idle_connection`, and the engine itself `first_request`. `age`: seconds until a connection drains, to which
        grpc adds up to a tenth, or takes it off. grpc only announces that to the client (GOAWAY). We have to end the
        streams, later than grpc announces it, so `_longest` is a tenth more.
        """
        self._longest = age * 1.1 if age is not None else None
        self._methods = {method.path: method for method in methods}
        self._calls: set[Call] = set()
        self._idle = asyncio.Event()  # set while no call is in progress
        self._idle.set()
        self._ends: float | None = None  # once the server stops: when its last call must be over
        self._tls = tls
        times = times or Times()
        self._first_request = times.first_request
        # These get refused calls only: grpc does not report other events of its connections.
        self.readers: list[Callable[[Sequence[Fact]], None]] = []
        self._large = LargeMessages(receive_bytes)
        largest = max(receive_bytes, LARGEST)  # over all methods: grpc has no limit per method
        options: tuple[tuple[str, int], ...] = (
            *OPTIONS,
            ("grpc.max_receive_message_length", largest),
            # By default grpc refuses headers above 8 kB by chance, the more often the nearer they are to 16: a client
            # with a long token would get in now and then. With both limits alike it is always or never.
            ("grpc.max_metadata_size", LIMITS.header_bytes),
            ("grpc.absolute_max_metadata_size", LIMITS.header_bytes),
            ("grpc.max_concurrent_streams", limits.streams),
            ("grpc.max_allowed_incoming_connections", min(limits.connections, connections_for(descriptor_limit()))),
            ("grpc.server_handshake_timeout_ms", round(times.preface * 1_000)),
            *_idle(times.idle_connection),
        )
        if age is not None:
            grace = round(AGE_GRACE * 1_000)
            options += (("grpc.max_connection_age_ms", round(age * 1_000)), ("grpc.max_connection_age_grace_ms", grace))
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self,))

    @property
    def open_calls(self) -> int:
        """Return the number of calls in progress."""
        return len(self._calls)

    async def start(self, listen: str) -> str:
        """Bind and serve. Return the address, with the port that was chosen for port 0."""
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(listen)
            else:
                port = self._server.add_secure_port(listen, self._credentials(self._tls))
        except RuntimeError as error:
            fault = await find_fault(asyncio.get_running_loop(), listen)  # grpc does not say why it can't bind
            why = why_not(listen, fault) if fault is not None else str(error)
            raise UsageError(f"can't listen on {listen}: {why}") from error
        await self._server.start()
        return f"{listen.rpartition(':')[0]}:{port}"

    async def stop(self, grace: float) -> None:
        """Let every stream end cleanly. After `grace` seconds, end those that did not."""
        began = asyncio.get_running_loop().time()
        self._ends = began + grace
        for call in list(self._calls):
            call.drain(self._ends)
        # grpc refuses new calls from here on. Wait for its own end, or for that of all calls that we know of.
        stopping = asyncio.create_task(self._server.stop(grace))
        calls_over = asyncio.create_task(self._outlast_calls())
        try:
            await asyncio.wait((stopping, calls_over), return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                stopping.cancel()
                await asyncio.wait((stopping,))
                await self._server.stop(None)  # end at once whatever grpc still takes for a call
        finally:
            stopping.cancel()
            calls_over.cancel()
        await self._idle.wait()  # grpc does not wait for the calls that it cancels
        if asyncio.get_running_loop().time() - began > SLOW:
            await asyncio.sleep(LINGER)

    async def _outlast_calls(self) -> None:
        """Wait until every call that we know of is over, and its last bytes have had time to leave."""
        while True:
            await self._idle.wait()
            await asyncio.sleep(LAST_BYTES)
            if self._idle.is_set():
                return

    def secure(self, tls: Material) -> None:
        """Use this certificate for new connections. A plain server can't change to TLS while it serves."""
        self._tls = tls

    def _credentials(self, tls: Material) -> Any:
        """Return credentials. At each handshake grpc asks, in a thread of its own, whether there are new ones."""
        given = tls

        def fetch() -> Any:
            nonlocal given
            current = self._tls
            # None tells grpc that nothing is new.
            if current is None or current is given:
                return None
            given = current
            return _configuration(current)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(tls), fetch, require_client_authentication=tls.client_ca is not None
        )

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a method, for grpc."""
        path = handler_call_details.method
        method = self._methods.get(path)
        if method is None:  # grpc's own status would not name the method
            return grpc.stream_stream_rpc_method_handler(self._refusing(path))

        async def serve(_: object, context: Any) -> None:
            await self._serve(method, context)

        return grpc.stream_stream_rpc_method_handler(serve)

    def _refusing(self, path: str) -> Callable[[object, Any], Awaitable[None]]:
        """Return a handler that refuses a method which does not exist."""

        async def refuse(_: object, context: Any) -> None:
            for reader in self.readers:
                reader([CallRefused(context.peer(), RefusalCause.METHOD, path)])  # OPS-15
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no method {path}"[:DETAILS])

        return refuse

    def _report_silence(self, peer: str) -> None:
        for reader in self.readers:
            reader([Limited(peer, Limit.FIRST_REQUEST, Code.NO_ERROR, connection=False)])

    async def _serve(self, method: Method, context: Any) -> None:
        """Run one call from its beginning to its end."""
        call = method.open(_peer_of(context))
        self._calls.add(call)
        self._idle.clear()
        if self._ends is not None:  # the call was on its way when the server began to stop
            call.drain(self._ends)
        timer: asyncio.TimerHandle | None = None
        if self._longest is not None:
            loop = asyncio.get_running_loop()
            # grpc announces the end of an old connection (GOAWAY), but it is up to us to end its streams.
            old = loop.time() + self._longest
            timer = loop.call_at(old, call.drain, old + AGE_GRACE)
        try:
            conversation = Conversation(call, context, self._large, method.parting)
            await conversation.run(self._first_request, self._report_silence)
        finally:
            if timer is not None:
                timer.cancel()
            self._calls.discard(call)
            if not self._calls:
                self._idle.set()


def _idle(seconds: float) -> tuple[tuple[str, int], ...]:
    """Return grpc's option for connections without streams; without it, grpc lets them be."""
    return (("grpc.max_connection_idle_ms", max(round(seconds * 1_000), 1)),) if seconds < inf else ()


class Conversation(CallPort):
    """One RPC. It reads and writes at the same time: a client that does not read may still send.

    grpc.aio accepts no status while a write is in progress, so a write is never abandoned. Whatever ends the call waits
    for the write, unless grpc cancels everything because the client is gone.
    """

    def __init__(self, call: Call, context: Any, large: LargeMessages, parting: PiecesFactory | None = None) -> None:
        self._call = call
        self._context = context
        self._large = large
        self._parting = parting
        self._awake = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._ended = False
        self._has_heard = False  # the client sent a message
        self._error: Exception | None = None
        call.attach(self)

    async def run(self, first_request: float = inf, report: Callable[[str], None] = lambda _: None) -> None:
        """Run the RPC: read in one task and write in this one, until either ends it.

        `first_request`: seconds for the client to send its first message. `report` is called if it sends none.
        """

        def end_if_silent() -> None:
            if not self._has_heard and not self._ended:
                report(self._context.peer())
                text = f"no request came within {first_request:g} seconds: send one once the stream is open"
                self._end(PeerError("DEADLINE_EXCEEDED", text))
                self._awake.set()

        reader = asyncio.create_task(self._read())
        loop = asyncio.get_running_loop()
        timer = loop.call_later(first_request, end_if_silent) if first_request < inf else None
        try:
            await self._write()
        # The client is gone: no status can be sent.
        except grpc.aio.BaseError:
            self._end()
            await _cancelled()
        except Exception as error:  # noqa: BLE001 # OPS-10: whatever it is, it ends this stream and no other
            self._end(error)
        finally:
            if timer is not None:
                timer.cancel()
            reader.cancel()
            self._end()
        await self._tell()

    async def _read(self) -> None:
        """Give each message of the client to the call. An error ends the call."""
        try:
            while (message := await self._context.read()) is not grpc.aio.EOF:
                self._has_heard = True
                if message.startswith(GZIP):
                    message = _inflated(message, self._large.limit)
                if len(message) > self._large.limit:
                    await self._receive_parts(message)
                else:
                    self._call.receive(message)
                del message  # otherwise it would stay in memory until the next one: a first request may be large
                await self._may_read.wait()  # while the call is busy, let the client wait, and not our memory
            self._call.half_close()
        except grpc.aio.BaseError:
            return  # the server stopped during the call; grpc cancels the rest
        except PeerError as error:
            self._end(error.with_traceback(None))  # a traceback would hold the message until the client can be told
        except Exception as error:  # noqa: BLE001 # OPS-10
            self._end(error)  # at once: a client that does not read may take long to be told
        self._awake.set()

    async def _receive_parts(self, message: bytes) -> None:
        """Give a message above the limit to the call in parts, one at a time."""
        with closing(self._large.parts(message, self._parting)) as parts:
            for part in parts:
                if part is None:
                    await asyncio.sleep(0)
                else:
                    self._call.receive(part)
                    await self._may_read.wait()  # one part at a time

    async def _write(self) -> None:
        """Write what the call has to send, as fast as the client reads it. Sleep until there is more."""
        while not self._ended:
            self._awake.clear()
            last = self._call.finished  # if it is set only while we write, a further poll may have something to send
            for message in self._call.poll():
                await self._context.write(message)
                del message  # otherwise it would stay in memory while the stream sleeps: a first response may be large
                if self._ended:
                    return
            if last and not self._call.is_busy:
                return
            await self._sleep()

    def wake(self) -> None:
        """Have the writing task poll the call."""
        self._awake.set()

    def hold_back(self, *, waits: bool) -> None:
        """Stop reading messages, or go on."""
        (self._may_read.clear if waits else self._may_read.set)()

    async def _sleep(self) -> None:
        """Sleep until the call wakes, or until its deadline."""
        deadline = self._call.deadline()
        timer = asyncio.get_running_loop().call_at(deadline, self._awake.set) if deadline is not None else None
        try:
            await self._awake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _end(self, error: Exception | None = None) -> None:
        """Close the call. The first reason counts."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        try:
            self._call.close("" if error is None else reason_of(error))
        except Exception:
            log.exception("a stream could not be closed")

    async def _tell(self) -> None:
        """Send the status of the error that ended the call. Without one, grpc ends the call with OK."""
        error = self._error
        if error is None:
            return
        if not isinstance(error, PeerError):
            log.error("a stream failed", exc_info=error)
        status, details = status_of(error)
        with suppress(grpc.aio.InternalError):  # the client left before it could be told
            await self._context.abort(grpc.StatusCode[status], details)


def _inflated(message: bytes, limit: int) -> bytes:
    """Return the message without gzip. Raises PeerError if it becomes too large, or is not valid gzip."""
    try:
        return inflated(message, limit)
    except GrpcError as error:
        refusal = PeerError(error.status, error.message)
    raise refusal  # out here it has no context, which would hold the message until the client can be told


def _configuration(tls: Material) -> Any:
    return grpc.ssl_server_certificate_configuration([(tls.key, tls.certificate)], tls.client_ca)


def _peer_of(context: Any) -> Peer:
    """Return who calls: the address, the identities of the client's certificate, and authorization headers."""
    shown = context.auth_context().get("x509_pem_cert", ())
    said = tuple(value for name, value in context.invocation_metadata() or () if name == "authorization")
    if not shown:
        return Peer(context.peer(), (), said)
    return Peer(context.peer(), identities_of(shown[0]), said, proved_by(shown[0]))


async def _cancelled() -> None:
    """Wait until grpc cancels this task: the client left during a write, and grpc accepts no status any more."""
    await asyncio.get_running_loop().create_future()
