"""Carries messages as bytes to an xDS server and back: open a stream, send, receive. It knows nothing of xDS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from ..core.model.truncation import TEXT_BYTES, bounded
from ..errors import PeerError
from .bootstrap import ServerConfig
from .credentials import Access

RECEIVE_BYTES = 64 * 1024 * 1024
REASON_SECONDS = 0.5  # for a call that is opened only to learn with which status the server ends it
CONNECT_SECONDS = 20.0  # MIN_CONNECT_TIMEOUT of gRPC's connection-backoff.md

# grpc.aio reports this instead of the server's status if a write meets the end of the stream (grpc#36066).
_OVERWRITTEN = "Internal error from Core"


_SAY_INSECURE = 'if it speaks plain text, add "channel_creds": [{"type": "insecure"}]'
_NAME_ITS_CA = 'add channel_creds of type "tls" with its ca_certificate_file'


class Ended(PeerError):
    """A stream has ended, or could not be opened; with the status and text of the server or of the transport."""


class ByteStream(Protocol):
    """One bidirectional RPC."""

    async def send(self, message: bytes) -> None:
        """Send a message. Raises Ended."""

    async def receive(self) -> bytes:
        """Receive a message. Raises Ended; its status is OK if the server ended the stream without an error."""

    def cancel(self) -> None:
        """Cancel the RPC. Idempotent."""


class Transport(Protocol):
    """A connection to one server, made on demand."""

    async def open(self, path: str) -> ByteStream:
        """Begin an RPC, and return once it is connected. Raises Ended."""

    async def close(self) -> None: ...


class GrpcTransport:
    """A gRPC channel to one server of the bootstrap.

    The channel is made on first use, and made again after a failure or when the credentials changed.
    """

    def __init__(
        self,
        server: ServerConfig,
        clock: Callable[[], float],
        receive_bytes: int = RECEIVE_BYTES,
        connect_seconds: float = CONNECT_SECONDS,
        credentials: Any = None,
    ) -> None:
        """credentials: grpc.ChannelCredentials, in case the bootstrap has none for this server (BST-2)."""
        self._server = server
        self._access = Access(server, given=credentials)
        self._clock = clock
        self._receive_bytes = receive_bytes
        self._connect_seconds = connect_seconds
        self._channel: Any = None
        self._closing: asyncio.Future[None] | None = None

    async def open(self, path: str) -> ByteStream:
        now = self._clock()
        metadata = self._access.metadata(now)
        if self._access.renew(now) or self._channel is None:
            await self.close()
            self._channel = self._connect()
        method = self._channel.stream_stream(path)
        stream = GrpcStream(lambda: method(metadata=metadata), self._server.uri)
        try:
            await stream.connected()
        except Ended as ended:
            # The core decides when to retry. A failed channel would retry by itself, at its own pace, and meanwhile
            # fail every call with its last error: close it. After UNIMPLEMENTED the channel is sound (PRX-33).
            if ended.status != "UNIMPLEMENTED":
                await self.close()
            raise Ended(ended.status, ended.message + self._hint(ended.message)) from None
        return stream

    async def close(self) -> None:
        """Close the channel. The closing completes even if the caller is cancelled, as nobody else could do it."""
        channel, self._channel = self._channel, None
        if channel is not None:
            self._closing = asyncio.ensure_future(channel.close())
        if self._closing is not None:
            await asyncio.shield(self._closing)

    def _hint(self, failure: str) -> str:
        """Return advice about a failed handshake, if TLS was the default and not the user's choice (BST-2)."""
        if not (self._access.is_tls_by_default and "handshake" in failure.lower()):
            return ""
        advice = _NAME_ITS_CA if "CERTIFICATE_VERIFY_FAILED" in failure else _SAY_INSECURE
        return f" (the bootstrap has no channel_creds for it, so TLS with the system's roots was tried: {advice})"

    def _connect(self) -> Any:
        options = (
            ("grpc.max_receive_message_length", self._receive_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", 60_000),
            # Despite its name this is how long a server may take to accept the connection and to send SETTINGS.
            ("grpc.min_reconnect_backoff_ms", int(self._connect_seconds * 1000)),
            ("grpc.use_local_subchannel_pool", 1),
        )
        credentials = self._access.channel_credentials
        if credentials is None:
            return grpc.aio.insecure_channel(self._server.uri, options=options)
        return grpc.aio.secure_channel(self._server.uri, credentials, options=options)


class GrpcStream:
    """One call of grpc.aio. `begin` starts the call, and can start another one to find out why it ended."""

    def __init__(self, begin: Callable[[], Any], server: str) -> None:
        self._begin = begin
        self._call = begin()
        self._server = server
        self._is_answered = False
        self._reason: asyncio.Task[Ended] | None = None

    async def connected(self) -> None:
        try:
            await self._call.wait_for_connection()
        except asyncio.CancelledError:
            self._call.cancel()  # nobody else could cancel it
            raise
        except grpc.aio.AioRpcError as error:
            raise await self._ended(error.code(), error.details()) from error

    async def send(self, message: bytes) -> None:
        try:
            await self._call.write(message)
        except asyncio.InvalidStateError:
            raise await self._status() from None
        except grpc.aio.AioRpcError as error:
            raise await self._ended(error.code(), error.details()) from error

    async def receive(self) -> bytes:
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise await self._ended(error.code(), error.details()) from error
        if message is grpc.aio.EOF:
            raise await self._status()
        self._is_answered = True
        return bytes(message)

    def cancel(self) -> None:
        self._call.cancel()

    async def _status(self) -> Ended:
        return await self._ended(await self._call.code(), await self._call.details())

    async def _ended(self, code: Any, details: str | None) -> Ended:
        """Return the error of a stream that ended; find the server's status if grpc.aio has lost it."""
        if details != _OVERWRITTEN:
            what = f"{self._server}: {bounded(details, TEXT_BYTES)}" if details else f"{self._server} ended the stream"
            return Ended(code.name, what)
        if self._is_answered:
            return self._unexplained()
        if self._reason is None:
            self._reason = asyncio.create_task(self._find_reason())
        return await asyncio.shield(self._reason)

    async def _find_reason(self) -> Ended:
        """Open a second call, without a message, to learn why the server ended the first one before any response.

        If the server does not have the method, it ends a call without messages in the same way.
        """
        call = self._begin()
        try:
            async with asyncio.timeout(REASON_SECONDS):
                code, details = await call.code(), await call.details()
        except TimeoutError:
            code = details = None
        finally:
            call.cancel()
        if not details or details == _OVERWRITTEN:
            return self._unexplained()
        return Ended(code.name, f"{self._server}: {bounded(details, TEXT_BYTES)}")

    def _unexplained(self) -> Ended:
        return Ended("UNAVAILABLE", f"{self._server} ended the stream")
