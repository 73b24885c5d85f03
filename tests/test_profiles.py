"""The profiles of hypothesis (tests/conftest.py) hold for every property."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.examples import examples

TESTS = Path(__file__).parent


@pytest.mark.parametrize(("profile", "number"), [("steady", 40), ("brief", 40), ("explore", 800)])
def test_a_property_with_a_number_of_its_own_has_more_examples_in_a_profile_that_explores(profile: str, number: int):
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert examples(40) == number
    finally:
        settings.load_profile(before)


def test_no_property_fixes_its_number_of_examples():
    fixed = [
        f"{path.relative_to(TESTS)}:{text.count(chr(10), 0, found.start()) + 1}"
        for path in TESTS.rglob("*.py")
        if path != TESTS / "conftest.py"  # has the profiles themselves
        for text in [path.read_text(encoding="utf-8")]
        for found in re.finditer(r"\bmax_examples\s*=\s*(?!examples\(|number`)", text)
    ]
    assert fixed == []
