"""Decide whether a change removes so much that it waits until an operator confirms it (OPS-13).

A directory that is emptied by accident looks like one that is emptied on purpose. So ordinary edits go through without
a question, and a change is held back if

- nothing would be left,
- it removes at least `AT_LEAST` resources of a type and more than the limit, in per cent of that type, or
- a place of the configuration (a file or directory) vanished.

While a change is held back, every further edit is judged together with it, as one change against what is served. An
operator confirms a change by its id, which names exactly the resources that would go: if an edit adds to them, the id
is another one and the confirmation does not apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from .types import TYPES, TypeUrl

AT_LEAST = 10  # resources of a type: to remove fewer is an ordinary edit, whatever their share
MAX_REMOVALS = 50.0  # per cent of the resources of a type

_LABELS = {spec.url: spec.label for spec in TYPES}


@dataclass(frozen=True, slots=True)
class Loss:
    """The resources of one type that a change removes."""

    type_url: TypeUrl
    names: tuple[str, ...]
    of: int  # how many resources of the type are served now

    @property
    def label(self) -> str:
        """Return the short name of the type."""
        return _LABELS.get(self.type_url) or self.type_url.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{len(self.names)} of {self.of} {self.label}"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A change that waits for a confirmation."""

    id: str  # depends on the resources that would go, and not on other edits meanwhile
    since: float  # when the guard began to hold changes back; since then it took none
    losses: tuple[Loss, ...]
    missing: tuple[str, ...]  # places of the configuration that vanished
    reasons: tuple[str, ...]  # for people: why the guard holds the change back

    @property
    def summary(self) -> str:
        """Return in words how many resources of which types would go."""
        return ", ".join(map(str, self.losses)) or "no resources"


class Guard:
    """Hold back changes that look like an accident. `limit` is in per cent; at 100 no change is too large."""

    def __init__(self, limit: float = MAX_REMOVALS) -> None:
        self.held: HeldBack | None = None  # the change that waits now
        self._limit = limit
        self._confirmed = ""  # the id of the change that an operator confirmed, until the next `judge`

    def confirm(self, change: str) -> None:
        """Let the change of this id through when it is judged next; if it is another change by then, it still waits."""
        self._confirmed = change

    def suspend(self) -> None:
        """Forget a confirmation, because the configuration can't be read whole and there is no change to judge."""
        self._confirmed = ""

    def judge(self, losses: Sequence[Loss], left: int, now: float, missing: Sequence[str] = ()) -> HeldBack | None:
        """Return the change as held back, or None if it may go; `left`: how many resources there would be after it."""
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
        """Return every reason to hold the change back. That nothing is left says it all, and replaces the shares."""
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
    """Return an id for exactly these removals, the same on every replica."""
    digest = blake2b(digest_size=6)
    for part in (*missing, *(part for loss in losses for part in (loss.type_url, *loss.names))):
        digest.update(part.encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()
