"""A transport to an xDS server is three methods of bytes: open, send, receive. No protocol in here."""

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
REASON_SECONDS = 0.5  # for a call that is opened only to see how it ends
CONNECT_SECONDS = 20.0  # MIN_CONNECT_TIMEOUT of gRPC's connection-backoff.md

# grpc.aio puts this in place of the status that the server gave, where a write meets the end of a stream (grpc#36066).
_OVERWRITTEN = "Internal error from Core"


_SAY_INSECURE = 'if it speaks plain text, add "channel_creds": [{"type": "insecure"}]'
_NAME_ITS_CA = 'add channel_creds of type "tls" with its ca_certificate_file'


class Ended(PeerError):
    """A stream is over, or never began: the status and the text that the other end gave, or the transport."""


class ByteStream(Protocol):
    """One RPC: messages both ways."""

    async def send(self, message: bytes) -> None:
        """Raises Ended."""

    async def receive(self) -> bytes:
        """Raises Ended; its status is OK where the server finished in good order."""

    def cancel(self) -> None:
        """Let go of it. May be said at any time."""


class Transport(Protocol):
    """A way to one server."""

    async def open(self, path: str) -> ByteStream:
        """Begin an RPC; it is connected when this returns. Raises Ended."""

    async def close(self) -> None: ...


class GrpcTransport:
    """gRPC, as the bootstrap says.

    The channel is made when it is first used, and again after it failed or when credentials changed.
    """

    def __init__(
        self,
        server: ServerConfig,
        clock: Callable[[], float],
        receive_bytes: int = RECEIVE_BYTES,
        connect_seconds: float = CONNECT_SECONDS,
        credentials: Any = None,
    ) -> None:
        """credentials: grpc.ChannelCredentials, where the bootstrap names none for this server (BST-2)."""
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
            # Retrying is decided in the core. A channel that failed goes on trying by itself, at a pace of its own, and
            # meanwhile has nothing but its last failure for every call. One without a method has not failed (PRX-33).
            if ended.status != "UNIMPLEMENTED":
                await self.close()
            raise Ended(ended.status, ended.message + self._hint(ended.message)) from None
        return stream

    async def close(self) -> None:
        """Close the connection, also if whoever waits for that is cancelled: nobody else has the channel any more."""
        channel, self._channel = self._channel, None
        if channel is not None:
            self._closing = asyncio.ensure_future(channel.close())
        if self._closing is not None:
            await asyncio.shield(self._closing)

    def _hint(self, failure: str) -> str:
        """What to do about a TLS handshake that failed where nobody had asked for TLS (BST-2)."""
        if not (self._access.is_tls_by_default and "handshake" in failure.lower()):
            return ""
        advice = _NAME_ITS_CA if "CERTIFICATE_VERIFY_FAILED" in failure else _SAY_INSECURE
        return f" (the bootstrap has no channel_creds for it, so TLS with the system's roots was tried: {advice})"

    def _connect(self) -> Any:
        options = (
            ("grpc.max_receive_message_length", self._receive_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", 60_000),
            # It says "reconnect backoff", and is how long a server may take to accept and to say its first word.
            ("grpc.min_reconnect_backoff_ms", int(self._connect_seconds * 1000)),
            ("grpc.use_local_subchannel_pool", 1),
        )
        credentials = self._access.channel_credentials
        if credentials is None:
            return grpc.aio.insecure_channel(self._server.uri, options=options)
        return grpc.aio.secure_channel(self._server.uri, credentials, options=options)


class GrpcStream:
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
            self._call.cancel()  # nobody else has it yet
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
        if details != _OVERWRITTEN:
            what = f"{self._server}: {bounded(details, TEXT_BYTES)}" if details else f"{self._server} ended the stream"
            return Ended(code.name, what)
        if self._is_answered:
            return self._unexplained()
        if self._reason is None:
            self._reason = asyncio.create_task(self._find_reason())
        return await asyncio.shield(self._reason)

    async def _find_reason(self) -> Ended:
        """Why a server ends a call before any answer: if it does not have the method, it ends a silent one as well."""
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
