"""Reads JSON into plain Python values. Unlike the standard library, it refuses duplicate keys and keeps line numbers.

JSON is nearly a subset of YAML, but libyaml can't read all of it: it lacks surrogate pairs and limits keys to 1,024
characters.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right

from ..messages.document import MAX_DEPTH, MAX_NODES, Document, LineNumbers, MalformedError

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][-+]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DIGITS = 40
_DECODER = json.JSONDecoder()
_CONSTANTS = (("true", True), ("false", False), ("null", None))


def load(text: str) -> list[Document]:
    """Read a file that holds one JSON value. Raises MalformedError."""
    reader = _Reader(text)
    try:
        return reader.documents()
    except json.JSONDecodeError as error:
        raise MalformedError(f"not valid JSON: {error.msg}", error.lineno) from None


class _Reader:
    """A recursive descent parser; MAX_DEPTH bounds the recursion. Each method takes and returns an offset."""

    def __init__(self, text: str) -> None:
        self._text = text
        found = (match.start() for match in re.finditer("\n", text))
        self._newlines = array("I", found)  # a list would take ten times as much
        self._nodes = 0
        self._marks: LineNumbers = {}

    def documents(self) -> list[Document]:
        start = self._skip(0)
        if start == len(self._text):
            return []
        root, end = self._value(start, 0)
        if self._skip(end) != len(self._text):
            raise self._fault("more text after the value", self._skip(end))
        return [Document(root, self._line(start), self._marks)]

    def _value(self, start: int, depth: int) -> tuple[object, int]:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"the document has more than {MAX_NODES:,} nodes: split it into several"
            raise MalformedError(message, self._line(start))
        first = self._text[start : start + 1]
        if first == '"':
            return self._string(start)
        if first in ("{", "[") and first:
            if depth == MAX_DEPTH:
                raise MalformedError(f"nested deeper than {MAX_DEPTH} levels", self._line(start))
            return (self._object if first == "{" else self._array)(start + 1, depth + 1)
        for word, value in _CONSTANTS:
            if self._text.startswith(word, start):
                return value, start + len(word)
        return self._number(start)

    def _string(self, start: int) -> tuple[str, int]:
        value, end = _DECODER.raw_decode(self._text, start)
        if _SURROGATE.search(value):
            raise self._fault("half of a surrogate pair", start)
        return value, end

    def _number(self, start: int) -> tuple[object, int]:
        match = _NUMBER.match(self._text, start)
        if match is None:
            raise self._fault("expected a value", start)
        exact = not match["fraction"] and not match["exponent"] and len(match[0]) <= _MAX_DIGITS
        return (int if exact else float)(match[0]), match.end()

    def _array(self, at: int, depth: int) -> tuple[list[object], int]:
        items: list[object] = []
        lines = array("L")
        self._marks[id(items)] = lines
        at = self._skip(at)
        if self._text.startswith("]", at):
            return items, at + 1
        while True:
            at = self._skip(at)
            lines.append(self._line(at))
            value, at = self._value(at, depth)
            items.append(value)
            at, done = self._separator(at, "]")
            if done:
                return items, at

    def _object(self, at: int, depth: int) -> tuple[dict[str, object], int]:
        items: dict[str, object] = {}
        lines = array("L")
        self._marks[id(items)] = lines
        at = self._skip(at)
        if self._text.startswith("}", at):
            return items, at + 1
        while True:
            key, at = self._member_key(self._skip(at), items, lines)
            items[key], at = self._value(self._skip(at), depth)
            at, done = self._separator(at, "}")
            if done:
                return items, at

    def _member_key(self, at: int, items: dict[str, object], lines: array[int]) -> tuple[str, int]:
        if not self._text.startswith('"', at):
            raise self._fault("expected a key in double quotes", at)
        key, after = self._string(at)
        if key in items:
            first = lines[list(items).index(key)]
            raise MalformedError(f"duplicate key {key!r}, first on line {first}", self._line(at))
        lines.append(self._line(at))
        after = self._skip(after)
        if not self._text.startswith(":", after):
            raise self._fault("expected ':'", after)
        return key, after + 1

    def _separator(self, at: int, closing: str) -> tuple[int, bool]:
        at = self._skip(at)
        found = self._text[at : at + 1]
        if found not in (",", closing):
            raise self._fault(f"expected ',' or '{closing}'", at)
        return at + 1, found == closing

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def _line(self, at: int) -> int:
        return bisect_right(self._newlines, at - 1) + 1

    def _fault(self, message: str, at: int) -> MalformedError:
        return MalformedError(f"not valid JSON: {message}", self._line(at))
