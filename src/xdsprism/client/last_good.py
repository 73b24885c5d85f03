"""The last good state, kept on disk: so that a client or a relay can start while every server is down (PRX-25).

What is kept is what the subscriptions were told last: variants, that there is none, and what a wildcard has in all.
Each is as old as the last moment at which its server could have said otherwise: while a subscription lives, that is the
last contact with the server; after it ended, the end of it.
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
from .disk import Disk, Kept, What, may_keep

PAUSE = 0.2  # seconds over which changes are collected before they are written
CONTACT = 10.0  # seconds after which it is written down once more that a server is still there

_Asked = tuple[Params | None, str | None]  # by which params; and for which wildcard or glob, if not by name
_Subject = tuple[str, TypeUrl, str]  # place, type, name


class LastGood:
    """One file, of one client or of all those of a relay; each has a shelf of its own.

    max_stale: seconds after which what is kept is of no use any more; None: it always is.
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
        self.left: dict[_Subject, dict[_Asked, Kept]] = {}  # by an earlier run, and not replaced yet
        self.lists: dict[tuple[str, TypeUrl, _Asked], Kept] = {}  # of these, wildcards of which everything is there
        self.members: dict[tuple[str, TypeUrl, _Asked], dict[str, None]] = {}  # names, by the wildcard they came for
        self.aliases: dict[_Subject, dict[str, None]] = {}  # names, by their aliases
        self._max_stale = max_stale
        self._warn = warn
        self._dirty = asyncio.Event()
        self._shelves: dict[str, Shelf] = {}
        self._load()
        self._pass_on()

    @property
    def is_empty(self) -> bool:
        """Whether an earlier run left nothing."""
        return not (self.left or self.lists)

    def shelf(self, group: str = "", *, shared: bool = False) -> Shelf:
        """For one client. `shared`: what one set of params was given may be for another, and so may be nothing."""
        known = self._shelves.get(group)
        if known is None:
            known = self._shelves[group] = Shelf(self, group, shared=shared)
        return known

    def touch(self) -> None:
        self._dirty.set()

    def is_usable(self, kept: Kept) -> bool:
        return self._max_stale is None or self.wall() - kept.written_at <= self._max_stale

    async def run(self) -> None:
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
        self._pass_on()

    async def _flush(self) -> None:
        self._note_contacts()
        if self.disk.is_dirty:
            await self.disk.flush()
        self._pass_on()

    def _note_contacts(self) -> None:
        for shelf in self._shelves.values():
            shelf.note_contacts()

    def _load(self) -> None:
        """With `written_at` as old as it really is. What is too old is dropped for good."""
        contacts = self.disk.contacts()
        found = [(scope, _aged(kept, scope, contacts)) for scope, kept in self.disk.load()]
        lists = {(scope, kept.variant.type_url): kept for scope, kept in found if kept.what is What.LIST}
        for scope, kept in found:
            place, asked = _read(scope)
            type_url, name = kept.variant.type_url, kept.variant.name
            whole = lists.get((scope, type_url), kept)  # a member is as old as its list
            aged = Kept(kept.variant, kept.located, whole.written_at, kept.what)
            if not self.is_usable(aged):
                self.disk.remove(scope, type_url, name)
            elif kept.what is What.LIST:
                self.lists[place, type_url, asked] = aged
            else:
                self.left.setdefault((place, type_url, name), {})[asked] = aged
                self.members.setdefault((place, type_url, asked), {})[name] = None
                for alias in kept.variant.aliases:
                    self.aliases.setdefault((place, type_url, alias), {})[name] = None

    def _pass_on(self) -> None:
        """What the file could not do is no reason to stop, and one to speak."""
        for text in self.disk.warnings():
            self._warn(text)


class Shelf:
    """Takes down what one client is told; gives back what an earlier run left, as long as nobody can be asked."""

    def __init__(self, file: LastGood, group: str, *, shared: bool) -> None:
        self._file = file
        self._group = group
        self._shared = shared
        self._contacts: dict[Authority, float] = {}  # when each could be asked last
        self._unkept: dict[Collection, set[str]] = {}  # members that must not be written down

    # -- giving back

    def recall(self, entry: Entry) -> Recalled | None:
        if isinstance(entry, Collection):
            return self._recall_all(entry)
        kept = next(self._fitting(entry), None)
        if kept is None:
            return None
        if kept.what is What.ABSENT:
            return Recalled(kept.written_at, absent=True, absence=kept.variant.constraint if kept.located else None)
        return Recalled(kept.written_at, (kept.variant,))

    def _recall_all(self, entry: Collection) -> Recalled | None:
        place, type_url, asked = self._place(entry.authority), entry.type_url, _asked(entry)
        whole = self._file.lists.get((place, type_url, asked))
        names = self._file.members.get((place, type_url, asked), {})
        known = (self._file.left.get((place, type_url, name), {}).get(asked) for name in names)
        members = [kept for kept in known if kept is not None]
        usable = [kept for kept in members if self._file.is_usable(kept)]
        if len(usable) < len(members) or (whole is not None and not self._file.is_usable(whole)):
            whole = None
        if whole is None and not usable:
            return None
        since = whole.written_at if whole is not None else min(kept.written_at for kept in usable)
        return Recalled(since, tuple(kept.variant for kept in usable), whole=whole is not None)

    def _fitting(self, entry: Entry) -> Iterator[Kept]:
        """What was given to the same params first; then, by its constraints, what was given to others last."""
        own, others = [], []
        for asked, kept in self._known(entry.authority, entry.type_url, entry.name):
            if not self._file.is_usable(kept):
                continue
            if asked[0] == entry.key[1]:
                own.append(kept)
            elif self._may_share(entry, asked, kept):
                others.append(kept)
        for group in (own, others):
            yield from sorted(group, key=lambda kept: kept.written_at, reverse=True)

    def _known(self, authority: Authority, type_url: TypeUrl, name: str) -> Iterator[tuple[_Asked, Kept]]:
        place = self._place(authority)
        for each in (name, *self._file.aliases.get((place, type_url, name), {})):
            yield from self._file.left.get((place, type_url, each), {}).items()

    def _may_share(self, entry: Entry, asked: _Asked, kept: Kept) -> bool:
        params = entry.key[1]
        if params is None or asked[0] is None or not (kept.located or (self._shared and kept.what is What.VARIANT)):
            return False
        return matches(kept.variant.constraint, params)

    # -- taking down

    def note(self, entry: Entry, before: Variant | None) -> None:
        """An entry holds something else than before."""
        if entry.kept_at is not None:
            return  # it is from here
        self._contacts.setdefault(entry.authority, self._file.wall())
        if isinstance(entry, Collection):
            self._note_list(entry)
        else:
            self._note_one(entry, before)
        self._file.touch()

    def _note_one(self, entry: Entry, before: Variant | None) -> None:
        now = self._kept(entry)
        scope = self._scope(entry)
        name = now.variant.name if now is not None else entry.name
        for gone in {entry.name, before.name if before is not None else name} - {name}:
            self._file.disk.remove(scope, entry.type_url, gone)
            self._supersede(entry, gone, None)
        self._supersede(entry, name, now)
        self._file.disk.put(scope, entry.type_url, name, [now] if now is not None else [])
        if entry.collection is not None:
            self._note_member(entry.collection, entry, is_kept=now is not None or entry.variant is None)
        if entry.collection is not None and now is None:  # the same params may have asked for it by name once
            self._file.disk.remove(_write(self._place(entry.authority), (entry.key[1], None)), entry.type_url, name)

    def _kept(self, entry: Entry) -> Kept | None:
        """How to write it down, if it may be."""
        located = entry.key[1] is not None and (entry.suited or entry.variant is None)
        variant = entry.variant
        run = self._file.disk.run
        if variant is not None:
            # Whoever gave it a time to live meant that nobody should use it when nothing is heard for that long.
            may = may_keep(variant) and entry.expires is None
            return Kept(variant, located, self._file.wall(), run=run) if may else None
        if not self._shared or entry.collection is not None or not _is_absent(entry):
            return None
        nobody = _nothing(entry, entry.absence if entry.absence is not None else TRUE)
        return Kept(nobody, located and entry.absence is not None, self._file.wall(), What.ABSENT, run)

    def _note_list(self, collection: Collection) -> None:
        scope = self._scope(collection)
        self._file.lists.pop((self._place(collection.authority), collection.type_url, _asked(collection)), None)
        if collection.state is State.ACKED and not self._unkept.get(collection):
            marker = Kept(_nothing(collection, TRUE), False, self._file.wall(), What.LIST, self._file.disk.run)  # noqa: FBT003
            self._file.disk.put(scope, collection.type_url, collection.name, [marker])
        else:
            self._file.disk.remove(scope, collection.type_url, collection.name)

    def _note_member(self, collection: Collection, entry: Entry, *, is_kept: bool) -> None:
        """A list that lacks what must not be written down would look as if that had been deleted (PRX-17)."""
        unkept = self._unkept.get(collection, set())
        if is_kept == (entry.name not in unkept):
            return
        if is_kept:
            unkept.discard(entry.name)
        else:
            self._unkept.setdefault(collection, set()).add(entry.name)
        self._note_list(collection)

    def _supersede(self, entry: Entry, name: str, now: Kept | None) -> None:
        """What was left for this subscription, or for others who would get by it what this one got, is out of date."""
        place, params = self._place(entry.authority), entry.key[1]
        known = self._file.left.get((place, entry.type_url, name), {})
        for asked, kept in [*known.items()]:
            own = asked == _asked(entry)
            alike = params is not None and kept.located and matches(kept.variant.constraint, params)
            if own or (alike and not _says_the_same(kept, now)):
                del known[asked]
                if not own:
                    self._withdraw(place, entry.type_url, name, asked)

    def _withdraw(self, place: str, type_url: TypeUrl, name: str, asked: _Asked) -> None:
        scope = _write(place, asked)
        self._file.disk.remove(scope, type_url, name)
        if asked[1] is not None and self._file.lists.pop((place, type_url, asked), None) is not None:
            self._file.disk.remove(scope, type_url, asked[1])

    # -- how old it is

    def leave(self, entry: Entry) -> None:
        """Nobody will hear any more of what becomes of it: from now on it gets older."""
        if entry.kept_at is not None:
            return
        since = self._file.wall() if _in_touch(entry.authority) else self._contacts.get(entry.authority, 0.0)
        scope = self._scope(entry)
        if isinstance(entry, Collection):
            whole = entry.state is State.ACKED and not self._unkept.pop(entry, None)
            kept = Kept(_nothing(entry, TRUE), False, since, What.LIST) if whole else None  # noqa: FBT003
            for name in entry.members if kept is None else ():
                self._file.disk.remove(scope, entry.type_url, name)
        else:
            live = self._kept(entry)
            kept = Kept(live.variant, live.located, since, live.what) if live is not None else None
        if kept is not None:
            self._file.disk.put(scope, entry.type_url, kept.variant.name, [kept])
            self._file.touch()

    def note_contacts(self) -> None:
        for authority in self._contacts:
            if _in_touch(authority):
                self._contacts[authority] = self._file.wall()
                self._file.disk.contact(self._place(authority), self._file.wall())

    def _place(self, authority: Authority) -> str:
        return json.dumps([self._group, authority.name])

    def _scope(self, entry: Entry) -> str:
        return _write(self._place(entry.authority), _asked(entry))


def _asked(entry: Entry) -> _Asked:
    whole = entry if isinstance(entry, Collection) else entry.collection
    return entry.key[1], whole.name if whole is not None else None


def _write(place: str, asked: _Asked) -> str:
    params, collection = asked
    return json.dumps([place, sorted(params.items()) if params is not None else None, collection])


def _read(scope: str) -> tuple[str, _Asked]:
    place, params, collection = json.loads(scope)
    return place, (Params(dict(params)) if params is not None else None, collection)


def _aged(kept: Kept, scope: str, contacts: dict[tuple[int, str], float]) -> Kept:
    last = contacts.get((kept.run, json.loads(scope)[0]), 0.0)
    return Kept(kept.variant, kept.located, max(kept.written_at, last), kept.what)


def _in_touch(authority: Authority) -> bool:
    return any(upstream.connected and upstream.failing is None for upstream in authority.active)


def _nothing(entry: Entry, constraint: Constraint) -> Variant:
    return Variant(entry.type_url, entry.name, constraint, b"", version="", digest=0)


def _is_absent(entry: Entry) -> bool:
    """PRX-27: that there is no virtual host for a name holds for seconds only."""
    if entry.type_url == VIRTUAL_HOST:
        return False
    denied = entry.state is State.RECEIVED_ERROR and entry.verdict is not None and entry.verdict.status == "NOT_FOUND"
    return denied or entry.state is State.DOES_NOT_EXIST


def _says_the_same(kept: Kept, now: Kept | None) -> bool:
    if now is None or kept.what is not now.what:
        return False
    same = canonical(kept.variant.constraint) == canonical(now.variant.constraint)
    return same and (kept.variant.version, kept.variant.body) == (now.variant.version, now.variant.body)
