"""Tests judge by public properties and by what is sent; ruff (SLF001) finds the others, and each of these says why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
BY_NAME = re.compile(r"""setattr\([^"']*["']_[a-z]""")  # which ruff can't see
ALLOWED = "noqa" + ": SLF001"


def looks(text: str) -> Iterator[tuple[int, str]]:
    """Where a test touches a private attribute, and what it says about that."""
    lines = ["", *text.splitlines()]
    for number, line in enumerate(lines):
        if ALLOWED in line:
            yield number, line.partition(ALLOWED)[2].partition("#")[2].strip()
        elif BY_NAME.search(line):
            above = lines[number - 1].strip()
            yield number, line.partition("#")[2].strip() or (above.startswith("#") and above.strip("# ")) or ""


def test_each_use_of_a_private_attribute_says_why():
    files = ((path, path.read_text(encoding="utf-8")) for path in TESTS.rglob("*.py"))
    silent = [f"{path.relative_to(TESTS)}:{number}" for path, text in files for number, why in looks(text) if not why]
    assert silent == []


def test_a_reason_is_looked_for_on_the_line_and_above_a_patch():
    patch = "patch.set" + 'attr(Table, "_listed", fail)'
    lines = [f"a._b  # {ALLOWED}", f"a._b  # {ALLOWED} # so", patch, "# so", patch, f"{patch}  # so", "table.log"]
    assert [*looks("\n".join(lines))] == [(1, ""), (2, "so"), (3, ""), (5, "so"), (6, "so")]
