"""`xdsprism relay` in a process of its own, and a laboratory whose clients are all behind one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support import web
from tests.support.callers import Caller
from tests.support.control_plane import ControlPlane, source_path
from tests.support.envoy import Envoy
from tests.support.foreign import ForeignPlane
from tests.support.lab import Lab
from tests.support.programs import Program
from tests.support.waiting import eventually

_READY = re.compile(r"^xdsprism: ready listen=(\S+) admin=(\S+)", re.MULTILINE)


class RelayProcess:
    """A relay in front of a server on this machine."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        bootstrap = folder / "bootstrap.json"
        entry = {"server_uri": f"127.0.0.1:{port}", "channel_creds": [{"type": "insecure"}]}
        server = {**entry, "server_features": ["xds_v3"]}
        bootstrap.write_text(json.dumps({"xds_servers": [server], "node": {"id": "relay"}}))
        argv: list[str | Path] = [sys.executable, "-m", "xdsprism", "relay", "--bootstrap", bootstrap]
        argv += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *options]
        env = {"PYTHONUNBUFFERED": "1", **source_path()}
        self.program = Program("relay", argv, folder / "relay.log", env=env)
        found = eventually(lambda: self.program.require_alive() or _READY.search(self.program.text()))
        self.port = web.split(found[1])[1]
        self.admin = found[2]

    def close(self) -> None:
        self.program.kill()


class RelayedLab(Lab):
    """Everything that is started for a server is behind a relay of that server."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self.options = options
        self._relays: dict[int, RelayProcess] = {}

    def foreign(self, name: str) -> ForeignPlane:
        """A control plane that is not ours, to be put behind the relay."""
        plane = ForeignPlane(name, self._place("foreign"))
        self._stack.callback(plane.close)
        return plane

    def relay(self, server: ControlPlane | ForeignPlane) -> RelayProcess:
        known = self._relays.get(server.port)
        if known is None:
            known = self._relays[server.port] = RelayProcess(self._place("relay"), server.port, *self.options)
            self._stack.callback(known.close)
        return known

    def envoy(self, server: ControlPlane | ForeignPlane, mode: str, metadata: Mapping[str, str] | None = None) -> Envoy:
        return super().envoy(self.relay(server), mode, metadata)  # type: ignore[arg-type] # it has a port

    def caller(
        self,
        argv: Sequence[str | Path],
        server: ControlPlane | ForeignPlane,
        metadata: Mapping[str, str] | None = None,
        methods: Sequence[str] = ("Say",),
    ) -> Caller:
        return super().caller(argv, self.relay(server), metadata, methods)  # type: ignore[arg-type]
