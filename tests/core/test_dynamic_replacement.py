"""Dynamic parameters: variants that are replaced and removed (C7, Replacing and removing variants)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench, play
from xdsprism.core.model.events import Absence
from xdsprism.core.model.expr import parse

PROD = {"env": "prod"}


def test_one_variant_that_becomes_several_is_one_response():
    # DYN-24, DYN-25
    play(
        """
        store rds main=1
        > rds +main{env=prod}
        < rds main[]=1

        > rds ack
        store rds main[env=prod]=p main[env!=prod]=t
        < rds main[env=prod]=p -main[]

        > rds ack
        store rds main[env=prod and version=v1]=v1 main[env=prod and version!=v1]=v0
        < rds main[env=prod and version!=v1]=v0 -main[env=prod]
        """
    )


def test_a_variant_that_gets_another_key_replaces_itself_in_the_same_response():
    # DYN-24, DYN-25, DYN-34: TP2's transition, while env=test stays
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{env=prod,v=1} +main{env=test}
        < rds main[env=prod]=p main[env=test]=t

        > rds ack
        store rds main[env=prod and v=1]=1 main[env=prod and v=2]=2 main[env=test]=t
        < rds main[env=prod and v=1]=1 main[env=test and (v exists or not v exists)]=t -main[env=prod] -main[env=test]

        > rds ack
        store rds main[env=prod and v=1]=1 main[env=prod and v=2]=3 main[env=test]=t

        store rds main[env=prod]=p main[env=test]=t
        < rds main[env=prod]=p main[env=test]=t -main[env=prod and v=1] -main[env=test and (v exists or not v exists)]
        """
    )


def test_a_plain_client_of_a_variant_that_gets_another_key_sees_one_update():
    # DYN-27, DYN-34
    bench = Bench()
    peer = bench.delta(env="test")
    bench.put("rds main[env=prod]=p main[env=test]=t")
    peer.ask("rds +main")
    assert peer.hears() == ["rds main=t"]
    peer.ask("ack")
    bench.put("rds main[env=prod and version=v1]=1 main[env=test]=t")
    assert peer.hears() == ["rds main=t"]


def test_several_variants_that_become_one_are_one_response():
    # DYN-24, DYN-25
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{env=prod} +main{env=test} +main{env=qa}
        < rds main[env=prod]=p main[env=test]=t -main[env=qa]

        > rds ack
        store rds main=1
        < rds main[]=1 -main[env=prod] -main[env=test]
        """
    )


def test_variants_that_swap_their_clients_are_one_response():
    # DYN-24: constraints are identity, so that both are updates
    play(
        """
        store rds main[env=prod]=1 main[env=test]=2
        > rds +main{env=prod} +main{env=test}
        < rds main[env=prod]=1 main[env=test]=2

        > rds ack
        store rds main[env=prod]=2 main[env=test]=1
        < rds main[env=prod]=2 main[env=test]=1
        """
    )


def test_a_replacement_of_many_names_is_one_response():
    # DYN-24
    play(
        """
        store cds a=1 b=1 c=1
        > cds +*{env=prod} +a{env=test}
        < cds a[]=1 b[]=1 c[]=1

        > cds ack
        store cds a[env=prod]=p a[env=test]=t b[env=prod]=p
        < cds a[env=prod]=p a[env=test]=t b[env=prod]=p -a[] -b[]
        """
    )


def test_changes_between_two_polls_replace_what_was_sent_and_not_what_was_not():
    # DYN-24, DYN-25, DLT-23
    play(
        """
        store rds main=1
        > rds +main{env=prod} +*{env=test}
        < rds main[]=1

        > rds ack
        store rds main[env=prod]=2 main[env=test]=2
        store rds main[env exists]=3
        store rds main[env in (prod, test)]=4
        < rds main[env in (prod, test)]=4 -main[]
        """
    )


def test_a_variant_that_is_replaced_and_put_back_between_two_polls_is_no_change():
    # DYN-24, DYN-25
    play(
        """
        store rds main[env=prod]=1
        > rds +main{env=prod} +*{env=prod}
        < rds main[env=prod]=1

        > rds ack
        store rds main=2
        store rds main[env=prod]=1
        """
    )


def test_a_variant_that_one_locator_leaves_and_another_keeps_is_not_withdrawn():
    # DYN-25, DLT-19
    play(
        """
        store rds main[env in (prod, test)]=1
        > rds +main{env=prod} +main{env=test}
        < rds main[env in (prod, test)]=1

        > rds ack
        store rds main[env=prod]=2 main[env=test]=1
        < rds main[env=prod]=2 main[env=test]=1 -main[env in (prod, test)]
        """
    )


def test_a_withdrawn_variant_is_named_by_exactly_the_constraints_that_were_sent():
    # DYN-25
    bench = Bench()
    text = "zone=a and (not (not env=prod) or env=prod)"
    bench.put(f"rds main[{text}]=1")
    peer = bench.delta()
    peer.ask("rds +main{env=prod,zone=a}")
    (first,) = peer.poll()
    assert [sent.constraint for sent in first.located] == [parse(text)]
    bench.put("rds main[env=prod and zone exists]=1")
    (second,) = peer.poll()
    assert second.withdrawn == (Absence("main", parse(text)),)
    assert [sent.constraint for sent in second.located] == [parse("env=prod and zone exists")]
    assert second.removed == ()


def test_the_form_of_a_removal_is_that_of_the_subscription():
    # DYN-26
    play(
        """
        store rds a=1 b[env=prod]=1 c=1 d[env=prod]=1; cds e=1 f[env=prod]=1
        > rds +a{env=prod} +b{env=prod} +c +d
        > cds +*{env=prod}
        < cds e[]=1 f[env=prod]=1
        < rds a[]=1 b[env=prod]=1 c=1 d=1

        > ack
        store rds -a -b -c -d
        < rds -a[] -b[env=prod] -c -d

        > ack
        store cds -e -f
        < cds -e[] -f[env=prod]
        """,
        node=PROD,
    )


@pytest.mark.parametrize("names", ["main", "*"])
def test_a_plain_subscription_sees_a_replacement_as_an_update(names):
    # DYN-27
    play(
        f"""
        store cds main=1
        > cds +{names}
        < cds main=1

        > cds ack
        store cds main[env=prod]=p main[env!=prod]=t
        < cds main=p

        > cds ack
        store cds main[env=prod and zone=a]=a main[env=prod and zone!=a]=b
        < cds main=b

        > cds ack
        store cds -main
        < cds -main
        """,
        node=PROD,
    )


@pytest.mark.parametrize("word", ["cds", "rds"])
def test_a_sotw_client_sees_a_replacement_as_one_response_with_the_new_variant(word):
    # DYN-28
    play(
        f"""
        store {word} main=1
        > {word} main{{env=prod}}
        < {word} main[]=1

        b> {word} main
        b< {word} main=1

        > {word} ack
        b> {word} ack
        store {word} main[env=prod]=p main[env!=prod]=t
        < {word} main[env=prod]=p
        b< {word} main=t
        """,
        mode="sotw",
    )


def test_a_sotw_wildcard_sees_a_replacement_as_one_response_with_the_new_variants():
    # DYN-28
    play(
        """
        store cds a=1 b=1
        > cds *{env=prod}
        < cds a[]=1 b[]=1

        b> cds
        b< cds a=1 b=1

        > cds ack
        b> cds ack
        store cds a[env=prod]=p a[env!=prod]=t
        < cds a[env=prod]=p b[]=1
        b< cds a=t b=1
        """,
        mode="sotw",
    )


def test_a_replacement_that_leaves_no_match_is_a_removal_only_and_a_new_match_a_resource_only():
    # DYN-29
    play(
        """
        store rds main[env=prod]=p
        > rds +main{env=prod} +*{env=prod}
        < rds main[env=prod]=p

        b> rds +main{env=test}
        b< rds -main[env=test]

        c> rds +main
        c< rds main=p

        d> rds +main
        d< rds -main

        > rds ack
        b> rds ack
        c> rds ack
        d> rds ack
        store rds main[env=test]=t
        < rds -main[env=prod]
        b< rds main[env=test]=t
        c< rds -main
        d< rds main=t
        """,
        nodes={"c": PROD, "d": {"env": "test"}},
    )


def test_a_sotw_replacement_that_leaves_no_match_is_an_absence_and_a_new_match_a_resource():
    # DYN-29
    play(
        """
        store cds main[env=prod]=p; rds main[env=prod]=p
        > cds main{env=prod}
        > rds main{env=prod}
        < cds main[env=prod]=p
        < rds main[env=prod]=p

        b> cds main{env=test}
        b> rds main{env=test}
        b< cds !main[env=test]=NOT_FOUND
        b< rds !main[env=test]=NOT_FOUND

        > ack
        b> ack
        store cds main[env=test]=t
        < cds !main[env=prod]=NOT_FOUND
        b< cds main[env=test]=t

        > ack
        b> ack
        store rds main[env=test]=t
        < rds !main[env=prod]=NOT_FOUND
        b< rds main[env=test]=t
        """,
        mode="sotw",
    )


def test_a_plain_sotw_client_without_a_match_any_more_sees_an_absence_or_nothing():
    # DYN-29, SOT-6, SOT-7
    play(
        """
        store cds main[env=prod]=p; rds main[env=prod]=p
        > cds main
        > rds main
        < cds main=p
        < rds main=p

        > ack
        store cds main[env=test]=t; rds main[env=test]=t
        < cds nothing
        """,
        mode="sotw",
        node=PROD,
    )


# -- a replacement that was rejected


@pytest.mark.parametrize(
    ("gone", "stays"),
    [
        ("a{env=prod}", "*{env=test}"),
        ("a{env=prod}", "a{env=test}"),
        ("a{env=prod}", "x{env=test}"),
        ("x{env=prod}", "a{env=test}"),
        ("*{env=prod}", "x{env=test}"),
        ("*{env=prod}", "*{env=test}"),
    ],
)
def test_a_withdrawal_of_a_rejected_replacement_goes_out_with_the_next_one(gone, stays):
    # DYN-24, DYN-32, NAK-4; TP2, Matching Ambiguity: the client may still have it, and one locator less changes nothing
    play(
        f"""
        store cds a(x)[env in (prod, test)]=1
        > cds +{gone} +{stays}
        < cds a(x)[env in (prod, test)]=1

        > cds ack
        store cds a(x)[env exists]=bad
        < cds a(x)[env exists]=bad -a[env in (prod, test)]

        > cds nack

        > cds -{gone}

        store cds a(x)[env exists]=2
        < cds a(x)[env exists]=2 -a[env in (prod, test)]

        > cds ack
        store cds a(x)[env exists]=3
        < cds a(x)[env exists]=3
        """
    )


def test_a_member_that_its_wildcard_still_covers_takes_along_what_its_rejected_version_replaced():
    # WLD-6, DYN-24: the answer to the unsubscription is the first that the client may accept
    play(
        """
        store cds a[env=prod]=1
        > cds +a{env=prod} +*{env=prod}
        < cds a[env=prod]=1

        > cds ack
        store cds a=2
        < cds a[]=2 -a[env=prod]

        > cds nack

        > cds -a{env=prod}
        < cds a[]=2 -a[env=prod]
        """
    )


def test_a_withdrawal_of_a_rejected_replacement_ends_with_its_last_locator():
    # WLD-9: the client drops it by itself
    play(
        """
        store cds a[env=prod]=1
        > cds +a{env=prod} +*
        < cds a[env=prod]=1

        > cds ack
        store cds a[env exists]=bad
        < cds a[env exists]=bad -a[env=prod]

        > cds nack

        > cds -a{env=prod}

        > cds +a{env=prod}
        < cds a[env exists]=bad
        """
    )


def test_a_variant_that_comes_back_in_another_form_is_not_withdrawn():
    # DYN-30, DLT-19: the rejected response withdrew it, and constraints that differ in form are the same
    play(
        """
        store cds a[env=prod]=1
        > cds +a{env=prod}
        < cds a[env=prod]=1

        > cds ack
        store cds a=bad
        < cds a[]=bad -a[env=prod]

        > cds nack
        store cds a[not (not env=prod)]=3
        < cds a[not (not env=prod)]=3 -a[]
        """
    )
