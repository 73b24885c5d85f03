"""scripts/wheel/refusals.py: what means something else once it is compiled is found before it is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.wheel import chosen
from scripts.wheel.refusals import refusals

SOURCES = Path(__file__).parents[1] / "src"


def test_the_sources_have_nothing_that_is_refused() -> None:
    compiled = {SOURCES.joinpath(*name.split(".")).with_suffix(".py") for name in chosen.modules()}
    assert refusals(sorted(compiled), sorted({*SOURCES.rglob("*.py")} - compiled)) == []


CLASS = "class A:\n    def f(self): ...\n"
READ = "    @property\n    def f(self): ...\n"
PLANTED = {
    "a method of its own": "class A:\n    def f(self): ...\n    def g(self):\n        self.f = print\n",
    "a method of a base": CLASS + "class B(A):\n    def __init__(self):\n        self.f = print\n",
    "a method, from outside": CLASS + "def g(a):\n    a.f = print\n",
    "a method, in a tuple": "class A:\n    def f(self): ...\n    def g(self):\n        self.x, self.f = 1, print\n",
    "a method, by setattr": CLASS + 'def g(a):\n    setattr(a, "f", print)\n',
    "a method, and mypy silenced": "def g(a):\n    a.f = print  # type: ignore[attr-defined, method-assign]\n",
    "an attribute that becomes a property": "class A:\n    f = False\nclass B(A):\n" + READ,
    "a property that becomes an attribute": "class A:\n" + READ + "class B(A):\n    f: bool = False\n",
    "a star in a pattern": "def g(a):\n    match a:\n        case A((first, *_)): ...\n",
    "an instance made without its constructor": "class A:\n    ...\ndef g():\n    return A.__new__(A)\n",
    "a generator that is returned": "def g(a):\n    return (each for each in a)\n",
    "a generator whose items are yielded": "def g(a):\n    yield from (each for each in a)\n",
    "a generator that a loop takes, which may end early": "def g(a):\n    for x in (each for each in a): ...\n",
    "a generator that is handed on": "def g(a, take):\n    take(each for each in a)\n",
    "a generator that is used up to the first item": "def g(a):\n    b = (each for each in a)\n    return any(b)\n",
    "a generator that another one may leave": "def g(a):\n    b = (x for x in a)\n    return any(not x for x in b)\n",
    "a generator that a chain hands on": "def g(a):\n    return chain((x for x in a), a)\n",
    "a field that is any object": "@dataclass(slots=True)\nclass A:\n    f: object\n",
}


@pytest.mark.parametrize("source", PLANTED.values(), ids=PLANTED)
def test_every_planted_fault_is_found_with_its_place(tmp_path: Path, source: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(source)
    found = refusals([file])
    assert len(found) == 1
    assert found[0].startswith(f"{file}:")


def test_a_base_in_another_file_counts(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CLASS)
    (tmp_path / "b.py").write_text("from a import A\nclass B(A):\n    def __init__(self):\n        self.f = print\n")
    assert [each.rpartition(": ")[0] for each in refusals(sorted(tmp_path.iterdir()))] == [
        f"{tmp_path / 'b.py'}:4: B.f: compiled callers ignore a method that is assigned"
    ]


@pytest.mark.parametrize(
    "source",
    [
        "any(x for x in a)",
        "all(x for x in a)",
        "next((x for x in a), None)",
        "tuple(x for x in a)",
        "a.update((x, None) for x in a)",
        "[*(x for x in a), 1]",
        "tuple(chain((x for x in a), a))",
        "sum(len(x) for x in a)",
        "{x: 1 for x in (y for y in a)}",
    ],
)
def test_a_generator_that_is_used_up_where_it_stands_is_as_good_as_a_list(tmp_path: Path, source: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(f"def g(a):\n    return {source}\n\ndef h(a):\n    b = (x for x in a)\n    return [*b]\n")
    assert refusals([file]) == []


def test_what_stays_interpreted_may_have_a_generator_but_assigns_no_method(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CLASS)
    (tmp_path / "b.py").write_text("def g(a):\n    a.f = print\n    return (x for x in a)\n")
    (found,) = refusals([tmp_path / "a.py"], [tmp_path / "b.py"])
    assert found.startswith(f"{tmp_path / 'b.py'}:2: a.f: ")


def test_no_attribute_becomes_a_keyword_of_c(tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(
        "class A:\n    def __init__(self, signed):\n        self._signed: dict = signed\n        self.signed = 1\n"
    )
    (found,) = refusals([file])
    assert found == f"{file}:3: `__signed` is a keyword of C compilers: choose another name"


def test_a_tuple_may_skip_its_constructor(tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text("def g(kind):\n    return tuple.__new__(kind, (1, 2))\n")
    assert refusals([file]) == []


def test_a_field_and_a_property_with_a_setter_are_no_methods(tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(
        "class A:\n    wake: object\n    @property\n    def p(self): ...\n    @p.setter\n    def p(self, v): ...\n"
        "def g(a):\n    a.wake = a.p = 1\n"
    )
    assert refusals([file]) == []
