"""Serves the load reporting service (LRS) as a call; core/loads/load_reports.py decides what to request and to keep."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..core.codec.loads import decode_request, decoding, encode_answer
from ..core.model.steps import Steps
from ..core.model.store import Applied
from ..core.model.types import CLUSTER
from .calls import Call, Peer
from .connection_limits import host_of
from .hub import Hub
from .slicing import Job

SHORT = 2 * 1024  # bytes; a larger message is processed in slices, as each two bytes may be a report


class LoadCall(Call):
    """One client's StreamLoadStats call.

    While a long message is processed in slices, those that come after it wait, and the transport reads no more.
    """

    def __init__(self, hub: Hub, peer: Peer) -> None:
        super().__init__()
        self._hub = hub
        self._owner = host_of(peer.address)
        self._reporter = hub.reports.open(hub.facts)
        self._waiting: deque[bytes] = deque()
        self._job: Job | None = None
        self._error: Exception | None = None  # what the job raised
        self._half_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a long message is being processed."""
        return self._job is not None

    def receive(self, message: bytes) -> None:
        slices = self._hub.slices
        if slices is None or (self._job is None and len(message) <= SHORT):
            self._reporter.receive(decode_request(message, self._hub.settings.node_params), self._hub.clock())
            self._received()
            return
        self._waiting.append(message)
        if self._job is None:
            self._job = slices.begin(self._receiving(), self._fail, owner=self._owner)
        self.port.hold_back(waits=True)

    def _receiving(self) -> Steps[None]:
        """Process what waits, in steps."""
        while self._waiting:
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
        self.finished = self.finished or self._half_closed
        self.port.hold_back(waits=False)
        self.wake()

    def _received(self) -> None:
        """Answer, and hear of changes of the clusters if the client has to be told of them."""
        if self._reporter.lists and self._changed not in self._hub.store.listeners:
            self._hub.store.listeners.append(self._changed)
        self.wake()
        self._hub.turn()

    def poll(self) -> Iterator[bytes]:
        if self._error is not None:
            raise self._error
        answer = self._reporter.poll()
        if answer is not None:
            yield encode_answer(answer)

    def half_close(self) -> None:
        self._half_closed = True
        self.finished = self.finished or self._job is None

    def close(self, reason: str = "") -> None:
        del reason
        if self._job is not None:
            self._job.abandon()
        self._waiting.clear()
        self._reporter.close()
        if self._changed in self._hub.store.listeners:
            self._hub.store.listeners.remove(self._changed)

    def _changed(self, applied: Applied) -> None:
        """Wake when clusters change: a client that can't report all clusters gets a list of them."""
        if any(change.type_url == CLUSTER for change in applied.changes):
            self._reporter.clusters_changed()
            self.wake()
