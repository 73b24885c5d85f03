"""Refuse arguments of a wrong type in the words of compiled code, so that both builds say the same.

A compiled function checks the types of its arguments before its first line. These functions do it for the interpreted
one, where programs call the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

PLAIN = {"str": str, "int": int, "float": float, "bool": bool, "TypeUrl": str}


def expect(value: object, *kinds: type) -> None:
    """Raise TypeError unless the value is of one of these types. An int is a float, too."""
    if isinstance(value, kinds) or (float in kinds and isinstance(value, int)):
        return
    names = " or ".join("None" if kind is type(None) else _named(kind) for kind in kinds)
    raise TypeError(f"{names} object expected; got {_named(type(value))}")


def expect_fields(made: Any, **kinds: type) -> None:
    """Raise TypeError unless each field of a dataclass that is a plain type, or one of `kinds`, has that type.

    A float that was given as an int becomes one, as in compiled code.
    """
    for field in fields(made):
        plain, _, rest = str(field.type).partition(" | ")
        kind = kinds.get(field.name) or (PLAIN.get(plain) if rest in {"", "None"} else None)
        if kind is None:
            continue
        value = getattr(made, field.name)
        if rest:
            expect(value, kind, type(None))
        else:
            expect(value, kind)
        if kind is float and isinstance(value, int):
            object.__setattr__(made, field.name, float(value))


def _named(kind: type) -> str:
    """Name a type: with its module, unless it is Python's own."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def expect_named(name: str, value: object, *kinds: type) -> None:
    """Do the same as `expect`, and name the argument in the error: for what no compiled code checks."""
    try:
        expect(value, *kinds)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def expect_strings(name: str, values: object) -> tuple[str, ...]:
    """Return an iterable of strings as a tuple, without repetitions. Raise TypeError for anything else, as a string."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: a list of str objects expected; got {_named(type(values))}")
    found = [*values]
    for each in found:
        expect_named(name, each, str)
    return tuple(dict.fromkeys(found))


def expect_string_map(name: str, values: object) -> dict[str, str]:
    """Return a mapping of strings to strings as a dict. Raise TypeError for anything else."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name}: a mapping of str to str expected; got {_named(type(values))}")
    found = dict(values)
    for key, value in found.items():
        expect_named(f"a key of {name}", key, str)
        expect_named(f"{name}[{key!r}]", value, str)
    return found
