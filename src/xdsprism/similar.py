"""Finds known words that are nearly a word that is unknown, for errors: `did you mean main?`.

A comparison takes time, and there may be a hundred thousand names, so only some are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from os.path import commonprefix

CLOSE = 0.6  # by default, how alike two words have to be, from 0 to 1, as difflib measures it
LONGEST = 128  # characters of a word that is compared
LOOKED_AT = 1_000  # known words whose length is looked at
COMPARED = 50  # of those of a fitting length, the ones that begin and end most like the word


def similar(word: str, known: Iterable[str], most: int = 1, close: float = CLOSE) -> list[str]:
    """Return at most `most` of the known words that are nearly this one, the nearest first."""
    from difflib import get_close_matches  # noqa: PLC0415 - not needed unless there is an error
    from heapq import nlargest  # noqa: PLC0415

    size = len(word)
    if not 0 < size <= LONGEST:
        return []
    seen = list(islice(known, LOOKED_AT))
    fitting = [each for each in seen if 2 * min(size, len(each)) >= close * (size + len(each))]
    if len(fitting) > COMPARED:
        fitting = nlargest(COMPARED, fitting, key=lambda each: _shared(word, each) + _shared(word[::-1], each[::-1]))
    return get_close_matches(word, fitting, most, close)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return what to add to an error about an unknown word: `; did you mean main?`, or nothing."""
    found = similar(word, known)
    return f"; did you mean {found[0]}?" if found else ""


def _shared(one: str, other: str) -> int:
    """Return how many characters two words have in common at their beginning."""
    return len(commonprefix((one, other)))  # noqa: RUF071 # these are no paths
