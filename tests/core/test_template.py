from __future__ import annotations

from typing import Any

import pytest

from xdsprism.core.model.constraints import TRUE, Eq, Not, keys
from xdsprism.core.model.expr import show
from xdsprism.core.model.template import Compiled, TemplateError, compile_template

TP2_EXAMPLE = {
    "name": "main",
    "virtual_hosts": [
        {
            "name": "shop",
            "domains": ["*"],
            "routes": [
                {"$when": "env=prod", "match": {"prefix": "/checkout"}},
                {"$when": "version=v1", "match": {"prefix": "/legacy"}},
                {"match": {"prefix": "/"}},
            ],
        }
    ],
}


def shown(document: Any) -> list[tuple[str, Any]]:
    return [(show(item.constraint), item.content) for item in compile_template(document)]


def refused(document: Any, **options: int) -> tuple[tuple[str | int, ...], str]:
    with pytest.raises(TemplateError) as caught:
        compile_template(document, **options)
    return caught.value.path, caught.value.message


def test_a_condition_that_always_holds_may_be_the_boolean_true() -> None:
    document = {"$when": True, "x": [{"$when": True, "y": 1}, {"y": {"$match": [{"when": True, "value": 2}]}}]}
    assert shown(document) == [("true", {"x": [{"y": 1}, {"y": 2}]})]


def test_a_condition_that_never_holds_may_be_the_boolean_false() -> None:
    document = {"x": [{"$when": False, "y": 1}, {"y": {"$match": [{"when": False, "value": 2}, {"value": 3}]}}]}
    assert shown(document) == [("true", {"x": [{"y": 3}]})]


def test_a_condition_on_one_value_is_an_equality_and_its_negation() -> None:
    found = compile_template({"x": {"$match": [{"when": "env=prod", "value": 1}, {"value": 2}]}})
    assert [item.constraint for item in found] == [Eq("env", "prod"), Not(Eq("env", "prod"))]


# TP2, Example: four, not nine.
def test_the_example_of_tp2_makes_four_variants() -> None:
    def routes(content: Any) -> list[str]:
        return [route["match"]["prefix"] for route in content["virtual_hosts"][0]["routes"]]

    assert [(expr, routes(content)) for expr, content in shown(TP2_EXAMPLE)] == [
        ("env=prod and version=v1", ["/checkout", "/legacy", "/"]),
        ("env=prod and version!=v1", ["/checkout", "/"]),
        ("env!=prod and version=v1", ["/legacy", "/"]),
        ("env!=prod and version!=v1", ["/"]),
    ]


def test_a_document_without_marks_is_one_variant_and_is_not_copied() -> None:
    document = {"name": "main", "routes": [{"match": {"prefix": "/"}}]}
    compiled = compile_template(document)
    assert compiled == [Compiled(TRUE, document)]
    assert compiled[0].content is document


def test_the_document_itself_is_left_as_it_is() -> None:
    document = {"$when": "a=1", "x": [{"$when": "b=1", "y": {"$match": [{"value": 1}]}}]}
    before = repr(document)
    compile_template(document)
    assert repr(document) == before


def test_match_takes_the_first_hit() -> None:
    document = {"cluster": {"$match": [
        {"when": "env in (canary, test)", "value": "next"},
        {"when": "env=test", "value": "never"},
        {"when": "env exists", "value": "known"},
        {"value": "shop"},
    ]}}  # fmt: skip
    assert shown(document) == [
        ("env in (canary, test)", {"cluster": "next"}),
        ("env exists and not env in (canary, test)", {"cluster": "known"}),
        ("not env exists", {"cluster": "shop"}),
    ]


def test_a_hit_whose_value_turns_out_to_be_absent_is_a_hit() -> None:
    inner = {"$match": [{"when": "a=1", "value": "inner"}]}
    document = {"x": {"$match": [{"when": "b=1", "value": inner}, {"value": "default"}]}}
    assert shown(document) == [
        ("b=1 and a=1", {"x": "inner"}),
        ("b=1 and a!=1", {}),
        ("b!=1 and (a exists or not a exists)", {"x": "default"}),
    ]


def test_without_a_hit_and_a_default_the_field_is_absent() -> None:
    document = {"name": "x", "cluster": {"$match": [{"when": "env=prod", "value": "shop"}]}}
    assert shown(document) == [("env=prod", {"name": "x", "cluster": "shop"}), ("env!=prod", {"name": "x"})]


def test_without_a_hit_and_a_default_the_list_element_is_absent() -> None:
    document = {"domains": ["a", {"$match": [{"when": "env=prod", "value": "b"}]}, "c"]}
    assert shown(document) == [("env=prod", {"domains": ["a", "b", "c"]}), ("env!=prod", {"domains": ["a", "c"]})]


def test_a_value_of_null_is_not_the_same_as_absent() -> None:
    document = {"x": {"$match": [{"when": "a=1", "value": None}]}}
    assert shown(document) == [("a=1", {"x": None}), ("a!=1", {})]


def test_a_match_may_be_the_whole_document() -> None:
    document = {"$match": [{"when": "env=prod", "value": {"name": "p"}}, {"when": "zone=a", "value": {"name": "z"}}]}
    assert shown(document) == [
        ("env=prod and (zone exists or not zone exists)", {"name": "p"}),
        ("env!=prod and zone=a", {"name": "z"}),
    ]


def test_marks_nest_inside_values_of_match_and_inside_elements() -> None:
    document = {"x": [
        {"$when": "a=1", "y": {"$match": [{"when": "b=1", "value": [{"$when": "c=1", "z": 1}, 2]}, {"value": 0}]}},
    ]}  # fmt: skip
    assert shown(document) == [
        ("a=1 and b=1 and c=1", {"x": [{"y": [{"z": 1}, 2]}]}),
        ("a=1 and b=1 and c!=1", {"x": [{"y": [2]}]}),
        ("a=1 and b!=1 and (c exists or not c exists)", {"x": [{"y": 0}]}),
        ("a!=1 and (b exists or not b exists) and (c exists or not c exists)", {"x": []}),
    ]


def test_equal_contents_are_one_variant_however_they_come_about() -> None:
    document = {"x": {"$match": [
        {"when": "env=a", "value": {"p": 1, "q": [{"r": 2}]}},
        {"when": "env=b", "value": {"p": 2}},
        {"when": "env=c", "value": {"q": [{"r": {"$match": [{"value": 2}]}}], "p": 1}},
        {"value": {"p": 1, "q": [{"$when": "zone=z", "s": 0}, {"$when": "zone!=z", "r": 2}]}},
    ]}}  # fmt: skip
    assert shown(document) == [
        ("env in (a, c) or not env in (a, b, c) and zone!=z", {"x": {"p": 1, "q": [{"r": 2}]}}),
        ("env=b and (zone exists or not zone exists)", {"x": {"p": 2}}),
        ("not env in (a, b, c) and zone=z", {"x": {"p": 1, "q": [{"s": 0}]}}),
    ]


def test_two_ways_to_the_same_content_give_a_short_expression() -> None:
    assert shown({"x": [{"$when": "env=prod or version=v1", "y": 1}]}) == [
        ("env=prod or version=v1", {"x": [{"y": 1}]}),
        ("env!=prod and version!=v1", {"x": []}),
    ]


def test_values_of_different_types_are_different_contents() -> None:
    document = {"x": {"$match": [
        {"when": "a=1", "value": 1},
        {"when": "a=2", "value": True},
        {"when": "a=3", "value": 1.0},
        {"when": "a=4", "value": "1"},
        {"when": "a=5", "value": 0.0},
        {"when": "a=6", "value": -0.0},
    ]}}  # fmt: skip
    assert [(expr, repr(content)) for expr, content in shown(document)] == [
        ("a=1", "{'x': 1}"),
        ("a=2", "{'x': True}"),
        ("a=3", "{'x': 1.0}"),
        ("a=4", "{'x': '1'}"),
        ("a=5", "{'x': 0.0}"),
        ("a=6", "{'x': -0.0}"),
        ("not a in (1, 2, 3, 4, 5, 6)", "{}"),
    ]


def test_conditions_that_change_nothing_leave_an_unconstrained_variant() -> None:
    document = {"x": {"$match": [{"when": "env=prod", "value": 1}, {"value": 1}]}, "y": [{"$when": "true", "z": 1}]}
    assert compile_template(document) == [Compiled(TRUE, {"x": 1, "y": [{"z": 1}]})]


# DYN-3
def test_when_at_the_root_is_kept_as_it_is_written() -> None:
    document = {"$when": "not version!=v1 and (env exists or not env exists)", "name": "x"}
    assert shown(document) == [("not version!=v1 and (env exists or not env exists)", {"name": "x"})]


# DYN-34: other documents of the same name may need its keys.
def test_when_at_the_root_limits_all_variants_and_its_keys_stay_mentioned() -> None:
    document = {
        "$when": "env in (prod, qa) and (zone exists or not zone exists)",
        "x": [{"$when": "env=prod", "y": 1}, {"$when": "env=test", "y": 2}],
    }
    assert shown(document) == [
        ("env=prod and (zone exists or not zone exists)", {"x": [{"y": 1}]}),
        ("env=qa and (zone exists or not zone exists)", {"x": []}),
    ]


# DYN-34
def test_all_variants_of_a_document_mention_the_same_keys() -> None:
    compiled = compile_template({"x": {"$match": [
        {"when": "a=1", "value": 1}, {"when": "b=1", "value": 2}, {"when": "c=1 and d=1", "value": 3},
    ]}})  # fmt: skip
    assert {keys(item.constraint) for item in compiled} == {frozenset("abcd")}


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        ({"$base": True}, ("$base",), "unknown key `$base`; keys that begin with $ are `$when` and `$match`"),
        ({"x": [{"$When": "a=1"}]}, ("x", 0, "$When"), "unknown key `$When`"),
        ({"x": {"$when": "a=1"}}, ("x", "$when"), "an element of a list or on the whole document"),
        ({"x": {"$match": [{"value": {"$when": "a=1"}}]}}, ("x", "$match", 0, "value", "$when"), "use `$match`"),
        ({"x": [{}, {"$when": 1}]}, ("x", 1, "$when"), "must be an expression such as `env=prod`, not 1"),
        ({"$when": False, "x": 1}, (), "never hold"),
        ({"x": [{"$when": ["a=1"]}]}, ("x", 0, "$when"), "must be an expression"),
        ({"$when": "a="}, ("$when",), "column 3: expected a value"),
        ({"x": {"$match": []}}, ("x", "$match"), "must be a list of {when, value}"),
        ({"x": {"$match": {"when": "a=1", "value": 1}}}, ("x", "$match"), "must be a list of {when, value}"),
        ({"x": {"$match": [5]}}, ("x", "$match", 0), "must be {when, value}"),
        ({"x": {"$match": [{"when": "a=1"}]}}, ("x", "$match", 0), "must be {when, value}"),
        ({"x": {"$match": [{"when": "a", "value": 1}]}}, ("x", "$match", 0, "when"), "column 2: expected `=`"),
        ({"x": {"$match": [{"when": None, "value": 1}]}}, ("x", "$match", 0, "when"), "not None"),
        ({"x": {"$match": [{"$when": "a=1", "value": 1}]}}, ("x", "$match", 0, "$when"), "an entry has `when`"),
        ({"x": {"$match": [{"value": 1}, {"when": "a=1", "value": 2}]}}, ("x", "$match", 0), "must be the last"),
        ({"x": {"$match": [{"value": 1}], "y": 1}}, ("x", "$match"), "`y` can't be beside it"),
        ({"x": [{"$when": "a=1", "$match": [{"value": 1}]}]}, ("x", 0, "$match"), "`$when` can't be beside it"),
        ({"$when": "a=1 and a=2", "x": 1}, (), "never hold"),
        ({"$match": [{"when": "a=1 and a=2", "value": {}}]}, (), "never hold"),
    ],
)  # fmt: skip
def test_a_wrong_document_is_refused_with_the_path_to_the_fault(
    document: Any, path: tuple[str | int, ...], message: str
) -> None:
    where, text = refused(document)
    assert where == path
    assert message in text


def test_an_error_reads_as_people_write_paths() -> None:
    routes = [{}, {}, {"$when": "env"}]
    with pytest.raises(TemplateError, match=r"^virtual_hosts\[0\]\.routes\[2\]\.\$when: in expression 'env', column 4"):
        compile_template({"virtual_hosts": [{"routes": routes}]})


def test_the_first_fault_in_the_document_is_reported() -> None:
    assert refused({"a": [{"$when": "x"}, {"$when": "y"}], "b": {"$no": 1}})[0] == ("a", 0, "$when")


def independent(count: int) -> dict[str, Any]:
    return {"x": [{"$when": f"k{number}=1", "y": number} for number in range(count)]}


def test_the_number_of_variants_is_limited() -> None:
    assert len(compile_template(independent(3), limit=8)) == 8
    assert refused(independent(3), limit=7) == ((), "makes 8 variants with distinct contents, at most 7 allowed")
    assert "makes 2,048 variants" in refused(independent(11))[1]


def test_far_too_many_combinations_are_given_up_early() -> None:
    path, message = refused(independent(60))
    assert path == ()
    assert "too many combinations of conditions, on the keys k0, k1, k2, k3, k4, k5, k6, k7 ... (" in message
    assert "gave up after 200,000 steps; at most 1,024 variants" in message
    assert "129 keys are mentioned" in refused(independent(129))[1]


# A diagram may be small while the constraint that says the same is huge: here, an odd number of keys that are set.
def test_a_variant_whose_constraint_would_be_too_large_is_refused() -> None:
    def flip(number: int, inner: Any, inverse: Any) -> tuple[Any, Any]:
        def choose(yes: Any, no: Any) -> Any:
            return {"$match": [{"when": f"k{number:02}=1", "value": yes}, {"value": no}]}

        return choose(inner, inverse), choose(inverse, inner)

    odd, even = {"name": "odd"}, {"name": "even"}
    for number in range(40):
        odd, even = flip(number, odd, even)
    path, message = refused(odd)
    assert path == ()
    assert "too complex" in message


def test_a_thousand_conditions_on_one_key_are_no_trouble() -> None:
    tenants = [{"$when": f"tenant=t{number}", "y": number} for number in range(1000)]
    values = [{"when": f"tenant=t{number}", "value": number} for number in range(1000)]
    compiled = compile_template({"x": tenants, "y": {"$match": values}})
    assert len(compiled) == 1001
    assert compiled[-1].content == {"x": []}


# YAML's aliases: one object in many places, or inside itself.
def test_shared_parts_are_compiled_once() -> None:
    shared: Any = [{"$when": "a=1", "y": 1}]
    for _ in range(60):
        shared = [shared, shared]
    assert len(compile_template({"x": shared})) == 2


def test_a_document_that_contains_itself_ends_in_an_error() -> None:
    plain: Any = {"name": "x"}
    plain["self"] = plain
    assert compile_template(plain)[0].content is plain
    loop: Any = [{"$when": "a=1", "y": 1}]
    loop.append(loop)
    assert refused({"x": loop}) == ((), "nested more than 128 deep")
