"""What is wrong with a message or a document: the path of each field, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .document import Path

Fault = tuple[Path, str]
Faults = list[Fault]

# Looks at a value, and appends what is wrong with it; the caller puts its own step before the paths.
Check = Callable[[Any, Faults], None]


def prefix(faults: Faults, start: int, step: str | int) -> None:
    """Put one more step before the paths of the faults from `start` on."""
    faults[start:] = [((step, *path), message) for path, message in faults[start:]]


def refuse(faults: Faults, message: str) -> Any:
    """Append a fault of the value itself; there is no result."""
    faults.append(((), message))
    return None


def kind_of(value: object) -> str:
    """Name what a value is in the words of somebody who writes YAML."""
    names = {dict: "a mapping", list: "a list", type(None): "null", str: "the string", bool: "the boolean"}
    name = names.get(type(value), "the string" if isinstance(value, str) else "the number")
    if isinstance(value, bool):
        return f"{name} {str(value).lower()}"
    return name if isinstance(value, (dict, list, type(None))) else f"{name} {value}"


def each_item(check: Check) -> Check:
    """Check every element of a list."""

    def check_items(values: Any, faults: Faults) -> None:
        for index, value in enumerate(values):
            count = len(faults)
            check(value, faults)
            if len(faults) > count:
                prefix(faults, count, index)

    return check_items


def all_of(checks: Sequence[Check]) -> Check:
    """Make one check of several."""
    if len(checks) == 1:
        return checks[0]

    def check_all(value: Any, faults: Faults) -> None:
        for each in checks:
            each(value, faults)

    return check_all
