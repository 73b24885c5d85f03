"""Decides whether only gRPC clients use a resource, in which case Envoy's own checks do not apply to it.

A listener with an `api_listener` is for gRPC. The route configurations, clusters and endpoints that such listeners
refer to, directly or not, are for gRPC too, unless something else refers to them as well. A resource that nothing
refers to may be for any client.

Answers are cached. A change of one resource drops only the answers of the resources that it leads to.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core.model.types import LISTENER, Reference, TypeUrl, Variant
from ..messages.validation import is_for_grpc

TypedName = tuple[TypeUrl, str]


class Usage:
    """The graph of references between resources."""

    def __init__(self) -> None:
        # Resources for which `is_for_grpc` may have another answer than before. The caller clears the set.
        self.stale: set[TypedName] = set()
        self._references: dict[TypedName, tuple[Reference, ...]] = {}
        self._users: dict[TypedName, set[TypedName]] = {}  # the reverse: which resources refer to this one
        self._grpc_listeners: set[TypedName] = set()
        self._answers: dict[TypedName, bool] = {}

    def set(self, key: TypedName, variants: Iterable[Variant]) -> None:
        """Replace all variants of a name; with none, the resource is gone."""
        variants = tuple(variants)
        before, after = self._references.get(key, ()), _references(variants)
        is_listener = key[0] == LISTENER and bool(variants)
        grpc = is_listener and all(is_for_grpc(each.type_url, each.body) for each in variants)
        if after == before and grpc == (key in self._grpc_listeners):
            return
        self._drop_answers([key, *before, *after])
        for name in before:
            self._users[name].discard(key)
            if not self._users[name]:
                del self._users[name]
        for name in after:
            self._users.setdefault(name, set()).add(key)
        self._references[key] = after
        if not after:
            del self._references[key]
        if grpc:
            self._grpc_listeners.add(key)
        else:
            self._grpc_listeners.discard(key)

    def is_for_grpc(self, key: TypedName) -> bool:
        """Whether the resource is a listener for gRPC, or only such listeners lead to it."""
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._search(key)
        return answer

    def _search(self, key: TypedName) -> bool:
        """Follow the references backwards until a listener that is not for gRPC, or a resource without users."""
        seen = {key}
        waiting = [key]
        while waiting:
            each = waiting.pop()
            if each[0] == LISTENER:
                if each not in self._grpc_listeners:
                    return False
                continue
            users = self._users.get(each)
            if not users:
                return False
            waiting += users - seen
            seen |= users
        return True

    def _drop_answers(self, waiting: list[TypedName]) -> None:
        """Drop the answers of these resources, and of all that they lead to."""
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
