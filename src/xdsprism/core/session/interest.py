"""Find the sessions that a change concerns, without asking all others: the reverse index.

The index has an entry for each subscription, and three ways to look one up:

- by name: the sessions with a subscription to the name, or to an alias or host that the named resource serves;
- by wildcard: the sessions with a subscription to `*` or to a glob collection that the name belongs to;
- by group: of a name with several variants, the subscriptions whose client holds a certain variant, or nothing. If one
  variant of a thousand changes, only the clients that hold it are looked at (DESIGN 6.3).

`notify` marks the subscriptions as dirty and returns their sessions, whose streams the hub then wakes.

The index also holds the `Demand`, which sessions tell of each subscription. A relay or a provider implements it, and
gets what is subscribed from elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ..model.asked_hosts import AskedHosts
from ..model.constraint_index import FirstMatch
from ..model.constraints import Constraint
from ..model.demand import Demand, NoDemand
from ..model.events import WILDCARD
from ..model.steps import EVERY, Steps, cut, finish
from ..model.types import ROUTE, VIRTUAL_HOST, Change, Params, Routing, TypeUrl
from ..model.variants import VariantSet
from ..model.xdstp import wildcards
from .subscription import Group, NameSubscription

FEW = 16  # changes between two steps: each may concern thousands of sessions


class Interested(Protocol):
    """A session, as the index sees it."""

    stream: int

    def notify(self, name: str) -> None:
        """Mark the subscriptions to this changed name as dirty."""

    def touch(self, want: NameSubscription) -> None:
        """Mark this subscription as dirty."""

    def rerouted(self, config: str) -> Steps[None]:
        """Note that the route configuration of subscribed virtual hosts changed."""

    def resubscribe(self, change: Change) -> bool:
        """Subscribe again to dropped names that this change may create. Return whether there are any."""

    def has_forgotten(self, name: str) -> bool:
        """Whether its client waits for this name although the session dropped the subscription."""

    def params_of_forgotten(self, name: str) -> Params | None:
        """Return with which params to ask for a forgotten name; None: the policy denies it."""

    def wants(self, name: str, params: Params) -> bool:
        """Whether it has a subscription to this name, or this wildcard, with these params."""

    def is_judging(self, names: Iterable[str]) -> bool:
        """Whether a change of one of these names has yet to be sent, or is in flight."""


class Interest:
    """The reverse index of all sessions. Dictionaries serve as ordered sets: a fan-out has a reproducible order."""

    def __init__(self, demand: Demand | None = None) -> None:
        self.demand: Demand = demand or NoDemand()
        self._names: dict[TypeUrl, dict[str, dict[Interested, None]]] = {}
        self._wild: dict[tuple[TypeUrl, str], dict[Interested, None]] = {}  # by `*`, or by glob collection
        self._hosts = AskedHosts()
        self._groups: dict[Group, dict[NameSubscription, Interested]] = {}
        self._forgetful: dict[TypeUrl, dict[Interested, None]] = {}  # sessions that dropped names (VHD-25)

    def add(self, session: Interested, type_url: TypeUrl, name: str) -> None:
        """Register a session for changes of this name."""
        by_name = self._names.setdefault(type_url, {})
        if name not in by_name:
            by_name[name] = {}
            if type_url == VIRTUAL_HOST:
                self._hosts.add(name)
        by_name[name][session] = None

    def remove(self, session: Interested, type_url: TypeUrl, name: str) -> None:
        """Undo `add`."""
        by_name = self._names.get(type_url, {})
        sessions = by_name.get(name, {})
        sessions.pop(session, None)
        if not sessions and name in by_name:
            del by_name[name]
            if type_url == VIRTUAL_HOST:
                self._hosts.remove(name)
        if not by_name:
            self._names.pop(type_url, None)

    def add_wild(self, session: Interested, type_url: TypeUrl, name: str = WILDCARD) -> None:
        """Register a session for changes under this wildcard."""
        self._wild.setdefault((type_url, name), {})[session] = None

    def remove_wild(self, session: Interested, type_url: TypeUrl, name: str = WILDCARD) -> None:
        """Undo `add_wild`."""
        sessions = self._wild.get((type_url, name), {})
        sessions.pop(session, None)
        if not sessions:
            self._wild.pop((type_url, name), None)

    def add_forgetful(self, session: Interested, type_url: TypeUrl) -> None:
        """Register a session that dropped names: each change is offered to its `resubscribe`."""
        self._forgetful.setdefault(type_url, {})[session] = None

    def remove_forgetful(self, session: Interested, type_url: TypeUrl) -> None:
        """Undo `add_forgetful`."""
        sessions = self._forgetful[type_url]
        del sessions[session]
        if not sessions:
            del self._forgetful[type_url]

    def forgotten(self, type_url: TypeUrl, name: str) -> list[Params] | None:
        """Return with which params clients wait for this name although their sessions dropped the subscriptions.

        Nobody who waits, and may not have it now, is in the list. None: nobody waits.
        """
        waiting = [session for session in self._forgetful.get(type_url, ()) if session.has_forgotten(name)]
        found = [session.params_of_forgotten(name) for session in waiting]
        return [params for params in found if params is not None] if waiting else None

    def group(self, session: Interested, want: NameSubscription, group: Group | None) -> None:
        """Move a subscription to this group, so that changes of other variants pass it by.

        None: the subscription belongs to no group, and `notify` finds it by its name.
        """
        if want.group is not None:
            members = self._groups[want.group]
            del members[want]
            if not members:
                del self._groups[want.group]
        if group is not None:
            self._groups.setdefault(group, {})[want] = session
        want.group = group

    def everybody(self, type_url: TypeUrl, name: str = WILDCARD) -> dict[Interested, None]:
        """Return the sessions with a subscription to this wildcard."""
        return self._wild.get((type_url, name), {})

    def subscribers(self, type_url: TypeUrl, name: str) -> int:
        """Return how many sessions subscribe to this name, by itself or under a wildcard."""
        wild = {session for each in wildcards(name) for session in self.everybody(type_url, each)}
        return len(self._named(type_url, (name,))) + len(wild)

    def notify(self, changes: Sequence[Change]) -> dict[Interested, None]:
        """Mark what these changes concern as dirty, and return the sessions. It costs nothing per other session."""
        woken: dict[Interested, None] = {}
        finish(self._notify_all(changes, set(), woken))
        return woken

    def notifying(self, changes: deque[Change]) -> Steps[dict[Interested, None]]:
        """Do what `notify` does, in steps. It removes each change from `changes`, and returns after the last one."""
        woken: dict[Interested, None] = {}
        notified: set[tuple[TypeUrl, str]] = set()
        while changes:
            yield from self._notify_all([changes[at] for at in range(min(FEW, len(changes)))], notified, woken)
            if len(changes) > FEW:
                yield
            for _ in range(min(FEW, len(changes))):
                changes.popleft()
        return woken

    def weight(self, changes: Iterable[Change]) -> int:
        """Return how many requested hosts one of these changes may concern at most.

        A new wildcard domain, or a changed route configuration, may concern each host that anybody requested on demand.
        """
        kinds = (ROUTE,) if self.demand.caches else (VIRTUAL_HOST, ROUTE)
        return max([self._hosts.weight(change) for change in changes if change.type_url in kinds], default=0)

    def _notify_all(
        self, changes: Sequence[Change], notified: set[tuple[TypeUrl, str]], woken: dict[Interested, None]
    ) -> Steps[None]:
        """Do what `notify` does for these changes, in steps where one concerns very many requested hosts.

        `notified`: the names that were notified before, in an earlier step of the same work.
        """
        for wild in dict.fromkeys(self._wildcards(changes)) if self._wild else ():
            woken.update(self._wild.get(wild, {}))
        for change in changes:
            if not self._notify_some(change, woken):
                names = [name for name in change.names if (change.type_url, name) not in notified]
                notified.update((change.type_url, name) for name in names)  # once is enough, however often it changed
                self._notify(change.type_url, names, woken)
            if change.type_url == VIRTUAL_HOST:
                if not self.demand.caches:  # a relay resolves no hosts: the upstream answers each of them
                    yield from self._notify_hosts(change, woken)
            elif change.type_url == ROUTE:
                yield from self._reroute(change, woken)
            if self._forgetful and change.after is not None:
                recalled = [each for each in self._forgetful.get(change.type_url, ()) if each.resubscribe(change)]
                woken.update(dict.fromkeys(recalled))

    def _wildcards(self, changes: Sequence[Change]) -> Iterator[tuple[TypeUrl, str]]:
        """Yield the wildcards that a changed name belongs to."""
        for change in changes:
            if change.is_listed:
                yield from [(change.type_url, each) for each in wildcards(change.name)]

    def _notify_hosts(self, change: Change, woken: dict[Interested, None]) -> Steps[None]:
        """Notify those who requested hosts that another virtual host may serve now, in steps."""
        yield from self._hosts.sorting(change)
        for asked in cut(self._hosts.concerned(change)):
            self._notify(VIRTUAL_HOST, asked, woken)
            if len(asked) > FEW:  # one step tells of several changes, each of which may concern some hosts
                yield

    def _reroute(self, change: Change, woken: dict[Interested, None]) -> Steps[None]:
        """Tell sessions that a route configuration changed whose virtual hosts they requested, in steps.

        VHD-6: if it now reads hosts differently (say, without the port), each requested host may resolve to another
        one.
        """
        is_read_otherwise = _reading(change.before) != _reading(change.after)
        sessions: dict[Interested, None] = {}
        for asked in cut(self._hosts.under(change.name)):
            if is_read_otherwise:
                self._notify(VIRTUAL_HOST, asked, woken)
            sessions.update(self._named(VIRTUAL_HOST, asked))
            if len(asked) == EVERY:
                yield
        for session in sessions:
            yield from session.rerouted(change.name)
        woken.update(sessions)

    def _notify(self, type_url: TypeUrl, names: Iterable[str], woken: dict[Interested, None]) -> None:
        """Mark the subscriptions to these names as dirty."""
        by_name = self._names.get(type_url, {})
        for name in names if by_name else ():
            for session in by_name.get(name, ()):
                session.notify(name)
                woken[session] = None

    def _notify_some(self, change: Change, woken: dict[Interested, None]) -> bool:
        """Notify only the subscriptions whose variant changed or went (DESIGN 6.3).

        Return False if they can't be told apart, and `_notify` must mark all subscriptions to the name: for virtual
        hosts, and for most of what a cache knows.
        """
        before, after = change.before, change.after
        if before is None or after is None or change.type_url == VIRTUAL_HOST:
            return False
        moved = after.moved(before)
        if moved is None:
            return False
        for variant in moved.went:
            for want, session in self._groups.get(variant, {}).items():
                session.touch(want)
                woken[session] = None
        # Subscriptions that hold nothing may match a variant that came. In a relay, only those that do are marked.
        came = FirstMatch([variant.constraint for variant in moved.came]) if self.demand.caches else None
        for name in change.names:
            for want, session in self._groups.get((change.type_url, name), {}).items():
                if came is None or came.find(want.params) is not None:
                    session.touch(want)
                    woken[session] = None
        return True

    def concerned(self, type_url: TypeUrl, names: Sequence[str]) -> Iterator[Interested]:
        """Yield the sessions that subscribe to one of these names, by itself or under a wildcard. May repeat some."""
        yield from self._named(type_url, names)
        for wild in dict.fromkeys(each for name in names for each in wildcards(name)) if self._wild else ():
            yield from self.everybody(type_url, wild)

    def wanting(self, type_url: TypeUrl, name: str, params: Params) -> Iterator[int]:
        """Yield the streams with a subscription to this name, or this wildcard, with these params."""
        for session in (*self._names.get(type_url, {}).get(name, ()), *self.everybody(type_url, name)):
            if session.wants(name, params):
                yield session.stream

    def _named(self, type_url: TypeUrl, names: Iterable[str]) -> dict[Interested, None]:
        """Return the sessions that subscribe to one of these names by itself."""
        by_name = self._names.get(type_url)
        if not by_name:
            return {}
        found: dict[Interested, None] = {}
        for name in names:
            found.update(by_name.get(name, {}))
        return found


def _reading(known: VariantSet | None) -> dict[Constraint, Routing | None]:
    """Return how each variant of a route configuration wants hosts to be read (VHD-6)."""
    return {variant.constraint: variant.routing for variant in known.variants} if known is not None else {}
