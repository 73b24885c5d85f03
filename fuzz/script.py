"""Reads an input as instructions, so that chance is spent on what is said and not on the form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# Texts that are neither short nor harmless.
TEXTS = (
    "",
    "a",
    "b",
    "*",
    "env",
    "prod",
    "a/b",
    "ü",
    "\U0001f600",
    "x" * 300,
    'q"\\',
    "\n",
    "true",
    "a b",
    "\x00",
    "é/",
    "-",
)


class Script:
    """Bytes that are read as numbers, choices and texts; past the end all of them are 0."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def choice(self, things: Sequence[T]) -> T:
        return things[self.byte() % len(things)]

    def raw(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> bytes:
        at, self._at = self._at, len(self._data)
        return self._data[at:]

    def text(self) -> str:
        """One of TEXTS, or up to 15 bytes as a text."""
        kind = self.byte()
        if kind < 0xF0:
            return TEXTS[kind % len(TEXTS)]
        return self.raw(kind & 15).decode("utf-8", "replace")
