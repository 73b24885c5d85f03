"""docs/security.md: every test that it names is there, and every table has one in each row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w*)`", PAGE)


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)), ids=lambda part: part.rpartition("/")[2])
def test_each_named_test_exists(file: str, name: str) -> None:
    assert re.search(rf"^\s*(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"


def test_each_attack_has_a_test() -> None:
    attacks = PAGE.partition("## Attacks")[2].partition("### All at once")[0]
    rows = [line for line in attacks.splitlines() if line.startswith("| ") and not line.startswith("| attack |")]
    assert len(rows) > 15
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+`[^|]*\|$", row)] == []


def test_the_page_is_linked() -> None:
    assert "docs/security.md" in (ROOT / "README.md").read_text()
    assert "(security.md)" in (ROOT / "docs/limits.md").read_text()
