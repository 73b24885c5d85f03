"""Tabulate which variant of a resource answers which params: the matrix of `xdsprism matrix` and of the dashboard.

Of one key, constraints can tell apart only the values that they mention, any other value, and that the key is absent
(decisions.py). So these choices are the axis of a key, and a table over the axes of all keys says everything that there
is to say about a resource:

    env  tier      a          any other     absent
    prod           first      first         first
    test           second     -             -
    any other      -          -             -
    absent         -          -             -

The number of cells is the product of the lengths of the axes. Where it would exceed MAX_CELLS, the keys that most
constraints mention are tabulated, and each other key is held at one choice: the one that the caller gives, or else
absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .cached import CachedSet
from .constraints import Constraint, Eq, atoms, unpadded
from .decisions import unmentioned
from .steps import EVERY, Steps
from .types import Variant
from .variants import Answer

MAX_CELLS: Final = 2_048
MAX_VALUES: Final = 512  # of one key; further ones are counted


@dataclass(frozen=True, slots=True)
class Axis:
    """The choices that matter for one key: the values that constraints mention, any other value, absent."""

    key: str
    values: tuple[str, ...]  # sorted
    other: str  # stands for any other value: no constraint mentions it
    left_out: int = 0  # values that are mentioned beyond MAX_VALUES

    @property
    def choices(self) -> tuple[str | None, ...]:
        """Return the values to look up, one for each choice; None: the key is absent."""
        return (*self.values, self.other, None)


@dataclass(frozen=True, slots=True)
class Cell:
    """What clients get whose params are those of one combination of choices."""

    variant: Variant | None  # None: the resource does not exist for them, or that is not known
    is_known: bool = True  # False: a relay would have to ask its server


@dataclass(frozen=True, slots=True)
class Matrix:
    """The table of one resource."""

    axes: tuple[Axis, ...]  # of all keys that are mentioned; those that most constraints mention come first
    held: Mapping[str, str | None]  # the keys that are not tabulated, each with its value; None: it is absent
    cells: tuple[Cell, ...]  # in the order of the choices; the choice of the last axis changes fastest

    @property
    def tabulated(self) -> tuple[Axis, ...]:
        """Return the axes of the table."""
        return tuple(axis for axis in self.axes if axis.key not in self.held)


def tabulate(answer: Answer, given: Mapping[str, str]) -> Steps[Matrix]:
    """Make the matrix of a resource, in steps. `given`: the keys to hold, with their values."""
    axes = yield from _axes(answer)
    held: dict[str, str | None] = {axis.key: given[axis.key] for axis in axes if axis.key in given}
    combinations: list[dict[str, str | None]] = [{}]
    for axis in axes:
        choices = axis.choices
        if axis.key in held:
            continue
        if len(combinations) * len(choices) > MAX_CELLS:
            held[axis.key] = None
            continue
        combinations = [{**each, axis.key: choice} for each in combinations for choice in choices]
    cells: list[Cell] = []
    for each in combinations:
        params = {key: value for key, value in {**held, **each}.items() if value is not None}
        variant = answer.select(params)
        cells.append(Cell(variant, variant is not None or answer.knows(params)))
        if len(cells) % EVERY == 0:
            yield
    return Matrix(tuple(axes), held, tuple(cells))


def _axes(answer: Answer) -> Steps[list[Axis]]:
    """Find the choices of each key, in steps. The keys that most constraints mention come first, then by name."""
    values: dict[str, set[str]] = {key: set() for key in answer.keys}
    uses: Counter[str] = Counter()
    for number, constraint in enumerate(_constraints(answer), 1):
        mentioned: set[str] = set()
        for atom in atoms(constraint):
            mentioned.add(atom.key)
            if isinstance(atom, Eq):
                values.setdefault(atom.key, set()).add(atom.value)
        uses.update(mentioned)
        if number % EVERY == 0:
            yield
    return [_axis(key, values[key]) for key in sorted(values, key=lambda key: (-uses[key], key))]


def _constraints(answer: Answer) -> Iterable[Constraint]:
    """Return the constraints as people wrote them. A cache knows absences, too, for which there is no variant."""
    if isinstance(answer, CachedSet):
        return [unpadded(finding.constraint) for finding in answer.findings]
    return [variant.shown for variant in answer.variants]


def _axis(key: str, values: set[str]) -> Axis:
    shown = tuple(sorted(values)[:MAX_VALUES])
    return Axis(key, shown, unmentioned(values), len(values) - len(shown))
