"""Decide which subscriptions of a request are within the limits, and answer the others (DYN-46).

A subscription past a limit is refused: the client is told so, and the session does not remember it (refusals.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ..model.events import WILDCARD, Key
from ..model.limits import Bounded, Refusal, counted_as, is_glob
from ..model.steps import EVERY, Steps, pieces
from ..model.types import Params
from .batch import Batch
from .client_view import ClientView
from .context import SessionContext
from .refusals import Refusals, answer_refused, note_refused, refused_among
from .subscription import read_keys
from .subscriptions import Subscriptions

_ALL = Key(WILDCARD)


class Admission:
    """The limits of one session, and the refused subscriptions that wait for their answer."""

    __slots__ = ("_context", "_subscriptions", "refusals")

    def __init__(self, context: SessionContext, subscriptions: Subscriptions) -> None:
        self._context = context
        self._subscriptions = subscriptions
        self.refusals: Refusals | None = None  # None, or at least one that waits

    def admit(self, keys: tuple[Key, ...], refused: dict[Key, Refusal]) -> tuple[Key, ...]:
        """Return the keys that are within the limits, in canonical spelling. Note the others in `refused` (DYN-46)."""
        spec = self._context.table.spec
        found = refused_among(keys, spec.url, self._context.settings.limits)
        if found:
            refused.update(found)
            keys = tuple(key for key in keys if key not in found)
        return read_keys(keys, spec)

    def admitting(self, keys: tuple[Key, ...], refused: dict[Key, Refusal]) -> Steps[tuple[Key, ...]]:
        """Do what `admit` does, in steps."""
        admitted: list[Key] = []
        for piece in pieces(keys):
            admitted += self.admit(tuple(piece), refused)
            if len(piece) == EVERY:
                yield
        return tuple(admitted)

    def lacking_room(self, wanted: Collection[Key], leaving: Collection[Key]) -> Steps[dict[Key, Refusal]]:
        """Return those of `wanted` that exceed the stream's budget once `leaving` is gone (DYN-46), in steps.

        The caller asks only where the budget is nearly used up.
        """
        room = _Room(self._context)
        for piece in pieces(leaving):
            for key in piece:
                if self._subscriptions.has(key):
                    room.give_back(key)
            if len(piece) == EVERY:
                yield
        refused: dict[Key, Refusal] = {}
        for piece in pieces(wanted):
            for key in piece:
                if key == _ALL or self._subscriptions.has(key):
                    continue  # `*` is at most one subscription, and most clients depend on it
                kind = room.take(key)
                if kind is not None:
                    refused[key] = self._context.budget.refusal(kind)
            if len(piece) == EVERY:
                yield
        return refused

    def refuse(self, refused: Mapping[Key, Refusal]) -> None:
        """Queue an answer for each of these keys. The session does not remember them as subscriptions (DYN-46)."""
        if refused:
            context = self._context
            note_refused(context.type_url, Counter(refused.values()), context.budget, context.stream, context.facts)
            self.refusals = self.refusals or Refusals()
            self.refusals.add(refused)

    def answering(self, view: ClientView) -> Steps[Batch]:
        """Return a batch that answers the subscriptions past a limit (DYN-46), in steps. Nothing of them is kept."""
        refused, self.refusals = self.refusals, None
        batch = Batch()
        for piece in pieces(refused.take().items() if refused is not None else ()):
            part = answer_refused(
                dict(piece),
                self._context.table.spec,
                delta=self._context.delta,
                errors=self._context.settings.resource_errors != "none",
                held=lambda key: view.held(key.name, located=key.is_locator),
            )
            batch.join(part)
            if len(piece) == EVERY:
                yield
        return batch


class _Room:
    """What is left of a stream's budget for the subscriptions of one request."""

    __slots__ = ("_context", "_fewer", "_globs", "_kinds", "_left", "_new", "_sets")

    def __init__(self, context: SessionContext) -> None:
        budget = context.budget
        self._context = context
        self._kinds = {located: counted_as(context.table.spec, located=located) for located in (False, True)}
        self._left = {kind: budget.left(kind) for kind in self._kinds.values()}
        self._globs = budget.left("globs")
        self._sets = budget.left("param_sets")
        self._fewer: Counter[Params] = Counter()  # how many locators with these params go
        self._new: set[Params] = set()  # params that no locator on the stream has yet

    def give_back(self, key: Key) -> None:
        """Count a subscription that goes."""
        self._left[self._kinds[key.is_locator]] += 1
        self._globs += self._is_glob(key)
        if key.tag:
            self._fewer[key.tag] += 1
            self._sets += self._fewer[key.tag] == self._context.budget.locators_with(key.tag)

    def take(self, key: Key) -> Bounded | None:
        """Count a subscription that comes, or return of what the stream has no more room."""
        kind, glob, new = self._kinds[key.is_locator], self._is_glob(key), self._has_new_params(key)
        if self._left[kind] <= 0:
            return kind
        if new and self._sets <= 0:
            return "param_sets"
        if glob and self._globs <= 0:
            return "globs"
        self._left[kind] -= 1
        self._globs -= glob
        if new and key.tag:
            self._new.add(key.tag)
            self._sets -= 1
        return None

    def _is_glob(self, key: Key) -> bool:
        return self._context.is_wildcard(key.name) and is_glob(key)

    def _has_new_params(self, key: Key) -> bool:
        """Whether no locator that stays, or comes with this request, has the same params."""
        tag = key.tag
        if not tag or tag in self._new:
            return False
        return self._context.budget.locators_with(tag) <= self._fewer[tag]
