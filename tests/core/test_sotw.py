"""State of the world: what each list of names brings, and how things go away (C2)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench, play
from xdsprism.core.facts import Suppressed
from xdsprism.core.settings import Settings
from xdsprism.core.types import CLUSTER, ENDPOINT

FULL_STATE = ["cds", "lds", "srds"]
ONE_BY_ONE = ["eds", "rds", "sds"]


def transcript(script: str, word: str) -> None:
    """The same story for another type: `TYPE` stands for it."""
    play(script.replace("TYPE", word), mode="sotw")


# -- first requests


def test_a_first_request_brings_all_that_it_names_and_that_exists_in_one_response():
    # SOT-1
    play(
        """
        store cds a=1 b=1 c=1; lds l=1 m=1 n=1
        > cds b a missing
        > lds m l
        < cds a=1 b=1
        < lds l=1 m=1
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ONE_BY_ONE)
def test_a_first_request_for_what_is_sent_one_by_one_brings_all_that_exists_too(word):
    # SOT-1
    transcript(
        """
        store TYPE a=1 b=1 c=1
        > TYPE a missing b
        < TYPE a=1 b=1
        """,
        word,
    )


@pytest.mark.parametrize("word", FULL_STATE)
def test_a_first_request_for_what_is_missing_is_answered_at_once_for_full_state_types(word):
    # SOT-9
    transcript(
        """
        store TYPE a=1
        > TYPE x y
        < TYPE nothing

        > TYPE ack

        store TYPE a=2
        """,
        word,
    )


@pytest.mark.parametrize("word", ONE_BY_ONE)
def test_a_first_request_for_what_is_missing_is_quiet_for_the_others(word):
    # SOT-9: in Envoy an empty update may end the warming of a cluster with no hosts
    transcript(
        """
        store TYPE a=1
        > TYPE x y

        store TYPE a=2
        """,
        word,
    )


def test_who_reads_errors_is_told_at_once_what_is_missing():
    # SOT-9, SOT-7
    play(
        """
        store eds a=1; cds a=1
        > eds a x
        > cds y
        < cds !y[]=NOT_FOUND
        < eds a=1 !x[]=NOT_FOUND

        > ack
        store eds -a
        < eds !a[]=NOT_FOUND

        > ack
        store eds a=2 x=2
        < eds a=2 x=2
        """,
        mode="sotw",
        settings=Settings(resource_errors="all"),
    )


# -- names that are added


@pytest.mark.parametrize("word", ONE_BY_ONE)
def test_a_name_that_is_added_is_sent_although_nothing_changed(word):
    # SOT-2
    transcript(
        """
        store TYPE a=1 b=1
        > TYPE a
        < TYPE a=1

        > TYPE a b ack
        < TYPE b=1

        > TYPE a b ack
        """,
        word,
    )


@pytest.mark.parametrize("word", FULL_STATE)
def test_a_name_that_is_added_brings_the_full_state(word):
    # SOT-2, SOT-4
    transcript(
        """
        store TYPE a=1 b=1 c=1
        > TYPE a
        < TYPE a=1

        > TYPE a b ack
        < TYPE a=1 b=1
        """,
        word,
    )


def test_a_name_that_a_wildcard_brought_before_is_sent_when_it_is_named():
    # SOT-2
    play(
        """
        store rds a=1 b=1; cds a=1 b=1
        > rds *
        > cds *
        < cds a=1 b=1
        < rds a=1 b=1

        > rds * b ack
        > cds * b ack
        < cds a=1 b=1
        < rds b=1
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ONE_BY_ONE + FULL_STATE)
def test_a_name_that_was_dropped_and_is_wanted_again_is_sent_again(word):
    # SOT-3
    transcript(
        """
        store TYPE a=1
        > TYPE a
        < TYPE a=1

        > TYPE none ack

        > TYPE a
        < TYPE a=1
        """,
        word,
    )


def test_a_name_that_is_dropped_and_wanted_again_before_a_poll_is_sent_again():
    # SOT-3
    play(
        """
        store eds a=1
        > eds a
        < eds a=1

        > eds none ack
        > eds a
        < eds a=1
        """,
        mode="sotw",
    )


def test_one_request_or_several_reach_the_same_state():
    # SOT-15
    bench = Bench()
    bench.put("eds a=1 b=1 c=1; cds a=1 b=1 c=1")
    at_once, by_and_by = bench.sotw(), bench.sotw()
    for word in ("eds", "cds"):
        at_once.ask(f"{word} a b c")
        at_once.poll()
        at_once.ask(f"{word} ack")
        for names in ("c", "c a", "c a b"):
            by_and_by.ask(f"{word} {names} ack")
            by_and_by.poll()
        by_and_by.ask(f"{word} ack")
        assert set(at_once.session(word).subscriptions) == set(by_and_by.session(word).subscriptions)
    assert at_once.heard[ENDPOINT][-1].version == by_and_by.heard[ENDPOINT][-1].version
    assert at_once.heard[CLUSTER][-1].version == by_and_by.heard[CLUSTER][-1].version
    bench.put("eds b=2; cds b=2")
    expected = ["cds a=1 b=2 c=1", "eds b=2"]
    assert at_once.hears() == expected
    assert by_and_by.hears() == expected
    assert at_once.heard[ENDPOINT][-1].version == by_and_by.heard[ENDPOINT][-1].version


# -- changes


@pytest.mark.parametrize("word", FULL_STATE)
def test_a_change_brings_every_subscribed_resource_of_a_full_state_type(word):
    # SOT-4
    transcript(
        """
        store TYPE a=1 b=1 c=1 d=1
        > TYPE a b c
        < TYPE a=1 b=1 c=1

        > TYPE ack
        store TYPE b=2 d=2
        < TYPE a=1 b=2 c=1

        > TYPE ack
        store TYPE d=3
        """,
        word,
    )


@pytest.mark.parametrize("word", ONE_BY_ONE)
def test_a_change_brings_only_what_changed_of_the_other_types(word):
    # SOT-5
    transcript(
        """
        store TYPE a=1 b=1 c=1 d=1
        > TYPE a b c
        < TYPE a=1 b=1 c=1

        > TYPE ack
        store TYPE b=2 d=2
        < TYPE b=2
        """,
        word,
    )


def test_changes_between_two_polls_are_one_response_with_the_last_state():
    # SOT-16
    bench = Bench()
    bench.put("cds a=0 b=0; eds a=0 b=0")
    peer, wild = bench.sotw(), bench.sotw()
    peer.ask("cds a b c")
    peer.ask("eds a b c")
    wild.ask("cds")
    assert peer.hears() == ["cds a=0 b=0", "eds a=0 b=0"]
    assert wild.hears() == ["cds a=0 b=0"]
    for number in range(1, 50):
        bench.put(f"cds a={number} c=1 d=1; eds a={number} c={number}")
        bench.put(f"cds b={number} -c -d; eds b={number}")
    assert peer.hears() == ["cds a=49 b=49", "eds a=49 b=49 c=49"]
    assert wild.hears() == ["cds a=49 b=49"]


@pytest.mark.parametrize("word", ONE_BY_ONE + FULL_STATE)
def test_what_changes_and_changes_back_between_two_polls_is_no_change(word):
    # SOT-14, SOT-16
    transcript(
        """
        store TYPE a=1
        > TYPE a
        < TYPE a=1

        > TYPE ack
        store TYPE a=2
        store TYPE -a
        store TYPE a=1
        """,
        word,
    )


# -- reconnects


@pytest.mark.parametrize(("word", "type_url"), [("cds", CLUSTER), ("eds", ENDPOINT)])
def test_on_a_new_stream_names_are_sent_although_the_version_is_current(word, type_url):
    # SOT-12
    bench = Bench()
    bench.put(f"{word} a=1 b=1")
    before, after = bench.sotw(), bench.sotw()
    before.ask(f"{word} a b")
    (send,) = before.poll()
    after.version[type_url] = send.version
    after.ask(f"{word} a b")
    assert after.hears() == [f"{word} a=1 b=1"]
    assert after.heard[type_url][0].version == send.version


@pytest.mark.parametrize("names", ["", "*"])
def test_on_a_new_stream_a_wildcard_at_the_current_version_is_told_only_what_changes(names):
    # SOT-12
    bench = Bench()
    bench.put("cds a=1 b=1")
    before, after = bench.sotw(), bench.sotw()
    before.ask(f"cds {names}")
    (send,) = before.poll()
    after.version[CLUSTER] = send.version
    after.ask(f"cds {names}")
    assert after.hears() == []
    assert bench.said(Suppressed) == [Suppressed(2, CLUSTER, 2)]
    bench.put("cds -a b=2")
    assert after.hears() == ["cds b=2"]
    bench.put("cds -b")
    assert after.hears() == ["cds nothing"]


def test_on_a_new_stream_a_wildcard_with_names_beside_it_is_sent_everything():
    # SOT-12: a name may be new to this client
    bench = Bench()
    bench.put("cds a=1 b=1")
    before, after = bench.sotw(), bench.sotw()
    before.ask("cds *")
    after.version[CLUSTER] = before.poll()[0].version
    after.ask("cds * a")
    assert after.hears() == ["cds a=1 b=1"]


def test_the_version_of_another_class_of_clients_is_not_the_current_one():
    # SOT-12, SOT-13
    bench = Bench()
    bench.put("cds a[env=prod]=p a[env=test]=t")
    prod, test = bench.sotw(env="prod"), bench.sotw(env="test")
    prod.ask("cds")
    test.version[CLUSTER] = prod.poll()[0].version
    test.ask("cds")
    assert test.hears() == ["cds a=t"]


@pytest.mark.parametrize(("word", "names"), [("cds", ""), ("cds", "*"), ("lds", "a b"), ("eds", "a b")])
def test_on_a_new_stream_an_unknown_version_brings_the_full_current_state(word, names):
    # SOT-13
    bench = Bench()
    bench.put(f"{word} a=1 b=1")
    peer = bench.sotw()
    for type_url in (table.spec.url for table in bench.store.tables()):
        peer.version[type_url] = "0123456789abcdef"
    peer.ask(f"{word} {names}")
    assert peer.hears() == [f"{word} a=1 b=1"]


# -- silence


@pytest.mark.parametrize("word", [word for word in ONE_BY_ONE if word != "eds"] + FULL_STATE)
def test_a_request_that_changes_nothing_is_not_answered(word):
    # SOT-14; endpoints are the exception, since a warming cluster asks for them like this (ORD-5)
    transcript(
        """
        store TYPE a=1 b=1
        > TYPE a b
        < TYPE a=1 b=1

        > TYPE ack

        > TYPE a b

        > TYPE b a

        > TYPE b a a b

        > TYPE a b missing
        """,
        word,
    )
