"""Refuses wrong arguments of a client as it is made or asked, and says what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..argument_types import expect_named, expect_string_map, expect_strings
from ..core.model.types import Params
from ..errors import UsageError

NONE = type(None)


def check_client(*, delta: object, transport: object, max_message_bytes: object, **switches: object) -> None:
    """Raise TypeError or UsageError for what a client can't be made with; `switches` are True, False or None."""
    if transport not in ("auto", "v2", "v3"):
        raise UsageError(f"transport is auto, v2 or v3, not {transport!r}")
    for name, switch in {"delta": delta, **switches}.items():
        expect_named(name, switch, bool, NONE)
    expect_named("max_message_bytes", max_message_bytes, int)
    if isinstance(max_message_bytes, int) and max_message_bytes <= 0:
        raise UsageError(f"max_message_bytes is a number above 0, not {max_message_bytes!r}")


def names_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return one name, or several, as a tuple. Raise TypeError or UsageError."""
    listed = (names,) if isinstance(names, str) else expect_strings("names", names)
    if not listed:
        raise UsageError("watch at least one name, or all of them by '*'")
    return listed


def params_of(params: Mapping[str, str] | None) -> Params | None:
    """Return the params of a subscription; None: those of the bootstrap. Raise TypeError."""
    return Params(expect_string_map("params", params)) if params is not None else None
