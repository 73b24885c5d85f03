"""Who asks a server, of those who want a name and have no answer.

One of each class asks. As long as nothing is known of a name, all who ask are of one class (PRX-14). But:

- an answer may be for one parameter set alone, where a server does not say for whom there is nothing (PRX-31). Then
  each of the class asks for itself;
- there may be no answer at all. That says nothing of others, so every moment as many more ask as did before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from ..model.cached import CachedSet, Finding, UpstreamProblem
from ..model.types import Category, Params, category
from ..watch.entry import Entry
from .audience import Needs
from .findings import is_awaited


@dataclass(slots=True)
class Inquiry:
    chosen: list[Params] = field(default_factory=list)  # to be asked for now
    timed: set[Params] = field(default_factory=set)  # questions, these included, that keep somebody else waiting


def choose(
    needs: Needs,
    known: CachedSet,
    asked: Mapping[Params, Entry],
    wrong: tuple[UpstreamProblem, ...],
    is_late: Callable[[Params], bool],
    pending: Iterable[Params],
) -> Inquiry:
    """Choose who asks.

    wrong: who is told that something is wrong need not ask. is_late: whether a question is open for a moment.
    pending: the questions that may be open, of those who need something.
    """
    inquiry = Inquiry()
    flying: dict[Category, list[Params]] = {}
    for params in pending:
        if is_awaited(asked[params]):
            flying.setdefault(category(params, known.keys), []).append(params)
    alone = {category(params, known.keys) for params, each in known.own.items() if _is_alone(each, asked.get(params))}
    for of, alike in needs.waiting.items():
        free = [params for params in alike if params not in known.own and params not in asked]
        before = flying.get(of, [])
        if not free:
            continue
        if of not in alone:
            inquiry.timed.update(before)
            if not all(is_late(each) for each in before):
                continue
            free = [*islice(free, max(1, len(before)))]
        chosen = [params for params in free if not any(each.concerns(params) for each in wrong)]
        inquiry.chosen += chosen
        if len(chosen) < len(alike):
            inquiry.timed.update(chosen)
    return inquiry


def _is_alone(finding: Finding, entry: Entry | None) -> bool:
    """Whether an answer says that there is nothing for one parameter set, and nothing of any other."""
    if finding.variant is not None or entry is None or not entry.authority.active:
        return False
    return not entry.authority.pins_absence
