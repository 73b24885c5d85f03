"""Removals in other words: constraints that mean the same as those that were sent, in another form.

TP2 makes constraints a part of what identifies a variant, and does not say when two of them are equal. A server may
write `not (not a or not b)` today for what it called `a and b` yesterday. `canonical` sees through order and double
negation only; here the meaning counts (DYN-30).
"""

from __future__ import annotations

from dataclasses import replace

from ..model.constraints import canonical, matches
from ..model.decisions import mean_the_same
from ..model.events import Absence
from ..model.responses import Response
from .upstream import Upstream
from .watched_type import WatchedType


def in_held_words(response: Response, topic: WatchedType, upstream: Upstream) -> Response:
    """The same response; what it takes away is called as the variants that are held are."""
    if not response.withdrawn and not response.errors:
        return response
    said = dict.fromkeys((*response.withdrawn, *(each.about for each in response.errors)))
    worded = {about: _worded(about, topic, upstream) for about in said}  # some say the same many times
    withdrawn = tuple(worded[each] for each in response.withdrawn)
    errors = tuple(replace(each, about=worded[each.about]) for each in response.errors)
    return replace(response, withdrawn=withdrawn, errors=errors)


def _worded(about: Absence, topic: WatchedType, upstream: Upstream) -> Absence:
    held = topic.held_constraints(about, upstream)
    if canonical(about.constraint) in held:
        return about
    for constraint, params in held.items():
        if matches(about.constraint, params) and mean_the_same(about.constraint, constraint):
            return replace(about, constraint=constraint)
    return about
