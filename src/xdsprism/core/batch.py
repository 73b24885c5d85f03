"""What one look at the store found to say, and how it is taken apart where it can't be said in one response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .events import Absence, ResourceError
from .types import Variant

ABOUT = 256  # bytes that a name with constraints, or an error, takes; roughly


@dataclass(slots=True)
class Batch:
    """Dictionaries keep the order and drop what is there twice (SRV-19)."""

    plain: dict[str, Variant] = field(default_factory=dict)
    located: dict[Variant, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    withdrawn: dict[Absence, None] = field(default_factory=dict)
    errors: dict[ResourceError, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.plain or self.located or self.removed or self.withdrawn or self.errors)

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (*self.plain.values(), *self.located)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        bodies = sum(variant.size for variant in self.variants)
        return bodies + sum(map(_length, self.removed)) + ABOUT * (len(self.withdrawn) + len(self.errors))

    @property
    def mixed(self) -> bool:
        """DYN-15: whether a name is spoken of in both forms."""
        if not (self.located or self.withdrawn) or not (self.plain or self.removed):
            return False
        names = {variant.name for variant in self.located}.union(absence.name for absence in self.withdrawn)
        return not (names.isdisjoint(self.plain) and names.isdisjoint(self.removed))

    def join(self, other: Batch) -> None:
        self.plain.update(other.plain)
        self.located.update(other.located)
        self.removed.update(other.removed)
        self.withdrawn.update(other.withdrawn)
        self.errors.update(other.errors)

    def reconcile(self) -> None:
        """DLT-19: what one subscription let go and another has just got (an alias moved) is not removed."""
        for name in self.plain if self.removed else ():
            self.removed.pop(name, None)
        for variant in self.located if self.withdrawn else ():
            self.withdrawn.pop(Absence(variant.name, variant.constraint), None)

    def parts(self, limit: int) -> list[Batch]:
        """Responses that say the same together. DLT-21: none is larger than `limit`, and each is valid alone.

        A single resource above the limit is not for here: there is no way to split it.
        """
        if not self.mixed and self.size <= limit:
            return [self]
        plain = Batch(self.plain, removed=self.removed)
        located = Batch(located=self.located, withdrawn=self.withdrawn)
        forms = ((unit for form in (plain, located) for unit in form._units(limit)), _errors(self.errors))
        return [part for units in forms for part in _filled(units, limit, split_forms=self.mixed)]

    def _units(self, limit: int) -> Iterator[Batch]:
        """The smallest responses that this one can be taken apart into."""
        alone, gone = self.alone()
        for unit in alone.values():
            yield from unit._singles() if unit.size > limit else [unit]
        yield from (Batch(removed={name: None}) for name in gone.removed)
        yield from (Batch(withdrawn={absence: None}) for absence in gone.withdrawn)

    def alone(self) -> tuple[dict[tuple[bool, str], Batch], Batch]:
        """Each resource by itself, by form and name, and what only goes away.

        DYN-24: a variant and the one that it replaces stay together, which goes by their name.
        """
        units = {(False, name): Batch(plain={name: variant}) for name, variant in self.plain.items()}
        for variant in self.located:
            units.setdefault((True, variant.name), Batch()).located[variant] = None
        gone = Batch(removed=self.removed)
        for absence in self.withdrawn:
            units.get((True, absence.name), gone).withdrawn[absence] = None
        return units, gone

    def _singles(self) -> Iterator[Batch]:
        """Several variants of one name that are too large together: what they replace goes with the first."""
        withdrawn = self.withdrawn
        for variant in self.located:
            yield Batch(located={variant: None}, withdrawn=withdrawn)
            withdrawn = {}


def _errors(errors: Iterable[ResourceError]) -> Iterator[Batch]:
    """Apart from the rest, since a name may be an error in one form and a resource in the other (ERR-2)."""
    return (Batch(errors={error: None}) for error in errors)


def _filled(units: Iterable[Batch], limit: int, *, split_forms: bool) -> list[Batch]:
    parts: list[Batch] = []
    filled = 0
    form = False
    for unit in units:
        size = unit.size
        located = bool(unit.located or unit.withdrawn)
        if not parts or filled + size > limit or (split_forms and located != form):
            parts.append(Batch())
            filled = 0
        form = located
        parts[-1].join(unit)
        filled += size
    return parts


def _length(name: str) -> int:
    return len(name) + 4
