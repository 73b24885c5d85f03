"""The store: every resource type's table of variants, changed by atomic validated transactions.

One writer, one order. `apply` validates the final state of everything that a transaction touches (DYN-38), and either
takes all of it or raises and changes nothing. What changed goes into the log of its table; whoever follows a whole
table (a wildcard) keeps one number, the revision up to which it has been told, and asks for the difference.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from ..errors import ConfigError, Problem
from .constraints import Constraint, canonical
from .types import NO_PARAMS, TYPES, Change, Changeset, Origin, Params, TypeSpec, TypeUrl, Variant
from .variants import Clash, VariantSet

_K = TypeVar("_K")
_V = TypeVar("_V")

LOG_SLACK = 64  # entries that a log may have before merging is worth the work; each keeps an old body alive
CACHED_CLASSES = 64  # snapshots and differences kept per table; classes are few where sharing matters


@dataclass(frozen=True, slots=True)
class Transition:
    """What one name means to one class of clients, before and after."""

    name: str
    before: Variant | None
    after: Variant | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything of one type that one class of clients sees, sorted by name."""

    variants: tuple[Variant, ...]
    digest: int


@dataclass(frozen=True, slots=True)
class Applied:
    revision: int
    changes: tuple[Change, ...]


class Wrong(Protocol):
    """TP3: for whom, which code, in which words."""

    @property
    def constraint(self) -> Constraint: ...

    @property
    def code(self) -> int: ...

    @property
    def message(self) -> str: ...


class Table:
    """The resources of one type."""

    authoritative = True  # what is not here does not exist

    def __init__(self, spec: TypeSpec) -> None:
        self.spec = spec
        self.revision = 0  # of the last change in this table
        self.sessions = 0  # that read it
        self._sets: dict[str, VariantSet] = {}
        self._aliases: dict[str, str] = {}
        self._log: list[Change] = []
        self._merge_at = LOG_SLACK
        self._cursors: Counter[int] = Counter()
        self._mentions: Counter[str] = Counter()
        self._keys: frozenset[str] = frozenset()
        self._snapshots: dict[Params, Snapshot] = {}
        self._differences: dict[tuple[int, Params], dict[str, Transition]] = {}

    # -- reading

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[tuple[str, VariantSet]]:
        return iter(self._sets.items())

    def named(self, name: str) -> VariantSet | None:
        """By name only."""
        return self._sets.get(name)

    def get(self, name: str) -> VariantSet | None:
        """By name, or by alias (DLT-20). A name wins over another resource's alias."""
        return self._sets.get(name) or self._sets.get(self._aliases.get(name, ""))

    def select(self, name: str, params: Params) -> Variant | None:
        known = self.get(name)
        return known.select(params) if known is not None else None

    def knows(self, name: str, params: Params, *, sure: bool = False) -> bool:  # noqa: ARG002 # a cache may not
        """Whether it is known what these params get, be it nothing; `sure`: and not only from an earlier run."""
        return True

    def lists(self, params: Params, *, sure: bool = False) -> bool:  # noqa: ARG002
        """Whether everything is known that these params see."""
        return True

    def serves(self, name: str, params: Params, since: int) -> bool:  # noqa: ARG002
        """Whether what there is, is for somebody who came at revision `since` (PRX-17)."""
        return True

    def trouble(self, name: str, params: Params) -> Wrong | None:  # noqa: ARG002
        """What is wrong with getting what these params should have, where it comes from somewhere else (TP3)."""
        return None

    def owner(self, alias: str) -> str | None:
        """The name of the resource that has this alias."""
        return self._aliases.get(alias)

    @property
    def variants(self) -> int:
        return sum(len(known.variants) for known in self._sets.values())

    def classify(self, params: Params) -> Params:
        """Cut params down to the keys that anything in this table, or in its log, mentions (DESIGN 6.3)."""
        return params.only(self._keys) if self._keys else NO_PARAMS

    def snapshot(self, params: Params) -> Snapshot:
        """All that these params see; made once per class and revision, however many streams ask."""
        category = self.classify(params)
        found = self._snapshots.get(category)
        if found is None:
            selected = ((name, known.select(category)) for name, known in sorted(self._sets.items()))
            variants = tuple(variant for _, variant in selected if variant is not None)
            found = Snapshot(variants, digest_of(variants))
            _remember(self._snapshots, category, found)
        return found

    def difference(self, since: int, params: Params) -> Mapping[str, Transition]:
        """What these params see change after revision `since`; made once per class, shared by all that are as far."""
        key = since, self.classify(params)
        found = self._differences.get(key)
        if found is None:
            start = bisect_right(self._log, since, key=_revision)
            merged = _merge(self._log[start:])
            views = (
                Transition(
                    change.name,
                    change.before.select(key[1]) if change.before is not None else None,
                    change.after.select(key[1]) if change.after is not None else None,
                )
                for change in merged
            )
            found = {view.name: view for view in views if not alike(view.before, view.after)}
            _remember(self._differences, key, found)
        return found

    # -- cursors

    def follow(self) -> int:
        """Start to follow the table from here; returns the cursor."""
        self._cursors[self.revision] += 1
        return self.revision

    def advance(self, cursor: int) -> int:
        self.unfollow(cursor)
        return self.follow()

    def unfollow(self, cursor: int) -> None:
        self._cursors[cursor] -= 1
        if not self._cursors[cursor]:
            del self._cursors[cursor]
        if not self._cursors:
            self._log.clear()

    # -- writing, by the store only

    def commit(self, change: Change) -> None:
        self.revision = change.revision
        for known, step in ((change.before, -1), (change.after, 1)):
            if known is not None:
                self._count(change.name, known, step)
        if change.after is None:
            del self._sets[change.name]
        else:
            self._sets[change.name] = change.after
        if not self._keys.issuperset(self._mentions):
            self._keys = self._keys.union(self._mentions)
        self._log.append(change)

    def _count(self, name: str, known: VariantSet, step: int) -> None:
        for key in known.keys:
            self._mentions[key] += step
            if not self._mentions[key]:
                del self._mentions[key]
        for alias in known.aliases:
            if step > 0:
                self._aliases[alias] = name
            elif self._aliases.get(alias) == name:
                del self._aliases[alias]

    def settle(self) -> None:
        """After the last commit of a transaction: drop what nobody needs, and what was derived from it."""
        self._snapshots.clear()
        self._differences.clear()
        floor = min(self._cursors, default=self.revision)
        if self._log and self._log[0].revision <= floor:
            del self._log[: bisect_right(self._log, floor, key=_revision)]
        if len(self._log) > self._merge_at:
            self._shorten()
        if not self._log and len(self._keys) != len(self._mentions):
            self._keys = frozenset(self._mentions)

    def _shorten(self) -> None:
        """Merge what lies between two cursors, so that a reader that lags pins one entry per name, not each edit."""
        shorter: list[Change] = []
        start = 0
        for cursor in [*sorted(self._cursors)[1:], self.revision]:
            end = bisect_right(self._log, cursor, key=_revision)
            shorter += sorted(_merge(self._log[start:end]), key=_revision)
            start = end
        self._log = shorter
        self._merge_at = 2 * len(shorter) + LOG_SLACK


class Store:
    """All tables. Any type URL works; a table is there when somebody writes to it or follows it."""

    def __init__(self, types: Iterable[TypeSpec] = (), tables: Callable[[TypeSpec], Table] = Table) -> None:
        self.revision = 0
        self._make = tables
        self.listeners: list[Callable[[Applied], None]] = []
        self._specs = {spec.url: spec for spec in (*TYPES, *types)}
        self._tables: dict[TypeUrl, Table] = {}

    def spec(self, type_url: TypeUrl) -> TypeSpec:
        return self._specs.get(type_url) or TypeSpec(type_url)

    def table(self, type_url: TypeUrl) -> Table:
        table = self._tables.get(type_url)
        if table is None:
            table = self._tables[type_url] = self._make(self.spec(type_url))
        return table

    def tables(self) -> list[Table]:
        return sorted(self._tables.values(), key=lambda table: (table.spec.rank, table.spec.url))

    def discard(self, type_url: TypeUrl) -> None:
        """Forget a table that a client made by asking for a type nobody has."""
        table = self._tables.get(type_url)
        if table is not None and not len(table) and not table.sessions:
            del self._tables[type_url]

    def apply(self, changeset: Changeset) -> Applied:
        """Take the complete new variants of each name, all or none. Raises ConfigError with every problem found."""
        revision = self.revision + 1
        problems: list[Problem] = []
        changes: list[Change] = []
        moved: list[tuple[Variant, Origin | None]] = []
        for (type_url, name), wanted in changeset.items():
            before = self.named(type_url, name)
            kept = _keep(before, wanted, moved)
            if before is not None and len(kept) == len(before.variants) and set(kept) == set(before.variants):
                continue
            try:
                after = VariantSet.build(kept) if kept else None
            except Clash as clash:
                problems.append(_clash_problem(type_url, name, clash, dict(moved)))
                continue
            if before is not None or after is not None:
                changes.append(Change(revision, type_url, name, before, after))
        problems += self._alias_problems(changes)
        if problems:
            raise ConfigError(problems)
        for variant, origin in moved:
            variant.origin = origin
        return self._commit(revision, changes)

    def publish(self, found: Mapping[tuple[TypeUrl, str], VariantSet | None]) -> Applied:
        """Take what somebody else vouches for, as it is (DESIGN 7)."""
        revision = self.revision + 1
        changes = [
            Change(revision, type_url, name, self.named(type_url, name), after)
            for (type_url, name), after in found.items()
        ]
        return self._commit(revision, [change for change in changes if change.before is not change.after])

    def named(self, type_url: TypeUrl, name: str) -> VariantSet | None:
        """Without making a table: what is only asked about, or refused in the end, leaves nothing behind."""
        table = self._tables.get(type_url)
        return table.named(name) if table is not None else None

    def _commit(self, revision: int, changes: list[Change]) -> Applied:
        applied = Applied(revision if changes else self.revision, tuple(changes))
        if changes:
            self.revision = revision
            for change in changes:
                self.table(change.type_url).commit(change)
            for type_url in {change.type_url for change in changes}:
                self.table(type_url).settle()
            for listener in self.listeners:
                listener(applied)
        return applied

    def _alias_problems(self, changes: Iterable[Change]) -> list[Problem]:
        """An alias belongs to one resource, or a subscription by it would be ambiguous (DLT-20)."""
        touched = {(change.type_url, change.name) for change in changes}
        claimed: dict[tuple[TypeUrl, str], str] = {}
        problems = []
        for change in changes:
            for alias in change.after.aliases if change.after is not None else ():
                table = self._tables.get(change.type_url)
                owner = table.owner(alias) if table is not None else None
                if owner is None or (change.type_url, owner) in touched:
                    owner = claimed.setdefault((change.type_url, alias), change.name)
                if owner != change.name:
                    message = (
                        f"alias {alias!r} of {change.name!r} is also an alias of {owner!r}: an alias names one resource"
                    )
                    problems.append(_problem(message, change.after.variants[0].origin if change.after else None))
        return problems


def digest_of(variants: Iterable[Variant]) -> int:
    """SRV-12: a hash that does not depend on order, so that it can follow changes one at a time."""
    return sum(variant.digest for variant in variants) & 0xFFFF_FFFF_FFFF_FFFF


def alike(one: Variant | None, other: Variant | None) -> bool:
    """Whether a client that has the one need not be sent the other.

    Mostly they are the same object or none. What was deleted and put back is another object with the same version; if
    its constraints are written in another way they have to be sent, for they are what it will be withdrawn by (DYN-25).
    """
    if one is other:
        return True
    if one is None or other is None:
        return False
    return one.version == other.version and one.constraint == other.constraint


def _revision(change: Change) -> int:
    return change.revision


def _merge(changes: Iterable[Change]) -> list[Change]:
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


def _keep(
    before: VariantSet | None, wanted: tuple[Variant, ...], moved: list[tuple[Variant, Origin | None]]
) -> tuple[Variant, ...]:
    """Where contents and constraints are what they were, keep the object that was sent.

    DYN-30: constraints that differ only in form hash the same, and the form that clients were given stays, also with
    new contents. Only the origin, which says where to look in the files, moves along, once the transaction is good.
    """
    if before is None:
        return wanted
    known = {variant.version: variant for variant in before.variants}
    forms = {canonical(variant.constraint): variant.constraint for variant in before.variants}
    kept = []
    for variant in wanted:
        same = known.pop(variant.version, None)
        form = forms.get(canonical(variant.constraint), variant.constraint)
        if same is not None:
            moved.append((same, variant.origin))
        elif form != variant.constraint:
            same = replace(variant, constraint=form, frames={})
        kept.append(same or variant)
    return tuple(kept)


def _problem(message: str, origin: Origin | None) -> Problem:
    return Problem(message, origin.file, origin.line) if origin is not None else Problem(message)


def _clash_problem(type_url: TypeUrl, name: str, clash: Clash, moved: Mapping[Variant, Origin | None]) -> Problem:
    """DYN-37: the refusal names both variants, where they are written now, and a witness."""
    first, second = (moved.get(variant, variant.origin) for variant in (clash.first, clash.second))
    message = f"{type_url.rpartition('/')[2]} {name!r}: {clash.message}"
    return _problem(f"{message} (the other is at {second})" if second is not None else message, first)


def _remember(cache: dict[_K, _V], key: _K, value: _V) -> None:
    if len(cache) >= CACHED_CLASSES:
        cache.pop(next(iter(cache)))
    cache[key] = value
