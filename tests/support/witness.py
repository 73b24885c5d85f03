"""A configuration that changes all the time, and clients that notice a deletion that nobody made, or miss an edit."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import xdsprism as xp
from tests.cli.rig import write

CLUSTERS = tuple(f"c{number}" for number in range(6))
ENDPOINTS = tuple(f"e{number}" for number in range(4))
TYPES = {"c": xp.CLUSTER, "e": xp.ENDPOINT}
ENVS = ("prod", "test")


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

    def knows(self, name: str) -> bool:
        return name in self._history

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
            if not self._world.knows(update.name):
                continue  # a wildcard brings what others have put there, too
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
