"""Resend the resources of a NACKed response, each alone, so that one bad resource never holds back the good ones.

A NACK of several resources does not say which one was bad, and the client may have applied all, some or none of them.
So each of them goes out once more in a response of its own (NAK-29): the good ones are ACKed, and a NACK of a response
with one resource names the bad one, which rejections.py keeps back until it changes (NAK-3).

In delta, after a NACK of a response

- with several resources, each goes out alone, at once. The removals of the response go out after them.
- with one resource, nothing goes out. But if it took the place of a variant with other constraints, the withdrawal of
  that variant goes out with whatever comes next of the name (DYN-24).

A withdrawal removes one variant, by name and constraints; other variants of the name stay. In SotW there are neither
removals nor withdrawals. There, after a NACK of a response

- with several resources, each goes out alone with the next change, since nothing may be resent before (NAK-3). If a
  newer response was sent before the NACK came, there was a change, and they go out at once.
- with a full state (of listeners, say), nothing goes out: whatever it lacked, the client would remove (SOT-4).
  verdicts.py keeps nothing of such a response, and the next change sends the whole state again.

Whatever waits here is checked against the client's subscriptions and the store before it goes out: a resource that
changed meanwhile, or that has no subscription any more, is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..model.constraints import canonical
from ..model.events import Absence, Key, Send
from ..model.types import Variant
from .batch import Batch, Slot, slot_of
from .client_view import ClientView


@dataclass(slots=True)
class Waiting:
    """The resources to resend, by slot, so that there can't be more of them than resources."""

    alone: dict[Slot, Batch] = field(default_factory=dict)  # each goes out by itself
    until_change: dict[Slot, Batch] = field(default_factory=dict)  # SotW: the same, once something changes
    removals: Batch | None = None  # delta: removals that go out again
    withdrawals: dict[str, dict[Absence, None]] = field(default_factory=dict)  # delta, by name: they go with what comes

    def __bool__(self) -> bool:
        return bool(self.alone or self.until_change or self.removals or self.withdrawals)


class Isolation:
    """The resources of NACKed responses that go out again."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: Waiting | None = None  # made at the first NACK: most clients never send one

    def _queue(self) -> Waiting:
        """Return what goes out again, to add to it."""
        self._waiting = waiting = self._waiting if self._waiting is not None else Waiting()
        return waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        """How many resources wait to be sent alone."""
        return len(self._waiting.alone) + len(self._waiting.until_change) if self._waiting is not None else 0

    @property
    def is_waiting(self) -> bool:
        """Whether something is to go out as soon as there is room for it."""
        return self._waiting is not None and bool(self._waiting.alone or self._waiting.removals)

    @property
    def has_resources(self) -> bool:
        """Whether the client has yet to judge resources that are sent alone."""
        return self._waiting is not None and bool(self._waiting.alone)

    # -- a NACK came

    def add_sotw(self, send: Send, *, is_superseded: bool) -> None:
        """Resend the resources of a NACKed SotW response alone, with the next change.

        is_superseded: a newer response was sent before the NACK came, so there was a change, and they may go out now.
        """
        if send.count > 1:
            queue = self._queue().alone if is_superseded else self._queue().until_change
            for variant in send.plain:
                queue[slot_of(variant, located=False)] = Batch(plain={variant.name: variant})
            for variant in send.located:
                queue[slot_of(variant, located=True)] = Batch(located={variant: None})

    def add_delta(self, send: Send, view: ClientView) -> None:
        """Resend the resources of a NACKed delta response alone, and then its removals.

        A response with one resource is its own proof: that resource is kept back until it changes (NAK-3).
        """
        batch = Batch({variant.name: variant for variant in send.plain}, dict.fromkeys(send.located))
        batch.removed = dict.fromkeys(send.removed)
        batch.withdrawn = {absence: None for absence in send.withdrawn if not absence.never}
        units, gone = batch.alone()
        if len(units) + bool(gone) + bool(send.unresolved) > 1:
            alone = self._queue().alone
            for slot, unit in units.items():
                unit.withdrawn.update(alone.pop(slot, unit).withdrawn)
                alone[slot] = unit
            self._add_removals(gone)
            return
        for variant in batch.located:
            if view.has(variant, located=True):
                self._queue().withdrawals.setdefault(variant.name, {}).update(batch.withdrawn)
            else:
                self.withdraw_again(batch.withdrawn)  # it was overtaken: what it replaced must still go

    def withdraw_again(self, absences: Iterable[Absence]) -> None:
        """Say these removals again, as soon as they are true."""
        self._add_removals(Batch(withdrawn=dict.fromkeys(absences)))

    def _add_removals(self, gone: Batch) -> None:
        if gone:
            waiting = self._queue()
            waiting.removals = waiting.removals or Batch()
            waiting.removals.join(gone)

    # -- something changed

    def note_change(self) -> None:
        """SotW: the store has news, so what waited for a change may go out with it."""
        if self._waiting is not None:
            self._waiting.alone.update(self._waiting.until_change)
            self._waiting.until_change = {}

    def drop_outdated(self, view: ClientView) -> None:
        """SotW: drop what the client is not to have any more."""
        if self._waiting is not None:
            current = ((slot, _still_current(part, view)) for slot, part in self._waiting.alone.items())
            self._waiting.alone = {slot: part for slot, part in current if part}

    def forget_withdrawals(self, names: Iterable[str], view: ClientView) -> None:
        """A client drops by itself what none of its locators covers any more (WLD-9)."""
        withdrawals = self._waiting.withdrawals if self._waiting is not None else {}
        for name in names if withdrawals else ():
            if name in withdrawals and not view.is_subscribed(name, located=True):
                del withdrawals[name]

    def forget_all_withdrawals(self, view: ClientView) -> None:
        if self._waiting is not None:
            self.forget_withdrawals(list(self._waiting.withdrawals), view)

    # -- a response goes out

    def add_withdrawals(self, batch: Batch, view: ClientView) -> None:
        """Add to a batch the withdrawals that a NACKed response made of the same names.

        DYN-24: the client may still have the withdrawn variant next to what comes now (TP2, Matching Ambiguity), so it
        goes in the same response, whether its successor was rejected or waits to be sent alone. What waits and is said
        by this batch, or is outdated, is dropped.
        """
        waiting = self._waiting
        if waiting is None or not (waiting.withdrawals or waiting.alone):
            return
        names = {variant.name for variant in batch.located}
        names.update(absence.name for absence in batch.withdrawn if not absence.never)
        for name in names.intersection(waiting.withdrawals):
            withdrawn = waiting.withdrawals.pop(name)
            batch.withdrawn.update((absence, None) for absence in withdrawn if _is_gone(absence, view))
        for slot in [slot for slot in waiting.alone if slot[1] in (names if slot[0] else batch.plain)]:
            part = _still_current(waiting.alone[slot], view)
            batch.withdrawn.update(part.withdrawn)
            if part.plain or part.located.keys() <= batch.located.keys():
                del waiting.alone[slot]

    def take(self, said: Batch, view: ClientView, room: int, limit: int) -> list[Batch]:
        """The responses that go out now, `room` at most: resources alone, and after the last of them the removals.

        said   what this poll sends anyway
        limit  on the bytes of a response
        """
        parts: list[Batch] = []
        waiting = self._waiting
        if waiting is None:
            return parts
        while waiting.alone and len(parts) < room:
            part = _still_current(waiting.alone.pop(next(iter(waiting.alone))), view)
            if part and not _is_said(part, said):
                parts.append(part)
        if not waiting.alone and len(parts) < room and waiting.removals:
            gone, waiting.removals = _still_current(waiting.removals, view), None
            gone.removed = {name: None for name in gone.removed if name not in said.removed}
            gone.withdrawn = {absence: None for absence in gone.withdrawn if absence not in said.withdrawn}
            parts += gone.parts(limit) if gone else []
        return parts


def _is_said(part: Batch, said: Batch) -> bool:
    """Whether a batch has the resource of this part."""
    if part.plain:
        return part.plain.keys() <= said.plain.keys()
    return bool(part.located) and part.located.keys() <= said.located.keys()


def _still_current(part: Batch, view: ClientView) -> Batch:
    """Keep the resources that the client should still have, and the removals of all others."""
    plain = {name: variant for name, variant in part.plain.items() if view.has(variant, located=False)}
    located = {variant: None for variant in part.located if view.has(variant, located=True)}
    still = Batch(plain, located)
    for name in part.removed:
        if view.may_have(name, located=False) and not any(view.held_of(name, located=False)):
            still.removed[name] = None
    for absence in part.withdrawn:
        if view.may_have(absence.name, located=True) and _is_gone(absence, view):
            still.withdrawn[absence] = None
    leaving: Mapping[Key, Variant] = view.leaving if still.removed or still.withdrawn else {}
    for (_, tag), held in leaving.items():
        still.spare(held, located=tag is not None)  # it came back and leaves again, which is said in its time
    return still


def _is_gone(absence: Absence, view: ClientView) -> bool:
    """Whether the client is not to have the variant with these constraints."""
    gone = canonical(absence.constraint)  # DYN-30
    return all(held.identity[1] != gone for held in view.held_of(absence.name, located=True))
