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
    """What a relay knows of one type from the answers of its servers."""

    is_complete = False

    def __init__(self, lookup: Lookup, special: SpecialCounts) -> None:
        self._lookup = lookup
        self._special = special
        self.listed: set[tuple[str, Params]] = set()  # wildcards and globs whose full contents are known
        self.unsure: set[tuple[str, Params]] = set()  # those known only from an earlier run of the process
        self.wrong: dict[tuple[str, Params], UpstreamProblem] = {}  # problems of whole globs (ERR-6)
        self._is_part = False

    def join(self, whole: Knowledge) -> None:
        """What an upstream wildcard lists is known as soon as the whole table has it: the part leaves out the rest."""
        if isinstance(whole, CacheKnowledge):
            self.listed, self.unsure, self.wrong = whole.listed, whole.unsure, whole.wrong
            self._is_part = True

    def knows(self, name: str, params: Params, *, sure: bool = False) -> bool:
        known = self._lookup.get(name)
        return known is not None and known.knows(params, sure=sure)

    def problem(self, name: str, params: Params) -> ResourceProblem | None:
        """Return the problem of this glob as a whole, or of this name, that concerns these params."""
        if not self.wrong and not self._special.with_problem:
            return None
        known = self._lookup.get(name)
        found = self.wrong.get((name, params)) or (known.problem(params) if known is not None else None)
        return found.without_words() if self._is_part and isinstance(found, UpstreamProblem) else found

    def serves(self, name: str, params: Params, since: int) -> bool:
        """Whether the answer may go to a client that subscribed at revision `since`; some are not for latecomers."""
        if not self._special.limited:
            return True
        known = self._lookup.get(name)
        found = known.find(params) if isinstance(known, CachedSet) and known.is_limited else None
        if found is None:
            return True
        return not found.aged and (not found.do_not_cache or found.revision > since)

    def is_late(self, name: str, params: Params, *, is_returning: bool) -> bool:
        """Whether the answer is later than this client waits: a returning one, which has the resource, waits longer."""
        known = self._lookup.get(name)
        return isinstance(known, CachedSet) and known.lateness(params) > is_returning

    def lists(self, params: Params, name: str = WILDCARD, *, sure: bool = False) -> bool:
        """Whether everything under this wildcard or glob is known for these params."""
        return (name, params) in self.listed and not (sure and (name, params) in self.unsure)

    def unlist(self, params: Params, name: str = WILDCARD) -> None:
        """Note that the contents of this wildcard or glob are not fully known any more."""
        self.listed.discard((name, params))
        self.unsure.discard((name, params))
        self.wrong.pop((name, params), None)

    def note_wrong(self, glob: tuple[str, Params], wrong: UpstreamProblem | None) -> bool:
        """ERR-6: note a problem of a glob as a whole, or its end (None); return whether that is a change."""
        before = self.wrong.pop(glob, None)
        if wrong is not None:
            self.wrong[glob] = wrong
        return wrong != before


def cache_table(spec: TypeSpec) -> Table:
    """Make the table of one type in a relay's store."""
    return Table(spec, knowledge=CacheKnowledge)
