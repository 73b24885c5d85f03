"""What one stream was sent of one type, and what the client said of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .constraints import Constraint
from .events import Absence, Rejection, ResourceError, Send
from .expr import show
from .facts import Acked, Fact, Nacked, Oversize, Sent, Suppressed
from .interest import Interest
from .settings import Settings
from .store import Table
from .subscription import Session, Want, Wild
from .types import Params, Variant

RESOURCE_EXHAUSTED = 8
UNJUDGED = 64  # responses remembered until they are ACKed or NACKed; a client that never answers costs no more


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A response that was sent and not yet ACKed or NACKed."""

    number: int
    sent_at: float
    version: str
    send: Send | None  # what was in it; of full state, where it may be large and says nothing, not kept


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a response is about: a resource, or one that is gone."""

    name: str
    located: bool
    variant: Variant | None  # None: it is gone
    label: str


@dataclass(frozen=True, slots=True)
class Parked:
    """Something that the client rejected; it is not sent again until it changes (NAK-3)."""

    number: int  # of the response
    error: Rejection
    part: Part


@dataclass(slots=True)
class Progress:
    """How far the client is; shown in status, and asked by the stream before it lets removals go (ORD-2)."""

    sent: int = 0
    acked: int = 0
    nacked: int = 0
    sent_version: str = ""
    acked_version: str = ""
    sent_at: float | None = None
    acked_at: float | None = None
    nack: tuple[float, str, str, Rejection] | None = None  # NAK-12: time, version, nonce, error
    rejected: dict[str, Parked] = field(default_factory=dict)
    spared: bool = False  # the client came with something that it did not need to be sent

    @property
    def state(self) -> str:
        """As `istioctl proxy-status` says it."""
        if not self.sent:
            return "SYNCED" if self.spared else "NOT SENT"
        if self.nack is not None:
            return "NACKED"
        return "SYNCED" if self.acked == self.sent else "STALE"


class AnsweredSession(Session):
    """A session and the fate of its responses."""

    def __init__(
        self, table: Table, interest: Interest, settings: Settings, params: Params, stream: int, facts: list[Fact]
    ) -> None:
        super().__init__(table, interest, settings, params, stream, facts)
        self.progress = Progress()
        self._unjudged: dict[str, Unjudged] = {}
        self._nonces = (0, 0)  # revision, number of responses at that revision

    def _nonce(self) -> str:
        """Unique within a stream (SRV-8), and mostly the same for every stream that gets the same response.

        The revision of the table says which response it is; a second one at that revision gets a number of its own.
        """
        revision, number = self._nonces
        number = number + 1 if revision == self.table.revision else 0
        self._nonces = self.table.revision, number
        base = f"{self.table.revision}.{self.table.spec.label}"
        return f"{base}.{number}" if number else base

    def _sent(self, send: Send, now: float) -> Send:
        progress = self.progress
        progress.sent += 1
        progress.sent_version = send.version
        progress.sent_at = now
        self._unjudged[send.nonce] = Unjudged(progress.sent, now, send.version, None if self._full_state else send)
        if len(self._unjudged) > UNJUDGED:
            del self._unjudged[next(iter(self._unjudged))]
        gone = len(send.removed) + len(send.withdrawn)
        self._facts.append(Sent(self.stream, send.type_url, send.nonce, send.count, gone))
        return send

    @property
    def _room(self) -> int:
        """How many more responses may go out alone: a client that NACKs thousands is asked a few at a time."""
        return max(0, UNJUDGED // 2 - len(self._unjudged))

    def _judge(self, nonce: str, error: Rejection | None, now: float) -> Unjudged | None:
        """NAK-28: each nonce is judged once; later requests with it only change subscriptions.

        NAK-1, NAK-2: error_detail alone makes a NACK, whatever the version says.
        """
        found = self._unjudged.pop(nonce, None)
        if found is None:
            return None
        if error is None:
            self._accepted(found, now)
            self._facts.append(Acked(self.stream, self.table.spec.url, nonce, now - found.sent_at))
        else:
            self._rejected(found, nonce, error, now)
            self._facts.append(Nacked(self.stream, self.table.spec.url, nonce, found.version, error))
        return found

    def _accepted(self, response: Unjudged, now: float) -> None:
        progress = self.progress
        progress.acked = max(progress.acked, response.number)
        progress.acked_version = response.version
        progress.acked_at = now
        if progress.rejected and response.send is not None:
            self._unpark(response.send)
        if progress.nacked < response.number and not (self.delta and progress.rejected):
            progress.nack = None  # NAK-13

    def _rejected(self, response: Unjudged, nonce: str, error: Rejection, now: float) -> None:
        parts = {part.label: part for part in _parts(response.send)} if response.send is not None else {}
        wanted = {label: part for label, part in parts.items() if self._wanted(part)}
        if (parts and not wanted) or self._overtaken(response):
            return
        progress = self.progress
        progress.nacked = max(progress.nacked, response.number)
        progress.nack = (now, response.version, nonce, error)
        # Which one was bad is known if there was one. A SotW client may go on with any of them as it was.
        if len(parts) == 1 or not self.delta:
            for label, part in wanted.items():
                progress.rejected[label] = Parked(response.number, error, part)

    def _overtaken(self, response: Unjudged) -> bool:
        """NAK-11: whether the client has since accepted something else in place of all that was in it."""
        if response.send is None or response.number > self.progress.acked:
            return False
        parts = [part for part in _parts(response.send) if part.variant is not None]
        return not any(part.variant and self._has(part.variant, located=part.located) for part in parts)

    def _unpark(self, accepted: Send) -> None:
        """What was accepted is parked no more, and neither is what it took the place of."""
        labels, names = set(), set()
        for part in _parts(accepted):
            labels.add(part.label)
            names.add((part.name, part.located))
        for label, parked in list(self.progress.rejected.items()):
            part = parked.part
            here = (part.name, part.located) in names
            if label in labels or (here and not (part.variant and self._has(part.variant, located=part.located))):
                del self.progress.rejected[label]

    def _drop(self, want: Want) -> None:
        super()._drop(want)
        self._forget_unwanted()

    def _drop_wild(self, wild: Wild) -> None:
        super()._drop_wild(wild)
        self._forget_unwanted()

    def _forget_unwanted(self) -> None:
        """ORD-4: what nobody wants any more holds nothing up."""
        rejected = self.progress.rejected
        for label in [label for label, parked in rejected.items() if not self._wanted(parked.part)]:
            del rejected[label]
            if not rejected:
                self.progress.nack = None

    def _wanted(self, part: Part) -> bool:
        """Whether a subscription is there for it, by its name, an alias or a wildcard."""
        known = self.table.get(part.name)
        strings = (part.name, *(known.aliases if known is not None else ()))
        named = (want for string in strings for want in self._wants.get(string, {}).values())
        tags = (*self._wilds, *(want.key[1] for want in named))
        return any((tag is not None) == part.located for tag in tags)

    def _suppressed(self, resources: int) -> None:
        self.progress.spared = True
        if resources:
            self._facts.append(Suppressed(self.stream, self.table.spec.url, resources))

    def _oversize(self, variant: Variant) -> ResourceError:
        """DLT-22: it becomes an error about itself; the rest of the response is delivered."""
        self._facts.append(Oversize(self.stream, self.table.spec.url, variant.name, variant.size))
        limit = self.settings.response_bytes
        message = f"{variant.name!r} takes {variant.size} bytes, more than the {limit} that a response may have"
        return ResourceError(Absence(variant.name, variant.constraint), RESOURCE_EXHAUSTED, message)


def _parts(send: Send) -> Iterator[Part]:
    """What a response is about. What is withdrawn beside a variant of that name was replaced by it."""
    for variant in send.plain:
        yield Part(variant.name, False, variant, variant.name)  # noqa: FBT003
    for name in send.removed:
        yield Part(name, False, None, name)  # noqa: FBT003
    names = {variant.name for variant in send.located}
    for variant in send.located:
        yield Part(variant.name, True, variant, _label(variant.name, variant.constraint))  # noqa: FBT003
    for gone in send.withdrawn:
        if gone.name not in names and not gone.never:  # that there is nothing is nothing to reject
            yield Part(gone.name, True, None, _label(gone.name, gone.constraint))  # noqa: FBT003


def _label(name: str, constraint: Constraint) -> str:
    return f"{name} [{show(constraint)}]"
