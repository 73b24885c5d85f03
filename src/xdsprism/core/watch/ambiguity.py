"""Two variants for one subscription: which pairs were told of already (DYN-45)."""

from __future__ import annotations

from ..model.constraints import Constraint, canonical
from ..model.expr import show
from ..model.facts import Ambiguous, Fact
from ..model.types import TypeUrl, Variant
from .entry import Entry

REMEMBERED = 10_000  # pairs


class Ambiguities:
    """DYN-45: the one received last wins; both are told of, once."""

    def __init__(self, facts: list[Fact]) -> None:
        self._facts = facts
        self._known: set[tuple[TypeUrl, str, frozenset[Constraint]]] = set()

    def note(self, entry: Entry, kept: Variant, other: Variant) -> None:
        pair = (entry.type_url, entry.name, frozenset(map(canonical, (kept.constraint, other.constraint))))
        if pair not in self._known and len(self._known) < REMEMBERED:
            self._known.add(pair)
            both = show(kept.shown), show(other.shown)
            self._facts.append(Ambiguous(entry.type_url, entry.name, *both, first=True))
        else:
            self._facts.append(Ambiguous(entry.type_url, entry.name, "", "", first=False))
