"""Whether a change removes so much that it is held back until somebody confirms it (OPS-13).

A directory that is emptied by accident looks like one that is emptied on purpose, so nobody is asked about ordinary
edits and everybody about these: a change after which nothing is left, one that removes at least `AT_LEAST` resources
of a type and more than the limit of what there is, and one that comes of a place that vanished. What is held back is
judged anew, as a whole, with every further edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from .types import TYPES, TypeUrl

AT_LEAST = 10  # resources of a type: fewer are an ordinary edit, whatever part of the whole they are
MAX_REMOVALS = 50.0  # per cent of a type

_LABELS = {spec.url: spec.label for spec in TYPES}


@dataclass(frozen=True, slots=True)
class Loss:
    """What a change takes away of one type."""

    type_url: TypeUrl
    names: tuple[str, ...]
    of: int  # as many are served

    @property
    def label(self) -> str:
        return _LABELS.get(self.type_url) or self.type_url.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{len(self.names)} of {self.of} {self.label}"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A change that waits for a confirmation."""

    id: str  # the same for as long as the same resources would go, whatever else is edited meanwhile
    since: float  # when the oldest change was held back that was not taken since
    losses: tuple[Loss, ...]
    missing: tuple[str, ...]  # places of the configuration that vanished
    reasons: tuple[str, ...]

    @property
    def summary(self) -> str:
        """What would go."""
        return ", ".join(map(str, self.losses)) or "no resources"


class Guard:
    """Holds back what looks like an accident. `limit` is in per cent; at 100 no change is too large."""

    def __init__(self, limit: float = MAX_REMOVALS) -> None:
        self.held: HeldBack | None = None
        self._limit = limit
        self._confirmed = ""

    def confirm(self, change: str) -> None:
        """Let the change of this id through, if it is still that one when it is judged next; no later one is meant."""
        self._confirmed = change

    def suspend(self) -> None:
        """Judge nothing, as what there is can't be read whole; a confirmation that was given is not kept for later."""
        self._confirmed = ""

    def judge(self, losses: Sequence[Loss], left: int, now: float, missing: Sequence[str] = ()) -> HeldBack | None:
        """Tell what is held back, if the change is; `left` is how many resources there would be after it."""
        confirmed, self._confirmed = self._confirmed, ""
        reasons = tuple(self._reasons(losses, left, missing))
        change = _identify(losses, missing)
        if not reasons or change == confirmed:
            self.held = None
        elif self.held is None:
            self.held = HeldBack(change, now, tuple(losses), tuple(missing), reasons)
        elif self.held.id != change or self.held.reasons != reasons:
            self.held = HeldBack(change, self.held.since, tuple(losses), tuple(missing), reasons)
        return self.held

    def _reasons(self, losses: Sequence[Loss], left: int, missing: Sequence[str]) -> list[str]:
        reasons = [f"{place} does not exist any more" for place in missing]
        if self._limit < 100 and losses and not left:
            gone = sum(len(loss.names) for loss in losses)
            reasons.append(f"nothing would be left of {gone} resource{'s' if gone > 1 else ''}")
        else:
            reasons += [
                f"{loss} would be removed, which is more than {self._limit:g}%"
                for loss in losses
                if len(loss.names) >= AT_LEAST and len(loss.names) * 100 > self._limit * loss.of
            ]
        return reasons


def _identify(losses: Sequence[Loss], missing: Sequence[str]) -> str:
    """A name for exactly these removals, the same on every replica."""
    digest = blake2b(digest_size=6)
    for part in (*missing, *(part for loss in losses for part in (loss.type_url, *loss.names))):
        digest.update(part.encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()
