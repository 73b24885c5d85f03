"""A pytest plugin that runs tests against the compiled build: `python -m pytest -p tests.support.compiled`.

It ends the run if what is imported is not compiled, and skips what tests/compiled_skips.toml lists. A test fails that
replaces what compiled callers call all the same, or counts calls that nobody sees: else it would pass without testing.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import xdsprism
from xdsprism.builds import running

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "compiled_skips.toml"


class WrongListError(Exception):
    """The list of skipped tests has an entry that means nothing."""


def skips(file: Path = LIST, root: Path = ROOT) -> Mapping[str, str]:
    """Read the list: from the name of a test to the reason. Raise WrongListError for a name that no test has.

    A name with parameters, as in `test_one[first]`, is that of one case.
    """
    listed: dict[str, str] = {}
    for entry in tomllib.loads(file.read_text()).get("skip", []):
        test, reason = entry["test"], entry["reason"].strip()
        if not reason:
            raise WrongListError(f"{file.name}: {test}: say why it is skipped")
        path, _, name = test.partition("::")
        if not (root / path).is_file() or name.partition("[")[0] not in _tests(ast.parse((root / path).read_text())):
            raise WrongListError(f"{file.name}: no test is called {test}")
        if test in listed:
            raise WrongListError(f"{file.name}: {test} is listed twice")
        listed[test] = reason
    return listed


def _tests(tree: ast.Module) -> Iterator[str]:
    """Yield the names of a file's tests, as pytest writes them after the path."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield node.name
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".TestCase"):
            yield f"{ast.unparse(node.targets[0])}::runTest"  # a state machine


def pytest_configure() -> None:
    if running() != "compiled":
        raise pytest.UsageError(f"{xdsprism.__file__} is not compiled: run `make test-compiled`")
    note_replacements()


class Replacements:
    """The functions that a test put in the place of compiled ones, and whether anything has called them."""

    def __init__(self) -> None:
        self._called: dict[str, bool] = {}

    def clear(self) -> None:
        self._called = {}

    def noting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, as one that notes when it is called."""
        self._called[name] = False

        @wraps(function)
        def noted(*arguments: Any, **named: Any) -> Any:
            self._called[name] = True
            return function(*arguments, **named)

        return noted

    def ignored(self) -> list[str]:
        """Return what was replaced, where nothing has called the replacement."""
        return [name for name, was_called in self._called.items() if not was_called]


REPLACEMENTS = Replacements()


def note_replacements() -> None:
    """Have `monkeypatch.setattr` note which compiled functions it replaces, as long as this process runs."""
    replace = pytest.MonkeyPatch.setattr

    def noting(own: pytest.MonkeyPatch, target: Any, *rest: Any, **options: bool) -> None:
        found = resolve_name(target) if isinstance(target, str) else getattr(target, rest[0], None)
        if is_native(found) and isinstance(rest[-1], FunctionType):
            rest = (*rest[:-1], REPLACEMENTS.noting(str(found), rest[-1]))
        replace(own, target, *rest, **options)

    pytest.MonkeyPatch.setattr = noting  # type: ignore[method-assign]


def is_native(found: object) -> bool:
    """Whether it is a method or function of a compiled module of this package."""
    kinds = (MethodDescriptorType, BuiltinFunctionType)
    home = getattr(found, "__objclass__", None) or getattr(found, "__self__", None) or found
    module = home.__name__ if isinstance(home, ModuleType) else getattr(home, "__module__", "")
    return isinstance(found, kinds) and str(module).startswith(f"{xdsprism.__name__}.")


def pytest_runtest_setup() -> None:
    REPLACEMENTS.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    yield
    ignored = REPLACEMENTS.ignored()
    if ignored:
        said = "compiled code has not called what replaces it; hand the test what it needs, or list it in"
        pytest.fail(f"{', '.join(ignored)}: {said} {LIST.relative_to(ROOT)}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    listed = skips()
    cases = {item.nodeid for item in items}
    tests = {case.partition("[")[0] for case in cases}
    unknown = [name for name in listed if "[" in name and name.partition("[")[0] in tests and name not in cases]
    if unknown:
        raise WrongListError(f"{LIST.name}: these tests have no such case: {', '.join(unknown)}")
    for item in items:
        reason = listed.get(item.nodeid) or listed.get(item.nodeid.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
