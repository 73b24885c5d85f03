"""The store: every resource type's table of variants, changed by atomic validated transactions.

One writer, one order. `apply` validates the final state of everything that a transaction touches (DYN-38), and either
takes all of it or raises and changes nothing. What changed goes into its table (table.py).

`prepare` does all of that but the taking, which is short, however large the transaction is. It only reads, so that it
may run in a thread while others are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ...errors import ConfigError, Problem
from .constraints import canonical
from .hosts import HostTable, conflicting_domains
from .staged_changes import StagedChanges
from .steps import EVERY, Steps, finish, pieces
from .table import Table
from .types import ROUTE, TYPES, VIRTUAL_HOST, Change, Changeset, Origin, TypeSpec, TypeUrl, Variant
from .variants import Clash, VariantSet, padded

MANY = 1_000  # changes in a transaction that are counted aside


@dataclass(frozen=True, slots=True)
class Applied:
    revision: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A transaction that is good for the revision that the store had when it was looked at."""

    changeset: Changeset
    revision: int  # the one it makes
    changes: list[Change]
    given: Mapping[Variant, Variant]
    tallies: Mapping[TypeUrl, StagedChanges]  # of a large transaction


class Store:
    """All tables. Any type URL works; a table is there when somebody writes to it or follows it."""

    def __init__(self, types: Iterable[TypeSpec] = (), tables: Callable[[TypeSpec], Table] | None = None) -> None:
        self.revision = 0
        self._make = tables or self._own_table
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

    def _own_table(self, spec: TypeSpec) -> Table:
        return HostTable(spec, partial(self.named, ROUTE)) if spec.url == VIRTUAL_HOST else Table(spec)

    def tables(self) -> list[Table]:
        return sorted(self._tables.values(), key=lambda table: (table.spec.rank, table.spec.url))

    def discard(self, type_url: TypeUrl) -> None:
        """Forget a table that a client made by asking for a type nobody has."""
        table = self._tables.get(type_url)
        if table is not None and not len(table) and not table.sessions:
            del self._tables[type_url]

    def apply(self, changeset: Changeset) -> Applied:
        """Take the complete new variants of each name, all or none. Raises ConfigError with every problem found.

        DYN-34: each variant is padded with the keys that the others of its name mention, whoever the writer is.
        """
        return self._take(self._prepared(changeset))

    def prepare(self, changeset: Changeset) -> Callable[[], Applied]:
        """Do what of `apply` takes long; it may be called in a thread. What it returns does the rest, at once."""
        return partial(self._take, self._prepared(changeset))

    def _prepared(self, changeset: Changeset) -> _Prepared:
        revision = self.revision + 1
        problems: list[Problem] = []
        changes: list[Change] = []
        given: dict[Variant, Variant] = {}
        for (type_url, name), wanted in changeset.items():
            before = self.written(type_url, name)
            there = before.variants if before is not None else ()
            try:
                kept = _keep(before, padded(wanted), given)
                if len(kept) == len(there) and set(kept) == set(there):
                    continue
                after = VariantSet.build(kept) if kept else None
            except Clash as clash:
                problems.append(_clash_problem(type_url, name, clash, given))
                continue
            changes.append(Change(revision, type_url, name, self.named(type_url, name), after))
        problems += self._alias_problems(changes)
        clashes = conflicting_domains(self._tables.get(VIRTUAL_HOST), changes)
        problems += [_problem(message, variant.origin) for message, variant in clashes]
        if problems:
            raise ConfigError(problems)
        tallies = finish(self._tally(changes)) if len(changes) > MANY else {}
        return _Prepared(changeset, revision, changes, given, tallies)

    def _tally(self, changes: Iterable[Change]) -> Steps[dict[TypeUrl, StagedChanges]]:
        """Find what a large transaction comes to in each table. It makes no table."""
        by_type: dict[TypeUrl, list[Change]] = {}
        for change in changes:
            by_type.setdefault(change.type_url, []).append(change)
        tallies: dict[TypeUrl, StagedChanges] = {}
        for type_url, some in by_type.items():
            table = self._tables.get(type_url)
            kind = table.tally if table is not None else StagedChanges
            tallies[type_url] = kind(some, self.spec(type_url))
            yield from tallies[type_url].count()
        return tallies

    def _take(self, prepared: _Prepared) -> Applied:
        """Take a transaction in, as it is now if somebody else was faster."""
        if prepared.revision != self.revision + 1:
            prepared = self._prepared(prepared.changeset)
        for variant, same in prepared.given.items():
            variant.origin, variant.written = same.origin, same.written
        return self._commit(prepared.revision, prepared.changes, prepared.tallies)

    def publish(self, found: Mapping[tuple[TypeUrl, str], VariantSet | None]) -> Applied:
        """Take what somebody else vouches for, as it is (DESIGN 7)."""
        return finish(self.publishing(found))

    def publishing(self, found: Mapping[tuple[TypeUrl, str], VariantSet | None]) -> Steps[Applied]:
        """What `publish` does, in steps that only read. Everything is taken at once, after the last of them."""
        revision = self.revision + 1
        changes: list[Change] = []
        for piece in pieces(found.items()):
            for (type_url, name), after in piece:
                before = self.named(type_url, name)
                if before is not after:
                    changes.append(Change(revision, type_url, name, before, after))
            if len(piece) == EVERY:
                yield
        tallies: Mapping[TypeUrl, StagedChanges] = {}
        if len(changes) > MANY:
            for type_url in {type_url for type_url, _ in found}:
                self.table(type_url)  # so that its own kind of tally is made
            tallies = yield from self._tally(changes)
        if self.revision + 1 != revision:  # somebody else was faster
            return finish(self.publishing(found))
        return self._commit(revision, changes, tallies)

    def size(self, type_url: TypeUrl) -> int:
        """How many resources of a type there are, without making a table."""
        table = self._tables.get(type_url)
        return len(table) if table is not None else 0

    def named(self, type_url: TypeUrl, name: str) -> VariantSet | None:
        """Without making a table: what is only asked about, or refused in the end, leaves nothing behind."""
        table = self._tables.get(type_url)
        return table.named(name) if table is not None else None

    def written(self, type_url: TypeUrl, name: str) -> VariantSet | None:
        """The same, but for what a provider made: whoever writes something down need not know of that."""
        known = self.named(type_url, name)
        return known if known is not None and not known.made else None

    def _commit(
        self, revision: int, changes: list[Change], tallies: Mapping[TypeUrl, StagedChanges] | None = None
    ) -> Applied:
        applied = Applied(revision if changes else self.revision, tuple(changes))
        if changes:
            self.revision = revision
            for type_url, tally in tallies.items() if tallies else ():
                self.table(type_url).commit_all(tally)
            for change in changes if not tallies else ():
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


def _keep(before: VariantSet | None, wanted: tuple[Variant, ...], given: dict[Variant, Variant]) -> tuple[Variant, ...]:
    """Where contents and constraints are what they were, keep the object that was sent.

    DYN-30: constraints that differ only in form hash the same, and the form that clients were given stays, also with
    new contents. `given` notes what each kept object was given as: once the transaction is good, its origin, which says
    where to look in the files, and the constraint as written move along.
    """
    if before is None:
        return wanted
    known = {variant.version: variant for variant in before.variants}
    forms = {canonical(variant.constraint): variant.constraint for variant in before.variants}
    kept = []
    for variant in wanted:
        same = known.pop(variant.version, None)
        form = forms.get(canonical(variant.constraint), variant.constraint)
        if same is not None and same.base != variant.base:
            same = replace(variant, constraint=same.constraint, frames=same.frames)
        elif same is not None:
            given[same] = variant
        elif form != variant.constraint:
            same = replace(variant, constraint=form, frames={})
        kept.append(same or variant)
    return tuple(kept)


def _problem(message: str, origin: Origin | None) -> Problem:
    return Problem(message, origin.file, origin.line) if origin is not None else Problem(message)


def _clash_problem(type_url: TypeUrl, name: str, clash: Clash, given: Mapping[Variant, Variant]) -> Problem:
    """DYN-37: the refusal names both variants, where they are written now, and a witness."""
    first, second = (given.get(variant, variant).origin for variant in (clash.first, clash.second))
    message = f"{type_url.rpartition('/')[2]} {name!r}: {clash.message}"
    return _problem(f"{message} (the other is at {second})" if second is not None else message, first)
