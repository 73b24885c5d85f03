"""Translate the constraints of removals and errors into the form that the client holds.

TP2 makes constraints part of the identity of a variant, and does not say when two constraints are equal. A server may
send a variant with `a and b`, and later remove it as `not (not a or not b)`. `canonical` sees through order and double
negation only; this module compares meanings (DYN-30).
"""

from __future__ import annotations

from dataclasses import replace

from ..model.constraints import canonical, matches
from ..model.decisions import mean_the_same
from ..model.events import Absence
from ..model.responses import Response
from .response_matching import ResponseMatching
from .upstream import Upstream
from .watched_type import WatchedType


def in_held_words(response: Response, topic: WatchedType, upstream: Upstream) -> Response:
    """Return the response with removals and errors that name variants by the constraints that the client holds."""
    if not response.withdrawn and not response.errors:
        return response
    matching = ResponseMatching(topic, upstream)
    said = dict.fromkeys((*response.withdrawn, *(each.about for each in response.errors)))
    worded = {about: _worded(about, matching) for about in said}  # a response may repeat one removal many times
    withdrawn = tuple(worded[each] for each in response.withdrawn)
    errors = tuple(replace(each, about=worded[each.about]) for each in response.errors)
    return replace(response, withdrawn=withdrawn, errors=errors)


def _worded(about: Absence, matching: ResponseMatching) -> Absence:
    """Return the absence with the held constraint of equal meaning, or unchanged if there is none."""
    held = matching.held_constraints(about)
    if canonical(about.constraint) in held:
        return about
    # A held constraint of equal meaning matches the params that its holder asked with. That test is cheap, and spares
    # most of the proofs.
    for constraint, params in held.items():
        if matches(about.constraint, params) and mean_the_same(about.constraint, constraint):
            return replace(about, constraint=constraint)
    return about
