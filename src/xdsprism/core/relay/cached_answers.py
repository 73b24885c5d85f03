"""Report what a relay has cached for one name, for status pages (PRX-28).

A row is one finding: its variant or absence, the upstream subscription that keeps it up to date, and how many
downstream subscriptions it answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..model.cached import CachedSet, Finding, FindingId
from ..model.steps import EVERY, Steps
from ..watch.entry import Entry
from .audience import Audience
from .findings import Pin, listen
from .upstream_subscription import UpstreamAnswer


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """One cached answer, with its source and the number of its users."""

    finding: Finding
    entry: Entry | None  # the upstream subscription that keeps it up to date; None: none does
    users: int


def listing_answers(
    known: CachedSet, answers: Iterable[UpstreamAnswer], audiences: Iterable[Audience], pin: Pin
) -> Steps[list[CachedAnswer]]:
    """Return all findings of a name, each with its upstream subscription and its number of users, in steps.

    audiences: the subscribers of the name and of every wildcard that covers it. Subscribers without an answer count for
    no finding.
    """
    held_by: dict[FindingId, Entry] = {}
    for count, answer in enumerate([*answers], 1):
        for finding_id in listen([answer], known, pin).findings:
            held_by.setdefault(finding_id, answer.entry)
        if count % EVERY == 0:
            yield
    users: Counter[FindingId | None] = Counter()
    for audience in audiences:
        for count, params in enumerate([*audience], 1):
            finding = known.find(params)
            users[finding.id if finding is not None else None] += audience.count(params)
            if count % EVERY == 0:
                yield
    return [CachedAnswer(each, held_by.get(each.id), users[each.id]) for each in known.findings]
