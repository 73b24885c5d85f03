"""What one class of clients sees of a table: all of it, or what changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .steps import EVERY, Steps, finish, pieces
from .types import Change, Params, Variant

WIDTH = 0xFFFF_FFFF_FFFF_FFFF  # of a digest: 64 bits


@dataclass(frozen=True, slots=True)
class Transition:
    """What one name means to one class of clients, before and after."""

    name: str
    before: Variant | None
    after: Variant | None


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed for one class of clients."""

    transitions: Mapping[str, Transition]
    news: tuple[Variant, ...] | None  # what came, or took the place of itself; None: and there is more to say


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything of one type that one class of clients sees, sorted by name."""

    variants: tuple[Variant, ...]
    digest: int
    is_plain: bool = False  # there is something, and none of it has a time to live


def digest_of(variants: Iterable[Variant]) -> int:
    """SRV-12: a hash that does not depend on order, so that it can follow changes one at a time."""
    return sum([variant.digest for variant in variants]) & WIDTH


def digesting(variants: Collection[Variant]) -> Steps[int]:
    """What `digest_of` does, in steps."""
    digest = 0
    for piece in pieces(variants, 16 * EVERY):
        digest += digest_of(piece)
        if len(piece) > EVERY:
            yield
    return digest & WIDTH


def alike(one: Variant | None, other: Variant | None) -> bool:
    """Whether a client that has the one need not be sent the other.

    Mostly they are the same object or none. What was deleted and put back is another object with the same version; if
    its constraints are written in another way they have to be sent, for they are what it will be withdrawn by (DYN-25).
    And who is not told of a new time to live drops it after the old one (TTL-2).
    """
    if one is other:
        return True
    if one is None or other is None:
        return False
    return (one.version, one.constraint, one.ttl) == (other.version, other.constraint, other.ttl)


def merge_changes(changes: Iterable[Change]) -> list[Change]:
    """Several changes of one name are one: from the first 'before' to the last 'after'.

    What came and went again is none, or names that are used once would pile up before a reader that lags.
    """
    merged: dict[str, Change] = {}
    for change in changes:
        first = merged.get(change.name)
        if first is not None:
            change = Change(change.revision, change.type_url, change.name, first.before, change.after)  # noqa: PLW2901
        merged[change.name] = change
    return [change for change in merged.values() if change.before is not change.after]


def snapshot_of(variants: Sequence[Variant]) -> Snapshot:
    return finish(snapshotting_of(variants))


def snapshotting_of(variants: Sequence[Variant]) -> Steps[Snapshot]:
    """What `snapshot_of` does, in steps."""
    digest = yield from digesting(variants)
    is_plain = bool(variants)
    for piece in pieces(variants, 16 * EVERY):
        is_plain = is_plain and all(variant.ttl is None for variant in piece)
        if len(piece) > EVERY:
            yield
    return Snapshot(tuple(variants), digest, is_plain)


def views_of(changes: Iterable[Change], category: Params) -> list[Transition]:
    """What of these changes this class of clients sees."""
    views = (
        Transition(
            change.name,
            change.before.member(category) if change.before is not None else None,
            change.after.member(category) if change.after is not None else None,
        )
        for change in changes
    )
    return [view for view in views if not alike(view.before, view.after)]


def difference_of(views: list[Transition]) -> Difference:
    came = [view.after for view in views if view.after is not None and view.after.ttl is None and _stays(view)]
    news = tuple(came) if len(came) == len(views) else None
    return Difference({view.name: view for view in views}, news)


def _stays(view: Transition) -> bool:
    """Whether nothing went."""
    return view.before is None or (view.before.ttl is None and view.before.name == view.name)
