"""Wildcards: what they bring, when an empty list is one, and who gets what (C3)."""

from __future__ import annotations

import pytest

from tests.core.modes import both
from tests.core.support import Bench, play
from xdsprism.core.events import Node
from xdsprism.core.types import CLUSTER, TypeSpec

# -- what a wildcard is


@both
@pytest.mark.parametrize("word", ["cds", "lds", "srds"])
def test_a_first_request_without_names_brings_everything_and_stays_a_wildcard_over_acks(mode: str, word: str):
    # WLD-1, WLD-12
    play(
        f"""
        store {word} a=1 b=1
        > {word}
        < {word} a=1 b=1

        > {word} ack

        > {word}

        store {word} a=2 b=2 c=2
        < {word} a=2 b=2 c=2

        > {word} ack

        store {word} a=3 b=3 c=3
        < {word} a=3 b=3 c=3
        """,
        mode=mode,
    )


@both
@pytest.mark.parametrize("word", ["cds", "lds", "srds", "rds", "eds", "sds"])
def test_a_star_brings_everything_of_any_type(mode: str, word: str):
    # WLD-2
    play(
        f"""
        store {word} a=1 b=1
        > {word} +*
        < {word} a=1 b=1

        > {word} ack

        store {word} a=2 b=2 c=2
        < {word} a=2 b=2 c=2
        """,
        mode=mode,
    )


@both
def test_a_star_and_an_empty_list_bring_the_same(mode: str):
    # WLD-1, WLD-2, SRV-12
    bench = Bench()
    bench.put("cds a=1 b[env=prod]=p b[env!=prod]=t c[env=test]=1")
    legacy, star = (bench.connect(Node(), delta=mode == "delta") for _ in range(2))
    legacy.ask("cds")
    star.ask("cds +*")
    (one,), (other,) = legacy.poll(), star.poll()
    assert one == other
    assert one.names == ("a", "b")


@both
@pytest.mark.parametrize("word", ["rds", "eds", "sds", "rtds", "ecds", "acme.Widget"])
def test_an_empty_first_request_of_other_types_subscribes_to_nothing(mode: str, word: str):
    # WLD-12
    play(
        f"""
        store {word} a=1
        > {word}

        store {word} a=2 b=1

        > {word} +a
        < {word} a=2

        > {word} ack
        store {word} b=2
        """,
        mode=mode,
    )


@both
def test_the_legacy_wildcard_can_be_set_for_each_type(mode: str):
    # WLD-12
    types = (TypeSpec(CLUSTER, ("cds",), wildcard=False), TypeSpec("type.googleapis.com/acme.Widget", wildcard=True))
    play(
        """
        store cds a=1; acme.Widget w=1
        > cds
        > acme.Widget
        < acme.Widget w=1

        store cds a=2
        """,
        mode=mode,
        types=types,
    )


@both
def test_a_grpc_client_never_means_an_empty_list_as_a_wildcard_but_may_ask_for_one(mode: str):
    # WLD-12
    bench = Bench()
    bench.put("cds a=1; lds a=1")
    peer = bench.connect(Node("g", user_agent="gRPC C-core linux"), delta=mode == "delta")
    peer.ask("cds")
    assert peer.hears() == []
    bench.put("cds a=2")
    assert peer.hears() == []
    peer.ask("lds +*")
    assert peer.hears() == ["lds a=1"]


# -- members


@both
@pytest.mark.parametrize("named", ["", "+*", "+*{}"])
def test_a_wildcard_without_members_is_answered_once_with_nothing(mode: str, named: str):
    # WLD-10
    play(
        f"""
        > cds {named}
        < cds nothing

        > cds ack

        > cds ack
        """,
        mode=mode,
    )


@both
def test_a_wildcard_whose_members_are_all_for_others_is_answered_with_nothing(mode: str):
    # WLD-10, WLD-13
    play(
        """
        store lds a[env=prod]=1
        > lds
        < lds nothing

        > lds ack
        store lds a[env=prod]=2

        store lds b=1
        < lds b=1
        """,
        mode=mode,
        node={"env": "test"},
    )


def test_sotw_new_members_come_and_departed_ones_are_left_out():
    # WLD-11, SOT-6
    play(
        """
        store cds a=1
        > cds
        < cds a=1

        > cds ack
        store cds b=1
        < cds a=1 b=1

        > cds ack
        store cds -a
        < cds b=1

        > cds ack
        store cds -b
        < cds nothing

        > cds ack
        """,
        mode="sotw",
    )


def test_delta_new_members_come_and_departed_ones_are_removed():
    # WLD-11
    play(
        """
        store cds a=1
        > cds
        < cds a=1

        > cds ack
        store cds b=1
        < cds b=1

        > cds ack
        store cds -a
        < cds -a

        > cds ack
        store cds -b
        < cds -b

        > cds ack
        """
    )


def test_sotw_a_resource_that_is_for_others_now_is_left_out():
    # WLD-11, WLD-13
    play(
        """
        store cds a[env=prod]=1 b=1
        > cds
        < cds a=1 b=1

        > cds ack
        store cds a[env=test]=1
        < cds b=1

        > cds ack
        store cds a[env in (prod, test)]=1
        < cds a=1 b=1
        """,
        mode="sotw",
        node={"env": "prod"},
    )


def test_delta_a_resource_that_is_for_others_now_is_removed():
    # WLD-11, WLD-13
    play(
        """
        store cds a[env=prod]=1 b=1
        > cds
        < cds a=1 b=1

        > cds ack
        store cds a[env=test]=1
        < cds -a

        > cds ack
        store cds a[env in (prod, test)]=1
        < cds a=1
        """,
        node={"env": "prod"},
    )


@both
def test_each_client_gets_its_own_set_and_hears_only_of_it(mode: str):
    # WLD-13
    play(
        """
        store cds all=1 p[env=prod]=1 t[env=test]=1 v[env=prod]=p v[env=test]=t
        p> cds
        t> cds
        u> cds
        p< cds all=1 p=1 v=p
        t< cds all=1 t=1 v=t
        u< cds all=1

        p> cds ack
        t> cds ack
        u> cds ack

        store cds q[env=qa]=1

        store cds all=2 p[env=prod]=2 t[env=test]=2 v[env=prod]=p2 v[env=test]=t2
        p< cds all=2 p=2 v=p2
        t< cds all=2 t=2 v=t2
        u< cds all=2

        store cds t[env=test]=3 v[env=prod]=p2 v[env=test]=t3 all=2
        t< cds SAME t=3 v=t3
        """.replace("SAME", "all=2" if mode == "sotw" else ""),
        mode=mode,
        nodes={"p": {"env": "prod"}, "t": {"env": "test"}, "u": {}},
    )
