"""Load reports, as a call: core/loads/load_reports.py decides what is asked for and what is kept."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.codec.loads import decode_request, encode_answer
from ..core.model.store import Applied
from ..core.model.types import CLUSTER
from .calls import Call
from .hub import Hub


class LoadCall(Call):
    """One client that reports its loads."""

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
        if any(change.type_url == CLUSTER for change in applied.changes):
            self.wake()
