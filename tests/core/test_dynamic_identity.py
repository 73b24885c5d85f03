"""Dynamic parameters: what makes a variant the same one, to its versions, to a rejection and on a new stream (C7)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench, play, variant
from xdsprism.core.model.expr import parse
from xdsprism.core.model.facts import Nacked
from xdsprism.core.model.types import CLUSTER, ROUTE

PROD = {"env": "prod"}


def signed(mode: str) -> str:
    return "+" if mode == "delta" else ""


# -- identity


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_the_same_contents_with_new_constraints_are_a_replacement(mode):
    # DYN-30
    play(
        f"""
        store rds main[env=prod]=1
        > rds {signed(mode)}main{{env=prod}}
        < rds main[env=prod]=1

        > rds ack
        store rds main[env in (prod, test)]=1
        < rds main[env in (prod, test)]=1{" -main[env=prod]" if mode == "delta" else ""}
        """,
        mode=mode,
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_constraints_in_another_form_cause_no_push_and_keep_the_form_that_was_sent(mode):
    # DYN-30, DYN-25
    bench = Bench()
    bench.put("rds main[env=prod and zone=a]=1")
    early, late = (bench.delta(), bench.delta()) if mode == "delta" else (bench.sotw(), bench.sotw())
    early.ask(f"rds {signed(mode)}main{{env=prod,zone=a}} {signed(mode)}*{{env=prod,zone=a}}")
    assert early.hears() == ["rds main[env=prod and zone=a]=1"]
    bench.put("rds main[zone=a and not (not env=prod)]=1")
    assert early.hears() == []
    late.ask(f"rds {signed(mode)}main{{env=prod,zone=a}}")
    (send,) = late.poll()
    assert [sent.constraint for sent in send.located] == [parse("env=prod and zone=a")]


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_new_contents_with_constraints_in_another_form_come_in_the_form_that_was_sent(mode):
    # DYN-30, DYN-25: who tells variants apart by the bytes of their constraints would keep the old one beside it
    bench = Bench()
    bench.put("rds main[env=prod and zone=a]=1")
    peer = bench.delta() if mode == "delta" else bench.sotw()
    peer.ask(f"rds {signed(mode)}main{{env=prod,zone=a}}")
    peer.poll()
    bench.put("rds main[zone=a and not (not env=prod)]=2")
    (send,) = peer.poll()
    assert [(sent.body, sent.constraint) for sent in send.located] == [(b"2", parse("env=prod and zone=a"))]


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_variants_with_the_same_contents_have_different_versions(mode):
    # DYN-31
    bench = Bench()
    bench.put("rds main[env=prod]=1 main[env=test]=1 main[not env exists]=1")
    peer = bench.delta() if mode == "delta" else bench.sotw()
    sign = signed(mode)
    peer.ask(f"rds {sign}main{{env=prod}} {sign}main{{env=test}} {sign}main{{}}")
    (send,) = peer.poll()
    assert len({sent.version for sent in send.located}) == 3


def test_the_version_of_a_sotw_response_tells_variants_apart():
    # DYN-31, SRV-11
    bench = Bench()
    bench.put("rds main[env=prod]=1 main[env=test]=1; cds main[env=prod]=1 main[env=test]=1")
    for word, type_url in (("rds", ROUTE), ("cds", CLUSTER)):
        prod, test = bench.sotw(), bench.sotw()
        prod.ask(f"{word} main{{env=prod}}")
        test.ask(f"{word} main{{env=test}}")
        prod.poll()
        test.poll()
        assert prod.heard[type_url][0].version != test.heard[type_url][0].version


# -- rejections


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_rejected_variant_is_parked_for_that_client_only(mode):
    # DYN-32
    sign = signed(mode)
    bench = play(
        f"""
        store rds main[env=prod]=p main[env=test]=t
        > rds {sign}main{{env=prod}}
        < rds main[env=prod]=p

        b> rds {sign}main{{env=test}}
        b< rds main[env=test]=t

        c> rds {sign}main{{env=prod}}
        c< rds main[env=prod]=p

        > rds nack
        b> rds ack
        c> rds ack

        store rds main[env=prod]=p main[env=test]=t2
        b< rds main[env=test]=t2

        b> rds ack
        store rds main[env=prod]=p2 main[env=test]=t2
        < rds main[env=prod]=p2
        c< rds main[env=prod]=p2
        """,
        mode=mode,
    )
    assert [fact.stream for fact in bench.said(Nacked)] == [1]


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_rejected_variant_holds_back_no_other_variant_on_its_stream(mode):
    # DYN-32
    sign = signed(mode)
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t
        > rds {sign}main{{env=prod}}
        < rds main[env=prod]=p

        > rds nack {sign}main{{env=prod}} {sign}main{{env=test}}
        < rds {"main[env=prod]=p " if mode == "delta" else ""}main[env=test]=t

        > rds ack
        store rds main[env=prod]=p main[env=test]=t2
        < rds main[env=test]=t2
        """,
        mode=mode,
    )


def test_two_variants_of_a_nacked_response_are_resent_alone_and_the_bad_one_is_parked():
    # DYN-32, NAK-29
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{env=prod} +main{env=test}
        < rds main[env=prod]=p main[env=test]=t

        > rds nack
        < rds main[env=prod]=p
        < rds main[env=test]=t

        > rds nack@2
        > rds ack@3

        store rds main[env=prod]=p main[env=test]=t2
        < rds main[env=test]=t2

        > rds ack
        store rds main[env=prod]=p2 main[env=test]=t2
        < rds main[env=prod]=p2
        """
    )


# -- reconnects


def test_a_variant_that_the_client_has_in_the_current_version_is_not_sent_again():
    # DYN-40
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{env=prod} have main[env=prod]=p

        b> rds +main have main[env=prod]=p

        c> rds +*{env=prod} have main[env=prod]=p

        store rds main[env=prod]=p2 main[env=test]=t
        < rds main[env=prod]=p2
        b< rds main=p2
        c< rds main[env=prod]=p2
        """,
        node=PROD,
    )


@pytest.mark.parametrize("had", ["main[env=prod]=old", "main[env=test]=t", "main=p", "other=1"])
def test_a_variant_that_the_client_has_in_no_or_another_version_is_sent(had):
    # DYN-40
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{{env=prod}} have {had}
        < rds main[env=prod]=p

        b> rds +main have {had}
        b< rds main=p
        """,
        node=PROD,
    )


def test_several_variants_that_were_held_are_sent_again_unless_the_version_names_one():
    # DYN-40
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{env=prod} +main{env=test}
        < rds main[env=prod]=p main[env=test]=t

        b> rds +main{env=prod} +main{env=test} have main[env=test]=t
        b< rds main[env=prod]=p
        """
    )


def test_a_variant_that_was_held_and_has_no_match_now_is_answered_by_a_negative():
    # DYN-40, DYN-11
    play(
        """
        store rds main[env=test]=t
        > rds +main{env=prod} +gone{env=prod} have main[env=prod]=p gone=1
        < rds -main[env=prod] -gone[]
        """
    )


def test_the_version_that_a_client_names_is_that_of_the_variant():
    # DYN-40, DYN-31
    bench = Bench()
    bench.put("rds main[env=prod]=p")
    peer = bench.delta()
    peer.ask("rds +main{env=prod}")
    (send,) = peer.poll()
    assert send.located[0].version == variant("rds", "main[env=prod]=p").version
