"""Subscriptions to the servers behind a relay: one client for all, or one for each group of nodes (DESIGN 7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from hashlib import sha256
from typing import Any

from envoy.config.core.v3.base_pb2 import Node

from ..client.bootstrap import Bootstrap, ServerConfig
from ..client.client import Client
from ..client.disk import may_keep
from ..client.line import Do, at_once
from ..core.codec.client_side import FEATURES, LISTS_OF_ENDPOINTS, ResponseDecoder
from ..core.codec.references import references_of
from ..core.codec.server_side import routing_of
from ..core.model.constraints import TRUE, Constraint, canonical
from ..core.model.dialect import Dialect, RequestForm
from ..core.model.events import Key
from ..core.model.limits import Scarce
from ..core.model.node_params import write_named
from ..core.model.type_versions import RESOURCE
from ..core.model.types import ROUTE, Params, Reference, Routing, TypeUrl, Variant, make_variant
from ..core.model.variants import pins
from ..core.relay.relaying import Relaying
from ..core.relay.spread import TypeSpread
from ..core.watch.authority import Authority
from ..core.watch.entry import Entry, Notice, State, Watch
from ..core.watch.upstream import Upstream
from ..errors import UsageError, WatchError
from ..messages.api_versions import to_v3
from ..messages.validation import Validate
from .judging import checking

GROUPS = 1000  # PRX-35: each has a stream of its own, and who makes up params makes up groups


class Sink(Watch):
    """A watcher who looks at the entry itself, whenever something is said of it."""

    def tell(self, entry: Entry, notice: Notice) -> None:
        """Nothing to keep. What an entry holds is heard of elsewhere; that something is wrong, only here."""
        if notice.variant is None or entry.state is State.RECEIVED_ERROR:
            self.wake()


class FeedClient(Client):
    """A client whose resources are passed on: they keep their versions, and are judged by none or as told (judging.py).

    PRX-16, PRX-19, PRX-22
    """

    # CLI-25: whether the clients behind it can take lists of endpoints, only the node of the bootstrap can say.
    _features = tuple(feature for feature in FEATURES if feature != LISTS_OF_ENDPOINTS)

    def __init__(
        self,
        bootstrap: Bootstrap,
        settled: Callable[[], None],
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
        self.nobody = Authority("", ())  # knows the names that no server can be asked for
        self._settled = settled
        self._check = checking(validate)

    def subscribe(self, type_url: TypeUrl, key: Key, sink: Sink) -> Entry:
        """By a key as it is. A name that nobody can be asked for does not exist."""
        try:
            self._check_way(type_url)
            config = self.bootstrap.authority_of(key[0])
        except UsageError as error:
            entry = Entry(type_url, key, self.nobody, [])
            entry.fail(WatchError("NOT_FOUND", str(error)), State.DOES_NOT_EXIST, self.now(), drop=True)
            return entry
        self.subscriber.watch(sink, self._authority(config), type_url, key)
        self._settle()
        return sink.entries[0]

    def unsubscribe(self, sink: Sink) -> None:
        self.subscriber.unwatch(sink)
        self._settle()

    def ask_again(self, entry: Entry) -> None:
        self.subscriber.ask_again(entry)
        self._settle()

    def presume_gone(self, entry: Entry) -> None:
        if self.subscriber.presume_gone(entry, self.now()):
            self._settle()

    # -- for those who look after it

    @property
    def authorities(self) -> list[Authority]:
        return [*self._authorities.values(), self.nobody]

    def seek(self) -> None:
        """PRX-30: find out whether there is anybody to ask."""
        for authority in self._known_authorities():
            self.subscriber.seek(authority)
        self._settle()

    def rest(self) -> None:
        """Nothing is asked by this one."""
        for authority in self._known_authorities():
            self.subscriber.rest(authority)
        self._settle()

    def reaches(self, name: str) -> bool:
        """Whether there is a stream to somebody who knows that name; of names that nobody knows nothing is to come."""
        try:
            authority = self._authorities.get(self.bootstrap.authority_of(name).name)
        except UsageError:
            return True
        return authority is not None and any(upstream.connected for upstream in authority.active)

    def upstreams(self) -> list[Upstream]:
        """Those of the bootstrap, in its order."""
        authorities = self._known_authorities()
        return [*dict.fromkeys(upstream for authority in authorities for upstream in authority.servers)]

    def _known_authorities(self) -> list[Authority]:
        configs = (self.bootstrap.root, *self.bootstrap.authorities.values())
        return [self._authority(config) for config in configs if config.servers]

    def _upstream(self, server: ServerConfig) -> Upstream:
        """PRX-11: that a server is slow does not mean that there is nothing. Clients have timers of their own.

        PRX-34: but one that goes on to say all that there is has said it.
        """
        upstream = super()._upstream(server)
        upstream.timer_is_transient = upstream.full_state_decides = True
        return upstream

    def _dialect(self, server: ServerConfig) -> Dialect:
        return self._known_dialect(server) if self._is_v3(server) else super()._dialect(server)

    def _decoder(self, upstream: Upstream) -> ResponseDecoder:
        dress = _as_it_came if upstream.delta else _hashed

        def renamed(variant: Variant, message: object) -> Variant:
            """VER-14: one cache for both versions, in the words of v3. PRX-36: a stream of v3 may carry names of v2."""
            variant.body = to_v3(variant.type_url, variant.body)
            variant.extras = to_v3(RESOURCE, variant.extras)
            return dress(variant, message)

        return ResponseDecoder(
            self._check,
            delta=upstream.delta,
            locators=self.bootstrap.dynamic_parameters,  # DYN-54
            asks=upstream.asks,
            dress=renamed,
        )

    def _settle(self) -> None:
        super()._settle()
        self._settled()


class Feed:
    """The relay's subscriptions (core.relay.supply.Supply).

    form: how servers are asked; UNKNOWN: as each turns out to understand, which is remembered here (PRX-32).
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        *,
        group_by: Collection[str] | None,
        form: RequestForm,
        settled: Callable[[], None],
        make: Callable[[Bootstrap, Callable[[], None], Params | None], FeedClient],
    ) -> None:
        self.relaying: Relaying | None = None
        self.wall: Callable[[], float] = time.time
        self.clients: dict[Params | None, FeedClient] = {}
        self._form = form
        self._dialects: dict[ServerConfig, Dialect] = {}
        self._bootstrap = bootstrap
        self._group_by = group_by
        self._settled = settled
        self._make = make
        self._sinks: dict[Entry, list[tuple[Sink, FeedClient, int]]] = {}  # each with the place of its stream
        self._spread = TypeSpread()
        self._further: dict[tuple[Params | None, int], FeedClient] = {}  # of each group, beside its first (PRX-35)
        self._groups: dict[Authority, Params] = {}  # each client has authorities of its own
        self._closing: set[asyncio.Task[None]] = set()

    def ask(self, type_url: TypeUrl, name: str, params: Params) -> Entry | Scarce:
        group = self._group(params)
        if group not in self.clients and len(self.clients) - (None in self.clients) >= GROUPS:
            return Scarce.GROUPS
        if not self._spread.admits(type_url):
            return Scarce.TYPES
        place = self._spread.place(type_url, group)
        if place is None:
            return Scarce.SUBSCRIPTIONS
        client = self.client(group, place)
        sink = Sink(lambda: None)
        entry = client.subscribe(type_url, (name, params if group is None else None), sink)
        sink.wake = lambda: self._heard(entry)
        if sink.entries:
            self._sinks.setdefault(entry, []).append((sink, client, place))
        else:
            self._spread.leave(type_url, place, group)
        if group is not None:
            self._groups[entry.authority] = group
        return entry

    def ask_again(self, entry: Entry) -> None:
        for _, client, _ in self._sinks.get(entry, [])[:1]:
            client.ask_again(entry)

    def presume_gone(self, entry: Entry) -> None:
        for _, client, _ in self._sinks.get(entry, [])[:1]:
            client.presume_gone(entry)

    def drop(self, entry: Entry) -> None:
        sinks = self._sinks.get(entry, [])
        if not sinks:
            return
        sink, client, place = sinks.pop()
        group = self._groups.get(entry.authority)
        self._spread.leave(entry.type_url, place, group)
        if not sinks:
            del self._sinks[entry]
        client.unsubscribe(sink)
        if client.subscriber.is_idle:
            self._retire(client, group)

    @property
    def narrow(self) -> frozenset[ServerConfig]:
        """The servers that were found to refuse locators that others take (PRX-35)."""
        return frozenset(server for server, dialect in self._dialects.items() if dialect.is_narrow)

    def is_narrow(self, name: str) -> bool:
        """Whether one of these may be asked for a name."""
        try:
            return not self.narrow.isdisjoint(self._bootstrap.authority_of(name).servers)
        except UsageError:
            return False

    @property
    def sends_params(self) -> bool:
        """Whether a server may be asked by locators."""
        if self._group_by is not None or self._form is RequestForm.NAMES:
            return False
        return not self._dialects or not all(dialect.by_names for dialect in self._dialects.values())

    def pin(self, entry: Entry) -> Constraint | None:
        """PRX-20: what came for a group is for whoever agrees with it on the keys that make groups.

        PRX-32: where there are no groups, a server that knows no params makes all clients one.
        """
        group = self._groups.get(entry.authority)  # as a member of a wildcard has it too
        if group is None or self._group_by is None:
            return TRUE if entry.for_all else None
        return canonical(pins({key: group.get(key) for key in self._group_by}))

    def reaches(self, name: str, params: Params) -> bool:
        group = self._group(params)
        further = (client for (each, _), client in self._further.items() if each == group)
        return any(client is not None and client.reaches(name) for client in (self.clients.get(group), *further))

    def silence(self, entry: Entry, now: float) -> float:
        """PRX-25: for how long nobody can be asked about it any more; of what an earlier run knew, since that."""
        if entry.kept_at is not None:
            return self.wall() - entry.kept_at
        active = entry.authority.active
        if any(upstream.connected for upstream in active):
            return 0.0
        return now - max((upstream.parted for upstream in active if upstream.parted is not None), default=now)

    def upstreams(self) -> list[tuple[Params | None, Upstream]]:
        """Every server, once for each group that asks it, and for each stream where one takes too few types."""
        further = ((group, client) for (group, _), client in self._further.items())
        groups = [*self.clients.items(), *further]
        groups = [(group, client) for group, client in groups if group is not None] or groups
        return [(group, upstream) for group, client in groups for upstream in client.upstreams()]

    async def close(self) -> None:
        for client in (*self.clients.values(), *self._further.values()):
            await client.close()
        await asyncio.gather(*self._closing)

    def _retire(self, client: FeedClient, group: Params | None) -> None:
        """A group in which nobody wants anything has no stream, and neither has a further stream of one."""
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

    def _heard(self, entry: Entry) -> None:
        if self.relaying is not None:
            self.relaying.heard(entry)

    def pool(self, params: Params) -> Params | None:
        """Whose streams a question with these params takes room on: a group's, or those of all."""
        return self._group(params)

    def _group(self, params: Params) -> Params | None:
        return params.only(self._group_by) if self._group_by is not None else None

    def client(self, group: Params | None, place: int = 0) -> FeedClient:
        """Who asks for a group; None: for all, where there are no groups. place: on which of its streams."""
        if place:
            if (group, place) not in self._further:
                self._further[group, place] = self._new(group)
            return self._further[group, place]
        if group not in self.clients:
            self.clients[group] = self._new(group)
        return self.clients[group]

    def dialect(self, server: ServerConfig) -> Dialect:
        """PRX-32, PRX-33: what is known of a server, whoever asks it."""
        known = self._dialects.get(server)
        if known is None:
            known = self._dialects[server] = Dialect(
                self._form, fixed=self._form is not RequestForm.UNKNOWN, needs_delta=False
            )
        return known

    def _new(self, group: Params | None) -> FeedClient:
        bootstrap = self._bootstrap if group is None else _for_group(self._bootstrap, group)
        made = self._make(bootstrap, self._settled, group)
        made.subscriber.listeners.append(lambda entry, _: self._heard(entry))
        return made


def _for_group(bootstrap: Bootstrap, group: Params) -> Bootstrap:
    """PRX-21: the relay's own node, with what makes the group."""
    node = Node.FromString(bootstrap.node)
    write_named(node, group)
    return replace(bootstrap, node=node.SerializeToString())


def _as_it_came(variant: Variant, message: object) -> Variant:
    """PRX-22: in the server's version."""
    text = "\0".join((variant.type_url, variant.name, variant.version, ascii(canonical(variant.constraint))))
    variant.digest = int.from_bytes(sha256(text.encode()).digest()[:8], "big")
    variant.references, variant.routing = _references(variant, message), _routing(variant, message)
    variant.do_not_cache = not may_keep(variant)
    return variant


def _hashed(variant: Variant, message: object) -> Variant:
    """SotW has one version for all; each by itself is known by its contents."""
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
    """ORD-2: what a client still needs is held back behind a relay, too."""
    return references_of(variant.type_url, message)


def _routing(variant: Variant, message: object) -> Routing | None:
    return routing_of(message) if variant.type_url == ROUTE and message is not None else None
