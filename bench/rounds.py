"""What a round of the bench gave, what it ought to have given, and how two are compared. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


class NotDelivered(Exception):
    """Something came that was not due, or did not come that was: then no figure counts."""


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of one server: what it spent on what."""

    cpu: float  # seconds, of all its threads
    wall: float
    units: int  # what is paid for: messages; streams, where one change is not one message
    messages: int

    @property
    def cost(self) -> float:
        """Seconds of the processor for each."""
        return self.cpu / self.units

    @property
    def rate(self) -> float:
        """How many a second."""
        return self.units / self.wall


@dataclass(frozen=True, slots=True)
class Report:
    """What the load generator counted since it connected."""

    streams: int
    messages: int
    resources: int
    removed: int
    backwards: int
    oldest: int  # the version that the stream furthest behind has
    by_class: tuple[int, ...]  # messages
    sizes: tuple[int, ...]  # streams of each class

    @classmethod
    def of(cls, answer: Mapping[str, object]) -> Report:
        plain = {name: tuple(value) if isinstance(value, list) else value for name, value in answer.items()}
        return cls(**plain)  # type: ignore[arg-type] # as it was written


@dataclass(frozen=True, slots=True)
class Due:
    """What must have come between two reports. A burst may be told in fewer messages than it has changes."""

    version: int
    messages: int
    at_most: int
    resources: int  # the least

    @classmethod
    def of(cls, *, streams: int, turns: int, burst: int, each: int, version: int) -> Due:
        """`each`: how many resources there are in a message."""
        least = streams * turns
        return cls(version, least, least * burst, least * each)


def check(before: Report, after: Report, due: Due, class_number: int | None = None) -> int:
    """The number of messages that came, if they are those that were due; `class_number`: to those, and nobody else."""
    came = after.messages - before.messages
    if not due.messages <= came <= due.at_most:
        raise NotDelivered(f"{came} messages came, and due were {_range(due)}")
    if after.resources - before.resources < due.resources:
        raise NotDelivered(f"{after.resources - before.resources} resources came of {due.resources}")
    if after.removed != before.removed:
        raise NotDelivered(f"{after.removed - before.removed} resources were removed, and none was")
    if after.backwards != before.backwards:
        raise NotDelivered(f"{after.backwards - before.backwards} messages had nothing new")
    if class_number is None:
        if after.oldest < due.version:
            raise NotDelivered(f"a stream is left at version {after.oldest}, and {due.version} was due")
    else:
        _check_others(before, after, class_number)
    return came


def _range(due: Due) -> str:
    return f"{due.messages}" if due.messages == due.at_most else f"{due.messages} to {due.at_most}"


def _check_others(before: Report, after: Report, class_number: int) -> None:
    for number, (was, now) in enumerate(zip(before.by_class, after.by_class, strict=True)):
        if number != class_number and now != was:
            raise NotDelivered(f"{now - was} messages came to class {number}, whom nothing concerned")


Rounds = Sequence[Round]


def cost(rounds: Rounds) -> float:
    return median(each.cost for each in rounds)


def rate(rounds: Rounds) -> float:
    return median(each.rate for each in rounds)


def cost_ratio(ours: Rounds, theirs: Rounds) -> float:
    """Paired: what is compared was measured one after the other, and the machine's neighbours come and go."""
    return median(mine.cost / other.cost for mine, other in zip(ours, theirs, strict=True))


def rate_ratio(ours: Rounds, theirs: Rounds) -> float:
    return median(mine.rate / other.rate for mine, other in zip(ours, theirs, strict=True))


def core_share(ours: Rounds, theirs: Rounds) -> float:
    """Which part of a core went into something else than the messages, at the price that the others have for these.

    Unlike a ratio of costs this does not grow where the machine is shared, and a server gets less than a core.
    """
    pairs = zip(ours, theirs, strict=True)
    return median((mine.cpu - mine.units * other.cost) / mine.wall for mine, other in pairs)


def cheapest(of: Mapping[str, Rounds], among: Sequence[str]) -> str:
    return min((name for name in among if name in of), key=lambda name: cost(of[name]))


def fastest(of: Mapping[str, Rounds], among: Sequence[str]) -> str:
    return max((name for name in among if name in of), key=lambda name: rate(of[name]))


def rotated(items: Sequence[str], by: int) -> list[str]:
    """Nobody is always the first one, nor always after the same one's leavings."""
    start = by % len(items)
    return [*items[start:], *items[:start]]
