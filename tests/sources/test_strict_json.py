from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdsprism.messages.document import MalformedError
from xdsprism.sources.strict_json import load

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_json_of_the_standard_library_is_read(value: object, indent: int | str | None, ascii_only: bool) -> None:
    (document,) = load("\r\n " + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + "\n")
    assert document.root == value
    assert document.line == 2


def test_every_place_has_its_line() -> None:
    (document,) = load('{\n\t"a": [1,\n\t\t{"b": 2,\n\t\t "c": []}],\n\t"d": null\n}\n')
    paths = [(), ("a",), ("a", 0), ("a", 1), ("a", 1, "c"), ("d",), ("d", "x")]
    assert [document.line_of(path) for path in paths] == [1, 2, 2, 3, 4, 5, 5]


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ('{"a": 1,\n "a": 2}', 2, "duplicate key 'a', first on line 1"),
        ('{"a": 1\n "b": 2}', 2, "not valid JSON: expected ',' or '}'"),
        ('{"a": [1,\n2', 2, "not valid JSON: expected ',' or ']'"),
        ('{"a":\n}', 2, "not valid JSON: expected a value"),
        ("{\n'a': 1}", 2, "not valid JSON: expected a key in double quotes"),
        ('{"a"\n1}', 2, "not valid JSON: expected ':'"),
        ("{}\n\n{}", 3, "not valid JSON: more text after the value"),
        ('{"a":\n"b', 2, "not valid JSON: Unterminated string starting at"),
        ('{"a":\n"b\x01"}', 2, "not valid JSON: Invalid control character at"),
        ('["\\ud800"]', 1, "not valid JSON: half of a surrogate pair"),
        ("[" * 101 + "]" * 101, 1, "nested deeper than 100 levels"),
    ],
)
def test_each_fault_has_its_line(source: str, line: int, message: str) -> None:
    with pytest.raises(MalformedError) as caught:
        load(source)
    assert (caught.value.line, caught.value.message) == (line, message)


def test_an_empty_file_holds_no_document() -> None:
    assert load(" \n") == []
