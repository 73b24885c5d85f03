from __future__ import annotations

import re

import pytest

from xdsprism.core.model.constraints import FALSE, TRUE, All, AnyOf, Constraint, Eq, Exists, Not
from xdsprism.core.model.expr import KEYWORDS, parse, show
from xdsprism.errors import UsageError

A = Eq("a", "1")
B = Eq("b", "2")
C = Eq("c", "3")


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("a=1", A),
        ("a = 1", A),
        ("\ta=1\n", A),
        ("a!=1", Not(A)),
        ("a exists", Exists("a")),
        ("not a exists", Not(Exists("a"))),
        ("a in (1)", A),
        ("a in (1, 2)", AnyOf((A, Eq("a", "2")))),
        ("not a in (1,2)", Not(AnyOf((A, Eq("a", "2"))))),
        ("true", TRUE),
        ("not true", FALSE),
        ("not not a=1", Not(Not(A))),
        ("a=1 and b=2 and c=3", All((A, B, C))),
        ("a=1 or b=2 or c=3", AnyOf((A, B, C))),
        ("a=1 or b=2 and c=3", AnyOf((A, All((B, C))))),
        ("(a=1 or b=2) and c=3", All((AnyOf((A, B)), C))),
        ("not a=1 and b=2", All((Not(A), B))),
        ("not (a=1 and b=2)", Not(All((A, B)))),
        ("((a=1))", A),
        ('"in"="or"', Eq("in", "or")),
        ('a=""', Eq("a", "")),
        (r'a="\u00e9\n\"x\\"', Eq("a", '\u00e9\n"x\\')),
        ("x.y/z:8@h-_*=1.10", Eq("x.y/z:8@h-_*", "1.10")),
        ("android=1", Eq("android", "1")),
    ],
)
def test_an_expression_is_parsed_into_constraints(text: str, constraint: Constraint) -> None:
    assert parse(text) == constraint


# What is printed in logs and errors is to be short, and to be what a person would have written.
@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (A, "a=1"),
        (Not(A), "a!=1"),
        (AnyOf((A, Eq("a", "2"))), "a in (1, 2)"),
        (Not(AnyOf((A, Eq("a", "2")))), "not a in (1, 2)"),
        (Exists("a"), "a exists"),
        (Not(Exists("a")), "not a exists"),
        (TRUE, "true"),
        (FALSE, "not true"),
        (All((Not(A), Not(B))), "a!=1 and b!=2"),
        (AnyOf((All((A, B)), C)), "a=1 and b=2 or c=3"),
        (All((AnyOf((A, B)), C)), "(a=1 or b=2) and c=3"),
        (All((AnyOf((A, Eq("a", "2"))), C)), "a in (1, 2) and c=3"),
        (AnyOf((AnyOf((A, Eq("a", "2"))), C)), "a in (1, 2) or c=3"),
        (All((All((A, B)), C)), "a=1 and b=2 and c=3"),
        (All((AnyOf((A,)),)), "a=1"),
        (Not(All((A, B))), "not (a=1 and b=2)"),
        (Not(Not(A)), "not a!=1"),
        (Eq("a b", "not"), '"a b"="not"'),
        (Eq("a", "k\u00f6ln"), 'a="k\u00f6ln"'),
    ],
)
def test_constraints_are_printed_as_an_expression(constraint: Constraint, text: str) -> None:
    assert show(constraint) == text


@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_keywords_as_key_or_value_are_quoted(keyword: str) -> None:
    constraint = All((Eq(keyword, keyword), Exists(keyword)))
    assert f'"{keyword}"="{keyword}"' in show(constraint)
    assert parse(show(constraint)) == constraint


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "expected a key, `not`, `true` or `(`, found the end"),
        ("env", 4, "expected `=`, `!=`, `in` or `exists` after `env`, found the end"),
        ("env=", 5, "expected a value, found the end"),
        ("env=in", 5, 'expected a value, found `in` (a keyword; quote it to mean the text: "in")'),
        ("in=a", 1, 'quote it to mean the text: "in"'),
        ("env in (prod, or)", 15, 'quote it to mean the text: "or"'),
        ("true=1", 5, '`true` is a keyword; quote it to mean the text: "true"'),
        ("env=prod AND a=b", 10, "found `AND` (keywords are lower case)"),
        ("env==prod", 5, "a single `=` is enough"),
        ("env=prod && a=b", 10, "write `and`"),
        ("env=prod || a=b", 10, "write `or`"),
        ("!(env=prod)", 1, "write `not`"),
        ("env='prod'", 5, "quote with double quotes"),
        ("version>2", 8, "no order among values"),
        ("env=k\u00f6ln", 6, "quote a key or value"),
        ('env="prod', 5, "closing quote is missing"),
        (r'env="\q"', 5, "not a valid JSON string"),
        ('env="a\nb"', 5, "not a valid JSON string"),
        (r'env="\ud800"', 5, "not a valid JSON string"),
        ("env in prod", 8, "expected `(`, found `prod`"),
        ("env in ()", 9, "expected a value, found `)`"),
        ("env in (a b)", 11, "expected `,` or `)`, found `b`"),
        ("(a=b", 5, "expected `and`, `or` or `)`, found the end"),
        ("a=b)", 4, "expected `and`, `or` or the end, found `)`"),
        ("a=b c=d", 5, "expected `and`, `or` or the end, found `c`"),
        ('a=b "c"', 5, 'found "c"'),
        ("a=b or", 7, "expected a key"),
        ('""=b', 1, "a key can't be empty"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, column: int, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert f"column {column}: " in str(caught.value)
    assert reason in str(caught.value)


# DYN-8
@pytest.mark.parametrize("opening", ["(", "not ", "not ("])
def test_deep_nesting_is_refused_before_it_overflows_the_stack(opening: str) -> None:
    with pytest.raises(UsageError, match="nested more than 32 deep"):
        parse(opening * 50_000 + "a=b")


# DYN-8
def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse("(" * 32 + "a=1" + ")" * 32) == A
    assert show(parse("not " * 31 + "a exists")) == "not " * 31 + "a exists"


# DYN-8
def test_an_expression_that_is_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match="more than 4,096 parts"):
        parse(f"a in ({', '.join(map(str, range(5000)))})")


def test_an_error_in_a_long_expression_has_less_than_200_characters() -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"a in ({', '.join(map(str, range(3000)))}")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("size", "quoted"), [(80, "a" * 78 + " ="), (81, "a" * 77 + "...")])
def test_an_error_quotes_an_expression_of_80_characters_and_the_beginning_of_a_longer_one(size: int, quoted: str):
    with pytest.raises(UsageError, match=rf"^in expression {re.escape(repr(quoted))}, column"):
        parse("a" * (size - 2) + " =")
