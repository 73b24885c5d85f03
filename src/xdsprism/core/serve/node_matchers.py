"""Decide which clients a question is about (CSD-2): by the id of their node, and by its metadata.

These are Envoy's NodeMatcher, StringMatcher, StructMatcher and ValueMatcher as plain values. A server keeps the strings
at the top of a node's metadata, and the nested ones, numbers and booleans that `--node-params` names: these can match.
A value that is hidden from whoever asks does not match: otherwise one could find it out by asking often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..model.events import Node
from ..model.steps import Steps

REGEX_TEXT = 4_096  # characters of a text that a regular expression is tried on; it does not match a longer one

Hidden = Callable[[str, str], bool]  # whether the value of a key of the metadata is hidden


@dataclass(frozen=True, slots=True)
class TextMatch:
    """What a text has to be. `regex`: compiled by RE2; it has to match all of the text."""

    kind: Literal["exact", "prefix", "suffix", "contains", "regex"]
    text: str = ""
    ignore_case: bool = False
    regex: Any = None

    def matches(self, text: str) -> bool:
        """Whether the text is so."""
        if self.kind == "regex":
            return len(text) <= REGEX_TEXT and self.regex.fullmatch(text) is not None
        wanted, found = (self.text.lower(), text.lower()) if self.ignore_case else (self.text, text)
        if self.kind == "exact":
            return found == wanted
        if self.kind == "prefix":
            return found.startswith(wanted)
        if self.kind == "suffix":
            return found.endswith(wanted)
        return wanted in found


@dataclass(frozen=True, slots=True)
class ValueMatch:
    """What a value of the metadata has to be: one of some texts, numbers or booleans, or just there."""

    texts: tuple[TextMatch, ...] = ()
    numbers: frozenset[float] = frozenset()
    booleans: frozenset[bool] = frozenset()
    is_present: bool = False

    def matches(self, text: str, *, is_string: bool) -> bool:
        """Whether the value is so. Numbers and booleans come in their JSON form."""
        if self.is_present or any(each.matches(text) for each in self.texts):
            return True
        if is_string:
            return False
        return (
            (text == "true" and True in self.booleans)
            or (text == "false" and False in self.booleans)
            or (bool(self.numbers) and _number(text) in self.numbers)
        )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class MetadataMatch:
    """What the value at a path of the metadata has to be."""

    path: tuple[str, ...]
    value: ValueMatch

    def matches(self, node: Node, hidden: Hidden) -> bool:
        """Whether the node's metadata is so."""
        name = ".".join(self.path)
        text = node.metadata.get(name) if len(self.path) == 1 else None
        is_string = text is not None
        if text is None:
            text = node.named.get(name)
        if text is None:
            return False
        if hidden(name, text):
            return self.value.is_present
        return self.value.matches(text, is_string=is_string)


@dataclass(frozen=True, slots=True)
class NodeMatch:
    """What a node has to be: all of this."""

    id: TextMatch | None = None
    metadata: tuple[MetadataMatch, ...] = ()

    def matching(self, node: Node, hidden: Hidden) -> Steps[bool]:
        """Say whether the node is so, in steps."""
        if self.id is not None and not self.id.matches(node.id):
            return False
        for each in self.metadata:
            yield
            if not each.matches(node, hidden):
                return False
        return True


def matching_any(matchers: tuple[NodeMatch, ...], node: Node, hidden: Hidden) -> Steps[bool]:
    """Say whether one of the matchers is for the node, in steps; without any, all nodes match (CSD-2)."""
    for matcher in matchers:
        if (yield from matcher.matching(node, hidden)):
            return True
    return not matchers
