"""Defines what a YAML or JSON document is read into: plain Python values, with the line number of each."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

Path = tuple[str | int, ...]

# Templates, conversion and rules recurse into a document, so the readers bound its depth. protobuf's own parsers stop
# at 100 too.
MAX_DEPTH = 100

# The readers bound the memory of a document, too: a node of two bytes takes some hundred in memory.
MAX_NODES = 10_000_000


class AmbiguousScalar(str):
    """A plain scalar that YAML 1.2 reads as a string, and YAML 1.1 as a boolean, a number or a date: `no`, `1:30`.

    Most fields accept it as a string. The key or value of a parameter does not: the author may have meant either.
    """

    __slots__ = ()


class MalformedError(Exception):
    """The text is not valid YAML or JSON."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


# The line of each entry of a list or mapping, in their order, by the id() of the container. Arrays save memory: a
# document with ten thousand resources has a million entries.
LineNumbers = dict[int, "array[int]"]


class Document:
    """One document. `root` is made of dict, list, str, int, float, bool and None."""

    __slots__ = ("_marks", "line", "root")

    def __init__(self, root: object, line: int, marks: LineNumbers) -> None:
        self.root = root
        self.line = line
        self._marks = marks  # `root` keeps the containers, and so their ids, alive

    def line_of(self, path: Path) -> int:
        """Return the line of the value at `path`, or of its nearest ancestor that the document contains."""
        line = self.line
        node: Any = self.root
        for step in path:
            if isinstance(node, dict) and isinstance(step, str) and (key := spelling(node, step)) in node:
                index, inner = list(node).index(key), node[key]
            elif isinstance(node, list) and isinstance(step, int) and step < len(node):
                index, inner = step, node[step]
            elif step == 0 and not isinstance(node, list):  # the only element, written without a list
                continue
            else:  # a field that is missing, or a path that goes on below a value
                break
            line, node = self._marks[id(node)][index], inner
        return line


def spelling(node: Mapping[str, object], field: str) -> str:
    """Return how the author spelled a field: proto3 JSON allows `connect_timeout` and `connectTimeout`."""
    return field if field in node else camel(field)


def camel(field: str) -> str:
    """Return the JSON name of a field: `connect_timeout` gives `connectTimeout`."""
    head, *rest = field.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)
