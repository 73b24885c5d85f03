"""Say which modules are compiled, and by what contents a build is known.

`[tool.xdsprism.compiled]` in pyproject.toml lists packages and modules, and those of them that stay interpreted, each
with the reason.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]


class WrongListError(Exception):
    """`[tool.xdsprism.compiled]` names what does not exist."""


def modules(root: Path = ROOT) -> list[str]:
    """Return the dotted names of the modules that wheels have compiled.

    An `__init__.py` is never one of them: it is run once, and has nothing but imports.
    """
    table = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["xdsprism"]["compiled"]
    chosen = {name for entry in table["modules"] for name in _below(root / "src", entry)}
    unknown = sorted(set(table["interpreted"]) - chosen)
    if unknown:
        raise WrongListError(f"pyproject.toml: interpreted: nothing would compile {', '.join(unknown)}: remove it")
    return sorted(chosen - set(table["interpreted"]))


def _below(sources: Path, entry: str) -> Iterable[str]:
    """Return the name of a module, or those of all modules of a package."""
    path = sources.joinpath(*entry.split("."))
    if path.with_suffix(".py").is_file():
        return [entry]
    files = [file for file in path.rglob("*.py") if file.name != "__init__.py"]
    if not files:
        raise WrongListError(f"pyproject.toml: compiled: there is no module and no package {entry}")
    return [".".join(file.relative_to(sources).with_suffix("").parts) for file in files]


def compiler_requirement(root: Path = ROOT) -> str:
    """Return the requirement of mypyc: the mypy that `make types` uses."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return next(each for each in project["optional-dependencies"]["test"] if each.startswith("mypy["))


def digest(root: Path, *tools: str) -> str:
    """Return a hash of all that the compiled modules are made from: sources, list, scripts, and these tools.

    Every file of the package counts, because mypyc also reads the types of what a compiled module imports.
    """
    found = hashlib.sha256("\n".join([*tools, *modules(root)]).encode())
    scripts = [Path(__file__).with_name(name) for name in ("compiling.py", "refusals.py")]
    for file in [*sorted(root.glob("src/**/*.py")), *scripts]:
        found.update(b"\0%s\0" % os.path.relpath(file, root).encode())
        found.update(file.read_bytes())
    return found.hexdigest()[:16]
