"""Make a relay's upstream subscriptions, with one client for all nodes or one for each group (DESIGN 7).

`Feed` implements `core.relay.upstream_feed.UpstreamFeed` on top of the project's xDS client. Which client carries a
subscription:

    servers                       client                           an answer is for
    ----------------------------  -------------------------------  ----------------------------------------------
    know dynamic parameters       one for all; each subscription   clients that its constraints match
                                  is a locator with params
    know plain names only         one for all                      every client (PRX-32)
    know plain names, --group-by  one for each combination of      clients with the same values of these keys
                                  values, with its own node        (PRX-20)

Where the stream of a client is full, further clients of the same group open further streams (PRX-35,
core/relay/spread.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

from envoy.config.core.v3.base_pb2 import Node

from ..client.bootstrap import Bootstrap, ServerConfig
from ..client.client import Client
from ..client.disk import may_keep
from ..client.line import Do, at_once
from ..core.codec.client_side import FEATURES, LISTS_OF_ENDPOINTS, ResponseDecoder
from ..core.codec.references import references_of
from ..core.codec.resources import routing_of
from ..core.model.constraints import TRUE, Constraint, canonical
from ..core.model.dialect import Dialect, RequestForm
from ..core.model.events import Key
from ..core.model.limits import Scarce
from ..core.model.node_params import write_named
from ..core.model.type_versions import RESOURCE
from ..core.model.types import ROUTE, Params, Reference, Routing, TypeUrl, Variant, make_variant
from ..core.model.variants import pins
from ..core.relay.spread import TypeSpread
from ..core.watch.authority import Authority
from ..core.watch.entry import Entry, Event, Notice, State, Watch
from ..core.watch.upstream import Upstream
from ..errors import UsageError, WatchError
from ..messages.api_versions import to_v3
from ..messages.validation import Validate
from .judging import checking

GROUPS = 1000  # PRX-35: each has a stream of its own, and a client that makes up params makes up groups


class Sink(Watch):
    """A watcher without a queue: the relay reads the entry itself after each change.

    on_change: called with the entry, after `report` was called. A subscriber reads the first answer from the entry.
    """

    __slots__ = ("_reported",)

    def __init__(self, on_change: Callable[[Entry], None]) -> None:
        self._reported: list[Entry] = []
        super().__init__(partial(_report, on_change, self._reported))

    def report(self, entry: Entry) -> None:
        """Report changes of this entry from now on."""
        self._reported.append(entry)

    def tell(self, entry: Entry, notice: Notice) -> None:
        """Wake the relay for errors and absences.

        Resources reach the relay through the listeners of the subscriber (`Feed._new`).
        """
        if notice.variant is None or entry.state is State.RECEIVED_ERROR:
            self.wake()


def _report(on_change: Callable[[Entry], None], entries: list[Entry]) -> None:
    """Report that entries changed. This is no method, as a bound method would make a reference cycle of each sink."""
    for entry in entries:
        on_change(entry)


class FeedClient(Client):
    """An xDS client whose resources a relay passes on.

    Resources keep the server's version (PRX-22). The client checks them only as far as the relay's `validate` setting
    demands (PRX-16, PRX-19; judging.py).
    """

    # CLI-25: the relay does not know whether its clients support lists of endpoints. Only the node in the bootstrap can
    # say so.
    _features = tuple(feature for feature in FEATURES if feature != LISTS_OF_ENDPOINTS)

    def __init__(
        self,
        bootstrap: Bootstrap,
        after_input: Callable[[], None],
        dialect: Callable[[ServerConfig], Dialect],
        validate: Validate = "off",
        work: Do = at_once,
        aside: Do = at_once,
        **options: Any,
    ) -> None:
        super().__init__(bootstrap, fail_on_data_errors=True, **options)
        self._work = work
        self._aside = aside
        self._known_dialect = dialect
        self.no_authority = Authority("", ())  # the authority of names that no server can be asked for
        self._after_input = after_input
        self._check = checking(validate)

    def subscribe(self, type_url: TypeUrl, key: Key, sink: Sink) -> Entry:
        """Subscribe with a key as it is, and return the entry.

        A name that no server in the bootstrap can be asked for does not exist: its entry says so, and has no server.
        """
        try:
            self._check_way(type_url)
            config = self.bootstrap.authority_of(key[0])
        except UsageError as error:
            entry = Entry(type_url, key, self.no_authority, [])
            entry.fail(WatchError("NOT_FOUND", str(error)), Event.REMOVED, self.now(), drop=True)
            return entry
        self.subscriber.watch(sink, self._authority(config), type_url, key)
        self._after_core_call()
        return sink.entries[0]

    def unsubscribe(self, sink: Sink) -> None:
        """End a subscription."""
        self.subscriber.unwatch(sink)
        self._after_core_call()

    def ask_again(self, entry: Entry) -> None:
        """Subscribe once more, to get a new answer."""
        self.subscriber.ask_again(entry)
        self._after_core_call()

    def presume_gone(self, entry: Entry) -> None:
        """Treat silence of the server as "does not exist" (PRX-34)."""
        if self.subscriber.presume_gone(entry, self.now()):
            self._after_core_call()

    # -- for the relay and for operators

    @property
    def authorities(self) -> list[Authority]:
        """All authorities, with the one for names that no server can be asked for."""
        return [*self._authorities.values(), self.no_authority]

    def seek(self) -> None:
        """Connect to the servers before any subscription, to learn whether one can be reached (PRX-30)."""
        for authority in self._known_authorities():
            self.subscriber.seek(authority)
        self._after_core_call()

    def stop_seeking(self) -> None:
        """Close the connections that `seek` opened, since this client subscribes to nothing."""
        for authority in self._known_authorities():
            self.subscriber.stop_seeking(authority)
        self._after_core_call()

    def reaches(self, name: str) -> bool:
        """Whether a stream to a server for this name is open.

        True for a name that no server can be asked for, since nothing has to be waited for.
        """
        try:
            authority = self._authorities.get(self.bootstrap.authority_of(name).name)
        except UsageError:
            return True
        return authority is not None and any(upstream.connected for upstream in authority.active)

    def upstreams(self) -> list[Upstream]:
        """Return the servers of the bootstrap, in its order, each once."""
        authorities = self._known_authorities()
        return [*dict.fromkeys(upstream for authority in authorities for upstream in authority.servers)]

    def _known_authorities(self) -> list[Authority]:
        """Return the authorities of the bootstrap that have servers."""
        configs = (self.bootstrap.root, *self.bootstrap.authorities.values())
        return [self._authority(config) for config in configs if config.servers]

    def _upstream(self, server: ServerConfig) -> Upstream:
        """Return the state of a server, with the timer rules of a relay.

        PRX-11: a slow server does not mean that a resource does not exist; downstream clients have timers of their own.
        PRX-34: but a later full-state response that lacks the resource does mean this.
        """
        upstream = super()._upstream(server)
        upstream.timer_is_transient = upstream.full_state_decides = True
        return upstream

    def _dialect(self, server: ServerConfig) -> Dialect:
        """Return the dialect of a server. All clients of the relay share that of a v3 server."""
        return self._known_dialect(server) if self._is_v3(server) else super()._dialect(server)

    def _decoder(self, upstream: Upstream) -> ResponseDecoder:
        """Return the decoder of responses, which gives each variant a version and v3 type URLs."""
        dress = _as_it_came if upstream.delta else _hashed

        def renamed(variant: Variant, message: object) -> Variant:
            """Convert a variant to v3 names, and set its version and references.

            VER-14: one cache serves both API versions, in the terms of v3. PRX-36: a v3 stream may carry v2 type URLs.
            """
            variant.body = to_v3(variant.type_url, variant.body)
            variant.extras = to_v3(RESOURCE, variant.extras)
            return dress(variant, message)

        return ResponseDecoder(
            self._check,
            delta=upstream.delta,
            locators=self.bootstrap.dynamic_parameters,  # DYN-54
            asks=upstream.requests.asks,
            dress=renamed,
        )

    def _after_core_call(self) -> None:
        """Do what the client does after a call of the core, and then notify the relay."""
        super()._after_core_call()
        self._after_input()


@dataclass(frozen=True, slots=True)
class OnStream:
    """One upstream subscription, as a client carries it on one of the streams to its server.

    sink: without entries, if no server can be asked for the name.
    """

    feed: Feed
    entry: Entry
    sink: Sink
    client: FeedClient
    place: int

    def ask_again(self) -> None:
        """Subscribe once more."""
        if self.sink.entries:
            self.client.ask_again(self.entry)

    def presume_gone(self) -> None:
        """Treat silence of the server as "does not exist" (PRX-34)."""
        if self.sink.entries:
            self.client.presume_gone(self.entry)

    def end(self) -> None:
        """Unsubscribe."""
        if self.sink.entries:
            self.client.unsubscribe(self.sink)
            self.feed.ended(self)


class Feed:
    """Makes the relay's upstream subscriptions (core.relay.upstream_feed.UpstreamFeed).

    form         the form of requests; UNKNOWN: find out which form each server understands (PRX-32)
    group_by     the keys that make groups; None: no groups
    on_change    called with an entry that changed
    after_input  called after input from a server
    make         makes a client for a group
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        *,
        group_by: Collection[str] | None,
        form: RequestForm,
        on_change: Callable[[Entry], None],
        after_input: Callable[[], None],
        make: Callable[[Bootstrap, Callable[[], None], Params | None], FeedClient],
    ) -> None:
        self.wall: Callable[[], float] = time.time
        self.clients: dict[Params | None, FeedClient] = {}
        self._form = form
        self._dialects: dict[ServerConfig, Dialect] = {}
        self._bootstrap = bootstrap
        self._group_by = group_by
        self._on_change = on_change
        self._after_input = after_input
        self._make = make
        self._spread = TypeSpread()
        self._further: dict[tuple[Params | None, int], FeedClient] = {}  # by group and stream, but the first (PRX-35)
        self._groups: dict[Authority, Params] = {}  # by authority, as each client has its own
        self._closing: set[asyncio.Task[None]] = set()

    def subscribe(self, type_url: TypeUrl, name: str, params: Params) -> OnStream | Scarce:
        """Subscribe on the stream that has room, and return the subscription or what there is no room for.

        A group sends its params in the node, so its subscription goes by plain name.
        """
        group = self._group(params)
        if group not in self.clients and len(self.clients) - (None in self.clients) >= GROUPS:
            return Scarce.GROUPS
        if not self._spread.admits(type_url):
            return Scarce.TYPES
        place = self._spread.place(type_url, group)
        if place is None:
            return Scarce.SUBSCRIPTIONS
        client = self.client(group, place)
        sink = Sink(self._on_change)
        entry = client.subscribe(type_url, Key(name, params if group is None else None), sink)
        sink.report(entry)
        if not sink.entries:  # no server can be asked for the name, so it takes no room
            self._spread.leave(type_url, place, group)
        if group is not None:
            self._groups[entry.authority] = group
        return OnStream(self, entry, sink, client, place)

    def ended(self, subscription: OnStream) -> None:
        """Note that a subscription ended.

        A client that carries nothing any more is closed, unless it serves all nodes.
        """
        entry, client = subscription.entry, subscription.client
        group = self._groups.get(entry.authority)
        self._spread.leave(entry.type_url, subscription.place, group)
        if client.subscriber.is_idle:
            self._retire(client, group)

    @property
    def narrow(self) -> frozenset[ServerConfig]:
        """The servers that were found to refuse locators that others take (PRX-35)."""
        return frozenset(server for server, dialect in self._dialects.items() if dialect.is_narrow)

    def is_narrow(self, name: str) -> bool:
        """Whether one of these servers may be asked for a name."""
        try:
            return not self.narrow.isdisjoint(self._bootstrap.authority_of(name).servers)
        except UsageError:
            return False

    @property
    def sends_params(self) -> bool:
        """Whether at least one server may be asked with locators."""
        if self._group_by is not None or self._form is RequestForm.NAMES:
            return False
        return not self._dialects or not all(dialect.by_names for dialect in self._dialects.values())

    def pin(self, entry: Entry) -> Constraint | None:
        """Return the constraint of the clients that an answer is for; None: its own constraints decide.

        PRX-20: an answer to a group is for clients that have the same values of the keys that make groups. PRX-32:
        without groups, an answer from a server that knows no params is for every client.
        """
        group = self._groups.get(entry.authority)  # members of a wildcard have the same authority
        if group is None or self._group_by is None:
            return TRUE if entry.for_all else None
        return canonical(pins({key: group.get(key) for key in self._group_by}))

    def reaches(self, name: str, params: Params) -> bool:
        """Whether a stream to a server for this name is open, in the group of these params."""
        group = self._group(params)
        further = (client for (each, _), client in self._further.items() if each == group)
        return any(client is not None and client.reaches(name) for client in (self.clients.get(group), *further))

    def silence(self, entry: Entry, now: float) -> float:
        """Return for how many seconds no server could be asked about an entry (PRX-25).

        For an answer from the disk cache this counts from when an earlier run last knew it to be current.
        """
        if entry.kept_at is not None:
            return self.wall() - entry.kept_at
        active = entry.authority.active
        if any(upstream.connected for upstream in active):
            return 0.0
        return now - max(
            (upstream.lifecycle.parted for upstream in active if upstream.lifecycle.parted is not None), default=now
        )

    def upstreams(self) -> list[tuple[Params | None, Upstream]]:
        """Return every server, once for each group that asks it and for each further stream."""
        further = ((group, client) for (group, _), client in self._further.items())
        groups = [*self.clients.items(), *further]
        groups = [(group, client) for group, client in groups if group is not None] or groups
        return [(group, upstream) for group, client in groups for upstream in client.upstreams()]

    async def close(self) -> None:
        """Close all clients, and wait for those that are closing already."""
        for client in (*self.clients.values(), *self._further.values()):
            await client.close()
        await asyncio.gather(*self._closing)

    def _retire(self, client: FeedClient, group: Params | None) -> None:
        """Close the client of a group, or of a further stream, that carries no subscription any more."""
        further = [key for key, each in self._further.items() if each is client]
        if group is None and not further:
            return
        for key in further:
            del self._further[key]
        if self.clients.get(group) is client:
            del self.clients[group]
        for authority in client.authorities:
            self._groups.pop(authority, None)
        task = asyncio.get_running_loop().create_task(client.close(), name="xdsprism group")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def pool(self, params: Params) -> Params | None:
        """Return the group on whose streams a subscription with these params takes room; None: those of all."""
        return self._group(params)

    def _group(self, params: Params) -> Params | None:
        """Return the group of these params; None: there are no groups."""
        return params.only(self._group_by) if self._group_by is not None else None

    def client(self, group: Params | None, place: int = 0) -> FeedClient:
        """Return the client for a group, and create it if there is none.

        group: None for all nodes, where there are no groups. place: which of the streams of the group; 0 is the first.
        """
        if place:
            if (group, place) not in self._further:
                self._further[group, place] = self._new(group)
            return self._further[group, place]
        if group not in self.clients:
            self.clients[group] = self._new(group)
        return self.clients[group]

    def dialect(self, server: ServerConfig) -> Dialect:
        """Return the dialect of a server, the same for every client that asks it (PRX-32, PRX-33)."""
        known = self._dialects.get(server)
        if known is None:
            known = self._dialects[server] = Dialect(
                self._form, fixed=self._form is not RequestForm.UNKNOWN, needs_delta=False
            )
        return known

    def _new(self, group: Params | None) -> FeedClient:
        """Create a client, and listen to the resources that it gets."""
        bootstrap = self._bootstrap if group is None else _for_group(self._bootstrap, group)
        made = self._make(bootstrap, self._after_input, group)
        made.subscriber.listeners.append(lambda entry, _: self._on_change(entry))
        return made


def _for_group(bootstrap: Bootstrap, group: Params) -> Bootstrap:
    """Return the bootstrap with the relay's own node and the group's params in its metadata (PRX-21)."""
    node = Node.FromString(bootstrap.node)
    write_named(node, group)
    return replace(bootstrap, node=node.SerializeToString())


def _as_it_came(variant: Variant, message: object) -> Variant:
    """Keep the server's version of a delta resource (PRX-22), and set what the relay derives from it."""
    text = "\0".join((variant.type_url, variant.name, variant.version, ascii(canonical(variant.constraint))))
    variant.digest = int.from_bytes(sha256(text.encode()).digest()[:8], "big")
    variant.references, variant.routing = _references(variant, message), _routing(variant, message)
    variant.do_not_cache = not may_keep(variant)
    return variant


def _hashed(variant: Variant, message: object) -> Variant:
    """Give a SotW resource a version of its own, a hash of its contents: SotW has one version for all."""
    made = make_variant(
        variant.type_url,
        variant.name,
        variant.body,
        variant.constraint,
        aliases=variant.aliases,
        extras=variant.extras,
        references=_references(variant, message),
        ttl=variant.ttl,
        routing=_routing(variant, message),
    )
    made.do_not_cache = not may_keep(made)
    return made


def _references(variant: Variant, message: object) -> tuple[Reference, ...]:
    """Return the references of a resource, by which sessions keep the order of updates behind a relay too (ORD-2)."""
    return references_of(variant.type_url, message)


def _routing(variant: Variant, message: object) -> Routing | None:
    """Return how a route configuration finds its virtual hosts; None for other types."""
    return routing_of(message) if variant.type_url == ROUTE and message is not None else None
