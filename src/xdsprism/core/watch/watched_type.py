"""Everything watched of one resource type: from what a response names to the entries that it is about."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain

from ..model.constraint_index import FEW
from ..model.constraints import TRUE, Constraint, canonical, matches
from ..model.events import WILDCARD, Absence, Key
from ..model.responses import Arrival, Heartbeat, Identity, InvalidResource, Unresolved
from ..model.steps import EVERY, Steps, finish, pieces
from ..model.types import VIRTUAL_HOST, Params, TypeSpec, Variant
from ..model.xdstp import collection_of
from .entry import Collection, Entry, State
from .entry_index import EntryIndex
from .host_holders import Holders
from .upstream import Held, Upstream

SOME = 4 * EVERY  # entries whose versions are found in one step

# Whether an entry may be given a variant whose constraints do not match its params.
IsOpen = Callable[[Entry], bool]


class WatchedType:
    """The entries of one type, of all authorities; a name belongs to one authority only."""

    def __init__(self, spec: TypeSpec) -> None:
        self.spec = spec
        self._keyed: dict[Key, Entry] = {}
        self._named: dict[str, EntryIndex] = {}
        self._collections: dict[str, dict[Collection, None]] = {}  # by name
        self._renamed: dict[str, Holders] = {}  # held under an alias: by the resource's own name (DLT-20)

    def __bool__(self) -> bool:
        return bool(self._keyed)

    def __iter__(self) -> Iterator[Entry]:
        """All that was asked for, and then whatever came for the collections."""
        yield from chain.from_iterable(self._named.values())
        for collection in self._all_collections():
            yield collection
            yield from collection.members.values()

    def _all_collections(self) -> Iterator[Collection]:
        return chain.from_iterable(self._collections.values())

    def find(self, key: Key) -> Entry | None:
        return self._keyed.get(key)

    def asked(self, keys: Iterable[Key], upstream: Upstream) -> Iterator[Entry]:
        """Whom a request with these keys asks the server about: of a collection, the members that are in doubt."""
        for entry in (each for key in keys for each in self.known_by(key, upstream)):
            if isinstance(entry, Collection):
                yield from (member for member in entry.members.values() if member.doubted is not None)
            else:
                yield entry

    def add(self, entry: Entry) -> None:
        self._keyed[entry.key] = entry
        if isinstance(entry, Collection):
            self._collections.setdefault(entry.name, {})[entry] = None
            return
        askers = self._named.get(entry.name)
        if askers is None:
            askers = self._named[entry.name] = EntryIndex()
        askers.add(entry)

    def discard(self, entry: Entry) -> None:
        del self._keyed[entry.key]
        if isinstance(entry, Collection):
            del self._collections[entry.name][entry]
            if not self._collections[entry.name]:
                del self._collections[entry.name]
            return
        self.forget_alias(entry)
        self._named[entry.name].discard(entry)
        if not self._named[entry.name]:
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
        if not any(upstream.was_by_names for upstream in entry.authority.servers):
            return None
        if isinstance(entry, Collection):
            alike: Iterable[Entry] = self._collections.get(entry.name, ())
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
        return any(name in each.members for each in self._collections.get(WILDCARD, ()))

    def has_asked(self, name: str) -> bool:
        """Whether a resource of this name can be an answer to anything."""
        return any(True for _ in self._asked_for(name))

    def left(self, entry: Entry) -> None:
        """Nothing is held any more: a member of a collection is none then."""
        collection = entry.collection
        if collection is not None and collection.members.get(entry.name) is entry:
            del collection.members[entry.name]

    def answered(self, upstream: Upstream, denied: Container[Entry]) -> list[Collection]:
        """A response came: what a collection still lacks, it has none of; an error of its own is over."""
        answered = []
        for each in self._all_collections():
            if each.state is not State.ACKED and upstream in each.authority.active and each not in denied:
                each.state = State.ACKED
                each.for_all = upstream.by_names
                each.error = each.verdict = None
                answered.append(each)
                for watch in each.watches:
                    watch.wake()  # there may be nothing to take, and that is news too
        return answered

    # -- aliases

    def note_taken(self, entry: Entry) -> None:
        """An entry has a variant: it may be one of another name, or one that its params do not match (DYN-56)."""
        variant, params = entry.variant, entry.key[1]
        if variant is None:
            return
        if variant.name != entry.name:
            holders = self._renamed.get(variant.name)
            if holders is None:
                holders = self._renamed[variant.name] = Holders()
            holders.add(entry)
        askers = self._named.get(entry.name) if params is not None and entry.collection is None else None
        if askers is not None and params is not None:
            is_for_some = variant.constraint != TRUE
            askers.note_stray(entry, strays=is_for_some and not matches(variant.constraint, params))

    def forget_alias(self, entry: Entry) -> None:
        holders, variant = entry.holders, entry.variant
        if holders is not None and variant is not None:
            holders.discard(entry)
            if not holders:
                self._renamed.pop(variant.name, None)

    def another(self, variant: Variant, entry: Entry) -> Entry | None:
        """Who else holds the resource of this name, by another string, and asked with the same params."""
        holders = self._renamed.get(variant.name)
        named = self._keyed.get((variant.name, entry.key[1]))
        known = [named] if named is not None and named.authority is entry.authority else []
        alike = chain(holders.alike(entry) if holders is not None else (), known)
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
        entries, is_narrowed = self._meant(arrival, upstream)
        groups = [each for each in self._covering(variant.name) if upstream in each.authority.active]
        if self.spec.on_demand and entries:  # VHD-13: it was asked for, so that alone puts it into nobody's base set
            groups = [each for each in groups if variant.name in each.members]
        if upstream.by_names:
            return [*entries, *(each.member(variant.name) for each in groups)]
        formed = [entry for entry in entries if (entry.key[1] is not None) == arrival.located]
        formed_groups = [each for each in groups if (each.key[1] is not None) == arrival.located]
        if formed or formed_groups or is_narrowed:
            entries, groups = formed, formed_groups
            if arrival.located:
                groups = [each for each in groups if matches(variant.constraint, each.key[1] or {})]
                is_lenient = not groups and not is_narrowed
                entries = _matching(entries, variant.constraint, is_open if is_lenient else _is_closed)
        else:
            entries = [entry for entry in entries if _takes(entry, arrival, upstream)]
            groups = [each for each in groups if all(_takes(one, arrival, upstream) for one in each.members.values())]
        return [*entries, *(each.member(variant.name) for each in groups)]

    def flawed(self, flaw: InvalidResource, upstream: Upstream, is_open: IsOpen) -> list[Entry]:
        """Whom a resource that is no good would have been for. In a collection it counts as there."""
        form = flaw.constraint is not None
        groups = [each for each in self._covering(flaw.name) if upstream in each.authority.active]
        if flaw.constraint is not None:
            groups = [each for each in groups if each.key[1] is None or matches(flaw.constraint, each.key[1])]
        groups = [each for each in groups if (each.key[1] is not None) == form] or groups
        for each in groups:
            each.member(flaw.name)
        formed = self._formed(flaw.identity, upstream, flaw.aliases)
        is_crowd = any(map(self._is_crowd, (flaw.name, *flaw.aliases)))
        if flaw.constraint is None or (not is_crowd and all(entry.key[1] is None for entry in formed)):
            return formed
        return _matching(formed, flaw.constraint, _is_closed if is_crowd else is_open)

    def denied(self, about: Absence, upstream: Upstream) -> list[Entry]:
        """Whom an error is for: TP3 names a resource, with constraints where they matter, or a whole glob (ERR-6)."""
        if self._is_crowd(about.name) and canonical(about.constraint) != TRUE:
            known = self.known(about.name, upstream, constraint=about.constraint)
            return [each for each in known if each.key[1] is not None and matches(about.constraint, each.key[1])]
        entries: list[Entry] = [*self.known(about.name, upstream)]
        entries += [each for each in self._collections.get(about.name, ()) if upstream in each.authority.active]
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
        asked = self._asked(item.name, item.aliases, item.constraint if not upstream.by_names else None)
        entries = [entry for entry in dict.fromkeys(asked) if upstream in entry.authority.active]
        if not upstream.by_names:
            formed = [entry for entry in entries if (entry.key[1] is not None) == (item.constraint is not None)]
            if item.constraint is not None:
                formed = [entry for entry in formed if matches(item.constraint, entry.key[1] or {})]
            asked = (each for each in self._asked(item.name, item.aliases) if upstream in each.authority.active)
            entries = formed or [entry for entry in dict.fromkeys(asked) if not entry.is_suited(upstream)]
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
        known = self.known(name, upstream, constraint=constraint)
        known = [entry for entry in known if entry.holds(name) or not entry.came_from(upstream)]
        located = [entry for entry in known if entry.key[1] is not None]
        if upstream.by_names:
            return known
        if constraint is None:
            askers = (each for each in self._asked_for(name) if upstream in each.authority.active)
            plain = left or any(each.key[1] is None for each in askers)
            # TP2: what was sent with constraints is never removed by name alone.
            return [entry for entry in known if (entry.key[1] is None if plain else not entry.is_bound(upstream))]
        if not located and not self._is_crowd(name):
            return [entry for entry in known if not left and not entry.is_suited(upstream)]
        return [
            entry
            for entry in located
            if _equal(entry, constraint) or (not entry.came_from(upstream) and matches(constraint, entry.key[1] or {}))
        ]

    def held_constraints(self, about: Absence, upstream: Upstream) -> dict[Constraint, Params]:
        """The constraints of every variant that is held of a name, each with params that it was given for.

        Of a crowd, only those for whom a removal with the given constraints can be.
        """
        known = self.known(about.name, upstream, constraint=about.constraint)
        located = ((entry.variant, entry.key[1]) for entry in known if entry.holds(about.name))
        return {canonical(variant.constraint): params for variant, params in located if variant and params is not None}

    def held(self, upstream: Upstream) -> Held:
        """CLI-6, NAK-24: what was taken from this server. DYN-40: names of which one variant is held.

        What is from another server, or from disk, has no version here that could be current: this server is to send it
        or say that it is gone, and it would not say so of what it never heard of.
        """
        return finish(self.find_held(upstream))

    def find_held(self, upstream: Upstream) -> Steps[Held]:
        """What `held` does, in steps."""
        own: dict[str, Variant] = {}
        loose: set[str] = set()  # strings of which it is not known here what they stand for now
        foreign: dict[str, str] = {}
        several: set[str] = set()
        complete = True
        for number, entry in enumerate([*self]):
            if number % SOME == SOME - 1:
                yield
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
        yield from self._disclaim(claimed, own, upstream)
        for name in several:  # of a member that is gone for some nobody would say so otherwise (DLT-14)
            if any(name in each.members for each in self._covering(name)):
                claimed[name] = ""
        return Held(claimed, complete)

    def _disclaim(self, claimed: dict[str, str], own: Mapping[str, Variant], upstream: Upstream) -> Steps[None]:
        """Say no version of what somebody still lacks: the server would not send it."""
        for names in pieces([*claimed], SOME):
            claimed.update((name, "") for name in names if self._is_lacked(name, upstream))
            claimed.update((name, "") for name in names if name in own and self._is_missed(own[name]))
            if len(names) == SOME:
                yield

    def _is_lacked(self, name: str, upstream: Upstream) -> bool:
        """Whether somebody has just asked for this too, with other params: a version would say that all have it."""
        known = (entry for entry in self._asked_for(name) if upstream in entry.authority.active)
        return any(_lacks(entry, name) for entry in known)

    def _is_missed(self, variant: Variant) -> bool:
        """Whether a wildcard that it is for, by its params, does not have it.

        The first response after a wildcard was asked for counts as its answer, and may have been on its way before. If
        the stream ended then, the server has yet to answer it, and would not send what another wildcard has.
        """
        if self.spec.on_demand:  # VHD-13: of virtual hosts a wildcard has some only
            return False
        lacking = (each for each in self._covering(variant.name) if variant.name not in each.members)
        return any(each.key[1] is not None and matches(variant.constraint, each.key[1]) for each in lacking)

    def _formed(self, identity: Identity, upstream: Upstream, aliases: tuple[str, ...] = ()) -> list[Entry]:
        """Who is known by this name and asked in this form; if nobody, all who are known by it."""
        name, constraint = identity
        entries = self.known(name, upstream, aliases, constraint)
        formed = [entry for entry in entries if (entry.key[1] is not None) == (constraint is not None)]
        return entries if upstream.by_names else formed or entries

    def known(
        self, name: str, upstream: Upstream, aliases: tuple[str, ...] = (), constraint: Constraint | None = None
    ) -> list[Entry]:
        """Who asked by this name, or has the resource of this name; of a crowd, whom the constraint can concern."""
        asked = self._asked(name, aliases, constraint if not upstream.by_names else None)
        entries = [*asked, *self._renamed.get(name, ())]
        entries += [member for each in self._covering(name) if (member := each.members.get(name)) is not None]
        return [entry for entry in dict.fromkeys(entries) if upstream in entry.authority.active]

    def _meant(self, arrival: Arrival, upstream: Upstream) -> tuple[list[Entry], bool]:
        """Who asked by its name, or by one of its aliases (VHD-3, VHD-5); also who has it by another string already.

        VHD-9: some servers give aliases with an answer, and not with later updates. Of other types they are the
        resource's own, and always there.

        True: others asked in the same form, and it is not for them, or no news to them.
        """
        variant = arrival.variant
        constraint = variant.constraint if arrival.located and not upstream.by_names else None
        is_narrowed = constraint is not None and any(map(self._is_crowd, (variant.name, *variant.aliases)))
        holders = self._renamed.get(variant.name) if variant.type_url == VIRTUAL_HOST else None
        behind = holders.behind(arrival, upstream) if holders is not None else []
        is_narrowed = is_narrowed or (holders is not None and len(behind) < len(holders))
        if arrival.located:  # one host's variants of it need not be another's
            behind = [entry for entry in behind if _equal(entry, canonical(variant.constraint))]
        entries = dict.fromkeys((*self._asked(variant.name, variant.aliases, constraint), *behind))
        return [entry for entry in entries if upstream in entry.authority.active], is_narrowed

    def _is_crowd(self, name: str) -> bool:
        """Whether so many asked for a name that they are looked for by their params."""
        return len(self._named.get(name, ())) > FEW

    def _asked(self, name: str, aliases: tuple[str, ...], constraint: Constraint | None = None) -> Iterator[Entry]:
        """Who asked by one of these strings; of a crowd, whom the constraint can concern."""
        for string in (name, *aliases):
            askers = self._named.get(string)
            if askers is not None:
                yield from askers if constraint is None else askers.concerned(constraint)

    def _asked_for(self, name: str) -> Iterator[Entry]:
        return chain(self._asked(name, ()), self._renamed.get(name, ()), self._covering(name))

    def _covering(self, name: str) -> list[Collection]:
        """XTP-3, XTP-4: a glob has what is one step below it, with exactly its context."""
        if not self._collections:
            return []
        glob = collection_of(name)
        named = self._collections.get(glob, ()) if glob is not None else ()
        return [*self._collections.get(WILDCARD, ()), *named]


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
