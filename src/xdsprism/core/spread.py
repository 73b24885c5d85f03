"""Which of several streams to one server carries a type (PRX-35).

A server takes so many types on one stream: ours takes 128. The types that Envoy and gRPC know, all of TYPES, are always
on the first stream, where their order matters (ORD-1). Others, which a client may make up, share the streams: so many
on each, and on so many streams in all.
"""

from __future__ import annotations

from collections import Counter

from .types import TYPES, TypeUrl

TYPES_PER_STREAM = 64  # besides those that are always on the first
STREAMS = 16

_ALWAYS_FIRST = frozenset(spec.url for spec in TYPES)


class TypeSpread:
    """Places types on streams, which are numbered from 0, for as long as something of them is asked."""

    def __init__(self) -> None:
        self._places: dict[TypeUrl, int] = {}
        self._asked: Counter[TypeUrl] = Counter()  # how often each is
        self._taken: Counter[int] = Counter()  # how many types are on each stream

    def place(self, type_url: TypeUrl) -> int | None:
        """The stream to ask for one more resource of a type; None: every stream is full."""
        if type_url in _ALWAYS_FIRST:
            return 0
        place = self._places.get(type_url)
        if place is None:
            place = next((each for each in range(STREAMS) if self._taken[each] < TYPES_PER_STREAM), None)
            if place is None:
                return None
            self._places[type_url] = place
            self._taken[place] += 1
        self._asked[type_url] += 1
        return place

    def leave(self, type_url: TypeUrl) -> None:
        """One resource less is asked for."""
        if type_url in _ALWAYS_FIRST:
            return
        self._asked[type_url] -= 1
        if not self._asked[type_url]:
            del self._asked[type_url]
            self._taken[self._places.pop(type_url)] -= 1
