"""The relay, its server, or both are killed at any moment under load, and all clients recover.

In each round something dies without a word (SIGKILL) while the configuration changes all the time, and is started
again. No client may ever see a deletion that nobody made, and in the end all have what the server has.

XDSPRISM_KILLS says how many rounds there are, XDSPRISM_KILLS_SEED which ones: `XDSPRISM_KILLS=100 pytest -s
tests/relay/test_kills.py --timeout 3600` for the long run.
"""

# ruff: noqa: ASYNC110 - what is waited for happens in other processes

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

import xdsprism as xp
from tests.support.site import Site
from tests.support.witness import ENVS, Witness, World

ROUNDS = int(os.environ.get("XDSPRISM_KILLS", "4"))
SEED = int(os.environ.get("XDSPRISM_KILLS_SEED", "1"))

CONVERGED = 60.0  # seconds within which all have what there is


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
async def test_after_a_kill_no_client_misses_or_loses_a_resource(tmp_path: Path, delta: bool) -> None:
    # PRX-10, PRX-12, PRX-25
    chance = random.Random(f"{SEED} {delta}")
    world = World(tmp_path / "config", chance)
    site = Site(tmp_path, "--delta" if delta else "--sotw")
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
