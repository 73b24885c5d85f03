from __future__ import annotations

from typing import Any

import pytest

from xdsprism.core.model.template import compile_template
from xdsprism.sources.trace import trace

TEMPLATE: dict[str, Any] = {
    "list": [
        {"$when": "a=1", "x": {"deep": 1}},
        {"$when": "b=1", "x": {"deep": 2}},
        {"x": {"$match": [{"when": "a=1", "value": {"deep": 3}}, {"value": {"deep": [4, {"$when": "b=1", "y": 5}]}}]}},
        {"$match": [{"when": "c=1", "value": {"z": 6}}]},
    ],
    "absent": {"$match": [{"when": "a=2", "value": 7}]},
    "same": {"fixed": 8},
}


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [(path, value)]


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def test_every_value_of_every_variant_is_traced_to_where_it_was_written() -> None:
    compiled = compile_template(TEMPLATE)
    assert len(compiled) > 8
    for each in compiled:
        for path, value in leaves(each.content):
            assert at(TEMPLATE, trace(TEMPLATE, each.content, path)) == value


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (("same", "missing", 0), ("same", "missing", 0)),
        (("list", 0, "missing"), ("list", 2, "missing")),
        (("list", 9), ("list", 9)),
        (("list", 0, "x", "gone"), ("list", 2, "x", "$match", 1, "value", "gone")),
    ],
)
def test_a_place_that_is_not_there_is_traced_as_far_as_it_goes(path: Any, found: Any) -> None:
    contents = {"list": [{"x": {"deep": [4]}}], "same": {"fixed": 8}}
    assert trace(TEMPLATE, contents, path) == found


def test_contents_that_no_template_gives_leave_the_path_as_it_is() -> None:
    assert trace([{"a": 1}], [{"b": 2}], (0, "b")) == (0, "b")
    assert trace({"$match": [{"value": 1}]}, 2, ("x",)) == ("x",)
