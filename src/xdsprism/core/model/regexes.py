"""Compile regular expressions of others with RE2, whose time is linear in the text."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _re2() -> Any:
    """Return RE2's compile function and error. RE2 is loaded when the first regular expression is compiled."""
    import re2  # noqa: PLC0415

    options = re2.Options()
    options.log_errors = False
    return (lambda pattern: re2.compile(pattern, options)), re2.error


def compile_regex(pattern: str) -> Any:
    """Compile a regular expression. Raises ValueError, which says why RE2 does not accept it."""
    compile_pattern, error = _re2()
    try:
        return compile_pattern(pattern)
    except error as reason:
        text = reason.args[0] if reason.args else ""
        shown = text.decode(errors="replace") if isinstance(text, bytes) else text
        raise ValueError(f"{pattern!r} is not a regular expression that RE2 accepts: {shown}") from None
