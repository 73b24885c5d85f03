"""Removals, and NACKs of the resources that they wait for (C11)."""

from __future__ import annotations

import pytest

from tests.core.modes import both, connect
from tests.core.support import Bench, play
from xdsprism.core.model.settings import Settings


@both
def test_a_nack_of_the_route_holds_the_removal_past_the_timeout_until_a_good_one_is_acked(mode: str):
    # ORD-4
    bench = Bench(Settings(ack_timeout=5))
    bench.put("cds old=1 kept=1; rds r=old")
    peer = connect(bench, mode)
    peer.ask("cds +*")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -old; rds r=bad")
    assert peer.hears() == ["rds r=bad"]
    peer.ask("rds nack")
    assert peer.hears() == []
    for _ in range(3):
        bench.now += 5
        assert peer.hears() == []
    assert peer.stream.deadline() is None
    bench.put("rds r=new")
    assert peer.hears() == ["rds r=new"]
    peer.ask("rds ack")
    assert peer.hears() == ["cds -old" if mode == "delta" else "cds kept=1"]


@both
def test_while_a_nack_holds_removals_additions_go_on(mode: str):
    # ORD-4
    play(
        """
        store cds old=1; eds e=1; rds r=old; lds l=1
        > cds +*
        > eds +e
        > lds +*
        > rds +r
        < cds old=1
        < eds e=1
        < lds l=1
        < rds r=old

        > ack
        store cds -old; rds r=bad
        < rds r=bad

        > rds nack

        store cds new=1; eds e=2; lds l=2
        < cds new=1 OLD
        < eds e=2
        < lds l=2

        > ack
        """.replace("OLD", "old=1" if mode == "sotw" else ""),
        mode=mode,
    )


@both
def test_a_nack_of_a_cluster_does_not_hold_the_routes(mode: str):
    # ORD-4, NAK-6
    play(
        """
        store cds a=1; rds r=1; lds l=1
        > cds +a
        > lds +l
        > rds +r
        < cds a=1
        < lds l=1
        < rds r=1

        > ack
        store cds a=bad
        < cds a=bad

        > cds nack

        store rds r=2; lds l=2
        < lds l=2
        < rds r=2
        """,
        mode=mode,
    )


def test_delta_one_bad_route_of_two_holds_the_removal_though_the_other_was_acked():
    # ORD-4, NAK-29
    play(
        """
        store cds old=1; rds q=old r=old
        > cds +*
        > rds +q +r
        < cds old=1
        < rds q=old r=old

        > ack
        store cds -old; rds q=bad r=new
        < rds q=bad r=new

        > rds nack
        < rds q=bad
        < rds r=new

        > rds nack@3
        > rds ack@4

        wait 60

        store rds q=new
        < rds q=new

        > rds ack
        < cds -old
        """
    )


def test_sotw_a_bad_route_holds_the_removal_though_another_was_acked_since():
    # ORD-4: the client still uses the route that it had, and that names the cluster
    play(
        """
        store cds old=1; rds q=old r=old
        > cds
        > rds q r
        < cds old=1
        < rds q=old r=old

        > ack
        store cds -old; rds q=bad
        < rds q=bad

        > rds nack

        store rds r=new
        < rds r=new

        > rds ack

        store rds q=new
        < rds q=new

        > rds ack
        < cds nothing
        """,
        mode="sotw",
    )


def test_sotw_every_resource_of_a_nacked_response_holds_the_removal_though_another_was_acked_since():
    # ORD-4: the client may go on with any of them as it was, so each has to be accepted in another version
    play(
        """
        store cds old=1; rds p=1 q=old r=old
        > cds
        > rds p q r
        < cds old=1
        < rds p=1 q=old r=old

        > ack
        store cds -old; rds q=bad r=new
        < rds q=bad r=new

        > rds nack

        store rds p=2
        < rds p=2
        < rds q=bad
        < rds r=new

        > rds ack@3

        wait 60

        > rds nack@4
        > rds ack@5

        wait 60

        store rds q=new
        < rds q=new

        > rds ack
        < cds nothing
        """,
        mode="sotw",
    )


def test_sotw_listeners_that_were_nacked_hold_a_removal_that_comes_later():
    # ORD-4: the client goes on with the listener that it had, and that names the cluster
    play(
        """
        store cds old=1 kept=1; lds l=1>cds.old
        > cds
        > lds
        < cds kept=1 old=1
        < lds l=1>cds.old

        > ack
        store lds l=bad
        < lds l=bad

        > lds nack

        store cds -old

        wait 60

        store lds l=2
        < lds l=2

        > lds ack
        < cds kept=1
        """,
        mode="sotw",
        settings=Settings(drain_time=0),
    )


@both
def test_a_nack_that_was_overcome_before_holds_nothing(mode: str):
    # ORD-4, NAK-13
    play(
        """
        store cds old=1 kept=1; rds r=bad
        > cds +*
        > rds +r
        < cds kept=1 old=1
        < rds r=bad

        > rds nack
        > cds ack
        store rds r=1
        < rds r=1

        > rds ack

        store cds -old; rds r=2
        < rds r=2

        > rds ack
        < cds GONE
        """.replace("GONE", "-old" if mode == "delta" else "kept=1"),
        mode=mode,
    )


@both
def test_a_route_that_was_nacked_and_is_not_wanted_any_more_holds_nothing(mode: str):
    # ORD-4, SOT-10
    bench = Bench()
    bench.put("cds old=1 kept=1; rds r=1")
    peer = connect(bench, mode)
    peer.ask("cds +*")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -old; rds r=bad")
    peer.poll()
    peer.ask("rds nack")
    assert peer.hears() == []
    peer.ask("rds -r" if mode == "delta" else "rds none")
    assert peer.hears() == ["cds -old" if mode == "delta" else "cds kept=1"]


@pytest.mark.parametrize("step", ["ack", "nack", "timeout", "unsubscribe", "back"])
@both
def test_a_deadline_is_never_in_the_past_whatever_ended_the_wait(mode: str, step: str):
    # ORD-2, ORD-4
    bench = Bench(Settings(ack_timeout=5))
    bench.put("cds old=1; rds r=1")
    peer = connect(bench, mode)
    peer.ask("cds +*")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -old; rds r=2")
    peer.poll()
    if step in ("ack", "nack"):
        peer.ask(f"rds {step}")
    elif step == "unsubscribe":
        peer.ask("cds -*" if mode == "delta" else "cds none")
    elif step == "back":
        bench.put("cds old=1")
    for _ in range(8):
        bench.now += 1
        peer.poll()
        deadline = peer.stream.deadline()
        assert deadline is None or deadline > bench.now
    assert peer.stream.deadline() is None
