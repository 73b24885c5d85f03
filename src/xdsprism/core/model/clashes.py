"""Say what is wrong with variants that overlap, where they are, and what to write instead.

Often one of them is meant for the clients that the others leave, or a resource was written twice: the text says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...errors import Problem
from .constraints import FALSE, TRUE
from .expr import show
from .types import Origin, Variant
from .variants import Clash, complement

_LONGEST: Final = 300  # characters of a constraint that an advice has
_SPECIAL: Final = frozenset("\\\"'#:,[]{}&*@`%|>")  # what may mean something else to YAML


def problem_at(message: str, origin: Origin | None) -> Problem:
    """Make a problem that points to the file and line of the variant, if they are known."""
    return Problem(message, origin.file, origin.line) if origin is not None else Problem(message)


def clash_problem(what: str, clash: Clash, given: Mapping[Variant, Variant], wanted: Sequence[Variant]) -> Problem:
    """DYN-37: name both variants of a clash, the places where the new configuration has them, and a witness.

    `what`: the resource. `given`: the variants of the new configuration that stand for those of the clash, if others
    do. `wanted`: all variants of the resource.
    """
    first, second = given.get(clash.first, clash.first), given.get(clash.second, clash.second)
    if first.stated == second.stated == TRUE and first.origin is not None and second.origin is not None:
        message = f"{what} is defined in {first.origin} and {second.origin}: {clash.message}"
        return problem_at(f"{message}; keep one, or say with `$when` which clients get which", first.origin)
    if second.stated == TRUE and second.origin is not None:
        first, second = second, first
    other = f" (the other is at {second.origin})" if second.origin is not None else ""
    advice = _advice(wanted) if first.stated == TRUE and first.origin is not None else ""
    return problem_at(f"{what}: {clash.message}{other}{advice}", first.origin)


def _advice(variants: Sequence[Variant]) -> str:
    """Say what to add to a variant that is for every client, so that it is for the clients that the others leave."""
    rest = complement([each for each in variants if each.stated != TRUE])
    if rest == FALSE:
        return "; remove this one: every client has one of the others"
    text = show(rest) if rest is not None else ""
    return f"; add `$when: {_yaml(text)}` here" if 0 < len(text) <= _LONGEST else ""


def _yaml(text: str) -> str:
    """Return an expression as YAML takes it: in single quotes if it has a character that YAML may take otherwise."""
    return text if _SPECIAL.isdisjoint(text) else "'" + text.replace("'", "''") + "'"
