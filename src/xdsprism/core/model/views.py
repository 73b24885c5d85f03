"""Compute what one class of clients sees of a table: a snapshot of everything, or the difference since a revision.

A class is a set of clients whose params agree on every key that some constraint in the table mentions (DESIGN 6.3).
All of them see the same variants, so a table computes each view once per class and shares it between streams:

    Change(name, sets before and after)  --views_of(category)-->  Transition(name, variants before and after)
    [Transition, ...]                    --difference_of-->       Difference, for wildcards that are behind
    [Variant, ...]                       --snapshot_of-->         Snapshot, for wildcards that are new, and for SotW
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .steps import EVERY, Steps, finish, pieces
from .types import Change, Params, Variant

WIDTH = 0xFFFF_FFFF_FFFF_FFFF  # a digest has 64 bits


@dataclass(frozen=True, slots=True)
class Transition:
    """The variants of one name that one class of clients sees, before and after a change."""

    name: str
    before: Variant | None
    after: Variant | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that changed for one class of clients since some revision."""

    transitions: Mapping[str, Transition]
    # All of it as variants to send, if every transition only adds or updates a resource without TTL; else None.
    news: tuple[Variant, ...] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every resource of one type that one class of clients sees, sorted by name."""

    variants: tuple[Variant, ...]
    digest: int
    is_plain: bool = False  # there is at least one resource, and none has a TTL


def digest_of(variants: Iterable[Variant]) -> int:
    """Sum the digests of the variants. SRV-12: a sum does not depend on order, so it can follow single changes."""
    return sum([variant.digest for variant in variants]) & WIDTH


def digesting(variants: Collection[Variant]) -> Steps[int]:
    """Do the same as `digest_of`, in steps."""
    digest = 0
    for piece in pieces(variants, 16 * EVERY):
        digest += digest_of(piece)
        if len(piece) > EVERY:
            yield
    return digest & WIDTH


def alike(one: Variant | None, other: Variant | None) -> bool:
    """Whether a client that has one of these variants need not be sent the other.

    Usually both are the same object, or both None. A resource that was deleted and put back is another object with the
    same version. If its constraint is written in another way it has to be sent, because the constraint is the name by
    which the server will withdraw it (DYN-25). A new TTL has to be sent too, or the client drops the resource when the
    old TTL expires (TTL-2).
    """
    if one is other:
        return True
    if one is None or other is None:
        return False
    return (one.version, one.constraint, one.ttl) == (other.version, other.constraint, other.ttl)


def merge_changes(changes: Iterable[Change]) -> list[Change]:
    """Merge all changes of one name into one, from the first `before` to the last `after`.

    A name that came and went again leaves no change. Otherwise names that are used only once would pile up in the log
    in front of a slow reader.
    """
    merged: dict[str, Change] = {}
    for change in changes:
        first = merged.get(change.name)
        if first is not None:
            change = Change(change.revision, change.type_url, change.name, first.before, change.after)  # noqa: PLW2901
        merged[change.name] = change
    return [change for change in merged.values() if change.before is not change.after]


def snapshot_of(variants: Sequence[Variant]) -> Snapshot:
    """Make a snapshot of these variants, which are sorted by name."""
    return finish(snapshotting_of(variants))


def snapshotting_of(variants: Sequence[Variant]) -> Steps[Snapshot]:
    """Do the same as `snapshot_of`, in steps."""
    digest = yield from digesting(variants)
    is_plain = bool(variants)
    for piece in pieces(variants, 16 * EVERY):
        is_plain = is_plain and all(variant.ttl is None for variant in piece)
        if len(piece) > EVERY:
            yield
    return Snapshot(tuple(variants), digest, is_plain)


def views_of(changes: Iterable[Change], category: Params) -> list[Transition]:
    """Return what this class of clients sees of the changes; leave out changes that it does not see."""
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
    """Make a difference of these transitions."""
    came = [view.after for view in views if view.after is not None and view.after.ttl is None and _stays(view)]
    news = tuple(came) if len(came) == len(views) else None
    return Difference({view.name: view for view in views}, news)


def _stays(view: Transition) -> bool:
    """Whether the change only adds or updates: the name is new, or its variant had no TTL and the same name."""
    return view.before is None or (view.before.ttl is None and view.before.name == view.name)
