"""A relay that is killed and restarted again and again, at random: no client is left with anything stale or lost.

The model of test_model.py, with restarts. The new process may find the cache file of the one before, as of some earlier
moment, or none; its server may be there, or be down, or take its time. Its clients come back with what they hold.
Whenever the server can be reached and all are quiet, each client has what the server's store has for its params; and at
no time is anybody told that something is gone which was there all the time.

Run thousands by hand:

    XDSPRISM_RESTARTS=3000 pytest tests/relay/test_restart_model.py --timeout 3600

A failure names its seed; `run(delta, [seed])` repeats it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from random import Random

import pytest

from tests.relay.model import RelaySite
from tests.relay.test_model import RelayModel
from xdsprism.client import last_good
from xdsprism.client.disk import Disk, _prepare
from xdsprism.client.last_good import LastGood, Shelf
from xdsprism.core.relaying import LINGER

STEPS = 40
RUNS = int(os.environ.get("XDSPRISM_RESTARTS", "40"))  # of each block


class MemoryDisk(Disk):
    """A cache file without a file, so that a restart takes no time. What was not written is lost with the process."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._memory = db
        super().__init__("memory")

    def _connect(self) -> sqlite3.Connection:
        _prepare(self._memory)
        return self._memory


class CacheFile:
    """The last good state of a relay, as each of its processes opens, writes and leaves it."""

    def __init__(self, model: RestartModel) -> None:
        self._model = model
        self.lose()

    def lose(self) -> None:
        """The next process begins with an empty file."""
        self._db = sqlite3.connect(":memory:", isolation_level=None)

    def open(self) -> Shelf:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(last_good, "Disk", lambda _path: MemoryDisk(self._db))
            self._file = LastGood("", pytest.fail, lambda: self._model.clock.now)
        return self._file.shelf(shared=True)

    def write(self) -> None:
        self._file.shelf().note_contacts()
        self._file.disk._flush()


class RestartModel(RelayModel):
    """A relay with a cache file, which is killed now and then."""

    def make_relay(self) -> RelaySite:
        if not hasattr(self, "file"):
            self.file = CacheFile(self)
        shelf = self.file.open()
        return RelaySite(self.clock, self.origin, delta=self.delta, linger=self.linger, shelf=shelf)

    def kill(self) -> None:
        """The relay dies, and another process takes its place. The server's store may change at any moment of that."""
        if self.maybe():
            self.file.write()
        if self.maybe():
            self.change()
        self.relay.line.cut()
        if self.random.random() < 0.2:
            self.file.lose()
        if self.maybe():
            self.change()
        self.relay = self.make_relay()
        self.random.choice((self.relay.line.open, self.relay.line.fail, lambda: None))()  # or it has yet to be reached
        self.random.shuffle(self.clients)
        for client in self.clients:
            client.line.cut()
        for client in self.clients:
            client.line.move(self.relay)
            if self.maybe():
                self.nudge()

    def write(self) -> None:
        self.file.write()

    def step(self) -> None:
        seldom = (self.kill, self.kill, self.write)
        if self.random.random() < len(seldom) / 19:  # the other steps are 16
            self.random.choice(seldom)()
            if self.maybe():
                self.quiet()
        else:
            super().step()


@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
@pytest.mark.parametrize("block", range(2))
def test_a_restarted_relay_leaves_nobody_with_anything_stale_or_lost(delta: bool, block: int) -> None:
    # PRX-10, PRX-11, PRX-12, PRX-25, ERR-11
    run(delta, range(block * RUNS, (block + 1) * RUNS))


def run(delta: bool, seeds: Iterable[int]) -> None:
    for seed in seeds:
        model = RestartModel(Random(seed), delta=delta, linger=LINGER if seed % 2 else 0.0)
        try:
            for _ in range(STEPS):
                model.step()
            model.end()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
