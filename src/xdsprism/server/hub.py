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
from dataclasses import replace
from functools import partial
from secrets import token_hex
from time import time

from ..core.codec.server_requests import Known
from ..core.codec.server_responses import Encoder
from ..core.loads.load_reports import LoadReports
from ..core.model.client_budget import ClientBudget, Exceeded
from ..core.model.demand import Demand
from ..core.model.events import Node
from ..core.model.facts import Closed, Fact, Facts, LimitReached, Opened, PolicyTaken, Published
from ..core.model.history import History
from ..core.model.limits import Client
from ..core.model.settings import RELAY, SERVER, Settings
from ..core.model.steps import Steps, finish, pieces
from ..core.model.store import Applied, Store
from ..core.model.type_versions import TypeNames
from ..core.model.types import CLUSTER, ROUTE, VIRTUAL_HOST, Change, Params, TypeUrl
from ..core.policy.grant import Grant
from ..core.policy.policy import Policy
from ..core.policy.tokens import Tokens
from ..core.serve.stream import Stream
from ..core.session.interest import Interest, Interested
from ..errors import PeerError
from ..messages.api_versions import to_v2
from ..peer_address import host_of
from .bearers import Bearers
from .calls import Peer
from .connection_limits import client_of
from .slicing import LONG_COUNT, Slices
from .xds_call import Connected, XdsCall

log = logging.getLogger("xdsprism.server")

FEW = 100  # streams that find their grants between two steps

Clock = Callable[[], float]
Schedule = Callable[[Callable[[], None]], object]  # run soon, once, in the loop's next turn


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
        policy: Policy | None = None,
        wall: Clock = time,
    ) -> None:
        """Serve `store`. `slices` runs long work in slices; without it, long work runs at once.

        `wall` is the clock that tokens expire by and that revisions are dated by, and `clock` the one of everything
        else.
        """
        self.policy = policy  # None: every client may have everything
        self.policy_listeners: list[Callable[[], None]] = []  # called when the policy has changed
        self.store = store
        self.slices = slices
        self.settings = replace(settings, epoch=settings.epoch or token_hex(16))
        self.interest = Interest(demand)
        self.reports = LoadReports(self.settings, self._clusters)
        self.chores: list[Callable[[], None]] = []  # run at the beginning of each turn
        # PRX-31: the identifier tells other relays what a negative answer means (DYN-11).
        is_relay = self.interest.demand.caches and settings.identifier == SERVER
        identifier = RELAY if is_relay else settings.identifier
        self.clients = ClientBudget(self.settings.limits)
        self.encoder = Encoder(identifier)
        self.v2_encoder = Encoder(identifier, to_v2)
        self.clock = clock
        self.wall = wall
        self.readers: list[Callable[[Sequence[Fact]], None]] = []
        self.facts = Facts()
        self.history = History()
        self._bearers = Bearers(clock, wall, self.facts)
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

    def streams(self) -> Iterable[Stream]:
        """Return the live streams without what is known of their connections."""
        return [call.stream for call in self._calls.values()]

    def client(self, stream: int) -> Client | None:
        """Return the client of a stream, as the address of its connection and the node id; None: the stream is over."""
        call = self._calls.get(stream)
        if call is None:
            return None
        node = call.connected.stream.node
        return host_of(call.connected.peer.address), node.id if node is not None else ""

    def identify(self, peer: Peer) -> Peer:
        """Return the client of a call with what its token proves. Raises PeerError if that is bad."""
        if not peer.authorization:
            return peer
        try:
            return self._bearers.identify(peer, self.tokens)
        finally:
            if self.facts:
                self.turn()

    @property
    def tokens(self) -> Tokens | None:
        """Which tokens prove something; None: tokens are ignored."""
        return self.policy.tokens if self.policy is not None else None

    def open(self, method: str, peer: Peer, *, delta: bool, only_type: TypeUrl | None, v2: bool = False) -> XdsCall:
        """Begin a discovery stream.

        `v2`: the method is one of xDS v2, which matters if a request does not name its type (VER-3). Raises PeerError
        if the client has too many streams.
        """
        self.admit(peer)
        stream = self.stream(self.facts, peer, delta=delta, only_type=only_type)
        call = XdsCall(self, Connected(stream, method, peer, self.clock()), TypeNames(only_type, v2=v2))
        self.enter(call)
        return call

    def admit(self, peer: Peer) -> None:
        """Count a stream of this client. Raises PeerError if it has too many, or all clients have (OPS-3)."""
        client = client_of(peer)
        self._check(client, self.clients.open_stream(client))

    def admit_fetch(self, peer: Peer) -> None:
        """Count a fetch of this client. Raises PeerError if it fetches too often (OPS-4)."""
        client = client_of(peer)
        self._check(client, self.clients.fetch(client, self.clock()))

    def _check(self, client: str, exceeded: Exceeded | None) -> None:
        if exceeded is not None:
            self.facts.append(LimitReached(exceeded.limit, exceeded.message, client))
            self.turn()
            raise PeerError("RESOURCE_EXHAUSTED", exceeded.message, exceeded.seconds)

    def release(self, peer: Peer) -> None:
        """Count a stream of this client as closed."""
        self.clients.close_stream(client_of(peer))

    def stream(self, facts: Facts, peer: Peer, *, delta: bool, only_type: TypeUrl | None) -> Stream:
        """Return a new stream over the store, with a number of its own. It is not live before `enter`."""
        self._count += 1
        return Stream(
            self._count,
            self.store,
            self.interest,
            self.settings,
            facts,
            delta=delta,
            only_type=only_type,
            grant_of=partial(self.grant_of, peer),
        )

    def grant_of(self, peer: Peer, node: Node) -> Grant | None:
        """Return what a client may have that says it is this node; None: there is no policy."""
        return self.policy.grant(peer.proved, node.id) if self.policy is not None else None

    def enforce(self, policy: Policy | None) -> None:
        """Put a policy into force, or none: for new streams at once, for those that are open in slices."""
        self.policy = policy
        if self.slices is not None:
            self.slices.begin(self._regranting(), _log_unregranted, first=True)
        else:
            finish(self._regranting())

    def _regranting(self) -> Steps[None]:
        """Let each open stream find anew what its client may have, in steps, and wake those for which it changed."""
        changed = 0
        for piece in pieces([*self._calls.values()], FEW):
            for call in piece:
                standing = call.connected.peer.standing
                if standing is not None and standing.review(self.tokens):
                    call.port.wake()  # it ends, and its client comes back: it does not see the new grant
                elif call.stream.regrant():
                    changed += 1
                    call.port.wake()
            yield
        for listener in [*self.policy_listeners]:
            listener()
        rules = len(self.policy.rules) if self.policy is not None else 0
        self.facts.append(PolicyTaken(rules, changed))
        self.turn()

    def enter(self, call: XdsCall, *, brief: bool = False) -> None:
        """Make a call live: from now on it is woken when a change concerns its stream. `brief`: it is a fetch."""
        connected = call.connected
        self._calls[connected.stream.number] = call
        peer = connected.peer
        if peer.standing is not None:  # the policy may have changed while the body of a REST request was read
            peer.standing.review(self.tokens)
        self.facts.append(Opened(connected.stream.number, connected.method, peer.address, brief, peer.identity))
        self.turn()

    def closed(self, number: int, reason: str) -> None:
        """Forget a call whose stream is closed."""
        call = self._calls.pop(number, None)
        if call is not None:
            self.release(call.connected.peer)
            standing = call.connected.peer.standing
            is_usual = standing is not None and standing.is_over(self.clock())
            self.facts.append(Closed(number, reason, is_usual))
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
        for table in self.store.tables():
            if table.spec.url == CLUSTER:
                for variant in table.everything.snapshot(params).variants:
                    yield variant.name

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
        record = self.history.record(applied, self.wall()) if applied.changes else None
        self.facts.append(Published(applied.revision, len(applied.changes), record))
        self.turn()

    def _run_turn(self) -> None:
        """Notify the sessions of what changed, which wakes their calls."""
        for chore in self.chores:
            try:
                chore()
            except Exception:  # OPS-10: the turn goes on, and others follow
                log.exception("a part of the server could not do its work in this turn")
        self.turn_due = False
        self._closed_count = 0
        if self.changes:
            self.is_told(None)
        # Streams share encoded responses within a turn. A stream that polls later encodes anew.
        self.encoder.forget()
        self.v2_encoder.forget()
        self._schedule(self._report)  # after the transport has written: clients do not wait for logs and metrics

    def tell(self, fact: Fact) -> None:
        """Hand a fact to the readers now: while the server starts or stops, there may be no turn."""
        self.facts.append(fact)
        self._report()

    def _report(self) -> None:
        """Hand the facts to the readers."""
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


def _log_untold(error: Exception) -> None:
    log.error("could not notify all streams of a change", exc_info=error)


def _log_unregranted(error: Exception) -> None:
    log.error("not every stream could be told of a changed policy", exc_info=error)


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
