"""A pytest plugin that runs tests against the compiled build: `python -m pytest -p tests.support.compiled`.

It ends the run if what is imported is not compiled, and skips what tests/compiled_skips.toml lists.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

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
    """Read the list: from the name of a test to the reason. Raise WrongListError for a name that no test has."""
    listed: dict[str, str] = {}
    for entry in tomllib.loads(file.read_text()).get("skip", []):
        test, reason = entry["test"], entry["reason"].strip()
        if not reason:
            raise WrongListError(f"{file.name}: {test}: say why it is skipped")
        path, _, name = test.partition("::")
        if not (root / path).is_file() or name not in _tests(ast.parse((root / path).read_text())):
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    listed = skips()
    for item in items:
        reason = listed.get(item.nodeid.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
