"""Resources that were removed while a client was not connected, and which it still names when it returns."""

from __future__ import annotations

from tests.core.support import Bench, play
from xdsprism.core.model.types import CLUSTER


def test_a_cluster_goes_after_the_routes_had_time_to_move_off_it():
    # ORD-2, DLT-14
    play(
        """
        store cds new=1; rds main=2
        > cds have old=1
        < cds new=1

        > rds +main have main=1
        < rds main=2

        > cds ack
        > rds ack
        wait 4

        wait 1
        < cds -old
        """
    )


def test_a_nacked_route_holds_it_longer():
    # ORD-4
    play(
        """
        store cds new=1; rds main=2
        > cds have old=1
        < cds new=1

        > rds +main have main=1
        < rds main=2

        > cds ack
        > rds nack
        wait 60

        store rds main=3
        < rds main=3

        > rds ack
        < cds -old
        """
    )


def test_a_restored_resource_is_sent_and_not_removed():
    # DLT-19
    play(
        """
        store cds new=1
        > cds have old=1
        < cds new=1

        store cds old=2
        < cds old=2

        wait 60

        """
    )


def test_types_that_nothing_refers_to_go_at_once():
    # DLT-14
    play(
        """
        store lds new=1
        > lds have old=1
        < lds new=1
        < lds -old
        """
    )


def test_on_a_stream_of_one_type_there_is_nobody_to_wait_for():
    # DLT-14, ORD-10
    bench = Bench()
    bench.put("cds new=1")
    peer = bench.delta(only_type=CLUSTER)
    peer.ask("cds have old=1")
    assert peer.hears() == ["cds new=1", "cds -old"]
