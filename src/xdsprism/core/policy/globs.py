"""Match a text against a pattern in which `*` stands for any characters, or for none.

Names come from third parties, such as the Host header of a request to an Envoy. So this is no regular expression: a
match takes time in proportion to the text and the pattern, whatever both contain.
"""

from __future__ import annotations

from collections.abc import Iterable

STAR = "*"


class Glob:
    """One pattern. Two are equal if they are written alike."""

    __slots__ = ("_parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = tuple(text.split(STAR))

    @property
    def head(self) -> str:
        """What each text that matches begins with."""
        return self._parts[0]

    @property
    def tail(self) -> str:
        """What each text that matches ends with."""
        return self._parts[-1]

    @property
    def is_literal(self) -> bool:
        """Whether it matches its own text only."""
        return len(self._parts) == 1

    def may_begin(self, prefix: str) -> bool:
        """Whether a text that begins like this could match: what stands before the first `*` does not contradict it."""
        head = self._parts[0]
        return head.startswith(prefix) or (prefix.startswith(head) and not self.is_literal)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        if len(self._parts) == 1:
            return text == self.text
        first, *middle, last = self._parts
        at, end = len(first), len(text) - len(last)
        if end < at or not text.startswith(first) or not text.endswith(last):
            return False
        for part in middle:  # the first place where each part fits leaves the most room for the parts after it
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glob) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Glob({self.text!r})"


class NameGlobs:
    """The names that a client may have of one type. Two are equal if they have the same patterns, in any order."""

    __slots__ = ("_globs", "_literals", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(texts)
        globs = [Glob(text) for text in sorted(self.texts)]
        self._literals = frozenset(glob.text for glob in globs if glob.is_literal)
        self._globs = tuple(glob for glob in globs if not glob.is_literal)

    def allows(self, name: str) -> bool:
        """Whether a client may have the resource of this name."""
        if name in self._literals:
            return True
        return any(glob.matches(name) for glob in self._globs)

    def may_allow(self, prefix: str) -> bool:
        """Whether a client may have the resource of some name that begins like this."""
        return any(text.startswith(prefix) for text in self._literals) or any(
            glob.may_begin(prefix) for glob in self._globs
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NameGlobs) and self.texts == other.texts

    def __hash__(self) -> int:
        return hash(self.texts)

    def __repr__(self) -> str:
        return f"NameGlobs({sorted(self.texts)!r})"


NO_NAMES = NameGlobs(())
