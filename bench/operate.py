"""python -m bench operate: what it costs a server that somebody watches it.

The same fan-out as in `bench peers`, by turns in one run, of five servers: nobody watches the first; of the others
/metrics is read each second, `xdsprism status --watch` looks every two seconds, /api/events is followed, or all of it.
What it takes is the processor time of the server beyond what the same messages cost the first one, as a part of one
core: a server that is as busy as its core allows delivers so much less.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench import figures
from bench.measuring import Pace, measure
from bench.peers import generator_here
from bench.programs import GENERATOR, OWN_GENERATOR, Server
from bench.rounds import NotDelivered, Rounds, core_share, cost
from bench.scenarios import H2, Scenario, chosen
from bench.tables import number, placed, table

DOCUMENT = Path(__file__).parent.parent / "PERFORMANCE.md"
MARKS = ("<!-- operate:begin -->", "<!-- operate:end -->")
COMPARED = ("S1=", "S2")
SCRAPE = 1.0  # seconds between two
PATIENCE = 30.0

NOBODY, METRICS, STATUS, EVENTS, ALL = "nobody", "metrics", "status --watch", "events", "all three"
Watcher = Callable[[Server], AbstractContextManager[object]]


def admin_of(server: Server) -> str:
    """The address of its admin port."""
    server.tell("admin")
    return server.hear()


class _Reader(threading.Thread):
    """Does something until it is told to stop, and counts how often that succeeded."""

    def __init__(self, work: Callable[[_Reader], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.over = threading.Event()
        self.count = 0
        self.begun = threading.Event()

    def run(self) -> None:
        self._work(self)

    def counted(self) -> None:
        self.count += 1
        self.begun.set()


@contextmanager
def reading(what: str, work: Callable[[_Reader], None]) -> Iterator[_Reader]:
    """Raises NotDelivered if it never began."""
    reader = _Reader(work)
    reader.start()
    if not reader.begun.wait(PATIENCE):
        raise NotDelivered(f"{what} gave no answer")
    before = reader.count
    yield reader
    if not reader.is_alive() or reader.count == before:
        raise NotDelivered(f"{what} stopped to answer")
    reader.over.set()


@contextmanager
def scraping(server: Server) -> Iterator[_Reader]:
    """Read /metrics each second."""
    address = f"http://{admin_of(server)}/metrics"

    def work(reader: _Reader) -> None:
        while not reader.over.is_set():
            with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
                if b"xdsprism_" in answer.read():
                    reader.counted()
            reader.over.wait(SCRAPE)

    with reading("/metrics", work) as reader:
        yield reader


@contextmanager
def following(server: Server) -> Iterator[_Reader]:
    """Keep /api/events open, and read all that comes."""
    address = f"http://{admin_of(server)}/api/events"

    def work(reader: _Reader) -> None:
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            reader.begun.set()
            while not reader.over.is_set() and answer.readline():
                reader.counted()

    with reading("/api/events", work) as reader:
        yield reader


@contextmanager
def looking(server: Server) -> Iterator[None]:
    """Run `xdsprism status --watch`, which prints the changes into a pipe."""
    argv = [sys.executable, "-m", "xdsprism", "status", "--watch", "--admin", admin_of(server)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lines = process.stdout
        if lines is None or "connected" not in lines.readline():
            raise NotDelivered("status --watch shows no client")
        drain = threading.Thread(target=lambda: [None for _ in lines], daemon=True)
        drain.start()
        try:
            yield
            if process.poll() is not None:
                raise NotDelivered("status --watch has ended")
        finally:
            process.terminate()
            process.wait(PATIENCE)
            drain.join(PATIENCE)


@contextmanager
def everything(server: Server) -> Iterator[None]:
    with ExitStack() as stack:
        for watcher in (scraping, looking, following):
            stack.enter_context(watcher(server))
        yield


WATCHERS: dict[str, Watcher] = {METRICS: scraping, STATUS: looking, EVENTS: following, ALL: everything}


def watched(generator: Sequence[str], pace: Pace, scenarios: Sequence[Scenario]) -> dict[str, dict[str, Rounds]]:
    """By the title of each scenario, the rounds of each server."""
    found: dict[str, dict[str, Rounds]] = {}
    for scenario in scenarios:
        ours = next(entry for entry in scenario.entries if entry.server == H2)
        entries = [replace(ours, label=label) for label in (NOBODY, *WATCHERS)]
        with tempfile.TemporaryDirectory() as name:
            outcome = measure(scenario, entries, generator, Path(name), pace, WATCHERS)
        found[f"{scenario.title}, {scenario.unit}"] = outcome.rounds
        print(f"{scenario.key}: done", file=sys.stderr, flush=True)
    return found


def told(found: dict[str, dict[str, Rounds]]) -> str:
    head = ["what, processor time", NOBODY, *[f"{label}: of a core" for label in WATCHERS]]
    rows = [
        [
            title,
            number(cost(rounds[NOBODY]) * 1e6),
            *[f"{core_share(rounds[label], rounds[NOBODY]) * 100:.1f} %" for label in WATCHERS],
        ]
        for title, rounds in found.items()
    ]
    return table(head, rows)


def given_by(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench operate", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="of each scenario (default: 9)")
    parser.add_argument("--round-seconds", type=float, default=4.0, help="of changes in a round (default: 4)")
    parser.add_argument("--scenario", action="append", help=f"one of bench peers (default: {', '.join(COMPARED)})")
    parser.add_argument("--own-load", action="store_true", help="our own generator, as where there is no Go")
    parser.add_argument("--write", action="store_true", help="put the figures into PERFORMANCE.md too")
    return parser.parse_args(words)


def run(words: Sequence[str] = ()) -> None:
    given = given_by(words)
    generator = OWN_GENERATOR if given.own_load else generator_here()
    scenarios = chosen(given.scenario or [*COMPARED])
    found = watched(generator, Pace(given.rounds, given.round_seconds), scenarios)
    load = "" if generator == GENERATOR else "; the load is made by our own generator, in Python"
    text = f"{figures.machine()}{load}.\n\n{told(found)}"
    print(text)
    if given.write:
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), text, MARKS))
