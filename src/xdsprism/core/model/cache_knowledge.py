"""Say what a relay's cache knows, and what it may hand on (PRX-11, PRX-17, PRX-25)."""

from __future__ import annotations

from .cached import CachedSet, UpstreamProblem
from .events import WILDCARD
from .knowledge import Knowledge
from .lookup import Lookup
from .staged_changes import SpecialCounts
from .table import Table
from .types import Params, ResourceProblem, TypeSpec


class CacheKnowledge(Knowledge):
    """What is known of one type, as far as a relay has heard of it from its servers."""

    is_complete = False

    def __init__(self, lookup: Lookup, special: SpecialCounts) -> None:
        self._lookup = lookup
        self._special = special
        self.listed: set[tuple[str, Params]] = set()  # wildcards and globs whose full contents are known
        self.unsure: set[tuple[str, Params]] = set()  # those of them that only an earlier run of the process heard
        self._wrong: dict[tuple[str, Params], UpstreamProblem] = {}  # problems of whole globs (ERR-6)

    def knows(self, name: str, params: Params, *, sure: bool = False) -> bool:
        known = self._lookup.get(name)
        return known is not None and known.knows(params, sure=sure)

    def trouble(self, name: str, params: Params) -> ResourceProblem | None:
        """Return the problem of this glob as a whole, or of this name, that concerns these params."""
        if not self._wrong and not self._special.troubled:
            return None
        known = self._lookup.get(name)
        return self._wrong.get((name, params)) or (known.trouble(params) if known is not None else None)

    def serves(self, name: str, params: Params, since: int) -> bool:
        """Whether the answer may go to a client that subscribed at revision `since`; some are not for latecomers."""
        if not self._special.limited:
            return True
        known = self._lookup.get(name)
        found = known.find(params) if isinstance(known, CachedSet) and known.is_limited else None
        if found is None:
            return True
        return not found.aged and (not found.do_not_cache or found.revision > since)

    def is_late(self, name: str, params: Params, *, claims: bool) -> bool:
        """Whether the answer is later than this client waits: one that `claims` to have the resource waits longer."""
        known = self._lookup.get(name)
        return isinstance(known, CachedSet) and known.lateness(params) > claims

    def lists(self, params: Params, name: str = WILDCARD, *, sure: bool = False) -> bool:
        """Whether everything under this wildcard or glob is known for these params."""
        return (name, params) in self.listed and not (sure and (name, params) in self.unsure)

    def unlist(self, params: Params, name: str = WILDCARD) -> None:
        """Note that the contents of this wildcard or glob are not fully known any more."""
        self.listed.discard((name, params))
        self.unsure.discard((name, params))
        self._wrong.pop((name, params), None)

    def note_wrong(self, glob: tuple[str, Params], wrong: UpstreamProblem | None) -> bool:
        """ERR-6: note a problem of a glob as a whole, or its end (None); return whether that is a change."""
        before = self._wrong.pop(glob, None)
        if wrong is not None:
            self._wrong[glob] = wrong
        return wrong != before


def cache_table(spec: TypeSpec) -> Table:
    """Make the table of one type in a relay's store."""
    return Table(spec, knowledge=CacheKnowledge)
