"""Reports the state of the clients, computed at each scrape, and which build of which version runs."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable
from math import inf

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily

from ..builds import running
from ..core.model.limits import Limits
from ..core.model.steps import EVERY, Steps
from ..core.model.types import TypeUrl
from ..core.serve.stream import Stream
from ..core.session.sync_state import SyncState
from ..release import __version__
from .prepared import PreparedGauges

KNOWN = 256  # types whose labels a scrape remembers: clients can make up any number of types


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


class _OfType:
    """What is counted of one type: the streams by state, and since when the first of them has been STALE."""

    __slots__ = ("since", "states")

    def __init__(self) -> None:
        self.states: Counter[SyncState] = Counter()
        self.since = inf


def client_state_metrics(
    streams: Callable[[], Iterable[Stream]], label: Callable[[TypeUrl], str], clock: Callable[[], float]
) -> PreparedGauges:
    """Count the clients of each type by state, and say how far the slowest one is behind."""

    def compute() -> Steps[list[GaugeMetricFamily]]:
        by_label: dict[str, _OfType] = {}
        found: dict[TypeUrl, _OfType] = {}  # the same by type, as to find a label costs more
        now = clock()
        count = 0
        for stream in streams():
            for type_url, session in [*stream.sessions.items()]:
                known = found.get(type_url)
                if known is None:
                    known = by_label.setdefault(label(type_url), _OfType())
                    if len(found) < KNOWN:
                        found[type_url] = known
                known.states[session.progress.state] += 1
                since = session.in_flight.stale_since
                if since is not None and since < known.since:
                    known.since = since
                count += 1
                if count % EVERY == 0:
                    yield
        text = "Clients that subscribe to a type, by whether they have what is current (a client with two streams: two)"
        by_state = GaugeMetricFamily("xdsprism_clients_by_state", text, labels=["type", "state"])
        for word, known in by_label.items():
            for state in SyncState:
                by_state.add_metric([word, state.value], known.states[state])
        text = "For how long the client has been STALE that has been so for longest; 0: there is none"
        longest_stale = GaugeMetricFamily("xdsprism_longest_stale_seconds", text, labels=["type"])
        for word, known in by_label.items():
            longest_stale.add_metric([word], max(now - known.since, 0.0))
        return [by_state, longest_stale]

    return PreparedGauges(compute)
