"""The programs connect to nothing, and look up nothing, but what they were configured with."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import web
from tests.support.control_plane import source_path
from tests.support.programs import Program
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
READY = re.compile(r"^xdsprism: ready listen=(\S+) admin=(\S+)", re.MULTILINE)

# What Python itself connects to or looks up; libraries in C (grpc, uvloop) connect behind its back.
HOOK = """
import os, sys

_log = os.open(os.environ["CONNECTIONS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_EVENTS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.sendto")


def _note(event, arguments):
    if event in _EVENTS:
        to = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[:2]
        os.write(_log, f"{event} {to!r}\\n".encode())


sys.addaudithook(_note)
"""

# What the kernel is asked, whoever asks.
STRACE = ["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-e", "signal=none"]
ADDRESS = re.compile(
    r"sin_port=htons\((\d+)\), sin_addr=inet_addr\(\"([^\"]+)\"\)"
    r"|sin6_port=htons\((\d+)\), .*?inet_pton\(AF_INET6, \"([^\"]+)\""
)
LOCAL = re.compile(r"sun_path=@?\"([^\"]*)\"")


class Watched:
    """Programs of ours, and where they connect to."""

    def __init__(self, folder: Path, *, trace: bool) -> None:
        self._folder = folder
        self.traces = trace
        self._started: list[Program] = []
        (folder / "sitecustomize.py").write_text(HOOK)

    def start(self, name: str, *words: str | Path, env: Mapping[str, str] | None = None) -> Program:
        command: list[str | Path] = [sys.executable, "-m", "xdsprism", *words]
        if self.traces:
            command = [*STRACE, "-o", self._folder / f"{name}.trace", *command]
        paths = f"{self._folder}:{source_path()['PYTHONPATH']}"
        given = {**(env or {}), "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
        given["CONNECTIONS_LOG"] = str(self._folder / f"{name}.hook")
        program = Program(name, command, self._folder / f"{name}.log", env=given)
        self._started.append(program)
        return program

    def ready(self, program: Program) -> tuple[int, str]:
        found = eventually(lambda: program.require_alive() or READY.search(program.text()))
        return web.split(found[1])[1], found[2]

    def run(self, name: str, *words: str | Path, env: Mapping[str, str] | None = None) -> str:
        program = self.start(name, *words, env=env)
        assert program.wait() == 0, program.tail()
        return program.text()

    def contacts(self, name: str) -> set[str]:
        """Each address that the program wanted to reach, and each name that it looked up."""
        found = set(self._hooked(name))
        return found | set(self._traced(name)) if self.traces else found

    def _hooked(self, name: str) -> Iterator[str]:
        log = self._folder / f"{name}.hook"
        assert log.exists(), "the hook was not installed"
        for line in log.read_text().splitlines():
            event, _, to = line.partition(" ")
            numbers = re.match(r"\(b?'([^']*)', (?:b?')?(\d+)", to)
            where = f"{numbers[1]}:{numbers[2]}" if numbers else to
            yield where if event == "socket.connect" else f"{event} {where}"

    def _traced(self, name: str) -> Iterator[str]:
        for line in (self._folder / f"{name}.trace").read_text().splitlines():
            for port, host, port6, host6 in ADDRESS.findall(line):
                yield f"{(host or host6).removeprefix('::ffff:')}:{port or port6}"
            yield from (f"unix:{path}" for path in LOCAL.findall(line))

    def close(self) -> None:
        for program in reversed(self._started):
            program.kill()


@pytest.fixture(
    params=[
        "hook",
        pytest.param(
            "trace", marks=pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
        ),
    ]
)
def watched(request, tmp_path) -> Iterator[Watched]:
    programs = Watched(tmp_path, trace=request.param == "trace")
    yield programs
    programs.close()


def _bootstrap(folder: Path, port: int) -> Path:
    file = folder / "bootstrap.json"
    server = f'{{"server_uri": "127.0.0.1:{port}", "channel_creds": [{{"type": "insecure"}}]}}'
    file.write_text(f'{{"xds_servers": [{server}], "node": {{"id": "relay"}}}}')
    return file


def test_programs_connect_to_configured_addresses_alone(watched, tmp_path):
    config = ROOT / "examples/config"
    assert "main" in watched.run("check", "check", config)
    server = watched.start("serve", "serve", config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    port, _ = watched.ready(server)
    ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    relay = watched.start("relay", "relay", "--bootstrap", _bootstrap(tmp_path, port), *ports)
    relay_port, admin = watched.ready(relay)
    asked = ["get", "rds", "main", "--param", "env=prod", "--server"]
    assert "main" in watched.run("get", *asked, f"127.0.0.1:{relay_port}")
    assert web.get(*web.split(admin), "/api/upstreams").status == 200

    assert watched.contacts("check") == set()
    listening = {"socket.getaddrinfo 127.0.0.1:0"}  # --listen and --admin
    assert watched.contacts("serve") <= listening
    assert watched.contacts("relay") <= {*listening, f"127.0.0.1:{port}"}
    assert watched.contacts("get") <= {f"127.0.0.1:{relay_port}"}
    if watched.traces:  # which sees what grpc does
        assert watched.contacts("relay")
        assert watched.contacts("get")
