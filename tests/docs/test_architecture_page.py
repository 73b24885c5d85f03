"""docs/architecture.md names files, classes and functions: each of them exists, and every file of the core is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "xdsprism"
PAGE = (ROOT / "docs" / "architecture.md").read_text()

QUOTED = re.findall(r"`([^`\n]+)`", PAGE)
FILES = sorted({word for word in QUOTED if re.fullmatch(r"[\w/]+\.py", word)})
DATA = (".py", ".bin", ".yaml", ".key", ".pem", ".md")
MEMBERS = sorted(
    word for word in {*QUOTED} if re.fullmatch(r"[A-Za-z_]\w*\.[a-z_]\w*", word) and not word.endswith(DATA)
)


@cache
def members() -> dict[str, set[str]]:
    """What each class and each module defines; what a class does, also under its name in lower case, for instances."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text())
        found.setdefault(path.stem, set()).update(defined(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(defined(node))
                found.setdefault(node.name.lower(), set()).update(defined(node))
    return found


def defined(owner: ast.AST) -> Iterator[str]:
    for node in ast.walk(owner):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_the_page_names_exists(file: str) -> None:
    places = [
        path for path in [*SOURCES.rglob("*.py"), *(ROOT / "scripts").glob("*.py")] if f"/{path}".endswith(f"/{file}")
    ]
    assert places, f"docs/architecture.md names {file}, which is not below src/xdsprism or scripts"


@pytest.mark.parametrize("member", MEMBERS)
def test_a_function_that_the_page_names_exists(member: str) -> None:
    owner, name = member.split(".")
    assert name in members().get(owner, ()), (
        f"docs/architecture.md names {member}, which nothing called {owner} defines"
    )


@pytest.mark.parametrize(
    "path", sorted((SOURCES / "core").rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES))
)
def test_the_page_names_every_file_of_the_core(path: Path) -> None:
    if path.name == "__init__.py":
        return
    room = path.parent.name
    headings = re.split(r"\*\*`core/", PAGE)
    (part,) = [part for part in headings if part.startswith(f"{room}/") or f"`core/{room}/`" in part.split("**")[0]]
    named = set(re.findall(r"`(?:\w+/)?(\w+\.py)`", part))
    assert path.name in named, f"docs/architecture.md does not say what core/{room}/{path.name} decides"
