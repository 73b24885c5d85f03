"""python -m bench policy: what a policy costs, and a server that has one with thousands of clients.

The policy has 1,000 rules, of which the last decides: each stream is compared with all of them. Clients have no
certificates, since these would measure TLS: the rules before the last are for other identities, and for other nodes of
clients without one.

First the same scenarios as in `bench peers`, each with two policies and with none, by turns in one run: one that allows
all names, and one that allows names by a pattern, for which streams read a part of the table; of both builds, if `make
compiled` has installed the compiled one. Then a crowd with the
second policy: streams that get updates, and as many half that never read; storms of clients that connect at once; and
clients that come and go, after whom nothing may be left.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from envoy.service.discovery.v3 import discovery_pb2 as pb

from bench import figures
from bench.at_once import run_at_once
from bench.churn import header_block
from bench.fleet import Phase, Watch, allow_descriptors
from bench.measuring import Pace, measure
from bench.peers import generator_here
from bench.programs import COMPILED_PYTHON, EDS, GENERATOR, OWN_GENERATOR, Load, Server, serve_with_policies
from bench.rounds import NotDelivered, Rounds, cost, cost_ratio
from bench.scenarios import COMPILED, H2, Entry, Scenario, chosen
from bench.tables import number, placed, table
from xdsprism.http2 import frames
from xdsprism.http2.codes import DATA, PREFACE
from xdsprism.memory import EVERY as EVERY_LOOK

DOCUMENT = Path(__file__).parent.parent / "PERFORMANCE.md"
MARKS = ("<!-- policy:begin -->", "<!-- policy:end -->")
RULES = 1_000
ALL_NAMES, SOME_NAMES = "all names", "names by a pattern"
POLICIES = {ALL_NAMES: "", SOME_NAMES: ', names: {"*": ["r*"]}'}
NO_POLICY = "no policy"
BUILDS = {"interpreted": H2, "compiled": COMPILED}
COMPARED = ("S1=", "S2", "S4")
RESOURCES, SIZE = 10, 8_192  # of the crowd: more than a window, so that who does not read holds its messages up
EVERY = 0.5  # seconds between two changes
ADS = b"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"


def rules(last: str, count: int = RULES) -> str:
    """A policy file of so many rules, the last of which is for all clients of the load."""
    others = [
        f"- {{identity: 'spiffe://example.com/ns/tenant-{each}/sa/*', params: any}}"
        if each % 2
        else f"- {{identity: anonymous, node: 'tenant-{each}-*', params: any}}"
        for each in range(count - 1)
    ]
    return "\n".join(["default: deny", "rules:", *others, f"- {{identity: any, params: any{last}}}", ""])


@contextmanager
def serving() -> Iterator[None]:
    """Let servers with these policies take part."""
    with tempfile.TemporaryDirectory() as name:
        files = {policy: Path(name) / f"{index}.yaml" for index, policy in enumerate(POLICIES)}
        for policy, file in files.items():
            file.write_text(rules(POLICIES[policy]))
        serve_with_policies(files)
        serve_with_policies({compiled(policy): file for policy, file in files.items()}, COMPILED)
        yield


def compiled(policy: str) -> str:
    """The name of the compiled server with this policy."""
    return f"{policy}, compiled"


def builds_here() -> Sequence[str]:
    """The builds that can be measured."""
    if COMPILED_PYTHON.exists():
        return [*BUILDS]
    print("The compiled build is not there: `make compiled` makes it.", file=sys.stderr, flush=True)
    return ["interpreted"]


# -- beside a server without one


def compared(generator: Sequence[str], pace: Pace, keys: Sequence[str] = COMPARED) -> dict[str, dict[str, Rounds]]:
    """By the title of each scenario and the build, the rounds of a server without a policy, and with each of them."""
    found: dict[str, dict[str, Rounds]] = {}
    builds = builds_here()
    for scenario in chosen(list(keys)):
        ours = next(entry for entry in scenario.entries if entry.server == H2)
        servers = {
            build: {NO_POLICY: BUILDS[build]}
            | {policy: policy if BUILDS[build] == H2 else compiled(policy) for policy in POLICIES}
            for build in builds
        }
        entries = [replace(ours, label=each, server=each) for those in servers.values() for each in those.values()]
        with tempfile.TemporaryDirectory() as name:
            outcome = measure(scenario, entries, generator, Path(name), pace)
        for build, those in servers.items():
            title = f"{scenario.title}, {scenario.unit}, {build}"
            found[title] = {label: outcome.rounds[server] for label, server in those.items()}
        print(f"{scenario.key}: done", file=sys.stderr, flush=True)
    return found


def ratios(found: dict[str, dict[str, Rounds]]) -> str:
    head = ["what, processor time", NO_POLICY, *[f"{policy}: ratio" for policy in POLICIES]]
    rows = [
        [
            title,
            number(cost(rounds[NO_POLICY]) * (1e3 if "ms/" in title else 1e6)),
            *[f"{cost_ratio(rounds[policy], rounds[NO_POLICY]):.3f}" for policy in POLICIES],
        ]
        for title, rounds in found.items()
    ]
    return table(head, rows)


# -- a crowd


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the server says that there is."""

    streams: int
    subscriptions: int
    connections: int
    megabytes: float

    @classmethod
    def of(cls, server: Server) -> Gauges:
        server.tell("gauges")
        return cls(*map(int, server.hear().split()), server.megabytes)

    def check_left(self) -> None:
        """Raise NotDelivered if anything is there after everybody has left."""
        if (self.streams, self.subscriptions, self.connections) != (0, 0, 0):
            raise NotDelivered(f"everybody has left, and there are {self}")


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many there are of what."""

    streams: int = 5_000
    seconds: float = 20.0  # of changes
    storms: int = 5
    storm: int = 1_000
    cycles: int = 10_000
    rest: float = EVERY_LOOK + 2.0  # seconds after all, in which the server gives memory back

    @property
    def silent(self) -> int:
        return self.streams // 3


CROWD = Crowd()


@dataclass(frozen=True, slots=True)
class Outcome:
    phases: tuple[Phase, ...]
    times: tuple[float, ...]  # seconds until each change was with all that read
    storms: tuple[float, ...]  # seconds until everybody of a storm had an answer
    before: Gauges
    amid: Gauges  # with all streams there
    after: Gauges


def request(node: int) -> bytes:
    """All resources, for a node with an id of its own."""
    asked = pb.DeltaDiscoveryRequest(type_url=EDS, resource_names_subscribe=["*"])
    asked.node.id = f"n{node}"
    return asked.SerializeToString()


@contextmanager
def _silent(address: str, count: int) -> Iterator[None]:
    """So many clients that ask for all resources and never read."""
    host, _, port = address.rpartition(":")
    plugs: list[socket.socket] = []
    try:
        for node in range(count):
            message = request(1_000_000 + node)
            said = frames.frame(DATA, 0, 1, b"\0" + frames.UINT32.pack(len(message)) + message)
            plug = socket.socket()
            plugs.append(plug)
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            plug.connect((host, int(port)))
            plug.sendall(PREFACE + frames.settings([]) + frames.headers(1, header_block(ADS), last=False) + said)
        yield
    finally:
        for plug in plugs:
            plug.close()


def crowded(crowd: Crowd, generator: Sequence[str]) -> Outcome:
    """Raises NotDelivered unless each client that reads gets each change, and nothing is left at the end."""
    entry = Entry("crowd", SOME_NAMES, RESOURCES)
    readers = crowd.streams - crowd.silent
    scenario = Scenario("crowd", "", (entry,), connections=readers, streams=1, wildcard=True, size=SIZE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Server(entry, scenario, folder, "--pulse") as server:
            _storm(server, 100)  # what happens once only, such as caches that fill, is over
            before = _left(server)
            watch = Watch(server)
            with Load(generator, folder / "load.log") as load, _silent(server.address, crowd.silent):
                load.connect(entry, scenario, server.address, folder)
                phases = [watch.look(f"{readers:,} clients that read and {crowd.silent:,} that never do connect")]
                amid = Gauges.of(server)
                if amid.streams != crowd.streams:
                    raise NotDelivered(f"there are {amid.streams:,} streams, and not {crowd.streams:,}")
                times = _changes(server, load, crowd.seconds)
                phases.append(watch.look(f"{len(times)} changes, one every {EVERY} s"))
                storms = tuple(_storm(server, crowd.storm) for _ in range(crowd.storms))
                phases.append(watch.look(f"{crowd.storms} storms of {crowd.storm:,} clients at once"))
            phases.append(watch.look("all of them leave"))
            each = min(crowd.cycles, 100)
            for _ in range(crowd.cycles // each):
                _storm(server, each)
            phases.append(watch.look(f"{crowd.cycles:,} clients come, get all resources and leave"))
            time.sleep(crowd.rest)
            phases.append(watch.look("nobody is there"))
            after = _left(server)
    after.check_left()
    return Outcome(tuple(phases), tuple(times), storms, before, amid, after)


def _storm(server: Server, count: int) -> float:
    """Seconds until so many clients that connect at once have all resources; then they are gone."""
    begin = time.perf_counter()
    run_at_once(server.address, [request(node) for node in range(count)], RESOURCES)
    return time.perf_counter() - begin


def _changes(server: Server, load: Load, seconds: float) -> list[float]:
    times: list[float] = []
    start = time.perf_counter()
    while (due := start + len(times) * EVERY) < start + seconds:
        time.sleep(max(0.0, due - time.perf_counter()))
        load.expect(len(times) + 1)
        begin = time.perf_counter()
        server.bump(len(times) + 1, 1)
        load.wait()
        times.append(time.perf_counter() - begin)
    return times


def _left(server: Server) -> Gauges:
    """What there is as soon as the server has noticed that everybody left."""
    end = time.monotonic() + 60
    while (found := Gauges.of(server)).connections and time.monotonic() < end:
        time.sleep(0.1)
    return found


def told(outcome: Outcome) -> str:
    head = ["what", "seconds", "longest stall, ms", "of the processor, ms", "processor, s", "memory, MB"]
    rows = [
        [each.what, *map(number, (each.seconds, each.stall, each.busy, each.spent, each.megabytes))]
        for each in outcome.phases
    ]
    gauges = [
        [when, f"{found.streams:,}", f"{found.subscriptions:,}", f"{found.connections:,}", number(found.megabytes)]
        for when, found in (("before", outcome.before), ("with all", outcome.amid), ("after", outcome.after))
    ]
    times, storms = outcome.times, outcome.storms
    changes = f"{median(times) * 1e3:,.0f} ms (median), {max(times) * 1e3:,.0f} ms (worst)"
    answers = f"{median(storms):.1f} s (median), {max(storms):.1f} s (worst)"
    sentence = f"A change was with all clients that read after {changes}. A storm had all resources after {answers}."
    return "\n\n".join(
        [
            table(head, rows),
            sentence,
            table(["when", "streams", "subscriptions", "connections", "memory, MB"], gauges),
        ]
    )


def given_by(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench policy", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="of each scenario (default: 9)")
    parser.add_argument("--round-seconds", type=float, default=1.0, help="of changes in a round (default: 1)")
    parser.add_argument("--scenario", action="append", help=f"one of bench peers (default: {', '.join(COMPARED)})")
    parser.add_argument("--streams", type=int, default=CROWD.streams, help="a third of which never read")
    parser.add_argument("--seconds", type=float, default=CROWD.seconds, help="of changes for the crowd")
    parser.add_argument("--storm", type=int, default=CROWD.storm, help="clients that connect at once")
    parser.add_argument("--cycles", type=int, default=CROWD.cycles, help="clients that come and go")
    parser.add_argument("--own-load", action="store_true", help="our own generator, as where there is no Go")
    parser.add_argument("--write", action="store_true", help="put the figures into PERFORMANCE.md too")
    return parser.parse_args(words)


def crowd_of(given: argparse.Namespace) -> Crowd:
    return Crowd(given.streams, given.seconds, storm=given.storm, cycles=given.cycles)


def run(words: Sequence[str] = ()) -> None:
    given = given_by(words)
    crowd = crowd_of(given)
    allow_descriptors(crowd.streams + crowd.storm)
    generator = OWN_GENERATOR if given.own_load else generator_here()
    with serving():
        beside = compared(generator, Pace(given.rounds, given.round_seconds), given.scenario or COMPARED)
        outcome = crowded(crowd, generator)
    load = "" if generator == GENERATOR else "; the load is made by our own generator, in Python"
    text = f"{figures.machine()}{load}.\n\n{ratios(beside)}\n\n{told(outcome)}"
    print(text)
    if given.write:
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), text, MARKS))
