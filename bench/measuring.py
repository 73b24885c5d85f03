"""One scenario: its servers and fleets side by side, and rounds in which each of them has its turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.programs import Load, Server
from bench.rounds import Due, NotDelivered, Round, check, rotated
from bench.scenarios import Entry, Scenario

FEWEST = 2  # changes in a round, however long they take


@dataclass(frozen=True, slots=True)
class Pace:
    """How long it may take."""

    rounds: int = 7
    seconds: float = 1.0  # of changes, for each server in each round


@dataclass(slots=True)
class Outcome:
    """What a scenario gave, by entry."""

    rounds: dict[str, list[Round]] = field(default_factory=dict)
    megabytes: dict[str, float] = field(default_factory=dict)


class Rig:
    """A server and its fleet."""

    def __init__(self, entry: Entry, scenario: Scenario, server: Server, load: Load, folder: Path) -> None:
        self.entry = entry
        self.server = server
        self._scenario = scenario
        self._load = load
        self._folder = folder
        self._version = 1
        self._class = 0 if entry.variants and scenario.kind == "fan-out" else None

    def connect(self) -> None:
        report = self._load.connect(self.entry, self._scenario, self.server.address, self._folder)
        first = report.streams * (self.entry.resources if self._scenario.wildcard else 1)
        if report.resources != first:
            raise NotDelivered(f"{report.resources} resources came at first, and due were {first}")

    def turn(self, seconds: float) -> Round:
        match self._scenario.kind:
            case "fan-out":
                return self._changes(seconds)
            case "connect":
                return self._connects()
            case "subscribe":
                return self._subscriptions()

    def _changes(self, seconds: float) -> Round:
        """Closed: the next change comes when everybody has this one."""
        load, burst = self._load, self._scenario.burst
        before = load.report()
        spent, turns, start = self.server.settle(), 0, time.perf_counter()
        while turns < FEWEST or time.perf_counter() - start < seconds:
            self._version += burst
            turns += 1
            load.expect(self._version, self._class)
            self.server.bump(self._version, burst)
            load.wait()
        wall = time.perf_counter() - start
        cpu = self.server.settle() - spent
        after = load.report()
        streams = after.streams if self._class is None else after.sizes[self._class]
        due = Due.of(streams=streams, turns=turns, burst=burst, each=1, version=self._version)
        return Round(cpu, wall, streams * turns, check(before, after, due, self._class))

    def _connects(self) -> Round:
        spent, start = self.server.settle(), time.perf_counter()
        self.connect()
        wall = time.perf_counter() - start
        cpu = self.server.settle() - spent
        report = self._load.report()
        self._load.ask("close")
        return Round(cpu, wall, report.streams, report.messages)

    def _subscriptions(self) -> Round:
        """The cost of streams is not in it: they are there, with another name, when they ask for this one."""
        load = self._load
        self.connect()
        before = load.report()
        spent, start = self.server.settle(), time.perf_counter()
        load.expect(1)
        load.ask("subscribe r000000")
        load.wait()
        wall = time.perf_counter() - start
        cpu = self.server.settle() - spent
        after = load.report()
        came = check(before, after, Due.of(streams=after.streams, turns=1, burst=1, each=1, version=1))
        load.ask("close")
        return Round(cpu, wall, after.streams, came)


# What goes on at a server while it is measured, by its entry.
Beside = Mapping[str, Callable[[Server], AbstractContextManager[object]]]


def measure(
    scenario: Scenario,
    entries: Sequence[Entry],
    generator: Sequence[str],
    folder: Path,
    pace: Pace,
    beside: Beside | None = None,
) -> Outcome:
    with _rigs(scenario, entries, generator, folder) as rigs, ExitStack() as stack:
        for label, rig in rigs.items():
            if scenario.kind == "fan-out":
                rig.connect()
            if beside and label in beside:
                stack.enter_context(beside[label](rig.server))
            rig.turn(pace.seconds / 4)  # what happens once only, such as windows that grow, is over
        outcome = Outcome({label: [] for label in rigs})
        for number in range(pace.rounds):
            for label in rotated(list(rigs), number):
                outcome.rounds[label].append(rigs[label].turn(pace.seconds))
        outcome.megabytes = {label: rig.server.megabytes for label, rig in rigs.items()}
        return outcome


@contextmanager
def _rigs(
    scenario: Scenario, entries: Sequence[Entry], generator: Sequence[str], folder: Path
) -> Iterator[dict[str, Rig]]:
    with ExitStack() as stack:
        rigs = {}
        for entry in entries:
            server = stack.enter_context(Server(entry, scenario, folder))
            load = stack.enter_context(Load(generator, folder / f"{entry.label} load.log"))
            rigs[entry.label] = Rig(entry, scenario, server, load, folder)
        yield rigs
