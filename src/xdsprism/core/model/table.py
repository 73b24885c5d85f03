"""Hold the resources of one type by name, and tell each wildcard what changed since it last looked.

Every transaction of the store has a revision. A table keeps a log of its changes, and a stream with a wildcard keeps a
cursor: the revision up to which it has been told. `Listing.difference(cursor, params)` computes what the stream has to
send, once per class of params and cursor, for all streams together. The log is trimmed to the oldest cursor:

    follow()      start a cursor at the current revision
    difference()  what changed for these params after the cursor
    advance()     move the cursor to the current revision
    unfollow()    drop the cursor; without cursors there is no log

Changes that no wildcard can see (virtual hosts outside of the base set) are not logged: they concern subscriptions by
name only, and no wildcard wakes up.

A glob collection (TP1) is the same for the xdstp names under one path: `Glob` has members, a log and cursors of its own
and exists while some stream follows it. `Table` is the listing of all names of a type, plus lookup by name and alias.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from typing import TypeVar

from .constraints import Constraint
from .events import WILDCARD, Send
from .staged_changes import StagedChanges, add_counts
from .steps import EVERY, Steps, pieces
from .types import NO_PARAMS, Change, Params, Reference, ResourceProblem, TypeSpec, Variant
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
from .xdstp import collection_of

_K = TypeVar("_K")
_V = TypeVar("_V")

LOG_SLACK = 64  # a log of up to this many entries is not worth merging; each entry keeps an old body in memory
CATEGORIES = 16_384  # params whose class is cached
RUN = 2_048  # names sorted between two yields
ROUNDS = 3  # attempts to read a listing in steps, if it changes between the steps
CACHED_CLASSES = 64  # snapshots and differences cached per table; where sharing matters, classes are few


class Listing(ABC):
    """The names behind one wildcard or glob: their variants per class of clients, and the log of changes."""

    def __init__(self) -> None:
        self.horizon = 0  # the revision of the last change that wildcards can see
        self._log: list[Change] = []  # by revision; empty if nobody follows
        self._merge_at = LOG_SLACK  # the length of the log at which `tidy` merges it
        self._cursors: Counter[int] = Counter()  # how many readers have been told up to each revision
        self._mentions: Counter[str] = Counter()  # how many names mention each key
        self._keys: frozenset[str] = frozenset()  # keys that the names or the log mention: these make the classes
        # Views by class, cached until the next change that wildcards can see.
        self._snapshots: dict[Params, Snapshot] = {}
        self._differences: dict[tuple[int, Params], Difference] = {}
        self._references: dict[Params, frozenset[Reference]] = {}
        self._categories: dict[Params, Params] = {}  # the class of params, until the keys change

    @abstractmethod
    def named(self, name: str) -> VariantSet | None:
        """Return the variants of a name, without aliases."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many names there are."""

    @abstractmethod
    def _listed(self) -> Iterable[tuple[str, VariantSet]]:
        """Return every name that a wildcard may see."""

    # -- reading

    def member(self, name: str, params: Params) -> Variant | None:
        """Return the variant of this name that a wildcard with these params sees."""
        known = self.named(name)
        return known.member(params) if known is not None else None

    @property
    def is_singular(self) -> bool:
        """Whether some answers hold for exact params only, and not for other params of the same class."""
        return False

    def classify(self, params: Params) -> Params:
        """Cut params down to the keys that the resources here, or the log, mention (DESIGN 6.3)."""
        if self.is_singular:  # then clients that agree on all mentioned keys may still get different answers
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
            seen = (known.member(category) for _, known in sorted(self._listed()))
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
            for piece in pieces([*self._listed()], RUN):
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

    def follow(self) -> int:
        """Start to follow the listing at its current revision; return the cursor."""
        self._cursors[self.horizon] += 1
        return self.horizon

    def advance(self, cursor: int) -> int:
        """Move a cursor to the current revision and return the new one."""
        now = self.follow()  # before `unfollow`, which clears the log when the last cursor goes
        self.unfollow(cursor)
        return now

    def unfollow(self, cursor: int) -> None:
        """Drop a cursor. `tidy` trims the log later; without any cursor nobody needs a log."""
        self._cursors[cursor] -= 1
        if not self._cursors[cursor]:
            del self._cursors[cursor]
        if not self._cursors:
            self._log.clear()

    # -- writing

    def note(self, change: Change) -> None:
        """Count a change of one name, and log it if a wildcard can see it."""
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
        # Every reader is at `floor` or later, so nobody asks for a difference from before it.
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


class Glob(Listing):
    """A glob collection that some stream follows: the names one step below a path, with one context (XTP-3, XTP-4)."""

    def __init__(self, table: Table, members: Mapping[str, VariantSet]) -> None:
        super().__init__()
        self._table = table
        self._members = dict(members)
        for known in self._members.values():
            self._mention(known, 1)
        self._keys = frozenset(self._mentions)

    def __len__(self) -> int:
        return len(self._members)

    def __bool__(self) -> bool:
        """An empty collection is still a collection: `__len__` must not make it false."""
        return True

    @property
    def is_followed(self) -> bool:
        """Whether any stream has a cursor here."""
        return bool(self._cursors)

    def named(self, name: str) -> VariantSet | None:
        return self._members.get(name)

    def _listed(self) -> Iterable[tuple[str, VariantSet]]:
        return self._members.items()

    @property
    def is_singular(self) -> bool:
        return self._table.is_singular

    def note(self, change: Change) -> None:
        """Log the change, and update the members."""
        super().note(change)
        if change.after is not None:
            self._members[change.name] = change.after
        else:
            self._members.pop(change.name, None)


class Table(Listing):
    """The resources of one type.

    Subclasses change where answers come from: HostTable (hosts.py) finds virtual hosts by domain, CacheTable
    (cached.py) holds what a relay heard from its servers so far. The methods from `knows` to `trouble` exist for the
    cache: in an authoritative table everything is known, and a name that is not there does not exist.
    """

    authoritative = True  # a name that is not here does not exist

    def __init__(self, spec: TypeSpec) -> None:
        super().__init__()
        self.spec = spec
        self.revision = 0  # of the last change in this table
        self.sessions = 0  # number of sessions that read it
        self.variants = 0  # number of variants of all names
        self.referring: Counter[Reference] = Counter()  # how many variants here refer to each resource
        # Whether a resource here refers, or once referred, to another of the same type, as aggregate clusters do.
        self.is_nested = False
        self._sets: dict[str, VariantSet] = {}
        self._aliases: dict[str, str] = {}  # the name of the resource that has each alias
        self._paths: dict[str, dict[str, None]] = {}  # xdstp names by their glob collections
        self._globs: dict[str, Glob] = {}  # the glob collections that streams follow
        self._changed: dict[Glob, None] = {}  # glob collections that the current transaction changes
        self.shared: dict[object, Send] = {}  # responses of this revision that many sessions send
        self.tally: type[StagedChanges] = StagedChanges  # the class of the argument to `commit_all`

    # -- reading

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[tuple[str, VariantSet]]:
        return iter(self._sets.items())

    def named(self, name: str) -> VariantSet | None:
        return self._sets.get(name)

    def _listed(self) -> Iterable[tuple[str, VariantSet]]:
        return self._sets.items()

    def get(self, name: str) -> VariantSet | None:
        """Return the variants of a name or an alias (DLT-20). A name wins over another resource's alias."""
        return self._sets.get(name) or self._sets.get(self._aliases.get(name, ""))

    def select(self, name: str, params: Params) -> Variant | None:
        """Return the variant of this name, or alias, for these params."""
        known = self.get(name)
        return known.select(params) if known is not None else None

    def proven(self, name: str, params: Params) -> Variant | None:
        """Return the same variant as `select`, with a constraint by which a cache may hand it on (TP2, Caching).

        Every client that the constraint matches gets this variant.
        """
        known = self.get(name)
        return known.proven(params) if known is not None else None

    def knows(self, name: str, params: Params, *, sure: bool = False) -> bool:
        """Whether the answer for these params is known, be it that there is none.

        sure: an answer that only an earlier run of the process has heard does not count.
        """
        if self.authoritative:
            return True
        known = self.get(name)
        return known is not None and known.knows(params, sure=sure)

    def lists(self, params: Params, name: str = WILDCARD, *, sure: bool = False) -> bool:  # noqa: ARG002
        """Whether all names are known that these params see under this wildcard or glob."""
        return True

    def serves(self, name: str, params: Params, since: int) -> bool:  # noqa: ARG002
        """Whether the known answer may go to a client that subscribed at revision `since` (PRX-17)."""
        return True

    def is_late(self, name: str, params: Params, *, claims: bool) -> bool:  # noqa: ARG002
        """Whether the answer takes too long to wait for it.

        A client that has nothing yet waits for a moment only; one that `claims` to have the resource waits longer.
        """
        return False

    def trouble(self, name: str, params: Params) -> ResourceProblem | None:
        """Return why these params can't get a resource that comes from an upstream server or a provider (TP3)."""
        known = self.get(name) if not self.authoritative else None
        return known.trouble(params) if known is not None else None

    def given(self, name: str) -> VariantSet | None:
        """Return the variants under this name or alias, unless a provider made them."""
        found = (self._sets.get(string) for string in (name, self._aliases.get(name, "")))
        return next((known for known in found if known is not None and not known.made), None)

    def question(self, name: str) -> str:
        """Return the name that a provider is asked for on behalf of a subscription to `name`."""
        return name

    def owner(self, alias: str) -> str | None:
        """Return the name of the resource that has this alias."""
        return self._aliases.get(alias)

    def configs(self) -> Iterable[str]:
        """Return the names of the route configurations that the virtual hosts belong to; empty for other types."""
        return ()

    def listing(self, name: str) -> Listing:
        """Return the listing for a wildcard: this table, or a glob collection. The caller must follow it at once."""
        if name == WILDCARD:
            return self
        if name not in self._globs:
            self._globs[name] = Glob(self, {each: self._sets[each] for each in self._paths.get(name, ())})
        return self._globs[name]

    def retire(self, name: str) -> None:
        """Drop a glob collection if the wildcard that just ended was its last follower."""
        if name in self._globs and not self._globs[name].is_followed:
            del self._globs[name]

    # -- writing: only the store calls these, `commit` per change or `commit_all`, and then `settle`

    def commit(self, change: Change) -> None:
        """Take one change of a small transaction."""
        self.revision = change.revision
        self._recount(change)
        if change.after is None:
            del self._sets[change.name]
        else:
            self._sets[change.name] = change.after
        self.note(change)
        path = collection_of(change.name) if not self.spec.on_demand else None
        if path is not None:
            self._note_path(path, change)

    def commit_all(self, tally: StagedChanges) -> None:
        """Take all changes of a large transaction, whose sums were computed beforehand (staged_changes.py)."""
        self.revision = tally.changes[0].revision
        for name in tally.gone:
            del self._sets[name]
        self._sets.update(tally.sets)
        self.variants += tally.variants
        self.is_nested = self.is_nested or any(url == self.spec.url for url, *_ in tally.references)
        add_counts(self.referring, tally.references)
        # First all aliases that go, then all that come: an alias may move from one resource to another.
        for step in (-1, 1):
            for change in tally.aliased:
                known = change.before if step < 0 else change.after
                if known is not None:
                    self._count_aliases(change.name, known, step)
        self.note_all(tally)
        for path, change in tally.placed:
            self._note_path(path, change)

    def _note_path(self, path: str, change: Change) -> None:
        """Add or remove an xdstp name in its glob collection, and log the change there if a stream follows it."""
        if change.after is not None:
            self._paths.setdefault(path, {})[change.name] = None
        else:
            self._paths[path].pop(change.name)
            if not self._paths[path]:
                del self._paths[path]
        glob = self._globs.get(path)
        if glob is not None:
            glob.note(change)
            self._changed[glob] = None

    def _recount(self, change: Change) -> None:
        """Update the counters and indexes for one change."""
        for known, step in ((change.before, -1), (change.after, 1)):
            if known is not None:
                self._count(change.name, known, step)

    def _count(self, name: str, known: VariantSet, step: int) -> None:
        """Count one set of variants as new (step 1) or gone (step -1)."""
        self.variants += step * len(known.variants)
        for variant in known.variants:
            if variant.references:
                self._count_references(variant, step)
        self._count_aliases(name, known, step)

    def _count_aliases(self, name: str, known: VariantSet, step: int) -> None:
        """Note or drop the aliases of a name; an alias that another resource has taken over stays with that one."""
        for alias in known.aliases:
            if step > 0:
                self._aliases[alias] = name
            elif self._aliases.get(alias) == name:
                del self._aliases[alias]

    def _count_references(self, variant: Variant, step: int) -> None:
        """Count the resources that a variant refers to."""
        for reference in variant.references:
            self.referring[reference] += step
            if not self.referring[reference]:
                del self.referring[reference]
            self.is_nested = self.is_nested or reference[0] == self.spec.url

    def settle(self) -> None:
        """After the last commit of a transaction: drop shared responses and cached views, here and in changed globs."""
        self.shared.clear()
        self.tidy(self.revision)
        changed, self._changed = self._changed, {}
        for glob in changed:
            glob.tidy(self.revision)


def _revision(change: Change) -> int:
    return change.revision


def _remember(cache: dict[_K, _V], key: _K, value: _V, limit: int = CACHED_CLASSES) -> None:
    """Put a value into a bounded cache, in place of the oldest one if the cache is full."""
    if len(cache) >= limit:
        cache.pop(next(iter(cache)))
    cache[key] = value
