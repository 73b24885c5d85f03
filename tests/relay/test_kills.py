"""Killed at any moment, under load: the relay, the server behind it, or both; and everybody gets over it.

In each round something dies without a word (SIGKILL) while the configuration changes all the time, and is started
again. No client may ever see a deletion that nobody made, and in the end all have what the server has.

XDSPRISM_KILLS says how many rounds there are, XDSPRISM_KILLS_SEED which ones: `XDSPRISM_KILLS=100 pytest -s
tests/relay/test_kills.py --timeout 3600` for the long run.
"""

# ruff: noqa: ASYNC110 - what is waited for happens in other processes

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import xdsprism as xp
from tests.cli.rig import Daemon, write

ROUNDS = int(os.environ.get("XDSPRISM_KILLS", "4"))
SEED = int(os.environ.get("XDSPRISM_KILLS_SEED", "1"))

CLUSTERS = tuple(f"c{number}" for number in range(6))
ENDPOINTS = tuple(f"e{number}" for number in range(4))
TYPES = {"c": xp.CLUSTER, "e": xp.ENDPOINT}
ENVS = ("prod", "test")
CONVERGED = 60.0  # seconds within which all have what there is


class World:
    """What there is, in files that the server reads; and all that ever was, to judge by."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.state: dict[str, int] = dict.fromkeys((*CLUSTERS, *ENDPOINTS), 0)
        self._folder = folder
        self._chance = chance
        self._count = 0
        self._history: dict[str, list[int | None]] = {name: [0] for name in self.state}
        self._write()

    def change(self) -> None:
        """Something is added, changed or removed. The first of each kind always stays."""
        name = self._chance.choice([*CLUSTERS, *ENDPOINTS])
        self._count += 1
        if name in self.state and not name.endswith("0") and self._chance.random() < 0.3:
            del self.state[name]
        else:
            self.state[name] = self._count
        self._history[name].append(self.state.get(name))
        self._write()

    def was_deleted_since(self, name: str, mark: int) -> bool:
        history = self._history[name]
        return None in history[history.index(mark) :]

    def seen_by(self, env: str) -> dict[str, str]:
        return {name: f"{env}-{mark}" for name, mark in self.state.items()}

    def _write(self) -> None:
        documents = [_document(name, env, mark) for name, mark in self.state.items() for env in ENVS]
        write(self._folder, "world", *documents)


def _document(name: str, env: str, mark: int) -> dict[str, Any]:
    if name in CLUSTERS:
        contents: dict[str, Any] = {"name": name, "alt_stat_name": f"{env}-{mark}"}
    else:
        contents = {"cluster_name": name, "named_endpoints": {f"{env}-{mark}": {}}}
    return {"@type": TYPES[name[0]], **contents, "$when": f"env={env}"}


def _mark(resource: Any) -> str:
    return resource.alt_stat_name if hasattr(resource, "alt_stat_name") else next(iter(resource.named_endpoints))


class Witness:
    """A client that remembers what it has, and what it should never have seen."""

    def __init__(self, client: xp.Client, world: World, env: str, *, everything: bool) -> None:
        self.held: dict[str, str] = {}
        self.offences: list[str] = []
        self.env = env
        self._world = world
        wanted = ((xp.CLUSTER, "*" if everything else CLUSTERS), (xp.ENDPOINT, ENDPOINTS))
        self.tasks = [asyncio.ensure_future(self._follow(client.watch(*each, params={"env": env}))) for each in wanted]

    async def _follow(self, updates: Any) -> None:
        async for update in updates:
            if update.resource is not None and update.ambient_error is None:
                self.held[update.name] = _mark(update.resource)
            elif update.error is not None:
                self._lost(update.name, update.error)

    def _lost(self, name: str, error: xp.WatchError) -> None:
        held = self.held.pop(name, None)
        if held is not None and not self._world.was_deleted_since(name, int(held.partition("-")[2])):
            self.offences.append(f"{self.env}: {name} was {held}, and then {error}")

    @property
    def is_up_to_date(self) -> bool:
        return self.held == self._world.seen_by(self.env)


class Site:
    """The server and the relay, each at an address of its own that outlives it."""

    def __init__(self, folder: Path, *, delta: bool) -> None:
        self._folder = folder
        self._addresses = {verb: _free_address() for verb in ("serve", "relay")}
        self._daemons: dict[str, Daemon] = {}
        self._mode = "--delta" if delta else "--sotw"

    @property
    def bootstrap(self) -> dict[str, Any]:
        return _bootstrap(self._addresses["relay"])

    async def start(self, verb: str) -> None:
        args: tuple[object, ...] = (self._folder / "config",)
        if verb == "relay":
            file = self._folder / "bootstrap.json"
            file.write_text(json.dumps(_bootstrap(self._addresses["serve"])))
            args = ("--bootstrap", file, "--cache", self._folder / "relay.db", self._mode)
        daemon = Daemon(self._folder, *args, listen=self._addresses[verb], verb=verb)
        self._daemons[verb] = daemon
        await asyncio.to_thread(daemon.__enter__)

    def kill(self, verb: str) -> None:
        self._daemons.pop(verb).__exit__()

    def close(self) -> None:
        for verb in [*self._daemons]:
            self.kill(verb)


def _bootstrap(address: str) -> dict[str, Any]:
    entry = {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    return {"xds_servers": [entry], "node": {"id": "x"}}


def _free_address() -> str:
    """Below the ports that the system gives to whoever asks for any: it has to stay free while its owner is dead."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"


@asynccontextmanager
async def load(world: World, chance: random.Random) -> AsyncIterator[None]:
    async def change() -> None:
        while True:
            world.change()
            await asyncio.sleep(chance.uniform(0.01, 0.1))

    task = asyncio.ensure_future(change())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def strike(site: Site, chance: random.Random) -> list[str]:
    """Kill one or both, and start them again: in either order, sooner or later."""
    victims = chance.choice([["relay"], ["serve"], ["relay", "serve"], ["serve", "relay"]])
    for verb in victims:
        await asyncio.sleep(chance.uniform(0, 0.5))
        site.kill(verb)
    for verb in chance.sample(victims, len(victims)):
        await asyncio.sleep(chance.uniform(0, 0.5))
        await site.start(verb)
    return victims


async def converge(witnesses: list[Witness]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(CONVERGED):
            while not all(witness.is_up_to_date for witness in witnesses):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("delta", [True, False], ids=["delta", "sotw"])
async def test_after_a_kill_nobody_misses_anything_and_nobody_loses_what_is_there(tmp_path: Path, delta: bool) -> None:
    # PRX-10, PRX-12, PRX-25
    chance = random.Random(f"{SEED} {delta}")
    world = World(tmp_path / "config", chance)
    site = Site(tmp_path, delta=delta)
    async with AsyncExitStack() as stack:
        stack.callback(site.close)
        await asyncio.gather(site.start("serve"), site.start("relay"))
        witnesses = []
        for number in range(4):
            made = xp.Client(site.bootstrap, delta=number % 2 == 0, fail_on_data_errors=True)
            client = await stack.enter_async_context(made)
            witnesses.append(Witness(client, world, ENVS[number // 2], everything=number in (0, 1)))
        for number in range(max(1, ROUNDS // 2)):
            async with load(world, chance):
                victims = await strike(site, chance)
            await converge(witnesses)
            what = f"round {number} of seed {SEED}, in which {victims} died"
            assert [offence for witness in witnesses for offence in witness.offences] == [], what
            for witness in witnesses:
                assert witness.held == world.seen_by(witness.env), what
