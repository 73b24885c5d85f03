"""Escapes what peers and authors sent, for logs and terminals: no text can begin a new line or control a terminal.

Names, errors and metadata are of others. An escape sequence in them could rename a window, hide lines, or on some
terminals type commands. A direction mark makes a text look like another one.
"""

from __future__ import annotations

_C1 = (127, *range(128, 160))
# Line separators, direction marks and surrogates, which are no control characters.
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000))
_ESCAPED = {code: f"\\u{code:04x}" for code in _DIRECTIONS}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *_C1)} | {10: "\\n", 13: "\\r", 9: "\\t"} | _ESCAPED
_IN_LINES = {code: text for code, text in _CONTROL.items() if code != 10}
_IN_JSON = {code: f"\\u{code:04x}" for code in _C1} | _ESCAPED  # the json module escapes all others


def printable(text: str) -> str:
    """Return the text as one line, with its control characters escaped."""
    return text.translate(_CONTROL)


def printable_lines(text: str) -> str:
    """Do the same for a text of our own that may have several lines."""
    return text.translate(_IN_LINES)


def printable_json(text: str) -> str:
    """Escape what `json.dumps` leaves as it is; the result means the same."""
    return text.translate(_IN_JSON)
