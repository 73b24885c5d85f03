"""The server under test, as users run it: `xdsprism serve DIR`, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support import web
from tests.support.programs import Program
from tests.support.resources import Document
from tests.support.waiting import eventually

_READY = re.compile(r"^xdsprism: ready\b.*\blisten=(\S+).*\badmin=(\S+)", re.MULTILINE)
_ALL = 10_000  # streams, on one page


class ControlPlane:
    """One `xdsprism serve` and the directory of YAML files that it serves."""

    engine = "grpcio"  # what carries its streams

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = folder / "config"
        self.config.mkdir()
        self.flags: list[str] = []  # further ones, for the next start
        self._starts = 0
        self._listen = "127.0.0.1:0"
        self.admin = ""
        self.program: Program | None = None

    @property
    def address(self) -> str:
        return self._listen

    @property
    def port(self) -> int:
        return web.split(self._listen)[1]

    def write(self, file: str, *documents: Document) -> None:
        """Replace one file of the configuration in a single step, as careful editors do."""
        self._replace(f"{file}.yaml", yaml.safe_dump_all(documents, sort_keys=False))

    def write_json(self, file: str, document: Document) -> None:
        """The same in JSON, which is read and written faster if it is large."""
        self._replace(f"{file}.json", json.dumps(document))

    def _replace(self, file: str, text: str) -> None:
        draft = self._folder / f"{file}.draft"
        draft.write_text(text)
        draft.replace(self.config / file)

    def remove(self, file: str) -> None:
        (self.config / f"{file}.yaml").unlink()

    def start(self) -> None:
        """Start it and wait for its ready line. A second start takes the same port again, so clients find it."""
        self._starts += 1
        log = self._folder / f"xdsprism-{self._starts}.log"
        argv: list[str | Path] = [sys.executable, "-m", "xdsprism", "serve", self.config]
        argv += ["--listen", self._listen, "--admin", "127.0.0.1:0", "--engine", self.engine, *self.flags]
        self.program = program = Program("xdsprism", argv, log, env={"PYTHONUNBUFFERED": "1", **source_path()})

        def ready() -> re.Match[str] | None:
            program.require_alive()
            return _READY.search(program.text())

        found = eventually(ready)
        assert found is not None
        self._listen, self.admin = found.groups()

    @property
    def rest_port(self) -> int:
        """Where it answers over HTTP, if the flags have `--rest`."""
        assert self.program is not None
        (port,) = re.findall(r"^xdsprism: ready\b.*\brest=\S+:(\d+)", self.program.text(), re.MULTILINE)
        return int(port)

    def stop(self) -> int:
        """End it with SIGTERM, as a rollout would, and return its exit status."""
        assert self.program is not None
        return self.program.terminate()

    def get(self, path: str) -> str:
        """A page of the admin port."""
        assert self.program is not None
        self.program.require_alive()
        answer = web.get(*web.split(self.admin), path)
        assert answer.status == 200, answer
        return answer.body

    def counter(self, name: str, kind: str) -> int:
        """A counter of `/metrics` for one resource type (`cds`); 0 before it was first counted."""
        found = re.search(rf'^xdsprism_{name}_total{{type="{kind}"}} (\S+)$', self.get("/metrics"), re.MULTILINE)
        return int(float(found[1])) if found else 0

    def clients(self, node: str) -> list[dict[str, Any]]:
        """What the server says of the streams of a node."""
        found = json.loads(self.get(f"/api/clients?limit={_ALL}"))["clients"]
        return [each for each in found if each["node"] is not None and each["node"]["id"] == node]

    def types(self) -> dict[str, Any]:
        """What the server says of its only client, by resource type (`cds`)."""
        (client,) = json.loads(self.get("/api/clients"))["clients"]
        return {each["type"]: each for each in client["types"]}

    def close(self) -> None:
        if self.program is not None:
            self.program.kill()


def source_path() -> dict[str, str]:
    """The child imports what the tests import, also where the package is not installed but found by PYTHONPATH."""
    return {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
