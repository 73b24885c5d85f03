"""Report each pair of variants that both match one subscription, with its constraints only once (DYN-45).

TP2 requires that the variants of a name do not overlap. A server may break that rule, and a client can't repair it: the
variant that the client received last wins.
"""

from __future__ import annotations

from ..model.constraints import Constraint, canonical
from ..model.expr import show
from ..model.facts import Ambiguous, Fact
from ..model.types import TypeUrl, Variant
from .entry import Entry

REMEMBERED = 10_000  # pairs; later ones count as known, so that a server can't fill the memory


class Ambiguities:
    """The pairs of overlapping variants that this client has reported so far.

    The first report of a pair shows both constraints, for the log. Later reports of the pair only count in metrics.
    """

    def __init__(self, facts: list[Fact]) -> None:
        self._facts = facts
        self._known: set[tuple[TypeUrl, str, frozenset[Constraint]]] = set()

    def note(self, entry: Entry, kept: Variant, other: Variant) -> None:
        """Append a fact: `kept` and `other` both match the params of the entry, and `kept` came last."""
        pair = (entry.type_url, entry.name, frozenset(map(canonical, (kept.constraint, other.constraint))))
        if pair not in self._known and len(self._known) < REMEMBERED:
            self._known.add(pair)
            both = show(kept.shown), show(other.shown)
            self._facts.append(Ambiguous(entry.type_url, entry.name, *both, first=True))
        else:
            self._facts.append(Ambiguous(entry.type_url, entry.name, "", "", first=False))
