"""Subscriptions that are past a limit: each is answered by itself, and not remembered (DYN-46, VHD-26).

To remember a name of 60 MB, or the first name past the limit on names, would defeat the limit. So a refused
subscription lives from the request that brought it to the response that answers it, and whoever asks again is answered
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping

from ..model.constraints import TRUE, canonical
from ..model.events import WILDCARD, Absence, Key, ResourceError, Send
from ..model.facts import Facts, SubscriptionsRefused
from ..model.limits import Limits, Refusal, RefusalKind, SubscriptionBudget
from ..model.settings import Settings
from ..model.types import TypeSpec, TypeUrl, Variant
from .batch import Batch

INVALID_ARGUMENT = 3
ABSENT = "absent."  # how the version of what is not there begins (VHD-7)

# Bytes of names that may wait for their answer on one session. Only a client that asks and does not read gets there;
# beyond it the oldest are not answered.
PENDING_BYTES = 128 * 1024 * 1024


class Refusals:
    """What one session has refused and not answered yet."""

    __slots__ = ("_bytes", "_pending")

    def __init__(self) -> None:
        self._pending: dict[Key, Refusal] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, refused: Mapping[Key, Refusal]) -> None:
        for key, refusal in refused.items():
            if key not in self._pending:
                self._bytes += len(key[0])
            self._pending[key] = refusal
        while self._bytes > PENDING_BYTES and len(self._pending) > 1:
            self.drop(next(iter(self._pending)))

    def drop(self, key: Key) -> None:
        """It was unsubscribed before it was answered, or there is no more room for it."""
        if self._pending.pop(key, None) is not None:
            self._bytes -= len(key[0])

    def keep(self, keys: Container[Key]) -> None:
        """All others are not asked for any more."""
        for key in [key for key in self._pending if key not in keys]:
            self.drop(key)

    def take(self) -> dict[Key, Refusal]:
        taken, self._pending, self._bytes = self._pending, {}, 0
        return taken


class RefusedTypes:
    """Answers about types that a delta stream has no session for: there are too many of them, or it is no type URL."""

    __slots__ = ("_bytes", "_count", "_pending", "_settings", "_stream")

    def __init__(self, stream: int, settings: Settings) -> None:
        self._stream = stream
        self._settings = settings
        self._pending: list[tuple[int, Send]] = []  # with their sizes
        self._bytes = 0
        self._count = 0

    def add(self, spec: TypeSpec, keys: Iterable[Key], refusal: Refusal) -> None:
        errors = self._settings.resource_errors != "none"
        batch = answer_refused(dict.fromkeys(keys, refusal), spec, delta=True, errors=errors)
        for part in batch.parts(self._settings.response_bytes):
            self._pending.append((part.size + len(spec.url), self._send(spec.url, part)))
            self._bytes += self._pending[-1][0]
        while self._bytes > PENDING_BYTES and len(self._pending) > 1:
            self._bytes -= self._pending.pop(0)[0]

    def _send(self, type_url: TypeUrl, batch: Batch) -> Send:
        self._count += 1
        nonce = f"refused.{self._count}"  # of a session it would begin with a revision
        return Send(
            type_url,
            True,  # noqa: FBT003
            nonce,
            nonce,
            removed=tuple(batch.removed),
            withdrawn=tuple(batch.withdrawn),
            errors=tuple(batch.errors),
            unresolved=tuple(batch.unresolved),
            absent=f"{ABSENT}{self._settings.epoch}.{self._stream}.{nonce}",
        )

    def take(self) -> list[Send]:
        taken, self._pending, self._bytes = self._pending, [], 0
        return [send for _, send in taken]


def note_refused(
    type_url: TypeUrl, refused: Mapping[Refusal, int], room: SubscriptionBudget, stream: int, facts: Facts
) -> None:
    """Count these, by limit, and tell whoever reads facts."""
    tally: Counter[RefusalKind] = Counter()
    reasons: dict[RefusalKind, str] = {}
    for refusal, count in refused.items():
        tally[refusal.kind] += count
        reasons.setdefault(refusal.kind, refusal.message)
    for kind, count in tally.items():
        room.note_refused(kind, count)
        facts.append(SubscriptionsRefused(stream, type_url, kind, count, reasons[kind]))


def refused_among(keys: Iterable[Key], type_url: TypeUrl, limits: Limits) -> dict[Key, Refusal]:
    """Those of these subscriptions that can't be served, whatever else is on the stream."""
    # Characters that are within the limits whichever they are.
    short = min(limits.name_bytes // 4, max(limits.context_params - 1, 0))
    refused: dict[Key, Refusal] = {}
    for key in [key for key in keys if key[1] or len(key[0]) > short or not key[0].isascii()]:  # nearly always none
        refusal = limits.refuses(type_url, *key)
        if refusal is not None:
            refused[key] = refusal
    return refused


def answer_refused(
    refused: Mapping[Key, Refusal],
    spec: TypeSpec,
    *,
    delta: bool,
    errors: bool,
    held: Callable[[Key], Iterable[Variant]] = lambda _: (),
) -> Batch:
    """Say of each that there is nothing, in the form in which it was asked for, and why (DYN-46).

    `errors`: resource_errors are in use. `held`: what the client has of this name by other subscriptions of the same
    form, which it is to keep: by a wildcard, or by a locator with other params.
    """
    batch = Batch()
    for key, refusal in refused.items():
        name, tag = _readable(key[0]), key[1]
        about = Absence(name, TRUE, never=True)
        unresolved = delta and spec.on_demand and tag is None
        others = {TRUE if tag is None else canonical(variant.constraint) for variant in held((name, tag))}
        if delta and name != WILDCARD and not others:
            if unresolved:
                batch.unresolved[name] = None  # VHD-26, VHD-7: to Envoy nothing else says that there is no such host
            elif tag is not None:
                batch.withdrawn[about] = None
            else:
                batch.removed[name] = None
        if errors and not unresolved and TRUE not in others:  # ERR-2
            batch.errors[ResourceError(about, INVALID_ARGUMENT, refusal.message)] = None
    return batch


def _readable(name: str) -> str:
    r"""What a response may say: no client, and not the one that asked, reads one with text that is not UTF-8.

    So the byte 0xE9 is written as `\udce9`. Envoy does not know that for what it asked, and lets its request time out.
    """
    return name.encode(errors="backslashreplace").decode()
