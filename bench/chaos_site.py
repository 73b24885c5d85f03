"""What `python -m bench chaos` runs: four Envoys and two gRPC clients behind a relay behind a server, and the files.

The configuration has a part for each way in which a request finds its backend: routes and endpoints (`steady.example`),
virtual hosts on demand (`h0.example` and so on), clusters on demand (`chosen.example`, by a header), and gRPC's own
xDS client. Every edit gives all of them something new; `Expected` says what each request gets after the last one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.cli.rig import write
from tests.support import callers, envoy, grpcio_caller
from tests.support.backends import GrpcBackend, HttpBackend
from tests.support.callers import Caller
from tests.support.envoy import Envoy
from tests.support.on_demand import STREAMS, host, listener, route_config, source
from tests.support.resources import Document, api_listener, eds_cluster, endpoints, routes, static_cluster, to
from tests.support.site import Site
from tests.support.waiting import eventually
from tests.support.web import split
from tests.support.witness import ENVS

HOSTS = 8  # virtual hosts on demand that Envoys have from the start
COLD = 400  # those that a request asks for while all else is going on
CHOSEN = 4  # clusters that a request chooses by a header
MODES = {mode: stream for stream, mode in STREAMS.items()}
PATIENT = {"connect_timeout": "10s"}  # on a busy machine
# Envoy uses a cluster without endpoints if those do not come within 15 s, and an outage may last longer than that. It
# must not wait for ever either: on SotW ADS, an Envoy that waits for endpoints when it connects again does not ask for
# clusters before the wait is over. If the one that it waits for is gone by then, it would never hear of any cluster
# again (tests/e2e/test_make_before_break.py).
UNTIL_THEY_COME = {"eds_config": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "60s"}}


@dataclass(frozen=True, slots=True)
class Expected:
    """Who answers after an edit."""

    edit: int

    @property
    def web(self) -> str:
        return ("blue", "green")[self.edit % 2]

    @property
    def rpc(self) -> str:
        return ("red", "yellow")[self.edit // 2 % 2]

    @property
    def cluster(self) -> int:
        """Each third edit moves the route to a cluster of another number, `web-0` and so on."""
        return self.edit // 3

    def says(self, name: str) -> str:
        return f"{name} after edit {self.edit}"


class Files:
    """The configuration beside the world of the witnesses."""

    def __init__(self, config: Path, backends: dict[str, int]) -> None:
        self.expected = Expected(0)
        self._oldest = 0
        self._config = config
        self._backends = backends
        write(config, "listeners", *self._listeners())
        write(config, "cold", *self._cold())
        self._write()

    def edit(self, in_use: int) -> None:
        """`in_use` is the lowest cluster that a route of an Envoy leads to.

        Clusters below it are removed, as careful operators do it: what goes while a server is dead, a SotW client
        loses at once when it is back, and no server can know what the client's routes were then. Two more stay, since
        a relay may come back with what its disk cache had last.
        """
        self.expected = Expected(self.expected.edit + 1)
        self._oldest = max(self._oldest, in_use - 2)
        self._write()

    def _write(self) -> None:
        write(self._config, "traffic", *self._traffic())

    def _listeners(self) -> Iterator[Document]:
        for mode, stream in MODES.items():
            on_demand = {"source": source(stream), "timeout": "3600s"}
            yield listener("web", f"main-{mode}", odcds=on_demand) | {"$when": f"mode={mode}"}
        yield api_listener("svc", "svc") | {"$when": "mode=grpc"}

    def _cold(self) -> Iterator[Document]:
        for mode in MODES:
            for number in range(COLD):
                yield host(f"main-{mode}/cold{number}", [f"cold{number}.example"], "cold")

    def _traffic(self) -> Iterator[Document]:
        now = self.expected
        by_header = {"match": {"prefix": "/"}, "route": {"cluster_header": "cluster"}}
        chosen = {"name": "chosen", "domains": ["chosen.example"], "routes": [by_header]}
        steady = {"name": "steady", "domains": ["steady.example"], "routes": [to(f"web-{now.cluster}")]}
        for mode, stream in MODES.items():
            yield route_config(f"main-{mode}", stream, chosen, steady)
            for number in range(HOSTS):
                yield host(f"main-{mode}/h{number}", [f"h{number}.example"], now.says(f"h{number}"))
        for number in range(self._oldest, now.cluster + 1):
            yield eds_cluster(f"web-{number}", eds_cluster_config=UNTIL_THEY_COME) | PATIENT
            yield endpoints(f"web-{number}", self._backends[now.web])
        for number in range(CHOSEN):
            yield static_cluster(f"chosen-{number}", "127.0.0.1", self._backends[now.web]) | PATIENT
        # Both clusters are in the client's hands from the start: a gRPC client that first hears of a cluster while its
        # server is dead fails the calls that go there.
        yield routes(
            "svc", to("rpc-b", "/echo.Echo/Other"), to("rpc-a", "/echo.Echo/More"), to(f"rpc-{'ab'[now.edit % 2]}")
        )
        for name in ("rpc-a", "rpc-b"):
            yield eds_cluster(name) | PATIENT
            yield endpoints(name, self._backends[now.rpc])


@dataclass(frozen=True, slots=True)
class Proxy:
    """One of the four Envoys."""

    name: str
    env: str
    envoy: Envoy
    port: int  # of its listener
    on_demand: bool
    """It has no clusters but those that requests need."""


def _port(running: Envoy) -> int:
    """Of its listener; 0 before it is open."""
    return running.listeners().get("web", 0)


def lowest_in_use(proxies: Sequence[Proxy]) -> int:
    """The lowest number of a cluster that a route for `steady.example` leads to, as Envoys themselves tell."""
    dumps = [proxy.envoy.admin("/config_dump?resource=dynamic_route_configs") for proxy in proxies]
    return min(int(number) for dump in dumps for number in re.findall(r'"cluster": "web-(\d+)"', dump))


class Fleet:
    """Everything that is behind the relay, and never dies."""

    def __init__(self, folder: Path, site: Site) -> None:
        self._folder = folder
        self._port = split(site.address("relay"))[1]
        self._stack = ExitStack()
        self.proxies: list[Proxy] = []
        self.callers: dict[str, Caller] = {}

    def backends(self) -> dict[str, int]:
        """The port of each backend by its name."""
        web = {name: self._stack.enter_context(HttpBackend(name)).port for name in ("blue", "green")}
        rpc = {name: self._stack.enter_context(GrpcBackend(name)).port for name in ("red", "yellow")}
        return web | rpc

    def start(self) -> None:
        starting = [self._envoy(mode, env, on_demand=env == ENVS[1]) for mode in MODES for env in ENVS]
        for env in ENVS:
            self.callers[f"grpc {env}"] = self._caller(env)
        for name, env, running, on_demand in starting:
            port = eventually(partial(_port, running), within=90)
            self.proxies.append(Proxy(name, env, running, port, on_demand))

    def _envoy(self, mode: str, env: str, *, on_demand: bool) -> tuple[str, str, Envoy, bool]:
        name = f"envoy {mode} {env}"
        node = {"id": name, "cluster": "chaos", "metadata": {"mode": mode, "env": env}}
        config = envoy.bootstrap(mode, self._port, node)
        if on_demand:
            del config["dynamic_resources"]["cds_config"]
        running = Envoy(self._place(name), config)
        self._stack.callback(running.close)
        return name, env, running, on_demand

    def _caller(self, env: str) -> Caller:
        config: dict[str, Any] = callers.bootstrap(self._port, {"mode": "grpc", "env": env})
        argv: list[str | Path] = [sys.executable, Path(grpcio_caller.__file__)]
        methods = ["Say", "Other", "More"]
        caller = Caller(argv, methods, self._place(f"grpc {env}"), config, CALLER_DEADLINE="30")
        self._stack.callback(caller.close)
        return caller

    def _place(self, name: str) -> Path:
        place = self._folder / name.replace(" ", "-")
        place.mkdir()
        return place

    def close(self) -> None:
        self._stack.close()
