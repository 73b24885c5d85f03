"""Find the watched entries that each part of a response concerns: a resource, an error, a removal, a heartbeat.

`WatchedType` has the indexes; this module chooses among what they find. A server answers a subscription in its form: a
locator by a resource with `resource_name` and constraints, a plain name by a plain resource. So if both forms are
subscribed, the form of the answer decides whom it is for. If no entry subscribed in that form, the name alone decides
(DYN-55).
"""

from __future__ import annotations

from collections.abc import Callable

from ..model.constraints import TRUE, Constraint, canonical, matches
from ..model.events import Absence
from ..model.responses import Arrival, Heartbeat, Identity, InvalidResource, Unresolved
from ..model.types import VIRTUAL_HOST, Params
from .entry import Entry
from .upstream import Upstream
from .watched_type import WatchedType

# Whether an entry may be given a variant whose constraints do not match its params.
IsOpen = Callable[[Entry], bool]


class ResponseMatching:
    """Which entries of one type the parts of responses from one server concern."""

    __slots__ = ("_topic", "_upstream")

    def __init__(self, topic: WatchedType, upstream: Upstream) -> None:
        self._topic = topic
        self._upstream = upstream

    def wanting(self, arrival: Arrival, is_open: IsOpen) -> list[Entry]:
        """Return the entries that a resource is for; members of collections are made if needed.

        If there is a choice, the form tells: a resource with resource_name is for locators that its constraints match,
        one with a plain name is for plain names (DESIGN 6.1). If no entry subscribed in that form, a server without
        dynamic parameters has answered a locator by name, or the reverse, and the name alone decides (DYN-55). An entry
        that was answered in the right form is exempt: then this resource was in flight to a subscription that has just
        been dropped.
        """
        variant, topic, upstream = arrival.variant, self._topic, self._upstream
        # Fast path: one plain answer for one name.
        if not (topic.collections or topic.renamed or variant.aliases):
            known = topic.named.get(variant.name, ())
            if len(known) == 1 and not arrival.located:
                return [one for one in known if upstream in one.authority.active and _takes(one, arrival, upstream)]
        entries, is_narrowed = self._meant(arrival)
        groups = [each for each in topic.covering(variant.name) if upstream in each.entry.authority.active]
        if topic.spec.on_demand and entries:  # VHD-13: one that was subscribed by name joins no base set by that
            groups = [each for each in groups if variant.name in each.members]
        if upstream.by_names:
            return [*entries, *(each.member(variant.name) for each in groups)]
        # Prefer subscriptions in the form of the answer.
        formed = [entry for entry in entries if (entry.params is not None) == arrival.located]
        formed_groups = [each for each in groups if (each.entry.params is not None) == arrival.located]
        if formed or formed_groups or is_narrowed:
            entries, groups = formed, formed_groups
            if arrival.located:
                groups = [each for each in groups if matches(variant.constraint, each.entry.params or {})]
                # A variant that matches no entry may be for a single entry, if no collection takes it and no entry was
                # left out.
                is_lenient = not groups and not is_narrowed
                entries = _matching(entries, variant.constraint, is_open if is_lenient else _is_closed)
        else:
            # Nobody subscribed in this form: the name decides.
            entries = [entry for entry in entries if _takes(entry, arrival, upstream)]
            groups = [each for each in groups if all(_takes(one, arrival, upstream) for one in each.members.values())]
        return [*entries, *(each.member(variant.name) for each in groups)]

    def flawed(self, flaw: InvalidResource, is_open: IsOpen) -> list[Entry]:
        """Return the entries that an invalid resource would have been for; in a collection it counts as a member."""
        form = flaw.constraint is not None
        groups = [each for each in self._topic.covering(flaw.name) if self._upstream in each.entry.authority.active]
        if flaw.constraint is not None:
            whole = [(each, each.entry.params) for each in groups]
            groups = [each for each, params in whole if params is None or matches(flaw.constraint, params)]
        groups = [each for each in groups if (each.entry.params is not None) == form] or groups
        for each in groups:
            # Make it a member, so that watchers of the collection hear the error.
            each.member(flaw.name)
        formed = self._formed(flaw.identity, flaw.aliases)
        is_crowd = any(map(self._topic.is_crowd, (flaw.name, *flaw.aliases)))
        if flaw.constraint is None or (not is_crowd and all(entry.params is None for entry in formed)):
            return formed
        return _matching(formed, flaw.constraint, _is_closed if is_crowd else is_open)

    def denied(self, about: Absence) -> list[Entry]:
        """Return the entries of a resource error, which names a resource, perhaps with constraints, or a glob (ERR-6).

        TP3. The constraints, where there are any, have to match the params of the entry.
        """
        if self._topic.is_crowd(about.name) and canonical(about.constraint) != TRUE:
            known = self._topic.known(about.name, self._upstream, constraint=about.constraint)
            return [each for each in known if each.params is not None and matches(about.constraint, each.params)]
        entries: list[Entry] = [*self._topic.known(about.name, self._upstream)]
        globs = (each.entry for each in self._topic.collections.get(about.name, ()))
        entries += [entry for entry in globs if self._upstream in entry.authority.active]
        located = [entry for entry in entries if entry.params is not None]
        if not located or len(located) == len(entries):
            return [entry for entry in entries if matches(about.constraint, entry.params or {})] if located else entries
        # Subscribed in both forms. A plain name is denied without constraints, a locator only if no entry has a
        # variant. So an error without constraints does not say whether it means a variant that is held: such an entry
        # is left out.
        if canonical(about.constraint) != TRUE:
            return [entry for entry in located if matches(about.constraint, entry.params or {})]
        return [entry for entry in entries if entry.params is None or not entry.usable]

    def holding_exactly(self, beat: Heartbeat) -> list[Entry]:
        """Return the entries that hold exactly the variant of a heartbeat."""
        constraint = beat.identity[1]
        formed = [entry for entry in self._formed(beat.identity) if entry.holds(beat.name)]
        return [entry for entry in formed if constraint is None or _equal(entry, constraint)]

    def unresolved(self, item: Unresolved) -> list[Entry]:
        """Return the entries of hosts that no virtual host serves: subscribed by one of these strings, in this form.

        Not the entries that hold the resource in this very version: to them it is a heartbeat (TTL-2).
        """
        asked = self._topic.asked_by(item.name, item.aliases, item.constraint if not self._upstream.by_names else None)
        entries = [entry for entry in dict.fromkeys(asked) if self._upstream in entry.authority.active]
        if not self._upstream.by_names:
            formed = [entry for entry in entries if (entry.params is not None) == (item.constraint is not None)]
            if item.constraint is not None:
                formed = [entry for entry in formed if matches(item.constraint, entry.params or {})]
            asked = (
                each
                for each in self._topic.asked_by(item.name, item.aliases)
                if self._upstream in each.authority.active
            )
            entries = formed or [entry for entry in dict.fromkeys(asked) if not _is_suited(entry, self._upstream)]
        return [entry for entry in entries if not entry.holds(item.name, item.version)]

    def withdrawn(self, identity: Identity, *, left: bool = False) -> list[Entry]:
        """Return the entries whose variant a removal takes, or whose subscription it denies.

        A removal by name takes the resource of that name from all who hold it, by whatever string they subscribed
        (VHD-10); an alias in it means nothing. With constraints, only the variant with equal constraints goes (DYN-59).
        An entry that got nothing on this stream is denied by constraints that match its params (DESIGN 6.4), even if it
        has a variant from an earlier stream: the server does not know the constraints of that one.

        left: an entry that had the resource in this form, by another string, got another resource in the same response.
        """
        name, constraint = identity
        known = self._topic.known(name, self._upstream, constraint=constraint)
        # An entry that got another resource on this stream is not concerned.
        known = [entry for entry in known if entry.holds(name) or not entry.came_from(self._upstream)]
        located = [entry for entry in known if entry.params is not None]
        if self._upstream.by_names:
            return known
        if constraint is None:
            plain = left or any(
                each.params is None and self._upstream in each.authority.active
                for each in self._topic.answerable_by(name)
            )
            # TP2: what was sent with constraints is never removed by name alone.
            return [
                entry for entry in known if (entry.params is None if plain else not _is_bound(entry, self._upstream))
            ]
        # A removal with constraints, but no entry subscribed with a locator: the server answered plain names in the
        # wrong form.
        if not located and not self._topic.is_crowd(name):
            return [entry for entry in known if not left and not _is_suited(entry, self._upstream)]
        return [
            entry
            for entry in located
            if _equal(entry, constraint)
            or (not entry.came_from(self._upstream) and matches(constraint, entry.params or {}))
        ]

    def held_constraints(self, about: Absence) -> dict[Constraint, Params]:
        """Return the constraints of all held variants of a name, each with params of one holder.

        If very many hold the name, only those that a removal with the given constraints can concern.
        """
        known = self._topic.known(about.name, self._upstream, constraint=about.constraint)
        located = ((entry.variant, entry.params) for entry in known if entry.holds(about.name))
        return {canonical(variant.constraint): params for variant, params in located if variant and params is not None}

    def _formed(self, identity: Identity, aliases: tuple[str, ...] = ()) -> list[Entry]:
        """Return the entries known by this name and subscribed in this form; if none, all known by this name."""
        name, constraint = identity
        entries = self._topic.known(name, self._upstream, aliases, constraint)
        formed = [entry for entry in entries if (entry.params is not None) == (constraint is not None)]
        return entries if self._upstream.by_names else formed or entries

    def _meant(self, arrival: Arrival) -> tuple[list[Entry], bool]:
        """Return the entries that a resource fits by name or alias (VHD-3, VHD-5), or that hold it already.

        Some servers send aliases with an answer and not with later updates (VHD-9), so the holders count too. Aliases
        of other types belong to the resource, and always come with it.

        The second value says that entries in the same form were left out, since the resource is not for them or no
        news.
        """
        variant = arrival.variant
        constraint = variant.constraint if arrival.located and not self._upstream.by_names else None
        is_narrowed = constraint is not None and any(map(self._topic.is_crowd, (variant.name, *variant.aliases)))
        holders = self._topic.renamed.get(variant.name) if variant.type_url == VIRTUAL_HOST else None
        behind = holders.behind(arrival, self._upstream) if holders is not None else []
        is_narrowed = is_narrowed or (holders is not None and len(behind) < len(holders))
        if arrival.located:  # hosts may hold different variants of the virtual host
            behind = [entry for entry in behind if _equal(entry, canonical(variant.constraint))]
        entries = dict.fromkeys((*self._topic.asked_by(variant.name, variant.aliases, constraint), *behind))
        return [entry for entry in entries if self._upstream in entry.authority.active], is_narrowed


def _matching(entries: list[Entry], constraint: Constraint, is_open: IsOpen) -> list[Entry]:
    """Return the entries whose params match; a single entry need not match if `is_open` allows it (DYN-56)."""
    found = [entry for entry in entries if matches(constraint, entry.params or {})]
    return entries if not found and len(entries) == 1 and is_open(entries[0]) else found


def _takes(entry: Entry, arrival: Arrival, upstream: Upstream) -> bool:
    """Whether the resource is in the form of the subscription, or the entry has none in that form yet."""
    return (entry.params is not None) == arrival.located or not _is_suited(entry, upstream)


def _is_suited(entry: Entry, upstream: Upstream) -> bool:
    """Whether the variant came on the current stream of that server and in the form of the subscription."""
    return entry.suited and entry.came_from(upstream)


def _is_bound(entry: Entry, upstream: Upstream) -> bool:
    """Whether the variant answers a locator on the current stream and has constraints."""
    bound = entry.variant is not None and canonical(entry.variant.constraint) != TRUE
    return bound and entry.params is not None and _is_suited(entry, upstream)


def _is_closed(_entry: Entry) -> bool:
    """Allow no variant that does not match: an `IsOpen` for entries that are found by their params."""
    return False


def _equal(entry: Entry, constraint: Constraint) -> bool:
    """Whether the entry holds a variant with this constraint."""
    return entry.variant is not None and canonical(entry.variant.constraint) == constraint
