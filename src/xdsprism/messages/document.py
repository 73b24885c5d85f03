"""What a YAML or JSON document becomes: plain Python values, and the line that each of them stands on."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

Path = tuple[str | int, ...]

# What follows a document is recursive (templates, conversion, rules), so its depth is bounded here, once.
# protobuf's own parsers stop at 100 too.
MAX_DEPTH = 100


class Word(str):
    """A plain scalar that YAML 1.2 reads as a string, and YAML 1.1 as a boolean, a number or a date: `no`, `1:30`.

    In most fields that is fine. As a parameter's key or value it is refused: the author may have meant either.
    """

    __slots__ = ()


class MalformedError(Exception):
    """The text is no document at all; there is nothing to go on with."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


# The lines of a container's entries, in their order, by the container's id. Numbers in arrays: a file of ten thousand
# resources in one document is a million of them.
Marks = dict[int, "array[int]"]


class Document:
    """One document. `root` is made of dict, list, str, int, float, bool and None."""

    __slots__ = ("_marks", "line", "root")

    def __init__(self, root: object, line: int, marks: Marks) -> None:
        self.root = root
        self.line = line
        self._marks = marks  # `root` keeps the containers, and so their ids, alive

    def line_of(self, path: Path) -> int:
        """Find the line of what `path` points at, or of the nearest thing above it that was written down."""
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
    """Find how the author spelled a field: proto3 JSON knows `connect_timeout` and `connectTimeout`."""
    return field if field in node else camel(field)


def camel(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)
