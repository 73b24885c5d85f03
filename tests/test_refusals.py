"""scripts/wheel/refusals.py: what means something else once it is compiled is found before it is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.wheel.refusals import refusals

SOURCES = Path(__file__).parents[1] / "src" / "xdsprism"


def test_the_sources_have_nothing_that_is_refused() -> None:
    assert refusals(sorted(SOURCES.rglob("*.py"))) == []


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
    "a field that is any object": "@dataclass(slots=True)\nclass A:\n    f: object\n",
}


@pytest.mark.parametrize("source", PLANTED.values(), ids=PLANTED)
def test_what_is_planted_is_found_with_its_place(tmp_path: Path, source: str) -> None:
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
