"""How many examples a property gets, in the profiles of hypothesis that tests/conftest.py has."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100  # what hypothesis makes where neither a profile nor a test says how many


def examples(number: int) -> int:
    """So many in the usual profile, and more in one that asks for more than usual, in proportion.

    A plain `max_examples=number` would keep `HYPOTHESIS_PROFILE=explore` from exploring.
    """
    return number * settings.default.max_examples // USUAL
