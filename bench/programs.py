"""The programs that take part: servers and load generators, each in a process of its own, told what to do by a pipe."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from bench.rounds import Report
from bench.scenarios import BEFORE, COMPILED, DIDEROT, FLOOR, GRPCIO, H2, LINEAR, SNAPSHOT, Entry, Scenario

EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
BINARIES = Path(__file__).parent / "go" / "bin"
COMPILED_PYTHON = Path(__file__).parents[1] / ".venv-compiled" / "bin" / "python"
COMMANDS = {
    COMPILED: (str(COMPILED_PYTHON), "-m", "bench.prism", "--engine", "h2"),
    H2: (sys.executable, "-m", "bench.prism", "--engine", "h2"),
    GRPCIO: (sys.executable, "-m", "bench.prism", "--engine", "grpcio"),
    SNAPSHOT: (str(BINARIES / "snapshot"),),
    LINEAR: (str(BINARIES / "linear"),),
    DIDEROT: (str(BINARIES / "diderot"),),
    FLOOR: (str(BINARIES / "floor"),),
}
GENERATOR = (str(BINARIES / "load"),)

OWN_GENERATOR = (sys.executable, "-m", "bench.own_load")
QUIET = 0.0005  # seconds of work in a while of 20 ms: a process that does less has done what it had to
PATIENCE = 120  # seconds for one change to reach everybody


def serve_before(sources: Path) -> None:
    """Have these other sources of ours take part, too."""
    COMMANDS[BEFORE] = ("env", f"PYTHONPATH={sources.resolve()}", *COMMANDS[H2])


def serve_with_policies(files: Mapping[str, Path], server: str = H2) -> None:
    """Have servers with these policies take part, too: by the name of the server, a policy file."""
    for name, file in files.items():
        COMMANDS[name] = (*COMMANDS[server], "--policy", str(file))


class Failed(Exception):
    """A program did not do what it was told."""


class Program:
    """A process that answers each line with a line."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """They end with their input; who does not is ended."""
        _pipe(self._process.stdin).close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def hear(self) -> str:
        line = _pipe(self._process.stdout).readline().rstrip("\n")
        if not line or line.startswith("error"):
            said = self._log.read_text()[-2_000:]
            raise Failed(f"{self._command[-1]}: {line or 'it ended'}\n{said}")
        return line

    def tell(self, *lines: str) -> None:
        pipe = _pipe(self._process.stdin)
        pipe.write("".join(f"{line}\n" for line in lines))
        pipe.flush()

    @property
    def cpu(self) -> float:
        """Seconds that all its threads have run, to the nanosecond: a process has a clock (clock_getcpuclockid)."""
        return time.clock_gettime((~self._process.pid << 3) | 2)

    @property
    def megabytes(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def settle(self, most: float = 5.0) -> float:
        """Wait until it has nothing to do, such as ACKs to read; then what it has spent so far."""
        end = time.monotonic() + most
        spent = self.cpu
        while time.monotonic() < end:
            time.sleep(0.02)
            before, spent = spent, self.cpu
            if spent - before < QUIET:
                break
        return spent


def _pipe(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise Failed("there is no pipe")
    return pipe


class Server(Program):
    """A peer, or xdsprism."""

    def __init__(self, entry: Entry, scenario: Scenario, folder: Path, *more: str) -> None:
        """`more`: further options of its program."""
        command = [*COMMANDS[entry.server], "--resources", str(entry.resources), "--size", str(scenario.size)]
        if entry.variants:
            command += ["--variants", str(entry.variants)]
        if scenario.tls:
            command += ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]
        super().__init__([*command, *more], folder / f"{entry.label}.log")
        self.address = f"127.0.0.1:{self.hear().removeprefix('ready ')}"

    def bump(self, version: int, burst: int) -> None:
        """So many changes, the last of which has this version."""
        self.tell(*[f"bump 1 {number}" for number in range(version - burst + 1, version + 1)])
        for _ in range(burst):
            self.hear()


class Load(Program):
    """A fleet of clients."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        super().__init__(command, log)

    def ask(self, line: str) -> Report:
        self.tell(line)
        return Report.of(json.loads(self.hear()))

    def connect(self, entry: Entry, scenario: Scenario, address: str, folder: Path) -> Report:
        plan = {
            "address": address,
            "connections": scenario.connections,
            "streams": scenario.streams,
            "sotw": scenario.sotw,
            "ca": str(folder / "cert.pem") if scenario.tls else "",
            "type": EDS,
            "names": [] if scenario.wildcard else ["r000001" if scenario.kind == "subscribe" else "r000000"],
            "first": entry.resources if scenario.wildcard else 1,
            "at_once": scenario.at_once,
            "classes": scenario.classes,
            "only": entry.only,
        }
        return self.ask(f"connect {json.dumps(plan)}")

    def report(self) -> Report:
        return self.ask("report")

    def expect(self, version: int, class_number: int | None = None) -> None:
        self.ask(f"expect {version}" if class_number is None else f"expect {version} {class_number}")

    def wait(self) -> Report:
        return self.ask(f"wait {PATIENCE}")


def certificate(folder: Path) -> None:
    """For localhost, its own authority."""
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(["openssl", "req", "-x509", *kind, *names, *files], check=True, capture_output=True)
