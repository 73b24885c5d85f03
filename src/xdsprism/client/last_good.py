"""The last good state, kept on disk: so that a client can start while every server is down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from ..core.constraints import All, Eq
from ..core.expr import show
from ..core.types import TypeUrl, Variant
from ..core.watching import Collection, Entry
from .disk import Disk, Kept

PAUSE = 0.2  # seconds over which changes are collected before they are written


class LastGood:
    """Takes down what is received; gives back what an earlier run left, for as long as nobody can be asked."""

    def __init__(self, path: str, warn: Callable[[str], None], wall: Callable[[], float] = time.time) -> None:
        self._disk = Disk(path)
        self._warn = warn
        self._wall = wall
        self._dirty = asyncio.Event()
        self._left: dict[tuple[str, TypeUrl], dict[str, Variant]] = {}
        for scope, kept in self._disk.load():
            self._left.setdefault((scope, kept.variant.type_url), {})[kept.variant.name] = kept.variant
        self._pass_on()

    def recall(self, entry: Entry) -> Iterator[Variant]:
        known = self._left.get((_scope(entry), entry.type_url), {})
        if isinstance(entry, Collection):
            yield from known.values()
        elif entry.name in known:
            yield known[entry.name]
        else:
            yield from [variant for variant in known.values() if entry.name in variant.aliases][:1]

    def note(self, entry: Entry, before: Variant | None) -> None:
        """An entry holds something else than before."""
        scope, now = _scope(entry), entry.variant
        known = self._left.get((scope, entry.type_url), {})
        if before is not None and (now is None or now.name != before.name):
            known.pop(before.name, None)
            self._disk.remove(scope, entry.type_url, before.name)
        if now is not None:
            known.pop(now.name, None)
            self._disk.put(scope, entry.type_url, now.name, [Kept(now, entry.key[1] is not None, self._wall())])
        self._dirty.set()

    async def run(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(PAUSE)
            self._dirty.clear()
            await self._disk.flush()
            self._pass_on()

    async def close(self) -> None:
        await self._disk.close()
        self._pass_on()

    def _pass_on(self) -> None:
        """What the file could not do is no reason to stop, and one to speak."""
        for text in self._disk.warnings():
            self._warn(text)


def _scope(entry: Entry) -> str:
    """Whose names these are, and the params that they were asked with: each has a state of its own."""
    params = entry.key[1]
    claims = show(All(tuple(Eq(key, value) for key, value in sorted(params.items())))) if params is not None else ""
    return f"{entry.authority.name} {claims}".strip()
