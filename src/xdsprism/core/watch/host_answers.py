"""Decide which resource of a response is for an entry that was subscribed by another string than its name (VHD-12).

A host is served by a virtual host with a name of its own, and another one may serve it tomorrow. So an update of the
virtual host that an entry holds is for the entry only as long as its domains have the host (match_rank.py). Where the
response does not tell, the client asks for the host again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.constraints import canonical, matches
from ..model.responses import Arrival, Response
from ..model.types import VIRTUAL_HOST, Variant
from .entry import Entry, State
from .match_rank import MatchRank, closeness, owns
from .upstream import Upstream


class HostAnswers:
    """Which entries the resources of one response are for, and which have lost their virtual host by it.

    given: the best resource so far for each entry; the reader of the response adds to it.
    """

    def __init__(self, response: Response, upstream: Upstream, given: Mapping[Entry, Arrival]) -> None:
        self._upstream = upstream
        self._given = given
        self.lost: dict[Entry, str] = {}  # entries whose virtual host no longer serves their host: its name
        self.doubtful: dict[Entry, None] = {}  # entries to ask for again
        self._removed = frozenset(response.removed)
        self._withdrawn = frozenset((gone.name, canonical(gone.constraint)) for gone in response.withdrawn)
        self._arrivals = response.arrivals
        self._by_name: dict[str, list[Variant]] | None = None  # the arrivals, found when they are first needed
        self._unresolved = {string for item in response.unresolved for string in item.strings}

    def is_meant(self, entry: Entry, variant: Variant) -> bool:
        """Whether a resource is for an entry that it fits by name or alias, or that holds it (VHD-12)."""
        given, close = self._given.get(entry), closeness(entry.name, variant)
        if close is MatchRank.LOST:
            self.lost[entry] = variant.name
            return False
        if close is MatchRank.UNSURE and not self._is_repeated(entry, variant):
            self.doubtful[entry] = None
            return False
        # Of two resources in the response for one entry, the better rank wins; the later one if both are equal.
        if given is not None:
            return close >= closeness(entry.name, given.variant)
        # An update of the virtual host that the entry holds. Not if the response calls the host unresolved, or if the
        # server has yet to say on this stream which virtual host serves it.
        if close is MatchRank.HELD:
            return entry.name not in self._unresolved and not self.is_doubtful(entry)
        return close is MatchRank.MEANT or not self._is_owned(entry, variant)

    def _is_repeated(self, entry: Entry, variant: Variant) -> bool:
        """Whether the server repeats the resource that the entry has from it, in an answer to other hosts (VHD-4)."""
        held = entry.variant
        same = held is not None and held.name == variant.name and held.body == variant.body
        return same and entry.came_from(self._upstream)

    def _is_owned(self, entry: Entry, other: Variant) -> bool:
        """Whether the virtual host that the entry holds has the host as an exact domain, and the other one does not.

        Then another virtual host that is merely named like the host answers another subscription.
        """
        held = entry.variant
        if held is None or held.name == other.name or entry.state is not State.ACKED or self._is_gone(held):
            return False
        if not owns(self._current(entry, held), entry.name) or owns(other, entry.name):
            return False
        self.is_doubtful(entry)
        return True

    def is_doubtful(self, entry: Entry) -> bool:
        """Whether the server has yet to say, on this stream, which virtual host serves the entry's host.

        The fate of the virtual host that the entry holds is no answer: another one may serve the host by now.
        """
        doubtful = entry.name != _held_name(entry) and not entry.came_from(self._upstream)
        if doubtful and entry.type_url == VIRTUAL_HOST:
            self.doubtful[entry] = None
        return entry in self.doubtful

    def _current(self, entry: Entry, held: Variant) -> Variant:
        """Return what becomes of the resource that an entry holds: the variant for its params in this response."""
        if self._by_name is None:
            self._by_name = {}
            for arrival in self._arrivals:
                self._by_name.setdefault(arrival.variant.name, []).append(arrival.variant)
        params = entry.params
        for variant in reversed(self._by_name.get(held.name, ())):
            if params is None or matches(variant.constraint, params):
                return variant
        return held

    def _is_gone(self, variant: Variant) -> bool:
        """Whether this response removes the variant."""
        return variant.name in self._removed or self.is_withdrawn(variant)

    def is_withdrawn(self, variant: Variant) -> bool:
        """Whether the response withdraws exactly this variant."""
        return bool(self._withdrawn) and variant.identity in self._withdrawn


def _held_name(entry: Entry) -> str:
    """Return the name of the resource that the entry holds; its own if it holds none."""
    return entry.variant.name if entry.variant is not None else entry.name
