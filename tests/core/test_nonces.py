"""Nonces and versions (C1)."""

from __future__ import annotations

import pytest

from tests.core.modes import both, connect, wanting
from tests.core.support import Bench, play
from xdsprism.core.model.events import Key, Rejection, Send
from xdsprism.core.model.facts import Acked, Nacked
from xdsprism.core.model.types import CLUSTER, ROUTE

# -- nonces


@both
def test_every_nonce_of_a_stream_is_new(mode: str):
    # SRV-8
    bench = Bench()
    bench.put("cds a=1; rds a=1; acme.Widget a=1")
    peer = connect(bench, mode)
    sends: list[Send] = []
    for number in range(5):
        for word in ("cds", "rds", "acme.Widget"):
            peer.ask(f"{word} +a")
            peer.ask(f"{word} +a +n{number}")
        sends += peer.poll()
        bench.put(f"cds a={number}x n{number}=1")
        sends += peer.poll()
        bench.put(f"rds a={number}x")
        sends += peer.poll()
    nonces = [send.nonce for send in sends]
    assert len(nonces) > 10
    assert all(nonces)
    assert len(nonces) == len(set(nonces))


@both
@pytest.mark.parametrize("error", [None, Rejection(3, "bad")])
def test_answers_count_for_their_own_type_only(mode: str, error: Rejection | None):
    # SRV-9
    bench = Bench()
    bench.put("cds a=1; rds a=1")
    peer = connect(bench, mode)
    peer.ask("cds +a")
    peer.ask("rds +a")
    cds, rds = peer.poll()
    peer.receive(CLUSTER, wanting(mode, Key("a"), nonce=rds.nonce, error=error))
    peer.poll()
    assert [fact for fact in bench.facts if isinstance(fact, Acked | Nacked)] == []
    peer.receive(ROUTE, wanting(mode, Key("a"), nonce=rds.nonce, error=error))
    assert peer.session("cds").progress.acked == peer.session("cds").progress.nacked == 0
    facts = [fact for fact in bench.facts if isinstance(fact, Acked | Nacked)]
    assert [(fact.type_url, fact.nonce) for fact in facts] == [(ROUTE, rds.nonce)]
    assert cds.nonce != rds.nonce


@both
@pytest.mark.parametrize("error", [None, Rejection(3, "bad")])
def test_a_nonce_of_an_earlier_stream_means_nothing(mode: str, error: Rejection | None):
    # SRV-10
    bench = Bench()
    bench.put("cds a=1")
    first = connect(bench, mode)
    first.ask("cds +a")
    (send,) = first.poll()
    first.close()
    second = connect(bench, mode)
    second.receive(CLUSTER, wanting(mode, Key("a"), nonce=send.nonce, error=error))
    assert second.hears() == ["cds a=1"]
    assert [fact for fact in bench.facts if isinstance(fact, Acked | Nacked)] == []
    assert second.session("cds").progress.state == "STALE"


def test_sotw_a_stale_nonce_triggers_nothing_and_answers_not_the_newest():
    # SRV-13
    bench = play(
        """
        store rds a=1 b=1
        > rds a
        < rds a=1

        store rds a=2
        < rds a=2

        > rds @1 a b

        > rds @? a b
        """,
        mode="sotw",
    )
    assert [fact.nonce for fact in bench.said(Acked)] == ["1.rds"]


@pytest.mark.parametrize("word", ["rds", "cds"])
def test_sotw_names_that_came_with_a_stale_nonce_are_answered_with_the_next_fresh_one(word: str):
    # SRV-14
    whole = "a=2 b=1" if word == "cds" else "b=1"
    play(
        f"""
        store {word} a=1 b=1
        > {word} a
        < {word} a=1

        store {word} a=2
        < {word} a=2

        > {word} ack@1 a b

        > {word} ack@2 a b
        < {word} {whole}

        > {word} ack
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ["rds", "cds"])
def test_sotw_names_that_came_with_a_stale_nonce_go_out_with_the_next_push(word: str):
    # SRV-14
    play(
        f"""
        store {word} a=1 b=1
        > {word} a
        < {word} a=1

        store {word} a=2
        < {word} a=2

        > {word} ack@1 a b

        store {word} a=3
        < {word} a=3 b=1
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ["rds", "cds"])
def test_sotw_a_wildcard_that_came_with_a_stale_nonce_is_answered_with_the_next_fresh_one(word: str):
    # SRV-14, WLD-3
    play(
        f"""
        store {word} a=1 b=1
        > {word} a
        < {word} a=1

        store {word} a=2
        < {word} a=2

        > {word} ack@1 *

        > {word} ack@2 *
        < {word} a=2 b=1

        > {word} ack
        """,
        mode="sotw",
    )


def test_sotw_names_that_came_with_a_stale_nonce_go_out_with_a_removal_too():
    # SRV-14, ORD-3: a removal that waited is a push like any other
    play(
        """
        store cds old=1 a=1 b=1; rds r=1
        > cds a old
        > rds r
        < cds a=1 old=1
        < rds r=1

        > ack
        store cds -old a=2; rds r=2
        < cds a=2 old=1
        < rds r=2

        > cds ack@1 a b old

        > rds ack
        < cds a=2 b=1
        """,
        mode="sotw",
    )


def test_sotw_names_that_are_dropped_with_a_stale_nonce_are_dropped():
    # SRV-14
    play(
        """
        store rds a=1 b=1
        > rds a b
        < rds a=1 b=1

        store rds b=2
        < rds b=2

        > rds @1 b

        store rds a=2

        store rds b=3
        < rds b=3
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ["rds", "cds"])
def test_sotw_two_requests_before_any_response_are_both_served(word: str):
    # SRV-15
    play(
        f"""
        store {word} a=1 b=1
        > {word} a @0
        > {word} a b @0
        < {word} a=1 b=1

        > {word} ack
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ["rds", "cds"])
def test_sotw_a_second_request_without_a_nonce_that_crossed_the_response_is_served(word: str):
    # SRV-15
    play(
        f"""
        store {word} a=1 b=1
        > {word} a @0
        < {word} a=1

        > {word} a b @0
        < {word} {"a=1 b=1" if word == "cds" else "b=1"}

        > {word} ack
        """,
        mode="sotw",
    )


def test_delta_two_requests_before_any_response_are_both_served():
    # SRV-15
    play(
        """
        store cds a=1 b=1
        > cds +a
        > cds +b
        < cds a=1 b=1
        """
    )


@pytest.mark.parametrize("word", ["rds", "cds"])
def test_sotw_the_last_request_says_what_is_wanted(word: str):
    # SRV-16
    play(
        f"""
        store {word} a=1 b=1
        > {word} a
        > {word} b
        < {word} b=1

        > {word} ack
        store {word} a=2

        store {word} b=2
        < {word} b=2
        """,
        mode="sotw",
    )


@both
@pytest.mark.parametrize("word", ["cds", "eds", "lds", "rds"])
def test_after_an_ack_it_is_quiet(mode: str, word: str):
    # SRV-17, SOT-14
    play(
        f"""
        store {word} a=1
        > {word} +a +gone
        < {word} a=1 GONE

        > {word} ack

        wait 60

        store {word} a=1 b=1
        """.replace("GONE", "-gone" if mode == "delta" else ""),
        mode=mode,
    )


# -- versions


def test_sotw_versions_are_those_of_a_type_and_change_with_what_is_seen():
    # SRV-11
    bench = Bench()
    bench.put("cds a[env=prod]=1 a[env=test]=1 b=1; rds a=1 b=1 c=1")
    peer = bench.sotw(env="prod")
    peer.ask("cds *")
    peer.ask("rds a b")
    cds, rds = peer.poll()
    seen = {cds.version, rds.version}
    assert len(seen) == 2
    peer.ask("ack")
    for change in ("cds a[env=prod]=2 a[env=test]=1", "cds -b", "cds d=1", "rds a=2", "rds b=2"):
        bench.put(change)
        (send,) = peer.poll()
        assert send.version not in seen, change
        seen.add(send.version)
        peer.ask("ack")
    bench.put("cds a[env=prod]=2 a[env=test]=2; rds c=2")
    assert peer.poll() == []


def test_sotw_a_type_keeps_its_version_while_others_change():
    # SRV-11
    bench = Bench()
    bench.put("cds a=1; rds r=1 q=1")
    peer = bench.sotw()
    peer.ask("rds r")
    (before,) = peer.poll()
    bench.put("cds a=2; rds q=2")
    again = bench.sotw()
    again.ask("rds r")
    (after,) = again.poll()
    assert after.version == before.version
    assert after.version


@both
@pytest.mark.parametrize("word", ["cds", "rds"])
@pytest.mark.parametrize("wish", ["+a +b", "+*"])
def test_the_same_contents_have_the_same_version_whatever_happened_before(mode: str, word: str, wish: str):
    # SRV-12, OPS-12
    one, other = Bench(), Bench()
    one.put(f"{word} a=1 b=1")
    for text in ("b=0", "c=1 b=2", "a=7", "-c", "-a b=1", "a=1"):
        other.put(f"{word} {text}")
    versions = []
    for bench in (one, other):
        peer = connect(bench, mode)
        peer.ask(f"{word} {wish}")
        (send,) = peer.poll()
        versions.append([send.version] if mode == "sotw" else [variant.version for variant in send.plain])
    assert versions[0] == versions[1]


@pytest.mark.parametrize("word", ["cds", "rds"])
@pytest.mark.parametrize("wish", ["b a", "a a b", "* a", "*", "x b", "x a b"])
def test_sotw_the_same_contents_have_the_same_version_however_they_were_asked_for(word: str, wish: str):
    # SRV-12
    bench = Bench()
    bench.put(f"{word} a(x)=1 b=1")
    versions = []
    for names in ("a b", wish):
        peer = bench.sotw()
        peer.ask(f"{word} {names}")
        (send,) = peer.poll()
        assert sorted(send.names) == ["a", "b"]
        versions.append(send.version)
    assert versions[0] == versions[1]


@pytest.mark.parametrize("word", ["cds", "rds"])
def test_sotw_the_same_contents_have_the_same_version_however_they_came_about_on_the_stream(word: str):
    # SRV-12
    bench = Bench()
    bench.put(f"{word} a=1 b=1 c=1")
    slow, fast = bench.sotw(), bench.sotw()
    slow.ask(f"{word} c")
    slow.poll()
    slow.ask(f"{word} a c")
    slow.poll()
    slow.ask(f"{word} a b")
    (last,) = slow.poll()
    fast.ask(f"{word} a b")
    (only,) = fast.poll()
    assert last.version == only.version
