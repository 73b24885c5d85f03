"""Known words that are nearly an unknown one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from xdsprism.similar import COMPARED, LONGEST, LOOKED_AT, did_you_mean, similar


def test_the_nearest_word_is_found() -> None:
    assert similar("mian", ["shop", "main", "maintenance"]) == ["main"]
    assert did_you_mean("mian", ["shop", "main"]) == "; did you mean main?"


@pytest.mark.parametrize("word", ["", "something", "x" * (LONGEST + 1)])
def test_nothing_is_said_where_nothing_is_near(word: str) -> None:
    assert did_you_mean(word, ["main", "x" * LONGEST]) == ""


def test_of_very_many_words_some_are_looked_at() -> None:
    taken = 0

    def names() -> Iterator[str]:
        nonlocal taken
        for taken in range(1, 100_001):
            yield f"shop-{taken:05d}"

    assert similar("shop-0001", names())
    assert taken == LOOKED_AT


def test_of_many_words_of_a_fitting_length_the_most_alike_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def compare(_word: str, known: list[str], *_: object) -> list[str]:
        compared.extend(known)
        return known[:1]

    monkeypatch.setattr("difflib.get_close_matches", compare)
    known = [f"{number:04d}" for number in range(COMPARED * 3)]
    assert similar("00017", [*known, "0017"]) == ["0017"]
    assert len(compared) == COMPARED
