"""python -m bench cycles: clients connect, are served and disconnect, and whether anything of them stays (OPS-7).

The gauges are those of `xdsprism serve`, on its admin port: before the cycles, after a first tenth that fills caches,
and after all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from math import inf
from pathlib import Path

from bench.churn import Client
from bench.soak import serving, write

AT_ONCE = 20  # clients
GAUGES = (
    "xdsprism_streams",
    "xdsprism_connections",
    "xdsprism_clients",
    "process_open_fds",
    "process_resident_memory_bytes",
)
PATIENCE = 60.0  # seconds for what has ended to be forgotten
MEMORY = 0.02  # a growth by less, of memory over nine tenths of the cycles, is the noise of the allocator


def gauges(admin: str) -> dict[str, float]:
    """What the server says of itself: each gauge, summed over its labels."""
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, float] = dict.fromkeys(GAUGES, 0.0)
    for name, value in re.findall(r"^(\w+)(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE):
        if name in found:
            found[name] += float(value)
    return found


async def _cycle(address: str, number: int) -> None:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = Client(reader, writer, "c0")
    try:
        await client.begin()
        await client.first()
        await (client.politely() if number % 2 else client.rudely())
    finally:
        writer.transport.abort()


async def _cycles(address: str, count: int) -> None:
    numbers = iter(range(count))

    async def member() -> None:
        for number in numbers:
            await _cycle(address, number)

    await asyncio.gather(*[member() for _ in range(AT_ONCE)])


async def _settled(admin: str, descriptors: float = inf) -> dict[str, float]:
    """The gauges once all clients are forgotten and no more descriptors are open, or PATIENCE later.

    grpc closes sockets a moment after it says that a connection is over.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        found = await asyncio.to_thread(gauges, admin)
        left = found["xdsprism_streams"] + found["xdsprism_connections"]
        if (not left and found["process_open_fds"] <= descriptors) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.2)


async def _run(address: str, admin: str, count: int) -> bool:
    base = await asyncio.to_thread(gauges, admin)
    began = time.monotonic()
    await _cycles(address, max(count // 10, 1))
    warm = await _settled(admin)
    await _cycles(address, count - max(count // 10, 1))
    end = await _settled(admin, max(base["process_open_fds"], warm["process_open_fds"]))
    print(f"{count:,} cycles in {time.monotonic() - began:.1f} s")
    print(f"{'gauge':32} {'before':>14} {'after a tenth':>14} {'after all':>14}")
    for name in GAUGES:
        print(f"{name:32} {base[name]:14,.0f} {warm[name]:14,.0f} {end[name]:14,.0f}")
    *counts, memory = GAUGES
    same = all(end[name] <= max(base[name], warm[name]) for name in counts)
    return same and end[memory] <= warm[memory] * (1 + MEMORY)


def run(words: Sequence[str] = ()) -> bool:
    parser = argparse.ArgumentParser(prog="python -m bench cycles", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="cycles (10,000)")
    parser.add_argument("--engine", choices=["h2", "grpcio"], default="h2")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "config").mkdir()
        write(root / "config", 0, 1)
        with serving(root, ["--engine", given.engine]) as (server, address):
            is_base = asyncio.run(_run(address, server.admin, given.count))
    print("At base" if is_base else "NOT AT BASE", flush=True)
    return is_base
