"""python -m bench fleet: one server with 10,000 connections, and one change a second that all of them get.

The load counts the messages of every client: there are figures only if each has had each change, once. The server is
what `bench peers` measures, with a task in its loop that notes how long the loop answers nobody. Both builds are
measured, one after the other; the compiled one if `make compiled` has installed it.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import figures
from bench.peers import generator_here
from bench.programs import COMPILED_PYTHON, GENERATOR, OWN_GENERATOR, Load, Server
from bench.rounds import Due, NotDelivered, check
from bench.scenarios import COMPILED, GRPCIO, H2, Entry, Scenario
from bench.tables import number, placed, table

DOCUMENT = Path(__file__).parent.parent / "PERFORMANCE.md"
MARKS = ("<!-- fleet:begin -->", "<!-- fleet:end -->")
SPARE = 500  # descriptors beside those of connections; the server keeps a tenth of all, and a quarter per address
SERVERS = {"interpreted": H2, "compiled": COMPILED, "grpcio": GRPCIO}


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


def measure(connections: int, seconds: float, server_name: str, generator: Sequence[str]) -> Outcome:
    """One change a second for so long. Raises NotDelivered unless each client gets each of them."""
    entry = Entry("fleet", server_name)
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


def told(outcomes: Mapping[str, Outcome], connections: int, how: str) -> str:
    """`outcomes`: by the name of the build."""
    head = ["build", "what", "seconds", "longest stall, ms", "of the processor, ms", "processor, s", "memory, MB"]
    rows = [
        [build, each.what, *map(number, (each.seconds, each.stall, each.busy, each.spent, each.megabytes))]
        for build, outcome in outcomes.items()
        for each in outcome.phases
    ]
    return "\n\n".join(
        [how, table(head, rows), *[_delivered(build, outcome, connections) for build, outcome in outcomes.items()]]
    )


def _delivered(build: str, outcome: Outcome, connections: int) -> str:
    times = f"{median(outcome.times) * 1e3:,.0f} ms (median), {max(outcome.times) * 1e3:,.0f} ms (worst)"
    return (
        f"Every client had every change ({build}): {outcome.messages:,} messages to {connections:,} clients. A change "
        f"was with all of them after {times}."
    )


def allow_descriptors(connections: int) -> None:
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
    parser.add_argument("--build", choices=[*SERVERS], help="one alone; grpcio: interpreted, with grpc.aio")
    parser.add_argument("--own-load", action="store_true", help="our own generator, as where there is no Go")
    parser.add_argument("--write", action="store_true", help="put the figures into PERFORMANCE.md too")
    return parser.parse_args(words)


def run(words: Sequence[str] = ()) -> None:
    given = _given(words)
    allow_descriptors(given.connections)
    generator = OWN_GENERATOR if given.own_load else generator_here()
    outcomes: dict[str, Outcome] = {}
    for build in _builds(given.build):
        print(f"{build}: {given.connections:,} connections, {given.seconds:g} s ...", file=sys.stderr, flush=True)
        outcomes[build] = measure(given.connections, given.seconds, SERVERS[build], generator)
    load = "" if generator == GENERATOR else "; the load is made by our own generator, in Python"
    text = told(outcomes, given.connections, f"{figures.machine()}{load}.")
    print(text)
    if given.write:
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), text, MARKS))


def _builds(chosen: str | None) -> list[str]:
    """The one that was chosen, or both of our own transport."""
    if chosen:
        return [chosen]
    if COMPILED_PYTHON.exists():
        return ["interpreted", "compiled"]
    print("The compiled build is not there: `make compiled` makes it.", file=sys.stderr, flush=True)
    return ["interpreted"]
