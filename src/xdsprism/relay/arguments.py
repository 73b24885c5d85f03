"""Refuses wrong arguments of a relay as it is made, and says what was expected; a Server checks those that it gets."""

from __future__ import annotations

import os

from ..argument_types import expect_named, expect_strings
from ..errors import UsageError

NONE = type(None)


def check_relay(*, linger: object, max_stale: object, cache: object, group_by: object, **switches: object) -> None:
    """Raise TypeError or UsageError for what a relay can't be made with; `switches` are True or False."""
    for name, seconds in (("linger", linger), ("max_stale", max_stale)):
        expect_named(name, seconds, float)
        if isinstance(seconds, int | float) and not seconds >= 0:
            raise UsageError(f"{name} is a number of seconds, not {seconds!r}")
    expect_named("cache", cache, str, os.PathLike, NONE)
    if group_by is not None:
        expect_strings("group_by", group_by)
    for name, switch in switches.items():
        expect_named(name, switch, bool)
