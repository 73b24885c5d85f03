"""python -m bench soak: `xdsprism serve` for a long time, with clients that come and go, and whether anything grows.

A server leaks if its memory or its descriptors go on growing while the load stays the same, or are not back when
everybody has left. So both are sampled all the while, and judged by the second half: the first is the caches' to fill.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.churn import Crowd
from bench.daemon import CLUSTER, DOCUMENT

NAMES = 50  # clusters
FLAT = 0.5  # percent a minute, of memory: less is the noise of the allocator
BACK = 5  # descriptors more than before are still the same: pools and caches of libraries


@dataclass(frozen=True)
class Sample:
    seconds: float
    megabytes: float
    descriptors: int
    connections: int
    processor: float  # seconds of it, so far


@dataclass(frozen=True)
class Verdict:
    """What the samples say."""

    growth: float  # of memory, in percent a minute, over the second half
    descriptors: float  # the same, in number a minute, beside those of connections
    left: int  # descriptors that are still open after everybody has left
    connections: int  # so too
    flat: bool


def judged(samples: Sequence[Sample], start: Sample, end: Sample) -> Verdict:
    half = samples[len(samples) // 2 :]
    mean = fmean(sample.megabytes for sample in half)
    growth = 60 * slope([(sample.seconds, sample.megabytes) for sample in half]) / mean * 100
    descriptors = 60 * slope([(sample.seconds, sample.descriptors - sample.connections) for sample in half])
    left = end.descriptors - start.descriptors
    flat = growth < FLAT and descriptors < 1 and left <= BACK and end.connections == start.connections
    return Verdict(growth, descriptors, left, end.connections, flat)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line that is nearest to them."""
    x, y = fmean(point[0] for point in points), fmean(point[1] for point in points)
    width = sum((point[0] - x) ** 2 for point in points)
    return sum((point[0] - x) * (point[1] - y) for point in points) / width if width else 0.0


class Watched:
    """The server, from outside."""

    def __init__(self, process: subprocess.Popen[str], admin: str) -> None:
        self._process = process
        self.admin = admin
        self._begin = time.monotonic()

    async def sample(self) -> Sample:
        connections = await asyncio.to_thread(self._connections)
        proc = Path(f"/proc/{self._process.pid}")
        pages = int((proc / "statm").read_text().split()[1])
        ticks = sum(map(int, (proc / "stat").read_text().rpartition(")")[2].split()[11:13]))
        return Sample(
            time.monotonic() - self._begin,
            pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
            sum(1 for _ in (proc / "fd").iterdir()),
            connections,
            ticks / os.sysconf("SC_CLK_TCK"),
        )

    def _connections(self) -> int:
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=60) as answer:
            found = re.search(rb"^xdsprism_connections (\S+)$", answer.read(), re.MULTILINE)
        return int(float(found[1])) if found else -1


def write(config: Path, number: int, timeout: int) -> None:
    draft = config / f".c{number}"
    draft.write_text(DOCUMENT.format(type=CLUSTER, name=f"c{number}", timeout=timeout))
    draft.replace(config / f"c{number}.yaml")


@contextmanager
def serving(root: Path, options: Sequence[str]) -> Iterator[tuple[Watched, str]]:
    """As a user runs it; and its address."""
    command = [sys.executable, "-m", "xdsprism", "serve", str(root / "config"), "--engine", "h2", *options]
    command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-level", "warning"]
    log = root / "serve.log"
    with log.open("w") as sink, subprocess.Popen(command, stderr=sink, text=True) as process:
        try:
            listen, admin = _ready(process, log)
            yield Watched(process, admin), listen
        finally:
            process.send_signal(signal.SIGTERM)


def _ready(process: subprocess.Popen[str], log: Path) -> tuple[str, ...]:
    while process.poll() is None:
        found = re.search(r"ready listen=(\S+) admin=(\S+)", log.read_text())
        if found:
            return found.groups()
        time.sleep(0.05)
    raise SystemExit(f"the server did not become ready:\n{log.read_text()}")


def _certificate(root: Path) -> tuple[list[str], ssl.SSLContext]:
    """What `serve` is given, and what clients trust then."""
    cert, key = root / "cert.pem", root / "key.pem"
    options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", "req", "-x509", *options, *names, *files], check=True, capture_output=True)
    context = ssl.create_default_context(cafile=str(cert))
    context.set_alpn_protocols(["h2"])
    return ["--tls-cert", str(cert), "--tls-key", str(key)], context


async def _edit(config: Path, crowd: Crowd, every: float) -> None:
    """Updates all the while."""
    number = 0
    while not crowd.stopping:
        number += 1
        write(config, number % NAMES, number % 1_000 + 1)
        await asyncio.sleep(every)


HEAD = f"{'seconds':>8} {'MB':>8} {'descriptors':>12} {'connections':>12} {'processor':>10} {'came':>8} {'updates':>9}"


def _row(sample: Sample, crowd: Crowd) -> str:
    return (
        f"{sample.seconds:8.0f} {sample.megabytes:8.1f} {sample.descriptors:12,} {sample.connections:12,} "
        f"{sample.processor:9.1f}s {crowd.came:8,} {crowd.updates:9,}"
    )


async def _soak(server: Watched, crowd: Crowd, config: Path, given: argparse.Namespace) -> Verdict:
    start = await server.sample()
    print(HEAD, _row(start, crowd), sep="\n", flush=True)
    tasks = [asyncio.create_task(_edit(config, crowd, given.edit_every))]
    for _ in range(given.connections):
        tasks.append(asyncio.create_task(crowd.member()))
        await asyncio.sleep(min(0.01, 10 / given.connections))  # a fleet, and not a storm
    samples = await _watch(server, crowd, given)
    await _leave(crowd, tasks)
    end = await _settled(server, start)
    print(_row(end, crowd), flush=True)
    _tell(crowd)
    return judged(samples, start, end)


async def _watch(server: Watched, crowd: Crowd, given: argparse.Namespace) -> list[Sample]:
    ends = time.monotonic() + given.minutes * 60
    samples = []
    while time.monotonic() < ends:
        await asyncio.sleep(given.sample_every)
        samples.append(await server.sample())
        print(_row(samples[-1], crowd), flush=True)
    return samples


async def _leave(crowd: Crowd, tasks: list[asyncio.Task[None]]) -> None:
    """All at once; those too who would have been silent for a while."""
    crowd.stopping = True
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _settled(server: Watched, start: Sample) -> Sample:
    """As soon as it has noticed that nobody is there, which takes as long as a keepalive where nobody said so."""
    ends = time.monotonic() + 90
    sample = await server.sample()
    while sample.connections > start.connections and time.monotonic() < ends:
        await asyncio.sleep(0.5)
        sample = await server.sample()
    return sample


def _tell(crowd: Crowd) -> None:
    print("They left " + ", ".join(f"{way} {number:,}" for way, number in crowd.left.most_common()))
    if crowd.failed:
        print("Failed: " + "; ".join(f"{why} ({number:,})" for why, number in crowd.failed.most_common(10)))


def _given(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--connections", type=int, default=1_000, help="at a time")
    parser.add_argument("--life", type=float, default=20, help="seconds that a connection lasts, on average")
    parser.add_argument("--edit-every", type=float, default=0.5, help="seconds")
    parser.add_argument("--sample-every", type=float, default=5, help="seconds")
    parser.add_argument("--tls", action="store_true")
    return parser.parse_args(words)


def run(words: Sequence[str] = ()) -> Verdict:
    given = _given(words)
    print(f"Soak: {given.connections:,} connections for {given.minutes:g} minutes{', TLS' if given.tls else ''}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "config").mkdir()
        for number in range(NAMES):
            write(root / "config", number, 1)
        options, tls = _certificate(root) if given.tls else ([], None)
        with serving(root, options) as (server, address):
            crowd = Crowd(address, [f"c{number}" for number in range(NAMES)], tls, given.life)
            verdict = asyncio.run(_soak(server, crowd, root / "config", given))
    print(
        f"{'Flat' if verdict.flat else 'NOT FLAT'}: memory {verdict.growth:+.2f} % a minute, descriptors "
        f"{verdict.descriptors:+.2f} a minute beside connections, in the second half; after everybody has left "
        f"{verdict.connections} connections, {verdict.left:+} descriptors",
        flush=True,
    )
    return verdict
