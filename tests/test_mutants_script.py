"""scripts/mutants.py: which changes there are, and that a function can be given one while it is in use."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from scripts import mutants

SOURCE = """
LIMIT = 3 if True else 4  # of no function


class Gate:
    def lets(self, number, extra=None):
        if number < LIMIT and not (
            extra is None
        ):
            return [each for each in extra if each != number]
        return None

    @property
    def other(self):
        return super() or LIMIT


from functools import cache


@cache
def is_three(number):
    return number == 3
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "gate.py").write_text(SOURCE)
    return tmp_path / "gate.py"


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_branches_operands_filters_and_comparisons_of_functions_are_changed(path: Path):
    assert sorted(each.name for each in mutants.mutants_of(path)) == [
        "gate.py:10  `each != number` -> `True`",
        "gate.py:10  `each != number` -> `each == number`",
        "gate.py:15  `LIMIT` -> `False`",
        "gate.py:15  `super()` -> `False`",
        "gate.py:23  `number == 3` -> `number != 3`",
        "gate.py:7  `not extra is None` -> `True`",
        "gate.py:7  `not extra is None` -> `bool(extra is None)`",
        "gate.py:7  `number < LIMIT and (not extra is None)` -> `False`",
        "gate.py:7  `number < LIMIT and (not extra is None)` -> `True`",
        "gate.py:7  `number < LIMIT` -> `True`",
        "gate.py:7  `number < LIMIT` -> `number <= LIMIT`",
        "gate.py:8  `extra is None` -> `extra is not None`",
    ]


def test_a_change_is_seen_by_objects_that_were_there_before_it(path: Path):
    gate = imported(path).Gate()
    assert gate.lets(3, [1, 3]) is None
    (mutant,) = (each for each in mutants.mutants_of(path) if "<= LIMIT" in each.name)
    mutants.in_use()[0][str(path), mutant.function].__code__ = mutants.changed_code(mutant)
    assert gate.lets(3, [1, 3]) == [1]


def test_a_result_that_a_function_remembers_does_not_hide_a_change(path: Path, monkeypatch: pytest.MonkeyPatch):
    module = imported(path)
    assert module.is_three(3)
    failed = SimpleNamespace(failed=True)
    monkeypatch.setattr(mutants, "runtestprotocol", lambda *_, **__: [] if module.is_three(3) else [failed])
    (mutant,) = (each for each in mutants.mutants_of(path) if "== 3" in each.name)
    functions, _ = mutants.in_use()
    function = functions[str(path), mutant.function]
    codes = mutants.changed_code(mutant), function.__code__
    assert [mutants.fails(None, function, code, [module.is_three]) for code in codes] == [True, False]
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def test_the_caches_of_functions_are_found(path: Path):
    module = imported(path)
    _, caches = mutants.in_use()
    assert any(each is module.is_three for each in caches)


def test_every_change_can_be_given_to_its_function(path: Path):
    module = imported(path)
    changed, (functions, _) = [], mutants.in_use()
    for mutant in mutants.mutants_of(path):
        function = functions[str(path), mutant.function]
        # It raises if the change took a name away that comes from outside the function.
        function.__code__ = mutants.changed_code(mutant)
        changed.append(function)
    assert {*changed} == {module.Gate.lets, module.Gate.other.fget, module.is_three.__wrapped__}
