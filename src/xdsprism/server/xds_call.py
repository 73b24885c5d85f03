"""Serve one discovery stream: bytes of requests in, bytes of responses out. The stream decides, the hub connects it.

Work that would block the loop for long runs in slices: of one call it is a `LongWork`, which keeps everything else of
the call in its order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from ..core.codec.server_requests import Decoder
from ..core.codec.server_responses import Encoder
from ..core.model.events import EncodedResponse, Request, Send
from ..core.model.facts import LimitReached
from ..core.model.steps import Steps
from ..core.model.type_versions import TypeNames, has_twin
from ..core.serve.idleness import Idleness
from ..core.serve.stream import Stream
from ..errors import PeerError
from ..native import mypyc_attr
from ..peer_address import host_of
from .calls import Call, Peer
from .long_work import LongWork, is_long
from .slicing import LONG_BYTES, LONG_COUNT

if TYPE_CHECKING:
    from .hub import Hub

log = logging.getLogger("xdsprism.server")

# When a connection drains, a client has ANSWER seconds to ACK the last response before its stream ends. It ends
# PARTING seconds before the connection at the latest, so that the end of the stream reaches the client.
ANSWER = 3.0
PARTING = 0.5


@dataclass(frozen=True, slots=True)
class Connected:
    """A live stream, for status pages."""

    stream: Stream
    method: str
    peer: Peer
    since: float


@mypyc_attr(allow_interpreted_subclasses=True)
class XdsCall(Call):
    """One discovery stream: decodes requests and encodes responses. All decisions are the stream's.

    Each request and each poll is short, and runs at once, or long, and then goes through a `LongWork`. While there is
    one, everything else of the call goes through it, too, so that the order stays.
    """

    def __init__(self, hub: Hub, connected: Connected, names: TypeNames) -> None:
        super().__init__()
        self.connected = connected
        self.clock = hub.clock
        self._hub = hub
        self._names = names
        self.stream = connected.stream
        settings = hub.settings
        self._decoder = Decoder(
            delta=connected.stream.delta,
            limits=settings.limits,
            known=hub.requests,
            node_params=settings.node_params,
        )
        self._parting: _Parting | None = None  # once the connection drains
        self._work: LongWork | None = None  # while there is long work
        self._half_closed = False
        self._standing = connected.peer.standing
        seconds = settings.limits.idle_stream
        self._idleness = Idleness(seconds, connected.since) if seconds < inf else None

    def receive(self, message: bytes) -> None:
        """Take one message at once, or queue it for slices if it, or the work before it, is long."""
        self.check()
        if self._work is not None or len(message) > LONG_BYTES:
            work = self._long_work()
            if work is not None:
                work.receive(message)
                self.port.hold_back(waits=True)
                return
        # Many clients send the same bytes, such as the ACK of a shared response: decode them once.
        request = self._decoder.alike.get(message) or self._decoder.decode(message)
        # A first request may be long work although it is small: "everything", with a version to compare.
        if not request.body.nonce and self.stream.weight(request) > LONG_COUNT:
            work = self._long_work()
            if work is not None:
                work.begin(partial(self.taking, request))
                self.port.hold_back(waits=True)
                return
        self.take(request)
        if self._parting is not None:
            self.port.wake()

    def take(self, request: Request) -> None:
        """Give a request to the stream, and ask for a poll if that may have something to send."""
        hub = self._hub
        if self._names.others or request.is_v2:
            request = self._named(request)
        now = hub.clock()
        if self._idleness is not None:
            self._idleness.last = now
        if self.stream.receive(request, now):
            self.port.wake()
            if self.stream.read_after is not None:
                self._pause()
        if not hub.turn_due:
            hub.turn()

    def _named(self, request: Request) -> Request:
        """Return the request with its type URL of v3, marked as v2 if it is of v2."""
        type_url = self._names.note_url(request.type_url)
        # A service of v2 decides for types that are the same in v2 and v3, or that the request does not name.
        if self._names.is_v2(type_url if has_twin(type_url) else self.stream.only_type or ""):
            return replace(request, type_url=type_url, v2=True)
        return request

    def poll(self) -> Iterator[bytes]:
        """Return the bytes of the responses that are due."""
        return map(_body_of, self.poll_shared())

    def poll_shared(self) -> Iterator[bytes | EncodedResponse]:
        """Return the encoded responses that are due. Long work is begun instead, and wakes the call when it is done."""
        hub = self._hub
        if self._standing is not None or self._idleness is not None:
            self._look()
        if self._work is not None and not (self._work.is_paused and self._work.is_quiet):
            return self._work.poll()
        if hub.changes and not hub.is_told(self):  # the transport may poll before the hub's turn
            return iter(())
        if self.stream.backlog > LONG_COUNT:
            work = self._long_work()
            if work is not None:
                work.begin(self._looking)
                return iter(())
        regranted = self.stream.is_regranted  # then it may ask a relay, or a provider, for something else
        sends = self.stream.poll(hub.clock())
        if self._parting is not None or self._idleness is not None:
            self._polled(is_sending=bool(sends))
        if not hub.turn_due and (sends or hub.facts or regranted):
            hub.turn()
        # The usual case: one response, with nothing in it that may be long, and all types in v3.
        if len(sends) == 1 and not self._names.others:
            (send,) = sends
            if not send.removed and not send.unresolved:
                return iter((send.encoded.get(hub.encoder) or hub.encoder.encoded(send),))
        if any((send.removed or send.unresolved) and is_long(send) for send in sends):
            work = self._long_work()
            if work is not None:
                work.give(sends)
                return work.poll()
        return map(self.encoded, sends)

    def deadline(self) -> float | None:
        """Return when to poll again although nothing changed."""
        due = self.stream.deadline() if self._parting is None else self._parting.deadline()
        if self._idleness is not None:
            due = self._idleness.due if due is None else min(due, self._idleness.due)
        return self.before_lapse(due)

    def check(self) -> None:
        """Raise PeerError if what the client proved by a token holds no longer."""
        if self._standing is not None:
            self._standing.check(self.clock())

    def before_lapse(self, due: float | None) -> float | None:
        """Return when to poll again: at `due`, or when the token expires."""
        return due if self._standing is None else self._standing.before(due)

    def _polled(self, *, is_sending: bool) -> None:
        """Look whether a draining stream is over, and note that the stream carries something."""
        if self._parting is not None and self._parting.is_over():
            self.end()
        if is_sending and self._idleness is not None:
            self._idleness.last = self._hub.clock()

    def _look(self) -> None:
        """Raise PeerError if a token has lapsed, or if the stream has carried nothing for too long (OPS-3)."""
        self.check()
        idleness = self._idleness
        if idleness is None:
            return
        now = self._hub.clock()
        if self._work is not None:
            idleness.last = now
        if idleness.is_over(now):
            text = f"the stream carried nothing for {self._hub.settings.limits.idle_stream:g} seconds"
            self._hub.facts.append(LimitReached("idle_stream", text, stream=self.stream.number))
            raise PeerError("DEADLINE_EXCEEDED", f"{text}: open another when you need it")

    # -- long work

    @property
    def is_busy(self) -> bool:
        """Whether long work is in progress."""
        return self._work is not None and self._work.is_busy

    def _long_work(self) -> LongWork | None:
        """Return the call's long work, created if needed; None: this hub runs everything at once."""
        if self._work is None and self._hub.slices is not None:
            self._work = LongWork(self, self._hub.slices, host_of(self.connected.peer.address))
        return self._work

    def reading(self, message: bytes) -> Steps[None]:
        """Do what `receive` does, in steps."""
        if len(message) > LONG_BYTES:
            yield from self.taking((yield from self._decoder.decoding(message)))
        else:
            self.take(self._decoder.alike.get(message) or self._decoder.decode(message))

    def taking(self, request: Request) -> Steps[None]:
        """Do what `take` does, in steps."""
        yield from self.stream.receiving(self._named(request), self._hub.clock())
        self._hub.turn()
        if self.stream.read_after is not None:
            self._pause()

    def _pause(self) -> None:
        """Read nothing more for a while: the client asks too often (OPS-4)."""
        until, self.stream.read_after = self.stream.read_after, None
        work = self._long_work()
        if work is not None and until is not None:
            work.pause(until)
            self.port.hold_back(waits=work.is_paused or work.is_busy)

    def _looking(self) -> Steps[None]:
        """Poll the stream, in steps, and queue the responses."""
        sends = yield from self.stream.polling(self._hub.clock())
        if self._work is not None:
            self._work.give(sends)
        self._hub.turn()

    def encoding(self, send: Send) -> Steps[EncodedResponse]:
        """Encode a response, in steps."""
        return self.encoder(send).encoding(send)

    def rested(self) -> None:
        """Go on after long work: it is done, or waits until the transport has taken its responses."""
        if self._work is not None and self._work.is_over:
            self._work = None
            self.finished = self.finished or self._half_closed
        self.port.hold_back(waits=self._work is not None and self._work.is_paused)
        self.port.wake()

    def encoded(self, send: Send) -> EncodedResponse:
        """Encode a response."""
        return self.encoder(send).encoded(send)

    def encoder(self, send: Send) -> Encoder:
        """Return the encoder of the xDS version that the client uses for this type (VER-3)."""
        return self._hub.v2_encoder if self._names.is_v2(send.type_url) else self._hub.encoder

    def half_close(self) -> None:
        """End after the responses to what the client has sent: it sends no more requests."""
        self._half_closed = True
        self.finished = self.finished or self._work is None  # otherwise `rested` finishes

    def drain(self, by: float) -> None:
        """End the stream once the client has answered every response: only then it is known to have read them.

        A response that was written may still be in a buffer, and be lost when the connection ends: grpc's buffer with
        the process, the kernel's if the client sends once more, and in grpc-js what the application has not read.
        """
        self._parting = _Parting(self.stream, self.clock, by - PARTING)
        self.port.wake()

    def close(self, reason: str = "") -> None:
        """Close the stream; in slices if it, and those that closed in the same turn, have many subscriptions."""
        if self._work is not None:
            self._work.close()
            self._work = None  # it refers to this call
        slices = self._hub.slices
        if slices is not None and self._hub.is_long_to_close(self.stream.count):
            slices.begin(self._closing(reason), _log_unclosed, owner=host_of(self.connected.peer.address))
            return
        try:
            self.stream.close()
        finally:
            self._hub.closed(self.stream.number, reason)

    def _closing(self, reason: str) -> Steps[None]:
        """Close the stream, in steps. Until that is done, it counts as connected."""
        try:
            yield from self.stream.closing()
        finally:
            self._hub.closed(self.stream.number, reason)


def _body_of(message: bytes | EncodedResponse) -> bytes:
    return message if isinstance(message, bytes) else message.body


def _log_unclosed(error: Exception) -> None:
    log.error("a stream could not be closed", exc_info=error)


class _Parting:
    """Decides when a draining stream ends."""

    def __init__(self, stream: Stream, clock: Callable[[], float], by: float) -> None:
        self._stream = stream
        self._clock = clock
        self._by = by
        self._until: float | None = None  # the client's time to answer; set once all responses are written

    def is_over(self) -> bool:
        """Whether the client has answered every response, or its time is over."""
        return self._stream.is_answered or (self._until is not None and self._clock() >= self._until)

    def deadline(self) -> float | None:
        """Return when to poll again. The transport has written all responses, so the client's time begins."""
        if self._until is None:
            self._until = min(self._clock() + ANSWER, self._by)
        due = self._stream.deadline()
        return self._until if due is None else min(due, self._until)
