"""Reports whether a change of the configuration is held back, for alerts (OPS-13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..core.model.facts import ChangeHeldBack, Fact
from ..core.model.removal_guard import HeldBack
from ..core.model.types import TypeUrl


class HoldingMetrics:
    """A reader of facts. It must also see each load, as no fact says that nothing is held back any more."""

    def __init__(self, registry: CollectorRegistry, label: Callable[[TypeUrl], str]) -> None:
        self._label = label
        text = "1 if a change that removes too much waits for a confirmation, else 0"
        self._held = Gauge("xdsprism_config_held_back", text, registry=registry)
        text = "Resources that the held-back change would remove"
        self._removals = Gauge("xdsprism_config_held_back_removals", text, ["type"], registry=registry)
        self._changes = Counter("xdsprism_held_back_changes", "Changes that were held back", registry=registry)

    def __call__(self, facts: Sequence[Fact]) -> None:
        self._changes.inc(sum(isinstance(fact, ChangeHeldBack) for fact in facts))

    def show(self, held: HeldBack | None) -> None:
        """Set the gauges after a load."""
        self._held.set(held is not None)
        self._removals.clear()
        for loss in held.losses if held is not None else ():
            self._removals.labels(self._label(loss.type_url)).set(len(loss.names))
