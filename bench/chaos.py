"""python -m bench chaos: kills, edits and attacks at once, under a load that must not notice any of it.

Four Envoys and two gRPC clients are behind `xdsprism relay` behind `xdsprism serve`. Both are killed, stopped and
frozen again and again, the relay's disk cache is lost or damaged, the configuration changes all the time, and attackers
send whatever they can to each port. Counted are requests, failed ones, false removals (somebody lost what nobody
removed) and stale clients (who do not have the last edit in the end). All but the first have to be zero; if not, the
command ends with status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import xdsprism as xp
from bench.attacks import ATTACKS, Target
from bench.chaos_load import Load, Tally, ask
from bench.chaos_site import HOSTS, Files, Fleet, lowest_in_use
from bench.tables import table
from tests.support.site import Site
from tests.support.witness import CLUSTERS, ENVS, Witness, World

# Left out unless `--attack` names them or `--all` asks for all: this version does not withstand them.
NOT_YET: frozenset[str] = frozenset()

CONVERGED = 120.0  # seconds in which everybody has the last edit
SHOWN = 10  # of each kind of trouble
WAYS = ("SIGKILL", "SIGTERM", "SIGSTOP")
AT_ONCE = 3  # attacks
LOST, FLIPPED = 0.3, 0.4  # of the relay's starts: with no disk cache, with a damaged one
# Once more when everything runs for good, since a restart undoes what they do.
LAST = ("odd-files",)


@dataclass(slots=True)
class Report:
    """What came of it."""

    tally: Tally = field(default_factory=Tally)
    kills: Counter[str] = field(default_factory=Counter)
    attacks: Counter[str] = field(default_factory=Counter)
    edits: int = 0

    @property
    def troubles(self) -> dict[str, list[str]]:
        return {
            "failed requests": self.tally.failures,
            "false removals": self.tally.removals,
            "stale clients": self.tally.stale,
        }

    @property
    def is_clean(self) -> bool:
        return not any(self.troubles.values()) and bool(self.tally.requests)

    def __str__(self) -> str:
        rows = [[f"requests, {kind}", f"{count:,}"] for kind, count in sorted(self.tally.requests.items())]
        rows += [[what, f"{len(found):,}"] for what, found in self.troubles.items()]
        rows += [["edits", f"{self.edits:,}"]]
        rows += [[what, f"{count:,}"] for what, count in sorted(self.kills.items())]
        rows += [[f"attack: {name}", f"{count:,}"] for name, count in sorted(self.attacks.items())]
        told = [table(["what", "how many"], rows)]
        for what, found in self.troubles.items():
            if found:
                more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
                told.append("\n".join([f"{what}:", *found[:SHOWN], *more]))
        return "\n\n".join(told)


class Chaos:
    """Everything that goes on at once, for a time."""

    def __init__(
        self, site: Site, fleet: Fleet, files: Files, world: World, target: Target, given: argparse.Namespace
    ) -> None:
        self.report = Report()
        self._site = site
        self._fleet = fleet
        self._files = files
        self._world = world
        self._target = target
        self._chosen = _chosen(given)
        self._seed = given.seed

    async def run(self, seconds: float) -> None:
        """Raises what any part of it raises: a daemon that does not start again."""
        self._ends = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for part in (self._change_world, self._edit, self._kill, self._attack):
                tasks.create_task(part(random.Random(f"{self._seed} {part.__name__}")))  # noqa: S311
        for name in LAST:
            if name in self._chosen:
                await self._strike(name, random.Random(self._seed))  # noqa: S311
        self._files.edit(await self._in_use())  # so that the last edit came after everything else
        self._world.change()
        self.report.edits += 2

    async def _in_use(self) -> int:
        """0, by which nothing is removed, where an Envoy's admin port does not answer in time."""
        try:
            return await asyncio.to_thread(lowest_in_use, self._fleet.proxies)
        except (OSError, ValueError):
            return 0

    async def _pause(self, seconds: float) -> bool:
        """Whether there is time left after it."""
        await asyncio.sleep(max(0.0, min(seconds, self._ends - time.monotonic())))
        return time.monotonic() < self._ends

    async def _change_world(self, chance: random.Random) -> None:
        while await self._pause(chance.uniform(0.1, 0.6)):
            self._world.change()
            self.report.edits += 1

    async def _edit(self, chance: random.Random) -> None:
        while await self._pause(chance.uniform(0.5, 3.0)):
            self._files.edit(await self._in_use())
            self.report.edits += 1

    async def _kill(self, chance: random.Random) -> None:
        ways: list[str] = []
        while await self._pause(chance.uniform(1.0, 5.0)):
            ways = ways or chance.sample(WAYS, len(WAYS))
            how = ways.pop()
            victims = chance.choice([["relay"], ["serve"], ["relay", "serve"], ["serve", "relay"]])
            for verb in victims:
                await asyncio.sleep(chance.uniform(0, 0.5))
                await self._end(verb, how)
            for verb in chance.sample(victims, len(victims)):
                await asyncio.sleep(chance.uniform(0, 1.5))
                await self._begin(verb, how, chance)

    async def _end(self, verb: str, how: str) -> None:
        self.report.kills[f"{how} of {verb}"] += 1
        if how == "SIGKILL":
            self._site.kill(verb)
        elif how == "SIGTERM":
            if not await self._site.stop(verb):
                self.report.kills[f"SIGKILL of {verb}, since SIGTERM took too long"] += 1
        else:
            self._site.send(verb, signal.SIGSTOP)

    async def _begin(self, verb: str, how: str, chance: random.Random) -> None:
        if how == "SIGSTOP":
            self._site.send(verb, signal.SIGCONT)
            return
        if verb == "relay":
            self._damage_cache(chance)
        await self._site.start(verb)

    def _damage_cache(self, chance: random.Random) -> None:
        """While the relay is dead: sometimes its disk cache is lost, sometimes one bit in it changes."""
        fate = chance.random()
        if fate < LOST:
            self.report.kills["disk caches lost"] += 1
            for file in self._site.cache.parent.glob(f"{self._site.cache.name}*"):
                file.unlink()
        elif fate < LOST + FLIPPED and flip_bit(self._site.cache, chance):
            self.report.kills["disk caches with a flipped bit"] += 1

    async def _attack(self, chance: random.Random) -> None:
        """All of them in turn, in an order of chance, some at a time."""
        running: set[asyncio.Task[None]] = set()
        while self._chosen and time.monotonic() < self._ends:
            for name in chance.sample(self._chosen, len(self._chosen)):
                if len(running) == AT_ONCE:
                    _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if not await self._pause(chance.uniform(0, 0.3)):
                    break
                running.add(asyncio.ensure_future(self._strike(name, random.Random(chance.random()))))  # noqa: S311
        await asyncio.gather(*running)

    async def _strike(self, name: str, chance: random.Random) -> None:
        self.report.attacks[name] += 1
        await asyncio.to_thread(ATTACKS[name], self._target, chance)


def flip_bit(cache: Path, chance: random.Random) -> bool:
    """Change one bit of a disk cache: in the file, or in the log of what was written last. False if both are empty."""
    files = [file for file in (cache, cache.with_name(f"{cache.name}-wal")) if file.exists() and file.stat().st_size]
    if not files:
        return False
    file = chance.choice(files)
    contents = bytearray(file.read_bytes())
    bit = chance.randrange(8 * len(contents))
    contents[bit // 8] ^= 1 << bit % 8
    file.write_bytes(contents)
    return True


def _due(fleet: Fleet, files: Files, world: World, witnesses: Sequence[Witness]) -> Iterator[tuple[str, str, str]]:
    """Of every client: its name, what it has when it has seen the last edit, and what it has."""
    now = files.expected
    for proxy in fleet.proxies:
        last = f"h{HOSTS - 1}"
        for due, request in (
            (now.web, ("steady.example", {})),
            (now.web, ("chosen.example", {"cluster": "chosen-0"})),
            (now.says(last), (f"{last}.example", {})),
        ):
            yield proxy.name, due, ask(proxy.port, request, within=10)
        if not proxy.on_demand:
            marks = {name: mark for name, mark in world.seen_by(proxy.env).items() if name in CLUSTERS}
            held = {name: each.get("alt_stat_name", "") for name, each in proxy.envoy.clusters().items()}
            yield proxy.name, _told(marks), _told({name: mark for name, mark in held.items() if name in CLUSTERS})
    for name, caller in fleet.callers.items():
        outcome = caller.outcome("Say")
        yield name, now.rpc, str(outcome.reply or outcome.error) if outcome else ""
    for number, witness in enumerate(witnesses):
        yield f"witness {number}", _told(world.seen_by(witness.env)), _told(witness.held)


def _told(marks: Mapping[str, str]) -> str:
    return str(sorted(marks.items()))


async def _late(fleet: Fleet, files: Files, world: World, witnesses: Sequence[Witness]) -> list[str]:
    """Who has not seen the last edit when nothing is amiss any more, after a long time."""
    ends = time.monotonic() + CONVERGED
    while True:
        try:
            seen = await asyncio.to_thread(lambda: list(_due(fleet, files, world, witnesses)))
            lacking = {who: f"{there}, not {due}" for who, due, there in seen if there != due}  # one line for each
            late = [f"{who}: {what}" for who, what in lacking.items()]
        except OSError as error:  # of an admin port
            late = [f"nobody knows: {error!r}"]
        if not late or time.monotonic() > ends:
            return late
        await asyncio.sleep(0.3)


async def _chaos(folder: Path, given: argparse.Namespace) -> Report:
    chance = random.Random(given.seed)  # noqa: S311
    site = Site(folder, *given.relay_option)
    fleet = Fleet(folder, site)
    async with AsyncExitStack() as stack:
        stack.callback(site.close)
        stack.callback(fleet.close)
        world = World(site.config, chance)
        files = Files(site.config, fleet.backends())
        await site.start("serve")
        await site.start("relay")
        witnesses = []
        for number in range(4):
            made = xp.Client(site.bootstrap, delta=number % 2 == 0, fail_on_data_errors=True)
            client = await stack.enter_async_context(made)
            witnesses.append(Witness(client, world, ENVS[number // 2], everything=number in (0, 1)))
        await asyncio.to_thread(fleet.start)
        target = Target(
            [proxy.port for proxy in fleet.proxies],
            site.address("relay"),
            lambda: [admin for verb in ("serve", "relay") if (admin := site.admin(verb))],
            site.config,
            given.size,
        )
        chaos = Chaos(site, fleet, files, world, target, given)
        load = Load(fleet, chaos.report.tally)
        await asyncio.to_thread(load.prepare)
        load.start()
        try:
            await chaos.run(given.seconds)
            chaos.report.tally.stale += await _late(fleet, files, world, witnesses)
        finally:
            await asyncio.to_thread(load.stop)
        chaos.report.tally.removals += [offence for witness in witnesses for offence in witness.offences]
        return chaos.report


def _given(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="of chaos, beside start and end (default: 120)")
    parser.add_argument("--seed", type=int, default=1, help="what happens, and in which order (default: 1)")
    parser.add_argument(
        "--size", type=float, default=1.0, help="of each attack, as a part of its full size (default: 1)"
    )
    parser.add_argument("--attack", action="append", choices=sorted(ATTACKS), help="only this one; may be repeated")
    parser.add_argument("--no-attacks", action="store_true", help="kills and edits alone")
    parser.add_argument("--all", action="store_true", help="also attacks that this version does not withstand")
    parser.add_argument("--relay-option", action="append", default=[], help="a further one of `xdsprism relay`")
    parser.add_argument("--folder", type=Path, help="keep the logs of all programs here; it must not exist yet")
    return parser.parse_args(words)


def _chosen(given: argparse.Namespace) -> list[str]:
    if given.no_attacks:
        return []
    return given.attack or [name for name in ATTACKS if given.all or name not in NOT_YET]


def measure(words: Sequence[str] = ()) -> Report:
    given = _given(words)
    logging.getLogger("xdsprism").addHandler(logging.NullHandler())  # witnesses say each time that the relay is dead
    if given.folder is not None:
        given.folder.mkdir()
        return asyncio.run(_chaos(given.folder, given))
    with tempfile.TemporaryDirectory() as name:
        return asyncio.run(_chaos(Path(name), given))


def run(words: Sequence[str] = ()) -> None:
    report = measure(words)
    print(report)
    if not report.is_clean:
        raise SystemExit(1)
