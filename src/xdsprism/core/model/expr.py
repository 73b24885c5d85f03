"""Read and print EXPR, the text form of constraints: one parser, one printer (DESIGN 3).

    expr  := and { "or" and }        and := unary { "and" unary }       unary := "not" unary | atom
    atom  := "(" expr ")" | key "=" value | key "!=" value | key "in" "(" value {"," value} ")"
           | key "exists" | "true"
    key, value := bare word of letters, digits and _ . - / : @ *   |   "JSON string"

Files, command line, logs and dashboard all use it, so that any printed constraint can be pasted anywhere. `k!=v` is
short for `not k=v` and so matches params without `k`; `k in (a, b)` is short for `k=a or k=b`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn, assert_never

from ...argument_types import expect
from ...errors import UsageError
from .constraints import FALSE, MAX_DEPTH, TRUE, All, AnyOf, Constraint, Eq, Exists, Not, check_limits

KEYWORDS = frozenset({"and", "or", "not", "in", "exists", "true"})

# A key or value without quotes; and one token after optional white space.
_WORD = re.compile(r"[A-Za-z0-9_.\-/:@*]+")
_TOKEN = re.compile(rf'\s*(?:(?P<word>{_WORD.pattern})|(?P<string>"(?:[^"\\]|\\.)*")|(?P<sign>!=|[=(),]))')

# Operators of other languages that people try, with the way to write them here.
_HINTS = {
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`",
    "'": "quote with double quotes",
    '"': "the closing quote is missing, or the JSON string is not valid",
    "<": "there is no order among values",
    ">": "there is no order among values",
}


@dataclass(frozen=True, slots=True)
class _Token:
    """One token of the text."""

    kind: Literal["word", "string", "sign", "keyword", "end"]
    text: str  # a JSON string comes without quotes and escapes
    column: int  # from 1

    def __str__(self) -> str:
        match self.kind:
            case "end":
                return "the end"
            case "string":
                return json.dumps(self.text, ensure_ascii=False)
            case _:
                return f"`{self.text}`"


def parse(text: str) -> Constraint:
    """Read an expression; raise UsageError that says the column and what was expected there."""
    expect(text, str)
    constraint = _Parser(text).whole()
    check_limits(constraint)
    return constraint


def show(constraint: Constraint) -> str:
    """Print a constraint as short as possible while keeping its structure; only nested and/or is flattened.

    Parsing the result gives a constraint with the same canonical form.
    """
    return _or(constraint)


# ---- reading: one method for each rule of the grammar


class _Parser:
    """A recursive descent parser. `depth` counts brackets and nots, so that no text can overflow the stack."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self.scan())
        self.at = 0

    def scan(self) -> Iterator[_Token]:
        """Yield the tokens of the text, then one for its end, so that the grammar never reads past the last token."""
        end = len(self.text.rstrip())
        at = 0
        while at < end:
            found = _TOKEN.match(self.text, at)
            if found is None:
                self.refuse_character(at)
            yield self.token(found)
            at = found.end()
        yield _Token("end", "", end + 1)

    def token(self, found: re.Match[str]) -> _Token:
        """Make a token of a match."""
        if (word := found["word"]) is not None:
            return _Token("keyword" if word in KEYWORDS else "word", word, found.start("word") + 1)
        if (string := found["string"]) is not None:
            column = found.start("string") + 1
            return _Token("string", self.unquoted(string, column), column)
        return _Token("sign", found["sign"], found.start("sign") + 1)

    def unquoted(self, string: str, column: int) -> str:
        """Decode a JSON string."""
        try:
            text: str = json.loads(string)
            text.encode()  # fails for half a surrogate pair, which protobuf would refuse later
        except ValueError:
            self.fail(column, f"{string} is not a valid JSON string")
        return text

    def refuse_character(self, at: int) -> NoReturn:
        """Fail at a character that begins no token, with a hint if other languages use it."""
        at += len(self.text[at:]) - len(self.text[at:].lstrip())
        character = self.text[at]
        default = "quote a key or value that has other characters than letters, digits and _ . - / : @ *"
        self.fail(at + 1, f"unexpected {character!r} ({_HINTS.get(character, default)})")

    def fail(self, column: int, message: str) -> NoReturn:
        """Raise the error for this column, which counts from 1."""
        raise UsageError(f"in expression {_excerpt(self.text)}, column {column}: {message}")

    def expected(self, what: str) -> NoReturn:
        """Fail because the next token is not what the grammar expects here."""
        found = self.tokens[self.at]
        self.fail(found.column, f"expected {what}, found {found}{self.hint(found, what)}")

    def hint(self, found: _Token, what: str) -> str:
        """Return a hint for a common mistake, or nothing.

        People forget to quote a key or value that is a keyword, write keywords in capitals, or write `==`.
        """
        before = self.tokens[self.at - 1] if self.at else None
        if found.kind == "keyword" and ("key" in what or "value" in what):
            return f' (a keyword; quote it to mean the text: "{found.text}")'
        if found.kind == "word" and found.text.lower() in KEYWORDS:
            return " (keywords are lower case)"
        if before and found.kind == "sign" and found.text in ("=", "!="):
            if before.kind == "keyword":
                return f' (`{before.text}` is a keyword; quote it to mean the text: "{before.text}")'
            if before.kind == "sign":
                return " (a single `=` is enough)"
        return ""

    def accept(self, kind: str, text: str) -> bool:
        """Consume the next token if it is this one; return whether it was."""
        found = self.tokens[self.at]
        if found.kind == kind and found.text == text:
            self.at += 1
            return True
        return False

    def name(self, what: str) -> str:
        """Consume a bare word or a JSON string, as a key or value. A bare keyword is neither: it has to be quoted."""
        found = self.tokens[self.at]
        if found.kind not in ("word", "string"):
            self.expected(what)
        self.at += 1
        return found.text

    def whole(self) -> Constraint:
        """Read the whole text as one expression."""
        constraint = self.expr(0)
        if self.tokens[self.at].kind != "end":
            self.expected("`and`, `or` or the end")
        return constraint

    def expr(self, depth: int) -> Constraint:
        """Read alternatives joined by `or`. A single one needs no AnyOf around it."""
        items = [self.conjunction(depth)]
        while self.accept("keyword", "or"):
            items.append(self.conjunction(depth))
        return items[0] if len(items) == 1 else AnyOf(tuple(items))

    def conjunction(self, depth: int) -> Constraint:
        """Read conditions joined by `and`. A single one needs no All around it."""
        items = [self.unary(depth)]
        while self.accept("keyword", "and"):
            items.append(self.unary(depth))
        return items[0] if len(items) == 1 else All(tuple(items))

    def unary(self, depth: int) -> Constraint:
        """Read a negation, a bracket, `true` or a comparison."""
        if depth > MAX_DEPTH:  # DYN-8
            self.fail(self.tokens[self.at].column, f"nested more than {MAX_DEPTH} deep")
        if self.accept("keyword", "not"):
            item = self.unary(depth + 1)
            return FALSE if item == TRUE else Not(item)  # there is no word for FALSE: it is written `not true`
        if self.accept("keyword", "true"):
            return TRUE
        if self.accept("sign", "("):
            inner = self.expr(depth + 1)
            self.close("`and`, `or` or `)`")
            return inner
        return self.comparison()

    def comparison(self) -> Constraint:
        """Read a condition on one key."""
        column = self.tokens[self.at].column
        key = self.name("a key, `not`, `true` or `(`")
        if not key:
            self.fail(column, "a key can't be empty")  # DYN-9
        if self.accept("sign", "="):
            return Eq(key, self.name("a value"))
        if self.accept("sign", "!="):
            return Not(Eq(key, self.name("a value")))
        if self.accept("keyword", "exists"):
            return Exists(key)
        if not self.accept("keyword", "in"):
            self.expected(f"`=`, `!=`, `in` or `exists` after {self.tokens[self.at - 1]}")
        return self.choice(key)

    def choice(self, key: str) -> Constraint:
        """Read the values after `in`."""
        if not self.accept("sign", "("):
            self.expected("`(`")
        items = [Eq(key, self.name("a value"))]
        while self.accept("sign", ","):
            items.append(Eq(key, self.name("a value")))
        self.close("`,` or `)`")
        return items[0] if len(items) == 1 else AnyOf(tuple(items))

    def close(self, what: str) -> None:
        """Consume the closing bracket."""
        if not self.accept("sign", ")"):
            self.expected(what)


def _excerpt(text: str) -> str:
    """Quote the text for a message, cut if it is long."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


# ---- printing: one function for each level of the grammar, so that brackets appear only where they are needed


def _or(constraint: Constraint) -> str:
    """Print at the level of `or`, which never needs brackets."""
    constraint = _unwrapped(constraint)
    if isinstance(constraint, AnyOf) and constraint.items and not _is_choice(constraint):
        return " or ".join(map(_or, constraint.items))
    return _and(constraint)


def _and(constraint: Constraint) -> str:
    """Print an item of an `or`: an `and` needs no brackets."""
    constraint = _unwrapped(constraint)
    if isinstance(constraint, All) and constraint.items:
        return " and ".join(map(_and, constraint.items))
    return _unary(constraint)


def _unary(constraint: Constraint) -> str:
    """Print an item of an `and` or a `not`: a nested `and` or `or` needs brackets."""
    constraint = _unwrapped(constraint)
    match constraint:
        case Eq(key, value):
            return f"{_name(key)}={_name(value)}"
        case Exists(key):
            return f"{_name(key)} exists"
        case Not(item):
            return _not(_unwrapped(item))
        case All(()):
            return "true"
        case AnyOf(()):
            return "not true"
        case AnyOf() if _is_choice(constraint):
            choices = [item for item in constraint.items if isinstance(item, Eq)]
            values = ", ".join(_name(item.value) for item in choices)
            return f"{_name(choices[0].key)} in ({values})"
        case All() | AnyOf():
            return f"({_or(constraint)})"
        case _:
            assert_never(constraint)


def _not(item: Constraint) -> str:
    """Print a negation; `k!=v` is the short form of `not k=v`."""
    if isinstance(item, Eq):
        return f"{_name(item.key)}!={_name(item.value)}"
    return f"not {_unary(item)}"


def _unwrapped(constraint: Constraint) -> Constraint:
    """Drop an and/or that has one item."""
    while isinstance(constraint, (All, AnyOf)) and len(constraint.items) == 1:
        constraint = constraint.items[0]
    return constraint


def _is_choice(constraint: AnyOf) -> bool:
    """Whether it lists several values of one key, printed as `key in (a, b)`."""
    named = {item.key if isinstance(item, Eq) else None for item in constraint.items}
    return len(constraint.items) > 1 and len(named) == 1 and None not in named


def _name(text: str) -> str:
    """Print a key or value, quoted where it is no bare word or is a keyword."""
    if _WORD.fullmatch(text) and text not in KEYWORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
