"""`xdsprism serve` and `xdsprism relay` before it, which may die and come back at the same addresses."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cli.rig import Daemon


class Site:
    """The server and the relay, each at an address of its own that outlives it."""

    def __init__(self, folder: Path, *relay_options: str) -> None:
        self.config = folder / "config"
        self.cache = folder / "relay.db"
        self._folder = folder
        self._addresses = {verb: _free_address() for verb in ("serve", "relay")}
        self._daemons: dict[str, Daemon] = {}
        self._relay_options = relay_options

    @property
    def bootstrap(self) -> dict[str, Any]:
        """For clients of the relay."""
        return _bootstrap(self.address("relay"))

    def address(self, verb: str) -> str:
        return self._addresses[verb]

    def admin(self, verb: str) -> str | None:
        """The admin port, which is another one after each start; None while there is none."""
        daemon = self._daemons.get(verb)
        return daemon.admin or None if daemon else None

    async def start(self, verb: str) -> None:
        args: tuple[object, ...] = (self.config,)
        if verb == "relay":
            file = self._folder / "bootstrap.json"
            file.write_text(json.dumps(_bootstrap(self.address("serve"))))
            args = ("--bootstrap", file, "--cache", self.cache, *self._relay_options)
        daemon = Daemon(self._folder, *args, listen=self.address(verb), verb=verb)
        self._daemons[verb] = daemon  # at once, so that `close` finds it whatever happens to this start
        await asyncio.to_thread(daemon.__enter__)

    def kill(self, verb: str) -> None:
        self._daemons.pop(verb).__exit__()

    async def stop(self, verb: str) -> bool:
        """With SIGTERM, as a rollout does, and with SIGKILL if that takes too long. Whether it ended by itself."""
        try:
            await asyncio.to_thread(self._daemons[verb].stop)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.kill(verb)
        return True

    def send(self, verb: str, number: signal.Signals) -> None:
        self._daemons[verb].send(number)

    def close(self) -> None:
        for verb in [*self._daemons]:
            self.kill(verb)


def _bootstrap(address: str) -> dict[str, Any]:
    entry = {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    return {"xds_servers": [entry], "node": {"id": "x"}}


def _free_address() -> str:
    """Below the ports that the system gives to whoever asks for any: it has to stay free while its owner is dead."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"
