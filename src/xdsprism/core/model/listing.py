"""List the names behind one wildcard or glob, and tell each reader what changed since it last looked.

Every transaction of the store has a revision. A listing keeps a log of its changes, and a stream with a wildcard keeps
a cursor: the revision up to which it has been told. `Listing.difference(cursor, params)` computes what the stream has
to send, once per class of params and cursor, for all streams together. The log is trimmed to the oldest cursor:

    follow()      start a cursor at the current revision
    difference()  what changed for these params after the cursor
    advance()     move the cursor to the current revision
    unfollow()    drop the cursor; without cursors there is no log

Changes that no wildcard can see (virtual hosts outside of the base set) are not logged: they concern subscriptions by
name only, and no wildcard wakes up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from heapq import merge
from typing import TypeVar

from .constraints import Constraint
from .staged_changes import SpecialCounts, StagedChanges, add_counts
from .steps import EVERY, Steps, pieces
from .types import NO_PARAMS, Change, Params, Reference, Variant
from .variants import VariantSet, pins
from .views import (
    Difference,
    Snapshot,
    Transition,
    difference_of,
    merge_changes,
    snapshot_of,
    snapshotting_of,
    views_of,
)

_K = TypeVar("_K")
_V = TypeVar("_V")

LOG_SLACK = 64  # a log of up to this many entries is not worth merging; each entry keeps an old body in memory
CATEGORIES = 16_384  # params whose class is cached
RUN = 2_048  # names sorted between two yields
ROUNDS = 3  # attempts to read a listing in steps, if it changes between the steps
CACHED_CLASSES = 64  # snapshots and differences cached per table; where sharing matters, classes are few


class Listing:
    """The names behind one wildcard or glob: their variants per class of clients, and the log of changes.

    `names` are kept by the owner of the listing (table.py), which changes them and notes each change here. `special`:
    how many sets of the table are special.
    """

    def __init__(self, names: Mapping[str, VariantSet], special: SpecialCounts) -> None:
        self.names = names
        self.horizon = 0  # the revision of the last change that wildcards can see
        self._special = special
        self._log: list[Change] = []  # by revision; empty without cursors
        self._merge_at = LOG_SLACK  # the length of the log at which `tidy` merges it
        self._cursors: dict[int, int] = {}  # how many readers have been told up to each revision
        self._mentions: Counter[str] = Counter()  # how many names mention each key
        self._keys: frozenset[str] = frozenset()  # keys that the names or the log mention: these make the classes
        # Views by class, cached until the next change that wildcards can see.
        self._snapshots: dict[Params, Snapshot] = {}
        self._differences: dict[tuple[int, Params], Difference] = {}
        self._references: dict[Params, frozenset[Reference]] = {}
        self._categories: dict[Params, Params] = {}  # the class of params, until the keys change
        for known in names.values():
            self._mention(known, 1)
        self._keys = frozenset(self._mentions)

    # -- reading

    def member(self, name: str, params: Params) -> Variant | None:
        """Return the variant of this name that a wildcard with these params sees."""
        known = self.names.get(name)
        return known.member(params) if known is not None else None

    def classify(self, params: Params) -> Params:
        """Cut params down to the keys that the resources here, or the log, mention (DESIGN 6.3)."""
        if self._special.singular:  # then clients that agree on all mentioned keys may still get different answers
            return params
        if not self._keys:
            return NO_PARAMS
        found = self._categories.get(params)
        if found is None:
            found = params.only(self._keys)
            _remember(self._categories, params, found, CATEGORIES)
        return found

    def negative(self, params: Params) -> Constraint:
        """DYN-11: if these params see nothing here, return the constraint of all clients that see nothing either."""
        return pins({key: params.get(key) for key in self._mentions})

    def snapshot(self, params: Params) -> Snapshot:
        """Return everything that these params see. It is computed once per class and revision, for all streams."""
        category = self.classify(params)
        found = self._snapshots.get(category)
        if found is None:
            seen = (known.member(category) for _, known in sorted(self.names.items()))
            found = snapshot_of([variant for variant in seen if variant is not None])
            _remember(self._snapshots, category, found)
        return found

    def snapshotting(self, params: Params) -> Steps[None]:
        """Compute, in steps, the snapshot that `snapshot` will return next.

        If the listing changes between the steps, start again, up to `ROUNDS` times. After that give up: `snapshot` then
        computes it in one go.
        """
        for _ in range(ROUNDS):
            category, horizon = self.classify(params), self.horizon
            if category in self._snapshots:
                return
            # Sort in runs and merge them, since sorting all names at once would take too long for one step.
            runs: list[list[tuple[str, VariantSet]]] = []
            for piece in pieces([*self.names.items()], RUN):
                runs.append(sorted(piece))
                yield
            variants: list[Variant] = []
            for number, (_, known) in enumerate(merge(*runs)):
                if number % EVERY == EVERY - 1:
                    yield
                variant = known.member(category)
                if variant is not None:
                    variants.append(variant)
            if self.horizon == horizon:
                found = yield from snapshotting_of(variants)
                if self.horizon == horizon:
                    _remember(self._snapshots, category, found)
                    return

    def differencing(self, since: int, params: Params) -> Steps[None]:
        """Compute, in steps, the difference that `difference` will return next; give up as `snapshotting` does."""
        for _ in range(ROUNDS):
            key, horizon = (since, self.classify(params)), self.horizon
            if key in self._differences:
                return
            merged = merge_changes(self._log[bisect_right(self._log, since, key=_revision) :])
            views: list[Transition] = []
            for piece in pieces(merged):
                views += views_of(piece, key[1])
                yield
            if self.horizon == horizon:
                _remember(self._differences, key, difference_of(views))
                return

    def references(self, params: Params) -> frozenset[Reference]:
        """Return all resources that the snapshot for these params refers to, computed once per class and revision."""
        category = self.classify(params)
        found = self._references.get(category)
        if found is None:
            variants = self.snapshot(params).variants
            found = frozenset(reference for variant in variants for reference in variant.references)
            _remember(self._references, category, found)
        return found

    def difference(self, since: int, params: Params) -> Difference:
        """Return what these params see change after revision `since`.

        It is computed once per class and cursor, and shared by all streams at that cursor.
        """
        key = since, self.classify(params)
        found = self._differences.get(key)
        if found is None:
            start = bisect_right(self._log, since, key=_revision)
            found = difference_of(views_of(merge_changes(self._log[start:]), key[1]))
            _remember(self._differences, key, found)
        return found

    # -- cursors: one per wildcard on a stream

    @property
    def is_followed(self) -> bool:
        """Whether any stream has a cursor here."""
        return bool(self._cursors)

    def follow(self) -> int:
        """Start to follow the listing at its current revision; return the cursor."""
        cursors, now = self._cursors, self.horizon
        cursors[now] = cursors.get(now, 0) + 1
        return now

    def advance(self, cursor: int) -> int:
        """Move a cursor to the current revision and return the new one."""
        now = self.follow()  # before `unfollow`, which clears the log when the last cursor goes
        self.unfollow(cursor)
        return now

    def unfollow(self, cursor: int) -> None:
        """Drop a cursor. `tidy` trims the log later; without a cursor no log is needed."""
        cursors = self._cursors
        left = cursors[cursor] - 1
        if left:
            cursors[cursor] = left
            return
        del cursors[cursor]
        if not cursors:
            self._log.clear()

    # -- writing

    def note(self, change: Change) -> None:
        """Count a change of one name, and log it if a wildcard can see it. The owner changes `names`."""
        for known, step in ((change.before, -1), (change.after, 1)):
            if known is not None:
                self._mention(known, step)
        # Keys only grow here: the log still holds variants whose keys are gone from the table. `tidy` shrinks them.
        if not self._keys.issuperset(self._mentions):
            self._know(self._keys.union(self._mentions))
        if change.is_listed:
            self.horizon = change.revision
            self._log.append(change)

    def note_all(self, tally: StagedChanges) -> None:
        """Do what `note` does, for all changes of a large transaction."""
        add_counts(self._mentions, tally.mentions)
        if not self._keys.issuperset(self._mentions):
            self._know(self._keys.union(self._mentions))
        if tally.listed:
            self.horizon = tally.listed[0].revision
            self._log += tally.listed

    def _mention(self, known: VariantSet, step: int) -> None:
        """Count the keys that decide what a wildcard sees of this name."""
        for key in known.member_keys:
            self._mentions[key] += step
            if not self._mentions[key]:
                del self._mentions[key]

    def tidy(self, revision: int) -> None:
        """After the last change of a transaction: drop cached views, and log entries that every cursor has passed."""
        if self.horizon == revision:
            self._snapshots.clear()
            self._differences.clear()
            self._references.clear()
        # Every reader is at `floor` or later, so no reader needs a difference from before it.
        floor = min(self._cursors, default=self.horizon)
        if self._log and self._log[0].revision <= floor:
            del self._log[: bisect_right(self._log, floor, key=_revision)]
        if len(self._log) > self._merge_at:
            self._shorten()
        # Without a log, keys that no name mentions any more can't matter: forget them, so that classes are few.
        if not self._log and len(self._keys) != len(self._mentions):
            self._know(frozenset(self._mentions))

    def _know(self, keys: frozenset[str]) -> None:
        """Set the keys that matter. Every class of params may be another one now."""
        self._keys = keys
        self._categories.clear()

    def _shorten(self) -> None:
        """Merge the changes between two cursors, so that a slow reader pins one log entry per name, not each edit."""
        shorter: list[Change] = []
        start = 0
        for cursor in [*sorted(self._cursors)[1:], self.horizon]:
            end = bisect_right(self._log, cursor, key=_revision)
            shorter += sorted(merge_changes(self._log[start:end]), key=_revision)
            start = end
        self._log = shorter
        self._merge_at = 2 * len(shorter) + LOG_SLACK


def _revision(change: Change) -> int:
    return change.revision


def _remember(cache: dict[_K, _V], key: _K, value: _V, limit: int = CACHED_CLASSES) -> None:
    """Put a value into a bounded cache, in place of the oldest one if the cache is full."""
    if len(cache) >= limit:
        cache.pop(next(iter(cache)))
    cache[key] = value
