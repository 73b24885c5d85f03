"""A subscription of a relay to a server that a test plays: each thing that the relay does with it is a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsprism.core.watch.entry import Entry


def _nothing(_: Entry) -> object:
    return None


@dataclass(frozen=True)
class Carrying:
    """core.relay.upstream_feed.Carried: tells the test what the relay does."""

    entry: Entry
    ended: Callable[[Entry], object] = _nothing
    asked_again: Callable[[Entry], object] = _nothing
    presumed_gone: Callable[[Entry], object] = _nothing

    def end(self) -> None:
        self.ended(self.entry)

    def ask_again(self) -> None:
        self.asked_again(self.entry)

    def presume_gone(self) -> None:
        self.presumed_gone(self.entry)
