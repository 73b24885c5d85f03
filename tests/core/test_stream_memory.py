"""What one stream costs in memory while nothing special happens on it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from tests.core.modes import both, connect
from tests.core.support import Bench
from xdsprism.core.serve.stream import Stream

STREAMS = 100
MOST = 5_000  # bytes of a stream with one session and one resource


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def settled(bench: Bench, mode: str) -> Stream:
    """A stream whose client has one cluster, and has ACKed it."""
    peer = connect(bench, mode)
    peer.ask("cds +a" if mode == "delta" else "cds a")
    peer.poll()
    peer.ask("cds ack")
    assert peer.poll() == []
    bench.facts.take()
    return peer.stream


@both
@pytest.mark.usefixtures("traced")
def test_a_stream_at_rest_keeps_nothing_for_what_never_happened_on_it(mode: str):
    # TTLs, NACKs, refused names and unsubscribed hosts cost a stream nothing until there is one
    bench = Bench()
    bench.put("cds a=1")
    settled(bench, mode)
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    streams = [settled(bench, mode) for _ in range(STREAMS)]
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    assert (after - before) / len(streams) < MOST
