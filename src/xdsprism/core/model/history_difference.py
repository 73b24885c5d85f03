"""Find how two revisions of a store differ, by resource and variant, from what its history remembers of those between.

The history keeps the contents that a revision replaced. So the contents at the older revision are those that the first
later change of a variant replaced, and the contents at the newer one are replaced by a change after it, or are in the
store now. Either may be gone, as the history has a bound: then only the versions are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from .constraints import Constraint
from .history import History, Kind, ResourceChange, Revision, VariantChange
from .steps import EVERY, Steps
from .store import Store
from .types import SECRET, Origin, TypeUrl


@dataclass(frozen=True, slots=True)
class VariantDifference:
    """How one variant differs between two revisions."""

    type_url: TypeUrl
    name: str
    constraint: Constraint
    change: Kind
    old: str  # the version; empty: it was not there
    new: str
    origin: Origin | None
    before: bytes | None  # the contents; None: there were none, or they are not known any more
    after: bytes | None


@dataclass(frozen=True, slots=True)
class Difference:
    """How two revisions differ."""

    variants: list[VariantDifference]
    unknown: int  # changes of resources in between of which no more is known than that they happened


_Key = tuple[TypeUrl, str, Constraint]


def finding_difference(history: History, store: Store, old: int, new: int) -> Steps[Difference | None]:
    """Compare two revisions, in steps; None: what happened between them is not remembered."""
    if old > new:
        found = yield from finding_difference(history, store, new, old)
        return Difference([_inverted(each) for each in found.variants], found.unknown) if found is not None else None
    later = history.since(old)
    if later is None or new > (history.newest or 0):
        return None
    first: dict[_Key, VariantChange] = {}
    last: dict[_Key, VariantChange] = {}
    unknown, looked_at = 0, 0
    for revision in [each for each in later if each.number <= new]:
        unknown += revision.more
        for change, each in _each(revision):
            key = change.type_url, change.name, each.constraint
            first.setdefault(key, each)
            last[key] = each
            looked_at += 1
            if looked_at % EVERY == 0:
                yield
    changed = {key: (first[key].old, last[key].new) for key in first}
    changed = {key: versions for key, versions in changed.items() if versions[0] != versions[1]}
    yield
    contents = yield from _finding_contents(
        store, [each for each in later if each.number > new], {(*key[:2], new) for key, (_, new) in changed.items()}
    )
    found_variants = [
        VariantDifference(
            *key,
            "added" if not before else "removed" if not after else "changed",
            before,
            after,
            last[key].origin,
            first[key].body,
            contents.get((*key[:2], after)),
        )
        for key, (before, after) in changed.items()
    ]
    return Difference(found_variants, unknown)


def _each(revision: Revision) -> Iterator[tuple[ResourceChange, VariantChange]]:
    for change in revision.changes:
        for each in change.variants:
            yield change, each


_Version = tuple[TypeUrl, str, str]


def _finding_contents(store: Store, later: Iterable[Revision], wanted: set[_Version]) -> Steps[dict[_Version, bytes]]:
    """Find the contents of these versions: in the store, or replaced by a later revision. Secrets are left out."""
    found: dict[_Version, bytes] = {}
    for number, (type_url, name, _) in enumerate(wanted):
        known = store.named(type_url, name) if type_url != SECRET else None
        for variant in known.variants if known is not None else ():
            found[type_url, name, variant.version] = variant.body
        if number % EVERY == EVERY - 1:
            yield
    looked_at = 0
    for revision in later:
        for change, each in _each(revision):
            key = change.type_url, change.name, each.old
            if each.body is not None and key in wanted:
                found.setdefault(key, each.body)
            looked_at += 1
            if looked_at % EVERY == 0:
                yield
    return found


def _inverted(each: VariantDifference) -> VariantDifference:
    """Look at a difference from its other side."""
    changes: dict[Kind, Kind] = {"added": "removed", "removed": "added", "changed": "changed"}
    return replace(each, change=changes[each.change], old=each.new, new=each.old, before=each.after, after=each.before)
