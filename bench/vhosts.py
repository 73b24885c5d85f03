"""A million virtual hosts in one server: what each weighs, and what a first subscription and an update cost.

Each number of hosts has a process of its own, in which a server runs; its resident memory is compared with that of a
server without any. Streams are the server's own, without a network: bytes in, bytes out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

import xdsprism as xp
from bench.daemon import memory_of
from bench.figures import say
from xdsprism.server.calls import CallPort, Peer
from xdsprism.server.hub import Hub
from xdsprism.server.xds_call import XdsCall

NUMBERS = (10_000, 100_000, 1_000_000)
AT_ONCE = 1_000  # hosts in one transaction
ASKED = 1_000
UPDATES = 200
ROUNDS = 5
IN_FILE = 10_000

DOCUMENT = """\
"@type": type.googleapis.com/envoy.config.route.v3.VirtualHost
name: main/h{number:07d}
domains: [h{number:07d}.example.com]
routes:
- match: {{prefix: /}}
  route: {{cluster: service}}
"""


def run() -> None:
    print("Virtual hosts")
    with _hosting(0) as empty:
        base = empty("memory")
    with _hosting(NUMBERS[0]) as few, _hosting(NUMBERS[-1]) as many:
        for number in NUMBERS:
            if number in (NUMBERS[0], NUMBERS[-1]):
                _describe(few if number == NUMBERS[0] else many, number, base)
                continue
            with _hosting(number) as some:
                _describe(some, number, base)
        pairs = [(few("update"), many("update")) for _ in range(ROUNDS)]
        first, second = (median(pair[side] for pair in pairs) for side in (0, 1))
        ratio = median(pair[1] / pair[0] for pair in pairs)
        words = f"an update of one host that one of {ASKED:,} streams has, among {NUMBERS[0]:,} and {NUMBERS[-1]:,}"
        say(words, f"{first * 1e6:.0f} and {second * 1e6:.0f} µs, ratio {ratio:.2f}")
        say("... streams that it wakes", f"{many('woken'):.0f}")
    with tempfile.TemporaryDirectory() as folder:
        _from_file(Path(folder))


def _from_file(root: Path) -> None:
    """As a user has them. Reading takes most of the time, so there are not as many."""
    for name, number in (("empty", 0), ("hosts", IN_FILE)):
        (root / name).mkdir()
        (root / name / "hosts.yaml").write_text("---\n".join(DOCUMENT.format(number=each) for each in range(number)))
    empty, full = memory_of(root / "empty"), memory_of(root / "hosts")
    each = (full.megabytes - empty.megabytes) * 1024 * 1024 / IN_FILE
    say(f"{IN_FILE:,} hosts in one file: from start to ready", f"{full.took:.1f} s (empty: {empty.took:.1f} s)")
    say("... memory of each above an empty server", f"{each:,.0f} bytes")


def _describe(hosting: Ask, number: int, base: float) -> None:
    say(f"{number:,} hosts: memory of each above an empty server", f"{(hosting('memory') - base) / number:,.0f} bytes")
    say(f"... and to put one into the store, in transactions of {AT_ONCE:,}", f"{hosting('load') * 1e6:.0f} µs")
    taken = [hosting("answer"), hosting("worst")]
    say(
        f"... a first subscription, from its bytes to those of the answer, median and worst of {ASKED:,}",
        f"{taken[0] * 1e3:.2f} and {taken[1] * 1e3:.2f} ms",
    )
    say("... memory of each host after that above an empty server", f"{(hosting('memory') - base) / number:,.0f} bytes")


# -- the process that measures, as its parent sees it

Ask = Callable[[str], float]


@contextmanager
def _hosting(number: int) -> Iterator[Ask]:
    """A server with so many hosts. It is asked for one figure at a time, and works on nothing meanwhile."""
    command = [sys.executable, "-c", f"from bench.vhosts import answer; answer({number})"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError

        def ask(what: str) -> float:
            print(what, file=process.stdin, flush=True)
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line:
                raise SystemExit(f"the server with {number:,} hosts is gone")
            return float(json.loads(line))

        ask("load")  # which is over when it answers
        yield ask
        process.stdin.close()


# -- in that process


def answer(number: int) -> None:
    asyncio.run(_answer(number))


async def _answer(number: int) -> None:
    store = xp.Store()
    async with xp.Server(store, listen="127.0.0.1:0") as server:
        crowd = Crowd(store, server.hub, number)
        figures: dict[str, Callable[[], float]] = {
            "memory": _resident,
            "load": lambda: crowd.load,
            "answer": crowd.first,
            "worst": lambda: crowd.worst,
            "update": crowd.update,
            "woken": crowd.woken,
        }
        for line in sys.stdin:
            print(json.dumps(figures[line.strip()]()), flush=True)
            await asyncio.sleep(0.01)  # a turn of the hub


def _resident() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGESIZE"))


def _host(number: int, edition: int = 0) -> VirtualHost:
    host = VirtualHost(name=f"main/h{number:07d}", domains=[f"h{number:07d}.example.com"])
    route = host.routes.add()
    route.match.prefix = "/"
    route.route.cluster = f"service-{(number + edition) % 1009:04d}"
    return host


class _Woken(CallPort):
    """Records which call woke."""

    def __init__(self, index: int, woken: list[int]) -> None:
        self._index, self._woken = index, woken

    def wake(self) -> None:
        self._woken.append(self._index)


class Crowd:
    """A store with hosts, and streams that each want another one of them."""

    def __init__(self, store: xp.Store, hub: Hub, number: int) -> None:
        self._store = store
        self._hub = hub
        self._number = number
        self._calls: list[XdsCall] = []
        self._editions = 0
        self.worst = 0.0
        start = time.perf_counter()
        for first in range(0, number, AT_ONCE):
            with store.transaction() as tx:
                for each in range(first, min(number, first + AT_ONCE)):
                    tx.put(_host(each))
        self.load = (time.perf_counter() - start) / max(1, number)

    def first(self) -> float:
        """Each stream asks for one host, as Envoy does when it gets a request that it has no virtual host for."""
        taken = []
        for index in range(ASKED):
            call = self._hub.open("bench", Peer("bench"), delta=True, only_type=None)
            string = f"main/h{index * (self._number // ASKED):07d}.example.com"
            request = DeltaDiscoveryRequest(type_url=xp.VIRTUAL_HOST, resource_names_subscribe=[string])
            request.node.id = f"n{index}"
            message = request.SerializeToString()
            start = time.perf_counter()
            call.receive(message)
            (response,) = call.poll()
            taken.append(time.perf_counter() - start)
            _acknowledge(call, response)
            self._calls.append(call)
        self.worst = max(taken)
        return median(taken)

    def update(self) -> float:
        """From the transaction to the bytes for the one who has it. The others have nothing to say when asked."""
        taken = []
        for _ in range(UPDATES):
            self._editions += 1
            index = self._editions % ASKED
            host = _host(index * (self._number // ASKED), self._editions)
            start = time.perf_counter()
            with self._store.transaction() as tx:
                tx.put(host)
            (response,) = self._calls[index].poll()
            taken.append(time.perf_counter() - start)
            _acknowledge(self._calls[index], response)
        return median(taken)

    def woken(self) -> float:
        """How many streams an update of one host makes look for something to say."""
        woken: list[int] = []
        for index, call in enumerate(self._calls):
            call.attach(_Woken(index, woken))
        self._editions += 1
        with self._store.transaction() as tx:
            tx.put(_host(7 * (self._number // ASKED), self._editions))
        self._hub._run_turn()  # noqa: SLF001 # now, and not in the loop's next turn
        return float(len(woken))


def _acknowledge(call: XdsCall, response: bytes) -> None:
    nonce = DeltaDiscoveryResponse.FromString(response).nonce
    call.receive(DeltaDiscoveryRequest(type_url=xp.VIRTUAL_HOST, response_nonce=nonce).SerializeToString())
