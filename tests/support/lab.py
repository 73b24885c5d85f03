"""The laboratory of one test: every process and server it starts, and their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.support import callers, envoy
from tests.support.backends import GrpcBackend, HttpBackend
from tests.support.callers import Caller
from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.streams import Channel


class Lab:
    """Starts things for a test and ends them all with it, also when it fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._count = 0
        self.features: Sequence[str] = ("xds_v3",)
        """What callers are told of the server: which version of the API it speaks."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def logs(self) -> dict[str, str]:
        """The end of every log, for the failure message."""
        files = sorted(self._folder.rglob("*.log"))
        return {str(file.relative_to(self._folder)): file.read_text(errors="replace")[-6000:] for file in files}

    def _place(self, what: str) -> Path:
        self._count += 1
        place = self._folder / f"{self._count}-{what}"
        place.mkdir()
        return place

    def http_backend(self, name: str) -> HttpBackend:
        return self._stack.enter_context(HttpBackend(name))

    def grpc_backend(self, name: str) -> GrpcBackend:
        return self._stack.enter_context(GrpcBackend(name))

    def control_plane(self) -> ControlPlane:
        """A server that is not started yet: write its files first."""
        server = ControlPlane(self._place("xdsprism"))
        self._stack.callback(server.close)
        return server

    def envoy(self, server: ControlPlane, mode: str, metadata: Mapping[str, str] | None = None) -> Envoy:
        node = {"id": f"envoy-{mode}", "cluster": "lab", "metadata": dict(metadata or {})}
        return self.start_envoy(envoy.bootstrap(mode, server.port, node))

    def start_envoy(self, config: dict[str, Any]) -> Envoy:
        """An Envoy with a bootstrap of its own."""
        running = Envoy(self._place("envoy"), config)
        self._stack.callback(running.close)
        return running

    def channel(self, argv: Sequence[str | Path], address: str, window: int = 0) -> Channel:
        """A program that opens calls as it is told; see `Channel`."""
        running = Channel(argv, address, self._place("streams"), window)
        self._stack.callback(running.close)
        return running

    def caller(
        self,
        argv: Sequence[str | Path],
        server: ControlPlane,
        metadata: Mapping[str, str] | None = None,
        methods: Sequence[str] = ("Say",),
    ) -> Caller:
        return self.start_caller(argv, callers.bootstrap(server.port, metadata or {}, self.features), methods)

    def start_caller(
        self,
        argv: Sequence[str | Path],
        config: dict[str, Any],
        methods: Sequence[str] = ("Say",),
        target: str = "xds:///svc",
    ) -> Caller:
        """A caller with a bootstrap of its own."""
        running = Caller(argv, methods, self._place("caller"), config, target)
        self._stack.callback(running.close)
        return running
