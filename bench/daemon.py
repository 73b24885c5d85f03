"""`xdsprism serve` as a user runs it: start, memory, and the way of an edit to a client."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import grpc
from envoy.service.discovery.v3 import discovery_pb2 as pb

from bench.figures import say

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

DOCUMENT = """\
"@type": {type}
name: {name}
type: STATIC
connect_timeout: {timeout}s
load_assignment:
  cluster_name: {name}
  endpoints:
  - lb_endpoints:
    - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 8080}}}}}}
    - endpoint: {{address: {{socket_address: {{address: 127.0.0.2, port_value: 8080}}}}}}
"""


def run() -> None:
    print("Daemon")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        empty = root / "empty"
        empty.mkdir()
        base = memory_of(empty)
        for name, files in (("10,000 resources in 100 files", 100), ("10,000 resources in one file", 1)):
            config = root / f"config{files}"
            write(config, 10_000, files)
            start = time.perf_counter()
            memory = memory_of(config)
            say(f"{name}: from start to ready", f"{memory.ready - start:.2f} s (empty: {base.took:.2f} s)")
            say(f"{name}: memory above an empty server", f"{memory.megabytes - base.megabytes:.0f} MB")
        edits = root / "edits"
        write(edits, 1_000, 1_000)
        times = asyncio.run(_edit(edits))
        say(
            "an edit of one file among 1,000 reaches a client after (median, worst of 20)",
            f"{median(times) * 1e3:.0f} ms, {max(times) * 1e3:.0f} ms",
        )


class Footprint:
    def __init__(self, ready: float, took: float, megabytes: float) -> None:
        self.ready = ready
        self.took = took
        self.megabytes = megabytes


def write(config: Path, resources: int, files: int) -> None:
    config.mkdir()
    each = resources // files
    for number in range(files):
        names = [f"c{i}" for i in range(number * each, (number + 1) * each)]
        documents = [DOCUMENT.format(type=CLUSTER, name=name, timeout=1) for name in names]
        (config / f"f{number}.yaml").write_text("---\n".join(documents))


@contextmanager
def serving(config: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with started("serve", str(config), "--allow-empty") as running:
        yield running


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `xdsprism serve` or `relay` with this Python. Yield the process, and the address where it listens."""
    command = [sys.executable, "-m", "xdsprism", *arguments, "--listen", "127.0.0.1:0", "--admin", "off"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr or ():
                found = re.search(r"ready.*listen=(\S+)", line)
                if found:
                    yield process, found[1]
                    break
            else:
                raise SystemExit(f"xdsprism {arguments[0]} did not become ready")
        finally:
            process.send_signal(signal.SIGTERM)


def memory_of(config: Path) -> Footprint:
    start = time.perf_counter()
    with serving(config) as (process, _):
        ready = time.perf_counter()
        resident = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(process.pid)], check=True, capture_output=True, text=True
        )
        return Footprint(ready, ready - start, int(resident.stdout) / 1024)


async def _edit(config: Path) -> list[float]:
    with serving(config) as (_, address):
        async with grpc.aio.insecure_channel(address) as channel:
            stream = channel.stream_stream(
                ADS,
                request_serializer=pb.DeltaDiscoveryRequest.SerializeToString,
                response_deserializer=pb.DeltaDiscoveryResponse.FromString,
            )()
            await stream.write(pb.DeltaDiscoveryRequest(type_url=CLUSTER))
            response = await stream.read()
            times = []
            for timeout in range(2, 22):
                await stream.write(pb.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=response.nonce))
                await asyncio.sleep(0.2)  # an idle server, as between two edits of a person
                fresh = config / "new"
                fresh.write_text(DOCUMENT.format(type=CLUSTER, name="c500", timeout=timeout))
                start = time.perf_counter()
                fresh.replace(config / "f500.yaml")
                response = await stream.read()
                times.append(time.perf_counter() - start)
            stream.cancel()
            return times
