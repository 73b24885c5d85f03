"""Keep the watched entries of one resource type, and find them by what a response can call them.

A response names resources; entries are keyed by the name and params of a subscription. These differ in four ways, and
each has an index here:

    an entry is found            index
    ---------------------------  --------------------------------------------------------------------------------
    by its own name              `named`: with very many sets of params, by the values of the params (EntryIndex)
    as a member of a collection  `collections`: wildcards and globs
    by the name of what it has   `renamed`: subscribed by an alias, holds a resource of another name (DLT-20)
    by its exact key             `_keyed`: name and params

response_matching.py chooses among the entries that these indexes find.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import chain

from ..model.constraint_index import FEW
from ..model.constraints import TRUE, Constraint, matches
from ..model.events import WILDCARD, Key
from ..model.types import TypeSpec, Variant
from ..model.xdstp import collection_of
from .entry import Collection, Entry, State, members_of
from .entry_index import EntryIndex
from .host_holders import Holders
from .upstream import Upstream


class WatchedType:
    """The entries of one type, of all authorities; a name belongs to one authority only."""

    def __init__(self, spec: TypeSpec) -> None:
        self.spec = spec
        self._keyed: dict[Key, Entry] = {}
        self.named: dict[str, EntryIndex] = {}
        self.collections: dict[str, dict[Collection, None]] = {}  # by name
        # Entries subscribed by an alias, by the name of the resource that they hold (DLT-20).
        self.renamed: dict[str, Holders] = {}

    def __bool__(self) -> bool:
        return bool(self._keyed)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries with names, and then the collections, each followed by its members."""
        yield from chain.from_iterable(self.named.values())
        for collection in self._all_collections():
            yield collection.entry
            yield from collection.members.values()

    def _all_collections(self) -> Iterator[Collection]:
        return chain.from_iterable(self.collections.values())

    def find(self, key: Key) -> Entry | None:
        """Return the entry with exactly this key."""
        return self._keyed.get(key)

    def asked(self, keys: Iterable[Key], upstream: Upstream) -> Iterator[Entry]:
        """Yield the entries that a request with these keys asks about; of a collection, the members in doubt."""
        for key in keys:
            for entry in self.known_by(key, upstream):
                if entry.collection is not None:
                    yield from [member for member in members_of(entry) if member.doubted is not None]
                else:
                    yield entry

    def add(self, entry: Entry) -> None:
        self._keyed[entry.key] = entry
        if entry.collection is not None:
            self.collections.setdefault(entry.name, {})[entry.collection] = None
            return
        askers = self.named.get(entry.name)
        if askers is None:
            askers = self.named[entry.name] = EntryIndex()
        askers.add(entry)

    def discard(self, entry: Entry) -> None:
        del self._keyed[entry.key]
        if entry.collection is not None:
            del self.collections[entry.name][entry.collection]
            if not self.collections[entry.name]:
                del self.collections[entry.name]
            return
        self.forget_alias(entry)
        self.named[entry.name].discard(entry)
        if not self.named[entry.name]:
            del self.named[entry.name]

    def held_by_name(self, collection: Collection) -> dict[str, Entry]:
        """Return the members of a collection that are cached under subscriptions by name, with the same params.

        By the names of the resources, not by the strings that were subscribed (DLT-20).
        """
        asked = collection.entry.authority, collection.entry.params
        alike = (each for each in chain.from_iterable(self.named.values()) if (each.authority, each.params) == asked)
        held = {entry.variant.name: entry for entry in alike if entry.variant is not None}
        return {name: entry for name, entry in held.items() if collection in self.covering(name)}

    def held_by_collection(self, entry: Entry) -> Entry | None:
        """Return the cached member of a wildcard or glob with the same params, if the entry's name is one."""
        whose = entry.authority, entry.params
        covering = self.covering(entry.name)
        alike = [each for each in covering if (each.entry.authority, each.entry.params) == whose]
        members = [each.members.get(entry.name) for each in alike]
        return next((member for member in members if member is not None and member.variant is not None), None)

    def answered_for_all(self, entry: Entry) -> Entry | None:
        """Return an entry for the same name that a server without params has answered, for other params (PRX-32).

        Such a server has seen the name subscribed already, and has no reason to answer again.
        """
        # Fast path: all servers know params.
        if not any(upstream.was_by_names for upstream in entry.authority.servers):
            return None
        if entry.collection is not None:
            alike: Iterable[Entry] = [each.entry for each in self.collections.get(entry.name, ())]
        else:
            members = (each.members.get(entry.name) for each in self.covering(entry.name))
            alike = (*self.named.get(entry.name, ()), *(member for member in members if member is not None))
        owner = entry.authority
        return next((each for each in alike if each.authority is owner and each.for_all and each is not entry), None)

    def known_by(self, key: Key, upstream: Upstream) -> list[Entry]:
        """Return the entries of a key on the wire: several, if the server is asked by plain names."""
        name, params = key
        if params is not None or not upstream.by_names:
            found = self.find(key)
            return [found] if found is not None else []
        return [*self.named.get(name, ())]

    def is_listed(self, name: str) -> bool:
        """Whether a wildcard has a member of this name."""
        return any(name in each.members for each in self.collections.get(WILDCARD, ()))

    def has_asked(self, name: str) -> bool:
        """Whether a resource of this name can answer any subscription."""
        return any(True for _ in self.answerable_by(name))

    def left(self, entry: Entry) -> None:
        """Remove a member without a resource from its collection."""
        collection = entry.member_of
        if collection is not None and collection.members.get(entry.name) is entry:
            del collection.members[entry.name]

    def answered(self, upstream: Upstream, denied: Container[Entry]) -> list[Entry]:
        """Mark the wildcards and globs that this response answers; return their entries.

        The first response after the subscription counts as the answer of a collection: it has no other members yet, and
        its former error is over.
        """
        answered = []
        for collection in self._all_collections():
            entry = collection.entry
            if entry.state is not State.ACKED and upstream in entry.authority.active and entry not in denied:
                entry.accept_collection(for_all=upstream.by_names)
                answered.append(entry)
        return answered

    # -- aliases

    def note_taken(self, entry: Entry) -> None:
        """Index an entry whose variant has another name, or does not match its params (DYN-56)."""
        variant, params = entry.variant, entry.params
        if variant is None:
            return
        if variant.name != entry.name:
            holders = self.renamed.get(variant.name)
            if holders is None:
                holders = self.renamed[variant.name] = Holders()
            holders.add(entry)
        askers = self.named.get(entry.name) if params is not None and entry.member_of is None else None
        if askers is not None and params is not None:
            is_for_some = variant.constraint != TRUE
            askers.note_stray(entry, strays=is_for_some and not matches(variant.constraint, params))

    def forget_alias(self, entry: Entry) -> None:
        """Remove an entry from the holders of the resource that it has under another name."""
        holders, variant = entry.holders, entry.variant
        if holders is not None and variant is not None:
            holders.discard(entry)
            if not holders:
                self.renamed.pop(variant.name, None)

    def another(self, variant: Variant, entry: Entry) -> Entry | None:
        """Return another entry with the same authority and params that holds the resource of this name."""
        holders = self.renamed.get(variant.name)
        named = self._keyed.get(Key(variant.name, entry.params))
        known = [named] if named is not None and named.authority is entry.authority else []
        alike = chain(holders.alike(entry) if holders is not None else (), known)
        return next((other for other in alike if other is not entry and other.holds(variant.name)), None)

    def has_located(self, name: str, upstream: Upstream) -> bool:
        """Whether the server is asked for this name with a locator."""
        known = self.answerable_by(name)
        return any(entry.params is not None and upstream in entry.authority.active for entry in known)

    def known(
        self, name: str, upstream: Upstream, aliases: tuple[str, ...] = (), constraint: Constraint | None = None
    ) -> list[Entry]:
        """Return the entries that subscribed to this name or hold its resource.

        If very many subscribed to it, only those whose params the constraint can match.
        """
        asked = self.asked_by(name, aliases, constraint if not upstream.by_names else None)
        entries = [*asked, *self.renamed.get(name, ())]
        entries += [member for each in self.covering(name) if (member := each.members.get(name)) is not None]
        return [entry for entry in dict.fromkeys(entries) if upstream in entry.authority.active]

    def is_crowd(self, name: str) -> bool:
        """Whether so many entries share a name that they are found by their params."""
        return len(self.named.get(name, ())) > FEW

    def asked_by(self, name: str, aliases: tuple[str, ...], constraint: Constraint | None = None) -> Iterator[Entry]:
        """Yield the entries subscribed by one of these strings; of very many, those that the constraint can match."""
        for string in (name, *aliases):
            askers = self.named.get(string)
            if askers is not None:
                yield from askers if constraint is None else askers.concerned(constraint)

    def answerable_by(self, name: str) -> Iterator[Entry]:
        """Yield the entry of every subscription that a resource of this name can be for."""
        covering = [each.entry for each in self.covering(name)]
        return chain(self.asked_by(name, ()), self.renamed.get(name, ()), covering)

    def covering(self, name: str) -> list[Collection]:
        """Return the wildcards, and the globs exactly one level above the name with the same context (XTP-3, XTP-4)."""
        if not self.collections:
            return []
        glob = collection_of(name)
        named = self.collections.get(glob, ()) if glob is not None else ()
        return [*self.collections.get(WILDCARD, ()), *named]
