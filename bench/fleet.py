"""python -m bench fleet: one server with 10,000 connections, and one change a second that all of them get.

The load counts the messages of every client: there are figures only if each has had each change, once. The server is
what `bench peers` measures, with a task in its loop that notes how long the loop answers nobody.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import figures
from bench.peers import generator_here
from bench.programs import GENERATOR, OWN_GENERATOR, Load, Server
from bench.rounds import Due, NotDelivered, check
from bench.scenarios import GRPCIO, H2, Entry, Scenario
from bench.tables import number, placed, table

DOCUMENT = Path(__file__).parent.parent / "PERFORMANCE.md"
MARKS = ("<!-- fleet:begin -->", "<!-- fleet:end -->")
SPARE = 500  # descriptors beside those of connections; the server keeps a tenth of all, and a quarter per address
ENGINES = {"h2": H2, "grpcio": GRPCIO}


@dataclass(frozen=True, slots=True)
class Phase:
    """What a part of it cost the server."""

    what: str
    seconds: float
    stall: float  # ms
    busy: float  # ms of the processor in the longest turn
    spent: float  # seconds of the processor
    megabytes: float  # resident, at its end


@dataclass(frozen=True, slots=True)
class Outcome:
    phases: tuple[Phase, ...]
    times: tuple[float, ...]  # seconds until each change was with everybody
    messages: int


class Watch:
    """What the server says of itself since the last look."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._start = time.perf_counter()
        self._spent = server.settle()
        server.tell("stall")
        server.hear()

    def look(self, what: str) -> Phase:
        seconds = time.perf_counter() - self._start
        spent = self._server.settle()
        self._server.tell("stall")
        stall, busy = map(float, self._server.hear().split())
        found = Phase(what, seconds, stall, busy, spent - self._spent, self._server.megabytes)
        self._start, self._spent = time.perf_counter(), spent
        return found


def measure(connections: int, seconds: float, engine: str, generator: Sequence[str]) -> Outcome:
    """One change a second for so long. Raises NotDelivered unless each client gets each of them."""
    entry = Entry("fleet", ENGINES[engine])
    scenario = Scenario("fleet", "", (entry,), connections=connections, streams=1, at_once=1_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            Server(entry, scenario, folder, "--pulse") as server,
            Load(generator, folder / "load.log") as load,
        ):
            watch = Watch(server)
            before = load.connect(entry, scenario, server.address, folder)
            if before.streams != connections or before.resources != connections:
                raise NotDelivered(f"{before.resources} resources came at first, and due were {connections}")
            connected = watch.look(f"{connections:,} clients connect and get a resource")
            times = _changes(server, load, seconds)
            changed = watch.look(f"{len(times)} changes, one a second")
            due = Due.of(streams=connections, turns=len(times), burst=1, each=1, version=len(times))
            came = check(before, load.report(), due)
            load.ask("close")
            left = watch.look("all of them leave")
    return Outcome((connected, changed, left), tuple(times), came)


def _changes(server: Server, load: Load, seconds: float) -> list[float]:
    times: list[float] = []
    start = time.perf_counter()
    while (due := start + len(times)) < start + seconds:
        time.sleep(max(0.0, due - time.perf_counter()))
        load.expect(len(times) + 1)
        begin = time.perf_counter()
        server.bump(len(times) + 1, 1)
        load.wait()
        times.append(time.perf_counter() - begin)
    return times


def told(outcome: Outcome, connections: int, how: str) -> str:
    head = ["what", "seconds", "longest stall, ms", "of the processor, ms", "processor, s", "resident memory, MB"]
    rows = [
        [each.what, *map(number, (each.seconds, each.stall, each.busy, each.spent, each.megabytes))]
        for each in outcome.phases
    ]
    times = f"{median(outcome.times) * 1e3:,.0f} ms (median), {max(outcome.times) * 1e3:,.0f} ms (worst)"
    return (
        f"{how}\n\n{table(head, rows)}\n\n"
        f"Every client had every change: {outcome.messages:,} messages to {connections:,} clients. A change was with "
        f"all of them after {times}."
    )


def _allow_descriptors(connections: int) -> None:
    """Of the server, which inherits the limit: no address has more than three quarters of nine tenths of it."""
    wanted = connections * 3 // 2 + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(f"{connections:,} connections take {wanted:,} descriptors, and ulimit -Hn says {hard:,}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _given(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench fleet", description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000, help="each with one stream (default: 10000)")
    parser.add_argument("--seconds", type=float, default=60, help="of changes (default: 60)")
    parser.add_argument("--engine", choices=[*ENGINES], default="h2")
    parser.add_argument("--own-load", action="store_true", help="our own generator, as where there is no Go")
    parser.add_argument("--write", action="store_true", help="put the figures into PERFORMANCE.md too")
    return parser.parse_args(words)


def run(words: Sequence[str] = ()) -> None:
    given = _given(words)
    _allow_descriptors(given.connections)
    generator = OWN_GENERATOR if given.own_load else generator_here()
    print(f"{given.connections:,} connections, {given.seconds:g} s ...", file=sys.stderr, flush=True)
    outcome = measure(given.connections, given.seconds, given.engine, generator)
    load = "" if generator == GENERATOR else "; the load is made by our own generator, in Python"
    text = told(outcome, given.connections, f"{figures.machine()}{load}.")
    print(text)
    if given.write:
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), text, MARKS))
