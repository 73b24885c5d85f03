"""Report what a relay has cached for one name, for status pages (PRX-28).

A row is one finding: its variant or absence, the upstream subscription that keeps it up to date, and how many
downstream subscriptions it answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..model.cached import CachedSet, Finding, Form
from ..model.steps import EVERY, Steps
from ..watch.entry import Entry
from .audience import Audience
from .findings import Pin, UpstreamAnswer, listen


@dataclass(frozen=True, slots=True)
class Holding:
    """One cached answer, with its source and the number of its users."""

    finding: Finding
    entry: Entry | None  # the upstream subscription that keeps it up to date; None: none does
    users: int


def holdings(
    known: CachedSet, voices: Iterable[UpstreamAnswer], audiences: Iterable[Audience], pin: Pin
) -> Steps[list[Holding]]:
    """Return all findings of a name, each with its upstream subscription and its number of users, in steps.

    audiences: the subscribers of the name and of every wildcard that covers it. Subscribers without an answer count for
    no finding.
    """
    standing: dict[Form, Entry] = {}
    for count, voice in enumerate([*voices], 1):
        for form in listen([voice], known, pin).findings:
            standing.setdefault(form, voice.entry)
        if count % EVERY == 0:
            yield
    users: Counter[Form | None] = Counter()
    for audience in audiences:
        for count, params in enumerate([*audience], 1):
            finding = known.find(params)
            users[finding.form if finding is not None else None] += audience.count(params)
            if count % EVERY == 0:
                yield
    return [Holding(each, standing.get(each.form), users[each.form]) for each in known.findings]
