"""Who uses what: whether a resource is there for gRPC alone, and so need not please Envoy.

A listener with an `api_listener` is for gRPC. So is what such listeners lead to, as long as nothing else leads there:
their route configurations, clusters and endpoints. What nobody refers to may be anybody's.

An edit costs what it leads to: only there the answers may be others than before.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core.model.types import LISTENER, Reference, TypeUrl, Variant
from ..messages.verdicts import is_for_grpc

Key = tuple[TypeUrl, str]


class Usage:
    """Which resource refers to which."""

    def __init__(self) -> None:
        self.stale: set[Key] = (
            set()
        )  # of these `is_for_grpc` may say something else than before; whoever asks clears it
        self._references: dict[Key, tuple[Reference, ...]] = {}
        self._users: dict[Key, set[Key]] = {}
        self._listeners: set[Key] = set()  # that are for gRPC
        self._answers: dict[Key, bool] = {}

    def set(self, key: Key, variants: Iterable[Variant]) -> None:
        """Take the complete variants of a name; none: it is gone."""
        variants = tuple(variants)
        before, after = self._references.get(key, ()), _references(variants)
        is_listener = key[0] == LISTENER and bool(variants)
        grpc = is_listener and all(is_for_grpc(each.type_url, each.body) for each in variants)
        if after == before and grpc == (key in self._listeners):
            return
        self._forget([key, *before, *after])
        for name in before:
            self._users[name].discard(key)
            if not self._users[name]:
                del self._users[name]
        for name in after:
            self._users.setdefault(name, set()).add(key)
        self._references[key] = after
        if not after:
            del self._references[key]
        (self._listeners.add if grpc else self._listeners.discard)(key)

    def is_for_grpc(self, key: Key) -> bool:
        """Whether only listeners for gRPC lead to it, or it is one."""
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._search(key)
        return answer

    def _search(self, key: Key) -> bool:
        seen = {key}
        waiting = [key]
        while waiting:
            each = waiting.pop()
            if each[0] == LISTENER:
                if each not in self._listeners:
                    return False
                continue
            users = self._users.get(each)
            if not users:
                return False
            waiting += users - seen
            seen |= users
        return True

    def _forget(self, waiting: list[Key]) -> None:
        """All that is led to from these."""
        seen = set(waiting)
        while waiting:
            key = waiting.pop()
            if self._answers.pop(key, None) is not None:
                self.stale.add(key)
            further = [name for name in self._references.get(key, ()) if name not in seen]
            seen.update(further)
            waiting += further


def _references(variants: tuple[Variant, ...]) -> tuple[Reference, ...]:
    if len(variants) == 1:
        return variants[0].references
    return tuple(dict.fromkeys(each for variant in variants for each in variant.references))
