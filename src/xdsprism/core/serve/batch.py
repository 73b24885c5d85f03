"""What one look at the store found to say, and how it is taken apart where it can't be said in one response."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ..model.constraints import TRUE, Constraint, canonical
from ..model.events import Absence, ResourceError
from ..model.steps import EVERY, Steps, cut, finish, pieces
from ..model.types import Variant
from ..model.xdstp import collection_of, is_xdstp

# Where a resource is, whatever its contents: whether in locator form, its name, its constraints.
Slot = tuple[bool, str, Constraint]

MANY = 8 * EVERY  # items whose names and sizes are looked at in one step

ABOUT = 256  # bytes that a name with constraints, or an error, takes; roughly


@dataclass(slots=True)
class Batch:
    """Dictionaries keep the order and drop what is there twice (SRV-19)."""

    plain: dict[str, Variant] = field(default_factory=dict)
    located: dict[Variant, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    withdrawn: dict[Absence, None] = field(default_factory=dict)
    errors: dict[ResourceError, None] = field(default_factory=dict)
    unresolved: dict[str, None] = field(default_factory=dict)  # VHD-7
    _places: dict[tuple[str, Constraint], Variant] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return bool(self.plain or self.located or self.removed or self.withdrawn or self.errors or self.unresolved)

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (*self.plain.values(), *self.located)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        found = sum([variant.size for variant in self.variants])
        if self.removed or self.unresolved:
            found += sum(map(_length, self.removed)) + sum(map(_unresolved_length, self.unresolved))
        if self.withdrawn or self.errors:
            found += sum(map(_absence_length, self.withdrawn)) + sum(map(_error_length, self.errors))
        return found

    def weighing(self) -> Steps[int]:
        """What `size` says, in steps."""
        found = 0
        for items, length in self._lengths():
            for piece in pieces(items, MANY):
                found += sum(map(length, piece))
                if len(piece) == MANY:
                    yield
        return found

    def _lengths(self) -> Iterator[tuple[Collection[Any], Callable[[Any], int]]]:
        """All that it holds, and how many bytes one of each kind takes."""
        yield self.plain.values(), _variant_length
        yield self.located, _variant_length
        yield self.removed, _length
        yield self.unresolved, _unresolved_length
        yield self.withdrawn, _absence_length
        yield self.errors, _error_length

    def mixed(self) -> Steps[bool]:
        """DYN-15: whether a name is spoken of in both forms."""
        if not (self.located or self.withdrawn) or not (self.plain or self.removed):
            return False
        named = chain((variant.name for variant in self.located), (absence.name for absence in self.withdrawn))
        for names in cut(named, MANY):
            if not (self.plain.keys().isdisjoint(names) and self.removed.keys().isdisjoint(names)):
                return True
            if len(names) == MANY:
                yield
        return False

    def join(self, other: Batch) -> None:
        self.plain.update(other.plain)
        self.located.update(other.located)
        self.removed.update(other.removed)
        self.withdrawn.update(other.withdrawn)
        self.errors.update(other.errors)
        self.unresolved.update(other.unresolved)

    def locate(self, variant: Variant) -> None:
        """In place of another object that is the same variant: of hosts, each may have found its own (SRV-19)."""
        known = self._places.setdefault(variant.identity, variant)
        if known is not variant:
            self.located.pop(known, None)
            self._places[variant.identity] = variant
        self.located[variant] = None

    def takes(self, held: Variant, *, located: bool) -> bool:
        """Whether it removes this from a client that holds it in this form."""
        return Absence(held.name, held.constraint) in self.withdrawn if located else held.name in self.removed

    def reconcile(self) -> Steps[None]:
        """DLT-19: what one subscription let go and another has just got (an alias moved) is not removed."""
        for variants, located in ((self.plain.values(), False), (self.located, True)):
            for piece in pieces(variants):
                for variant in piece:
                    self.spare(variant, located=located)
                if len(piece) == EVERY:
                    yield

    def spare(self, held: Variant, *, located: bool) -> None:
        """Don't remove this."""
        if located:
            self.withdrawn.pop(Absence(held.name, held.constraint), None)
        else:
            self.removed.pop(held.name, None)

    def alone(self) -> tuple[dict[Slot, Batch], Batch]:
        """NAK-29: each resource by itself, and what only goes away.

        What variants of a name replaced goes with each of them, since any of them may be the one that is rejected.
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
        """Responses that say the same together. DLT-21: none is larger than `limit`, and each is valid alone.

        A single resource above the limit is not for here: there is no way to split it.
        """
        return finish(self.in_parts(limit))

    def in_parts(self, limit: int) -> Steps[list[Batch]]:
        """What `parts` does, in steps."""
        emptied = yield from self._split_emptied()
        if emptied:
            filled = yield from self.in_parts(limit)
            return [*filled, *(yield from emptied.in_parts(limit))]
        mixed = yield from self.mixed()
        if not mixed and (yield from self.weighing()) <= limit:
            return [self]
        plain = Batch(self.plain, removed=self.removed, unresolved=self.unresolved)
        located = Batch(located=self.located, withdrawn=self.withdrawn)
        forms = ((unit for form in (plain, located) for unit in form.units(limit)), _errors(self.errors))
        parts: list[Batch] = []
        for units in forms:
            yield
            parts += yield from _filled(units, limit, split_forms=mixed)
        return parts

    def _split_emptied(self) -> Steps[Batch]:
        """XTP-6: that a glob collection is empty, for some params, is not said along with what others see in it."""
        emptied = Batch()
        if (yield from self._removes_xdstp()):
            filled = {collection_of(variant.name) for variant in self.variants}
            emptied.removed = {name: None for name in self.removed if name in filled}
            emptied.withdrawn = {absence: None for absence in self.withdrawn if absence.name in filled}
            self.removed = {name: None for name in self.removed if name not in filled}
            self.withdrawn = {absence: None for absence in self.withdrawn if absence.name not in filled}
        return emptied

    def _removes_xdstp(self) -> Steps[bool]:
        """Whether anything that it takes away has a name of TP1."""
        if not (self.removed or self.withdrawn):
            return False
        for names in cut(chain(self.removed, (absence.name for absence in self.withdrawn)), MANY):
            if any(map(is_xdstp, names)):
                return True
            if len(names) == MANY:
                yield
        return False

    def units(self, limit: int) -> Iterator[Batch | None]:
        """The smallest responses that this one can be taken apart into; None: a pause, where that takes long.

        DYN-24: variants and what they replace stay together, which goes by their name.
        """
        yield from (Batch(plain={name: variant}) for name, variant in self.plain.items())
        yield from (Batch(removed={name: None}) for name in self.removed)
        yield from (Batch(unresolved={name: None}) for name in self.unresolved)
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
            unit = groups.pop(name)  # to free all of them at the end takes long
            yield from unit.singles() if unit.size > limit else [unit]

    def singles(self) -> Iterator[Batch]:
        """Of one name, what is too large together: what goes away goes first, with the first that comes."""
        withdrawn = self.withdrawn
        for variant in self.located:
            yield Batch(located={variant: None}, withdrawn=withdrawn)
            withdrawn = {}
        yield from (Batch(withdrawn={absence: None}) for absence in withdrawn)


def slot_of(variant: Variant, *, located: bool) -> Slot:
    return (True, variant.name, canonical(variant.constraint)) if located else (False, variant.name, TRUE)


def portions(variants: Iterable[Variant], limit: int, *, whole: bool) -> Iterator[tuple[Variant, ...]]:
    """DLT-21, for heartbeats: of each the whole is said, or only the name."""
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
    """Apart from the rest, since a name may be an error in one form and a resource in the other (ERR-2)."""
    return (Batch(errors={error: None}) for error in errors)


def _filled(units: Iterable[Batch | None], limit: int, *, split_forms: bool) -> Steps[list[Batch]]:
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
