"""Exports the xDS client metrics of gRFC A78, with the cache states of A88, by the names that OpenTelemetry gives them.

`grpc.xds_client.connected` is `grpc_xds_client_connected` in Prometheus, and `grpc.xds.server` the label
`grpc_xds_server`. All values are read from the state of the clients at the scrape, so a client pays nothing for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..argument_types import expect
from ..core.watch.entry import Entry, State
from ..core.watch.subscriber import Subscriber
from ..core.watch.upstream import Upstream

OLD = "#old"  # A78: the authority of names that are no `xdstp://` names
TRIES = 10  # to copy the list of entries, which the event loop may change while another thread scrapes

STATES = {
    State.REQUESTED: ("requested", "requested"),
    State.DOES_NOT_EXIST: ("does_not_exist", "does_not_exist_but_cached"),
    State.ACKED: ("acked", "acked"),
    State.NACKED: ("nacked", "nacked_but_cached"),
    State.RECEIVED_ERROR: ("received_error", "received_error_but_cached"),
    State.TIMEOUT: ("timeout", "timeout"),
}

_known: WeakKeyDictionary[CollectorRegistry, XdsClientMetrics] = WeakKeyDictionary()


class XdsClientMetrics(Collector):
    """The metrics of all clients that share a registry."""

    def __init__(self) -> None:
        self._clients: dict[Subscriber, str] = {}

    @classmethod
    def of(cls, registry: CollectorRegistry) -> XdsClientMetrics:
        """Return the metrics of a registry, and register them at the first use."""
        expect(registry, CollectorRegistry)
        found = _known.get(registry)
        if found is None:
            found = _known[registry] = cls()
            registry.register(found)
        return found

    def add(self, client: Subscriber, target: str) -> None:
        """Show a client from now on, as `target`."""
        self._clients[client] = target

    def remove(self, client: Subscriber) -> None:
        """Show a client no more."""
        self._clients.pop(client, None)

    def collect(self) -> Iterator[Metric]:
        clients = [*self._clients.items()]
        servers = [(target, upstream) for client, target in clients for upstream in [*client.upstreams]]
        of_server = ["grpc_target", "grpc_xds_server"]
        connected = GaugeMetricFamily(
            "grpc_xds_client_connected",
            "1 if there is a working ADS stream to the server; 0 after a failure, until its next response",
            labels=of_server,
        )
        failures = CounterMetricFamily(
            "grpc_xds_client_server_failure", "How often the server began to fail", labels=of_server
        )
        # Authorities share an equal server, but a name may be in the bootstrap with other credentials, too.
        working: dict[tuple[str, str], bool] = {}
        failed: Counter[tuple[str, str]] = Counter()
        for target, upstream in servers:
            key = target, upstream.label
            working[key] = _is_working(upstream) and working.get(key, True)
            failed[key] += upstream.lifecycle.failures
        for key, is_working in working.items():
            connected.add_metric(key, is_working)
            failures.add_metric(key, failed[key])
        yield connected
        yield failures
        yield from _updates(servers)
        yield _resources(clients)


def _is_working(upstream: Upstream) -> bool:
    """Whether a stream was open, and the last one did not fail (A57)."""
    return upstream.streams > 0 and upstream.lifecycle.failing is None


def _updates(servers: list[tuple[str, Upstream]]) -> Iterator[Metric]:
    """Count the resources that came, by whether they were valid."""
    labels = ["grpc_target", "grpc_xds_server", "grpc_xds_resource_type"]
    for word in ("valid", "invalid"):
        sums: Counter[tuple[str, str, str]] = Counter()
        for target, upstream in servers:
            counted = upstream.valid if word == "valid" else upstream.invalid
            for type_url, number in [*counted.items()]:
                sums[target, upstream.label, type_url.rpartition("/")[2]] += number
        text = f"Resources that the server sent and that were {word}"
        if word == "valid":
            text += ", unchanged ones included"
        family = CounterMetricFamily(f"grpc_xds_client_resource_updates_{word}", text, labels=labels)
        for key, number in sums.items():
            family.add_metric(key, number)
        yield family


def _resources(clients: list[tuple[Subscriber, str]]) -> Metric:
    """Count the watched resources by authority, cache state and type."""
    sums: Counter[tuple[str, str, str, str]] = Counter()
    for client, target in clients:
        for entry in _entries(client):
            # A list is shown by its members. It is an entry of its own only while there is no such list.
            if entry.collection is None or entry.state is not State.ACKED:
                state = STATES[entry.state][entry.usable]
                sums[target, entry.authority.name or OLD, state, entry.type_url.rpartition("/")[2]] += 1
    labels = ["grpc_target", "grpc_xds_authority", "grpc_xds_cache_state", "grpc_xds_resource_type"]
    family = GaugeMetricFamily("grpc_xds_client_resources", "Watched resources by cache state", labels=labels)
    for key, number in sums.items():
        family.add_metric(key, number)
    return family


def _entries(client: Subscriber) -> list[Entry]:
    """Copy the list of entries, also in another thread than that of the client."""
    for _ in range(TRIES - 1):
        try:
            return client.entries()
        except RuntimeError:  # it changed while it was copied
            continue
    return client.entries()
