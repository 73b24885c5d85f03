"""The server's memory of a NACK and of its nonce (C5)."""

from __future__ import annotations

from tests.core.modes import BAD, answer, both, connect, judged
from tests.core.support import Bench, Thorough, play
from xdsprism.core.model.events import Key, Rejection, SotwRequest
from xdsprism.core.model.facts import Acked, Nacked, Recovered
from xdsprism.core.model.types import CLUSTER

# -- what is remembered


@both
def test_a_stale_nack_is_about_the_response_that_it_names(mode: str):
    # NAK-11, SRV-13
    bench = Bench()
    bench.put("cds a=1")
    peer = connect(bench, mode)
    peer.ask("cds +a")
    (old,) = peer.poll()
    bench.put("cds a=2")
    (new,) = peer.poll()
    answer(peer, old, BAD)
    assert peer.hears() == []
    progress = peer.session("cds").progress
    assert progress.nack is not None
    assert progress.nack[1:3] == (old.version, old.nonce)
    assert progress.acked == 0
    answer(peer, new)
    assert peer.hears() == []
    assert judged(bench) == [("Nacked", old.nonce), ("Acked", new.nonce)]
    assert progress.state == "SYNCED"


@both
def test_a_nack_that_comes_after_the_newest_was_acked_does_not_undo_that(mode: str):
    # NAK-11
    bench = Bench()
    bench.put("cds a=1")
    peer = connect(bench, mode)
    peer.ask("cds +a")
    (old,) = peer.poll()
    bench.put("cds a=2")
    (new,) = peer.poll()
    answer(peer, new)
    answer(peer, old, BAD)
    assert peer.hears() == []
    assert peer.session("cds").progress.state == "SYNCED"


@both
def test_the_last_nack_is_remembered_with_all_that_is_known_of_it(mode: str):
    # NAK-12
    bench = Bench()
    bench.put("cds a=1")
    peer = connect(bench, mode)
    peer.ask("cds +a")
    for number, error in enumerate((BAD, Rejection(13, "worse"))):
        bench.put(f"cds a=bad{number}")
        bench.now += 10
        (send,) = peer.poll()
        bench.now += 1
        answer(peer, send, error)
        assert peer.session("cds").progress.nack == (bench.now, send.version, send.nonce, error)
        parts = tuple((each.name, each.version) for each in send.plain) if mode == "delta" else ()  # not of full state
        assert [*bench.facts][-1] == Nacked(1, CLUSTER, send.nonce, send.version, error, parts)
    assert len(bench.said(Nacked)) == 2


@both
def test_an_ack_after_a_nack_clears_it(mode: str):
    # NAK-13
    bench = Bench()
    bench.put("cds a=bad")
    peer = connect(bench, mode)
    peer.ask("cds +a")
    (send,) = peer.poll()
    progress = peer.session("cds").progress
    assert progress.state == "STALE"
    answer(peer, send, BAD)
    assert progress.state == "NACKED"
    bench.put("cds a=2")
    (send,) = peer.poll()
    assert progress.state == "NACKED"
    bench.now += 2
    answer(peer, send)
    assert progress.state == "SYNCED"
    assert progress.nack is None
    assert progress.acked_version == send.version
    assert [*bench.facts][-1] == Acked(1, CLUSTER, send.nonce, 2)


def test_delta_an_ack_of_another_resource_does_not_clear_a_nack():
    # NAK-12, NAK-13: in delta each resource stands for itself
    bench = Bench()
    bench.put("cds a=bad b=1")
    peer = bench.delta()
    peer.ask("cds +a")
    peer.poll()
    peer.ask("cds nack +b")
    peer.poll()
    peer.ask("cds ack")
    progress = peer.session("cds").progress
    assert (progress.state, list(peer.session("cds").rejections.by_label)) == ("NACKED", ["a"])
    peer.ask("cds -a")
    bench.put("cds b=2")
    peer.poll()
    peer.ask("cds ack")
    assert progress.state == "SYNCED"


# -- each nonce is judged once


@both
def test_after_a_nack_a_request_with_the_same_nonce_and_no_error_is_no_ack(mode: str):
    # NAK-28, S2: gRPC C-core changes its subscriptions so
    bench = play(
        """
        store cds a=bad b=1
        > cds +a
        < cds a=bad

        > cds nack@1

        > cds ack@1 +a +b
        < cds a=bad b=1
        """,
        mode=mode,
    )
    assert [name for name, _ in judged(bench)] == ["Nacked"]


def test_after_an_ack_a_request_with_the_same_nonce_and_an_error_is_no_nack():
    # NAK-28, S2: grpc-js repeats its last error with every request until the next response
    bench = play(
        """
        store rds a=bad b=1 c=1
        > rds a
        < rds a=bad

        > rds nack@1

        > rds nack@1 a b
        < rds b=1

        > rds ack@2

        > rds nack@2 a b c
        < rds c=1
        """,
        mode="sotw",
    )
    assert [name for name, _ in judged(bench)] == ["Nacked", "Acked"]


def test_delta_an_error_with_a_nonce_that_was_acked_isolates_nothing():
    # NAK-28, NAK-29
    bench = play(
        """
        store cds a=1 b=1
        > cds +a +b
        < cds a=1 b=1

        > cds ack@1

        > cds nack@1
        """,
        kind=Thorough,
    )
    assert [name for name, _ in judged(bench)] == ["Acked"]


def test_sotw_a_response_that_was_overtaken_needs_no_answer():
    # SRV-13, S10: Envoy answers only the newest
    bench = play(
        """
        store cds a=1
        > cds
        < cds a=1

        store cds a=2
        < cds a=2

        > cds ack@2

        > cds nack@1
        """,
        mode="sotw",
        kind=Thorough,
    )
    assert [name for name, _ in judged(bench)] == ["Acked"]


# -- the end of a NACK


def test_delta_the_end_of_a_nack_says_which_resource_is_accepted_again_and_after_how_long():
    # NAK-13
    bench = Bench()
    bench.put("cds a=bad b=1")
    peer = bench.delta()
    peer.ask("cds +a")
    peer.poll()
    bench.now += 1
    peer.ask("cds nack +b")
    peer.poll()
    bench.now += 2
    peer.ask("cds ack")
    assert bench.said(Recovered) == []
    bench.put("cds a=2")
    peer.poll()
    bench.now += 5
    peer.ask("cds ack")
    assert bench.said(Recovered) == [Recovered(1, CLUSTER, ("a",), 7)]
    bench.put("cds a=3")
    peer.poll()
    peer.ask("cds ack")
    assert len(bench.said(Recovered)) == 1


def test_sotw_the_end_of_the_nack_of_a_full_state_names_no_resource():
    # NAK-13, SOT-4
    bench = Bench()
    bench.put("cds a=bad")
    peer = bench.sotw()
    peer.ask("cds *")
    peer.poll()
    peer.ask("cds nack")
    bench.put("cds a=2")
    peer.poll()
    bench.now += 3
    peer.ask("cds ack")
    assert bench.said(Recovered) == [Recovered(1, CLUSTER, (), 3)]


@both
def test_a_resource_that_is_not_wanted_any_more_is_not_accepted_again(mode: str):
    bench = Bench()
    bench.put("cds a=bad b=1")
    peer = connect(bench, mode)
    peer.ask("cds +a +b" if mode == "delta" else "cds a b")
    peer.poll()
    peer.ask("cds nack")
    peer.poll()
    peer.ask("cds -a -b" if mode == "delta" else "cds none")
    peer.poll()
    assert bench.said(Recovered) == []


# -- which resource it was


def test_the_nack_of_a_full_state_tells_of_the_resources_that_its_message_names():
    # NAK-12, SOT-4: as Envoy writes it
    bench = Bench()
    bench.put("cds a=1 a-b=1 c=1")
    peer = bench.sotw()
    peer.ask("cds *")
    (send,) = peer.poll()
    text = "Error adding/updating cluster(s) a-b: no such type, c: bad; d"
    peer.receive(CLUSTER, SotwRequest((Key("*"),), "", send.nonce, Rejection(13, text)))
    (fact,) = bench.said(Nacked)
    assert [each.name for each in fact.variants] == ["a-b", "c"]


def test_the_nack_of_a_delta_response_tells_of_the_resources_in_it():
    # NAK-12
    bench = Bench()
    bench.put("rds a[env=prod]=1 a[env=test]=2 b=1")
    peer = bench.delta()
    peer.ask("rds +a{env=test} +b")
    peer.poll()
    peer.ask("rds nack")
    (fact,) = bench.said(Nacked)
    assert sorted((each.name, each.body) for each in fact.variants) == [("a", b"2"), ("b", b"1")]
