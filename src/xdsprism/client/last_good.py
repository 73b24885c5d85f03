"""Keeps the last good state on disk, so that a client or a relay can start while every server is down (PRX-25).

The file holds what the servers said last to each subscription: the variants, that a resource does not exist, and the
complete list of a wildcard or glob collection.

`written_at` of an entry is the last time at which its server could have changed it. While the subscription lives, that
is the last contact with the server, which is written down from time to time. When the subscription ends, it is the
time of the end.

The subscriber calls a ClientCache at three points: `recall` when a subscription begins and no server has answered yet,
`on_changed` when a server has said something new, and `on_unsubscribed` when the subscription ends.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from ..core.model.constraints import TRUE, Constraint, canonical, matches
from ..core.model.types import VIRTUAL_HOST, Params, TypeUrl, Variant
from ..core.watch.authority import Authority
from ..core.watch.entry import Collection, Entry, Recalled, State
from .disk import CachedEntry, Disk, RowKind, may_keep

PAUSE = 0.2  # seconds over which changes are collected before they are written
CONTACT = 10.0  # seconds after which the file notes again that a server is still connected

_Subscription = tuple[Params | None, str | None]  # the params; and the wildcard or glob, if not subscribed by name
_Key = tuple[str, TypeUrl, str]  # place (a client and an authority), type, name


class LastGood:
    """The cache file of one client, or of all clients of a relay; each client has its own ClientCache.

    max_stale: seconds after which an entry is not used any more; None: entries are used at any age.
    """

    def __init__(
        self,
        path: str,
        warn: Callable[[str], None],
        wall: Callable[[], float] = time.time,
        max_stale: float | None = None,
    ) -> None:
        self.wall = wall
        self.disk = Disk(path)
        # What an earlier run left, until this run replaces it:
        self.entries: dict[_Key, dict[_Subscription, CachedEntry]] = {}
        self.complete_lists: dict[tuple[str, TypeUrl, _Subscription], CachedEntry] = {}
        self.members: dict[tuple[str, TypeUrl, _Subscription], dict[str, None]] = {}  # names that a wildcard matched
        self.aliases: dict[_Key, dict[str, None]] = {}  # alias: the names of the resources that have it
        self._max_stale = max_stale
        self._warn = warn
        self._dirty = asyncio.Event()
        self._clients: dict[str, ClientCache] = {}
        self._load()
        self._report_warnings()

    @property
    def is_empty(self) -> bool:
        """Whether an earlier run left nothing."""
        return not (self.entries or self.complete_lists)

    def client_cache(self, group: str = "", *, shared: bool = False) -> ClientCache:
        """Return the part of the file that belongs to one client, or to one group of a relay's nodes.

        shared: whether a variant may serve other params that its constraints match even if it came without a locator,
        and whether it is kept that a resource does not exist. A relay needs both.
        """
        known = self._clients.get(group)
        if known is None:
            known = self._clients[group] = ClientCache(self, group, shared=shared)
        return known

    def mark_dirty(self) -> None:
        """Have `run` write the changes soon."""
        self._dirty.set()

    def is_usable(self, entry: CachedEntry) -> bool:
        return self._max_stale is None or self.wall() - entry.written_at <= self._max_stale

    async def run(self) -> None:
        """Write changes and contacts until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CONTACT):
                    await self._dirty.wait()
            await asyncio.sleep(PAUSE)
            self._dirty.clear()
            await self._flush()

    async def close(self) -> None:
        self._note_contacts()
        await self.disk.close()
        self._report_warnings()

    async def _flush(self) -> None:
        self._note_contacts()
        if self.disk.is_dirty:
            await self.disk.flush()
        self._report_warnings()

    def _note_contacts(self) -> None:
        for client in self._clients.values():
            client.note_contacts()

    def _load(self) -> None:
        """Read the file, set each entry's `written_at` to the last contact, and drop entries that are too old."""
        contacts = self.disk.contacts()
        found = [(scope, _with_last_contact(entry, scope, contacts)) for scope, entry in self.disk.load()]
        lists = {(scope, entry.variant.type_url): entry for scope, entry in found if entry.kind is RowKind.LIST}
        for scope, entry in found:
            place, subscription = _parse_scope(scope)
            type_url, name = entry.variant.type_url, entry.variant.name
            whole = lists.get((scope, type_url), entry)  # a member of a list is as old as the list
            aged = CachedEntry(entry.variant, entry.located, whole.written_at, entry.kind)
            if not self.is_usable(aged):
                self.disk.remove(scope, type_url, name)
            elif entry.kind is RowKind.LIST:
                self.complete_lists[place, type_url, subscription] = aged
            else:
                self.entries.setdefault((place, type_url, name), {})[subscription] = aged
                self.members.setdefault((place, type_url, subscription), {})[name] = None
                for alias in entry.variant.aliases:
                    self.aliases.setdefault((place, type_url, alias), {})[name] = None

    def _report_warnings(self) -> None:
        """Report the failures of the file. None of them stops the client."""
        for text in self.disk.warnings():
            self._warn(text)


class ClientCache:
    """The part of a cache file that belongs to one client."""

    def __init__(self, file: LastGood, group: str, *, shared: bool) -> None:
        self._file = file
        self._group = group
        self._shared = shared
        self._contacts: dict[Authority, float] = {}  # when a server of each authority was connected last
        self._uncached: dict[Collection, set[str]] = {}  # members that must not be written to disk

    # -- reading

    def recall(self, entry: Entry) -> Recalled | None:
        """Return what an earlier run left for a subscription."""
        if entry.collection is not None:
            return self._recall_collection(entry)
        cached = next(self._candidates(entry), None)
        if cached is None:
            return None
        if cached.kind is RowKind.ABSENT:
            absence = cached.variant.constraint if cached.located else None
            return Recalled(cached.written_at, absent=True, absence=absence)
        return Recalled(cached.written_at, (cached.variant,))

    def _recall_collection(self, entry: Entry) -> Recalled | None:
        """Return the members of a wildcard or glob. The list counts as complete only if no member is too old."""
        place, type_url, subscription = self._place(entry.authority), entry.type_url, _subscription(entry)
        whole = self._file.complete_lists.get((place, type_url, subscription))
        names = self._file.members.get((place, type_url, subscription), {})
        known = (self._file.entries.get((place, type_url, name), {}).get(subscription) for name in names)
        members = [cached for cached in known if cached is not None]
        usable = [cached for cached in members if self._file.is_usable(cached)]
        if len(usable) < len(members) or (whole is not None and not self._file.is_usable(whole)):
            whole = None
        if whole is None and not usable:
            return None
        since = whole.written_at if whole is not None else min(cached.written_at for cached in usable)
        return Recalled(since, tuple(cached.variant for cached in usable), whole=whole is not None)

    def _candidates(self, entry: Entry) -> Iterator[CachedEntry]:
        """Yield the answers for the same params, the newest first; then answers for others that may be shared."""
        own, others = [], []
        for subscription, cached in self._known(entry.authority, entry.type_url, entry.name):
            if not self._file.is_usable(cached):
                continue
            if subscription[0] == entry.params:
                own.append(cached)
            elif self._may_share(entry, subscription, cached):
                others.append(cached)
        for group in (own, others):
            yield from sorted(group, key=lambda cached: cached.written_at, reverse=True)

    def _known(self, authority: Authority, type_url: TypeUrl, name: str) -> Iterator[tuple[_Subscription, CachedEntry]]:
        """Yield the cached entries of a name, and of the resources that have it as an alias."""
        place = self._place(authority)
        for each in (name, *self._file.aliases.get((place, type_url, name), {})):
            yield from self._file.entries.get((place, type_url, each), {}).items()

    def _may_share(self, entry: Entry, subscription: _Subscription, cached: CachedEntry) -> bool:
        """Whether an answer for other params is one for this subscription, too: its constraints must match."""
        params = entry.params
        may_match = cached.located or (self._shared and cached.kind is RowKind.VARIANT)
        if params is None or subscription[0] is None or not may_match:
            return False
        return matches(cached.variant.constraint, params)

    # -- writing

    def on_changed(self, entry: Entry, before: Variant | None) -> None:
        """Write down that a subscription has another answer now, unless the answer came from the disk."""
        if entry.kept_at is not None:
            return
        self._contacts.setdefault(entry.authority, self._file.wall())
        if entry.collection is not None:
            self._write_list(entry.collection)
        else:
            self._write_entry(entry, before)
        self._file.mark_dirty()

    def _write_entry(self, entry: Entry, before: Variant | None) -> None:
        now = self._cacheable(entry)
        scope = self._scope(entry)
        name = now.variant.name if now is not None else entry.name
        for gone in {entry.name, before.name if before is not None else name} - {name}:
            self._file.disk.remove(scope, entry.type_url, gone)
            self._drop_superseded(entry, gone, None)
        self._drop_superseded(entry, name, now)
        self._file.disk.put(scope, entry.type_url, name, [now] if now is not None else [])
        if entry.member_of is not None:
            self._update_list(entry.member_of, entry, is_cached=now is not None or entry.variant is None)
        if entry.member_of is not None and now is None:  # the same params may have subscribed to it by name before
            by_name = _make_scope(self._place(entry.authority), (entry.params, None))
            self._file.disk.remove(by_name, entry.type_url, name)

    def _cacheable(self, entry: Entry) -> CachedEntry | None:
        """Return the entry to write to disk, or None if the answer must not be kept."""
        located = entry.params is not None and (entry.suited or entry.variant is None)
        variant = entry.variant
        run = self._file.disk.run
        if variant is not None:
            # A server sets a TTL so that nobody uses the resource after such a time without contact: don't keep it.
            may = may_keep(variant) and entry.expires is None
            return CachedEntry(variant, located, self._file.wall(), run=run) if may else None
        if not self._shared or entry.member_of is not None or not _is_absent(entry):
            return None
        absent = _empty_variant(entry, entry.absence if entry.absence is not None else TRUE)
        return CachedEntry(absent, located and entry.absence is not None, self._file.wall(), RowKind.ABSENT, run)

    def _write_list(self, collection: Collection) -> None:
        """Note that the list of a wildcard or glob is complete on disk, or remove that note."""
        entry = collection.entry
        scope, type_url = self._scope(entry), entry.type_url
        self._file.complete_lists.pop((self._place(entry.authority), type_url, _subscription(entry)), None)
        if entry.state is State.ACKED and not self._uncached.get(collection):
            run = self._file.disk.run
            marker = CachedEntry(_empty_variant(entry, TRUE), False, self._file.wall(), RowKind.LIST, run)  # noqa: FBT003
            self._file.disk.put(scope, type_url, entry.name, [marker])
        else:
            self._file.disk.remove(scope, type_url, entry.name)

    def _update_list(self, collection: Collection, entry: Entry, *, is_cached: bool) -> None:
        """Note that a list is incomplete while a member must not be written to disk (PRX-17).

        After a restart the member would look deleted otherwise.
        """
        uncached = self._uncached.get(collection, set())
        if is_cached == (entry.name not in uncached):
            return
        if is_cached:
            uncached.discard(entry.name)
        else:
            self._uncached.setdefault(collection, set()).add(entry.name)
        self._write_list(collection)

    def _drop_superseded(self, entry: Entry, name: str, now: CachedEntry | None) -> None:
        """Drop what an earlier run left for this subscription, and for others that would get the same answer."""
        place, params = self._place(entry.authority), entry.params
        known = self._file.entries.get((place, entry.type_url, name), {})
        for subscription, cached in [*known.items()]:
            own = subscription == _subscription(entry)
            alike = params is not None and cached.located and matches(cached.variant.constraint, params)
            if own or (alike and not _is_same(cached, now)):
                del known[subscription]
                if not own:
                    self._delete(place, entry.type_url, name, subscription)

    def _delete(self, place: str, type_url: TypeUrl, name: str, subscription: _Subscription) -> None:
        """Delete an entry from disk; a list that had it is incomplete then."""
        scope = _make_scope(place, subscription)
        self._file.disk.remove(scope, type_url, name)
        collection = subscription[1]
        if collection is not None and self._file.complete_lists.pop((place, type_url, subscription), None) is not None:
            self._file.disk.remove(scope, type_url, collection)

    # -- the age of entries

    def on_unsubscribed(self, entry: Entry) -> None:
        """Write down the time at which a subscription ended: no server will report a change from now on."""
        if entry.kept_at is not None:
            return
        since = self._file.wall() if _is_connected(entry.authority) else self._contacts.get(entry.authority, 0.0)
        scope = self._scope(entry)
        if entry.collection is not None:
            whole = entry.state is State.ACKED and not self._uncached.pop(entry.collection, None)
            cached = CachedEntry(_empty_variant(entry, TRUE), False, since, RowKind.LIST) if whole else None  # noqa: FBT003
            for name in entry.collection.members if cached is None else ():
                self._file.disk.remove(scope, entry.type_url, name)
        else:
            live = self._cacheable(entry)
            cached = CachedEntry(live.variant, live.located, since, live.kind) if live is not None else None
        if cached is not None:
            self._file.disk.put(scope, entry.type_url, cached.variant.name, [cached])
            self._file.mark_dirty()

    def note_contacts(self) -> None:
        """Write down the time for each authority with a connected server: its entries are current until now."""
        for authority in self._contacts:
            if _is_connected(authority):
                self._contacts[authority] = self._file.wall()
                self._file.disk.contact(self._place(authority), self._file.wall())

    def _place(self, authority: Authority) -> str:
        return json.dumps([self._group, authority.name])

    def _scope(self, entry: Entry) -> str:
        return _make_scope(self._place(entry.authority), _subscription(entry))


def _subscription(entry: Entry) -> _Subscription:
    whole = entry.collection or entry.member_of
    return entry.params, whole.entry.name if whole is not None else None


def _make_scope(place: str, subscription: _Subscription) -> str:
    """Return the scope of a subscription: the text by which the file separates entries."""
    params, collection = subscription
    return json.dumps([place, sorted(params.items()) if params is not None else None, collection])


def _parse_scope(scope: str) -> tuple[str, _Subscription]:
    place, params, collection = json.loads(scope)
    return place, (Params(dict(params)) if params is not None else None, collection)


def _with_last_contact(entry: CachedEntry, scope: str, contacts: dict[tuple[int, str], float]) -> CachedEntry:
    last = contacts.get((entry.run, json.loads(scope)[0]), 0.0)
    return CachedEntry(entry.variant, entry.located, max(entry.written_at, last), entry.kind)


def _is_connected(authority: Authority) -> bool:
    return any(upstream.connected and upstream.lifecycle.failing is None for upstream in authority.active)


def _empty_variant(entry: Entry, constraint: Constraint) -> Variant:
    """Make the variant of a row that has no contents: only a name and constraints."""
    return Variant(entry.type_url, entry.name, constraint, b"", version="", digest=0)


def _is_absent(entry: Entry) -> bool:
    """Whether the server said that the resource does not exist.

    PRX-27: the absence of a virtual host holds for seconds only, and is not kept.
    """
    if entry.type_url == VIRTUAL_HOST:
        return False
    denied = (
        entry.state is State.RECEIVED_ERROR and entry.own_error is not None and entry.own_error.status == "NOT_FOUND"
    )
    return denied or entry.state is State.DOES_NOT_EXIST


def _is_same(cached: CachedEntry, now: CachedEntry | None) -> bool:
    if now is None or cached.kind is not now.kind:
        return False
    same = canonical(cached.variant.constraint) == canonical(now.variant.constraint)
    return same and (cached.variant.version, cached.variant.body) == (now.variant.version, now.variant.body)
