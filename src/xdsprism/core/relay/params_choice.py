"""Choose which waiting params a relay subscribes with upstream.

When several clients want a name and no cached answer covers them, one client of each class asks for all: its answer is
expected to hold for the others. As long as nothing is known of a name, all of its clients form one class, so a thousand
clients of a cold relay cause one upstream subscription (PRX-14). Two cases need more:

- The server answers "does not exist" without saying for which other params that holds (PRX-31). The answer then covers
  one set of params alone, and every other client of the class asks for itself.
- The server does not answer. Its silence says nothing about other params, so after each MOMENT as many more ask as are
  asking already: 1, 2, 4 and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from ..model.cached import CachedSet, Finding, UpstreamProblem
from ..model.types import Category, Params, category
from .audience import Needs
from .upstream_subscription import UpstreamSubscription


@dataclass(slots=True)
class ParamsChoice:
    """Says with which params to subscribe now, and which upstream subscriptions must be timed."""

    chosen: list[Params] = field(default_factory=list)  # to subscribe with now
    timed: set[Params] = field(default_factory=set)  # subscriptions, new ones included, that others wait for


def choose_params(
    needs: Needs,
    known: CachedSet,
    asked: Mapping[Params, UpstreamSubscription],
    wrong: tuple[UpstreamProblem, ...],
    is_late: Callable[[Params], bool],
    pending: Iterable[Params],
) -> ParamsChoice:
    """Choose the params to subscribe with, at most one per class unless a case above applies.

    needs: which classes wait. asked: the upstream subscriptions of the name. wrong: errors that the clients they
    concern were told; these clients need not ask. is_late: whether an upstream subscription has had no answer for a
    moment. pending: those of `asked` that may have no answer yet.
    """
    choice = ParamsChoice()
    flying: dict[Category, list[Params]] = {}
    for params in pending:
        if asked[params].is_awaited:
            flying.setdefault(category(params, known.keys), []).append(params)
    alone = {category(params, known.keys) for params, each in known.own.items() if _is_alone(each, asked.get(params))}
    for of, alike in needs.waiting.items():
        free = [params for params in alike if params not in known.own and params not in asked]
        before = flying.get(of, [])
        if not free:
            continue
        if of not in alone:
            # One of the class asks already: wait for its answer for a moment, then let as many more ask.
            choice.timed.update(before)
            if not all(is_late(each) for each in before):
                continue
            free = [*islice(free, max(1, len(before)))]
        chosen = [params for params in free if not any(each.concerns(params) for each in wrong)]
        choice.chosen += chosen
        if len(chosen) < len(alike):
            choice.timed.update(chosen)
    return choice


def _is_alone(finding: Finding, subscription: UpstreamSubscription | None) -> bool:
    """Whether a server said "does not exist" for one set of params, and nothing about any other (PRX-31)."""
    if finding.variant is not None or subscription is None or not subscription.entry.authority.active:
        return False
    return not subscription.entry.authority.pins_absence
