"""Serves the load reporting service (LRS) as a call; core/loads/load_reports.py decides what to request and to keep."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.codec.loads import decode_request, encode_answer
from ..core.model.store import Applied
from ..core.model.types import CLUSTER
from .calls import Call
from .hub import Hub


class LoadCall(Call):
    """One client's StreamLoadStats call."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub
        self._reporter = hub.reports.open(hub.facts)

    def receive(self, message: bytes) -> None:
        self._reporter.receive(decode_request(message, self._hub.settings.node_params), self._hub.clock())
        if self._reporter.lists and self._changed not in self._hub.store.listeners:
            self._hub.store.listeners.append(self._changed)
        self.wake()
        self._hub.turn()

    def poll(self) -> Iterator[bytes]:
        answer = self._reporter.poll()
        if answer is not None:
            yield encode_answer(answer)

    def half_close(self) -> None:
        self.finished = True

    def close(self, reason: str = "") -> None:
        del reason
        self._reporter.close()
        if self._changed in self._hub.store.listeners:
            self._hub.store.listeners.remove(self._changed)

    def _changed(self, applied: Applied) -> None:
        """Wake when clusters change: a client that can't report all clusters gets a list of them."""
        if any(change.type_url == CLUSTER for change in applied.changes):
            self.wake()
