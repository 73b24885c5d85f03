"""Reports the state of the clients, computed at each scrape, and which build of which version runs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ..builds import running
from ..core.model.limits import Limits
from ..core.model.steps import EVERY, Steps, finish
from ..core.model.types import TypeUrl
from ..core.serve.stream import Stream
from ..core.session.sync_state import SyncState
from ..release import __version__


class BuildMetrics:
    """Says which version runs, in which build, on which Python."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "1; the labels say which version runs, whether it is compiled, and the version of Python"
        build = Gauge("xdsprism_build_info", text, ["version", "build", "python"], registry=registry)
        build.labels(__version__, running(), platform.python_version()).set(1)


class StreamLimitMetrics:
    """Says how many streams the server takes, for alerts before it refuses one."""

    def __init__(self, registry: CollectorRegistry, limits: Limits) -> None:
        text = "Streams that the server takes at once (--limit all_streams)"
        Gauge("xdsprism_stream_limit", text, registry=registry).set(limits.all_streams)


class ClientStateMetrics(Collector):
    """Counts the clients of each type by state, and says how far the slowest one is behind.

    Have a registry `register` it, and append `preparing` to `Metrics.preparations`: then ten thousand clients are
    looked at in steps before a scrape, and not at once.
    """

    def __init__(
        self, streams: Callable[[], Iterable[Stream]], label: Callable[[TypeUrl], str], clock: Callable[[], float]
    ) -> None:
        self._streams = streams
        self._label = label
        self._clock = clock
        self._prepared: list[list[GaugeMetricFamily]] = []  # one for each scrape, as two may come at once

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if not self._prepared:
            finish(self.preparing())
        yield from self._prepared.pop()

    def preparing(self) -> Steps[None]:
        """Compute the gauges, in steps."""
        numbers: dict[str, dict[SyncState, int]] = {}
        behind: dict[str, float] = {}
        count = 0
        for stream in self._streams():
            for session in [*stream.sessions.values()]:
                label = self._label(session.table.spec.url)
                states = numbers.setdefault(label, dict.fromkeys(SyncState, 0))
                states[session.progress.state] += 1
                since = session.in_flight.stale_since
                seconds = max(self._clock() - since, 0.0) if since is not None else 0.0
                behind[label] = max(seconds, behind.get(label, 0.0))
                count += 1
                if count % EVERY == 0:
                    yield
        text = "Clients that subscribe to a type, by whether they have what is current (a client with two streams: two)"
        by_state = GaugeMetricFamily("xdsprism_clients_by_state", text, labels=["type", "state"])
        for label, states in numbers.items():
            for state, number in states.items():
                by_state.add_metric([label, state.value], number)
        text = "For how long the client has been STALE that has been so for longest; 0: there is none"
        longest_stale = GaugeMetricFamily("xdsprism_longest_stale_seconds", text, labels=["type"])
        for label, seconds in behind.items():
            longest_stale.add_metric([label], seconds)
        self._prepared.append([by_state, longest_stale])
