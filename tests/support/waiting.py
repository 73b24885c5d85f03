"""Waiting for an event, with a deadline. Nothing here sleeps for luck: a wait ends when the event is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""How long an event may take on a slow machine. Generous: only a failing test ever waits this long."""

_STEP = 0.05


def eventually(look: Callable[[], T], accept: Callable[[T], object] = bool, *, within: float = PATIENCE) -> T:
    """Look again and again until what is seen is accepted, and return it.

    A network error counts as "not yet". The message of the failure says what was seen last.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            seen = look()
        except OSError as error:
            last = repr(error)
        else:
            if accept(seen):
                return seen
            last = repr(seen)
        if time.monotonic() > deadline:
            message = f"not there after {within:g} s; last seen: {last[:2000]}"
            raise AssertionError(message)
        time.sleep(_STEP)


def becomes(look: Callable[[], T], expected: T, *, within: float = PATIENCE) -> None:
    """Wait until what is seen equals the expected value."""
    try:
        eventually(look, lambda seen: seen == expected, within=within)
    except AssertionError as error:
        message = f"expected {expected!r}: {error}"
        raise AssertionError(message) from None
