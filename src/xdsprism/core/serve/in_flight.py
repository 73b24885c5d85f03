"""What one stream was sent of one type, and what the client said of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..model.constraints import Constraint, unpadded
from ..model.events import Absence, Key, Rejection, ResourceError, Send
from ..model.expr import show
from ..model.facts import Acked, Facts, Nacked, Oversize, Sent, Suppressed
from ..model.limits import Room
from ..model.settings import Settings
from ..model.table import Table
from ..model.types import Params, Variant
from ..model.views import alike
from .batch import Batch, Slot, portions, slot_of
from .collecting import CollectingSession
from .heartbeat import Heartbeats, Life
from .interest import Interest
from .subscriptions import Want, Wild

RESOURCE_EXHAUSTED = 8
Lives = tuple[tuple[Slot, Variant], ...]

UNJUDGED = 64  # responses remembered until they are ACKed or NACKed; a client that never answers costs no more


class Unjudged(NamedTuple):
    """A response that was sent and not yet ACKed or NACKed."""

    number: int
    sent_at: float
    version: str
    send: Send | None  # what was in it; of full state, where it may be large and says nothing, not kept
    lives: Lives = ()

    @property
    def is_heartbeat(self) -> bool:
        return self.send is not None and self.send.is_heartbeat

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (*self.send.plain, *self.send.located) if self.send is not None else ()


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
    def is_answered(self) -> bool:
        return max(self.acked, self.nacked) >= self.sent

    @property
    def state(self) -> str:
        """As `istioctl proxy-status` says it."""
        if not self.sent:
            return "SYNCED" if self.spared else "NOT SENT"
        if self.nack is not None:
            return "NACKED"
        return "SYNCED" if self.acked == self.sent else "STALE"


class AnsweredSession(CollectingSession):
    """A session and the fate of its responses."""

    __slots__ = (
        "_beating",
        "_beats",
        "_nonces",
        "_unjudged",
        "progress",
        "takes_ttl",
        "v2",
    )

    def __init__(
        self,
        table: Table,
        interest: Interest,
        settings: Settings,
        params: Params,
        stream: int,
        facts: Facts,
        room: Room,
    ) -> None:
        super().__init__(table, interest, settings, params, stream, facts, room)
        self.progress = Progress()
        self._unjudged: dict[str, Unjudged] = {}
        self._nonces = (0, 0)  # revision, number of responses at that revision
        self.takes_ttl = False
        self.v2 = False  # the last request was in the words of v2
        self._beats = Heartbeats()
        self._beating: list[Life] = []  # due a heartbeat in this turn

    def _nonce(self) -> str:
        """Unique within a stream (SRV-8), and mostly the same for every stream that gets the same response.

        The revision of the table says which response it is; a second one at that revision gets a number of its own.
        """
        revision, number = self._nonces
        number = number + 1 if revision == self.table.revision else 0
        self._nonces = self.table.revision, number
        base = f"{self.table.revision}.{self.table.spec.label}"
        return f"{base}.{number}" if number else base

    def _sent(self, send: Send, now: float, *, keep: bool = True) -> Send:
        """Count it and wait for its ACK. `keep`: what was in it is needed if the client rejects it.

        Errors are not: a NACK never brings them back, and their names may be as long as a client likes (DYN-46).
        """
        progress = self.progress
        progress.sent += 1
        progress.sent_version = send.version
        progress.sent_at = now
        lives = self._lives(send)
        kept = None if self._full_state or not keep else replace(send, errors=()) if send.errors else send
        self._unjudged[send.nonce] = Unjudged(progress.sent, now, send.version, kept, lives)
        for slot, _ in lives:
            self._beats.sent(slot, progress.sent)
        if len(self._unjudged) > UNJUDGED:
            forgotten = self._unjudged.pop(next(iter(self._unjudged)))
            for slot, _ in forgotten.lives:
                self._beats.rejected(slot, forgotten.number, lost=True)
        gone = len(send.removed) + len(send.withdrawn)
        self._facts.append(Sent(self.stream, send.type_url, send.nonce, send.count, gone))
        return send

    @property
    def _quota(self) -> int:
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
            parts = [(each.name, each.version) for each in found.variants]
            isolates = self.delta and len(parts) > 1
            self._facts.append(
                Nacked(self.stream, self.table.spec.url, nonce, found.version, error, tuple(parts), isolates)
            )
        return found

    def is_judging(self, names: Iterable[str]) -> bool:
        return bool(self._unjudged) or super().is_judging(names)

    def _accepted(self, response: Unjudged, now: float) -> None:
        progress = self.progress
        progress.acked = max(progress.acked, response.number)
        progress.acked_version = response.version
        progress.acked_at = now
        self._revive(response)
        if response.is_heartbeat:
            return  # it says nothing of what was rejected before
        if progress.rejected and response.send is not None:
            self._unpark(response.send)
        if progress.nacked < response.number and not (self.delta and progress.rejected):
            progress.nack = None  # NAK-13

    def _rejected(self, response: Unjudged, nonce: str, error: Rejection, now: float) -> None:
        self._disappoint(response)
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
        held = want.held
        super()._drop(want)
        self._forget_unwanted()
        if held is not None:
            self._forget_life(held, located=want.located)

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
        wilds = (wild.tag for wild in self._covering(part.name))
        tags = (*wilds, *(want.key[1] for want in (*named, *self._aliased.get(part.name, {}))))
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

    # -- times to live

    def tick(self, now: float) -> None:
        """TTL-2: what has a time to live, and was not spoken of for half of it, is due."""
        for life in self._beats.take(now):
            if not self._keeps(life):
                self._beats.forget(life.slot)
            elif self._full_state or now >= life.at(1):
                self._renew(life)
            else:
                self._beating.append(life)

    def beat(self, now: float) -> list[Send]:
        """The heartbeats of a turn, in as few responses as can be; DYN-15: each form of a name in its own."""
        if not self._beating:
            return []
        beating, self._beating = [life for life in self._beating if not life.response], []
        due = [(life.slot[0], life.variant) for life in beating if life.variant is not None]
        plain, located = ([variant for form, variant in due if form is each] for each in (False, True))
        limit = self.settings.response_bytes
        sends = [self._beat_with(part, ()) for part in portions(plain, limit, whole=not self.delta)]
        sends += [self._beat_with((), part) for part in portions(located, limit, whole=not self.delta)]
        return [self._sent(send, now) for send in sends]

    @property
    def next_beat(self) -> float | None:
        return self._beats.deadline

    @abstractmethod
    def _beat_with(self, plain: tuple[Variant, ...], located: tuple[Variant, ...]) -> Send:
        """One response with these heartbeats."""

    def _timed(self, variants: Iterable[Variant]) -> bool:
        """TTL-1: whether there are times to live in this, and the client reads them."""
        return self.takes_ttl and any(variant.ttl is not None for variant in variants)

    def _lives(self, send: Send) -> Lives:
        """What of a response has a time to live, or takes the place of what had one."""
        if not self._beats and not self._timed((*send.plain, *send.located)):
            return ()
        found = [(slot_of(variant, located=False), variant) for variant in (*send.plain, *send.beats)]
        found += [(slot_of(variant, located=True), variant) for variant in (*send.located, *send.located_beats)]
        return tuple(one for one in found if one[1].ttl is not None or one[0] in self._beats)

    def _revive(self, response: Unjudged) -> None:
        for slot, variant in response.lives:
            self._beats.accepted(slot, variant, response.number, response.sent_at)

    def _disappoint(self, response: Unjudged) -> None:
        """NAK-3: a heartbeat that was rejected is not repeated. NAK-29: of several, each is judged when sent alone."""
        several = self.delta and response.send is not None and response.send.count > 1
        for slot, _ in response.lives if not several else ():
            self._beats.rejected(slot, response.number, lost=response.is_heartbeat)

    def _keeps(self, life: Life) -> bool:
        """Whether the client is to go on with this: what it should have, or had before something it rejected."""
        if life.variant is None or not self.takes_ttl:
            return False
        if self._full_state:
            return self.progress.nack is None  # NAK-3
        located, variant = life.slot[0], life.variant
        going = (held for (_, tag), held in self.leaving.items() if (tag is not None) == located)
        parked = (each.part for each in self.progress.rejected.values() if each.part.variant is not None)
        return (
            self._has(variant, located=located)
            or any(alike(held, variant) for held in going)
            or any((part.name, part.located) == (variant.name, located) for part in parked)
        )

    def _renew(self, life: Life) -> None:
        """It is too late for a heartbeat: the client has dropped it, so it is sent as if it were new."""
        located, variant = life.slot[0], life.variant
        if variant is None or not self._has(variant, located=located):
            self._beats.forget(life.slot)
            return
        for name in (variant.name, *variant.aliases):
            self.resend(name)

    def release(self, keys: Iterable[Key] | None = None) -> Batch:
        leaving = {key: self.leaving[key] for key in (self.leaving if keys is None else keys)}
        batch = super().release(leaving)
        for (_, tag), held in leaving.items():
            self._forget_life(held, located=tag is not None)
        return batch

    def _forget_life(self, held: Variant, *, located: bool) -> None:
        if self._beats and not any(self._held(held.name, located=located)):
            self._beats.forget(slot_of(held, located=located))


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
    return f"{name} [{show(unpadded(constraint))}]"
