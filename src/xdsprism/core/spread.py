"""Which of several streams to one server carries a subscription (PRX-35).

A server takes so many types on one stream: ours takes 128, and took 100 once. The types that Envoy and gRPC know, all
of TYPES, are on the first stream, where their order matters (ORD-1). Others, which a client may make up, share the
streams: so many on each, and on so many streams in all.

It also takes so many subscriptions: ours took 100,000 once. The first stream that is full leaves the rest of the types
that Envoy and gRPC know to the next, so that clients which are each within their own limits are not too many together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from .types import TYPES, TypeUrl

TYPES_PER_STREAM = 64  # besides those that are always on the first
STREAMS = 16
SUBSCRIPTIONS_PER_STREAM = 90_000

_ALWAYS_FIRST = frozenset(spec.url for spec in TYPES)


def is_custom(type_url: TypeUrl) -> bool:
    """Whether neither Envoy nor gRPC knows the type."""
    return type_url not in _ALWAYS_FIRST


class TypeSpread:
    """Places types on streams, which are numbered from 0, for as long as something of them is asked.

    Groups have streams of their own, and the types of all are spread alike.
    """

    def __init__(self) -> None:
        self._places: dict[TypeUrl, int] = {}
        self._asked: Counter[TypeUrl] = Counter()  # how often each is
        self._taken: Counter[int] = Counter()  # how many types are on each stream
        self._subscriptions: Counter[tuple[Hashable, int]] = Counter()  # how many each stream of each group has

    def place(self, type_url: TypeUrl, group: Hashable = None) -> int | None:
        """The stream to ask for one more resource of a type; None: every stream is full."""
        place = self._with_room(type_url, group)
        if place is None:
            return None
        self._subscriptions[group, place] += 1
        if is_custom(type_url):
            if type_url not in self._places:
                self._places[type_url] = place
                self._taken[place] += 1
            self._asked[type_url] += 1
        return place

    def _with_room(self, type_url: TypeUrl, group: Hashable) -> int | None:
        places = range(STREAMS)
        if is_custom(type_url):
            known = self._places.get(type_url)
            places = range(known, known + 1) if known is not None else places
            if known is None:
                return next((each for each in places if self._is_free(each, group)), None)
        return next((each for each in places if self._subscriptions[group, each] < SUBSCRIPTIONS_PER_STREAM), None)

    def _is_free(self, place: int, group: Hashable) -> bool:
        """Whether there is room for one more type."""
        has_room = self._subscriptions[group, place] < SUBSCRIPTIONS_PER_STREAM
        return has_room and self._taken[place] < TYPES_PER_STREAM

    def leave(self, type_url: TypeUrl, place: int = 0, group: Hashable = None) -> None:
        """One resource less is asked for, on that stream of that group."""
        self._subscriptions[group, place] -= 1
        if not self._subscriptions[group, place]:
            del self._subscriptions[group, place]
        if not is_custom(type_url):
            return
        self._asked[type_url] -= 1
        if not self._asked[type_url]:
            del self._asked[type_url]
            self._taken[self._places.pop(type_url)] -= 1
