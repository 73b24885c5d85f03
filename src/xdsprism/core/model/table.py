"""The table of one resource type: its variants by name, and a log for those who follow all of them, or a part.

Whoever follows a whole table (a wildcard) keeps one number, the revision up to which it has been told, and asks for the
difference. What no wildcard can see leaves no trace there: who asked for it by name is told, and nobody else is woken.
A glob collection is the same for the xdstp names that are under one path (TP1), with a log of its own.
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

LOG_SLACK = 64  # entries that a log may have before merging is worth the work; each keeps an old body alive
CATEGORIES = 16_384  # params whose class is remembered
RUN = 2_048  # names that are sorted at once
ROUNDS = 3  # looks at a listing that changes while it is looked at
CACHED_CLASSES = 64  # snapshots and differences kept per table; classes are few where sharing matters


class Listing(ABC):
    """What a wildcard is about: some names, what each class of clients sees of them, and what changed."""

    def __init__(self) -> None:
        self.horizon = 0  # the revision of the last change that wildcards can see
        self._log: list[Change] = []
        self._merge_at = LOG_SLACK
        self._cursors: Counter[int] = Counter()
        self._mentions: Counter[str] = Counter()
        self._keys: frozenset[str] = frozenset()
        self._snapshots: dict[Params, Snapshot] = {}
        self._differences: dict[tuple[int, Params], Difference] = {}
        self._references: dict[Params, frozenset[Reference]] = {}
        self._categories: dict[Params, Params] = {}

    @abstractmethod
    def named(self, name: str) -> VariantSet | None:
        """By name only."""

    @abstractmethod
    def __len__(self) -> int:
        """How many names there are."""

    @abstractmethod
    def _listed(self) -> Iterable[tuple[str, VariantSet]]:
        """Everything that a wildcard may see."""

    # -- reading

    def member(self, name: str, params: Params) -> Variant | None:
        """What a wildcard with these params sees of this name."""
        known = self.named(name)
        return known.member(params) if known is not None else None

    @property
    def is_singular(self) -> bool:
        """Whether something is for certain params only, though others agree with them on all keys that matter."""
        return False

    def classify(self, params: Params) -> Params:
        """Cut params down to the keys that anything in this table, or in its log, mentions (DESIGN 6.3)."""
        if self.is_singular:
            return params
        if not self._keys:
            return NO_PARAMS
        found = self._categories.get(params)
        if found is None:
            found = params.only(self._keys)
            _remember(self._categories, params, found, CATEGORIES)
        return found

    def negative(self, params: Params) -> Constraint:
        """DYN-11: for whom there is nothing at all here, if there is nothing for these params."""
        return pins({key: params.get(key) for key in self._mentions})

    def snapshot(self, params: Params) -> Snapshot:
        """All that these params see; made once per class and revision, however many streams ask."""
        category = self.classify(params)
        found = self._snapshots.get(category)
        if found is None:
            seen = (known.member(category) for _, known in sorted(self._listed()))
            found = snapshot_of([variant for variant in seen if variant is not None])
            _remember(self._snapshots, category, found)
        return found

    def snapshotting(self, params: Params) -> Steps[None]:
        """Find what `snapshot` is asked for next, in steps; nothing, where the listing changes again and again."""
        for _ in range(ROUNDS):
            category, horizon = self.classify(params), self.horizon
            if category in self._snapshots:
                return
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
        """The same for `difference`."""
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
        """What all of that refers to; made once per class and revision."""
        category = self.classify(params)
        found = self._references.get(category)
        if found is None:
            variants = self.snapshot(params).variants
            found = frozenset(reference for variant in variants for reference in variant.references)
            _remember(self._references, category, found)
        return found

    def difference(self, since: int, params: Params) -> Difference:
        """What these params see change after revision `since`; made once per class, shared by all that are as far."""
        key = since, self.classify(params)
        found = self._differences.get(key)
        if found is None:
            start = bisect_right(self._log, since, key=_revision)
            found = difference_of(views_of(merge_changes(self._log[start:]), key[1]))
            _remember(self._differences, key, found)
        return found

    # -- cursors

    def follow(self) -> int:
        """Start to follow the table from here; returns the cursor."""
        self._cursors[self.horizon] += 1
        return self.horizon

    def advance(self, cursor: int) -> int:
        now = self.follow()  # first, so that the log does not take the last reader for gone
        self.unfollow(cursor)
        return now

    def unfollow(self, cursor: int) -> None:
        self._cursors[cursor] -= 1
        if not self._cursors[cursor]:
            del self._cursors[cursor]
        if not self._cursors:
            self._log.clear()

    # -- writing

    def note(self, change: Change) -> None:
        """Something that may be listed here changed."""
        for known, step in ((change.before, -1), (change.after, 1)):
            if known is not None:
                self._mention(known, step)
        if not self._keys.issuperset(self._mentions):
            self._know(self._keys.union(self._mentions))
        if change.is_listed:
            self.horizon = change.revision
            self._log.append(change)

    def note_all(self, tally: StagedChanges) -> None:
        """What `note` does, for all changes of a transaction."""
        add_counts(self._mentions, tally.mentions)
        if not self._keys.issuperset(self._mentions):
            self._know(self._keys.union(self._mentions))
        if tally.listed:
            self.horizon = tally.listed[0].revision
            self._log += tally.listed

    def _mention(self, known: VariantSet, step: int) -> None:
        for key in known.member_keys:
            self._mentions[key] += step
            if not self._mentions[key]:
                del self._mentions[key]

    def tidy(self, revision: int) -> None:
        """After the last change of a transaction: drop what nobody needs, and what was derived from it."""
        if self.horizon == revision:
            self._snapshots.clear()
            self._differences.clear()
            self._references.clear()
        floor = min(self._cursors, default=self.horizon)
        if self._log and self._log[0].revision <= floor:
            del self._log[: bisect_right(self._log, floor, key=_revision)]
        if len(self._log) > self._merge_at:
            self._shorten()
        if not self._log and len(self._keys) != len(self._mentions):
            self._know(frozenset(self._mentions))

    def _know(self, keys: frozenset[str]) -> None:
        self._keys = keys
        self._categories.clear()

    def _shorten(self) -> None:
        """Merge what lies between two cursors, so that a reader that lags pins one entry per name, not each edit."""
        shorter: list[Change] = []
        start = 0
        for cursor in [*sorted(self._cursors)[1:], self.horizon]:
            end = bisect_right(self._log, cursor, key=_revision)
            shorter += sorted(merge_changes(self._log[start:end]), key=_revision)
            start = end
        self._log = shorter
        self._merge_at = 2 * len(shorter) + LOG_SLACK


class Glob(Listing):
    """A glob collection that somebody follows: what is one step below a path, with one context (XTP-3, XTP-4)."""

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
        return True

    @property
    def is_followed(self) -> bool:
        return bool(self._cursors)

    def named(self, name: str) -> VariantSet | None:
        return self._members.get(name)

    def _listed(self) -> Iterable[tuple[str, VariantSet]]:
        return self._members.items()

    @property
    def is_singular(self) -> bool:
        return self._table.is_singular

    def note(self, change: Change) -> None:
        super().note(change)
        if change.after is not None:
            self._members[change.name] = change.after
        else:
            self._members.pop(change.name, None)


class Table(Listing):
    """The resources of one type."""

    authoritative = True  # what is not here does not exist

    def __init__(self, spec: TypeSpec) -> None:
        super().__init__()
        self.spec = spec
        self.revision = 0  # of the last change in this table
        self.sessions = 0  # that read it
        self.variants = 0  # of all names
        self.referring: Counter[Reference] = Counter()  # how many variants here refer to something
        self.is_nested = False  # something here referred to something of the same type, now or once: aggregates do
        self._sets: dict[str, VariantSet] = {}
        self._aliases: dict[str, str] = {}
        self._paths: dict[str, dict[str, None]] = {}  # xdstp names by their glob collections
        self._globs: dict[str, Glob] = {}  # those that are followed
        self._changed: dict[Glob, None] = {}  # of these, in the transaction that is being taken in
        self.named = self._sets.get  # type: ignore[method-assign, assignment] # it is asked with every message
        self.shared: dict[object, Send] = {}  # responses of this revision that many sessions send
        self.tally: type[StagedChanges] = StagedChanges  # what `commit_all` takes

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
        """By name, or by alias (DLT-20). A name wins over another resource's alias."""
        return self._sets.get(name) or self._sets.get(self._aliases.get(name, ""))

    def select(self, name: str, params: Params) -> Variant | None:
        known = self.get(name)
        return known.select(params) if known is not None else None

    def proven(self, name: str, params: Params) -> Variant | None:
        """The same, for whoever will hand it on to others whom its constraints match (TP2, Caching)."""
        known = self.get(name)
        return known.proven(params) if known is not None else None

    def knows(self, name: str, params: Params, *, sure: bool = False) -> bool:
        """Whether it is known what these params get, be it nothing; `sure`: and not only from an earlier run."""
        if self.authoritative:
            return True
        known = self.get(name)
        return known is not None and known.knows(params, sure=sure)

    def lists(self, params: Params, name: str = WILDCARD, *, sure: bool = False) -> bool:  # noqa: ARG002
        """Whether everything is known that these params see under this wildcard."""
        return True

    def serves(self, name: str, params: Params, since: int) -> bool:  # noqa: ARG002
        """Whether what there is, is for somebody who came at revision `since` (PRX-17)."""
        return True

    def is_late(self, name: str, params: Params, *, claims: bool) -> bool:  # noqa: ARG002
        """Whether it takes too long to get to know it, for one who has nothing yet, or who `claims` to have it."""
        return False

    def trouble(self, name: str, params: Params) -> ResourceProblem | None:
        """What is wrong with getting what these params should have, where it comes from somewhere else (TP3)."""
        known = self.get(name) if not self.authoritative else None
        return known.trouble(params) if known is not None else None

    def given(self, name: str) -> VariantSet | None:
        """What there is under this name, or this alias, that no provider made."""
        found = (self._sets.get(string) for string in (name, self._aliases.get(name, "")))
        return next((known for known in found if known is not None and not known.made), None)

    def question(self, name: str) -> str:
        """What a provider is asked for by those who ask for this name."""
        return name

    def owner(self, alias: str) -> str | None:
        """The name of the resource that has this alias."""
        return self._aliases.get(alias)

    def configs(self) -> Iterable[str]:
        """Of virtual hosts: the names of their route configurations, be these known here or not."""
        return ()

    def listing(self, name: str) -> Listing:
        """What a wildcard of this name is about: everything, or a glob collection. To be followed at once."""
        if name == WILDCARD:
            return self
        if name not in self._globs:
            self._globs[name] = Glob(self, {each: self._sets[each] for each in self._paths.get(name, ())})
        return self._globs[name]

    def retire(self, name: str) -> None:
        """A wildcard of this name is gone; perhaps it was the last."""
        if name in self._globs and not self._globs[name].is_followed:
            del self._globs[name]

    # -- writing, by the store only

    def commit(self, change: Change) -> None:
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
        """What `commit` does, for all changes of a transaction."""
        self.revision = tally.changes[0].revision
        for name in tally.gone:
            del self._sets[name]
        self._sets.update(tally.sets)
        self.variants += tally.variants
        self.is_nested = self.is_nested or any(url == self.spec.url for url, *_ in tally.references)
        add_counts(self.referring, tally.references)
        for step in (-1, 1):
            for change in tally.aliased:
                known = change.before if step < 0 else change.after
                if known is not None:
                    self._count_aliases(change.name, known, step)
        self.note_all(tally)
        for path, change in tally.placed:
            self._note_path(path, change)

    def _note_path(self, path: str, change: Change) -> None:
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
        for known, step in ((change.before, -1), (change.after, 1)):
            if known is not None:
                self._count(change.name, known, step)

    def _count(self, name: str, known: VariantSet, step: int) -> None:
        self.variants += step * len(known.variants)
        for variant in known.variants:
            if variant.references:
                self._count_references(variant, step)
        self._count_aliases(name, known, step)

    def _count_aliases(self, name: str, known: VariantSet, step: int) -> None:
        for alias in known.aliases:
            if step > 0:
                self._aliases[alias] = name
            elif self._aliases.get(alias) == name:
                del self._aliases[alias]

    def _count_references(self, variant: Variant, step: int) -> None:
        for reference in variant.references:
            self.referring[reference] += step
            if not self.referring[reference]:
                del self.referring[reference]
            self.is_nested = self.is_nested or reference[0] == self.spec.url

    def settle(self) -> None:
        """After the last commit of a transaction."""
        self.shared.clear()
        self.tidy(self.revision)
        changed, self._changed = self._changed, {}
        for glob in changed:
            glob.tidy(self.revision)


def _revision(change: Change) -> int:
    return change.revision


def _remember(cache: dict[_K, _V], key: _K, value: _V, limit: int = CACHED_CLASSES) -> None:
    if len(cache) >= limit:
        cache.pop(next(iter(cache)))
    cache[key] = value
