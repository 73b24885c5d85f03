"""Compile a document with `$when` and `$match` into the fewest variants with distinct contents (DESIGN 3).

A document is a function from params to contents. This one makes two variants, `env=prod` and `env!=prod`:

    timeout:
      $match:
      - {when: env=prod, value: 1s}
      - {value: 5s}

The compiler builds a decision diagram (decisions.py) bottom up. A scalar is a terminal, a `$match` chooses between the
diagrams of its values, a mapping or list combines the diagrams of its parts. Equal contents are one object, so parts of
the diagram that lead to equal contents merge by themselves, and at the end each terminal is one variant: TP2's example
has 9 combinations of values and 4 contents, and gives 4 variants.

The variants of one document can't overlap, because any params lead to one terminal, and they mention the same keys
(DYN-34). Their contents share parts with each other and with the document, so the caller must not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...errors import UsageError, show_path
from ...similar import did_you_mean
from .constraints import FALSE, TRUE, Constraint, atoms, check_limits, keys, mentioning
from .decisions import Branch, Decisions, Node, TooComplex, expression, joining, support, terminals
from .expr import parse

MAX_VARIANTS = 1024
MAX_NESTING = 128  # protobuf itself stops at 100
_SHOWN = 8  # keys that a message lists

WHEN = "$when"
MATCH = "$match"

Path: TypeAlias = tuple[str | int, ...]
Condition: TypeAlias = str | bool  # as written: YAML and JSON read the expression `true` as a boolean


class TemplateError(Exception):
    """A fault in a document; `path` leads to it, so that the caller can name the line."""

    def __init__(self, path: Path, message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(f"{show_path(path)}: {message}" if path else message)


@dataclass(frozen=True, slots=True)
class Compiled:
    """One variant of a document: its constraint and contents."""

    constraint: Constraint  # mentions every key that any variant of the document does (DYN-34)
    content: Any
    written: Constraint = TRUE  # the same without keys that make no difference to this variant


@dataclass(eq=False, slots=True)
class _Content:
    """A terminal. Equal contents are one object, see `_Compiler.intern`; None stands for absent."""

    value: Any


def compile_template(document: Any, *, limit: int = MAX_VARIANTS) -> list[Compiled]:
    """Return the variants of a document, special cases first; raise TemplateError."""
    if not _has_marks(document):
        return [Compiled(TRUE, document, TRUE)]
    conditions = _survey(document)
    order = list(dict.fromkeys(atom.key for condition in conditions.values() for atom in atoms(condition)))
    try:
        return _Compiler(order, conditions).variants(document, limit)
    except TooComplex as reason:
        listed = ", ".join(order[:_SHOWN]) + (" ..." if len(order) > _SHOWN else "")
        message = f"too many combinations of conditions, on the keys {listed} ({reason}; at most {limit:,} variants)"
        raise TemplateError((), message) from reason


# ---- First pass: check the form. It finds every fault in the use of `$` keys, whatever the conditions mean.
# YAML's aliases make one object appear in many places, even inside itself, so visited objects are noted by id.


def _has_marks(document: Any) -> bool:
    """Whether a `$` key occurs anywhere in the document."""
    todo, seen = [document], set()
    while todo:
        item = todo.pop()
        if id(item) in seen or not isinstance(item, (dict, list)):
            continue
        seen.add(id(item))
        if isinstance(item, list):
            todo.extend(item)
        elif _marks(item):
            return True
        else:
            todo.extend(item.values())
    return False


def _marks(item: dict[Any, Any]) -> list[str]:
    """Return the keys of a mapping that begin with `$`."""
    return [key for key in item if isinstance(key, str) and key.startswith("$")]


def _survey(document: Any) -> dict[Condition, Constraint]:
    """Check the document; return the constraint of each condition in it."""
    conditions: dict[Condition, Constraint] = {}
    todo: list[tuple[Any, Path, bool]] = [(document, (), True)]
    seen: set[tuple[int, bool]] = set()
    while todo:
        item, path, optional = todo.pop()  # optional: `$when` may leave the item out
        if (id(item), optional) in seen or not isinstance(item, (dict, list)):
            continue
        seen.add((id(item), optional))
        if isinstance(item, list):
            todo.extend((item[index], (*path, index), True) for index in reversed(range(len(item))))
            continue
        _check_marks(item, path, optional=optional)
        for where, text in _conditions(item, path):
            conditions[text] = _parsed(text, where)
        todo.extend(reversed(_inside(item, path)))
    return conditions


def _check_marks(item: dict[Any, Any], path: Path, *, optional: bool) -> None:
    """Check the `$` keys of one mapping.

    `$match` replaces the mapping, so nothing may stand beside it. `$when` stands beside the fields of the mapping that
    it makes optional; only an element of a list, or the whole document, can be left out.
    """
    for mark in _marks(item):
        if mark not in (WHEN, MATCH):
            hint = did_you_mean(mark, (WHEN, MATCH))
            message = f"unknown key `{mark}`; keys that begin with $ are `$when` and `$match`{hint}"
            raise TemplateError((*path, mark), message)
    if MATCH in item:
        if len(item) > 1:
            beside = ", ".join(f"`{key}`" for key in item if key != MATCH)
            raise TemplateError((*path, MATCH), f"`$match` stands for the whole value; {beside} can't be beside it")
        _check_match(item[MATCH], (*path, MATCH))
    elif WHEN in item and not optional:
        message = "`$when` goes on an element of a list or on the whole document; use `$match` for a value that varies"
        raise TemplateError((*path, WHEN), message)


def _check_match(entries: Any, path: Path) -> None:
    """Check the entries of one `$match`: each has a `value`, and all but the last have a `when`."""
    if not isinstance(entries, list) or not entries:
        raise TemplateError(path, "`$match` must be a list of {when, value}; the last may be {value}, the default")
    for index, entry in enumerate(entries):
        where = (*path, index)
        if not isinstance(entry, dict) or "value" not in entry:
            raise TemplateError(where, "must be {when, value}, or {value} for the default")
        for key in entry:
            if key not in ("when", "value"):
                raise TemplateError((*where, key), f"unknown key `{key}`; an entry has `when` and `value`")
        if "when" not in entry and index < len(entries) - 1:
            raise TemplateError(where, "has no `when`, so it is the default, and the default must be the last")


def _conditions(item: dict[Any, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the conditions of one mapping, with their paths."""
    if WHEN in item:
        yield (*path, WHEN), item[WHEN]
    for index, entry in enumerate(item.get(MATCH, ())):
        if "when" in entry:
            yield (*path, MATCH, index, "when"), entry["when"]


def _inside(item: dict[Any, Any], path: Path) -> list[tuple[Any, Path, bool]]:
    """Return the values of one mapping to visit next, as not optional: `$when` can't leave out the value of a field."""
    if MATCH in item:
        return [(entry["value"], (*path, MATCH, index, "value"), False) for index, entry in enumerate(item[MATCH])]
    return [(value, (*path, key), False) for key, value in item.items() if key != WHEN]


def _parsed(text: Any, path: Path) -> Constraint:
    """Read one condition."""
    if isinstance(text, bool):
        return TRUE if text else FALSE
    if not isinstance(text, str):
        raise TemplateError(path, f"must be an expression such as `env=prod`, not {text!r}")
    try:
        return parse(text)
    except UsageError as error:
        raise TemplateError(path, str(error)) from error


# ---- Second pass: build the diagram


class _Compiler:
    """Turn a document that passed the first pass into its variants."""

    def __init__(self, order: list[str], conditions: dict[Condition, Constraint]) -> None:
        self.decisions = Decisions(order)
        self.conditions = conditions
        self.holds = {text: self.decisions.constraint(condition) for text, condition in conditions.items()}
        self.contents: dict[Hashable, _Content] = {}
        # Diagrams by the id of a part of the document. The document outlives the compiler, so no id is reused.
        self.nodes: dict[int, Node] = {}
        self.no_parts = self.parts(())
        self.absent = _Content(None)  # "chosen, but absent" in a `$match`, where None is "not chosen yet"
        self.concatenation = joining(self.concatenate, self.no_parts)

    def variants(self, document: Any, limit: int) -> list[Compiled]:
        """Build the diagram of the document, and make a variant of each terminal.

        `indicators` says where each terminal is the result, and `expression` turns that into its constraint.
        """
        root = self.value(document, 0)
        contents = [content for content in terminals(root) if content is not None]
        if not contents:
            raise TemplateError((), "the conditions never hold: no client would get this document")
        if len(contents) > limit:
            raise TemplateError(
                (), f"makes {len(contents):,} variants with distinct contents, at most {limit:,} allowed"
            )
        # A `$when` on the whole document is the author's own constraint: use it as it is if nothing else varies.
        when = self.conditions[document[WHEN]] if isinstance(document, dict) and WHEN in document else TRUE
        if len(contents) == 1 and when != TRUE:
            return [Compiled(when, contents[0].value, when)]  # DYN-3: as it was written
        holds = self.decisions.indicators(root)
        varying = support(root)
        compiled = []
        for content in contents:
            found = expression(holds[content])
            written = _padded(found, keys(when) - varying)  # a key that the author mentions stays mentioned
            compiled.append(Compiled(_padded(found, varying | keys(when)), content.value, written))
        return compiled

    def value(self, item: Any, depth: int) -> Node:
        """Return the diagram of any part of the document; it ends in contents, or None where the part is absent."""
        if not isinstance(item, (dict, list)):
            # The key includes the type, because 1, 1.0 and True are equal in Python.
            return self.intern((type(item), item if isinstance(item, str) else repr(item)), lambda: item)
        if id(item) not in self.nodes:
            if depth > MAX_NESTING:
                raise TemplateError((), f"nested more than {MAX_NESTING} deep")
            self.nodes[id(item)] = self.container(item, depth + 1)
        return self.nodes[id(item)]

    def container(self, item: dict[Any, Any] | list[Any], depth: int) -> Node:
        """Return the diagram of a list, a `$match` or a mapping."""
        if isinstance(item, list):
            return self.sequence([self.value(element, depth) for element in item])
        if MATCH in item:
            return self.match([(entry.get("when"), self.value(entry["value"], depth)) for entry in item[MATCH]])
        fields = {key: self.value(value, depth) for key, value in item.items() if key != WHEN}
        return self.limited(item.get(WHEN), self.mapping(fields))

    def match(self, entries: list[tuple[Condition | None, Node]]) -> Node:
        """Choose the first entry whose condition holds, even if its value, another `$match`, turns out to be absent."""
        # In `hits` None means "this entry does not apply", so an absent value needs a terminal of its own meanwhile.
        hits = [
            self.limited(when, self.decisions.relabel(node, lambda content: content or self.absent))
            for when, node in entries
        ]
        return self.decisions.relabel(
            self.decisions.first(hits), lambda content: None if content is self.absent else content
        )

    def limited(self, condition: Condition | None, node: Node) -> Node:
        """Return the node where the condition holds, absent elsewhere; without a condition, the node."""
        return node if condition is None else self.decisions.only(self.holds[condition], node)

    def mapping(self, fields: dict[Any, Node]) -> Node:
        """Combine the diagrams of the fields into that of a mapping; absent fields are left out."""

        def build(present: dict[Any, _Content]) -> _Content:
            # Fields have no order, so contents that differ only in that are the same.
            return self.intern(
                (dict, frozenset(present.items())),
                lambda: {key: present[key].value for key in fields if key in present},
            )

        return self.combined(fields, build)

    def sequence(self, elements: list[Node]) -> Node:
        """Combine the diagrams of the elements into that of a list; absent elements are left out."""

        def build(present: dict[Any, _Content]) -> _Content:
            row = tuple(present[index] for index in range(len(elements)) if index in present)
            return self.intern((list, row), lambda: [content.value for content in row])

        return self.combined(dict(enumerate(elements)), build)

    def combined(self, places: dict[Any, Node], build: Callable[[dict[Any, _Content]], _Content]) -> Node:
        """Combine the diagrams of the parts into that of the whole.

        Each varying part becomes a diagram of one-element lists of (place, content). Folding them concatenates the
        lists, and `build` makes the whole of each list at the end. Parts that don't vary join only there, which keeps
        the lists short.
        """
        fixed = {place: node for place, node in places.items() if isinstance(node, _Content)}
        varying = [self.part(place, node) for place, node in places.items() if isinstance(node, Branch)]
        combined = self.decisions.fold(self.concatenation, varying)
        return self.decisions.relabel(combined, lambda parts: build(fixed | dict(parts.value)))

    def part(self, place: Any, node: Node) -> Node:
        """Return the diagram of one part, ending in a list of that part with its place, or an empty list if absent."""

        def label(content: _Content | None) -> _Content:
            return self.no_parts if content is None else self.parts(((place, content),))

        return self.decisions.relabel(node, label)

    def parts(self, parts: tuple[tuple[Any, _Content], ...]) -> _Content:
        """Return the terminal for a list of places and contents."""
        return self.intern(parts, lambda: parts)

    def concatenate(self, a: _Content, b: _Content) -> _Content:
        """Join two terminals that are lists of parts."""
        return self.parts(a.value + b.value)

    def intern(self, identity: Hashable, make: Callable[[], Any]) -> _Content:
        """Return the one object for these contents, making it at first use."""
        found = self.contents.get(identity)
        if found is None:
            found = self.contents[identity] = _Content(make())
        return found


def _padded(constraint: Constraint, wanted: Iterable[str]) -> Constraint:
    """Make the constraint mention the wanted keys (DYN-34); raise TemplateError if it gets too large."""
    try:
        check_limits(constraint)  # before anything walks it: a small diagram with shared parts may make a huge tree
        whole = mentioning(constraint, wanted)
        check_limits(whole)
    except UsageError as error:
        raise TemplateError((), f"a variant of this document would be too complex: {error}") from error
    return whole
