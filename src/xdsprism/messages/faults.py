"""Defines a fault in a message or document: the path of a field, and a text that says what is wrong with its value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.model.truncation import NAME_BYTES, bounded
from .document import Path

Fault = tuple[Path, str]
Faults = list[Fault]

# Checks a value and appends its faults, with paths that begin at the value. The caller prefixes the step to the value.
Check = Callable[[Any, Faults], None]


def prefix(faults: Faults, start: int, step: str | int) -> None:
    """Prefix the paths of the faults from index `start` on with one more step."""
    faults[start:] = [((step, *path), message) for path, message in faults[start:]]


def refuse(faults: Faults, message: str) -> Any:
    """Append a fault of the value itself, and return None as the result of the conversion."""
    faults.append(((), message))
    return None


def kind_of(value: object) -> str:
    """Describe a value for an author of YAML: `the string x`, `a mapping`."""
    names = {dict: "a mapping", list: "a list", type(None): "null", str: "the string", bool: "the boolean"}
    name = names.get(type(value), "the string" if isinstance(value, str) else "the number")
    if isinstance(value, bool):
        return f"{name} {str(value).lower()}"
    return name if isinstance(value, (dict, list, type(None))) else f"{name} {bounded(str(value), NAME_BYTES)}"


def each_item(check: Check) -> Check:
    """Turn a check of an element into a check of a list."""

    def check_items(values: Any, faults: Faults) -> None:
        for index, value in enumerate(values):
            count = len(faults)
            check(value, faults)
            if len(faults) > count:
                prefix(faults, count, index)

    return check_items


def all_of(checks: Sequence[Check]) -> Check:
    """Combine several checks into one."""
    if len(checks) == 1:
        return checks[0]

    def check_all(value: Any, faults: Faults) -> None:
        for each in checks:
            each(value, faults)

    return check_all
