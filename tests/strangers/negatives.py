"""Negative answers for a locator, in every form that the documents allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from random import Random

from tests.strangers.shapes import TRUE, VALUES, Shape, no, pinned, region, reworded
from tests.strangers.upstream import Offer, everywhere

# Those of delta, and of SotW. Silence: nothing is sent. Omission: a full state comes without it.
DELTA = ("bare", "pinned", "wider", "removed", "error", "pinned-error", "wider-error", "silence")
SOTW = ("error", "pinned-error", "wider-error", "omission", "silence")


@dataclass(frozen=True)
class Negative:
    """One such answer. Without a shape it is about whoever asked; with one, about all whom that matches."""

    field: str  # "names": removed_resource_names, "removed": removed_resources, "errors": resource_errors
    shape: Shape | None = None


def negative(kind: str, params: Mapping[str, str], offers: tuple[Offer, ...], random: Random) -> Negative | None:
    """None: not a word."""
    way, _, error = kind.rpartition("-")
    match kind:
        case "silence" | "omission":
            return None
        case "bare":
            return Negative("names")
        case "removed":
            return Negative("removed")
        case "error":
            return Negative("errors")
    way = way if error == "error" else kind
    shape = pinned(params) if way == "pinned" else _wider(params, offers, random)
    return Negative("errors" if error == "error" else "names", shape)


def is_true_still(shape: Shape, offers: tuple[Offer, ...]) -> bool:
    """Whether there is still nothing for all those of whom that was said."""
    return not region(shape) & region(everywhere(offers))


def _wider(params: Mapping[str, str], offers: tuple[Offer, ...], random: Random) -> Shape:
    """For more than those who asked; for nobody who has something."""
    taken = region(everywhere(offers))
    found: list[Shape] = [] if offers else [TRUE]
    found += [no(everywhere(offers))] if offers else []
    for size in range(len(VALUES)):
        for keys in combinations(VALUES, size):
            shape = pinned(params, keys)
            if keys and not region(shape) & taken:
                found.append(shape)
    return reworded(random.choice(found), random, times=1)
