"""Facts for tests that count what happened, whichever way it went (core.session.fast_path)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xdsprism.core.model.facts import Acked, Fact, Requested, Routine, Sent


def each_of(facts: Iterable[Fact]) -> Iterator[Fact]:
    """What is only counted there, one by one; by which stream and nonce, nobody knows."""
    for fact in facts:
        if not isinstance(fact, Routine):
            yield fact
            continue
        for number in range(fact.pushes):
            yield Sent(0, fact.type_url, "", fact.resources // fact.pushes + (number < fact.resources % fact.pushes), 0)
        for seconds in fact.waits:
            yield Requested(0, fact.type_url)
            yield Acked(0, fact.type_url, "", seconds)
