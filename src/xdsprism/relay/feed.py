"""Subscriptions to the servers behind a relay: one client for all, or one for each group of nodes (DESIGN 7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from hashlib import sha256
from typing import Any

from envoy.config.core.v3.base_pb2 import Node
from google.protobuf.message import DecodeError

from ..client.bootstrap import Bootstrap, ServerConfig
from ..client.client import Client
from ..client.disk import may_keep
from ..core.codec import name_of, routing_of, warms_of
from ..core.constraints import Constraint, canonical
from ..core.events import WILDCARD, Key
from ..core.relaying import Relaying
from ..core.replies import Checked, ResponseDecoder
from ..core.subscriber import Authority
from ..core.types import CLUSTER, ROUTE, Params, Routing, TypeUrl, Variant, make_variant
from ..core.upstream import Upstream
from ..core.variants import pins
from ..core.watching import Entry, Notice, State, Watch
from ..errors import UsageError, WatchError
from ..messages.protos import find_message, type_name
from ..messages.twins import to_v3


class Sink(Watch):
    """A watcher who looks at the entry itself, whenever something is said of it."""

    def tell(self, entry: Entry, notice: Notice) -> None:
        """Nothing to keep. What an entry holds is heard of elsewhere; that something is wrong, only here."""
        if notice.variant is None or entry.state is State.RECEIVED_ERROR:
            self.wake()


class FeedClient(Client):
    """A client whose resources are passed on: they are not judged, and keep their versions (PRX-16, PRX-19, PRX-22)."""

    def __init__(self, bootstrap: Bootstrap, settled: Callable[[], None], **options: Any) -> None:
        super().__init__(bootstrap, fail_on_data_errors=True, **options)
        self.nobody = Authority("", ())  # knows the names that no server can be asked for
        self._settled = settled
        self._check = _named

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
        """PRX-11: that a server is slow does not mean that there is nothing. Clients have timers of their own."""
        upstream = super()._upstream(server)
        upstream.timer_is_transient = True
        return upstream

    def _decoder(self, upstream: Upstream) -> ResponseDecoder:
        dress = _as_it_came if upstream.delta else _hashed

        def renamed(variant: Variant, message: object) -> Variant:
            """VER-14: one cache for both versions, in the words of v3."""
            variant.body = to_v3(variant.type_url, variant.body)
            return dress(variant, message)

        return ResponseDecoder(
            self._check, delta=upstream.delta, asks=upstream.asks, dress=renamed if upstream.formless else dress
        )

    def _settle(self) -> None:
        super()._settle()
        self._settled()


class Feed:
    """The relay's subscriptions (core.relaying.Supply).

    apart: wildcards of groups have a stream of their own. In SotW an empty list is the one form of a wildcard that
    every server understands, and it can be said only where nothing was ever asked by name: servers in the field take
    `*` for a name (WLD-1).
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        *,
        group_by: Collection[str] | None,
        apart: bool,
        settled: Callable[[], None],
        make: Callable[[Bootstrap, Callable[[], None], Params | None], FeedClient],
    ) -> None:
        self.relaying: Relaying | None = None
        self.wall: Callable[[], float] = time.time
        self.clients: dict[Params | None, FeedClient] = {}
        self._listing: dict[Params | None, FeedClient] = {}  # those of wildcards, where they are apart
        self._parked: dict[Entry, Sink] = {}  # wildcards that are not wanted; to say that would take a name
        self._apart = apart and group_by is not None
        self._bootstrap = bootstrap
        self._group_by = group_by
        self._settled = settled
        self._make = make
        self._sinks: dict[Entry, list[tuple[Sink, FeedClient]]] = {}
        self._groups: dict[Authority, Params] = {}  # each client has authorities of its own
        self._closing: set[asyncio.Task[None]] = set()

    def ask(self, type_url: TypeUrl, name: str, params: Params) -> Entry:
        group = self._group(params)
        client = self._listing_client(group) if self._apart and name == WILDCARD else self.client(group)
        sink = Sink(lambda: None)
        entry = client.subscribe(type_url, (name, params if group is None else None), sink)
        sink.wake = lambda: self._heard(entry)
        if sink.entries:
            self._sinks.setdefault(entry, []).append((sink, client))
        if entry in self._parked:
            client.unsubscribe(self._parked.pop(entry))
        if group is not None:
            self._groups[entry.authority] = group
        return entry

    def ask_again(self, entry: Entry) -> None:
        for _, client in self._sinks.get(entry, [])[:1]:
            client.ask_again(entry)

    def drop(self, entry: Entry) -> None:
        sinks = self._sinks.get(entry, [])
        if not sinks:
            return
        sink, client = sinks.pop()
        if not sinks:
            del self._sinks[entry]
        if not sinks and client in self._listing.values():
            self._parked[entry] = sink
            self._empty(client)
        else:
            client.unsubscribe(sink)
        if not client.subscriber.entries():
            self._retire(client, self._groups.get(entry.authority))

    def _empty(self, client: FeedClient) -> None:
        """Nothing is said as long as one wildcard is left: all of them go with the stream."""
        parked = [(entry, self._parked[entry]) for entry in client.subscriber.entries() if entry in self._parked]
        if all(entry in self._parked or entry.collection is not None for entry in client.subscriber.entries()):
            for entry, sink in parked:
                del self._parked[entry]
                client.unsubscribe(sink)

    def pin(self, entry: Entry) -> Constraint | None:
        """PRX-20: what came for a group is for whoever agrees with it on the keys that make groups."""
        group = self._groups.get(entry.authority)  # as a member of a wildcard has it too
        if group is None or self._group_by is None:
            return None
        return canonical(pins({key: group.get(key) for key in self._group_by}))

    def reaches(self, name: str, params: Params) -> bool:
        clients = self._listing if self._apart and name == WILDCARD else self.clients
        client = clients.get(self._group(params))
        return client is not None and client.reaches(name)

    def silence(self, entry: Entry, now: float) -> float:
        """PRX-25: for how long nobody can be asked about it any more; of what an earlier run knew, since that."""
        if entry.kept_at is not None:
            return self.wall() - entry.kept_at
        active = entry.authority.active
        if any(upstream.connected for upstream in active):
            return 0.0
        return now - max((upstream.parted for upstream in active if upstream.parted is not None), default=now)

    def upstreams(self) -> list[tuple[Params | None, Upstream]]:
        """Every server, once for each group that asks it; where wildcards are apart, once more for these."""
        groups = [*self.clients.items(), *self._listing.items()]
        groups = [(group, client) for group, client in groups if group is not None] or groups
        return [(group, upstream) for group, client in groups for upstream in client.upstreams()]

    async def close(self) -> None:
        for client in (*self.clients.values(), *self._listing.values()):
            await client.close()
        await asyncio.gather(*self._closing)

    def _retire(self, client: FeedClient, group: Params | None) -> None:
        """A group in which nobody wants anything has no stream: there may be no end to groups."""
        if group is None:
            return
        for clients in (self.clients, self._listing):
            if clients.get(group) is client:
                del clients[group]
        for authority in client.authorities:
            self._groups.pop(authority, None)
        task = asyncio.get_running_loop().create_task(client.close(), name="xdsprism group")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _heard(self, entry: Entry) -> None:
        if self.relaying is not None:
            self.relaying.heard(entry)

    def _group(self, params: Params) -> Params | None:
        return params.only(self._group_by) if self._group_by is not None else None

    def client(self, group: Params | None) -> FeedClient:
        """Who asks for a group; None: for all, where there are no groups."""
        if group not in self.clients:
            self.clients[group] = self._new(group)
        return self.clients[group]

    def _listing_client(self, group: Params | None) -> FeedClient:
        if group not in self._listing:
            self._listing[group] = self._new(group)
        return self._listing[group]

    def _new(self, group: Params | None) -> FeedClient:
        bootstrap = self._bootstrap if group is None else _for_group(self._bootstrap, group)
        made = self._make(bootstrap, self._settled, group)
        made.subscriber.listeners.append(lambda entry, _: self._heard(entry))
        return made


def _for_group(bootstrap: Bootstrap, group: Params) -> Bootstrap:
    """PRX-21: the relay's own node, with what makes the group."""
    node = Node.FromString(bootstrap.node)
    node.metadata.update(dict(group))
    return replace(bootstrap, node=node.SerializeToString())


def _named(type_url: TypeUrl, body: bytes) -> Checked:
    """Of what is passed on only the name matters, and what clusters and route configurations wait for."""
    kind = find_message(type_name(type_url))
    if kind is None:
        return Checked(None, "")
    try:
        message = kind.FromString(body)
    except DecodeError:
        return Checked(None, "")
    return Checked(message, name_of(message) or "")


def _as_it_came(variant: Variant, message: object) -> Variant:
    """PRX-22: in the server's version."""
    text = "\0".join((variant.type_url, variant.name, variant.version, ascii(canonical(variant.constraint))))
    variant.digest = int.from_bytes(sha256(text.encode()).digest()[:8], "big")
    variant.warms, variant.routing = _warms(variant, message), _routing(variant, message)
    variant.fleeting = not may_keep(variant)
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
        warms=_warms(variant, message),
        ttl=variant.ttl,
        routing=_routing(variant, message),
    )
    made.fleeting = not may_keep(made)
    return made


def _warms(variant: Variant, message: object) -> str | None:
    return warms_of(message) if variant.type_url == CLUSTER and message is not None else None


def _routing(variant: Variant, message: object) -> Routing | None:
    return routing_of(message) if variant.type_url == ROUTE and message is not None else None
