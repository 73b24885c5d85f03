from __future__ import annotations

import math

import pytest

from tests.sources.samples import text
from xdsprism.messages.document import AmbiguousScalar, Document, MalformedError
from xdsprism.sources.strict_yaml import MAX_ALIASED_NODES, Chunk, load, plain, split


def only(source: str) -> Document:
    (document,) = load(Chunk(source, 1))
    return document


def refused(source: str) -> tuple[int, str]:
    with pytest.raises(MalformedError) as caught:
        load(Chunk(source, 1))
    return caught.value.line, caught.value.message


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("null", None),
        ("~", None),
        ("true", True),
        ("FALSE", False),
        ("10", 10),
        ("007", 7),
        ("08", 8),
        ("00", 0),
        ("-7", -7),
        ("0o17", 15),
        ("0xff", 255),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("no", "no"),
        ("on", "on"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("12:30:00", "12:30:00"),
        ("2024-01-31", "2024-01-31"),
        ("0x", "0x"),
        ("1.2.3", "1.2.3"),
        ("text", "text"),
    ],
)
def test_plain_scalars_are_read_as_yaml_1_2_does(written: str, value: object) -> None:
    found = plain(written)
    assert found == value
    assert isinstance(found, type(value))


@pytest.mark.parametrize(("written", "octal"), [("0400", 256), ("010", 8), ("-0644", -420), ("+010", 8)])
def test_a_number_that_is_another_number_to_envoy_is_refused_with_its_line(written: str, octal: int) -> None:
    line, message = refused(f"a: 1\nmode: {written}\n")
    assert line == 2
    assert message.startswith(f"{written} is {int(written)} by YAML 1.2, and {octal} to Envoy")
    assert message.endswith(f"write {int(written)} or {octal}, or quote it")
    assert only(f"mode: '{written}'").root == {"mode": written}


def test_a_tagged_number_that_is_another_number_to_envoy_is_refused() -> None:
    assert refused("mode: !!int 0400\n")[0] == 1


def test_a_key_tagged_ignore_is_left_out_and_its_anchors_are_not() -> None:
    source = "!ignore parts:\n- &a {x: 1}\n- &b {y: 2}\none: *a\n!ignore parts: 5\ntwo: *b\n"
    document = only(source)
    assert document.root == {"one": {"x": 1}, "two": {"y": 2}}
    assert [document.line_of(path) for path in (("one",), ("two",))] == [4, 6]


def test_a_key_tagged_ignore_may_be_that_of_a_field() -> None:
    assert only("!ignore 'a': 1\na: 2\n").root == {"a": 2}


def test_ignore_on_a_value_is_refused() -> None:
    assert refused("a: !ignore 5\n") == (1, "the tag is not supported; quote a text that begins with !")
    assert refused("a: [!ignore {b: 1}]\n") == (1, "the tag is not supported; quote a text that begins with !")


@pytest.mark.parametrize("written", ["no", "Yes", "off", "y", "N", "1_000", "12:30", "2024-01-31", "0b1"])
def test_scalars_that_yaml_1_1_reads_otherwise_are_marked(written: str) -> None:
    assert isinstance(plain(written), AmbiguousScalar)
    assert not isinstance(only(f"a: '{written}'").root["a"], AmbiguousScalar)


@pytest.mark.parametrize("written", ["nope", "truely", "other", "v1", "1.2.3", "yesterday"])
def test_an_ordinary_word_is_not_marked(written: str) -> None:
    assert type(plain(written)) is str


def test_nan_is_a_float() -> None:
    assert math.isnan(only("a: .nan").root["a"])


def test_quotes_and_blocks_are_always_strings() -> None:
    assert only("a: '1'\nb: \"true\"\nc: |\n  5\nd: >-\n  no\n").root == {"a": "1", "b": "true", "c": "5\n", "d": "no"}


def test_a_duplicate_key_is_refused_with_both_lines() -> None:
    assert refused("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n") == (5, "duplicate key 'c', first on line 3")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("name: a\nlist: [1,\n  2\n", 2),
        ('name: a\ntext: "b\n\n\n', 2),
        ("name: a\nlist:\n- b\nna", 4),
        ("name: a\nb: ]\nc: 1\n", 2),
    ],
)
def test_a_truncated_file_is_refused_with_the_line_that_has_no_end(source: str, line: int) -> None:
    found, message = refused(source)
    assert found == line
    assert message.startswith("not valid YAML: ")


def test_a_tab_for_indentation_is_refused_with_its_line() -> None:
    assert refused("a:\n\tb: 1\n")[0] == 2


def test_a_control_character_is_refused_with_its_line() -> None:
    assert refused("a: 1\nb: \x07\n") == (2, "not valid YAML: the character #x7 is not allowed")


@pytest.mark.parametrize("tag", ["!!binary", "!!timestamp", "!!python/object:os.system", "!mine", "!!set"])
def test_a_foreign_tag_is_refused(tag: str) -> None:
    line, message = refused(f"a: 1\nb: {tag} x\n")
    assert line == 2
    assert "tag" in message


@pytest.mark.parametrize("tagged", ["!!binary [1]", "!mine {a: 1}", "!!omap []"])
def test_a_foreign_tag_on_a_container_is_refused(tagged: str) -> None:
    assert "is not supported" in refused(f"a: {tagged}")[1]


def test_core_tags_are_obeyed() -> None:
    source = "a: !!str 1\nb: !!int 2\nc: !!float 3\nd: !!bool true\ne: !!null ~\nf: !!map {}\ng: !!seq []\nh: ! 4\n"
    root = only(source).root
    assert root == {"a": "1", "b": 2, "c": 3.0, "d": True, "e": None, "f": {}, "g": [], "h": "4"}
    assert isinstance(root["c"], float)


@pytest.mark.parametrize("tagged", ["!!int x", "!!bool 1", "!!float true", "!!null 0", "!!int true"])
def test_a_core_tag_that_does_not_fit_is_refused(tagged: str) -> None:
    assert "does not fit its tag" in refused(f"a: {tagged}")[1]


def test_anchors_and_merge_keys() -> None:
    source = text(
        """
        base: &base {a: 1, b: 2}
        more: &more {b: 3, c: 4}
        one: {<<: *base, b: 9}
        two: {<<: [*more, *base]}
        same: *base
        """
    )
    document = only(source)
    assert document.root["one"] == {"a": 1, "b": 9}
    assert document.root["two"] == {"b": 3, "c": 4, "a": 1}
    assert document.root["same"] == {"a": 1, "b": 2}
    assert document.line_of(("two", "c")) == 2
    assert document.line_of(("one", "b")) == 3


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert only('"<<": {a: 1}').root == {"<<": {"a": 1}}


@pytest.mark.parametrize("source", ["<<: 5", "<<: [5]", "a: *nowhere", "a: &x [*x]", "? [1]\n: 2", "? {a: 1}\n: 2"])
def test_invalid_merges_aliases_and_keys_are_refused(source: str) -> None:
    assert refused(source)[0] == 1


def test_a_billion_laughs_is_refused_before_it_is_laughed() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    line, message = refused("\n".join(levels))
    assert message == f"aliases expand to more than {MAX_ALIASED_NODES:,} nodes"
    assert line == 6


def test_depth_is_bounded_also_where_aliases_make_it() -> None:
    assert refused("[" * 101 + "]" * 101) == (1, "nested deeper than 100 levels")
    assert only("[" * 100 + "]" * 100).root
    half = "a: &a " + "[" * 60 + "]" * 60 + "\nb: " + "[" * 60 + "*a" + "]" * 60
    assert refused(half) == (2, "nested deeper than 100 levels")


def test_every_place_has_its_line() -> None:
    source = text(
        """
        # a comment
        name: x
        hosts:
        - a: 1
          b: 2

        - {a: 3,
           b: 4}
        """
    )
    document = only(source)
    assert document.line == 2
    expected = {(): 2, ("name",): 2, ("hosts",): 3, ("hosts", 0): 4, ("hosts", 0, "b"): 5, ("hosts", 1): 7}
    assert {path: document.line_of(path) for path in expected} == expected
    assert document.line_of(("hosts", 1, "b")) == 8


def test_the_line_of_a_missing_value_is_that_of_its_container() -> None:
    document = only("a:\n  b: 1\nc: [1]\n")
    assert document.line_of(("a", "missing", "deeper")) == 1
    assert document.line_of(("c", 5)) == 3
    assert document.line_of(("a", "b", 0, "x")) == 2


def test_a_field_is_found_by_either_spelling() -> None:
    assert only("x: 1\nconnectTimeout: 5s\n").line_of(("connect_timeout",)) == 2


def test_a_file_is_cut_at_its_markers() -> None:
    source = "# head\n---\na: 1\n---  # second\nb: |\n  ---x\n  --- \nc: 3\n...\n---\nd: 4\n"
    assert [(chunk.line, only_root(chunk)) for chunk in split(source)] == [
        (1, {"a": 1}),
        (4, {"b": "---x\n--- \n", "c": 3}),
        (10, {"d": 4}),
    ]


def only_root(chunk: Chunk) -> object:
    (document,) = load(chunk)
    return document.root


def test_the_pieces_make_up_the_file() -> None:
    source = "a: 1\n---\n---\r\nb: 2\r\n...\n# tail\n%YAML 1.2\n---\nc: 3\n--- {d: 4}\n---"
    chunks = split(source)
    assert "".join(chunk.text for chunk in chunks) == source
    assert [document.root for chunk in chunks for document in load(chunk)] == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}]


def test_lines_go_on_from_document_to_document() -> None:
    chunks = split("a: 1\n---\n\nb:\n- 1\n- c: 2\n")
    (document,) = load(chunks[1])
    assert document.line == 4
    assert document.line_of(("b", 1, "c")) == 6


@pytest.mark.parametrize("source", ["", "\n", "# nothing\n", "---\n", "---\n---\n", "~\n"])
def test_nothing_is_no_document(source: str) -> None:
    assert [document for chunk in split(source) for document in load(chunk)] == []


def test_a_marker_inside_a_quoted_text_ends_the_document_as_the_specification_says() -> None:
    first = split('a: "x\n---\ny"\n')[0]
    with pytest.raises(MalformedError):
        load(first)
