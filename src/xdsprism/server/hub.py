"""Connect the store to the live streams: wake the streams that a change concerns, and encode their responses.

A change takes this way, by plain function calls (DESIGN 9):

    Store.apply -> Hub._applied          queue the changes, schedule a turn
    Hub._run_turn -> Interest.notify     once per turn of the loop, however many changes it brought
                  -> Stream.stir         per session with a changed subscription
                  -> CallPort.wake       per stream: the transport polls it
    XdsCall.poll_shared -> Stream.poll   responses, from shared objects where possible
                 -> Encoder.encoded      once per shared response

Work that would block the loop for long runs in slices (slicing.py): large requests and responses (long_work.py), and
changes that concern very many sessions or hosts.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_hex

from ..core.codec.server_requests import Decoder, Known
from ..core.codec.server_responses import Encoder
from ..core.loads.load_reports import LoadReports
from ..core.model.demand import Demand
from ..core.model.events import EncodedResponse, Request, Send
from ..core.model.facts import Closed, Fact, Facts, Opened, Published
from ..core.model.limits import Client
from ..core.model.settings import RELAY, SERVER, Settings
from ..core.model.steps import Steps
from ..core.model.store import Applied, Store
from ..core.model.type_versions import Names, has_twin
from ..core.model.types import CLUSTER, ROUTE, VIRTUAL_HOST, Change, Params, TypeUrl
from ..core.serve.stream import Stream
from ..core.session.interest import Interest, Interested
from ..messages.api_versions import to_v2
from ..native import mypyc_attr
from .calls import Call, Peer
from .connection_limits import host_of
from .long_work import LongWork, is_long
from .slicing import LONG_BYTES, LONG_COUNT, Slices

log = logging.getLogger("xdsprism.server")

# When a connection drains, a client has ANSWER seconds to ACK the last response before its stream ends. It ends
# PARTING seconds before the connection at the latest, so that the end of the stream reaches the client.
ANSWER = 3.0
PARTING = 0.5

Clock = Callable[[], float]
Schedule = Callable[[Callable[[], None]], object]  # run soon, once, in the loop's next turn


@dataclass(frozen=True, slots=True)
class Connected:
    """A live stream, for status pages."""

    stream: Stream
    method: str
    peer: Peer
    since: float


class Hub:
    """Everything that streams share. It belongs to one event loop, and nothing in it awaits, so it needs no locks."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        schedule: Schedule,
        demand: Demand | None = None,
        slices: Slices | None = None,
    ) -> None:
        """Serve `store`. `slices` runs long work in slices; without it, long work runs at once."""
        self.store = store
        self.slices = slices
        self.settings = replace(settings, epoch=settings.epoch or token_hex(4))
        self.interest = Interest(demand)
        self.reports = LoadReports(self.settings, self._clusters)
        self.chores: list[Callable[[], None]] = []  # run at the beginning of each turn
        # PRX-31: the identifier tells other relays what a negative answer means (DYN-11).
        is_relay = self.interest.demand.caches and settings.identifier == SERVER
        identifier = RELAY if is_relay else settings.identifier
        self.encoder = Encoder(identifier)
        self.v2_encoder = Encoder(identifier, to_v2)
        self.clock = clock
        self.readers: list[Callable[[Sequence[Fact]], None]] = []
        self.facts = Facts()
        self.requests: Known = {True: {}, False: {}}
        self._schedule = schedule
        self._calls: dict[int, XdsCall] = {}
        self._count = 0
        self.changes: deque[Change] = deque()  # changes that not all sessions were notified of
        self._telling: _Telling | None = None  # while that takes several turns
        self.turn_due = False
        self._closed_count = 0  # subscriptions of the streams that closed since the last turn
        store.listeners.append(self._applied)

    def close(self) -> None:
        """Stop listening to the store. Idempotent."""
        if self._applied in self.store.listeners:
            self.store.listeners.remove(self._applied)

    def connected(self) -> Iterable[Connected]:
        """Return the live streams."""
        return [call.connected for call in self._calls.values()]

    def client(self, stream: int) -> Client | None:
        """Return the client of a stream, as the address of its connection and the node id; None: the stream is over."""
        call = self._calls.get(stream)
        if call is None:
            return None
        node = call.connected.stream.node
        return host_of(call.connected.peer.address), node.id if node is not None else ""

    def open(self, method: str, peer: Peer, *, delta: bool, only_type: TypeUrl | None, v2: bool = False) -> XdsCall:
        """Begin a discovery stream.

        `v2`: the method is one of xDS v2, which matters if a request does not name its type (VER-3).
        """
        stream = self.stream(self.facts, delta=delta, only_type=only_type)
        call = XdsCall(self, Connected(stream, method, peer, self.clock()), Names(only_type, v2=v2))
        self.enter(call)
        return call

    def stream(self, facts: Facts, *, delta: bool, only_type: TypeUrl | None) -> Stream:
        """Return a new stream over the store, with a number of its own. It is not live before `enter`."""
        self._count += 1
        return Stream(self._count, self.store, self.interest, self.settings, facts, delta=delta, only_type=only_type)

    def enter(self, call: XdsCall, *, brief: bool = False) -> None:
        """Make a call live: from now on it is woken when a change concerns its stream. `brief`: it is a fetch."""
        connected = call.connected
        self._calls[connected.stream.number] = call
        peer = connected.peer
        self.facts.append(Opened(connected.stream.number, connected.method, peer.address, brief, peer.identity))
        self.turn()

    def closed(self, number: int, reason: str) -> None:
        """Forget a call whose stream is closed."""
        if self._calls.pop(number, None) is not None:
            self.facts.append(Closed(number, reason))
            self.turn()

    def is_long_to_close(self, subscriptions: int) -> bool:
        """Whether to close a stream in slices. Those of a whole fleet may be small and end in one turn of the loop."""
        self._closed_count += subscriptions
        self.turn()
        return self._closed_count > LONG_COUNT

    def listed(self, type_url: TypeUrl, name: str) -> None:
        """Wake the sessions of a wildcard or glob that can be answered now (core.model.cached)."""
        for session in self.interest.everybody(type_url, name):
            call = self._calls.get(session.stream)
            if call is not None:
                call.stream.stir(None)
                call.port.wake()

    def _clusters(self, params: Params) -> Iterator[str]:
        """Yield the names of all clusters that a client with these params gets."""
        tables = (table for table in self.store.tables() if table.spec.url == CLUSTER)
        return (variant.name for table in tables for variant in table.everything.snapshot(params).variants)

    def turn(self) -> None:
        """Schedule `_run_turn` for the next turn of the loop, once."""
        if not self.turn_due:
            self.turn_due = True
            self._schedule(self._run_turn)

    def _applied(self, applied: Applied) -> None:
        """Queue the changes of a transaction. If they concern very many, begin to notify in slices."""
        self.changes += applied.changes
        # Changes that arrive while sessions are notified join that work, so that no response has half of them.
        if self._telling is not None:
            self._tell_in_slices(applied.changes)
        elif self.slices is not None and (
            len(self.changes) > LONG_COUNT or self.interest.weight(applied.changes) > LONG_COUNT
        ):
            self._tell_in_slices(self.changes)
        self.facts.append(Published(applied.revision, len(applied.changes)))
        self.turn()

    def _run_turn(self) -> None:
        """Notify the sessions of what changed, which wakes their calls, and hand the facts to the readers."""
        for chore in self.chores:
            chore()
        self.turn_due = False
        self._closed_count = 0
        if self.changes:
            self.is_told(None)
        # Streams share encoded responses within a turn. A stream that polls later encodes anew.
        self.encoder.forget()
        self.v2_encoder.forget()
        facts = self.facts.take()
        for reader in self.readers:
            reader(facts)

    def is_told(self, call: XdsCall | None) -> bool:
        """Notify sessions of the queued changes. Return False if this call must wait until that is done.

        DESIGN 9: there is one fan-out, however many changes the turn brought. Where it takes several turns, a call that
        the changes may concern waits, so that its response has all of a transaction.
        """
        if self._telling is not None:
            return call is None or not self._telling.holds_back(call)
        changes, self.changes = self.changes, deque()
        many = len(changes) > LONG_COUNT  # then the sessions look at them in slices
        self._stir(self.interest.notify(changes), alone=not many)
        return True

    def _stir(self, sessions: Iterable[Interested], *, alone: bool) -> None:
        """Wake the calls of these sessions. `alone`: they may take the fast path."""
        calls = self._calls
        for session in sessions:
            call = calls.get(session.stream)
            if call is not None:
                call.stream.stir(session if alone else None)  # type: ignore[arg-type] # each Interested is a session
                call.port.wake()

    def _tell_in_slices(self, changes: Iterable[Change]) -> None:
        """Notify sessions of many changes, in slices.

        Until that is done, streams that were there before and subscribe to the changed types are not polled. So each
        response has all of a transaction that concerns it. For the same reason the long work of streams waits.
        """
        if self._telling is None and self.slices is not None:
            self._telling = _Telling()
            self.slices.begin(self._tell_on(), _log_untold, first=True)
        if self._telling is not None:
            self._telling.add(changes, self._count)

    def _tell_on(self) -> Steps[None]:
        """Notify the sessions in steps, then wake them and the calls that had to wait."""
        try:
            self._stir((yield from self.interest.notifying(self.changes)), alone=False)
        finally:
            held = self._telling.held if self._telling is not None else {}
            self._telling = None
            for call in held:
                call.port.wake()
            self.turn()


@mypyc_attr(allow_interpreted_subclasses=True)
class XdsCall(Call):
    """One discovery stream: decodes requests and encodes responses. All decisions are the stream's.

    Each request and each poll is short, and runs at once, or long, and then goes through a `LongWork`. While there is
    one, everything else of the call goes through it, too, so that the order stays.
    """

    def __init__(self, hub: Hub, connected: Connected, names: Names) -> None:
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

    def receive(self, message: bytes) -> None:
        """Take one message at once, or queue it for slices if it, or the work before it, is long."""
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
        if self.stream.receive(request, hub.clock()):
            self.port.wake()
        if not hub.turn_due:
            hub.turn()

    def _named(self, request: Request) -> Request:
        """Return the request with its type URL of v3, marked as v2 if it is of v2."""
        type_url = self._names.take(request.type_url)
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
        if self._work is not None:
            return self._work.poll()
        if hub.changes and not hub.is_told(self):  # the transport may poll before the hub's turn
            return iter(())
        if self.stream.backlog > LONG_COUNT:
            work = self._long_work()
            if work is not None:
                work.begin(self._looking)
                return iter(())
        sends = self.stream.poll(hub.clock())
        if self._parting is not None and self._parting.is_over():
            self.end()
        if not hub.turn_due and (sends or hub.facts):
            hub.turn()
        if any((send.removed or send.unresolved) and is_long(send) for send in sends):
            work = self._long_work()
            if work is not None:
                work.give(sends)
                return work.poll()
        # The usual case: one response, and all types in v3.
        if len(sends) == 1 and not self._names.others:
            encoder = hub.encoder
            return iter((sends[0].encoded.get(encoder) or encoder.encoded(sends[0]),))
        return map(self.encoded, sends)

    def deadline(self) -> float | None:
        """Return when to poll again although nothing changed."""
        return self.stream.deadline() if self._parting is None else self._parting.deadline()

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
        self.port.hold_back(waits=False)
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


def _log_untold(error: Exception) -> None:
    log.error("not every stream could be told of a change", exc_info=error)


class _Telling:
    """Changes that sessions are being notified of in slices, and the calls that wait for that."""

    def __init__(self) -> None:
        self.held: dict[XdsCall, None] = {}  # calls that were polled meanwhile, and had to wait
        self._types: set[TypeUrl] = set()  # the types that changed
        self._last = 0  # the newest stream at that time: later ones see the changed store from their start

    def add(self, changes: Iterable[Change], last: int) -> None:
        """Add changes. `last`: the number of the newest stream."""
        types = {change.type_url for change in changes}
        self._types |= types | ({VIRTUAL_HOST} if ROUTE in types else set())  # VHD-16
        self._last = last

    def holds_back(self, call: XdsCall) -> bool:
        """Whether this call has to wait. It is woken in the end."""
        stream = call.stream
        if stream.number > self._last or self._types.isdisjoint(stream.sessions):
            return False
        self.held[call] = None
        return True


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
