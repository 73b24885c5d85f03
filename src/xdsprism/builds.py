"""Tell the builds apart: compiled, as wheels are, or interpreted, as a checkout is.

A wheel has each compiled module twice: as an extension module, and as the Python file that it was made from. Python
imports the extension module. With `XDSPRISM_PURE=1` in the environment, this package imports its Python files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType

VARIABLE = "XDSPRISM_PURE"
NO = ("", "0", "no", "off", "false")

PACKAGE = __name__.rpartition(".")[0]
HOTTEST = f"{PACKAGE}.core.session.fast_path"  # compiled in every wheel that has compiled modules


class SourceFinder(MetaPathFinder):
    """Finds the modules of this package, as Python files only."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith(PACKAGE + "."):
            return None
        finders = (FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)) for folder in path)
        return next(filter(None, (finder.find_spec(fullname, target) for finder in finders)), None)


def choose() -> None:
    """Import Python files from now on, if `XDSPRISM_PURE` says so. Called before any other module is imported."""
    if os.environ.get(VARIABLE, "").lower() not in NO:
        sys.meta_path.insert(0, SourceFinder())


def running() -> str:
    """Name the build that runs, as `xdsprism --version` and `/api/config` do."""
    spec = find_spec(HOTTEST)
    is_source = spec is None or (spec.origin or "").endswith(tuple(SOURCE_SUFFIXES))
    return "interpreted" if is_source else "compiled"
