"""Keep, as a table of its own, the part of one type that some clients are allowed to have.

A policy may let clients have only some names of a type (core/policy/). Their sessions read a table that has no others.
So nothing that a session does can tell such a client of another resource: neither a wildcard, nor an alias, nor a host,
nor a version, nor the revision in a nonce, which counts the changes of this part alone.

In a relay a string that is allowed may be an alias, or a host, of a resource that is not. Then the part has an absence
in place of the resource, and what happens to the absence does not count in the revision that clients are shown.

The store commits to each part what the part has of every transaction. Variants and their sets are the same objects as
in the whole table, so streams share what is encoded. There is one part for all streams that are allowed the same names,
for as long as there is such a stream. Clients that are allowed all names read the whole table, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import is_
from typing import Protocol

from .staged_changes import StagedChanges
from .steps import EVERY, Steps, chosen, pieces
from .table import Table
from .types import Change

# Where the revisions of parts begin: above those of any store, so that a stream that goes from the whole table to a
# part, or back, sends no nonce twice (SRV-8).
FIRST_REVISION = 1_000_000_000


class AllowedNames(Protocol):
    """Which names a part has. Equal ones share a part, so they have a hash."""

    def allows(self, name: str) -> bool:
        """Whether the part has the resource of this name."""

    def __hash__(self) -> int: ...


class AllowedPart:
    """The allowed part of one type's table."""

    __slots__ = ("_names", "_whole", "table")

    def __init__(self, names: AllowedNames, table: Table, whole: Table) -> None:
        """`table`: a new one, which `filling` fills from the whole table."""
        self._names = names
        self.table = table
        self._whole = whole
        table.be_part_of(whole)
        table.revision = table.shown_revision = FIRST_REVISION

    def filling(self) -> Steps[StagedChanges | None]:
        """Return what the whole has of these names, counted, in steps, for `commit_counted`; None: nothing."""
        allows, whole = self._names.allows, self._whole
        url, revision = whole.spec.url, self.table.revision + 1
        own: list[Change] = []
        for piece in pieces([*whole]):
            own += [Change(revision, url, name, None, known.only(allows)) for name, known in piece if allows(name)]
            if len(piece) == EVERY:
                yield
        return (yield from self._counted(own))

    def commit(self, changes: Iterable[Change]) -> None:
        """Take what the part has of a transaction."""
        allows, table = self._names.allows, self.table
        revision, shown, step = table.revision + 1, table.shown_revision, 0
        for change in changes:
            if allows(change.name):
                own = self._own(change, revision)
                step = step or _is_shown(own)
                table.commit(own)
        table.shown_revision = shown + step
        if table.revision == revision:
            table.drop_shared_views()

    def counting(self, changes: Sequence[Change]) -> Steps[StagedChanges | None]:
        """Return what the part has of a large transaction, counted, in steps; None: nothing."""
        own = yield from chosen(changes, lambda change: self._names.allows(change.name))
        revision = self.table.revision + 1
        return (yield from self._counted([self._own(change, revision) for change in own]))

    def _own(self, change: Change, revision: int) -> Change:
        """Return what the part has of the change of a name."""
        after = change.after.only(self._names.allows) if change.after is not None else None
        return replace(change, revision=revision, before=self.table.named(change.name), after=after)

    def _counted(self, own: Sequence[Change]) -> Steps[StagedChanges | None]:
        if not own:
            return None
        staged = StagedChanges(own, self.table.spec)
        yield from staged.count()
        return staged

    def commit_counted(self, staged: StagedChanges) -> bool:
        """Take a transaction that `counting` counted. Return False if the part has changed since."""
        if staged.changes[0].revision != self.table.revision + 1:
            return False
        shown = self.table.shown_revision
        self.table.commit_all(staged)
        self.table.shown_revision = shown + any(map(_is_shown, staged.changes))
        self.table.drop_shared_views()
        return True


def _is_shown(change: Change) -> bool:
    """Whether clients can see that something changed: a variant came, or went."""
    before, after = (known.variants if known is not None else () for known in (change.before, change.after))
    return len(before) != len(after) or not all(map(is_, before, after))
