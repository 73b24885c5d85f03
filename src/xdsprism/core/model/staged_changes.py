"""Count the effects of a large transaction on a table before the table changes, so that the commit itself is short.

The store validates and counts a transaction while other streams are served, possibly in a thread. Only the commit has
to happen in one go. For a transaction with many changes the loops over all of them are therefore run here, beforehand:
`StagedChanges.count` sums up what the table's counters and indexes will need, and `Table.commit_all` only adds the
sums. Small transactions skip this and use `Table.commit` for each change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .steps import EVERY, Steps, pieces
from .types import Change, Reference, TypeSpec
from .variants import VariantSet
from .xdstp import collection_of

_K = TypeVar("_K")


@dataclass(slots=True)
class SpecialCounts:
    """How many sets of one table are special: while a count is zero, no answer needs a second look."""

    singular: int = 0  # with an answer for exact params only
    limited: int = 0  # with an answer that clients who come now may not get
    with_problem: int = 0  # with a problem

    def note(self, known: VariantSet, step: int) -> None:
        """Count a set that comes (step 1) or goes (step -1)."""
        self.singular += step if known.is_singular else 0
        self.limited += step if known.is_limited else 0
        self.with_problem += step if known.has_problem else 0

    def add(self, more: SpecialCounts) -> None:
        """Add the counts of a large transaction."""
        self.singular += more.singular
        self.limited += more.limited
        self.with_problem += more.with_problem


class StagedChanges:
    """All changes of one transaction in one table, and their sums.

    Each sum is a difference, positive or negative: what the sets after the changes have, less what the sets before them
    had.
    """

    __slots__ = (
        "_has_globs",
        "aliased",
        "changes",
        "gone",
        "listed",
        "mentions",
        "placed",
        "references",
        "sets",
        "special",
        "variants",
    )

    def __init__(self, changes: Sequence[Change], spec: TypeSpec) -> None:
        """Note the changes; `count` must run before the table takes them."""
        self.changes = changes
        self.sets: dict[str, VariantSet] = {}  # new or updated names
        self.gone: list[str] = []  # deleted names
        self.variants = 0  # how many variants more there are, or fewer
        self.references: Counter[Reference] = Counter()  # how many more variants refer to a resource, or fewer
        self.mentions: Counter[str] = Counter()  # how many more names mention a key in what wildcards see, or fewer
        self.listed: list[Change] = []  # changes that a wildcard may see
        self.aliased: list[Change] = []  # changes of resources that have aliases, before or after
        self.placed: list[tuple[str, Change]] = []  # changes of xdstp names, with their glob collections
        self.special = SpecialCounts()
        self._has_globs = spec.has_xdstp_names

    def count(self) -> Steps[None]:
        """Sum up every change, in steps."""
        for piece in pieces(self.changes):
            for change in piece:
                self._add(change)
            if len(piece) == EVERY:
                yield
        # What one change added and another took away cancels out: leave no zeros for the table to add.
        for counter in (self.references, self.mentions):
            for key in [key for key, count in counter.items() if not count]:
                del counter[key]

    def _add(self, change: Change) -> None:
        """Sort one change into the lists, and count the set before it as gone and the set after it as new."""
        if change.after is not None:
            self.sets[change.name] = change.after
        else:
            self.gone.append(change.name)
        for known, step in ((change.before, -1), (change.after, 1)):
            if known is not None:
                self._count(known, step)
        # The rest is needed one by one: for the log, for the aliases and for the glob collections.
        if change.is_listed:
            self.listed.append(change)
        if len(change.names) > 1:
            self.aliased.append(change)
        path = collection_of(change.name) if self._has_globs else None
        if path is not None:
            self.placed.append((path, change))

    def _count(self, known: VariantSet, step: int) -> None:
        """Add the sums of one set (step 1), or subtract them (step -1)."""
        self.variants += step * len(known.variants)
        for variant in known.variants:
            for reference in variant.references:
                self.references[reference] += step
        for key in known.member_keys:
            self.mentions[key] += step
        self.special.note(known, step)


def add_counts(counts: Counter[_K], more: Mapping[_K, int]) -> None:
    """Add counts, some of them negative, to a counter.

    A key whose count becomes zero is dropped, so that the keys of a counter are exactly what is in use.
    """
    for key, count in more.items():
        counts[key] += count
        if not counts[key]:
            del counts[key]
