"""What a relay knows of one name, as status pages show it (PRX-28)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..model.cached import CachedSet, Finding, Form
from ..watch.entry import Entry
from .audience import Audience
from .findings import Pin, UpstreamAnswer, listen


@dataclass(frozen=True, slots=True)
class Holding:
    """One finding."""

    finding: Finding
    entry: Entry | None  # the subscription that stands for it
    users: int


def holdings(
    known: CachedSet, voices: Iterable[UpstreamAnswer], audiences: Iterable[Audience], pin: Pin
) -> list[Holding]:
    """All findings, with who uses each and where it is from."""
    standing: dict[Form, Entry] = {}
    for voice in voices:
        for form in listen([voice], known, pin).findings:
            standing.setdefault(form, voice.entry)
    users: Counter[Form | None] = Counter()
    for audience in audiences:
        for params in audience:
            finding = known.find(params)
            users[finding.form if finding is not None else None] += audience.count(params)
    return [Holding(each, standing.get(each.form), users[each.form]) for each in known.findings]
