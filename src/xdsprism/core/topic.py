"""Everything watched of one resource type: from what a response names to the entries that it is about."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain

from .constraints import TRUE, Constraint, canonical, matches
from .events import WILDCARD, Absence, Key
from .responses import Arrival, Flaw, Heartbeat, Identity, Unresolved
from .types import VIRTUAL_HOST, Params, TypeSpec, Variant
from .upstream import Held, Upstream
from .watching import Collection, Entry, State
from .xdstp import collection_of

# Whether an entry may be given a variant whose constraints do not match its params.
IsOpen = Callable[[Entry], bool]


class Topic:
    """The entries of one type, of all authorities; a name belongs to one authority only."""

    def __init__(self, spec: TypeSpec) -> None:
        self.spec = spec
        self._named: dict[str, tuple[Entry, ...]] = {}
        self._collections: list[Collection] = []
        self._renamed: dict[str, dict[Entry, None]] = {}  # held under an alias: by the resource's own name (DLT-20)

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

    def asked(self, keys: Iterable[Key], upstream: Upstream) -> Iterator[Entry]:
        """Whom a request with these keys asks the server about: of a collection, the members that are in doubt."""
        for entry in (each for key in keys for each in self.known_by(key, upstream)):
            if isinstance(entry, Collection):
                yield from (member for member in entry.members.values() if member.doubted is not None)
            else:
                yield entry

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

    def held_by_name(self, collection: Collection) -> dict[str, Entry]:
        """What belongs to a collection, and is held because its name was asked for too, with the same params.

        By its own name, whatever it was asked for by (DLT-20).
        """
        asked = collection.authority, collection.key[1]
        alike = (each for each in chain.from_iterable(self._named.values()) if (each.authority, each.key[1]) == asked)
        held = {entry.variant.name: entry for entry in alike if entry.variant is not None}
        return {name: entry for name, entry in held.items() if collection in self._covering(name)}

    def held_by_collection(self, entry: Entry) -> Entry | None:
        """The same resource, if it came for a collection that was asked for with the same params."""
        whose = entry.authority, entry.key[1]
        alike = (each for each in self._covering(entry.name) if (each.authority, each.key[1]) == whose)
        members = (each.members.get(entry.name) for each in alike)
        return next((member for member in members if member is not None and member.variant is not None), None)

    def answered_for_all(self, entry: Entry) -> Entry | None:
        """Who asked for the same with other params, and was answered by a server that knows no params (PRX-32).

        Such a server has been asked for the name, and has no reason to answer once more.
        """
        if isinstance(entry, Collection):
            alike: Iterable[Entry] = (each for each in self._collections if each.name == entry.name)
        else:
            members = (each.members.get(entry.name) for each in self._covering(entry.name))
            alike = (*self._named.get(entry.name, ()), *(member for member in members if member is not None))
        of_all = (each for each in alike if each.authority is entry.authority and each.for_all and each is not entry)
        return next(of_all, None)

    def known_by(self, key: Key, upstream: Upstream) -> list[Entry]:
        """Whose question a key on the wire is: several, where a server is asked by names."""
        if key[1] is not None or not upstream.by_names:
            found = self.find(key)
            return [found] if found is not None else []
        return [*self._named.get(key[0], ())]

    def is_listed(self, name: str) -> bool:
        return any(each.name == WILDCARD and name in each.members for each in self._collections)

    def has_asked(self, name: str) -> bool:
        """Whether a resource of this name can be an answer to anything."""
        return bool(self._asked_for(name))

    def left(self, entry: Entry) -> None:
        """Nothing is held any more: a member of a collection is none then."""
        for each in self._collections:
            if each.members.get(entry.name) is entry:
                del each.members[entry.name]

    def answered(self, upstream: Upstream, denied: Container[Entry]) -> list[Collection]:
        """A response came: what a collection still lacks, it has none of; an error of its own is over."""
        answered = []
        for each in self._collections:
            if each.state is not State.ACKED and upstream in each.authority.active and each not in denied:
                each.state = State.ACKED
                each.for_all = upstream.by_names
                each.error = each.verdict = None
                answered.append(each)
                for watch in each.watches:
                    watch.wake()  # there may be nothing to take, and that is news too
        return answered

    # -- aliases

    def note_alias(self, entry: Entry) -> None:
        if entry.variant is not None and entry.variant.name != entry.name:
            self._renamed.setdefault(entry.variant.name, {})[entry] = None

    def forget_alias(self, entry: Entry) -> None:
        if entry.variant is not None and entry.variant.name != entry.name:
            holders = self._renamed.get(entry.variant.name, {})
            holders.pop(entry, None)
            if not holders:
                self._renamed.pop(entry.variant.name, None)

    def another(self, variant: Variant, entry: Entry) -> Entry | None:
        """Who else holds the resource of this name, by another string, and asked with the same params."""
        known = chain(self._renamed.get(variant.name, ()), self._named.get(variant.name, ()))
        alike = (other for other in known if (other.authority, other.key[1]) == (entry.authority, entry.key[1]))
        return next((other for other in alike if other is not entry and other.holds(variant.name)), None)

    # -- who is meant

    def wanting(self, arrival: Arrival, upstream: Upstream, is_open: IsOpen) -> list[Entry]:
        """Whom a resource is for.

        The form tells, where there is a choice: what came by resource_name is for locators that its constraints match,
        what came by name is for plain names (DESIGN 6.1). Where nobody asked in that form, a server that does not know
        dynamic parameters has answered a locator by name, or the reverse, and the name decides (DYN-55). But not for
        somebody who has been answered in the right form: then this was on its way to one who has just left.
        """
        variant = arrival.variant
        if not (self._collections or self._renamed or variant.aliases):  # nearly always
            known = self._named.get(variant.name, ())
            if len(known) == 1 and not arrival.located:
                return [one for one in known if upstream in one.authority.active and _takes(one, arrival, upstream)]
        entries = [entry for entry in self._meant(arrival) if upstream in entry.authority.active]
        groups = [each for each in self._covering(variant.name) if upstream in each.authority.active]
        if self.spec.on_demand and entries:  # VHD-13: it was asked for, so that alone puts it into nobody's base set
            groups = [each for each in groups if variant.name in each.members]
        if upstream.by_names:
            return [*entries, *(each.member(variant.name) for each in groups)]
        formed = [entry for entry in entries if (entry.key[1] is not None) == arrival.located]
        formed_groups = [each for each in groups if (each.key[1] is not None) == arrival.located]
        if formed or formed_groups:
            entries, groups = formed, formed_groups
            if arrival.located:
                groups = [each for each in groups if matches(variant.constraint, each.key[1] or {})]
                entries = _matching(entries, variant.constraint, is_open if not groups else _is_closed)
        else:
            entries = [entry for entry in entries if _takes(entry, arrival, upstream)]
            groups = [each for each in groups if all(_takes(one, arrival, upstream) for one in each.members.values())]
        return [*entries, *(each.member(variant.name) for each in groups)]

    def flawed(self, flaw: Flaw, upstream: Upstream, is_open: IsOpen) -> list[Entry]:
        """Whom a resource that is no good would have been for. In a collection it counts as there."""
        form = flaw.constraint is not None
        groups = [each for each in self._covering(flaw.name) if upstream in each.authority.active]
        if flaw.constraint is not None:
            groups = [each for each in groups if each.key[1] is None or matches(flaw.constraint, each.key[1])]
        groups = [each for each in groups if (each.key[1] is not None) == form] or groups
        for each in groups:
            each.member(flaw.name)
        formed = self._formed(flaw.identity, upstream, flaw.aliases)
        if flaw.constraint is None or all(entry.key[1] is None for entry in formed):
            return formed
        return _matching(formed, flaw.constraint, is_open)

    def denied(self, about: Absence, upstream: Upstream) -> list[Entry]:
        """Whom an error is for: TP3 names a resource, with constraints where they matter, or a whole glob (ERR-6)."""
        entries: list[Entry] = [*self.known(about.name, upstream)]
        entries += [each for each in self._collections if each.name == about.name and upstream in each.authority.active]
        located = [entry for entry in entries if entry.key[1] is not None]
        if not located or len(located) == len(entries):
            return [entry for entry in entries if matches(about.constraint, entry.key[1] or {})] if located else entries
        # Asked for in both forms. A plain name is denied without constraints; a locator only where there is nothing for
        # anybody. So without constraints it can't be told whether a variant that is held is meant: then it is not.
        if canonical(about.constraint) != TRUE:
            return [entry for entry in located if matches(about.constraint, entry.key[1] or {})]
        return [entry for entry in entries if entry.key[1] is None or not entry.usable]

    def living(self, beat: Heartbeat, upstream: Upstream) -> list[Entry]:
        """Who holds the very variant that a sign of life is about."""
        constraint = beat.identity[1]
        formed = [entry for entry in self._formed(beat.identity, upstream) if entry.holds(beat.name)]
        return [entry for entry in formed if constraint is None or _equal(entry, constraint)]

    def unresolved(self, item: Unresolved, upstream: Upstream) -> list[Entry]:
        """Who is told that there is nothing: whoever asked by one of these strings, in the form of the answer.

        But whoever holds the resource in this very version is not: to them it is a sign of life (TTL-2).
        """
        asked = chain.from_iterable(self._named.get(string, ()) for string in item.strings)
        entries = [entry for entry in asked if upstream in entry.authority.active]
        if not upstream.by_names:
            formed = [entry for entry in entries if (entry.key[1] is not None) == (item.constraint is not None)]
            if item.constraint is not None:
                formed = [entry for entry in formed if matches(item.constraint, entry.key[1] or {})]
            entries = formed or [entry for entry in entries if not entry.is_suited(upstream)]
        return [entry for entry in entries if not entry.holds(item.name, item.version)]

    def has_located(self, name: str, upstream: Upstream) -> bool:
        known = self._asked_for(name)
        return any(entry.key[1] is not None and upstream in entry.authority.active for entry in known)

    def withdrawn(self, identity: Identity, upstream: Upstream, *, left: bool = False) -> list[Entry]:
        """Whose variant is gone, or who is told that there is none for it.

        VHD-10: what is held goes by its own name, from all who have it, whatever they asked by; an alias is none.
        DYN-59: and of that only the variant with equal constraints. Who was given nothing on this stream is
        answered by constraints that match its params (DESIGN 6.4): also one that has something from an earlier stream,
        of which the server does not know the constraints.

        left: somebody who had it in this form, by another string, has just been given something else.
        """
        name, constraint = identity
        known = [entry for entry in self.known(name, upstream) if entry.holds(name) or not entry.came_from(upstream)]
        located = [entry for entry in known if entry.key[1] is not None]
        if upstream.by_names:
            return known
        if constraint is None:
            askers = (each for each in self._asked_for(name) if upstream in each.authority.active)
            plain = left or any(each.key[1] is None for each in askers)
            # TP2: what was sent with constraints is never removed by name alone.
            return [entry for entry in known if (entry.key[1] is None if plain else not entry.is_bound(upstream))]
        if not located:
            return [entry for entry in known if not left and not entry.is_suited(upstream)]
        return [
            entry
            for entry in located
            if _equal(entry, constraint) or (not entry.came_from(upstream) and matches(constraint, entry.key[1] or {}))
        ]

    def held_constraints(self, name: str, upstream: Upstream) -> dict[Constraint, Params]:
        """The constraints of every variant that is held of a name, each with params that it was given for."""
        located = ((entry.variant, entry.key[1]) for entry in self.known(name, upstream) if entry.holds(name))
        return {canonical(variant.constraint): params for variant, params in located if variant and params is not None}

    def held(self, upstream: Upstream) -> Held:
        """CLI-6, NAK-24: what was taken from this server. DYN-40: names of which one variant is held.

        What is from another server, or from disk, has no version here that could be current: this server is to send it
        or say that it is gone, and it would not say so of what it never heard of.
        """
        own: dict[str, Variant] = {}
        loose: set[str] = set()  # strings of which it is not known here what they stand for now
        foreign: dict[str, str] = {}
        several: set[str] = set()
        complete = True
        for entry in self:
            if upstream not in entry.authority.active:
                continue
            if upstream.keeps(entry):  # PRX-35: the request does not have it, so nothing may be said of it
                complete = False
                continue
            variant = entry.variant
            if _is_loose(entry):
                loose.add(entry.name)
            if variant is None or entry.source is not upstream:
                complete = complete and not entry.unknown and variant is None and not _is_absent_for_others(entry)
                if variant is not None and (entry.key[1] is None or entry.collection is not None):
                    foreign[variant.name] = ""
            elif own.setdefault(variant.name, variant).version != variant.version:
                several.add(variant.name)
        versions = {name: variant.version for name, variant in own.items()}
        versions.update(dict.fromkeys(_perhaps(own.values(), loose), ""))
        claimed = {name: version for name, version in (foreign | versions).items() if name not in several}
        claimed.update((name, "") for name in [*claimed] if self._is_lacked(name, upstream))
        for name in several:  # of a member that is gone for some nobody would say so otherwise (DLT-14)
            if any(name in each.members for each in self._covering(name)):
                claimed[name] = ""
        return Held(claimed, complete)

    def _is_lacked(self, name: str, upstream: Upstream) -> bool:
        """Whether somebody has just asked for this too, with other params: a version would say that all have it."""
        known = (entry for entry in self._asked_for(name) if upstream in entry.authority.active)
        return any(_lacks(entry, name) for entry in known)

    def _formed(self, identity: Identity, upstream: Upstream, aliases: tuple[str, ...] = ()) -> list[Entry]:
        """Who is known by this name and asked in this form; if nobody, all who are known by it."""
        name, constraint = identity
        entries = self.known(name, upstream, aliases)
        formed = [entry for entry in entries if (entry.key[1] is not None) == (constraint is not None)]
        return entries if upstream.by_names else formed or entries

    def known(self, name: str, upstream: Upstream, aliases: tuple[str, ...] = ()) -> list[Entry]:
        """Who asked by this name, or has the resource of this name."""
        entries = [*self._asked(name, aliases), *self._renamed.get(name, ())]
        entries += [member for each in self._covering(name) if (member := each.members.get(name)) is not None]
        return [entry for entry in dict.fromkeys(entries) if upstream in entry.authority.active]

    def _meant(self, arrival: Arrival) -> dict[Entry, None]:
        """Who asked by its name, or by one of its aliases (VHD-3, VHD-5); also who has it by another string already.

        VHD-9: some servers give aliases with an answer, and not with later updates. Of other types they are the
        resource's own, and always there.
        """
        variant = arrival.variant
        holders = [*self._renamed.get(variant.name, ())] if variant.type_url == VIRTUAL_HOST else []
        if holders and arrival.located:  # one host's variants of it need not be another's
            holders = [entry for entry in holders if _equal(entry, canonical(variant.constraint))]
        return dict.fromkeys((*self._asked(variant.name, variant.aliases), *holders))

    def _asked(self, name: str, aliases: tuple[str, ...]) -> Iterator[Entry]:
        yield from self._named.get(name, ())
        for alias in aliases:
            yield from self._named.get(alias, ())

    def _asked_for(self, name: str) -> list[Entry]:
        return [*self._asked(name, ()), *self._renamed.get(name, ()), *self._covering(name)]

    def _covering(self, name: str) -> list[Collection]:
        """XTP-3, XTP-4: a glob has what is one step below it, with exactly its context."""
        glob = collection_of(name) if self._collections else None
        return [each for each in self._collections if each.name in (WILDCARD, glob)]


def _matching(entries: list[Entry], constraint: Constraint, is_open: IsOpen) -> list[Entry]:
    """DYN-56: a leaf need not look at constraints where there is only one that it can be for."""
    found = [entry for entry in entries if matches(constraint, entry.key[1] or {})]
    return entries if not found and len(entries) == 1 and is_open(entries[0]) else found


def _takes(entry: Entry, arrival: Arrival, upstream: Upstream) -> bool:
    return (entry.key[1] is not None) == arrival.located or not entry.is_suited(upstream)


def _is_absent_for_others(entry: Entry) -> bool:
    """Whether it is known that there is nothing for more than those who asked.

    A server corrects that for as long as it knows that it said so. On a new stream it has to say it again, and one that
    was told that this client has everything would not (PRX-31).
    """
    return entry.variant is None and entry.key[1] is not None and entry.absence is not None


def _is_loose(entry: Entry) -> bool:
    """Whether it has to be answered on a new stream: a host may be another's by now (VHD-12)."""
    if isinstance(entry, Collection):
        return False
    return entry.unknown or (entry.type_url == VIRTUAL_HOST and not entry.holds(entry.name))


def _perhaps(variants: Iterable[Variant], strings: set[str]) -> list[str]:
    """What one of these strings may stand for: of that no version is told.

    A server that knows that it is held would have nothing to answer, for it can't know by which strings. Aliases tell,
    but of virtual hosts not all: they may have domains like `*.example.com`.
    """
    tables = {string.rpartition("/")[0] for string in strings}  # VHD-2
    return [
        variant.name
        for variant in variants
        if not strings.isdisjoint(variant.aliases)
        or (variant.type_url == VIRTUAL_HOST and variant.name.rpartition("/")[0] in tables)
    ]


def _lacks(entry: Entry, name: str) -> bool:
    if isinstance(entry, Collection):
        return entry.state is State.REQUESTED and name not in entry.members
    return entry.unknown


def _is_closed(_entry: Entry) -> bool:
    return False


def _equal(entry: Entry, constraint: Constraint) -> bool:
    return entry.variant is not None and canonical(entry.variant.constraint) == constraint
