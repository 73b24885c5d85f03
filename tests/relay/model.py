"""A server, a relay and its clients without asyncio: time passes as told, and messages move when told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from envoy.config.core.v3.base_pb2 import Node

from tests.client.test_against_server import Watched, shown
from tests.support.carrying import Carrying
from xdsprism.client.checks import checking
from xdsprism.client.last_good import ClientCache
from xdsprism.core.codec.client_side import Check, RequestEncoder, ResponseDecoder
from xdsprism.core.model.cache_knowledge import cache_table
from xdsprism.core.model.constraints import Constraint
from xdsprism.core.model.events import Key
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import NO_PARAMS, Params, Variant
from xdsprism.core.relay.relaying import Relaying
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Entry, Recalled
from xdsprism.core.watch.subscriber import Subscriber
from xdsprism.errors import WatchError
from xdsprism.relay.feed import Sink, _as_it_came, _hashed
from xdsprism.relay.judging import named
from xdsprism.server.calls import Peer
from xdsprism.server.hub import Hub
from xdsprism.server.xds_call import XdsCall


class Clock:
    now = 0.0


class Site:
    """A store and its hub, whose turns come when they are told to."""

    def __init__(
        self, clock: Clock, store: Store, demand: Relaying | None = None, settings: Settings | None = None
    ) -> None:
        self.store = store
        self._turns: list[Callable[[], None]] = []
        told = settings or Settings(resource_errors="all")  # in SotW nothing else says that something is gone (SOT-7)
        self.hub = Hub(store, told, lambda: clock.now, self._turns.append, demand)

    def turn(self) -> None:
        while self._turns:
            self._turns.pop()()


class Line:
    """A stream from a subscriber to a site; what was sent and not yet read is on its way."""

    def __init__(
        self,
        clock: Clock,
        site: Site,
        *,
        delta: bool,
        node: Params = NO_PARAMS,
        check: Check | None = None,
        patient: bool = False,
        dress: Callable[[Variant, object], Variant] = lambda variant, _: variant,
        recall: Callable[[Entry], Recalled | None] = lambda _: None,
    ) -> None:
        self.delta = delta
        self.subscriber = Subscriber(recall=recall)
        self.upstream = self.subscriber.upstream(
            "site", delta=delta, fail_on_data_errors=True, timer_is_transient=patient
        )
        self.authority = Authority("", [self.upstream])
        self.call: XdsCall | None = None
        self.clock = clock
        self._site = site
        self._node = Node(id="model")
        self._node.metadata.update(dict(node))
        self._decoder = ResponseDecoder(check or checking({}), delta=delta, dress=dress)
        self.requests: deque[bytes] = deque()
        self.responses: deque[bytes] = deque()

    def open(self) -> None:
        if self.call is None:
            self.call = self._site.hub.open("model", Peer("model"), delta=self.delta, only_type=None)
            self._encoder = RequestEncoder(self._node.SerializeToString(), delta=self.delta, v3=True)
            self.subscriber.opened(self.upstream, self.clock.now)

    def cut(self) -> None:
        if self.call is not None:
            self._end_call(self.call)
            self.subscriber.ended(self.upstream, WatchError("UNAVAILABLE", "gone"), self.clock.now, 0.5)

    def fail(self) -> None:
        """The first attempt to open a stream finds nobody."""
        self.subscriber.seek(self.authority)
        self.subscriber.ended(self.upstream, WatchError("UNAVAILABLE", "nobody there"), self.clock.now, 0.5)

    def move(self, site: Site) -> None:
        """Another process has taken the place of the one that this line led to."""
        self.cut()
        self._site = site
        self.open()

    def _end_call(self, call: XdsCall) -> None:
        call.close()
        self.call = None
        self.requests.clear()
        self.responses.clear()

    def ask(self) -> bool:
        """The subscriber writes."""
        if self.call is not None and self.upstream.is_spent:
            self._end_call(self.call)
            self.upstream.renewed()
            self.open()
        asked = self.subscriber.poll(self.upstream, self.clock.now) if self.call is not None else []
        self.requests.extend(self._encoder.encode(type_url, request.body) for type_url, request in asked)
        return bool(asked)

    def answer(self) -> bool:
        """The site reads what there is, and writes."""
        if self.call is None:
            return False
        busy = bool(self.requests)
        while self.requests:
            self.call.receive(self.requests.popleft())
        self._site.turn()
        answers = [*self.call.poll()]
        self.responses.extend(answers)
        return busy or bool(answers)

    def read(self, limit: int = 100) -> bool:
        """The subscriber reads, not necessarily all there is."""
        busy = False
        while self.responses and limit:
            busy, limit = True, limit - 1
            response = self._decoder.decode(self.responses.popleft())
            self.subscriber.receive(self.upstream, response, self.clock.now)
        self.subscriber.tick(self.clock.now)
        return busy

    def talk(self) -> bool:
        return any([self.ask(), self.answer(), self.read()])


class Supplier:
    """core.relay.upstream_feed.UpstreamFeed on a line."""

    def __init__(self, line: Line) -> None:
        self.relaying: Relaying | None = None
        self.sinks: dict[Entry, Sink] = {}
        self._line = line
        line.subscriber.listeners.append(lambda entry, _: self._heard(entry))

    def subscribe(self, type_url: str, name: str, params: Params) -> Carrying:
        sink = Sink(self._heard)
        self._line.subscriber.watch(sink, self._line.authority, type_url, Key(name, params))
        (entry,) = sink.entries
        sink.report(entry)
        assert entry not in self.sinks, f"asked twice: {name} {params}"
        self.sinks[entry] = sink
        return Carrying(entry, self._end, self.ask_again, self._presume_gone)

    def ask_again(self, entry: Entry) -> None:
        self._line.subscriber.ask_again(entry)

    def _presume_gone(self, entry: Entry) -> None:
        self._line.subscriber.presume_gone(entry, self._line.clock.now)

    def _end(self, entry: Entry) -> None:
        self._line.subscriber.unwatch(self.sinks.pop(entry))

    def pin(self, _entry: Entry) -> Constraint | None:
        return None

    def _heard(self, entry: Entry) -> None:
        if self.relaying is not None:
            self.relaying.note_change(entry)


class RelaySite(Site):
    """The relay: a site whose store is filled by what its line brings."""

    def __init__(
        self,
        clock: Clock,
        origin: Site,
        *,
        delta: bool,
        linger: float,
        cache: ClientCache | None = None,
        settings: Settings | None = None,
    ) -> None:
        dress, recall = _as_it_came if delta else _hashed, cache.recall if cache is not None else lambda _: None
        self.line = Line(clock, origin, delta=delta, check=named, dress=dress, recall=recall)
        if cache is not None:
            self.line.subscriber.listeners.append(cache.on_changed)
            self.line.subscriber.leavers.append(cache.on_unsubscribed)
        self.supplier = Supplier(self.line)
        store = Store(tables=cache_table)
        self.relaying = self.supplier.relaying = Relaying(
            store, self.supplier, listed=self._listed, linger=linger, reaches=lambda _, __: self.line.call is not None
        )
        super().__init__(clock, store, self.relaying, settings)
        self.hub.chores.append(lambda: self.relaying.flush(clock.now))
        self._clock = clock

    def _listed(self, type_url: str, name: str) -> None:
        self.hub.listed(type_url, name)

    def tend(self) -> None:
        """As the relay's own loop would: something came, or something is over."""
        due = self.relaying.deadline()
        if self.relaying.is_due or (due is not None and due <= self._clock.now):
            self.hub.turn()
        self.turn()


class Watcher(Watched):
    """One watched name of one client, and what may be said of it."""

    def __init__(self, client: ModelClient, type_url: str, key: Key) -> None:
        super().__init__(type_url, key)
        self.client = client
        self.params = client.node if key[1] is None else key[1]
        self.may_go: set[str] = set()  # names that were not there for it at some time since the last check

    def settle(self) -> None:
        """That nobody can be asked is no news of the resource."""
        while (notice := self.watch.take()) is not None:
            if notice.error is None and notice.variant is not None:
                self.has[notice.name] = shown(self.key, notice.variant)
            elif not notice.ambient and notice.error is not None and notice.error.status == "NOT_FOUND":
                self.has[notice.name] = None
                self.lost.add(notice.name)


class ModelClient:
    def __init__(self, clock: Clock, relay: RelaySite, *, delta: bool, located: bool, node: Params) -> None:
        self.located = located
        self.node = NO_PARAMS if located else node
        self.line = Line(clock, relay, delta=delta, node=self.node, patient=True)
        self.line.open()
        self.watchers: list[Watcher] = []

    def watch(self, type_url: str, name: str, params: Params) -> Watcher:
        made = Watcher(self, type_url, Key(name, params if self.located else None))
        self.watchers.append(made)
        self.line.subscriber.watch(made.watch, self.line.authority, type_url, made.key)
        return made

    def leave(self, watcher: Watcher) -> None:
        self.watchers.remove(watcher)
        self.line.subscriber.unwatch(watcher.watch)
