"""Answer subscriptions that are past a limit, without remembering them (DYN-46, VHD-26).

To remember a name of 60 MB, or the first name past the limit on names, would defeat the limit. So a refused
subscription lives from the request that contains it to the response that answers it. A client that asks again is
answered again.

The answer says, in the form of the request, that there is nothing, and a resource_error (TP3) says which limit it was:

| subscription                   | answer                                      |
|--------------------------------|---------------------------------------------|
| delta, plain name              | the name in removed_resources               |
| delta, locator                 | a negative answer (TP2)                     |
| delta, host on demand (VHDS)   | a resource without contents                 |
| SotW                           | the error only                              |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from hashlib import blake2b

from ..model.constraints import TRUE, canonical
from ..model.events import WILDCARD, Absence, Key, ResourceError, Send
from ..model.facts import Facts, Sent, SubscriptionsRefused
from ..model.limits import Limits, Refusal, RefusalKind, StreamBudget
from ..model.types import TypeSpec, TypeUrl, Variant
from .batch import Batch
from .context import StreamContext

INVALID_ARGUMENT = 3
ABSENT = "absent."  # prefix of the version of a host that there is no virtual host for (VHD-7)

# Bytes of names that may wait for their answer on one session. Only a client that asks and does not read gets there;
# beyond it the oldest subscriptions are not answered.
PENDING_BYTES = 128 * 1024 * 1024


def absent_version(epoch: str, stream: int, nonce: str) -> str:
    """Return the version of a host that there is no virtual host for. V8: it has to be a new one each time.

    The number of the stream counts those of all clients, which is for none of them to know (OPS-2). So it is hashed.
    """
    return f"{ABSENT}{blake2b(f'{epoch}.{stream}'.encode(), digest_size=8).hexdigest()}.{nonce}"


class Refusals:
    """The subscriptions that one session refused and has not answered yet."""

    __slots__ = ("_bytes", "_pending")

    def __init__(self) -> None:
        self._pending: dict[Key, Refusal] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, refused: Mapping[Key, Refusal]) -> None:
        """Queue these for an answer. Drop the oldest ones above PENDING_BYTES."""
        for key, refusal in refused.items():
            if key not in self._pending:
                self._bytes += len(key.name)
            self._pending[key] = refusal
        while self._bytes > PENDING_BYTES and len(self._pending) > 1:
            self.drop(next(iter(self._pending)))

    def drop(self, key: Key) -> None:
        """Forget one: the client unsubscribed before it was answered, or there is no room for it."""
        if self._pending.pop(key, None) is not None:
            self._bytes -= len(key.name)

    def keep(self, keys: Container[Key]) -> None:
        """Forget all others: the client's newest list does not have them."""
        for key in [key for key in self._pending if key not in keys]:
            self.drop(key)

    def take(self) -> dict[Key, Refusal]:
        """Return all that wait for an answer, and forget them."""
        taken, self._pending, self._bytes = self._pending, {}, 0
        return taken


class RefusedTypes:
    """Answers about types that have no session on a stream: too many types, or an invalid type URL."""

    __slots__ = ("_bytes", "_context", "_count", "_pending")

    def __init__(self, context: StreamContext) -> None:
        self._context = context
        self._pending: list[tuple[int, Send]] | None = None  # responses with their sizes
        self._bytes = 0
        self._count = 0

    def refuse(self, spec: TypeSpec, keys: Collection[Key], refusal: Refusal) -> None:
        """Answer a request for a type that has no session, and remember nothing (DYN-46).

        SotW answers nothing, as for an unknown type (SRV-5).
        """
        context = self._context
        if keys:
            note_refused(spec.url, {refusal: len(keys)}, context.budget, context.number, context.facts)
            if context.delta:
                self._add(spec, keys, refusal)

    def _add(self, spec: TypeSpec, keys: Iterable[Key], refusal: Refusal) -> None:
        """Queue the responses that refuse these keys. Drop the oldest ones above PENDING_BYTES."""
        errors = self._context.settings.resource_errors != "none"
        batch = answer_refused(dict.fromkeys(keys, refusal), spec, delta=True, errors=errors)
        pending = self._pending = self._pending or []
        for part in batch.parts(self._context.settings.response_bytes):
            pending.append((part.size + len(spec.url), self._send(spec.url, part)))
            self._bytes += pending[-1][0]
        while self._bytes > PENDING_BYTES and len(pending) > 1:
            self._bytes -= pending.pop(0)[0]

    def _send(self, type_url: TypeUrl, batch: Batch) -> Send:
        """Return the response with this batch."""
        self._count += 1
        nonce = f"refused.{self._count}"  # the nonces of sessions begin with a revision, so these differ from them
        return Send(
            type_url,
            True,  # noqa: FBT003
            nonce,
            nonce,
            removed=tuple(batch.removed),
            withdrawn=tuple(batch.withdrawn),
            errors=tuple(batch.errors),
            unresolved=tuple(batch.unresolved),
            absent=absent_version(self._context.settings.epoch, self._context.number, nonce),
        )

    def take(self) -> list[Send]:
        """Return the responses that wait, and forget them."""
        if not self._pending:
            return []
        taken, self._pending, self._bytes = self._pending, None, 0
        sends = [send for _, send in taken]
        for each in sends:
            gone = len(each.removed) + len(each.withdrawn)
            self._context.facts.append(Sent(self._context.number, each.type_url, each.nonce, 0, gone))
        return sends


def refuses_type(context: StreamContext, type_url: TypeUrl, types: int) -> Refusal | None:
    """Return why a stream with so many types can't have this one, too, or None (DYN-46).

    The service of one type always has its own type.
    """
    limits = context.settings.limits
    if not context.is_aggregated:
        return None
    if types >= limits.types:
        return Refusal("types", f"there are {limits.types} resource types on this stream, and no more are accepted")
    return limits.refuses(type_url, "", None)


def note_refused(
    type_url: TypeUrl, refused: Mapping[Refusal, int], room: StreamBudget, stream: int, facts: Facts
) -> None:
    """Count refused subscriptions by limit, in the stream's budget and as facts."""
    tally: Counter[RefusalKind] = Counter()
    reasons: dict[RefusalKind, str] = {}
    for refusal, count in refused.items():
        tally[refusal.kind] += count
        reasons.setdefault(refusal.kind, refusal.message)
    for kind, count in tally.items():
        room.note_refused(kind, count)
        facts.append(SubscriptionsRefused(stream, type_url, kind, count, reasons[kind]))


def refused_among(keys: Iterable[Key], type_url: TypeUrl, limits: Limits) -> dict[Key, Refusal]:
    """Return those of these keys that are past a limit, regardless of what else is on the stream."""
    # So many characters are within every limit, whichever they are.
    short = min(limits.name_bytes // 4, max(limits.context_params - 1, 0))
    refused: dict[Key, Refusal] = {}
    for key in [
        key for key in keys if key.tag or len(key.name) > short or not key.name.isascii()
    ]:  # nearly always none
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
    """Return a batch that answers each refused key in its own form, and says why (DYN-46).

    `errors`: the server sends resource_errors. `held`: returns what the client holds of this name in the same form by
    other subscriptions, a wildcard or a locator with other params. A negative answer must not take that away.
    """
    batch = Batch()
    for key, refusal in refused.items():
        name, tag = _readable(key.name), key.tag
        about = Absence(name, TRUE, never=True)
        unresolved = delta and spec.on_demand and tag is None
        others = {TRUE if tag is None else canonical(variant.constraint) for variant in held(Key(name, tag))}
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
