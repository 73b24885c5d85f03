"""Hold what one poll has to send, and split it where one response can't carry it.

A batch must be split into several responses in these cases:

| case                                                               | split                                        |
|--------------------------------------------------------------------|----------------------------------------------|
| it is larger than the limit (DLT-21)                               | by resource; variants of a name stay joined |
| a name is there both plain and with constraints (DYN-15)           | plain part, located part                     |
| a glob collection is empty for some params, and not for others     | the removal of the collection goes last      |
| a NACK does not say which resource was bad (NAK-29)                | each resource alone                          |

Methods that return `Steps` pause after every few hundred entries, since a batch may have a million of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

from ..model.constraints import TRUE, Constraint, canonical
from ..model.events import Absence, ResourceError
from ..model.steps import EVERY, Steps, cut, finish, pieces
from ..model.types import Variant
from ..model.xdstp import collection_of, is_xdstp

# Identifies a resource at a client regardless of its contents: whether it is in locator form, its name, its
# constraints.
Slot = tuple[bool, str, Constraint]

MANY = 8 * EVERY  # entries whose names and sizes are looked at in one step

_NAME = attrgetter("name")

ABOUT = 256  # estimated bytes of a name with constraints, or of an error


@dataclass(slots=True)
class Batch:
    """The resources, removals and errors that a client is to be sent.

        plain       added or changed resources for plain subscriptions, by name
        located     added or changed variants for locators; they go out with constraints
        removed     names of removed plain resources
        withdrawn   names and constraints of removed variants, and negative answers
        errors      resource_errors (TP3)
        unresolved  hosts that there is no virtual host for: each is sent as a resource without contents
        replaced    variants in whose place those of `plain` and `located` come, and whether in the located form

    Dictionaries keep the order and drop duplicates (SRV-19).
    """

    plain: dict[str, Variant] = field(default_factory=dict)
    located: dict[Variant, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    withdrawn: dict[Absence, None] = field(default_factory=dict)
    errors: dict[ResourceError, None] = field(default_factory=dict)
    unresolved: dict[str, None] = field(default_factory=dict)  # VHD-7
    replaced: list[tuple[Variant, bool]] = field(default_factory=list)  # not sent, but withdrawn if need be (DYN-24)
    _places: dict[tuple[str, Constraint], Variant] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return bool(self.plain or self.located or self.removed or self.withdrawn or self.errors or self.unresolved)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Return all added or changed variants."""
        return (*self.plain.values(), *self.located)

    @property
    def size(self) -> int:
        """Return about how many bytes the batch takes on the wire."""
        found = sum([variant.size for variant in self.variants])
        if self.removed or self.unresolved:
            found += sum(map(_length, self.removed)) + sum(map(_unresolved_length, self.unresolved))
        if self.withdrawn or self.errors:
            found += sum(map(_absence_length, self.withdrawn)) + sum(map(_error_length, self.errors))
        return found

    def weighing(self) -> Steps[int]:
        """Return what `size` returns, in steps."""
        found = 0
        for items, length in self._lengths():
            for piece in pieces(items, MANY):
                found += sum(map(length, piece))
                if len(piece) == MANY:
                    yield
        return found

    def _lengths(self) -> Iterator[tuple[Collection[Any], Callable[[Any], int]]]:
        """Yield each kind of entry, with the function that estimates the bytes of one."""
        yield self.plain.values(), _variant_length
        yield self.located, _variant_length
        yield self.removed, _length
        yield self.unresolved, _unresolved_length
        yield self.withdrawn, _absence_length
        yield self.errors, _error_length

    def mixed(self) -> Steps[bool]:
        """Whether a name is there both plain and with constraints (DYN-15), in steps."""
        if not (self.located or self.withdrawn) or not (self.plain or self.removed):
            return False
        named = chain(map(_NAME, self.located), map(_NAME, self.withdrawn))
        for names in cut(named, MANY):
            if not (self.plain.keys().isdisjoint(names) and self.removed.keys().isdisjoint(names)):
                return True
            if len(names) == MANY:
                yield
        return False

    def join(self, other: Batch) -> None:
        """Add everything of another batch."""
        self.plain.update(other.plain)
        self.located.update(other.located)
        self.removed.update(other.removed)
        self.withdrawn.update(other.withdrawn)
        self.errors.update(other.errors)
        self.unresolved.update(other.unresolved)

    def locate(self, variant: Variant) -> None:
        """Add a virtual host, in place of an equal variant: each host may have made its own object of it (SRV-19)."""
        known = self._places.setdefault(variant.identity, variant)
        if known is not variant:
            self.located.pop(known, None)
            self._places[variant.identity] = variant
        self.located[variant] = None

    def takes(self, held: Variant, *, located: bool) -> bool:
        """Whether the batch removes this variant from a client that holds it in this form."""
        return Absence(held.name, held.constraint) in self.withdrawn if located else held.name in self.removed

    def reconcile(self) -> Steps[None]:
        """Drop removals of what the batch itself brings (DLT-19), in steps.

        This happens if an alias moves: one subscription lets go of a variant that another one has just got.
        """
        for variants, located in ((self.plain.values(), False), (self.located, True)):
            for piece in pieces(variants):
                for variant in piece:
                    self.spare(variant, located=located)
                if len(piece) == EVERY:
                    yield

    def spare(self, held: Variant, *, located: bool) -> None:
        """Drop the removal of this variant, if there is one."""
        if located:
            self.withdrawn.pop(Absence(held.name, held.constraint), None)
        else:
            self.removed.pop(held.name, None)

    def alone(self) -> tuple[dict[Slot, Batch], Batch]:
        """Return a batch per resource, by slot, and one with the removals that replace nothing (NAK-29).

        The withdrawals of a name go with each variant of the name, since any of these may be the rejected one.
        """
        units: dict[Slot, Batch] = {
            (False, name, TRUE): Batch(plain={name: variant}) for name, variant in self.plain.items()
        }
        for variant in self.located:
            replaced = {absence: None for absence in self.withdrawn if absence.name == variant.name}
            slot = True, variant.name, canonical(variant.constraint)
            units[slot] = Batch(located={variant: None}, withdrawn=replaced)
        names = {variant.name for variant in self.located}
        gone = {absence: None for absence in self.withdrawn if absence.name not in names}
        return units, Batch(removed=self.removed, withdrawn=gone)

    def parts(self, limit: int) -> list[Batch]:
        """Return batches that say the same together, each at most `limit` bytes and valid alone (DLT-21).

        The caller has taken out resources that are above the limit alone, since these can't be split.
        """
        return finish(self.in_parts(limit))

    def in_parts(self, limit: int) -> Steps[list[Batch]]:
        """Return what `parts` returns, in steps."""
        emptied = yield from self._split_emptied()
        if emptied:
            filled = yield from self.in_parts(limit)
            return [*filled, *(yield from emptied.in_parts(limit))]
        mixed = yield from self.mixed()
        if not mixed and (yield from self.weighing()) <= limit:
            return [self]
        plain = Batch(self.plain, removed=self.removed, unresolved=self.unresolved)
        located = Batch(located=self.located, withdrawn=self.withdrawn)
        forms = (chain(plain.units(limit), located.units(limit)), _errors(self.errors))
        parts: list[Batch] = []
        for units in forms:
            yield
            parts += yield from _filled(units, limit, split_forms=mixed)
        return parts

    def _split_emptied(self) -> Steps[Batch]:
        """Take out the removals of glob collections that the batch also has members of (XTP-6), in steps.

        The collection is empty for the params of one subscription only. In one response the removal would contradict
        what another subscription sees.
        """
        emptied = Batch()
        if (yield from self._removes_xdstp()):
            filled = {collection_of(variant.name) for variant in self.variants}
            emptied.removed = {name: None for name in self.removed if name in filled}
            emptied.withdrawn = {absence: None for absence in self.withdrawn if absence.name in filled}
            self.removed = {name: None for name in self.removed if name not in filled}
            self.withdrawn = {absence: None for absence in self.withdrawn if absence.name not in filled}
        return emptied

    def _removes_xdstp(self) -> Steps[bool]:
        """Whether a removal is of an xdstp name (TP1), in steps."""
        if not (self.removed or self.withdrawn):
            return False
        for names in cut(chain(self.removed, map(_NAME, self.withdrawn)), MANY):
            if any(map(is_xdstp, names)):
                return True
            if len(names) == MANY:
                yield
        return False

    def units(self, limit: int) -> Iterator[Batch | None]:
        """Yield the smallest batches that this one can be split into; None: a pause, where that takes long.

        DYN-24: variants of one name and what they replace stay together.
        """
        for name, variant in self.plain.items():
            yield Batch(plain={name: variant})
        for name in self.removed:
            yield Batch(removed={name: None})
        for name in self.unresolved:
            yield Batch(unresolved={name: None})
        groups: dict[str, Batch] = {}
        for variants in pieces(self.located):
            for variant in variants:
                (groups.get(variant.name) or groups.setdefault(variant.name, Batch())).located[variant] = None
            yield None
        for absences in pieces(self.withdrawn):
            for absence in absences:
                (groups.get(absence.name) or groups.setdefault(absence.name, Batch())).withdrawn[absence] = None
            yield None
        for name in [*groups]:
            unit = groups.pop(name)  # to free all of them at once in the end would take long
            yield from unit.singles() if unit.size > limit else [unit]

    def singles(self) -> Iterator[Batch]:
        """Yield the variants of one name alone, if they are too large together. Withdrawals go with the first."""
        withdrawn = self.withdrawn
        for variant in self.located:
            yield Batch(located={variant: None}, withdrawn=withdrawn)
            withdrawn = {}
        for absence in withdrawn:
            yield Batch(withdrawn={absence: None})


def slot_of(variant: Variant, *, located: bool) -> Slot:
    """Return the slot of a variant in this form."""
    return (True, variant.name, canonical(variant.constraint)) if located else (False, variant.name, TRUE)


def portions(variants: Iterable[Variant], limit: int, *, whole: bool) -> Iterator[tuple[Variant, ...]]:
    """Split heartbeats into groups below `limit` bytes (DLT-21). `whole`: each goes out with its contents (SotW)."""
    portion: list[Variant] = []
    filled = 0
    for variant in variants:
        size = variant.size if whole else len(variant.name) + ABOUT
        if portion and filled + size > limit:
            yield tuple(portion)
            portion, filled = [], 0
        portion.append(variant)
        filled += size
    if portion:
        yield tuple(portion)


def _errors(errors: Iterable[ResourceError]) -> Iterator[Batch]:
    """Yield a batch per error. A name may be an error in one form and a resource in the other (ERR-2)."""
    for error in errors:
        yield Batch(errors={error: None})


def _filled(units: Iterable[Batch | None], limit: int, *, split_forms: bool) -> Steps[list[Batch]]:
    """Join units into as few batches of at most `limit` bytes as possible, in steps.

    `split_forms`: never put plain and located units into one batch (DYN-15).
    """
    parts: list[Batch] = []
    filled = 0
    form = False
    for number, unit in enumerate(units):
        if unit is None or number % EVERY == EVERY - 1:
            yield
        if unit is None:
            continue
        size = unit.size
        located = bool(unit.located or unit.withdrawn)
        if not parts or filled + size > limit or (split_forms and located != form):
            parts.append(Batch())
            filled = 0
        form = located
        parts[-1].join(unit)
        filled += size
    return parts


def _variant_length(variant: Variant) -> int:
    return variant.size


def _length(name: str) -> int:
    return len(name) + 4


def _unresolved_length(name: str) -> int:
    return 2 * len(name) + ABOUT


def _absence_length(absence: Absence) -> int:
    return len(absence.name) + ABOUT


def _error_length(error: ResourceError) -> int:
    return len(error.about.name) + ABOUT
