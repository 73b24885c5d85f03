"""Dynamic parameters: several locators on one stream, and locators that come and go (C7, Matching and delivery)."""

from __future__ import annotations

import pytest

from tests.core.support import play


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_two_locators_of_one_name_bring_both_variants(mode):
    # DYN-16
    sign = "+" if mode == "delta" else ""
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t
        > rds {sign}main{{env=prod}} {sign}main{{env=test}}
        < rds main[env=prod]=p main[env=test]=t

        > rds ack
        store rds main[env=prod]=p main[env=test]=t2
        < rds main[env=test]=t2
        """,
        mode=mode,
    )


@pytest.mark.parametrize("word", ["rds", "cds"])
@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_two_locators_that_select_one_variant_bring_it_once(mode, word):
    # DYN-17
    sign = "+" if mode == "delta" else ""
    play(
        f"""
        store {word} main[env=prod]=p
        > {word} {sign}main{{env=prod,zone=a}} {sign}main{{env=prod,zone=b}} {sign}main{{env=prod}}
        < {word} main[env=prod]=p

        > {word} ack
        store {word} main[env=prod]=p2
        < {word} main[env=prod]=p2
        """,
        mode=mode,
    )


def test_a_variant_that_two_locators_select_is_removed_once_the_last_of_them_loses_it():
    # DYN-17, DYN-25, DYN-29
    play(
        """
        store rds main[env=prod]=p
        > rds +main{env=prod,zone=a} +main{env=prod,zone=b}
        < rds main[env=prod]=p

        > rds ack -main{env=prod,zone=a}

        store rds main[env=prod]=p2
        < rds main[env=prod]=p2

        > rds ack
        store rds -main
        < rds -main[env=prod]
        """
    )


def test_a_variant_that_one_locator_leaves_and_another_keeps_is_not_removed():
    # DYN-17, DYN-25: a name wins over an alias, so that `x` means another resource then
    play(
        """
        store rds a(x)[env=prod]=1
        > rds +a{env=prod} +x{env=prod}
        < rds a(x)[env=prod]=1

        b> rds +x{env=prod}
        b< rds a(x)[env=prod]=1

        > rds ack
        b> rds ack
        store rds x=1
        < rds x[]=1
        b< rds x[]=1 -a[env=prod]
        """
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_change_of_a_variant_is_pushed_only_to_those_it_is_for(mode):
    # DYN-18
    sign = "+" if mode == "delta" else ""
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t; cds main[env=prod]=p main[env=test]=t
        > rds {sign}main{{env=prod}}
        > cds {sign}*{{env=prod}}
        < cds main[env=prod]=p
        < rds main[env=prod]=p

        b> rds {sign}main
        b> cds {sign}*
        b< cds main=t
        b< rds main=t

        > ack
        b> ack
        store rds main[env=prod]=p main[env=test]=t2; cds main[env=prod]=p main[env=test]=t2
        b< cds main=t2
        b< rds main=t2

        b> ack
        store rds main[env=prod]=p3 main[env=test]=t2; cds main[env=prod]=p3 main[env=test]=t2
        < cds main[env=prod]=p3
        < rds main[env=prod]=p3
        """,
        mode=mode,
        nodes={"b": {"env": "test"}},
    )


def test_unsubscribing_a_locator_leaves_the_others_and_the_plain_name():
    # DYN-19
    play(
        """
        store rds main[env=prod]=p main[env=test]=t main[not env exists]=n
        > rds +main{env=prod} +main{env=test} +main
        < rds main=n
        < rds main[env=prod]=p main[env=test]=t

        > rds ack -main{env=prod} -main{env=test,zone=a}

        store rds main[env=prod]=p2 main[env=test]=t2 main[not env exists]=n2
        < rds main=n2
        < rds main[env=test]=t2

        > rds ack -main

        store rds main[env=prod]=p3 main[env=test]=t3 main[not env exists]=n3
        < rds main[env=test]=t3

        > rds ack -main{env=test}

        store rds -main
        """
    )


def test_the_order_of_params_is_not_part_of_a_locator():
    # DYN-19
    play(
        """
        store rds main=1
        > rds +main{env=prod,zone=a}
        < rds main[]=1

        > rds ack -main{zone=a,env=prod}

        store rds main=2
        """
    )


def test_each_sotw_request_lists_all_locators_that_are_wanted():
    # DYN-20
    play(
        """
        store cds a[env=prod]=p a[env=test]=t b=1; rds a[env=prod]=p a[env=test]=t
        > cds a{env=prod} a{env=test}
        > rds a{env=prod} a{env=test}
        < cds a[env=prod]=p a[env=test]=t
        < rds a[env=prod]=p a[env=test]=t

        > cds a{env=test} ack
        > rds a{env=test} ack

        store cds a[env=prod]=p2 a[env=test]=t; rds a[env=prod]=p2 a[env=test]=t

        store cds a[env=prod]=p2 a[env=test]=t2; rds a[env=prod]=p2 a[env=test]=t2
        < cds a[env=test]=t2
        < rds a[env=test]=t2

        > cds none ack
        > rds none ack

        store cds a=1 b=2; rds a=1
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_change_of_params_brings_the_variant_of_the_new_ones_in_one_response(mode):
    # DYN-21
    first, second = (
        ("+main{env=prod}", "-main{env=prod} +main{env=test}")
        if mode == "delta"
        else ("main{env=prod}", "main{env=test}")
    )
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t; cds main[env=prod]=p main[env=test]=t
        > rds {first}
        > cds {first}
        < cds main[env=prod]=p
        < rds main[env=prod]=p

        > rds {second} ack
        > cds {second} ack
        < cds main[env=test]=t
        < rds main[env=test]=t

        > ack
        store rds main[env=prod]=p2 main[env=test]=t; cds main[env=prod]=p2 main[env=test]=t

        store rds main[env=prod]=p2 main[env=test]=t2; cds main[env=prod]=p2 main[env=test]=t2
        < cds main[env=test]=t2
        < rds main[env=test]=t2
        """,
        mode=mode,
    )


def test_subscribing_to_a_locator_again_sends_again():
    # DYN-22
    play(
        """
        store rds main[env=prod]=p
        > rds +main{env=prod}
        < rds main[env=prod]=p

        > rds ack +main{env=prod}
        < rds main[env=prod]=p

        > rds ack +main{env=qa}
        < rds -main[env=qa]

        > rds ack +main{env=qa}
        < rds -main[env=qa]
        """
    )


@pytest.mark.parametrize("word", ["cds", "lds"])
def test_the_full_state_holds_a_variant_for_each_locator_that_has_one(word):
    # DYN-23, ERR-3
    play(
        f"""
        store {word} a[env=prod]=p a[env=test]=t b=1 c=1
        > {word} a{{env=prod}} a{{env=test}} a{{env=qa}} b{{}}
        < {word} a[env=prod]=p a[env=test]=t b[]=1 !a[env=qa]=NOT_FOUND

        > {word} ack
        store {word} b=2
        < {word} a[env=prod]=p a[env=test]=t b[]=2

        > {word} ack
        store {word} a[env=test]=t
        < {word} a[env=test]=t b[]=2 !a[env=prod]=NOT_FOUND

        > {word} ack
        store {word} a[env=test]=t -b
        < {word} a[env=test]=t !b[]=NOT_FOUND
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ["rds", "cds"])
def test_an_error_is_in_a_response_once_whatever_the_number_of_locators_it_is_for(word):
    # DYN-11, DYN-17, SRV-19: one locator loses its variant while another had none
    play(
        f"""
        store {word} a[env=test]=t
        > {word} a{{env=test}} a{{env=qa}}
        < {word} a[env=test]=t !a[env=qa]=NOT_FOUND

        > {word} ack
        store {word} -a
        < {word} !a[]=NOT_FOUND
        """,
        mode="sotw",
    )
