"""Keep every resource type's table, and change all tables by atomic, validated transactions.

There is one writer and one order of revisions. A transaction is a `Changeset`: the complete new variants of each name
that it touches. `apply` validates the final state of everything touched (DYN-38), and either takes all of it or raises
ConfigError and changes nothing:

1. pad the variants of each name so that they mention the same keys, and keep the objects that did not change
2. build the set of variants, which proves that no two overlap (variants.py); skip names that stay as they are
3. check that aliases and virtual-host domains belong to one resource each
4. commit every change to its table, then tell the listeners

`prepare` does steps 1 to 3, which only read and may therefore run in a thread, and returns a function for step 4, which
is short however large the transaction is. `publish` skips the checks: a cache or a provider vouches for its sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ...errors import ConfigError, Problem
from ...native import mypyc_attr
from .allowed_part import AllowedNames, AllowedPart
from .clashes import clash_problem, problem_at
from .constraints import canonical
from .demand import Demand
from .host_lookup import HostLookup, conflicting_domains
from .lookup import NameLookup
from .staged_changes import StagedChanges
from .steps import EVERY, Steps, finish, pieces
from .table import Table
from .types import ROUTE, TYPES, VIRTUAL_HOST, Change, Changeset, TypeSpec, TypeUrl, Variant
from .variants import Answer, Clash, DisjointVariants, VariantSet, padded

ROUNDS = 3  # attempts to read a table in steps, if it changes between the steps
PROGRAM: Final = "program"  # who made a transaction, if nobody says
MANY = 1_000  # with more changes than this, a transaction is counted before the commit (staged_changes.py)


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of a transaction: the revision of the store after it, and the names that really changed."""

    revision: int
    changes: tuple[Change, ...]
    by: str = PROGRAM  # who made it, for people


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A validated transaction. It stays valid while the store has the revision at which it was validated."""

    changeset: Changeset
    revision: int  # the revision that the commit will make
    changes: list[Change]
    by: str  # who makes it
    given: Mapping[Variant, Variant]  # variants that stay, with their equals in the changeset: see `_keep`
    tallies: Mapping[TypeUrl, StagedChanges]  # the sums of a large transaction, by type; empty for a small one
    # The same for the parts that policies allow some clients; None: the part has nothing of it.
    parts: Mapping[AllowedPart, StagedChanges | None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Store:
    """All tables. Any type URL works; a table is made when something writes to the type or follows it."""

    def __init__(self, types: Iterable[TypeSpec] = (), tables: Callable[[TypeSpec], Table] | None = None) -> None:
        self.revision = 0
        self._make = tables or self._own_table
        self.listeners: list[Callable[[Applied], None]] = []
        self._specs = {spec.url: spec for spec in (*TYPES, *types)}
        self._tables: dict[TypeUrl, Table] = {}
        self._parts: dict[TypeUrl, dict[AllowedNames, AllowedPart]] = {}  # that clients with limited names read
        self._provided: set[TypeUrl] = set()  # types that have a provider
        self.demand: Demand | None = None  # gets what clients subscribe to, where that has to be fetched or made

    @property
    def types(self) -> list[TypeSpec]:
        """Return the types that have traits of their own."""
        return [*self._specs.values()]

    def spec(self, type_url: TypeUrl) -> TypeSpec:
        """Return the traits of a type, which are the defaults for an unknown one."""
        return self._specs.get(type_url) or TypeSpec(type_url)

    def table(self, type_url: TypeUrl) -> Table:
        """Return the table of a type, making it if there is none."""
        table = self._tables.get(type_url)
        if table is None:
            table = self._tables[type_url] = self._make(self.spec(type_url))
        return table

    def allowed(self, type_url: TypeUrl, names: AllowedNames | None) -> Table:
        """Return the table of a type for clients that may have these names; None: all names."""
        if names is None:
            return self.table(type_url)
        if not self.has_allowed(type_url, names):
            finish(self.allowing(type_url, names))
        return self._parts[type_url][names].table

    def has_allowed(self, type_url: TypeUrl, names: AllowedNames | None) -> bool:
        """Whether `allowed` has nothing to do."""
        return names is None or names in self._parts.get(type_url, {})

    def allowing(self, type_url: TypeUrl, names: AllowedNames | None) -> Steps[None]:
        """Make, in steps, the table that `allowed` returns.

        If the type changes between the steps, start again, up to `ROUNDS` times. After that give up: `allowed` then
        makes it in one go.
        """
        for _ in range(ROUNDS):
            if names is None or self.has_allowed(type_url, names):
                return
            whole = self.table(type_url)
            revision, part = whole.revision, AllowedPart(names, self._make(whole.spec), whole)
            staged = yield from part.filling()
            if whole.revision == revision and not self.has_allowed(type_url, names):
                if staged is not None:
                    part.commit_counted(staged)
                self._parts.setdefault(type_url, {})[names] = part

    def _own_table(self, spec: TypeSpec) -> Table:
        """Make the kind of table that a server needs: virtual hosts are looked up by domain."""
        is_host = spec.url == VIRTUAL_HOST
        table = Table(spec, partial(HostLookup, routes=partial(self.named, ROUTE)) if is_host else NameLookup)
        if spec.url in self._provided:
            table.rely_on_provider()
        return table

    def rely_on_provider(self, type_url: TypeUrl) -> None:
        """From now on, what the store lacks of this type may still be made by a provider."""
        self._provided.add(type_url)
        self.table(type_url).rely_on_provider()

    def tables(self) -> list[Table]:
        """Return all tables in the order of ADS."""
        return sorted(self._tables.values(), key=lambda table: (table.spec.rank, table.spec.url))

    def discard(self, type_url: TypeUrl) -> None:
        """Drop what is there only because a client asked: an empty table of an unknown type, or an allowed part."""
        parts = self._parts.get(type_url, {})
        for names in [names for names, part in parts.items() if not part.table.sessions]:
            del parts[names]
        table = self._tables.get(type_url)
        if table is not None and not len(table) and not table.sessions and not parts:
            del self._tables[type_url]

    def apply(self, changeset: Changeset, by: str = PROGRAM) -> Applied:
        """Take the complete new variants of each name, all or none. Raises ConfigError with every problem found.

        DYN-34: the store pads each variant with the keys that the other variants of its name mention, so that no writer
        has to. `by`: who makes the transaction, for logs and pages (history.py).
        """
        return self._commit(self._prepared(changeset, by))

    def prepare(self, changeset: Changeset, by: str = PROGRAM) -> Callable[[], Applied]:
        """Do the long part of `apply`, possibly in a thread; the returned function does the short rest, at once."""
        return partial(self._commit, self._prepared(changeset, by))

    def _prepared(self, changeset: Changeset, by: str) -> _Prepared:
        """Validate a transaction and find what it changes. Changes nothing."""
        revision = self.revision + 1
        problems: list[Problem] = []
        changes: list[Change] = []
        given: dict[Variant, Variant] = {}
        for (type_url, name), wanted in changeset.items():
            # Compare with what was configured: a provider's variants of this name give way without comparison.
            before = self.written(type_url, name)
            there = before.variants if before is not None else ()
            try:
                kept = _keep(before, padded(wanted), given)
                if len(kept) == len(there) and set(kept) == set(there):
                    continue  # the same variant objects: this name does not change
                after = DisjointVariants.build(kept) if kept else None
            except Clash as clash:
                problems.append(clash_problem(f"{type_url.rpartition('/')[2]} {name!r}", clash, given, wanted))
                continue
            changes.append(Change(revision, type_url, name, self.named(type_url, name), after))
        problems += self._alias_problems(changes)
        clashes = conflicting_domains(self._tables.get(VIRTUAL_HOST), changes)
        problems += [problem_at(message, variant.origin) for message, variant in clashes]
        if problems:
            raise ConfigError(problems)
        tallies = finish(self._tally(changes)) if len(changes) > MANY else {}
        return _Prepared(changeset, revision, changes, by, given, tallies, finish(self._tally_parts(tallies)))

    def _tally(self, changes: Iterable[Change]) -> Steps[dict[TypeUrl, StagedChanges]]:
        """Sum up a large transaction for each table that it touches, without making any table."""
        by_type: dict[TypeUrl, list[Change]] = {}
        for change in changes:
            by_type.setdefault(change.type_url, []).append(change)
        tallies: dict[TypeUrl, StagedChanges] = {}
        for type_url, some in by_type.items():
            tallies[type_url] = StagedChanges(some, self.spec(type_url))
            yield from tallies[type_url].count()
        return tallies

    def _tally_parts(self, tallies: Mapping[TypeUrl, StagedChanges]) -> Steps[dict[AllowedPart, StagedChanges | None]]:
        """Sum up what the allowed parts have of a large transaction."""
        counted: dict[AllowedPart, StagedChanges | None] = {}
        for type_url, tally in tallies.items():
            for part in [*self._parts.get(type_url, {}).values()]:
                counted[part] = yield from part.counting(tally.changes)
        return counted

    def publish(self, found: Mapping[tuple[TypeUrl, str], VariantSet | None], by: str = PROGRAM) -> Applied:
        """Take sets of variants without checks: the caller, a cache or a provider, vouches for them (DESIGN 7)."""
        return finish(self.publishing(found, by))

    def publishing(self, found: Mapping[tuple[TypeUrl, str], VariantSet | None], by: str = PROGRAM) -> Steps[Applied]:
        """Do the same as `publish`, in steps that only read. Everything is committed at once, after the last step."""
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
            tallies = yield from self._tally(changes)
        parts = yield from self._tally_parts(tallies)
        if self.revision + 1 != revision:  # another transaction was committed between the steps: start again
            return finish(self.publishing(found, by))
        return self._commit(_Prepared({}, revision, changes, by, {}, tallies, parts))

    def answer(self, type_url: TypeUrl, name: str) -> Answer | None:
        """Return what is known of a name, an alias or a host, without making a table."""
        table = self._tables.get(type_url)
        return table.get(name) if table is not None else None

    def size(self, type_url: TypeUrl) -> int:
        """Return how many resources of a type there are, without making a table."""
        table = self._tables.get(type_url)
        return len(table) if table is not None else 0

    def named(self, type_url: TypeUrl, name: str) -> VariantSet | None:
        """Return the variants of a name, without making a table: a question or a refused change leaves no trace."""
        table = self._tables.get(type_url)
        return table.named(name) if table is not None else None

    def written(self, type_url: TypeUrl, name: str) -> VariantSet | None:
        """Return the same as `named`, but None for what a provider made, which configuration may replace unseen."""
        known = self.named(type_url, name)
        return known if known is not None and not known.made else None

    def _commit(self, prepared: _Prepared) -> Applied:
        """Put the changes into their tables, then tell the listeners. Without changes the revision stays.

        If another transaction was committed since this one was prepared, validate it again first.
        """
        if prepared.revision != self.revision + 1:
            prepared = self._prepared(prepared.changeset, prepared.by)
        for variant, same in prepared.given.items():
            variant.origin, variant.written = same.origin, same.written
        revision, changes, tallies = prepared.revision, prepared.changes, prepared.tallies
        applied = Applied(revision if changes else self.revision, tuple(changes), prepared.by)
        if changes:
            self.revision = revision
            for type_url, tally in tallies.items():
                self.table(type_url).commit_all(tally)
            for change in changes if not tallies else ():
                self.table(change.type_url).commit(change)
            for type_url in {change.type_url for change in changes}:
                self.table(type_url).drop_shared_views()
            for type_url, parts in self._parts.items():
                self._commit_parts(type_url, parts, prepared)
            for listener in self.listeners:
                listener(applied)
        return applied

    def _commit_parts(self, type_url: TypeUrl, parts: Mapping[AllowedNames, AllowedPart], prepared: _Prepared) -> None:
        """Put into the allowed parts of a type what they have of a transaction."""
        own = [change for change in prepared.changes if change.type_url == type_url] if parts else []
        for part in parts.values() if own else ():
            if part in prepared.parts:
                counted = prepared.parts[part]
                if counted is None or part.commit_counted(counted):
                    continue
            part.commit(own)  # a small transaction, or the part is newer than the counts

    def _alias_problems(self, changes: Iterable[Change]) -> list[Problem]:
        """Find aliases that two resources have: a subscription by such an alias would be ambiguous (DLT-20)."""
        touched = {(change.type_url, change.name) for change in changes}
        owners: dict[tuple[TypeUrl, str], str] = {}
        problems = []
        for change in changes:
            for alias in change.after.aliases if change.after is not None else ():
                table = self._tables.get(change.type_url)
                owner = table.owner(alias) if table is not None else None
                # An owner that this transaction changes counts only by what it has afterwards.
                if owner is None or (change.type_url, owner) in touched:
                    owner = owners.setdefault((change.type_url, alias), change.name)
                if owner != change.name:
                    message = (
                        f"alias {alias!r} of {change.name!r} is also an alias of {owner!r}: an alias names one resource"
                    )
                    problems.append(problem_at(message, change.after.variants[0].origin if change.after else None))
        return problems


def _keep(before: VariantSet | None, wanted: tuple[Variant, ...], given: dict[Variant, Variant]) -> tuple[Variant, ...]:
    """Replace each wanted variant by the object that clients were sent, where contents and constraints are the same.

    DYN-30: constraints that differ only in form hash the same, and the form that clients were given stays, also with
    new contents. `given` maps each kept object to its equal in the changeset: once the transaction is valid, the kept
    object takes over the origin, which says where to look in the files, and the constraint as written.
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
            # The version does not include `base`, which decides what wildcards see: a new object makes it a change.
            same = replace(variant, constraint=same.constraint, frames=same.frames)
        elif same is not None:
            given[same] = variant
        elif form != variant.constraint:
            same = replace(variant, constraint=form, frames={})
        kept.append(same or variant)
    return tuple(kept)
