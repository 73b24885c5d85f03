"""What a large transaction comes to in a table, found before anybody sees it, so that to take it in is short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from .steps import EVERY, Steps, pieces
from .types import Change, Reference, TypeSpec
from .variants import VariantSet
from .xdstp import collection_of

_K = TypeVar("_K")


class StagedChanges:
    """All changes of one transaction in one table."""

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
        "variants",
    )

    def __init__(self, changes: Sequence[Change], spec: TypeSpec) -> None:
        """`count` has to follow."""
        self.changes = changes
        self.sets: dict[str, VariantSet] = {}
        self.gone: list[str] = []
        self.variants = 0
        self.references: Counter[Reference] = Counter()  # how many more variants refer to something, or fewer
        self.mentions: Counter[str] = Counter()  # the same of keys in what wildcards see
        self.listed: list[Change] = []
        self.aliased: list[Change] = []
        self.placed: list[tuple[str, Change]] = []  # xdstp names, with their glob collections
        self._has_globs = not spec.on_demand

    def count(self) -> Steps[None]:
        """Look at every change."""
        for piece in pieces(self.changes):
            for change in piece:
                self._add(change)
            if len(piece) == EVERY:
                yield
        for counter in (self.references, self.mentions):
            for key in [key for key, count in counter.items() if not count]:
                del counter[key]

    def _add(self, change: Change) -> None:
        if change.after is not None:
            self.sets[change.name] = change.after
        else:
            self.gone.append(change.name)
        for known, step in ((change.before, -1), (change.after, 1)):
            if known is not None:
                self._count(known, step)
        if change.is_listed:
            self.listed.append(change)
        if len(change.names) > 1:
            self.aliased.append(change)
        path = collection_of(change.name) if self._has_globs else None
        if path is not None:
            self.placed.append((path, change))

    def _count(self, known: VariantSet, step: int) -> None:
        self.variants += step * len(known.variants)
        for variant in known.variants:
            for reference in variant.references:
                self.references[reference] += step
        for key in known.member_keys:
            self.mentions[key] += step


def add_counts(counts: Counter[_K], more: Mapping[_K, int]) -> None:
    """Add these, of which some are below zero; what is none in the end is not there."""
    for key, count in more.items():
        counts[key] += count
        if not counts[key]:
            del counts[key]
