"""Decide which subscriptions of a request are within the limits, and answer the others (DYN-46).

A subscription past a limit is refused: the client is told so, and the session does not remember it (refusals.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ..model.events import WILDCARD, Key
from ..model.limits import Refusal, counted_as
from ..model.steps import EVERY, Steps, pieces
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
        budget, spec = self._context.budget, self._context.table.spec
        kinds = {located: counted_as(spec, located=located) for located in (False, True)}
        left = {kind: budget.left(kind) for kind in kinds.values()}
        for piece in pieces(leaving):
            for key in piece:
                left[kinds[key.is_locator]] += self._subscriptions.has(key)
            if len(piece) == EVERY:
                yield
        refused: dict[Key, Refusal] = {}
        for piece in pieces(wanted):
            for key in piece:
                kind = kinds[key.is_locator]
                if key == _ALL or self._subscriptions.has(key):
                    continue  # `*` is at most one subscription, and most clients depend on it
                if left[kind] > 0:
                    left[kind] -= 1
                else:
                    refused[key] = budget.refusal(kind)
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
