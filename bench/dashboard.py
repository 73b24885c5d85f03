"""python -m bench dashboard: what an open dashboard costs a server that pushes a hundred responses a second.

A server in a process of its own changes a resource that some streams have, so that it pushes PUSHES responses a second.
A headless Chromium opens a view of its dashboard, and closes it again, by turns. The figure is the processor time of
the server, in percent of one core, with the view open and without, and the median of the differences.

    python -m bench dashboard --streams 10 --seconds 20 --turns 3
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism as xp
from bench.programs import Program
from bench.tables import table
from tests.interop.browsing import chromium

PUSHES = 100  # a second
RESOURCES = 1_000
NAME = "c-0001"
VIEWS = {"overview": "", "resources": "resources", "clients": "clients", "events": "events"}


def run(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench dashboard", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=10, help="clients that get each change")
    parser.add_argument("--seconds", type=float, default=20, help="of each turn")
    parser.add_argument("--turns", type=int, default=3, help="with each view open, and as many without")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "bench.dashboard", str(given.streams))
        with Program(command, Path(folder, "server.log")) as server:
            address, admin = server.hear().split()
            load = ["cds", NAME, "--server", address, "--streams", str(given.streams), "--connections", "1"]
            fleet = subprocess.Popen(
                [sys.executable, "-m", "xdsprism", "bench", *load, "--duration", "36000"], stdout=subprocess.DEVNULL
            )
            try:
                rows = [*_measured(server, admin, given.seconds, given.turns)]
            finally:
                fleet.kill()
                fleet.wait()
    title = f"A dashboard, with {given.streams} streams and {PUSHES} pushes a second"
    print(f"\n{title}: processor time of the server, percent of one core\n")
    print(table(["view", "closed", "open", "difference"], rows))


def _measured(server: Program, admin: str, seconds: float, turns: int) -> Any:
    """Yield a row for each view."""
    _wait(server)
    with chromium() as browser:
        for word, view in VIEWS.items():
            closed, opened = [], []
            for _ in range(turns):
                closed.append(_turn(server, seconds))
                with browser.page(admin, view) as page:
                    page.get_by_text("live").first.wait_for()
                    opened.append(_turn(server, seconds, page))
            differences = [one - other for one, other in zip(opened, closed, strict=True)]
            print(f"dashboard: {word}: {', '.join(f'{each:+.2f}' for each in differences)}", flush=True)
            yield [word, *(f"{statistics.median(each):.2f}" for each in (closed, opened, differences))]


def _wait(server: Program) -> None:
    """Wait until the server pushes as much as it should."""
    while True:
        before = _counts(server)[1]
        time.sleep(2)
        if _counts(server)[1] - before > 1.8 * PUSHES:
            return


def _turn(server: Program, seconds: float, page: Any = None) -> float:
    """Return the percentage of a core that the server takes; `page`: its events have to be handled meanwhile."""
    begun, (before, pushed) = time.monotonic(), _counts(server)
    if page is None:
        time.sleep(seconds)
    else:
        page.wait_for_timeout(1_000 * seconds)
    after, pushes = _counts(server)
    passed = time.monotonic() - begun
    rate = (pushes - pushed) / passed
    if rate < 0.9 * PUSHES:
        print(f"dashboard: only {rate:.0f} pushes a second: the machine is busy", flush=True)
    return 100 * (after - before) / passed


def _counts(server: Program) -> tuple[float, int]:
    """Return the processor time of the server, and how many responses it has sent."""
    server.tell("counts")
    used, pushes = server.hear().split()
    return float(used), int(pushes)


async def serve(streams: int) -> None:
    """Serve, change one resource again and again, and answer each line of stdin with the counts."""
    store = xp.Store()
    with store.transaction() as tx:
        for number in range(RESOURCES):
            tx.put(Cluster(name=f"c-{number:04}"))
    async with xp.Server(store, "127.0.0.1:0", admin="127.0.0.1:0") as server:
        print(server.address, server.admin_address, flush=True)
        changing = asyncio.create_task(_change(store, streams / PUSHES))
        while await asyncio.to_thread(sys.stdin.readline):
            sent = sum(s.progress.sent for each in server.hub.connected() for s in each.stream.sessions.values())
            print(time.process_time(), sent, flush=True)
        changing.cancel()


async def _change(store: xp.Store, every: float) -> None:
    due = time.monotonic()
    number = 0
    while True:
        number += 1
        with store.transaction() as tx:
            tx.put(Cluster(name=NAME, alt_stat_name=str(number)))
        due += every
        await asyncio.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
