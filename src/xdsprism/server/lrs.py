"""Serves the load reporting service (LRS) as a call; core/loads/load_reports.py decides what to request and to keep."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from functools import partial

from ..core.codec.loads import decode_request, decoding, encode_answer
from ..core.model.facts import LimitReached
from ..core.model.pace import count_request, rate_of
from ..core.model.steps import Steps
from ..core.model.store import Applied
from ..core.model.types import CLUSTER
from ..peer_address import host_of
from ..token_bucket import TokenBucket
from .calls import Call, Peer
from .connection_limits import client_of
from .hub import Hub
from .slicing import Job

SHORT = 2 * 1024  # bytes; a larger message is processed in slices, as each two bytes may be a report


class LoadCall(Call):
    """One client's StreamLoadStats call.

    While a long message is processed in slices, those that come after it wait, and the transport reads no more.
    """

    def __init__(self, hub: Hub, peer: Peer) -> None:
        super().__init__()
        hub.admit(peer)
        self._hub = hub
        self._peer = peer
        self._owner = host_of(peer.address)
        self._reporter = hub.reports.open(hub.facts, partial(hub.grant_of, peer))
        hub.policy_listeners.append(self._regranted)
        self._bucket = TokenBucket(rate_of(hub.settings.limits.reports), hub.clock())
        self._timer: asyncio.TimerHandle | None = None  # while no message is processed (OPS-4)
        self._waiting: deque[bytes] = deque()
        self._job: Job | None = None
        self._error: Exception | None = None  # what the job raised
        self._half_closed = False
        self._standing = peer.standing

    @property
    def is_busy(self) -> bool:
        """Whether a long message is being processed."""
        return self._job is not None

    def receive(self, message: bytes) -> None:
        self._check()
        slices = self._hub.slices
        if slices is None or (self._job is None and self._timer is None and len(message) <= SHORT):
            self._reporter.receive(decode_request(message, self._hub.settings.node_params), self._hub.clock())
            self._received()
            return
        self._waiting.append(message)
        self._begin()
        self.port.hold_back(waits=True)

    def _begin(self) -> None:
        """Process what waits, unless that is under way or not yet allowed."""
        slices = self._hub.slices
        if slices is not None and self._job is None and self._timer is None and self._waiting:
            self._job = slices.begin(self._receiving(), self._fail, owner=self._owner)

    def _receiving(self) -> Steps[None]:
        """Process what waits, in steps."""
        while self._waiting and self._timer is None:
            heard = yield from decoding(self._waiting.popleft(), self._hub.settings.node_params)
            yield from self._reporter.receiving(heard, self._hub.clock())
            self._received()
            yield
        self._rest()

    def _fail(self, error: Exception) -> None:
        """Keep an exception for the next poll, which ends this call and no other (OPS-10)."""
        self._error = error
        self._waiting.clear()
        self._rest()

    def _rest(self) -> None:
        self._job = None
        self.finished = self.finished or (self._half_closed and not self._waiting)
        self.port.hold_back(waits=self._timer is not None)
        self.wake()

    def _go_on(self) -> None:
        """Process the messages that came during a pause."""
        self._timer = None
        self._begin()
        if self._job is None:
            self._rest()

    def _count(self) -> None:
        """Count a message, and process no other for a while if there are too many (OPS-4)."""
        hub, slices = self._hub, self._hub.slices
        after = count_request(self._bucket, hub.clock())
        if after is not None and slices is not None and slices.later is not None:
            client = client_of(self._peer)
            hub.clients.note(client, "reports")
            text = f"more than {hub.settings.limits.reports:,} load reports a second on a stream"
            hub.facts.append(LimitReached("reports", text, client))
            self._timer = slices.later(after, self._go_on)
            self.port.hold_back(waits=True)

    def _received(self) -> None:
        """Answer, and follow changes of the clusters if the client needs a list of them."""
        self._count()
        if self._reporter.lists and self._changed not in self._hub.store.listeners:
            self._hub.store.listeners.append(self._changed)
        self.wake()
        self._hub.turn()

    def _check(self) -> None:
        """Raise PeerError if what the client proved by a token holds no longer."""
        if self._standing is not None:
            self._standing.check(self._hub.clock())

    def deadline(self) -> float | None:
        return self._standing.before(None) if self._standing is not None else None

    def poll(self) -> Iterator[bytes]:
        self._check()
        if self._error is not None:
            raise self._error
        answer = self._reporter.poll()
        if answer is not None:
            yield encode_answer(answer)

    def half_close(self) -> None:
        self._half_closed = True
        self.finished = self.finished or (self._job is None and not self._waiting)

    def close(self, reason: str = "") -> None:
        del reason
        if self._job is not None:
            self._job.abandon()
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        self._reporter.close()
        self._hub.release(self._peer)
        if self._regranted in self._hub.policy_listeners:
            self._hub.policy_listeners.remove(self._regranted)
        if self._changed in self._hub.store.listeners:
            self._hub.store.listeners.remove(self._changed)

    def _regranted(self) -> None:
        """Wake when the policy changes: the client may have other clusters, or have to come back."""
        if self._standing is not None:
            self._standing.review(self._hub.tokens)
        self._reporter.clusters_changed()
        self.wake()

    def _changed(self, applied: Applied) -> None:
        """Wake when clusters change: a client that can't report all clusters gets a list of them."""
        if any(change.type_url == CLUSTER for change in applied.changes):
            self._reporter.clusters_changed()
            self.wake()
