"""What the fuzzer found worth keeping, through the same targets, without the fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.targets import TARGETS
from fuzz.words import WORDS

CORPUS = Path(__file__).parents[2] / "fuzz/corpus"


@pytest.mark.parametrize("target", TARGETS)
def test_the_inputs_in_the_corpus_raise_nothing(target: str) -> None:
    kept = sorted((CORPUS / target).iterdir())
    assert kept
    for file in kept:
        try:
            TARGETS[target](file.read_bytes())
        except Exception as error:
            error.add_note(f"fuzz/corpus/{target}/{file.name}")
            raise


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_small(target: str) -> None:
    sizes = [file.stat().st_size for file in (CORPUS / target).iterdir()]
    assert len(sizes) <= 200
    assert sum(sizes) <= 200_000


def test_every_target_has_a_line_in_the_readme_and_words_are_for_targets() -> None:
    readme = (CORPUS.parent / "README.md").read_text()
    assert [name for name in TARGETS if f"| `{name}` |" not in readme] == []
    assert set(WORDS) <= set(TARGETS)
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
