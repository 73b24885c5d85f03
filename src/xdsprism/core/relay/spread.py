"""Choose which of several streams to one server carries an upstream subscription (PRX-35).

A server limits the types on one stream: xdsprism takes 128, and earlier versions took 100. The types that Envoy and
gRPC know, all of TYPES, start on the first stream, where their order matters (ORD-1). Custom types, which clients may
make up, are spread over up to STREAMS streams, TYPES_PER_STREAM on each.

A server also limits subscriptions: earlier versions of xdsprism took 100,000 on one stream. When the first stream is
full, the next one carries further subscriptions of the types that Envoy and gRPC know. So clients that are each within
their own limits do not exceed the limits of the server together.
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
    """Places subscriptions on streams, which are numbered from 0, and remembers them until they end.

    Each group of clients has streams of its own; the types of all groups are spread alike. A type stays on one stream
    as long as that stream has room for its subscriptions.
    """

    def __init__(self) -> None:
        self._places: dict[TypeUrl, Counter[int]] = {}  # custom types: subscriptions by stream
        self._taken: Counter[int] = Counter()  # custom types on each stream
        self._subscriptions: Counter[tuple[Hashable, int]] = Counter()  # by group and stream

    def admits(self, type_url: TypeUrl) -> bool:
        """Whether a stream can carry the type, even if its subscriptions are full."""
        known = not is_custom(type_url) or type_url in self._places
        return known or any(self._taken[each] < TYPES_PER_STREAM for each in range(STREAMS))

    def place(self, type_url: TypeUrl, group: Hashable = None) -> int | None:
        """Return the stream for one more subscription of a type, and count it; None: every stream is full."""
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
        """Return the streams that may carry a type, best first. A custom type stays where it is if there is room."""
        if not is_custom(type_url):
            return range(STREAMS)
        known = self._places.get(type_url, ())
        return (*sorted(known), *(each for each in range(STREAMS) if self._taken[each] < TYPES_PER_STREAM))

    def _has_room(self, place: int, group: Hashable) -> bool:
        """Whether a stream of a group can carry one more subscription."""
        return self._subscriptions[group, place] < SUBSCRIPTIONS_PER_STREAM

    def leave(self, type_url: TypeUrl, place: int = 0, group: Hashable = None) -> None:
        """Count one subscription less on a stream of a group."""
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
