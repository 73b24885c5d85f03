"""The params that a provider reads become the constraints of its result, exactly (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.trees import KEYS, VALUES, Tree, run_tree, trees
from xdsprism.core.codec.expression import Expression
from xdsprism.core.model.constraints import keys, matches
from xdsprism.core.model.decisions import Decisions
from xdsprism.core.model.expr import show
from xdsprism.core.model.types import Params
from xdsprism.core.provide.recorded import MOST_REFUSED, Record, RecordedParams
from xdsprism.errors import UsageError

Look = Callable[[Params], object]


class Env(StrEnum):
    PROD = "prod"


def looked(look: Look, *declared: str, **params: str) -> str:
    record = Record("provider p", declared or ("env",), Params(params))
    look(RecordedParams(record))
    return show(record.close())


def answer(look: Look, **params: str) -> object:
    return look(RecordedParams(Record("provider p", ("env", "zone"), Params(params))))


def test_a_provider_gets_what_passes_for_params():
    assert answer(lambda params: isinstance(params, Params), env="prod") is True
    assert answer(lambda params: params == Params({"env": "prod"}), env="prod") is True
    assert answer(lambda params: Params({"env": "prod"}) == params, env="prod") is True


def test_an_expression_reads_recorded_params_as_it_reads_plain_ones():
    # DYN-34
    expression = Expression.parse("env=prod or zone=a")
    assert (
        looked(expression.matches, "env", "zone", env="prod", zone="b")
        == "env=prod and (zone exists or not zone exists)"
    )
    assert answer(expression.matches, env="test", zone="a") is True
    assert answer(expression.matches, env="test") is False


# DYN-34
def test_a_declared_key_that_was_not_read_is_mentioned_and_matches_everybody():
    assert looked(lambda params: None, env="prod") == "env exists or not env exists"


@pytest.mark.parametrize(
    ("look", "params", "constraint"),
    [
        (lambda p: p["env"] == "prod", {"env": "prod"}, "env=prod"),
        (lambda p: p["env"] == "prod", {"env": "test"}, "env!=prod"),
        (lambda p: p["env"] == "prod", {}, "env!=prod"),  # DYN-6
        (lambda p: p["env"] != "prod", {"env": "test"}, "env!=prod"),
        (lambda p: "prod" == p["env"], {"env": "prod"}, "env=prod"),  # noqa: SIM300
        (lambda p: p["env"] in ("a", "b"), {"env": "c"}, "env!=a and env!=b"),
        (lambda p: p["env"] in ["a", "b"], {"env": "b"}, "env=b"),
        (lambda p: p["env"] in ("a", "b"), {"env": "b"}, "env=b"),
        (lambda p: p["env"] == Env.PROD, {"env": "prod"}, "env=prod"),
        (lambda p: Env.PROD == p["env"], {"env": "test"}, "env!=prod"),  # noqa: SIM300
        (lambda p: "env" in p, {"env": "x"}, "env exists"),
        (lambda p: "env" in p, {}, "not env exists"),
        (lambda p: p.get("env"), {}, "not env exists"),
        (lambda p: p.get("env", "prod") == "prod", {}, "not env exists"),
        (lambda p: p.get("env") == "prod", {"env": "test"}, "env exists and env!=prod"),
        (lambda p: bool(p["env"]), {"env": "x"}, 'env exists and env!=""'),
        (lambda p: bool(p["env"]), {"env": ""}, 'env=""'),
        (lambda p: bool(p["env"]), {}, "not env exists"),
        (lambda p: p["env"], {"env": "x"}, "env exists or not env exists"),
        (lambda p: p["env"] == 3, {"env": "x"}, "env exists or not env exists"),  # the same for everybody
        (lambda p: p["env"] is None, {"env": "x"}, "env exists or not env exists"),
    ],
)
def test_each_question_about_a_value_becomes_a_literal(look: Look, params: dict[str, str], constraint: str):
    assert looked(look, **params) == constraint


@pytest.mark.parametrize(
    "look",
    [
        lambda p: str(p["env"]),
        lambda p: f"{p['env']}",
        lambda p: f"{p['env']!r}",
        lambda p: "%s" % p["env"],  # noqa: UP031
        lambda p: "x-" + p["env"],
        lambda p: p["env"] + "-x",
        lambda p: p["env"].lower(),
        lambda p: p["env"].startswith("p"),
        lambda p: p["env"] in {"a", "b"},
        lambda p: {"a": 1}.get(p["env"]),
        lambda p: len(p["env"]),
        lambda p: p["env"] < "q",
        lambda p: list(p["env"]),
        lambda p: p["env"][0],
        lambda p: "r" in p["env"],
        lambda p: p["env"] == p["env"],
        hash,
        lambda p: p == {"env": "prod"},
        lambda p: {**p}["env"] == "prod",
        Params,
        lambda p: p.only(["env"]),
    ],
)
def test_whatever_reads_the_text_of_a_value_matches_that_value_alone(look: Look):
    assert looked(look, env="prod") == "env=prod"


def test_numbers_can_be_read():
    assert answer(lambda p: (int(p["env"]), float(p["zone"]), p["env"] * 2), env="7", zone="1.5") == (7, 1.5, "77")


def test_a_question_whose_answer_follows_from_earlier_ones_adds_no_literal():
    def look(params: Params) -> bool:
        return params["env"] != "test" and "env" in params and params["env"] in ("a", "test", "prod") and bool(params)

    assert looked(look, env="prod") == "env=prod"


def test_two_absent_values_are_not_equal():
    assert answer(lambda p: p["env"] == p["zone"]) is False
    assert looked(lambda p: p["env"] == p["zone"], "env", "zone", env="a") == "env=a and not zone exists"


def test_the_text_of_an_absent_value_is_a_key_error_that_says_what_to_do():
    record = Record("provider p", ("env",), Params())
    with pytest.raises(KeyError, match=r"no parameter 'env'.*params.get"):
        str(RecordedParams(record)["env"])
    assert show(record.close()) == "not env exists"


def test_iterating_finds_out_which_keys_are_there():
    assert answer(lambda p: ([*p], len(p), {key: str(value) for key, value in p.items()}), zone="a") == (
        ["zone"],
        1,
        {"zone": "a"},
    )
    assert looked(lambda p: [*p], "env", "zone", zone="a") == "not env exists and zone exists"


@pytest.mark.parametrize("look", [lambda p: p["zone"], lambda p: p.get("zone"), lambda p: "zone" in p])
def test_key_that_was_not_declared_is_an_error_that_names_it(look: Look):
    with pytest.raises(UsageError, match=r"provider p reads the parameter 'zone'.*declared: env, version"):
        looked(look, "version", "env", zone="a")


def test_undeclared_key_is_remembered_where_the_provider_goes_on():
    record = Record("provider p", ("env",), Params())
    with pytest.raises(UsageError):
        RecordedParams(record)["zone"]
    assert record.undeclared == "zone"


def test_reading_after_the_answer_is_an_error():
    record = Record("provider p", ("env",), Params({"env": "a"}))
    value = RecordedParams(record)["env"]
    record.close()
    with pytest.raises(UsageError, match="after it has returned"):
        assert value == "a"


def test_the_text_of_recorded_params_shows_no_value():
    params = RecordedParams(Record("provider p", ("env",), Params({"env": "secret"})))
    assert str(params) == "<params of provider p: env>"


def test_comparing_params_with_another_type_is_false_and_records_nothing():
    assert answer(lambda p: p == 3, env="a") is False
    assert looked(lambda p: p == 3, env="a") == "env exists or not env exists"


def test_value_has_what_a_string_has_and_nothing_else():
    with pytest.raises(AttributeError, match="nonsense"):
        answer(lambda p: p["env"].nonsense, env="a")  # type: ignore[attr-defined]
    assert looked(lambda p: hasattr(p["env"], "nonsense"), env="a") == "env exists or not env exists"


# DYN-8
def test_comparing_with_very_many_values_matches_the_one_value_that_there_is():
    many = [f"v{number}" for number in range(MOST_REFUSED + 1)]
    assert looked(lambda p: p["env"] in many, env="x") == "env=x"
    assert looked(lambda p: p["env"] in many) == "not env exists"
    assert looked(lambda p: p["env"] in many[:-1], env="x").count("!=") == MOST_REFUSED


EVERYBODY = [
    Params({key: value for key, value in zip(KEYS, values, strict=True) if value is not None})
    for values in product([None, *VALUES, "other", ""], repeat=len(KEYS))
]


# DYN-33, DYN-34, DYN-38
@given(trees())
def test_constraints_match_exactly_the_params_that_take_the_same_branches(tree: Tree):
    ways = {}
    for params in EVERYBODY:
        record = Record("provider p", KEYS, params)
        ways[params] = run_tree(tree, RecordedParams(record)), record.close()
    for _, whose in ways.values():
        assert keys(whose) == set(KEYS)
    for params, (made, whose) in ways.items():
        assert matches(whose, params)
        assert all(ways[other][0] == made for other in EVERYBODY if matches(whose, other))
    found = list(dict.fromkeys(whose for _, whose in ways.values()))
    decisions = Decisions(KEYS)
    diagrams = [decisions.constraint(whose) for whose in found]
    for index, one in enumerate(diagrams):
        assert all(decisions.both(one, other) is False for other in diagrams[:index])


@given(st.sampled_from(EVERYBODY), trees())
def test_running_a_provider_again_records_the_same_constraint(params: Params, tree: Tree):
    first, second = (Record("provider p", KEYS, params) for _ in range(2))
    assert run_tree(tree, RecordedParams(first)) == run_tree(tree, RecordedParams(second))
    assert first.close() is second.close()
