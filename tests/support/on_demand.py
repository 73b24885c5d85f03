"""An Envoy that asks for virtual hosts when a request needs them, and what it asks and hears, word for word."""

from __future__ import annotations

import http.client
import itertools
import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support import resources
from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy, bootstrap
from tests.support.lab import Lab
from tests.support.relay_process import RelayedLab
from tests.support.resources import Document
from tests.support.tap import Message, Tap
from tests.support.waiting import PATIENCE, becomes, eventually

LABS: dict[str, Callable[[Path], Lab]] = {
    "server": Lab,
    "relay": lambda folder: RelayedLab(folder, "--node-params", "env"),
}
"""What Envoy is connected to. Every on-demand test runs with each of these."""

WITH_AND_WITHOUT_RELAY = pytest.mark.parametrize("lab", LABS, indirect=True)
"""`pytestmark` of a file whose tests each have a lab of their own."""

STREAMS = {"ads": "delta", "dedicated": "sotw"}
"""How virtual hosts travel, and the form of ADS by which the rest does: on delta ADS itself, or beside SotW ADS."""

_TYPES = "type.googleapis.com/envoy."
_GRPC = {"envoy_grpc": {"cluster_name": "control_plane", "retry_policy": {"retry_back_off": {"base_interval": "0.1s"}}}}
# No timer ends a wait for a first answer: where the server owes one, the test hangs and fails.
_PATIENT: Document = {"resource_api_version": "V3", "initial_fetch_timeout": "0s"}
_ADS = _PATIENT | {"ads": {}}
_DEDICATED = _PATIENT | {
    "api_config_source": {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": [_GRPC]}
}


def source(stream: str) -> Document:
    """Where a resource comes from: `ads`, or a `dedicated` stream of its own."""
    return {"ads": _ADS, "dedicated": _DEDICATED}[stream]


def listener(name: str, route_config: str, **options: Any) -> Document:
    """A listener for Envoy whose requests wait for what they lack; `options` are those of the filter."""
    document = resources.listener(name, route_config)
    hcm = document["filter_chains"][0]["filters"][0]["typed_config"]
    hcm["rds"]["config_source"] = _ADS
    filter_type = f"{_TYPES}extensions.filters.http.on_demand.v3.OnDemand"
    on_demand = {"name": "envoy.filters.http.on_demand", "typed_config": {"@type": filter_type, **options}}
    hcm["http_filters"] = [on_demand, *hcm["http_filters"]]
    return document


def route_config(name: str, stream: str, *inline: Document, **fields: Any) -> Document:
    """A route configuration that leaves its virtual hosts to VHDS, but for those `inline`."""
    return {
        "@type": f"{_TYPES}config.route.v3.RouteConfiguration",
        "name": name,
        "virtual_hosts": list(inline),
        "vhds": {"config_source": source(stream)},
        **fields,
    }


def inline_host(name: str, domains: Sequence[str], says: Any) -> Document:
    """A virtual host that answers by itself, with these words."""
    answer = {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": says}}}
    return {"name": name, "domains": list(domains), "routes": [answer]}


def host(name: str, domains: Sequence[str], says: Any) -> Document:
    """The same as a document of its own, named `<route configuration>/<virtual host>`."""
    return {"@type": f"{_TYPES}config.route.v3.VirtualHost", **inline_host(name, domains, says)}


class Request:
    """An HTTP request that was sent; its answer is waited for when it is asked for."""

    def __init__(self, port: int, authority: str, headers: Mapping[str, str] | None = None) -> None:
        patience = 2 * PATIENCE  # it may wait for a server that is yet to start, and then for what that has to say
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
        self._connection.request("GET", "/", headers={"Host": authority, "Connection": "close", **(headers or {})})

    @property
    def waits(self) -> bool:
        """There is no answer yet."""
        readable, _, _ = select.select([self._connection.sock], [], [], 0)
        return not readable

    def answer(self) -> str:
        """The body of a good answer, else the status."""
        response = self._connection.getresponse()
        body = response.read().decode()
        self._connection.close()
        return body if response.status == 200 else f"HTTP {response.status}"


class Client:
    """One Envoy and the tap on its line."""

    def __init__(self, envoy: Envoy, tap: Tap) -> None:
        self.envoy = envoy
        self.tap = tap
        self._fences = itertools.count(1)
        self._asked = 0

    def send(self, authority: str, web: str = "web", **headers: str) -> Request:
        """Send a request, as soon as the listener is open: until then its connections are refused."""
        port = eventually(lambda: self.envoy.listeners().get(web))
        return eventually(lambda: Request(port, authority, headers))

    def send_all(self, authorities: Sequence[str]) -> list[Request]:
        """Send many at once, through a listener that is open."""
        port = self.envoy.listeners()["web"]
        return [Request(port, authority) for authority in authorities]

    def get(self, authority: str, web: str = "web", **headers: str) -> str:
        return self.send(authority, web, **headers).answer()

    def becomes(self, authority: str, expected: str, web: str = "web") -> None:
        """Wait until requests are answered so."""
        becomes(lambda: self.get(authority, web), expected)

    def asked(self) -> list[str]:
        """The hosts asked for since the last call of this.

        What Envoy does without must not be waited for. So it is made to ask for one host more: messages of a stream
        keep their order, and what came before that one is all.
        """
        fence = f"fence-{next(self._fences)}.example"
        assert self.get(fence) == "HTTP 404"
        names = self.hosts_asked()
        since, self._asked = names[self._asked :], len(names)
        assert since.pop() == f"main/{fence}"
        return since

    def hosts_asked(self) -> list[str]:
        return [name for name in self.tap.subscribed("VirtualHost") if name != "*"]

    def hosts_told(self) -> list[str]:
        """The name of every virtual host that came, in order."""
        told = [each.body for each in self.tap.responses if each.kind == "VirtualHost"]
        return [resource.name for body in told for resource in body.resources]

    def pending(self) -> int:
        """How many requests Envoy has not answered yet."""
        return self.envoy.stat("http.web.downstream_rq_active")

    def nacks(self) -> list[Message]:
        return [each for each in self.tap.requests if each.body.HasField("error_detail")]


class Scene:
    """A server with the route configuration `main` behind the listener `web`, and Envoys that are connected to it."""

    def __init__(self, lab: Lab, stream: str) -> None:
        self.lab = lab
        self.stream = stream
        self.server: ControlPlane = lab.control_plane()
        self._taps = ExitStack()
        self.server.write("listener", listener("web", "main"))
        self.server.write("routes", route_config("main", stream))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._taps.close()

    def start(self, metadata: Mapping[str, str] | None = None) -> Client:
        """Start the server and an Envoy."""
        self.server.start()
        return self.client(metadata)

    def client(self, metadata: Mapping[str, str] | None = None) -> Client:
        """One more Envoy, with a line of its own. It asks for no clusters but those that a request needs."""
        entrance = self.lab.relay(self.server) if isinstance(self.lab, RelayedLab) else self.server
        tap = self._taps.enter_context(Tap(entrance.port))
        node = {"id": "envoy", "cluster": "lab", "metadata": dict(metadata or {})}
        config = bootstrap(STREAMS[self.stream], tap.port, node)
        del config["dynamic_resources"]["cds_config"]
        return Client(self.lab.start_envoy(config), tap)
