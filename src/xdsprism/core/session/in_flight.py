"""The responses of one session: their nonces, which of them wait for an ACK or NACK, and how far the client is.

A response is in flight from `add` until its nonce comes back (`answer`), or until a client that answers nothing has so
many of them in flight that the oldest is forgotten. What an answer means for the resources of the response is decided
in rejections.py, isolation.py and ttl.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..model.events import Rejection, Send
from ..model.table import Table
from ..model.types import Variant
from .batch import Slot
from .sync_state import SyncState

# The resources of a response whose TTL matters: where each is, and the variant that was sent.
Timed = tuple[tuple[Slot, Variant], ...]

MOST: Final = 64  # responses in flight that are remembered, so that a client that never answers costs no more


class InFlightResponse:
    """A response that the client has neither ACKed nor NACKed."""

    __slots__ = ("number", "send", "sent_at", "timed", "version")

    def __init__(self, number: int, sent_at: float, version: str, send: Send | None, timed: Timed = ()) -> None:
        self.number = number
        self.sent_at = sent_at
        self.version = version
        self.send = send  # None: a full state, which may be large and which a NACK says nothing about
        self.timed = timed

    @property
    def is_heartbeat(self) -> bool:
        return self.send is not None and self.send.is_heartbeat

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (*self.send.plain, *self.send.located) if self.send is not None else ()


@dataclass(slots=True)
class Progress:
    """How far the client is. Status shows it, and the stream asks it before removals go out (ORD-2)."""

    sent: int = 0
    acked: int = 0
    nacked: int = 0
    sent_version: str = ""
    acked_version: str = ""
    sent_at: float | None = None
    acked_at: float | None = None
    nack: tuple[float, str, str, Rejection] | None = None  # NAK-12: time, version, nonce, error
    spared: bool = False  # the client came back with resources that need not be sent again
    # The number of the oldest response that was forgotten and not answered before that, and when it was sent.
    forgotten: tuple[int, float] | None = None

    @property
    def answered(self) -> int:
        """The number of the newest response that the client ACKed or NACKed."""
        return max(self.acked, self.nacked)

    @property
    def is_answered(self) -> bool:
        return self.answered >= self.sent

    @property
    def state(self) -> SyncState:
        """The state of the type on this stream (sync_state.py)."""
        if not self.sent:
            return SyncState.SYNCED if self.spared else SyncState.NOT_SENT
        if self.nack is not None:
            return SyncState.NACKED
        return SyncState.SYNCED if self.acked == self.sent else SyncState.STALE


class InFlight:
    """The responses of one session that are in flight."""

    __slots__ = ("_highest", "_label", "_number", "newest", "progress", "responses", "revision")

    def __init__(self, label: str) -> None:
        self.progress = Progress()
        self.responses: dict[str, InFlightResponse] = {}  # by nonce, the oldest first
        self.newest = ""  # the nonce of the newest response
        self.revision = 0  # of the table, when the newest nonce was made
        self._number = 0  # of responses at that revision
        self._label = label
        self._highest = 0  # revision of the tables that it read before

    def __bool__(self) -> bool:
        return bool(self.responses)

    def __len__(self) -> int:
        return len(self.responses)

    def next_nonce(self, revision: int) -> str:
        """A nonce that is unique within the stream (SRV-8), and mostly the same on all streams with the same response.

        The revision of the table says which response it is; a second one at that revision gets a number of its own.
        """
        self._number = self._number + 1 if self.revision == revision else 0
        self.revision = revision
        return f"{revision}.{self._label}.{self._number}" if self._number else f"{revision}.{self._label}"

    def use_shared_nonce(self, revision: int) -> None:
        """Count a response whose nonce the first session made that sent it. It is the first one at this revision."""
        self.revision, self._number = revision, 0

    def change_table(self, table: Table) -> None:
        """Go on with the revisions of another table, such that no nonce is used twice on the stream (SRV-8)."""
        self._highest = max(self._highest, self.revision)
        if table.is_part:  # it counts for itself
            table.shown_revision = max(table.shown_revision, self._highest)
        self.revision, self._number = table.shown_revision, self.progress.sent

    @property
    def room(self) -> int:
        """How many more responses may go out for isolation: a client that NACKs thousands gets a few at a time."""
        return max(0, MOST // 2 - len(self.responses))

    def add(self, send: Send, now: float, kept: Send | None, timed: Timed) -> InFlightResponse | None:
        """Wait for the answer to a response. Return the response that is forgotten for it, if there are too many."""
        progress = self.progress
        progress.sent += 1
        progress.sent_version = send.version
        progress.sent_at = now
        self.newest = send.nonce
        self.responses[send.nonce] = InFlightResponse(progress.sent, now, send.version, kept, timed)
        return self.forget_oldest() if len(self.responses) > MOST else None

    def forget_oldest(self) -> InFlightResponse:
        """Wait no more for the answer to the oldest response, but remember since when the client answers nothing."""
        oldest, progress = self.responses.pop(next(iter(self.responses))), self.progress
        if progress.forgotten is None or progress.forgotten[0] <= progress.answered:
            progress.forgotten = oldest.number, oldest.sent_at
        return oldest

    @property
    def stale_since(self) -> float | None:
        """Return when the oldest response was sent that is not answered; None: the client is not STALE."""
        progress = self.progress
        if progress.state is not SyncState.STALE:
            return None
        if progress.forgotten is not None and progress.forgotten[0] > progress.answered:
            return progress.forgotten[1]
        return next((response.sent_at for response in self.responses.values()), progress.sent_at)

    def answer(self, nonce: str) -> InFlightResponse | None:
        """The response that this nonce answers. NAK-28: each is answered once; later requests only subscribe."""
        return self.responses.pop(nonce, None)

    def drop_superseded(self) -> list[InFlightResponse]:
        """SotW: Envoy never answers a response that a newer one overtook (S10)."""
        latest = self.progress.answered
        older = [nonce for nonce, response in self.responses.items() if response.number < latest]
        return [self.responses.pop(nonce) for nonce in older]

    def accepted(self, response: InFlightResponse, now: float) -> None:
        progress = self.progress
        progress.acked = max(progress.acked, response.number)
        progress.acked_version = response.version
        progress.acked_at = now

    def rejected(self, response: InFlightResponse, nonce: str, error: Rejection, now: float) -> None:
        progress = self.progress
        progress.nacked = max(progress.nacked, response.number)
        progress.nack = (now, response.version, nonce, error)
