"""Wildcards: what means everything, and for how long (C3)."""

from __future__ import annotations

from itertools import product

import pytest

from tests.core.support import Bench, play
from xdsprism.core.model.events import Key, Node, SotwRequest
from xdsprism.core.model.types import CLUSTER


@pytest.mark.parametrize("word", ["lds", "cds", "srds"])
@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_first_request_without_names_means_everything(mode: str, word: str):
    # WLD-1, WLD-12
    play(
        f"""
        store {word} a=1 b=1
        > {word}
        < {word} a=1 b=1

        > {word} ack

        > {word}
        """,
        mode=mode,
    )


def test_a_legacy_wildcard_stays_one_over_its_answers():
    # WLD-1
    play(
        """
        store cds a=1
        > cds
        < cds a=1

        > cds ack
        store cds b=1
        < cds a=1 b=1

        > cds nack
        store cds c=1
        < cds a=1 b=1 c=1
        """,
        mode="sotw",
    )


def test_a_star_means_the_same():
    # WLD-2
    play(
        """
        store cds a=1 b=1
        > cds *
        < cds a=1 b=1
        """,
        mode="sotw",
    )
    play(
        """
        store cds a=1 b=1; eds a=1 b=1
        > cds +*
        > eds +*
        < cds a=1 b=1
        < eds a=1 b=1
        """
    )


def test_sotw_from_everything_to_a_name_to_nothing():
    # WLD-3, WLD-5
    play(
        """
        store cds a=1 b=1
        > cds
        < cds a=1 b=1

        > cds ack * a
        < cds a=1 b=1

        > cds ack
        store cds b=2
        < cds a=1 b=2

        > cds ack a

        store cds b=3

        store cds a=2
        < cds a=2

        > cds ack none

        store cds a=3 b=4 c=1

        > cds none
        """,
        mode="sotw",
    )


def test_delta_from_everything_to_a_name_to_nothing():
    # WLD-4, WLD-5, WLD-9
    play(
        """
        store cds a=1 b=1
        > cds
        < cds a=1 b=1

        > cds ack +a
        < cds a=1

        > cds ack
        store cds b=2
        < cds b=2

        > cds ack -*

        store cds b=3

        store cds a=2
        < cds a=2

        > cds ack -a

        store cds a=3 b=4 c=1

        > cds
        """
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_an_empty_list_after_a_name_is_no_wildcard(mode: str):
    # WLD-5, SOT-11
    names = {"delta": ("+a", "-a"), "sotw": ("a", "none")}[mode]
    play(
        f"""
        store cds a=1 b=1
        > cds {names[0]}
        < cds a=1

        > cds ack {names[1]}

        > cds

        store cds a=2 b=2
        """,
        mode=mode,
    )


def test_an_empty_list_after_an_explicit_star_is_no_wildcard():
    # WLD-5
    play(
        """
        store cds a=1
        > cds *
        < cds a=1

        > cds ack none

        store cds a=2
        """,
        mode="sotw",
    )


def test_leaving_a_name_that_the_wildcard_covers_is_answered_with_the_resource():
    # WLD-6
    play(
        """
        store cds a=1
        > cds +* +a
        < cds a=1

        > cds ack -a
        < cds a=1

        store cds a=2
        < cds a=2
        """
    )


def test_leaving_a_name_that_the_wildcard_does_not_cover_is_answered_with_its_removal():
    # WLD-6
    play(
        """
        > cds +* +a
        < cds -a

        > cds ack -a
        < cds -a
        """
    )


def test_leaving_a_locator_that_its_wildcard_covers_is_answered_too():
    # WLD-6, DYN-41
    play(
        """
        store cds a[env=prod]=p
        > cds +*{env=prod} +a{env=prod}
        < cds a[env=prod]=p

        > cds ack -a{env=prod}
        < cds a[env=prod]=p

        > cds ack +b{env=prod}
        < cds -b[]

        > cds ack -b{env=prod}
        < cds -b[]
        """
    )


def test_a_name_left_under_a_wildcard_while_its_removal_is_held_is_still_removed():
    # WLD-6, ORD-2
    play(
        """
        store cds a=1; rds r=1
        > cds +* +a
        > rds +r
        < cds a=1
        < rds r=1

        > ack
        store cds -a; rds r=2
        < rds r=2

        > cds -a

        > rds ack
        < cds -a
        """
    )
    play(
        """
        store cds a=1 b=1; rds r=1
        > cds * a
        > rds r
        < cds a=1 b=1
        < rds r=1

        > ack
        store cds -a; rds r=2
        < rds r=2

        > cds *

        > rds ack
        < cds b=1
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("order", ["+* +a", "+a +*"])
def test_subscriptions_are_a_union_in_whatever_order_they_came(order: str):
    # WLD-7
    play(
        f"""
        store cds a=1 b=1
        > cds {order}
        < cds a=1 b=1

        > cds ack -*

        store cds a=2 b=2
        < cds a=2
        """
    )
    first, second = order.split()
    play(
        f"""
        store cds a=1
        > cds {first}
        < cds a=1

        > cds ack {second}
        {"< cds a=1" if second == "+a" else "< cds nothing"}

        > cds ack -*

        store cds a=2
        < cds a=2
        """
    )


def test_a_first_message_that_only_unsubscribes_is_no_wildcard():
    # WLD-8
    play(
        """
        store cds a=1
        > cds -b

        > cds

        store cds a=2
        """
    )


def test_unsubscribing_a_wildcard_needs_no_removals():
    # WLD-9
    play(
        """
        store cds a=1 b=1
        > cds +*
        < cds a=1 b=1

        > cds ack -*

        store cds -a b=2
        """
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_wildcard_over_nothing_is_answered(mode: str):
    # WLD-10
    play(
        """
        > cds
        < cds nothing

        > cds ack
        """,
        mode=mode,
    )


def test_members_that_come_and_go_are_told():
    # WLD-11
    play(
        """
        store cds a=1
        > cds
        < cds a=1

        store cds b=1
        < cds b=1

        store cds -a
        < cds -a
        """
    )
    play(
        """
        store cds a=1
        > cds
        < cds a=1

        store cds b=1
        < cds a=1 b=1

        store cds -a
        < cds b=1
        """,
        mode="sotw",
    )


def test_members_that_come_and_go_with_the_params_of_the_client_are_told():
    # WLD-11, WLD-13, DYN-29
    play(
        """
        store cds a=1 b[env=prod]=1
        > cds
        b> cds
        < cds a=1 b=1
        b< cds a=1

        store cds b[env=test]=1
        < cds -b
        b< cds b=1
        """,
        nodes={"": {"env": "prod"}, "b": {"env": "test"}},
    )


OTHERS = ["rds", "eds", "sds", "rtds", "ecds", "my.own.Type"]


@pytest.mark.parametrize(("mode", "word"), [("sotw", "vhds"), *product(["delta", "sotw"], OTHERS)])
def test_for_other_types_an_empty_first_request_is_no_subscription(mode: str, word: str):
    # WLD-12
    play(
        f"""
        store {word} a=1
        > {word}

        store {word} a=2
        """,
        mode=mode,
    )


def test_a_grpc_client_never_means_everything():
    # WLD-12
    bench = Bench()
    bench.put("cds a=1 b=1")
    peer = bench.connect(Node("grpc", user_agent="gRPC C-core"), delta=False)
    peer.receive(CLUSTER, SotwRequest())
    assert peer.hears() == []
    peer.receive(CLUSTER, SotwRequest((Key("a"),)))
    assert peer.hears() == ["cds a=1"]


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_resource_of_another_group_is_never_in_the_answer(mode: str):
    # WLD-13
    play(
        """
        store cds a[env=prod]=1 b[env=test]=1 c=1
        > cds
        < cds a=1 c=1

        store cds b[env=test]=2
        """,
        mode=mode,
        node={"env": "prod"},
    )


def test_from_everything_to_a_name_that_went_meanwhile():
    # WLD-3, SOT-6: what the wildcard gave is what the name holds
    bench = Bench()
    bench.put("cds a=1 b=1")
    peer = bench.sotw()
    peer.ask("cds")
    assert peer.hears() == ["cds a=1 b=1"]
    bench.put("cds -a")
    peer.ask("cds ack a")
    assert peer.hears() == ["cds nothing"]


def test_from_every_variant_to_one_that_was_replaced_meanwhile():
    # WLD-4, DYN-24
    bench = Bench()
    bench.put("cds a=1")
    peer = bench.delta()
    peer.ask("cds +*{env=prod}")
    assert peer.hears() == ["cds a[]=1"]
    bench.put("cds a[env=prod]=2")
    peer.ask("cds ack -*{env=prod} +a{env=prod}")
    assert peer.hears() == ["cds -a[] a[env=prod]=2"]
