"""A test that would pass in the compiled build without testing anything fails there."""

from __future__ import annotations

import pytest

from tests.support.compiled import REPLACEMENTS
from tests.support.work import counted
from xdsprism import serving
from xdsprism.core.model import store, types
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import CLUSTER


def test_a_replacement_that_compiled_code_does_not_call_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_prepared", lambda *_: None)  # a compiled method that `apply` calls
    Store().apply({(CLUSTER, "a"): ()})
    assert REPLACEMENTS.ignored() == ["<method '_prepared' of 'Store' objects>"]
    REPLACEMENTS.clear()


@pytest.mark.parametrize("path", ["xdsprism.core.model.types.make_variant", None])
def test_a_replaced_function_is_noted_by_its_path_and_by_its_module(
    path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path is not None:
        monkeypatch.setattr(path, lambda: None)
    else:
        monkeypatch.setattr(types, "make_variant", lambda: None)
    assert REPLACEMENTS.ignored() == ["<built-in function make_variant>"]
    REPLACEMENTS.clear()


def test_a_replacement_that_is_called_is_as_good_as_in_the_other_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "apply", lambda *_: "called")
    assert str(Store().apply({})) == "called"
    assert REPLACEMENTS.ignored() == []


def test_a_constant_and_what_is_interpreted_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MANY", 0)
    monkeypatch.setattr("xdsprism.core.model.store.MANY", 1)
    monkeypatch.setattr(serving.Server, "start", lambda _: None)
    assert store.MANY == 1
    assert REPLACEMENTS.ignored() == []


def test_calls_in_compiled_modules_can_not_be_counted() -> None:
    said = r"core/model/store\.py.*tests/compiled_skips\.toml"
    with pytest.raises(RuntimeError, match=said), counted("core/model/store.py"):
        raise AssertionError
