"""Reads YAML into plain Python values: scalars of YAML 1.2, no duplicate keys, no custom tags, a line for every node.

PyYAML's own constructors turn `no` into False and `010` into 8, and keep the last of two equal keys. This module
builds the values from the events of libyaml instead, which is also faster than composing nodes first. It knows one
tag, and gives it the meaning that it has for Envoy: a key tagged `!ignore` is dropped with its value. Authors put
values there that they refer to by anchors.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from ..messages.document import MAX_DEPTH, MAX_NODES, AmbiguousScalar, Document, LineNumbers, MalformedError

# The "billion laughs" attack: nine lines of anchors can expand to 10^9 nodes. Each alias counts as what it expands to.
MAX_ALIASED_NODES = 1_000_000

MAX_DOCUMENTS = 1_000_000  # of one file: a document of four bytes takes some hundred in memory

_CORE = "tag:yaml.org,2002:"
_TAGS = frozenset({"binary", "map", "merge", "omap", "pairs", "seq", "set", "timestamp", "value", "yaml"})
_IGNORE = "!ignore"


class Chunk(NamedTuple):
    """The text of one document, and the line of the file that it starts on."""

    text: str
    line: int


_BOUNDARY = re.compile(r"^(?:---(?=[ \t\r\n]|\Z)|\.\.\.[ \t]*(?:#[^\n]*)?\r?(?:\n|\Z))", re.MULTILINE)
_PROLOGUE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n|%[^\n]*\n|[ \t]*(?:#[^\n]*)?\Z)*")


def split(text: str) -> list[Chunk]:
    """Split a file into its documents, so that each can be hashed and parsed alone.

    A line that starts with `---` is a document marker even inside a scalar (YAML 1.2.2, 9.1.2). Comments and
    directives before a document stay with it. Raises MalformedError if there are too many.
    """
    cuts = {0, len(text)}
    for match in _BOUNDARY.finditer(text):
        if len(cuts) > MAX_DOCUMENTS:
            line = text.count("\n", 0, match.start()) + 1
            raise MalformedError(f"the file has more than {MAX_DOCUMENTS:,} documents: split it into several", line)
        cuts.add(match.start() if match[0] == "---" else match.end())
    places = sorted(cuts)
    chunks: list[Chunk] = []
    line, begin = 1, 0
    for end in places[1:]:
        piece = text[begin:end]
        if end != len(text) and _PROLOGUE.fullmatch(piece):
            continue
        chunks.append(Chunk(piece, line))
        line += piece.count("\n")
        begin = end
    return chunks


def load(chunk: Chunk) -> list[Document]:
    """Read the documents of one chunk: one, or none if it holds only comments. Raises MalformedError."""
    try:
        return list(_documents(yaml.CSafeLoader(chunk.text).get_event, chunk.line))
    except yaml.MarkedYAMLError as error:
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise MalformedError(f"not valid YAML: {reason}", _line(chunk, error)) from None
    except yaml.reader.ReaderError as error:
        before = chunk.text.encode()[: error.position]
        reason = f"the character #x{ord(error.character) if isinstance(error.character, str) else error.character:x}"
        raise MalformedError(f"not valid YAML: {reason} is not allowed", chunk.line + before.count(b"\n")) from None


def _line(chunk: Chunk, error: yaml.MarkedYAMLError) -> int:
    """Return the line of an error. In a text that ends too early it is where the unfinished construct begins."""
    lines = [mark.line for mark in (error.problem_mark, error.context_mark) if mark is not None]
    last = chunk.text.rstrip().count("\n")
    return chunk.line + next((line for line in lines if line <= last), last)


def _documents(following: Callable[[], Any], first_line: int) -> Iterator[Document]:
    while (event := following()).__class__ is not StreamEndEvent:
        if event.__class__ is DocumentStartEvent:
            builder = _Builder(following, first_line)
            start = following()
            root = builder.node(start, 0)
            if root is not None:
                yield Document(root, first_line + start.start_mark.line, builder.marks)


class _Anchor(NamedTuple):
    """A value with an anchor, how many nodes it expands to, and how deeply they are nested."""

    value: object
    nodes: int
    height: int


class _Builder:
    """Turns libyaml's events into values. It recurses into containers; MAX_DEPTH bounds the recursion."""

    def __init__(self, following: Callable[[], Any], first_line: int) -> None:
        self.marks: LineNumbers = {}
        self._following = following  # returns the next event
        self._first = first_line
        self._anchors: dict[str, _Anchor | None] = {}
        self._nodes = 0  # nodes so far; an alias counts as the nodes that it expands to
        self._aliased = 0  # those of them that came from aliases
        self._deepest = 0

    def node(self, event: Any, depth: int) -> object:
        """Build the value that an event begins."""
        kind = event.__class__
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._fault(event, f"the document has more than {MAX_NODES:,} nodes: split it into several")
        if kind is AliasEvent:
            return self._alias(event, depth)
        if event.anchor:
            return self._anchored(event, depth)
        if kind is ScalarEvent:
            return self._scalar(event)
        return self._container(event, depth)

    def _anchored(self, event: Any, depth: int) -> object:
        """Build a value that has an anchor, and measure it for the aliases that refer to it."""
        name, event.anchor = event.anchor, None
        self._anchors[name] = None  # until the value is complete: an alias to it from inside would never end
        nodes, deepest = self._nodes, self._deepest
        self._deepest = depth
        self._nodes -= 1
        value = self.node(event, depth)
        self._anchors[name] = _Anchor(value, self._nodes - nodes + 1, self._deepest - depth)
        self._deepest = max(deepest, self._deepest)
        return value

    def _alias(self, event: Any, depth: int) -> object:
        """Return the value of an anchor, and count the nodes that it expands to."""
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            inside = event.anchor in self._anchors
            why = "contains itself" if inside else "has no anchor above it"  # OPS-14: the name may be a password
            raise self._fault(event, f"the alias after * {why}; quote a text that begins with *")
        self._nodes += anchor.nodes - 1
        self._aliased += anchor.nodes
        if self._aliased > MAX_ALIASED_NODES:
            raise self._fault(event, f"aliases expand to more than {MAX_ALIASED_NODES:,} nodes")
        self._reach(event, depth + anchor.height)
        return anchor.value

    def _reach(self, event: Any, depth: int) -> None:
        """Check the depth of a node."""
        if depth > MAX_DEPTH:
            raise self._fault(event, f"nested deeper than {MAX_DEPTH} levels")
        self._deepest = max(depth, self._deepest)

    def _container(self, event: Any, depth: int) -> object:
        self._reach(event, depth + 1)
        sequence = event.__class__ is SequenceStartEvent
        if event.tag not in (None, "!", _CORE + ("seq" if sequence else "map")):
            raise self._fault(event, _unsupported(event.tag))
        return self._sequence(depth + 1) if sequence else self._mapping(depth + 1)

    def _sequence(self, depth: int) -> list[object]:
        items: list[object] = []
        lines = array("L")
        while (event := self._following()).__class__ is not SequenceEndEvent:
            lines.append(self._first + event.start_mark.line)
            items.append(self.node(event, depth))
        self.marks[id(items)] = lines
        return items

    def _mapping(self, depth: int) -> dict[object, object]:
        """Build a mapping; `<<` merges other mappings into it."""
        items: dict[object, object] = {}
        lines = array("L")
        merges: list[tuple[Any, object]] = []
        while (event := self._following()).__class__ is not MappingEndEvent:
            if event.__class__ is ScalarEvent and event.value == "<<" and event.implicit[0]:
                merges.append((event, self.node(self._following(), depth)))
                continue
            if event.__class__ is ScalarEvent and event.tag == _IGNORE:
                self.node(self._following(), depth)
                continue
            key = self._key(event, depth)
            if key in items:
                first = lines[list(items).index(key)]
                raise self._fault(event, f"duplicate key {event.value!r}, first on line {first}")
            lines.append(self._first + event.start_mark.line)
            items[key] = self.node(self._following(), depth)
        for event, source in merges:
            self._merge(event, source, items, lines)
        self.marks[id(items)] = lines
        return items

    def _key(self, event: Any, depth: int) -> object:
        key = self.node(event, depth)
        if isinstance(key, (dict, list)):
            raise self._fault(event, "a mapping or list can't be a key")
        return key

    def _merge(self, event: Any, source: object, items: dict[object, object], lines: array[int]) -> None:
        for mapping in source if isinstance(source, list) else [source]:
            if not isinstance(mapping, dict):
                raise self._fault(event, "<< needs a mapping or a list of mappings")
            # A key of the mapping itself wins over a merged one, and an earlier merged mapping over a later one.
            for (key, value), line in zip(mapping.items(), self.marks[id(mapping)], strict=True):
                if key not in items:
                    items[key] = value
                    lines.append(line)

    def _scalar(self, event: Any) -> object:
        tag = event.tag
        try:
            if tag is None:
                return plain(event.value) if event.implicit[0] else event.value
            return self._tagged(event, tag)
        except _AmbiguousOctalError as reason:
            raise self._fault(event, str(reason)) from None

    def _tagged(self, event: Any, tag: str) -> object:
        """Build a scalar with an explicit tag."""
        if tag in ("!", _CORE + "str"):
            return event.value
        value: Any = plain(event.value)
        match tag.removeprefix(_CORE), value:
            case ("null", None) | ("bool", bool()):
                return value
            case ("int", int()) | ("float", float() | int()) if not isinstance(value, bool):
                return float(value) if tag.endswith("float") else value
            case ("null" | "bool" | "int" | "float") as kind, _:
                raise self._fault(event, f"the value does not fit its tag, {kind}")
            case _:
                raise self._fault(event, _unsupported(tag))

    def _fault(self, event: Any, message: str) -> MalformedError:
        return MalformedError(message, self._first + event.start_mark.line)


_KEYWORDS: dict[str, object] = {"": None, "~": None, ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan")}
for _word, _value in (("null", None), ("true", True), ("false", False)):
    _KEYWORDS |= {_word: _value, _word.title(): _value, _word.upper(): _value}
for _word in (".inf", ".Inf", ".INF"):
    _KEYWORDS |= {_word: float("inf"), "+" + _word: float("inf"), "-" + _word: float("-inf")}

# YAML 1.2.2, 10.3.2: the core schema. `010` is ten in it, but Envoy reads eight: see `_integer`.
_INTEGER = re.compile(r"[-+]?[0-9]+|0o(?P<octal>[0-7]+)|0x(?P<hex>[0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-7]+")
_MAX_DIGITS = 40  # no proto field holds more digits, and Python's int() is slow and limited for long texts
_YAML_1_1 = yaml.SafeLoader.yaml_implicit_resolvers  # patterns of scalars that are no strings, by first character
_FIRST = frozenset("-+.0123456789~nNtTfF") | {first for first in _YAML_1_1 if first}


def plain(text: str) -> object:
    """Resolve a scalar without quotes as the core schema of YAML 1.2 does."""
    if text and text[0] not in _FIRST:  # no special value begins with this character
        return text
    return _resolve(text)


class _AmbiguousOctalError(ValueError):
    """A number that YAML 1.2 and Envoy read differently."""


def _integer(text: str) -> int:
    """Read a decimal number, but refuse one with a leading zero if Envoy would read another number."""
    number = int(text)
    if _LEADING_ZERO.fullmatch(text) and (octal := int(text, 8)) != number:
        both = f"{number} by YAML 1.2, and {octal} to Envoy, which reads a number with a leading zero as octal"
        raise _AmbiguousOctalError(f"{text} is {both}: write {number} or {octal}, or quote it")
    return number


@lru_cache(maxsize=4096)
def _resolve(text: str) -> object:
    """Resolve a plain scalar: a keyword, a number, an ambiguous scalar or a string."""
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    if (match := _INTEGER.fullmatch(text)) and len(text) <= _MAX_DIGITS:
        if match["octal"]:
            return int(match["octal"], 8)
        return int(match["hex"], 16) if match["hex"] else _integer(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if any(pattern.match(text) for _, pattern in _YAML_1_1.get(text[0], ())) or text in ("y", "Y", "n", "N"):
        return AmbiguousScalar(text)
    return text


def _unsupported(tag: str) -> str:
    """Say that a tag can't be used. OPS-14: only tags of YAML are named, as others may be a password without quotes."""
    name = tag.removeprefix(_CORE)
    named = f" !!{name}" if name != tag and name in _TAGS else ""
    return f"the tag{named} is not supported; quote a text that begins with !"
