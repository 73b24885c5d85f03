"""Which of several streams to one server carries a subscription (PRX-35).

A server takes so many types on one stream: ours takes 128, and took 100 once. The types that Envoy and gRPC know, all
of TYPES, are on the first stream, where their order matters (ORD-1). Others, which a client may make up, share the
streams: so many on each, and on so many streams in all.

It also takes so many subscriptions: ours took 100,000 once. The first stream that is full leaves the rest of the types
that Envoy and gRPC know to the next, so that clients which are each within their own limits are not too many together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from ..model.types import TYPES, TypeUrl

TYPES_PER_STREAM = 64  # besides those that are always on the first
STREAMS = 16
SUBSCRIPTIONS_PER_STREAM = 90_000

_ALWAYS_FIRST = frozenset(spec.url for spec in TYPES)


def is_custom(type_url: TypeUrl) -> bool:
    """Whether neither Envoy nor gRPC knows the type."""
    return type_url not in _ALWAYS_FIRST


class TypeSpread:
    """Places types on streams, which are numbered from 0, for as long as something of them is asked.

    Groups have streams of their own, and the types of all are spread alike. A type is on one stream as long as that has
    room for its subscriptions.
    """

    def __init__(self) -> None:
        self._places: dict[TypeUrl, Counter[int]] = {}  # of each custom type, how often it is asked on which stream
        self._taken: Counter[int] = Counter()  # how many of these are on each stream
        self._subscriptions: Counter[tuple[Hashable, int]] = Counter()  # how many each stream of each group has

    def admits(self, type_url: TypeUrl) -> bool:
        """Whether there is a stream for the type, be it a full one."""
        known = not is_custom(type_url) or type_url in self._places
        return known or any(self._taken[each] < TYPES_PER_STREAM for each in range(STREAMS))

    def place(self, type_url: TypeUrl, group: Hashable = None) -> int | None:
        """The stream to ask for one more resource of a type; None: every stream is full."""
        place = next((each for each in self._choice(type_url) if self._has_room(each, group)), None)
        if place is None:
            return None
        self._subscriptions[group, place] += 1
        if is_custom(type_url):
            places = self._places.setdefault(type_url, Counter())
            if not places[place]:
                self._taken[place] += 1
            places[place] += 1
        return place

    def _choice(self, type_url: TypeUrl) -> Iterable[int]:
        """The streams that may carry a type, the best first: of a custom one, those where it is already."""
        if not is_custom(type_url):
            return range(STREAMS)
        known = self._places.get(type_url, ())
        return (*sorted(known), *(each for each in range(STREAMS) if self._taken[each] < TYPES_PER_STREAM))

    def _has_room(self, place: int, group: Hashable) -> bool:
        return self._subscriptions[group, place] < SUBSCRIPTIONS_PER_STREAM

    def leave(self, type_url: TypeUrl, place: int = 0, group: Hashable = None) -> None:
        """One resource less is asked for, on that stream of that group."""
        self._subscriptions[group, place] -= 1
        if not self._subscriptions[group, place]:
            del self._subscriptions[group, place]
        if not is_custom(type_url):
            return
        places = self._places[type_url]
        places[place] -= 1
        if not places[place]:
            del places[place]
            self._taken[place] -= 1
        if not places:
            del self._places[type_url]
