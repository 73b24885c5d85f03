"""TLS between a socket and what is spoken over it: to either side it is what the other expects.

A loop's own TLS encrypts and writes each piece by itself, and reads on until OpenSSL complains that there is no more;
both cost more than the encryption. This one encrypts what is written in one go, for one write, and knows from the
length of what is left whether to read again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

RECORD = 16 * 1024  # bytes; RFC 8446, section 5.1: no record holds more


class Inner(Protocol):
    """What is spoken over it."""

    def connection_made(self, transport: Any) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...


class Secured(asyncio.Protocol):
    """One connection. A protocol to the socket's transport, and a transport to the protocol inside."""

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
        """`make` is called when both sides agree; `linger`: seconds that a peer has to hang up after our goodbye."""
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

    # -- to the socket

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
        return False  # whoever leaves without a goodbye is gone all the same

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
        """There was no agreement, and there will be none."""
        if not self.agreed.cancel() and not self.agreed.cancelled():
            self.agreed.exception()  # whoever gave up need not hear of it
        if self._transport is not None and not self._closing:
            self.abort()

    # -- to what is inside

    def write(self, data: bytes) -> None:
        if self._closing or not data:
            return
        written = self._tls.write(data)
        if written < len(data):  # it is more than goes into one record
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[self._tls.write(rest) :]
        self._transport.write(self._outgoing.read())

    def close(self) -> None:
        """Say goodbye, and wait until the peer hangs up: what lies unread then would make it lose our last words."""
        if self._closing:
            return
        self._closing = True
        with suppress(ssl.SSLError):  # as it does: the answer is not there yet
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
        """Whether both sides agree now."""
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
        """Hand all that came at once over at once, or who is inside could not know how much it is, and pause."""
        incoming, tls = self._incoming, self._tls
        records: list[bytes] = []
        left, is_goodbye = incoming.pending, False
        try:
            while left:
                data = tls.read(min(left, RECORD))
                if not data:
                    is_goodbye = True
                    break
                records.append(data)
                left = incoming.pending or tls.pending()
        except ssl.SSLWantReadError:  # part of a record
            pass
        finally:
            if records and self._inner is not None:
                self._inner.data_received(records[0] if len(records) == 1 else b"".join(records))
        if is_goodbye:
            self.close()
        elif self._outgoing.pending:  # what TLS itself has to say
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _fail(self, error: ssl.SSLError) -> None:
        """OpenSSL has left an alert to be sent."""
        self._closing = True
        self._error = error.with_traceback(None)  # which would keep all this until the collector comes
        if not self.agreed.done():
            self.agreed.set_exception(error)
        self._hang_up()

    def _hang_up(self) -> None:
        transport = self._transport
        self._flush()
        if not transport.is_closing():
            with suppress(OSError):  # it may be gone, and we not know yet
                transport.write_eof()
            self._timer = asyncio.get_running_loop().call_later(self._linger, transport.abort)
