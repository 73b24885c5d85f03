"""What the fuzzer found worth keeping, through the same targets, without the fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.targets import TARGETS

CORPUS = Path(__file__).parents[2] / "fuzz/corpus"


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_kept_is_still_taken(target: str) -> None:
    kept = sorted((CORPUS / target).iterdir())
    assert kept
    for file in kept:
        try:
            TARGETS[target](file.read_bytes())
        except Exception as error:
            error.add_note(f"fuzz/corpus/{target}/{file.name}")
            raise


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_kept_is_little(target: str) -> None:
    sizes = [file.stat().st_size for file in (CORPUS / target).iterdir()]
    assert len(sizes) <= 200
    assert sum(sizes) <= 200_000
