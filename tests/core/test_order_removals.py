"""Removals wait until nothing needs what goes away (C11)."""

from __future__ import annotations

import pytest

from tests.core.modes import both, connect
from tests.core.support import Bench, Peer, play
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.types import CLUSTER


def test_sotw_a_cluster_goes_only_after_the_route_that_left_it_was_acked():
    # ORD-2, ORD-3
    play(
        """
        store cds old=1; rds r=old
        > cds
        > rds r
        < cds old=1
        < rds r=old

        > ack
        store cds -old new=1; rds r=new
        < cds new=1 old=1
        < rds r=new

        > cds ack

        wait 4

        > rds ack
        < cds new=1
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("wish", ["+*", "+old +new"])
def test_delta_a_cluster_goes_only_after_the_route_that_left_it_was_acked(wish: str):
    # ORD-2, ORD-3
    play(
        f"""
        store cds old=1 new=0; rds r=old
        > cds {wish}
        > rds +r
        < cds new=0 old=1
        < rds r=old

        > ack
        store cds -old new=1; rds r=new
        < cds new=1
        < rds r=new

        > cds ack

        wait 4

        > rds ack
        < cds -old
        """
    )


def test_delta_a_located_cluster_waits_as_well():
    # ORD-2, DYN-26
    play(
        """
        store cds old[env=prod]=1; rds r=old
        > cds +old{env=prod}
        > rds +r
        < cds old[env=prod]=1
        < rds r=old

        > ack
        store cds -old; rds r=new
        < rds r=new

        > rds ack
        < cds -old[env=prod]
        """
    )


@both
@pytest.mark.parametrize("referrer", ["lds", "srds", "rds", "vhds"])
def test_a_cluster_waits_for_each_type_that_can_refer_to_it(mode: str, referrer: str):
    # ORD-2
    play(
        f"""
        store cds old=1 kept=1; {referrer} r=old
        > cds +*
        > {referrer} +r
        < cds kept=1 old=1
        < {referrer} r=old

        > ack
        store cds -old; {referrer} r=new
        < {referrer} r=new

        > {referrer} ack
        < cds GONE
        """.replace("GONE", "-old" if mode == "delta" else "kept=1"),
        mode=mode,
        settings=Settings(drain_time=0),
    )


@both
def test_a_cluster_waits_for_all_types_that_can_refer_to_it(mode: str):
    # ORD-2
    play(
        """
        store cds old=1 kept=1; rds r=old; lds l=old
        > cds +*
        > lds +*
        > rds +r
        < cds kept=1 old=1
        < lds l=old
        < rds r=old

        > ack
        store cds -old; rds r=new; lds l=new
        < lds l=new
        < rds r=new

        > rds ack

        > lds ack
        < cds GONE
        """.replace("GONE", "-old" if mode == "delta" else "kept=1"),
        mode=mode,
        settings=Settings(drain_time=0),
    )


@both
def test_a_removal_waits_no_longer_than_the_timeout(mode: str):
    # ORD-2
    bench = Bench(Settings(ack_timeout=5))
    bench.put("cds old=1 kept=1; rds r=old")
    peer = connect(bench, mode)
    peer.ask("cds +*")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("ack")
    assert peer.stream.deadline() is None
    bench.put("cds -old; rds r=new")
    assert peer.hears() == ["rds r=new"]
    assert peer.stream.deadline() == bench.now + 5
    bench.now += 4.5
    assert peer.hears() == []
    assert peer.stream.deadline() == bench.now + 0.5
    bench.now += 0.5
    assert peer.hears() == ["cds -old" if mode == "delta" else "cds kept=1"]
    assert peer.stream.deadline() is None
    bench.now += 60
    peer.ask("rds ack")
    assert peer.hears() == []


@both
def test_an_ack_ends_the_wait_and_its_deadline(mode: str):
    # ORD-2
    bench = Bench()
    bench.put("cds old=1; rds r=old")
    peer = connect(bench, mode)
    peer.ask("cds +*")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -old; rds r=new")
    peer.poll()
    peer.ask("rds ack")
    assert peer.hears() == ["cds -old" if mode == "delta" else "cds nothing"]
    assert peer.stream.deadline() is None


@both
def test_the_ack_of_an_earlier_response_does_not_end_the_wait(mode: str):
    # ORD-2
    play(
        """
        store cds old=1 kept=1; rds r=1
        > cds +*
        > rds +r
        < cds kept=1 old=1
        < rds r=1

        > cds ack
        store rds r=2
        < rds r=2

        store cds -old; rds r=3
        < rds r=3

        > rds ack@1

        > rds ack@2

        > rds ack@3
        < cds GONE
        """.replace("GONE", "-old" if mode == "delta" else "kept=1"),
        mode=mode,
    )


@both
def test_a_removal_with_nothing_to_wait_for_goes_at_once(mode: str):
    # ORD-2
    play(
        """
        store cds old=1 kept=1; rds r=1
        > cds +*
        > rds +r
        < cds kept=1 old=1
        < rds r=1

        > ack
        store cds -old
        < cds GONE
        """.replace("GONE", "-old" if mode == "delta" else "kept=1"),
        mode=mode,
    )


@both
def test_a_removal_waits_for_a_route_that_was_sent_before_and_is_not_acked_yet(mode: str):
    # ORD-2
    play(
        """
        store cds old=1 kept=1; rds r=1
        > cds +*
        > rds +r
        < cds kept=1 old=1
        < rds r=1

        > ack
        store rds r=2
        < rds r=2

        store cds -old

        > rds ack
        < cds GONE
        """.replace("GONE", "-old" if mode == "delta" else "kept=1"),
        mode=mode,
    )


@both
def test_a_cluster_that_is_back_before_it_was_removed_is_not_removed(mode: str):
    # ORD-2
    play(
        """
        store cds old=1; rds r=1
        > cds +*
        > rds +r
        < cds old=1
        < rds r=1

        > ack
        store cds -old; rds r=2
        < rds r=2

        store cds old=1

        > rds ack

        wait 60

        store cds old=2
        < cds old=2
        """,
        mode=mode,
    )


@both
def test_a_cluster_that_is_back_with_other_contents_is_sent(mode: str):
    # ORD-2
    bench = Bench()
    bench.put("cds old=1; rds r=1")
    peer = connect(bench, mode)
    peer.ask("cds +*")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -old; rds r=2")
    assert peer.hears() == ["rds r=2"]
    bench.put("cds old=2")
    assert peer.hears() == ["cds old=2"]
    assert peer.stream.deadline() is None
    peer.ask("ack")
    assert peer.hears() == []


def test_a_held_removal_that_is_unsubscribed_is_forgotten():
    # ORD-2, DLT-7
    bench = Bench()
    bench.put("cds old=1; rds r=1")
    peer = bench.delta()
    peer.ask("cds +old")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -old; rds r=2")
    peer.poll()
    peer.ask("cds -old")
    assert peer.hears() == []
    assert peer.stream.deadline() is None
    peer.ask("rds ack")
    assert peer.hears() == []


def test_sotw_while_a_removal_waits_the_cluster_stays_in_every_response():
    # ORD-3
    play(
        """
        store cds old=1 a=1; rds r=1
        > cds
        > rds r
        < cds a=1 old=1
        < rds r=1

        > ack
        store cds -old; rds r=2
        < rds r=2

        store cds a=2
        < cds a=2 old=1

        > cds ack

        > rds ack
        < cds a=2
        """,
        mode="sotw",
    )


def test_delta_removals_go_last_and_in_the_opposite_order():
    # ORD-3; DESIGN 6.9
    play(
        """
        store cds a=1 b=1; eds a=1 b=1; sds a=1 b=1
        > cds +*
        > eds +a +b
        > sds +a +b
        < cds a=1 b=1
        < eds a=1 b=1
        < sds a=1 b=1

        > ack
        store cds -a b=2; eds -a b=2; sds -a b=2
        < cds b=2
        < eds b=2
        < sds b=2
        < sds -a
        < eds -a
        < cds -a
        """
    )


def test_delta_a_cluster_waits_for_the_removal_of_its_route():
    # ORD-2
    play(
        """
        store cds c=1; rds r=1
        > cds +*
        > rds +r
        < cds c=1
        < rds r=1

        > ack
        store cds -c; rds -r
        < rds -r

        > rds ack
        < cds -c
        """
    )


# -- a second removal while the first one waits


def lost(peer: Peer) -> set[str]:
    """Which of the clusters a, b and c are gone by what is said now."""
    clusters = [send for send in peer.poll() if send.type_url == CLUSTER]
    gone = [set(send.removed) if send.delta else {"a", "b", "c"}.difference(send.names) for send in clusters]
    return set().union(*gone)


def test_delta_a_client_that_has_to_ask_again_meanwhile_keeps_its_cluster_until_it_lets_go_or_the_timeout():
    # ORD-2: gRPC unsubscribes by itself when no call uses the cluster any more
    play(
        """
        store cds old=1 a=1; rds r=1>cds.old
        > cds +old +a
        > rds +r
        < cds a=1 old=1
        < rds r=1>cds.old

        > ack
        store cds -old; rds r=2>cds.a
        < rds r=2>cds.a

        > cds -a
        > rds ack

        > cds +a
        < cds a=1

        > cds ack

        wait 5
        < cds -old
        """
    )


@both
def test_a_later_removal_has_a_timeout_of_its_own(mode: str):
    # ORD-2
    bench = Bench(Settings(ack_timeout=5))
    bench.put("cds a=1 b=1 c=1; rds r=1")
    peer = connect(bench, mode)
    peer.ask("cds +*")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -a; rds r=2")
    assert lost(peer) == set()
    bench.now += 4
    bench.put("cds -b; rds r=3")
    assert lost(peer) == set()
    bench.now += 1
    assert "b" not in lost(peer)  # its route went out a second ago
    bench.now += 4
    assert "b" in lost(peer)
    assert peer.stream.deadline() is None


@both
def test_a_later_removal_waits_for_its_own_route_though_the_first_one_waited_too_long(mode: str):
    # ORD-2, ORD-4
    bench = Bench(Settings(ack_timeout=5))
    bench.put("cds a=1 b=1 c=1; rds r=1 q=1")
    peer = connect(bench, mode)
    peer.ask("cds +*")
    peer.ask("rds +r +q")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -a; rds r=bad")
    peer.poll()
    peer.ask("rds nack")
    assert lost(peer) == set()
    bench.now += 10
    bench.put("rds r=3")
    assert lost(peer) == set()
    bench.put("cds -b; rds q=2")
    assert lost(peer) == set()
    peer.ask("rds ack@3")
    assert "b" not in lost(peer)
    peer.ask("rds ack@4")
    assert "b" in lost(peer)


def test_a_waiting_removal_is_dropped_when_the_client_unsubscribes_from_the_wildcard():
    # WLD-9, ORD-2: the client dropped by itself what only the wildcard gave it
    play(
        """
        store cds a=1 b=1; rds r=1
        > cds +* +b
        > rds +r
        < cds a=1 b=1
        < rds r=1

        > ack
        store cds -a; rds r=2
        < rds r=2

        > cds -*

        > rds ack
        """
    )
