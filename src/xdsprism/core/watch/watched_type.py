"""Find the watched entries that a part of a response concerns, for one resource type.

A response names resources; entries are keyed by the name and params of a subscription. These differ in four ways, and
each has an index here:

    an entry is found            index
    ---------------------------  --------------------------------------------------------------------------------
    by its own name              `_named`: with very many sets of params, by the values of the params (EntryIndex)
    as a member of a collection  `_collections`: wildcards and globs
    by the name of what it has   `_renamed`: subscribed by an alias, holds a resource of another name (DLT-20)
    by its exact key             `_keyed`: name and params

If both plain names and locators are subscribed, the form of the answer decides whom it is for (`wanting`).
"""

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

SOME = 4 * EVERY  # entries to collect held versions of in one step

# Whether an entry may be given a variant whose constraints do not match its params.
IsOpen = Callable[[Entry], bool]


class WatchedType:
    """The entries of one type, of all authorities; a name belongs to one authority only."""

    def __init__(self, spec: TypeSpec) -> None:
        self.spec = spec
        self._keyed: dict[Key, Entry] = {}
        self._named: dict[str, EntryIndex] = {}
        self._collections: dict[str, dict[Collection, None]] = {}  # by name
        # Entries subscribed by an alias, by the name of the resource that they hold (DLT-20).
        self._renamed: dict[str, Holders] = {}

    def __bool__(self) -> bool:
        return bool(self._keyed)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries with names, and then the collections, each followed by its members."""
        yield from chain.from_iterable(self._named.values())
        for collection in self._all_collections():
            yield collection
            yield from collection.members.values()

    def _all_collections(self) -> Iterator[Collection]:
        return chain.from_iterable(self._collections.values())

    def find(self, key: Key) -> Entry | None:
        """Return the entry with exactly this key."""
        return self._keyed.get(key)

    def asked(self, keys: Iterable[Key], upstream: Upstream) -> Iterator[Entry]:
        """Yield the entries that a request with these keys asks about; of a collection, the members in doubt."""
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
        """Return the members of a collection that are cached under subscriptions by name, with the same params.

        By the names of the resources, not by the strings that were subscribed (DLT-20).
        """
        asked = collection.authority, collection.key[1]
        alike = (each for each in chain.from_iterable(self._named.values()) if (each.authority, each.key[1]) == asked)
        held = {entry.variant.name: entry for entry in alike if entry.variant is not None}
        return {name: entry for name, entry in held.items() if collection in self._covering(name)}

    def held_by_collection(self, entry: Entry) -> Entry | None:
        """Return the cached member of a wildcard or glob with the same params, if the entry's name is one."""
        whose = entry.authority, entry.key[1]
        alike = (each for each in self._covering(entry.name) if (each.authority, each.key[1]) == whose)
        members = (each.members.get(entry.name) for each in alike)
        return next((member for member in members if member is not None and member.variant is not None), None)

    def answered_for_all(self, entry: Entry) -> Entry | None:
        """Return an entry for the same name that a server without params has answered, for other params (PRX-32).

        Such a server has seen the name subscribed already, and has no reason to answer again.
        """
        # Fast path: all servers know params.
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
        """Return the entries of a key on the wire: several, if the server is asked by plain names."""
        if key[1] is not None or not upstream.by_names:
            found = self.find(key)
            return [found] if found is not None else []
        return [*self._named.get(key[0], ())]

    def is_listed(self, name: str) -> bool:
        """Whether a wildcard has a member of this name."""
        return any(name in each.members for each in self._collections.get(WILDCARD, ()))

    def has_asked(self, name: str) -> bool:
        """Whether a resource of this name can answer any subscription."""
        return any(True for _ in self._asked_for(name))

    def left(self, entry: Entry) -> None:
        """Remove a member without a resource from its collection."""
        collection = entry.collection
        if collection is not None and collection.members.get(entry.name) is entry:
            del collection.members[entry.name]

    def answered(self, upstream: Upstream, denied: Container[Entry]) -> list[Collection]:
        """Mark the collections that this response answers; return them.

        The first response after the subscription counts as the answer of a collection: it has no other members yet, and
        its former error is over.
        """
        answered = []
        for each in self._all_collections():
            if each.state is not State.ACKED and upstream in each.authority.active and each not in denied:
                each.state = State.ACKED
                each.for_all = upstream.by_names
                each.error = each.verdict = None
                answered.append(each)
                for watch in each.watches:
                    watch.wake()  # the collection may be empty, and the watcher has to learn that
        return answered

    # -- aliases

    def note_taken(self, entry: Entry) -> None:
        """Index an entry whose variant has another name, or does not match its params (DYN-56)."""
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
        """Remove an entry from the holders of the resource that it has under another name."""
        holders, variant = entry.holders, entry.variant
        if holders is not None and variant is not None:
            holders.discard(entry)
            if not holders:
                self._renamed.pop(variant.name, None)

    def another(self, variant: Variant, entry: Entry) -> Entry | None:
        """Return another entry with the same authority and params that holds the resource of this name."""
        holders = self._renamed.get(variant.name)
        named = self._keyed.get((variant.name, entry.key[1]))
        known = [named] if named is not None and named.authority is entry.authority else []
        alike = chain(holders.alike(entry) if holders is not None else (), known)
        return next((other for other in alike if other is not entry and other.holds(variant.name)), None)

    # -- which entries a part of a response concerns

    def wanting(self, arrival: Arrival, upstream: Upstream, is_open: IsOpen) -> list[Entry]:
        """Return the entries that a resource is for; members of collections are made if needed.

        If there is a choice, the form tells: a resource with resource_name is for locators that its constraints match,
        one with a plain name is for plain names (DESIGN 6.1). If nobody subscribed in that form, a server without
        dynamic parameters has answered a locator by name, or the reverse, and the name alone decides (DYN-55). An entry
        that was answered in the right form is exempt: then this resource was in flight to a subscription that has just
        been dropped.
        """
        variant = arrival.variant
        if not (self._collections or self._renamed or variant.aliases):  # fast path: one plain answer for one name
            known = self._named.get(variant.name, ())
            if len(known) == 1 and not arrival.located:
                return [one for one in known if upstream in one.authority.active and _takes(one, arrival, upstream)]
        entries, is_narrowed = self._meant(arrival, upstream)
        groups = [each for each in self._covering(variant.name) if upstream in each.authority.active]
        if self.spec.on_demand and entries:  # VHD-13: one that was subscribed by name joins no base set by that
            groups = [each for each in groups if variant.name in each.members]
        if upstream.by_names:
            return [*entries, *(each.member(variant.name) for each in groups)]
        # Prefer subscriptions in the form of the answer.
        formed = [entry for entry in entries if (entry.key[1] is not None) == arrival.located]
        formed_groups = [each for each in groups if (each.key[1] is not None) == arrival.located]
        if formed or formed_groups or is_narrowed:
            entries, groups = formed, formed_groups
            if arrival.located:
                groups = [each for each in groups if matches(variant.constraint, each.key[1] or {})]
                # A variant that matches nobody may be for a single entry, if no collection takes it and nobody was left
                # out.
                is_lenient = not groups and not is_narrowed
                entries = _matching(entries, variant.constraint, is_open if is_lenient else _is_closed)
        else:
            # Nobody subscribed in this form: the name decides.
            entries = [entry for entry in entries if _takes(entry, arrival, upstream)]
            groups = [each for each in groups if all(_takes(one, arrival, upstream) for one in each.members.values())]
        return [*entries, *(each.member(variant.name) for each in groups)]

    def flawed(self, flaw: InvalidResource, upstream: Upstream, is_open: IsOpen) -> list[Entry]:
        """Return the entries that an invalid resource would have been for; in a collection it counts as a member."""
        form = flaw.constraint is not None
        groups = [each for each in self._covering(flaw.name) if upstream in each.authority.active]
        if flaw.constraint is not None:
            groups = [each for each in groups if each.key[1] is None or matches(flaw.constraint, each.key[1])]
        groups = [each for each in groups if (each.key[1] is not None) == form] or groups
        for each in groups:
            # Make it a member, so that watchers of the collection hear the error.
            each.member(flaw.name)
        formed = self._formed(flaw.identity, upstream, flaw.aliases)
        is_crowd = any(map(self._is_crowd, (flaw.name, *flaw.aliases)))
        if flaw.constraint is None or (not is_crowd and all(entry.key[1] is None for entry in formed)):
            return formed
        return _matching(formed, flaw.constraint, _is_closed if is_crowd else is_open)

    def denied(self, about: Absence, upstream: Upstream) -> list[Entry]:
        """Return the entries of a resource error, which names a resource, perhaps with constraints, or a glob (ERR-6).

        TP3. The constraints, where there are any, have to match the params of the entry.
        """
        if self._is_crowd(about.name) and canonical(about.constraint) != TRUE:
            known = self.known(about.name, upstream, constraint=about.constraint)
            return [each for each in known if each.key[1] is not None and matches(about.constraint, each.key[1])]
        entries: list[Entry] = [*self.known(about.name, upstream)]
        entries += [each for each in self._collections.get(about.name, ()) if upstream in each.authority.active]
        located = [entry for entry in entries if entry.key[1] is not None]
        if not located or len(located) == len(entries):
            return [entry for entry in entries if matches(about.constraint, entry.key[1] or {})] if located else entries
        # Subscribed in both forms. A plain name is denied without constraints, a locator only if nobody has a variant.
        # So an error without constraints does not say whether it means a variant that is held: such an entry is left
        # out.
        if canonical(about.constraint) != TRUE:
            return [entry for entry in located if matches(about.constraint, entry.key[1] or {})]
        return [entry for entry in entries if entry.key[1] is None or not entry.usable]

    def living(self, beat: Heartbeat, upstream: Upstream) -> list[Entry]:
        """Return the entries that hold exactly the variant of a heartbeat."""
        constraint = beat.identity[1]
        formed = [entry for entry in self._formed(beat.identity, upstream) if entry.holds(beat.name)]
        return [entry for entry in formed if constraint is None or _equal(entry, constraint)]

    def unresolved(self, item: Unresolved, upstream: Upstream) -> list[Entry]:
        """Return the entries of hosts that no virtual host serves: subscribed by one of these strings, in this form.

        Not the entries that hold the resource in this very version: to them it is a heartbeat (TTL-2).
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
        """Whether the server is asked for this name with a locator."""
        known = self._asked_for(name)
        return any(entry.key[1] is not None and upstream in entry.authority.active for entry in known)

    def withdrawn(self, identity: Identity, upstream: Upstream, *, left: bool = False) -> list[Entry]:
        """Return the entries whose variant a removal takes, or whose subscription it denies.

        A removal by name takes the resource of that name from all who hold it, by whatever string they subscribed
        (VHD-10); an alias in it means nothing. With constraints, only the variant with equal constraints goes (DYN-59).
        An entry that got nothing on this stream is denied by constraints that match its params (DESIGN 6.4), even if it
        has a variant from an earlier stream: the server does not know the constraints of that one.

        left: an entry that had the resource in this form, by another string, got another resource in the same response.
        """
        name, constraint = identity
        known = self.known(name, upstream, constraint=constraint)
        # An entry that got another resource on this stream is not concerned.
        known = [entry for entry in known if entry.holds(name) or not entry.came_from(upstream)]
        located = [entry for entry in known if entry.key[1] is not None]
        if upstream.by_names:
            return known
        if constraint is None:
            askers = (each for each in self._asked_for(name) if upstream in each.authority.active)
            plain = left or any(each.key[1] is None for each in askers)
            # TP2: what was sent with constraints is never removed by name alone.
            return [entry for entry in known if (entry.key[1] is None if plain else not entry.is_bound(upstream))]
        # A removal with constraints, but nobody subscribed with a locator: the server answered plain names in the wrong
        # form.
        if not located and not self._is_crowd(name):
            return [entry for entry in known if not left and not entry.is_suited(upstream)]
        return [
            entry
            for entry in located
            if _equal(entry, constraint) or (not entry.came_from(upstream) and matches(constraint, entry.key[1] or {}))
        ]

    def held_constraints(self, about: Absence, upstream: Upstream) -> dict[Constraint, Params]:
        """Return the constraints of all held variants of a name, each with params of one holder.

        If very many hold the name, only those that a removal with the given constraints can concern.
        """
        known = self.known(about.name, upstream, constraint=about.constraint)
        located = ((entry.variant, entry.key[1]) for entry in known if entry.holds(about.name))
        return {canonical(variant.constraint): params for variant, params in located if variant and params is not None}

    def held(self, upstream: Upstream) -> Held:
        """Return the versions for `initial_resource_versions`: what this server sent and is current (CLI-6, NAK-24).

        Only names of which one variant is held (DYN-40). A resource from another server, or from disk, has no version
        that means anything to this server. It is named with an empty version, so that the server sends it or says that
        it is gone: about a name that it never heard of, it would say nothing.
        """
        return finish(self.find_held(upstream))

    def find_held(self, upstream: Upstream) -> Steps[Held]:
        """Do what `held` does, in steps."""
        own: dict[str, Variant] = {}
        loose: set[str] = set()  # strings for which the server has to say again which resource they stand for
        foreign: dict[str, str] = {}
        several: set[str] = set()
        complete = True
        for number, entry in enumerate([*self]):
            if number % SOME == SOME - 1:
                yield
            if upstream not in entry.authority.active:
                continue
            if upstream.keeps(entry):  # PRX-35: the request lacks it, so its version must not be named
                complete = False
                continue
            variant = entry.variant
            if _is_loose(entry):
                loose.add(entry.name)
            if variant is None or entry.source is not upstream:
                # Nothing from this server: `complete` holds only if the server said that there is nothing, for exactly
                # these params.
                complete = complete and not entry.unknown and variant is None and not _is_absent_for_others(entry)
                if variant is not None and (entry.key[1] is None or entry.collection is not None):
                    foreign[variant.name] = ""
            # A second variant of the name: one version can't stand for both (DYN-40).
            elif own.setdefault(variant.name, variant).version != variant.version:
                several.add(variant.name)
        versions = {name: variant.version for name, variant in own.items()}
        versions.update(dict.fromkeys(_perhaps(own.values(), loose), ""))
        claimed = {name: version for name, version in (foreign | versions).items() if name not in several}
        yield from self._disclaim(claimed, own, upstream)
        for name in several:  # otherwise the server would not report that such a member is gone (DLT-14)
            if any(name in each.members for each in self._covering(name)):
                claimed[name] = ""
        return Held(claimed, complete)

    def _disclaim(self, claimed: dict[str, str], own: Mapping[str, Variant], upstream: Upstream) -> Steps[None]:
        """Name no version of a resource that an entry still lacks: the server would not send it."""
        for names in pieces([*claimed], SOME):
            claimed.update((name, "") for name in names if self._is_lacked(name, upstream))
            claimed.update((name, "") for name in names if name in own and self._is_missed(own[name]))
            if len(names) == SOME:
                yield

    def _is_lacked(self, name: str, upstream: Upstream) -> bool:
        """Whether an entry for this name still has nothing: a version would claim that every entry has it."""
        known = (entry for entry in self._asked_for(name) if upstream in entry.authority.active)
        return any(_lacks(entry, name) for entry in known)

    def _is_missed(self, variant: Variant) -> bool:
        """Whether a wildcard whose params the variant matches does not have it.

        The first response after a wildcard was subscribed counts as its answer, and may have been in flight before. If
        the stream ended then, the server has yet to answer the wildcard, and would skip a resource whose version the
        client names.
        """
        if self.spec.on_demand:  # VHD-13: a wildcard has only the base set of virtual hosts
            return False
        lacking = (each for each in self._covering(variant.name) if variant.name not in each.members)
        return any(each.key[1] is not None and matches(variant.constraint, each.key[1]) for each in lacking)

    def _formed(self, identity: Identity, upstream: Upstream, aliases: tuple[str, ...] = ()) -> list[Entry]:
        """Return the entries known by this name and subscribed in this form; if none, all known by this name."""
        name, constraint = identity
        entries = self.known(name, upstream, aliases, constraint)
        formed = [entry for entry in entries if (entry.key[1] is not None) == (constraint is not None)]
        return entries if upstream.by_names else formed or entries

    def known(
        self, name: str, upstream: Upstream, aliases: tuple[str, ...] = (), constraint: Constraint | None = None
    ) -> list[Entry]:
        """Return the entries that subscribed to this name or hold its resource.

        If very many subscribed to it, only those whose params the constraint can match.
        """
        asked = self._asked(name, aliases, constraint if not upstream.by_names else None)
        entries = [*asked, *self._renamed.get(name, ())]
        entries += [member for each in self._covering(name) if (member := each.members.get(name)) is not None]
        return [entry for entry in dict.fromkeys(entries) if upstream in entry.authority.active]

    def _meant(self, arrival: Arrival, upstream: Upstream) -> tuple[list[Entry], bool]:
        """Return the entries that a resource fits by name or alias (VHD-3, VHD-5), or that hold it already.

        Some servers send aliases with an answer and not with later updates (VHD-9), so the holders count too. Aliases
        of other types belong to the resource, and always come with it.

        The second value says that entries in the same form were left out, since the resource is not for them or no
        news.
        """
        variant = arrival.variant
        constraint = variant.constraint if arrival.located and not upstream.by_names else None
        is_narrowed = constraint is not None and any(map(self._is_crowd, (variant.name, *variant.aliases)))
        holders = self._renamed.get(variant.name) if variant.type_url == VIRTUAL_HOST else None
        behind = holders.behind(arrival, upstream) if holders is not None else []
        is_narrowed = is_narrowed or (holders is not None and len(behind) < len(holders))
        if arrival.located:  # hosts may hold different variants of the virtual host
            behind = [entry for entry in behind if _equal(entry, canonical(variant.constraint))]
        entries = dict.fromkeys((*self._asked(variant.name, variant.aliases, constraint), *behind))
        return [entry for entry in entries if upstream in entry.authority.active], is_narrowed

    def _is_crowd(self, name: str) -> bool:
        """Whether so many entries share a name that they are found by their params."""
        return len(self._named.get(name, ())) > FEW

    def _asked(self, name: str, aliases: tuple[str, ...], constraint: Constraint | None = None) -> Iterator[Entry]:
        """Yield the entries subscribed by one of these strings; of very many, those that the constraint can match."""
        for string in (name, *aliases):
            askers = self._named.get(string)
            if askers is not None:
                yield from askers if constraint is None else askers.concerned(constraint)

    def _asked_for(self, name: str) -> Iterator[Entry]:
        """Yield every entry and collection that a resource of this name can be for."""
        return chain(self._asked(name, ()), self._renamed.get(name, ()), self._covering(name))

    def _covering(self, name: str) -> list[Collection]:
        """Return the wildcards, and the globs exactly one level above the name with the same context (XTP-3, XTP-4)."""
        if not self._collections:
            return []
        glob = collection_of(name)
        named = self._collections.get(glob, ()) if glob is not None else ()
        return [*self._collections.get(WILDCARD, ()), *named]


def _matching(entries: list[Entry], constraint: Constraint, is_open: IsOpen) -> list[Entry]:
    """Return the entries whose params match; a single entry need not match if `is_open` allows it (DYN-56)."""
    found = [entry for entry in entries if matches(constraint, entry.key[1] or {})]
    return entries if not found and len(entries) == 1 and is_open(entries[0]) else found


def _takes(entry: Entry, arrival: Arrival, upstream: Upstream) -> bool:
    """Whether the resource is in the form of the subscription, or the entry has none in that form yet."""
    return (entry.key[1] is not None) == arrival.located or not entry.is_suited(upstream)


def _is_absent_for_others(entry: Entry) -> bool:
    """Whether the entry knows that the resource does not exist for more params than its own.

    A server corrects that only on the stream on which it said so. On a new stream it has to say it again, which it
    would not do for a client that claims to have everything (PRX-31).
    """
    return entry.variant is None and entry.key[1] is not None and entry.absence is not None


def _is_loose(entry: Entry) -> bool:
    """Whether a new stream has to answer the entry again: another virtual host may serve its host by now (VHD-12)."""
    if isinstance(entry, Collection):
        return False
    return entry.unknown or (entry.type_url == VIRTUAL_HOST and not entry.holds(entry.name))


def _perhaps(variants: Iterable[Variant], strings: set[str]) -> list[str]:
    """Return the held resources that one of these strings may stand for: no version of them is named.

    A server that knows that they are held would have nothing to answer, since it can't know under which strings.
    Aliases tell which strings a resource answers; but a virtual host may also answer by a domain such as
    `*.example.com`.
    """
    tables = {string.rpartition("/")[0] for string in strings}  # VHD-2: the route configurations
    return [
        variant.name
        for variant in variants
        if not strings.isdisjoint(variant.aliases)
        or (variant.type_url == VIRTUAL_HOST and variant.name.rpartition("/")[0] in tables)
    ]


def _lacks(entry: Entry, name: str) -> bool:
    """Whether the entry still waits for a resource of this name."""
    if isinstance(entry, Collection):
        return entry.state is State.REQUESTED and name not in entry.members
    return entry.unknown


def _is_closed(_entry: Entry) -> bool:
    """Allow no variant that does not match: an `IsOpen` for entries that are found by their params."""
    return False


def _equal(entry: Entry, constraint: Constraint) -> bool:
    """Whether the entry holds a variant with this constraint."""
    return entry.variant is not None and canonical(entry.variant.constraint) == constraint
