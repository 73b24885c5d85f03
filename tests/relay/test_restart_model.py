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

import xdsprism as xp
from tests.client.rig import cluster
from tests.relay.model import ModelClient, RelaySite
from tests.relay.test_model import RelayModel
from xdsprism.client import disk, disk_file
from xdsprism.client.last_good import ClientCache, LastGood
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.model.types import NO_PARAMS, Params
from xdsprism.core.relay.relaying import LINGER

STEPS = 40
RUNS = int(os.environ.get("XDSPRISM_RESTARTS", "40"))  # of each block


class MemoryFile(disk_file.CacheFile):
    """A cache file without a file, so that a restart takes no time. What was not written is lost with the process."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._memory = db

    def open(self) -> sqlite3.Connection:
        disk_file.prepare(self._memory)
        return self._memory


class CacheFile:
    """The last good state of a relay, as each of its processes opens, writes and leaves it."""

    def __init__(self, model: RestartModel) -> None:
        self._model = model
        self.lose()

    def lose(self) -> None:
        """The next process begins with an empty file."""
        self._db = sqlite3.connect(":memory:", isolation_level=None)

    def open(self) -> ClientCache:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk, "CacheFile", lambda _path, _warn: MemoryFile(self._db))
            self._file = LastGood("", pytest.fail, lambda: self._model.clock.now)
        return self._file.client_cache(shared=True)

    def write(self) -> None:
        self._file.client_cache().note_contacts()
        self._file.disk._flush()  # noqa: SLF001 # the model has no event loop


class RestartModel(RelayModel):
    """A relay with a cache file, which is killed now and then."""

    def make_relay(self) -> RelaySite:
        if not hasattr(self, "file"):
            self.file = CacheFile(self)
        cache = self.file.open()
        return RelaySite(self.clock, self.origin, delta=self.delta, linger=self.linger, cache=cache)

    def kill(self) -> None:
        """The relay dies, and another process takes its place. The server's store may change at any moment of that."""
        if self.maybe():
            self.file.write()
        if self.maybe():
            self.change()
        self.relay.line.cut()
        if self.maybe():
            self.file.lose()
        if self.maybe():
            self.change()
        self.relay = self.make_relay()
        line = self.relay.line
        self.random.choice((line.open, line.fail, line.fail, lambda: None))()  # the last: it has yet to be reached
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
        if self.random.random() < 0.2:
            self.random.choice((self.kill, self.kill, self.kill, self.write))()
            if self.maybe():
                self.quiet()
        else:
            super().step()


@pytest.mark.parametrize("watched", ["b", "*"])
@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
def test_a_returning_client_that_subscribes_to_more_loses_nothing(delta: bool, watched: str) -> None:
    # PRX-25, CLI-5: a SotW client that lacks something has no version to tell, and yet holds what is not on disk yet
    model = RestartModel(Random(0), delta=True, linger=0.0)
    client = ModelClient(model.clock, model.relay, delta=delta, located=True, node=NO_PARAMS)
    model.clients.append(client)
    watcher = client.watch(xp.CLUSTER, watched, Params({"env": "prod"}))
    watcher.may_go.update(model.names)
    model.quiet()
    model.file.write()  # that there is none
    made = variant_of(cluster("b", "1"))
    model.made[made.body] = made.constraint
    model.origin.store.apply({(xp.CLUSTER, "b"): (made,)})
    model.quiet()
    client.watch(xp.CLUSTER, "a", Params({"env": "prod"})).may_go.update(model.names)
    model.relay.line.cut()
    model.relay = model.make_relay()
    model.relay.line.fail()
    client.line.move(model.relay)
    model.quiet()
    assert watcher.has["b"] is not None


@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
@pytest.mark.parametrize("block", range(2))
def test_a_restarted_relay_leaves_nobody_with_anything_stale_or_lost(delta: bool, block: int) -> None:
    # PRX-10, PRX-11, PRX-12, PRX-25, ERR-11
    run(delta, range(block * RUNS, (block + 1) * RUNS))


def test_a_subscription_that_lost_its_variant_does_not_vouch_for_an_absence() -> None:
    # PRX-31, DYN-11: of the two the server corrects only what it said to the one that it answered
    run(True, [359])


@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
def test_a_wildcard_whose_stream_ended_before_its_answer_has_what_another_wildcard_has(delta: bool) -> None:
    # DLT-13, DLT-14: a version would say that both have it
    run(delta, [1273])


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
