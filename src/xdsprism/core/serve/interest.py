"""The reverse index: from a changed name to the sessions that want it, without asking all the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ..model.constraint_index import FirstMatch
from ..model.constraints import Constraint
from ..model.events import WILDCARD
from ..model.hosts import AskedHosts
from ..model.steps import EVERY, Steps, cut, finish
from ..model.types import ROUTE, VIRTUAL_HOST, Change, Params, Routing, TypeUrl
from ..model.variants import VariantSet
from ..model.xdstp import wildcards
from .subscriptions import Group, NameSubscription

FEW = 16  # changes between two steps: each may concern thousands of sessions


class Demand(Protocol):
    """Who has to get what is wanted from elsewhere hears of each subscription: name or wildcard, and params."""

    caches: bool  # what there is was said by another server, to some; of the others nothing may be known

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:
        """stream: who wants it."""

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None: ...

    def forgot(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """A session forgot a name that nothing has, and its client still waits for it (VHD-25)."""


class NoDemand:
    """Everything there is, is here."""

    caches = False

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:
        """Nothing to do."""

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Nothing to do."""

    def forgot(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Nothing to do."""


class Interested(Protocol):
    stream: int

    def notify(self, name: str) -> None:
        """What is called this, and is wanted here, changed."""

    def touch(self, want: NameSubscription) -> None:
        """What this subscription is about changed."""

    def rerouted(self, config: str) -> Steps[None]:
        """The route configuration of virtual hosts that are wanted here changed."""

    def recall(self, change: Change) -> bool:
        """Whether this changed something that was forgotten here, and so is wanted again."""

    def has_forgotten(self, name: str) -> bool:
        """Whether its client waits for this name, and it is not known here any more."""

    def wants(self, name: str, params: Params) -> bool:
        """Whether it has a subscription to this, with these params."""

    def is_judging(self, names: Iterable[str]) -> bool:
        """Whether its client has yet to be sent what changed of these names, or to answer what it was sent."""


class Interest:
    """Who wants what. Dictionaries are used as ordered sets, so that a fan-out has a reproducible order."""

    def __init__(self, demand: Demand | None = None) -> None:
        self.demand: Demand = demand or NoDemand()
        self._names: dict[TypeUrl, dict[str, dict[Interested, None]]] = {}
        self._wild: dict[tuple[TypeUrl, str], dict[Interested, None]] = {}  # by wildcard, or glob collection
        self._hosts = AskedHosts()
        self._groups: dict[Group, dict[NameSubscription, Interested]] = {}
        self._forgetful: dict[TypeUrl, dict[Interested, None]] = {}  # who forgot names that nothing had (VHD-25)

    def add(self, session: Interested, type_url: TypeUrl, name: str) -> None:
        by_name = self._names.setdefault(type_url, {})
        if name not in by_name:
            by_name[name] = {}
            if type_url == VIRTUAL_HOST:
                self._hosts.add(name)
        by_name[name][session] = None

    def remove(self, session: Interested, type_url: TypeUrl, name: str) -> None:
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
        self._wild.setdefault((type_url, name), {})[session] = None

    def remove_wild(self, session: Interested, type_url: TypeUrl, name: str = WILDCARD) -> None:
        sessions = self._wild.get((type_url, name), {})
        sessions.pop(session, None)
        if not sessions:
            self._wild.pop((type_url, name), None)

    def add_forgetful(self, session: Interested, type_url: TypeUrl) -> None:
        """From now on, ask this session whether it forgot what changes."""
        self._forgetful.setdefault(type_url, {})[session] = None

    def remove_forgetful(self, session: Interested, type_url: TypeUrl) -> None:
        sessions = self._forgetful[type_url]
        del sessions[session]
        if not sessions:
            del self._forgetful[type_url]

    def is_forgotten(self, type_url: TypeUrl, name: str) -> bool:
        """Whether a client waits for a name that its session forgot."""
        return any(session.has_forgotten(name) for session in self._forgetful.get(type_url, ()))

    def group(self, session: Interested, want: NameSubscription, group: Group | None) -> None:
        """Note what this subscription is affected by, where not by all that happens to its name."""
        if want.group is not None:
            members = self._groups[want.group]
            del members[want]
            if not members:
                del self._groups[want.group]
        if group is not None:
            self._groups.setdefault(group, {})[want] = session
        want.group = group

    def everybody(self, type_url: TypeUrl, name: str = WILDCARD) -> dict[Interested, None]:
        """Who follows the whole table, or a collection."""
        return self._wild.get((type_url, name), {})

    def subscribers(self, type_url: TypeUrl, name: str) -> int:
        """How many sessions want this name, by itself or under a wildcard."""
        wild = {session for each in wildcards(name) for session in self.everybody(type_url, each)}
        return len(self._named(type_url, (name,))) + len(wild)

    def notify(self, changes: Sequence[Change]) -> dict[Interested, None]:
        """Tell everyone affected, and return them. The cost is that of the affected, whoever else is there."""
        woken: dict[Interested, None] = {}
        finish(self._notify_all(changes, set(), woken))
        return woken

    def notifying(self, changes: deque[Change]) -> Steps[dict[Interested, None]]:
        """What `notify` does, in steps. It takes each change away, and with the last one it is done."""
        woken: dict[Interested, None] = {}
        told: set[tuple[TypeUrl, str]] = set()
        while changes:
            yield from self._notify_all([changes[at] for at in range(min(FEW, len(changes)))], told, woken)
            if len(changes) > FEW:
                yield
            for _ in range(min(FEW, len(changes))):
                changes.popleft()
        return woken

    def weight(self, changes: Iterable[Change]) -> int:
        """How many hosts that somebody asked for one of these changes may concern, at most."""
        kinds = (ROUTE,) if self.demand.caches else (VIRTUAL_HOST, ROUTE)
        return max([self._hosts.weight(change) for change in changes if change.type_url in kinds], default=0)

    def _notify_all(
        self, changes: Sequence[Change], told: set[tuple[TypeUrl, str]], woken: dict[Interested, None]
    ) -> Steps[None]:
        """Tell of these, in steps where one of them concerns very many hosts that were asked for."""
        for wild in dict.fromkeys(self._wildcards(changes)) if self._wild else ():
            woken.update(self._wild.get(wild, {}))
        for change in changes:
            if not self._notify_some(change, woken):
                names = [name for name in change.names if (change.type_url, name) not in told]
                told.update((change.type_url, name) for name in names)  # once is enough, however often it changed
                self._notify(change.type_url, names, woken)
            if change.type_url == VIRTUAL_HOST:
                if not self.demand.caches:  # a cache resolves nothing by itself: each host has an answer of its own
                    yield from self._notify_hosts(change, woken)
            elif change.type_url == ROUTE:
                yield from self._reroute(change, woken)
            if self._forgetful and change.after is not None:
                recalled = [each for each in self._forgetful.get(change.type_url, ()) if each.recall(change)]
                woken.update(dict.fromkeys(recalled))

    def _wildcards(self, changes: Sequence[Change]) -> Iterator[tuple[TypeUrl, str]]:
        """All that something belongs to which changed."""
        for change in changes:
            if change.is_listed:
                yield from ((change.type_url, each) for each in wildcards(change.name))

    def _notify_hosts(self, change: Change, woken: dict[Interested, None]) -> Steps[None]:
        """Tell those who asked for hosts that another virtual host may serve now."""
        yield from self._hosts.sorting(change)
        for asked in cut(self._hosts.concerned(change)):
            self._notify(VIRTUAL_HOST, asked, woken)
            if len(asked) > FEW:  # as many changes as are told in one step may each concern some
                yield

    def _reroute(self, change: Change, woken: dict[Interested, None]) -> Steps[None]:
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
        by_name = self._names.get(type_url, {})
        for name in names if by_name else ():
            for session in by_name.get(name, ()):
                session.notify(name)
                woken[session] = None

    def _notify_some(self, change: Change, woken: dict[Interested, None]) -> bool:
        """DESIGN 6.3: who has a variant that stays as it is has nothing to do with it, and is not even asked.

        False: it can't be told apart who has. Of virtual hosts, and of most that is known in part, everybody is asked.
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
        came = FirstMatch([variant.constraint for variant in moved.came]) if self.demand.caches else None
        for name in change.names:
            for want, session in self._groups.get((change.type_url, name), {}).items():
                if came is None or came.find(want.params) is not None:
                    session.touch(want)
                    woken[session] = None
        return True

    def concerned(self, type_url: TypeUrl, names: Sequence[str]) -> Iterator[Interested]:
        """Who wants one of these names, by itself or under a wildcard; the same one perhaps several times."""
        yield from self._named(type_url, names)
        for wild in dict.fromkeys(each for name in names for each in wildcards(name)) if self._wild else ():
            yield from self.everybody(type_url, wild)

    def wanting(self, type_url: TypeUrl, name: str, params: Params) -> Iterator[int]:
        """The streams that have a subscription to a name, or to a wildcard, with these params."""
        for session in (*self._names.get(type_url, {}).get(name, ()), *self.everybody(type_url, name)):
            if session.wants(name, params):
                yield session.stream

    def _named(self, type_url: TypeUrl, names: Iterable[str]) -> dict[Interested, None]:
        by_name = self._names.get(type_url)
        if not by_name:
            return {}
        found: dict[Interested, None] = {}
        for name in names:
            found.update(by_name.get(name, {}))
        return found


def _reading(known: VariantSet | None) -> dict[Constraint, Routing | None]:
    """VHD-6: how a route configuration wants hosts to be read."""
    return {variant.constraint: variant.routing for variant in known.variants} if known is not None else {}
