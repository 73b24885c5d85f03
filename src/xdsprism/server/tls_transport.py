"""TLS between a socket's transport and an asyncio protocol: it is a protocol to the one, and a transport to the other.

An event loop's own TLS writes each record to the socket separately, and reads until OpenSSL raises because there is no
more; both cost more than the encryption. This layer encrypts everything that is written at once for one write, and
reads whole records, so that the bytes that are left tell whether there is another.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

RECORD = 16 * 1024  # bytes in one record at most (RFC 8446, section 5.1)


class Inner(Protocol):
    """The protocol that runs over TLS: the methods of asyncio.Protocol that are used here."""

    def connection_made(self, transport: Any) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...


class TlsTransport(asyncio.Protocol):
    """The TLS layer of one connection, from the handshake to close_notify."""

    __slots__ = (
        "_closing",
        "_error",
        "_incoming",
        "_inner",
        "_linger",
        "_make",
        "_outgoing",
        "_timer",
        "_tls",
        "_transport",
        "agreed",
    )

    def __init__(self, context: ssl.SSLContext, make: Callable[[], Inner], linger: float) -> None:
        """`make` builds the inner protocol after the handshake. `linger`: seconds for the client to close after us."""
        self._make = make
        self._linger = linger
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._transport: Any = None
        self._inner: Inner | None = None
        self._closing = False
        self._error: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.agreed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- protocol of the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._incoming.write(data)
        try:
            if self._inner is not None or self._shake_hands():
                self._read()
        except ssl.SSLError as error:
            self._fail(error)

    def eof_received(self) -> bool:
        return False  # close, also without a close_notify from the client

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        inner, self._inner = self._inner, None
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if not self.agreed.done():
            self.agreed.set_exception(error or ConnectionResetError("the connection was closed"))
        if inner is not None:
            inner.connection_lost(error or self._error)

    def give_up(self) -> None:
        """Abort the connection: the handshake failed or took too long."""
        if not self.agreed.cancel() and not self.agreed.cancelled():
            self.agreed.exception()  # mark it as retrieved, or asyncio logs it
        if self._transport is not None and not self._closing:
            self.abort()

    # -- transport of the inner protocol

    def write(self, data: bytes) -> None:
        if self._closing or not data:
            return
        written = self._tls.write(data)
        if written < len(data):  # more than one record
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[self._tls.write(rest) :]
        self._transport.write(self._outgoing.read())

    def close(self) -> None:
        """Send close_notify, and wait for the client to close: a close with unread input would lose our last data."""
        if self._closing:
            return
        self._closing = True
        with suppress(ssl.SSLError):  # it raises, since the client's close_notify is not here yet
            self._tls.unwrap()
        self._hang_up()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._closing or bool(self._transport.is_closing())

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return int(self._transport.get_write_buffer_size())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._tls.context
        return self._tls if name == "ssl_object" else self._transport.get_extra_info(name, default)

    # -- inside

    def _shake_hands(self) -> bool:
        """Go on with the handshake. Return whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        self._flush()
        self._inner = self._make()
        self._inner.connection_made(self)
        if not self.agreed.done():
            self.agreed.set_result(None)
        return True

    def _read(self) -> None:
        """Decrypt all received records, and pass them on as one piece.

        The inner protocol decides by the size whether to pause reading, so it must see everything at once.
        """
        incoming, tls = self._incoming, self._tls
        records: list[bytes] = []
        is_closed = False
        try:
            while incoming.pending:
                data = tls.read(RECORD)  # OpenSSL returns one record at most, so it keeps nothing of it
                if not data:
                    is_closed = True  # close_notify
                    break
                records.append(data)
        except ssl.SSLWantReadError:  # part of a record
            pass
        finally:
            if records and self._inner is not None:
                self._inner.data_received(records[0] if len(records) == 1 else b"".join(records))
        if is_closed:
            self.close()
        elif self._outgoing.pending:  # frames of TLS itself, such as a key update
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _fail(self, error: ssl.SSLError) -> None:
        """Send the alert that OpenSSL prepared, and close."""
        self._closing = True
        self._error = error.with_traceback(None)  # whose frames would form a reference cycle
        if not self.agreed.done():
            self.agreed.set_exception(error)
        self._hang_up()

    def _hang_up(self) -> None:
        transport = self._transport
        self._flush()
        if not transport.is_closing():
            with suppress(OSError):  # the client may have closed already
                transport.write_eof()
            self._timer = asyncio.get_running_loop().call_later(self._linger, transport.abort)
