"""Remember the last revisions of a store: who made each, and what it changed, by resource and variant.

A revision costs as much as it changed, and no more than a bound: of a transaction with 100,000 resources the first ones
are listed, and the others are counted. What is kept of a former variant is its contents, which the store no longer has.
All that is kept has a limit in bytes, beyond which the details of the oldest revisions go first. So a page can say what
a revision changed, or that it is no longer known.

Contents of secrets are not kept: they would stay in memory long after they were replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple

from .constraints import Constraint, canonical, matches, unpadded
from .steps import EVERY, Steps
from .store import Applied
from .types import SECRET, Change, Origin, Params, TypeUrl, Variant
from .variants import VariantSet

REVISIONS: Final = 1_000  # that are remembered
KEPT: Final = 64 * 1024 * 1024  # bytes of what is remembered of all revisions
KEPT_OF_ONE: Final = 8 * 1024 * 1024  # bytes of the contents that one revision replaced
LISTED: Final = 1_000  # variants of one revision; the resources beyond that are counted
EXAMINED: Final = 10_000  # variants that are compared for one revision
OVERHEAD: Final = 400  # bytes that a listed variant takes, beside its contents

Kind = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class VariantChange:
    """What a revision did to one variant."""

    change: Kind
    constraint: Constraint  # as its author wrote it
    old: str  # the version before; empty if it was added
    new: str  # the version after; empty if it was removed
    origin: Origin | None  # where it is written; of a removed one, where it was
    body: bytes | None  # the contents before; None: there were none, or they are not kept


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """What a revision did to one resource."""

    type_url: TypeUrl
    name: str
    change: Kind
    variants: tuple[VariantChange, ...]
    more: int = 0  # about as many variants are not listed


@dataclass(slots=True)
class Revision:
    """One revision of the store."""

    number: int
    time: float  # seconds since the epoch
    by: str  # who made it
    total: int  # resources that changed
    changes: tuple[ResourceChange, ...]  # the first of them
    is_forgotten: bool = False  # what it changed is no longer known, for lack of room
    size: int = 0  # bytes that `changes` takes, about

    @property
    def more(self) -> int:
        """Return how many of the resources are not listed."""
        return self.total - len(self.changes)


class History:
    """The last revisions of one store, oldest first."""

    def __init__(self, revisions: int = REVISIONS, kept: int = KEPT, listed: int = LISTED) -> None:
        self._revisions: deque[Revision] = deque()
        self._most = revisions
        self._kept = kept
        self._listed = listed
        self._unforgotten = 0  # the index of the first revision that still has its details
        self.size = 0  # bytes that are kept

    def __len__(self) -> int:
        return len(self._revisions)

    @property
    def oldest(self) -> int | None:
        """Return the number of the oldest revision; None: there was none yet."""
        return self._revisions[0].number if self._revisions else None

    @property
    def newest(self) -> int | None:
        """Return the number of the newest revision; None: there was none yet."""
        return self._revisions[-1].number if self._revisions else None

    def record(self, applied: Applied, now: float) -> Revision:
        """Remember a transaction that changed something. `now`: in seconds since the epoch."""
        changes, unchanged, size = self._describe(applied.changes)
        total = len(applied.changes) - unchanged
        found = Revision(applied.revision, now, applied.by, total, tuple(changes), size=size)
        self._revisions.append(found)
        self.size += size
        if len(self._revisions) > self._most:
            self.size -= self._revisions.popleft().size
            self._unforgotten = max(0, self._unforgotten - 1)
        while self.size > self._kept and self._unforgotten < len(self._revisions):
            self._forget(self._revisions[self._unforgotten])
            self._unforgotten += 1
        return found

    def _forget(self, revision: Revision) -> None:
        """Drop what a revision changed."""
        revision.is_forgotten = revision.total > 0
        revision.changes = ()
        self.size -= revision.size
        revision.size = 0

    def _describe(self, changes: tuple[Change, ...]) -> tuple[list[ResourceChange], int, int]:
        """Describe the first changes; return them, how many names have the same variants, and how many bytes it takes.

        The set of a cache also changes with what it knows of absences, while its variants stay.
        """
        found: list[ResourceChange] = []
        left, examined, unchanged, size, contents = self._listed, EXAMINED, 0, 0, KEPT_OF_ONE
        for change in changes:
            if left <= 0 or examined <= 0:
                break
            before, after = _variants(change.before), _variants(change.after)
            examined -= 1
            moved = change.after.difference(change.before) if change.after is not None else None
            more = 0
            if moved is not None:  # a cache knows, without a look at all of its variants
                went, came = moved.went, moved.came
                examined -= len(went) + len(came)
            elif len(before) + len(after) > max(examined, 2):
                went, came, more = (), (), max(len(before), len(after))
            else:
                went, came = _compared(before, after)
                examined -= len(before) + len(after)
            if not went and not came and not more:
                unchanged += 1
                continue
            kind: Kind = "removed" if not after else "changed" if before else "added"
            variants = _paired(went, came)
            more += max(0, len(variants) - left)
            listed = [_shortened(each, contents) for each in variants[:left]]
            left -= max(1, len(listed))
            kept = sum(len(each.body) for each in listed if each.body is not None)
            contents -= kept
            size += kept + OVERHEAD * (len(listed) + 1) + len(change.name)
            found.append(ResourceChange(change.type_url, change.name, kind, tuple(listed), more))
        return found, unchanged, size

    def newest_first(self) -> Iterator[Revision]:
        """Yield all revisions, the newest first."""
        return reversed(self._revisions)

    def find(self, number: int) -> Revision | None:
        """Return a revision by its number, if it is remembered."""
        if not self._revisions:
            return None
        index = number - self._revisions[0].number
        return self._revisions[index] if 0 <= index < len(self._revisions) else None

    def since(self, number: int) -> list[Revision] | None:
        """Return the revisions after this one, oldest first; None: not all of them are remembered.

        A number that no revision had yet is of an earlier run of the process, so nothing is known of what came after.
        """
        newest, oldest = self.newest or 0, self.oldest or 1
        if number > newest or number + 1 < oldest:
            return None
        return [*islice(self._revisions, number + 1 - oldest, None)] if number < newest else []


class Wanted(NamedTuple):
    """A variant whose predecessor is looked for."""

    type_url: TypeUrl
    name: str
    version: str


class Former(NamedTuple):
    """What a client had before it was to get another variant."""

    revision: int  # at which the other came
    version: str
    constraint: Constraint
    body: bytes | None  # None: it is not kept


def finding_formers(history: History, wanted: Mapping[Wanted, Params]) -> Steps[dict[Wanted, Former]]:
    """Return what each of these variants took the place of, for a client with these params, in steps.

    One is left out if its revision is no longer remembered, or if nothing was there before it.
    """
    found: dict[Wanted, Former] = {}
    missing, looked_at = {(each.type_url, each.name) for each in wanted}, 0
    for revision in [*history.newest_first()]:
        if not missing:
            break
        for change in revision.changes:
            looked_at += 1 + len(change.variants)
            if (change.type_url, change.name) in missing:
                for each in change.variants:
                    key = Wanted(change.type_url, change.name, each.new)
                    former = _former(change, each, wanted[key]) if key in wanted and key not in found else None
                    if former is not None:
                        found[key] = Former(revision.number, former.old, former.constraint, former.body)
            if looked_at >= EVERY:
                looked_at = 0
                yield
        missing = {(each.type_url, each.name) for each in wanted if each not in found}
    return found


def _former(change: ResourceChange, came: VariantChange, params: Params) -> VariantChange | None:
    """Return the variant that a client with these params had before this one came."""
    if came.old:
        return came
    return next((each for each in change.variants if each.old and matches(each.constraint, params)), None)


def _variants(known: VariantSet | None) -> tuple[Variant, ...]:
    return known.variants if known is not None else ()


def _compared(
    before: tuple[Variant, ...], after: tuple[Variant, ...]
) -> tuple[tuple[Variant, ...], tuple[Variant, ...]]:
    """Return the variants that went, and those that came; the store keeps the objects of those that stay."""
    old, new = {id(each) for each in before}, {id(each) for each in after}
    went = tuple([each for each in before if id(each) not in new])
    came = tuple([each for each in after if id(each) not in old])
    return went, came


def _paired(went: tuple[Variant, ...], came: tuple[Variant, ...]) -> list[VariantChange]:
    """Join variants that have the same constraint: such a variant changed. The others were added or removed."""
    if len(went) == len(came) == 1 and went[0].stated == came[0].stated:  # nearly always
        (was,), (new,) = went, came
        return [VariantChange("changed", new.shown, was.version, new.version, new.origin, _body(was))]
    former = {_identity(each): each for each in went}
    found: list[VariantChange] = []
    for each in came:
        old = former.pop(_identity(each), None) if former else None
        if old is None:
            found.append(VariantChange("added", each.shown, "", each.version, each.origin, None))
        else:
            found.append(VariantChange("changed", each.shown, old.version, each.version, each.origin, _body(old)))
    found += [VariantChange("removed", old.shown, old.version, "", old.origin, _body(old)) for old in former.values()]
    return found


def _identity(variant: Variant) -> Constraint:
    """Return the constraint without the padding, which depends on the other variants of the name (DYN-34)."""
    return unpadded(canonical(variant.stated))


def _body(variant: Variant) -> bytes | None:
    """OPS-14: a secret that was replaced is gone."""
    return variant.body if variant.type_url != SECRET else None


def _shortened(change: VariantChange, room: int) -> VariantChange:
    """Leave out the contents if there is no room for them."""
    if change.body is None or len(change.body) <= room:
        return change
    return VariantChange(change.change, change.constraint, change.old, change.new, change.origin, None)
