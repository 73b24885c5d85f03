"""ACKs and NACKs, and what they change (C5)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench, Thorough, play
from xdsprism.core.model.events import DeltaRequest, Key, Rejection, SotwRequest
from xdsprism.core.model.facts import Acked, Nacked
from xdsprism.core.model.types import CLUSTER, ROUTE

MODES = pytest.mark.parametrize("mode", ["delta", "sotw"])


def asking(mode: str, *names: str) -> str:
    return " ".join(f"+{name}" if mode == "delta" else name for name in names)


@MODES
def test_an_error_makes_a_nack_even_with_code_0_and_the_version_that_was_sent(mode: str):
    # NAK-1
    bench = Bench()
    bench.put("rds a=1")
    peer = bench.connect(None, delta=mode == "delta")
    peer.ask(f"rds {asking(mode, 'a')}")
    (send,) = peer.poll()
    error = Rejection(0, "")
    if mode == "delta":
        peer.receive(ROUTE, DeltaRequest(nonce=send.nonce, error=error))
    else:
        peer.receive(ROUTE, SotwRequest((Key("a"),), send.version, send.nonce, error))
    (fact,) = bench.said(Nacked)
    assert fact.error == error
    assert peer.session("rds").progress.state == "NACKED"


def test_a_request_without_an_error_is_an_ack_even_with_an_old_version():
    # NAK-2
    bench = Bench(kind=Thorough)
    bench.put("rds a=1")
    peer = bench.sotw()
    peer.ask("rds a")
    (send,) = peer.poll()
    peer.receive(ROUTE, SotwRequest((Key("a"),), "an old one", send.nonce))
    assert not bench.said(Nacked)
    assert len(bench.said(Acked)) == 1


@MODES
def test_after_a_nack_nothing_is_sent_until_something_changes(mode: str):
    # NAK-3, NAK-4
    play(
        f"""
        store rds a=1 b=1; cds a=1
        > rds {asking(mode, "a")}
        > cds {asking(mode, "a")}
        < cds a=1
        < rds a=1

        > rds nack
        > cds nack

        wait 60
        store rds b=2; cds b=2

        store rds a=2; cds a=2
        < cds a=2
        < rds a=2
        """,
        mode=mode,
    )


@MODES
def test_the_same_nack_again_changes_nothing(mode: str):
    # NAK-5, NAK-12, NAK-28
    bench = play(
        f"""
        store rds a=1
        > rds {asking(mode, "a")}
        < rds a=1

        > rds nack

        > rds nack@1

        > rds nack@1
        """,
        mode=mode,
    )
    assert len(bench.said(Nacked)) == 1


@MODES
def test_a_nack_is_nothing_to_other_types_and_clients(mode: str):
    # NAK-6
    bench = play(
        f"""
        store rds a=1; cds a=1
        > rds {asking(mode, "a")}
        > cds {asking(mode, "a")}
        b> rds {asking(mode, "a")}
        < cds a=1
        < rds a=1
        b< rds a=1

        > rds nack
        > cds ack
        b> rds ack

        store cds a=2
        < cds a=2

        store rds a=2
        < rds a=2
        b< rds a=2
        """,
        mode=mode,
    )
    assert [fact.stream for fact in bench.said(Nacked)] == [1]


@MODES
def test_a_nack_by_one_client_leaves_the_state_of_another_as_it_is(mode: str):
    # NAK-6
    bench = Bench()
    bench.put("rds a=1")
    one, other = (bench.connect(None, delta=mode == "delta") for _ in range(2))
    for peer in (one, other):
        peer.ask(f"rds {asking(mode, 'a')}")
        assert peer.hears() == ["rds a=1"]
    other.ask("rds ack")
    one.ask("rds nack")
    assert [peer.session("rds").progress.state for peer in (one, other)] == ["NACKED", "SYNCED"]


def test_a_nack_that_adds_names_gets_what_it_adds():
    # NAK-7
    play(
        """
        store rds a=1 b=1; cds a=1 b=1
        > rds a
        > cds a
        < cds a=1
        < rds a=1

        > rds nack a b
        > cds nack a b
        < cds a=1 b=1
        < rds b=1
        """,
        mode="sotw",
    )
    play(
        """
        store rds a=1 b=1
        > rds +a
        < rds a=1

        > rds nack +b
        < rds b=1
        """
    )


def test_subscribing_again_to_a_rejected_name_sends_it_again():
    # NAK-8
    play(
        """
        store rds a=1
        > rds +a
        < rds a=1

        > rds nack

        > rds +a
        < rds a=1
        """
    )


@MODES
def test_going_back_to_what_was_accepted_is_pushed(mode: str):
    # NAK-9
    play(
        f"""
        store rds a=1; cds a=1
        > rds {asking(mode, "a")}
        > cds {asking(mode, "a")}
        < cds a=1
        < rds a=1

        > ack
        store rds a=2; cds a=2
        < cds a=2
        < rds a=2

        > rds nack
        > cds nack
        store rds a=1; cds a=1
        < cds a=1
        < rds a=1
        """,
        mode=mode,
    )


@MODES
def test_a_new_stream_is_sent_the_rejected_content_once(mode: str):
    # NAK-10
    play(
        f"""
        store rds a=1
        > rds {asking(mode, "a")}
        < rds a=1

        > rds nack
        b> rds {asking(mode, "a")}
        b< rds a=1

        b> rds nack
        """,
        mode=mode,
    )


@MODES
def test_a_nack_of_an_older_response_is_recorded_for_that_one(mode: str):
    # NAK-11
    bench = Bench()
    bench.put("rds a=1")
    peer = bench.connect(None, delta=mode == "delta")
    peer.ask(f"rds {asking(mode, 'a')}")
    first = peer.poll()
    bench.put("rds a=2")
    peer.poll()
    peer.ask("rds nack@1")
    (fact,) = bench.said(Nacked)
    assert fact.nonce == first[0].nonce
    assert peer.session("rds").progress.nacked == 1
    peer.ask("rds ack@2")
    assert peer.session("rds").progress.state == "SYNCED"


@MODES
def test_the_last_nack_is_kept_with_what_it_was_about(mode: str):
    # NAK-12, NAK-13
    bench = Bench()
    bench.put("rds a=1")
    peer = bench.connect(None, delta=mode == "delta")
    peer.ask(f"rds {asking(mode, 'a')}")
    (send,) = peer.poll()
    bench.now += 2
    peer.ask("rds nack")
    progress = peer.session("rds").progress
    assert progress.nack == (bench.now, send.version, send.nonce, Rejection(13, "does not compute"))
    assert progress.state == "NACKED"
    bench.put("rds a=2")
    peer.poll()
    assert progress.state == "NACKED"
    bench.now += 3
    peer.ask("rds ack")
    assert progress.nack is None
    assert progress.state == "SYNCED"
    assert [fact.seconds for fact in bench.said(Acked)] == [3]


@MODES
def test_a_rejected_resource_that_goes_away_clears_the_error(mode: str):
    # NAK-13
    bench = Bench()
    bench.put("cds a=1 b=1")
    peer = bench.connect(None, delta=mode == "delta")
    peer.ask("cds")
    peer.poll()
    peer.ask("ack")
    bench.put("cds a=2")
    peer.poll()
    peer.ask("cds nack")
    assert peer.session("cds").progress.state == "NACKED"
    bench.put("cds -a")
    peer.poll()
    peer.ask("ack")
    assert peer.session("cds").progress.state == "SYNCED"


def test_a_nonce_is_judged_once_and_then_only_carries_subscriptions():
    # NAK-28: C-core drops the error from its next request, grpc-js repeats it
    bench = play(
        """
        store cds a=1 b=1; rds a=1 b=1
        > cds a
        > rds a
        < cds a=1
        < rds a=1

        > cds nack
        > rds nack

        > cds @1 a b       # without the error: looks like an ACK
        > rds nack@1 a b   # with it
        < cds a=1 b=1
        < rds b=1
        """,
        mode="sotw",
    )
    assert len(bench.said(Nacked)) == 2
    assert not bench.said(Acked)


# -- isolation


def test_the_resources_of_a_rejected_response_are_sent_once_more_each_alone():
    # NAK-29
    play(
        """
        store cds good=1 bad=1 fine=1
        > cds +good +bad +fine
        < cds good=1 bad=1 fine=1

        > cds nack
        < cds good=1
        < cds bad=1
        < cds fine=1

        > cds ack@2
        > cds nack@3
        > cds ack@4

        wait 60

        store cds bad=2
        < cds bad=2
        """
    )


def test_a_removal_in_a_rejected_response_is_said_again_apart():
    # NAK-29
    play(
        """
        store eds a=1
        > eds +* +gone
        < eds a=1 -gone

        > eds ack
        store eds -a b=1 c=1
        < eds b=1 c=1 -a

        > eds nack
        < eds b=1
        < eds c=1
        < eds -a

        > eds ack
        """
    )


def test_a_resource_that_changed_before_the_nack_is_sent_in_its_new_version():
    # NAK-29, NAK-4
    bench = Bench()
    bench.put("eds a=1 b=1 c=1")
    peer = bench.delta()
    peer.ask("eds +*")
    peer.poll()
    bench.put("eds a=2 -b")
    peer.ask("eds nack")
    assert peer.hears() == ["eds -b a=2", "eds c=1"]


def test_a_name_that_is_unsubscribed_with_the_nack_is_not_sent_again():
    # NAK-29, DLT-7
    play(
        """
        store eds a=1 b=1 c=1
        > eds +a +b +c
        < eds a=1 b=1 c=1

        > eds nack -a -b
        < eds c=1
        """
    )


def test_a_replacement_is_sent_again_with_what_it_replaces():
    # NAK-29, DYN-24
    play(
        """
        store rds a=1 b=1
        > rds +a{env=prod} +b{env=prod}
        < rds a[]=1 b[]=1

        > rds ack
        store rds a[env=prod]=2 b[env=prod]=2
        < rds a[env=prod]=2 b[env=prod]=2 -a[] -b[]

        > rds nack
        < rds a[env=prod]=2 -a[]
        < rds b[env=prod]=2 -b[]
        """
    )


def test_two_variants_of_one_name_are_two_resources():
    # NAK-29, DYN-32
    play(
        """
        store rds a[env=prod]=good a[env=test]=bad
        > rds +a{env=prod} +a{env=test}
        < rds a[env=prod]=good a[env=test]=bad

        > rds nack
        < rds a[env=prod]=good
        < rds a[env=test]=bad

        > rds ack@2
        > rds nack@3

        store rds a[env=prod]=better a[env=test]=bad
        < rds a[env=prod]=better
        """
    )


def test_the_next_replacement_withdraws_what_a_rejected_one_did():
    # NAK-9, DYN-24, DYN-25: the client may still have it, and must not end up with two that match
    play(
        """
        store rds a=1
        > rds +a{env=prod}
        < rds a[]=1

        > rds ack
        store rds a[env=prod]=bad
        < rds a[env=prod]=bad -a[]

        > rds nack

        store rds a[env exists]=good
        < rds a[env exists]=good -a[env=prod] -a[]
        """
    )


def test_going_back_to_the_variant_that_a_rejected_response_withdrew_does_not_withdraw_it():
    # NAK-9, NAK-29
    bench = Bench()
    bench.put("rds a=1 b=1")
    peer = bench.delta()
    peer.ask("rds +a{env=prod} +b{env=prod}")
    peer.poll()
    peer.ask("rds ack")
    bench.put("rds a[env=prod]=bad b=2")
    assert peer.hears() == ["rds -a[] a[env=prod]=bad b[]=2"]
    bench.put("rds a=1")
    peer.ask("rds nack")
    assert peer.hears() == ["rds -a[env=prod] a[]=1", "rds b[]=2"]


def test_a_negative_answer_in_a_rejected_response_is_given_as_things_are_then():
    # NAK-29, DYN-11
    bench = Bench()
    bench.put("rds a[env=prod]=1 b=1 c=bad")
    peer = bench.delta()
    peer.ask("rds +a{env=test} +b{} +c{}")
    assert peer.hears() == ["rds -a[env=test] b[]=1 c[]=bad"]
    peer.ask("rds nack")
    assert peer.hears() == ["rds -a[env=test]", "rds b[]=1", "rds c[]=bad"]
    bench.put("rds a[env=prod]=1 a[env=test]=2")
    assert peer.hears() == ["rds a[env=test]=2"]


def test_a_client_that_rejects_thousands_is_asked_a_few_at_a_time():
    # NAK-29: memory stays bounded
    bench = Bench()
    bench.put("eds " + " ".join(f"n{number}=1" for number in range(1000)))
    peer = bench.delta()
    peer.ask("eds +*")
    peer.poll()
    for _ in range(20):
        peer.ask("eds nack +*")
        assert len(peer.poll()) <= 33
    session = peer.session("eds")
    assert len(session.in_flight) <= 64
    assert len(session.isolation) <= 1000


def test_a_client_that_never_answers_costs_no_more_than_a_few_responses():
    # DLT-23
    bench = Bench()
    peers = [bench.delta(), bench.sotw()]
    peers[0].ask("cds +*")
    peers[1].ask("cds *")
    for number in range(500):
        bench.put(f"cds a={number}")
        for peer in peers:
            peer.poll()
    assert all(len(peer.session("cds").in_flight) <= 64 for peer in peers)


def test_the_answer_to_a_newer_sotw_response_settles_those_before_it():
    # NAK-28: Envoy skips the ACKs of what was overtaken
    bench = Bench()
    peer = bench.sotw()
    peer.ask("cds")
    peer.poll()
    for number in range(5):
        bench.put(f"cds a={number}")
        peer.poll()
    peer.ask("cds ack@6")
    progress = peer.session("cds").progress
    assert progress.state == "SYNCED"
    peer.ask("cds nack@3")
    assert progress.state == "SYNCED"
    assert not bench.said(Nacked)
    assert not peer.session("cds").in_flight
    assert peer.heard[CLUSTER][-1].version == progress.acked_version


def test_sotw_a_rejection_ends_when_the_resource_is_gone_and_in_delta_when_its_removal_is_acked():
    # SOT-7, NAK-3: SotW has no removal that the client could ACK
    bench = Bench()
    bench.put("eds a=bad")
    sotw, delta = bench.sotw(), bench.delta()
    sotw.ask("eds a")
    delta.ask("eds +a")
    for peer in (sotw, delta):
        peer.poll()
        peer.ask("eds nack")
    bench.put("eds -a")
    assert [sotw.hears(), delta.hears()] == [[], ["eds -a"]]
    assert [peer.session("eds").progress.state for peer in (sotw, delta)] == ["STALE", "NACKED"]
    delta.ask("eds ack")
    assert delta.session("eds").progress.state == "SYNCED"
