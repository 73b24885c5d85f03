"""Find the rules that may be for a client, without trying each.

A policy may have a rule for each of thousands of services, and each stream asks for its rule once. Most patterns begin
or end with a fixed text. So patterns are kept by that text, and a client is compared only with those whose text fits:
by its identities, or by its node id, whichever leaves fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .globs import Glob
from .identity import Identity, IdentityGlob

Numbers = list[int]  # of rules

NOTHING = ("",)  # what `any` and `anonymous` are compared with
FEW = 4  # rules of one kind are tried one by one


class _Globs:
    """Patterns by the fixed text at their beginning or end, whichever is longer."""

    __slots__ = ("_head_sizes", "_heads", "_literals", "_tail_sizes", "_tails")

    def __init__(self) -> None:
        self._literals: dict[str, Numbers] = {}
        self._heads: dict[str, Numbers] = {}
        self._tails: dict[str, Numbers] = {}
        self._head_sizes: list[int] = []  # of the texts in `_heads`: few, however many patterns there are
        self._tail_sizes: list[int] = []

    def add(self, glob: Glob, number: int) -> None:
        if glob.is_literal:
            self._literals.setdefault(glob.text, []).append(number)
        elif len(glob.head) >= len(glob.tail):
            self._heads.setdefault(glob.head, []).append(number)
            if len(glob.head) not in self._head_sizes:
                self._head_sizes.append(len(glob.head))
        else:
            self._tails.setdefault(glob.tail, []).append(number)
            if len(glob.tail) not in self._tail_sizes:
                self._tail_sizes.append(len(glob.tail))

    def find(self, text: str, found: list[Numbers]) -> None:
        """Add the numbers of all patterns that may match."""
        numbers = self._literals.get(text)
        if numbers is not None:
            found.append(numbers)
        for size in self._head_sizes:
            numbers = self._heads.get(text[:size])
            if numbers is not None:
                found.append(numbers)
        for size in self._tail_sizes:
            numbers = self._tails.get(text[len(text) - size :]) if size <= len(text) else None
            if numbers is not None:
                found.append(numbers)


class _Kind:
    """The rules for identities of one kind, by identity and by node id."""

    __slots__ = ("_all", "_any_node", "_identities", "_nodes")

    def __init__(self) -> None:
        self._all: Numbers = []
        self._identities = _Globs()
        self._nodes = _Globs()
        self._any_node: Numbers = []

    def add(self, identity: Glob, node: Glob | None, number: int) -> None:
        self._all.append(number)
        self._identities.add(identity, number)
        if node is None:
            self._any_node.append(number)
        else:
            self._nodes.add(node, number)

    def find(self, identities: Sequence[str], node: str, found: Numbers) -> None:
        """Add the numbers of the rules that may be for a client with these identities of this kind."""
        if len(self._all) <= FEW:
            found.extend(self._all)
            return
        by_node = [self._any_node]
        self._nodes.find(node, by_node)
        fewer = by_node
        if identities is not NOTHING:  # all rules of these kinds have the same identity
            by_identity: list[Numbers] = []
            for identity in identities:
                self._identities.find(identity, by_identity)
            if _count(by_identity) < _count(by_node):
                fewer = by_identity
        for numbers in fewer:
            found.extend(numbers)


class RuleIndex:
    """The rules of one policy."""

    __slots__ = ("_kinds",)

    def __init__(self, rules: Iterable[tuple[IdentityGlob, Glob | None]]) -> None:
        self._kinds: dict[str, _Kind] = {}
        for number, (identity, node) in enumerate(rules):
            # The pattern of `any` and `anonymous` is empty.
            self._kinds.setdefault(identity.kind, _Kind()).add(identity.whole, node, number)

    def candidates(self, identities: Sequence[Identity], node: str) -> list[int]:
        """Return the numbers of the rules that may be for this client, in their order; others are not for it."""
        found: Numbers = []
        rules = self._kinds.get("any")
        if rules is not None:
            rules.find(NOTHING, node, found)
        rules = self._kinds.get("anonymous") if not identities else None
        if rules is not None:
            rules.find(NOTHING, node, found)
        values: dict[str, list[str]] = {}
        for identity in identities:
            values.setdefault(identity.kind, []).append(identity.value)
        for kind, texts in values.items():
            rules = self._kinds.get(kind)
            if rules is not None:
                rules.find(texts, node, found)
        return sorted(set(found)) if len(found) > 1 else found


def _count(groups: list[Numbers]) -> int:
    return sum([len(numbers) for numbers in groups])
