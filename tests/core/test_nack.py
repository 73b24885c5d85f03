"""What a NACK is, what it changes, and what it leaves alone (C5, the server's part)."""

from __future__ import annotations

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.rpc.status_pb2 import Status

from tests.core.modes import BAD, answer, both, connect, judged
from tests.core.support import Bench, play
from xdsprism.core.codec import Decoder
from xdsprism.core.events import DeltaRequest, Rejection, SotwRequest
from xdsprism.core.facts import Acked, Nacked
from xdsprism.core.types import CLUSTER, ROUTE

# -- what a NACK is


@both
@pytest.mark.parametrize("code", [0, 3, 13, 14])
def test_error_detail_makes_a_nack_whatever_its_code_and_the_version(mode: str, code: int):
    # NAK-1
    bench = Bench()
    bench.put("cds a=1")
    peer = connect(bench, mode)
    peer.ask("cds +a")
    (send,) = peer.poll()
    answer(peer, send, Rejection(code, ""), version=send.version)
    assert peer.hears() == []
    assert judged(bench) == [("Nacked", send.nonce)]
    assert peer.session("cds").progress.state == "NACKED"


@both
def test_error_detail_is_read_even_if_there_is_nothing_in_it(mode: str):
    # NAK-1
    kind = pb.DeltaDiscoveryRequest if mode == "delta" else pb.DiscoveryRequest
    decoder = Decoder(delta=mode == "delta")
    empty = kind(type_url=CLUSTER, response_nonce="1", error_detail=Status())
    assert decoder.decode(empty.SerializeToString()).body.error == Rejection(0, "")
    full = kind(type_url=CLUSTER, response_nonce="1", error_detail=Status(code=13, message="no"))
    assert decoder.decode(full.SerializeToString()).body.error == Rejection(13, "no")
    none = kind(type_url=CLUSTER, response_nonce="1")
    assert decoder.decode(none.SerializeToString()).body.error is None


def test_without_error_detail_it_is_an_ack_even_with_an_old_version():
    # NAK-2
    bench = Bench()
    bench.put("cds a=1")
    peer = bench.sotw()
    peer.ask("cds a")
    (first,) = peer.poll()
    answer(peer, first, version="")
    assert judged(bench) == [("Acked", first.nonce)]
    bench.put("cds a=2")
    (second,) = peer.poll()
    answer(peer, second, version=first.version)
    assert peer.hears() == []
    assert judged(bench) == [("Acked", first.nonce), ("Acked", second.nonce)]
    assert peer.session("cds").progress.state == "SYNCED"


@both
def test_a_request_that_answers_nothing_is_neither(mode: str):
    # NAK-1, NAK-2
    bench = Bench()
    bench.put("cds a=1")
    peer = connect(bench, mode)
    peer.ask("cds +a")
    (send,) = peer.poll()
    for nonce in ("", "bogus"):
        wanted = (("a", None),)
        body = DeltaRequest(nonce=nonce, error=BAD) if mode == "delta" else SotwRequest(wanted, "", nonce, BAD)
        peer.receive(CLUSTER, body)
    assert peer.hears() == []
    assert judged(bench) == []
    answer(peer, send)
    assert judged(bench) == [("Acked", send.nonce)]


# -- quiet, and when it ends


@both
@pytest.mark.parametrize("word", ["cds", "rds"])
def test_what_was_nacked_is_not_sent_again_until_it_changes(mode: str, word: str):
    # NAK-3, NAK-4
    play(
        f"""
        store {word} a=1 b=1
        > {word} +a
        < {word} a=1

        > {word} ack
        store {word} a=bad
        < {word} a=bad

        > {word} nack

        wait 60

        > {word} ack

        store {word} b=2 c=1

        store {word} a=2
        < {word} a=2
        """,
        mode=mode,
    )


@both
def test_a_change_that_the_client_does_not_see_does_not_end_the_quiet(mode: str):
    # NAK-3, DYN-18, DYN-32
    play(
        """
        store cds a[env=prod]=bad a[env=test]=1
        p> cds +a
        t> cds +a{env=test}
        p< cds a=bad
        t< cds a[env=test]=1

        p> cds nack
        t> cds ack

        store cds a[env=prod]=bad a[env=test]=2
        t< cds a[env=test]=2

        store cds a[env=prod]=2 a[env=test]=2
        p< cds a=2
        """,
        mode=mode,
        nodes={"p": {"env": "prod"}},
    )


@both
def test_a_wildcard_keeps_quiet_after_a_nack_too(mode: str):
    # NAK-3, NAK-4, WLD-11
    play(
        """
        store cds a=bad
        > cds
        < cds a=bad

        > cds nack

        store rds r=1

        store cds a=2
        < cds a=2

        > cds ack
        store cds -a
        < cds GONE
        """.replace("GONE", "-a" if mode == "delta" else "nothing"),
        mode=mode,
    )


@both
def test_a_nack_that_crosses_a_newer_response_delays_nothing(mode: str):
    # NAK-4, NAK-11
    play(
        """
        store cds a=bad
        > cds +a
        < cds a=bad

        store cds a=2
        > cds nack@1
        < cds a=2

        > cds ack
        """,
        mode=mode,
    )


@both
def test_the_same_nack_again_is_quiet_and_counts_once(mode: str):
    # NAK-5, NAK-12, NAK-28
    bench = play(
        """
        store cds a=bad
        > cds +a
        < cds a=bad

        > cds nack@1

        > cds nack@1
        > cds nack@1
        """,
        mode=mode,
    )
    assert len(bench.said(Nacked)) == 1


@both
def test_a_nack_of_one_type_changes_nothing_for_another(mode: str):
    # NAK-6, SRV-9
    bench = play(
        """
        store cds a=bad; rds a=1
        > cds +a
        > rds +a
        < cds a=bad
        < rds a=1

        > cds nack

        > rds ack
        store rds a=2
        < rds a=2

        > rds ack
        """,
        mode=mode,
    )
    assert [(fact.type_url) for fact in bench.said(Nacked)] == [CLUSTER]
    assert [(fact.type_url) for fact in bench.said(Acked)] == [ROUTE, ROUTE]


@both
def test_a_nack_by_one_client_changes_nothing_for_another(mode: str):
    # NAK-6, SRV-22
    play(
        """
        store cds a=1 b=1
        a> cds +*
        b> cds +*
        a< cds a=1 b=1
        b< cds a=1 b=1

        a> cds ack
        b> cds ack
        store cds a=2
        a< cds a=2 SAME
        b< cds a=2 SAME

        a> cds nack
        b> cds ack

        store cds a=3
        a< cds a=3 SAME
        b< cds a=3 SAME
        """.replace("SAME", "b=1" if mode == "sotw" else ""),
        mode=mode,
    )


# -- a NACK with other subscriptions in it


def test_sotw_a_nack_that_adds_a_route_gets_only_that():
    # NAK-7
    play(
        """
        store rds a=bad b=1
        > rds a
        < rds a=bad

        > rds nack a b
        < rds b=1

        > rds ack
        store rds a=2
        < rds a=2
        """,
        mode="sotw",
    )


def test_sotw_a_nack_that_adds_a_cluster_gets_everything():
    # NAK-7, SOT-4
    play(
        """
        store cds a=bad b=1
        > cds a
        < cds a=bad

        > cds nack a b
        < cds a=bad b=1

        > cds nack
        """,
        mode="sotw",
    )


def test_sotw_a_nack_that_drops_what_it_rejects_is_quiet():
    # NAK-3, SOT-10
    play(
        """
        store rds a=bad b=1
        > rds a b
        < rds a=bad b=1

        > rds nack b

        store rds a=2

        store rds b=2
        < rds b=2
        """,
        mode="sotw",
    )


def test_delta_a_nack_that_subscribes_gets_only_that():
    # NAK-7, DLT-11
    play(
        """
        store cds a=bad b=1 c=1
        > cds +a
        < cds a=bad

        > cds nack +b -c
        < cds b=1
        """
    )


def test_delta_a_nacked_name_that_is_subscribed_again_is_sent_again():
    # NAK-8
    play(
        """
        store cds a=bad
        > cds +a
        < cds a=bad

        > cds nack

        > cds +a
        < cds a=bad

        > cds nack +a
        < cds a=bad

        > cds nack
        """
    )


@both
def test_going_back_to_what_was_acked_is_sent(mode: str):
    # NAK-9
    play(
        """
        store cds a=1; rds a=1
        > cds +*
        > rds +a
        < cds a=1
        < rds a=1

        > ack
        store cds a=bad; rds a=bad
        < cds a=bad
        < rds a=bad

        > cds nack
        > rds nack

        store cds a=1; rds a=1
        < cds a=1
        < rds a=1
        """,
        mode=mode,
    )


@both
def test_a_new_stream_gets_what_was_nacked_on_the_old_one_once(mode: str):
    # NAK-10
    bench = Bench()
    bench.put("cds a=bad")
    first = connect(bench, mode)
    first.ask("cds +a")
    first.poll()
    first.ask("cds nack")
    first.close()
    second = connect(bench, mode)
    second.ask("cds +a")
    assert second.hears() == ["cds a=bad"]
    second.ask("cds nack")
    assert second.hears() == []
    bench.put("cds b=1")
    assert second.hears() == []
    assert [fact.stream for fact in bench.said(Nacked)] == [1, 2]
