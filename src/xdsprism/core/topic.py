"""Everything watched of one resource type: from what a response names to the entries that it is about."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from .constraints import Constraint, canonical, matches
from .events import WILDCARD, Absence, Key
from .responses import Arrival, Flaw, Identity
from .types import TypeSpec
from .upstream import Held, Upstream
from .watching import Collection, Entry, State
from .xdstp import is_xdstp, parse


class Topic:
    """The entries of one type, of all authorities; a name belongs to one authority only."""

    def __init__(self, spec: TypeSpec) -> None:
        self.spec = spec
        self._named: dict[str, tuple[Entry, ...]] = {}
        self._collections: list[Collection] = []
        self._renamed: dict[str, set[Entry]] = {}  # held under an alias: by the resource's own name (DLT-20)

    def __bool__(self) -> bool:
        return bool(self._named or self._collections)

    def __iter__(self) -> Iterator[Entry]:
        """All that was asked for, and then whatever came for the collections."""
        yield from chain.from_iterable(self._named.values())
        for collection in self._collections:
            yield collection
            yield from collection.members.values()

    def find(self, key: Key) -> Entry | None:
        known: tuple[Entry, ...] = (*self._named.get(key[0], ()), *self._collections)
        return next((entry for entry in known if entry.key == key), None)

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Collection):
            self._collections.append(entry)
        else:
            self._named[entry.name] = (*self._named.get(entry.name, ()), entry)

    def discard(self, entry: Entry) -> None:
        if isinstance(entry, Collection):
            self._collections.remove(entry)
            return
        self.forget_alias(entry)
        rest = tuple(other for other in self._named[entry.name] if other is not entry)
        if rest:
            self._named[entry.name] = rest
        else:
            del self._named[entry.name]

    def left(self, entry: Entry) -> None:
        """Nothing is held any more: a member of a collection is none then."""
        for each in self._collections:
            if each.members.get(entry.name) is entry:
                del each.members[entry.name]

    def answered(self, upstream: Upstream) -> None:
        """A response came: what a collection still lacks, it has none of."""
        for each in self._collections:
            if each.state is State.REQUESTED and upstream in each.authority.active:
                each.state = State.ACKED

    # -- aliases

    def note_alias(self, entry: Entry) -> None:
        if entry.variant is not None and entry.variant.name != entry.name:
            self._renamed.setdefault(entry.variant.name, set()).add(entry)

    def forget_alias(self, entry: Entry) -> None:
        if entry.variant is not None and entry.variant.name != entry.name:
            holders = self._renamed.get(entry.variant.name, set())
            holders.discard(entry)
            if not holders:
                self._renamed.pop(entry.variant.name, None)

    # -- who is meant

    def wanting(self, arrival: Arrival, upstream: Upstream, *, strict: bool) -> list[Entry]:
        """Whom a resource is for.

        The form tells, where there is a choice: what came by resource_name is for locators that its constraints match,
        what came by name is for plain names (DESIGN 6.1). Where nobody asked in that form, a server that does not know
        dynamic parameters has answered a locator by name, or the reverse, and the name decides (DYN-55).
        """
        variant = arrival.variant
        if not self._collections and not variant.aliases:  # nearly always
            known = self._named.get(variant.name, ())
            if len(known) == 1 and not arrival.located:
                return [known[0]] if upstream in known[0].authority.active else []
        entries = [entry for entry in self._asked(variant.name, variant.aliases) if upstream in entry.authority.active]
        groups = [each for each in self._covering(variant.name) if upstream in each.authority.active]
        formed = [entry for entry in entries if (entry.key[1] is not None) == arrival.located]
        formed_groups = [each for each in groups if (each.key[1] is not None) == arrival.located]
        if formed or formed_groups:
            entries, groups = formed, formed_groups
            if arrival.located:
                entries = self._matching(entries, variant.constraint, strict=strict)
                groups = [each for each in groups if matches(variant.constraint, each.key[1] or {})]
        return [*entries, *(each.member(variant.name) for each in groups)]

    def flawed(self, flaw: Flaw, upstream: Upstream) -> list[Entry]:
        """Whom a resource that is no good would have been for. In a collection it counts as there."""
        form = flaw.constraint is not None
        groups = [each for each in self._covering(flaw.name) if upstream in each.authority.active]
        if flaw.constraint is not None:
            groups = [each for each in groups if each.key[1] is None or matches(flaw.constraint, each.key[1])]
        groups = [each for each in groups if (each.key[1] is not None) == form] or groups
        for each in groups:
            each.member(flaw.name)
        return self.about(flaw.identity, upstream)

    def denied(self, about: Absence, upstream: Upstream) -> list[Entry]:
        """Whom an error is for: TP3 names a resource, with constraints where they matter, or a whole glob (ERR-6)."""
        entries: list[Entry] = [*self._known(about.name, upstream)]
        entries += [each for each in self._collections if each.name == about.name and upstream in each.authority.active]
        return [entry for entry in entries if entry.key[1] is None or matches(about.constraint, entry.key[1])]

    def has_located(self, name: str, upstream: Upstream) -> bool:
        known: list[Entry] = [*self._asked(name, ()), *self._covering(name)]
        return any(entry.key[1] is not None and upstream in entry.authority.active for entry in known)

    def about(self, identity: Identity, upstream: Upstream) -> list[Entry]:
        """Whom a resource that is no good, or only a sign of life, would have been for; members that exist only."""
        name, constraint = identity
        entries = self._known(name, upstream)
        formed = [entry for entry in entries if (entry.key[1] is not None) == (constraint is not None)]
        if formed and constraint is not None:
            return [entry for entry in formed if matches(constraint, entry.key[1] or {})]
        return formed or entries

    def withdrawn(self, identity: Identity, upstream: Upstream) -> list[Entry]:
        """Whose variant is gone, or who is told that there is none for it.

        DYN-59: of what is held only the variant with equal constraints goes. Who holds nothing is answered by
        constraints that match its params (DESIGN 6.4).
        """
        name, constraint = identity
        known = self._known(name, upstream)
        located = [entry for entry in known if entry.key[1] is not None]
        if constraint is None or not located:
            return [entry for entry in known if entry.key[1] is None] or known
        return [
            entry
            for entry in located
            if (_equal(entry, constraint) if entry.variant is not None else matches(constraint, entry.key[1] or {}))
        ]

    def held(self, upstream: Upstream) -> Held:
        """CLI-6, NAK-24: what was taken from this server. DYN-40: names of which one variant is held."""
        versions: dict[str, str] = {}
        several: set[str] = set()
        complete = True
        for entry in self:
            if upstream not in entry.authority.active:
                continue
            variant = entry.variant
            if variant is None or entry.source is not upstream:
                complete = complete and not entry.lacking and variant is None
            elif versions.setdefault(variant.name, variant.version) != variant.version:
                several.add(variant.name)
        return Held({name: version for name, version in versions.items() if name not in several}, complete)

    def _known(self, name: str, upstream: Upstream) -> list[Entry]:
        entries = [*self._asked(name, ()), *self._renamed.get(name, ())]
        entries += [member for each in self._covering(name) if (member := each.members.get(name)) is not None]
        return [entry for entry in dict.fromkeys(entries) if upstream in entry.authority.active]

    def _asked(self, name: str, aliases: tuple[str, ...]) -> Iterator[Entry]:
        yield from self._named.get(name, ())
        for alias in aliases:
            yield from self._named.get(alias, ())

    def _covering(self, name: str) -> list[Collection]:
        return [each for each in self._collections if each.name == WILDCARD or _in_glob(each.name, name)]

    @staticmethod
    def _matching(entries: list[Entry], constraint: Constraint, *, strict: bool) -> list[Entry]:
        """DYN-56: a leaf need not look at constraints where there is only one that it can be for."""
        found = [entry for entry in entries if matches(constraint, entry.key[1] or {})]
        return entries if not found and len(entries) == 1 and not strict else found


def _equal(entry: Entry, constraint: Constraint) -> bool:
    return entry.variant is not None and canonical(entry.variant.constraint) == constraint


def _in_glob(glob: str, name: str) -> bool:
    """XTP-3, XTP-4: one step below it, with exactly its context."""
    if not is_xdstp(name):
        return False
    whole, part = parse(glob), parse(name)
    prefix = whole.id.removesuffix("*")
    same = (whole.authority, whole.type, whole.context) == (part.authority, part.type, part.context)
    return same and part.id.startswith(prefix) and "/" not in part.id.removeprefix(prefix)
