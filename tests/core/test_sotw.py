"""State of the world: lists of names, answers, nonces and versions (C1, C2)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench, play
from xdsprism.core.model.events import Key, Node, Request, SotwRequest
from xdsprism.core.model.facts import OtherNode, Suppressed
from xdsprism.core.model.types import CLUSTER, ROUTE, Params, TypeSpec
from xdsprism.errors import PeerError


def sotw(script: str, **more: object) -> Bench:
    return play(script, mode="sotw", **more)  # type: ignore[arg-type]


# -- what is answered


def test_a_named_request_is_answered_with_all_that_exists_in_one_response():
    # SOT-1
    sotw(
        """
        store cds a=1 b=1 c=1; rds r=1
        > cds a b missing
        > rds r missing
        < cds a=1 b=1
        < rds r=1
        """
    )


def test_an_added_name_is_sent_at_an_unchanged_version():
    # SOT-2
    sotw(
        """
        store cds a=1 b=1; rds r=1 s=1
        > cds a
        > rds r
        < cds a=1
        < rds r=1

        > cds ack a b
        > rds ack r s
        < cds a=1 b=1
        < rds s=1
        """
    )


def test_an_added_name_is_sent_even_if_a_wildcard_had_sent_it_unasked():
    # SOT-2
    sotw(
        """
        store cds a=1; eds a=1
        > cds *
        > eds *
        < cds a=1
        < eds a=1

        > cds ack * a
        > eds ack * a
        < cds a=1
        < eds a=1
        """
    )


@pytest.mark.parametrize("word", ["cds", "rds"])
def test_a_name_that_was_dropped_and_is_wanted_again_is_sent_again(word: str):
    # SOT-3
    sotw(
        f"""
        store {word} a=1
        > {word} a
        < {word} a=1

        > {word} ack none

        > {word} a
        < {word} a=1
        """
    )


def test_clusters_and_listeners_are_always_sent_as_the_full_state():
    # SOT-4
    sotw(
        """
        store cds a=1 b=1; lds a=1 b=1
        > cds a b
        > lds
        < cds a=1 b=1
        < lds a=1 b=1

        > ack
        store cds a=2; lds b=2
        < cds a=2 b=1
        < lds a=1 b=2
        """
    )


def test_other_types_send_only_what_changed():
    # SOT-5
    sotw(
        """
        store rds a=1 b=1; eds a=1 b=1; sds a=1 b=1
        > rds a b
        > eds a b
        > sds a b
        < eds a=1 b=1
        < sds a=1 b=1
        < rds a=1 b=1

        > ack
        store rds a=2; eds b=2; sds a=2
        < eds b=2
        < sds a=2
        < rds a=2
        """
    )


def test_a_removed_cluster_is_left_out_and_the_last_one_leaves_an_empty_response():
    # SOT-6
    sotw(
        """
        store cds a=1 b=1
        > cds
        < cds a=1 b=1

        > cds ack
        store cds -a
        < cds b=1

        > cds ack
        store cds -b
        < cds nothing

        > cds ack a b

        store cds a=2
        < cds a=2
        """
    )


def test_there_is_no_deletion_signal_for_other_types():
    # SOT-7
    sotw(
        """
        store rds a=1 b=1; eds a=1
        > rds a b
        > eds a
        < eds a=1
        < rds a=1 b=1

        > ack
        store rds -a; eds -a

        store rds b=2
        < rds b=2
        """
    )


def test_a_missing_name_is_remembered_and_sent_when_it_is_there():
    # SOT-8, SOT-9
    sotw(
        """
        > cds a
        > rds a
        < cds nothing

        > ack
        store cds a=1; rds a=1
        < cds a=1
        < rds a=1
        """
    )


def test_dropping_names_needs_no_response_and_stops_their_updates():
    # SOT-10, SOT-11
    sotw(
        """
        store cds a=1 b=1; rds a=1 b=1
        > cds a b
        > rds a b
        < cds a=1 b=1
        < rds a=1 b=1

        > cds ack b
        > rds ack b

        store cds a=2; rds a=2

        > cds none
        > rds none

        store cds a=3 b=3; rds a=3 b=3

        > cds b
        < cds b=3
        """
    )


def test_a_named_subscription_on_a_new_stream_is_answered_even_at_the_current_version():
    # SOT-12, SOT-13
    bench = Bench()
    bench.put("cds a=1; rds a=1")
    old = bench.sotw()
    old.ask("cds a")
    old.ask("rds a")
    versions = {send.type_url: send.version for send in old.poll()}
    new = bench.sotw()
    new.version = versions
    new.ask("cds a")
    new.ask("rds a")
    assert new.hears() == ["cds a=1", "rds a=1"]


def test_a_wildcard_at_the_current_version_is_not_sent_what_it_has():
    # SOT-12, OPS-12
    bench = Bench()
    bench.put("cds a=1 b=1")
    old = bench.sotw()
    old.ask("cds")
    (send,) = old.poll()
    for names in ("", " *"):
        new = bench.sotw()
        new.version[CLUSTER] = send.version
        new.ask("cds" + names)
        assert new.hears() == []
        bench.put(f"cds a={len(bench.facts)}")
        assert len(new.hears()) == 1
        bench.put("cds a=1")
    assert [fact.resources for fact in bench.said(Suppressed)] == [2, 2]


def test_a_wildcard_at_an_unknown_version_gets_everything():
    # SOT-13
    bench = Bench()
    bench.put("cds a=1 b=1")
    peer = bench.sotw()
    peer.version[CLUSTER] = "from another server"
    peer.ask("cds")
    assert peer.hears() == ["cds a=1 b=1"]


def test_a_request_that_changes_nothing_is_not_answered():
    # SOT-14, SRV-17
    sotw(
        """
        store cds a=1; rds a=1
        > cds a
        > rds a
        < cds a=1
        < rds a=1

        > ack

        > cds
        > rds
        """
    )


def test_names_in_one_request_or_in_several_come_to_the_same():
    # SOT-15
    sotw(
        """
        store rds a=1 b=1 c=1
        > rds a b c
        < rds a=1 b=1 c=1

        b> rds a
        b> rds a b
        b> rds a b c
        b< rds a=1 b=1 c=1

        > ack
        b> ack

        store rds b=2
        < rds b=2
        b< rds b=2
        """
    )


def test_changes_while_nobody_polls_are_one_response_with_the_last_state():
    # SOT-16
    bench = Bench()
    bench.put("cds a=0 b=0; rds a=0 b=0")
    peer = bench.sotw()
    peer.ask("cds")
    peer.ask("rds a b")
    peer.poll()
    for number in range(100):
        bench.put(f"cds a={number}; rds a={number}")
    bench.put("cds -b")
    assert peer.hears() == ["cds a=99 b=0", "rds a=99"]
    peer.ask("ack")
    assert peer.hears() == ["cds a=99"]


# -- nonces


def test_nonces_and_answers_of_one_type_are_nothing_to_another():
    # SRV-9, NAK-6
    bench = sotw(
        """
        store cds a=1; rds a=1
        > cds a
        > rds a
        < cds a=1
        < rds a=1

        > cds nack
        > rds ack

        store rds a=2
        < rds a=2
        """
    )
    kinds = [(type(fact).__name__, fact.type_url) for fact in bench.facts if hasattr(fact, "nonce")]
    assert [kind for kind, _ in kinds] == ["Sent", "Sent", "Nacked", "Acked", "Sent"]


def test_a_nonce_in_a_first_request_means_nothing():
    # SRV-10
    bench = Bench()
    bench.put("cds a=1")
    peer = bench.sotw()
    peer.receive(CLUSTER, SotwRequest((Key("a"),), "v", "1.cds"))
    assert peer.hears() == ["cds a=1"]


def test_a_stale_nonce_is_no_answer_to_the_newest_response():
    # SRV-13, NAK-11
    bench = Bench()
    bench.put("rds a=1")
    peer = bench.sotw()
    peer.ask("rds a")
    peer.poll()
    bench.put("rds a=2")
    peer.poll()
    peer.ask("rds nack@1")
    peer.ask("rds @?")
    assert peer.hears() == []
    assert peer.session("rds").progress.acked == 0
    assert peer.session("rds").progress.nacked == 1
    peer.ask("rds ack@2")
    assert peer.session("rds").progress.acked == 2
    assert peer.session("rds").progress.state == "SYNCED"


def test_names_added_with_a_stale_nonce_come_with_the_next_fresh_one():
    # SRV-13, SRV-14
    sotw(
        """
        store rds a=1 b=1
        > rds a
        < rds a=1

        store rds a=2
        < rds a=2

        > rds @1 a b

        > rds @2 a b
        < rds b=1
        """
    )


def test_names_added_with_a_stale_nonce_come_with_the_next_push():
    # SRV-14
    sotw(
        """
        store rds a=1 b=1
        > rds a
        < rds a=1

        store rds a=2
        < rds a=2

        > rds @1 a b

        store rds a=3
        < rds a=3 b=1
        """
    )


def test_names_dropped_with_a_stale_nonce_are_dropped():
    # SRV-14
    sotw(
        """
        store rds a=1 b=1; cds a=1 b=1
        > rds a b
        > cds a b
        < cds a=1 b=1
        < rds a=1 b=1

        store rds b=2; cds b=2
        < cds a=1 b=2
        < rds b=2

        > rds @1 b
        > cds @1 b

        store rds a=3; cds a=3

        store rds b=3; cds b=3
        < cds b=3
        < rds b=3
        """
    )


def test_two_requests_before_any_answer_count_both():
    # SRV-15
    sotw(
        """
        store rds a=1 b=1
        > rds a
        > rds a b
        < rds a=1 b=1
        """
    )


def test_a_later_list_supersedes_an_earlier_one():
    # SRV-16
    sotw(
        """
        store rds a=1 b=1; cds a=1 b=1
        > rds a
        > rds b
        > cds a
        > cds b
        < cds b=1
        < rds b=1

        > ack
        store rds a=2; cds a=2
        """
    )


def test_nonces_are_unique_on_a_stream_and_across_its_types():
    # SRV-8
    bench = Bench()
    peer = bench.sotw()
    for number in range(20):
        bench.put(f"cds a={number}; rds a={number}")
        peer.ask("cds a" if number % 2 else "cds none")
        peer.ask("rds a" if number % 3 else "rds none")
        peer.poll()
    nonces = [send.nonce for sends in peer.heard.values() for send in sends]
    assert len(nonces) > 20
    assert len(set(nonces)) == len(nonces)


def test_responses_name_the_type_that_was_asked_for():
    # SRV-18; the bench looks at what is inside of every response
    bench = Bench()
    bench.put("cds a=1")
    peer = bench.sotw()
    peer.ask("cds a")
    (send,) = peer.poll()
    assert send.type_url == CLUSTER


def test_duplicate_names_bring_one_copy():
    # SRV-19
    sotw(
        """
        store cds a=1; rds a=1
        > cds a a
        > rds a a
        < cds a=1
        < rds a=1
        """
    )


# -- versions


def test_the_version_is_that_of_the_contents_whatever_led_to_them():
    # SRV-11, SRV-12, OPS-12
    first, second = Bench(), Bench()
    first.put("rds a=1 b=1; cds a=1 b=1")
    second.put("rds a=0; cds a=0 b=0 c=0")
    second.put("rds b=1; cds b=1 -c")
    second.put("rds a=1; cds a=1")
    for word in ("rds", "cds"):
        versions = []
        for bench in (first, second):
            peer = bench.sotw()
            peer.ask(f"{word} a b")
            versions.append(peer.poll()[0].version)
        assert versions[0] == versions[1]


@pytest.mark.parametrize("word", ["rds", "cds"])
def test_the_version_changes_with_what_the_client_sees_and_comes_back_with_it(word: str):
    # SRV-11, SRV-12
    bench = Bench()
    peer = bench.sotw()
    peer.ask(f"{word} a b")
    versions = []
    for content in ("a=1 b=1", "a=2", "b=2", "a=1", "b=1"):
        bench.put(f"{word} {content}")
        versions += [send.version for send in peer.poll() if send.plain]
    assert versions[0] == versions[-1]
    assert len(set(versions)) == 4


def test_the_version_of_one_type_is_nothing_to_another():
    # SRV-11
    bench = Bench()
    bench.put("cds a=1; rds a=1")
    peer = bench.sotw()
    peer.ask("cds a")
    peer.ask("rds a")
    peer.poll()
    peer.ask("ack")
    bench.put("cds a=2")
    assert [send.type_url for send in peer.poll()] == [CLUSTER]


# -- types and nodes


def test_an_empty_type_ends_an_aggregated_stream():
    # SRV-4
    with pytest.raises(PeerError, match="type_url is empty") as caught:
        Bench().sotw().receive("", SotwRequest((Key("a"),)))
    assert caught.value.status == "INVALID_ARGUMENT"


def test_an_empty_type_on_a_service_of_one_type_is_that_type():
    # SRV-3
    bench = Bench()
    bench.put("cds a=1")
    peer = bench.sotw(only_type=CLUSTER)
    peer.receive("", SotwRequest((Key("a"),)))
    assert peer.hears() == ["cds a=1"]


def test_another_type_on_a_service_of_one_type_ends_the_stream():
    # SRV-3
    peer = Bench().sotw(only_type=CLUSTER)
    with pytest.raises(PeerError, match=r"not type.googleapis.com/x"):
        peer.receive("type.googleapis.com/x", SotwRequest((Key("a"),)))


def test_an_unknown_type_is_quiet_and_disturbs_no_other():
    # SRV-5
    sotw(
        """
        store cds a=1
        > no.such.Type a b
        > cds a
        < cds a=1
        """
    )
    play(
        """
        store cds a=1
        > no.such.Type +a +b
        > cds +a
        < cds a=1
        < no.such.Type -a -b
        """
    )


def test_any_type_works_once_somebody_puts_one():
    # SRV-5
    sotw(
        """
        > my.own.Type a

        store my.own.Type a=1
        < my.own.Type a=1
        """
    )


def test_a_type_of_ones_own_can_be_full_state_and_have_wildcards():
    # WLD-12, SOT-4
    url = "type.googleapis.com/my.own.Type"
    sotw(
        """
        store my.own.Type a=1 b=1
        > my.own.Type
        < my.own.Type a=1 b=1

        store my.own.Type a=2
        < my.own.Type a=2 b=1
        """,
        types=(TypeSpec(url, full_state=True, wildcard=True),),
    )


def test_the_node_of_the_first_message_counts_and_later_ones_are_only_counted():
    # SRV-6, SRV-7
    bench = Bench()
    bench.put("rds a[env=prod]=p a[env!=prod]=t b[env=prod]=p b[env!=prod]=t")
    peer = bench.sotw(env="prod")
    peer.ask("rds a")
    assert peer.hears() == ["rds a=p"]
    peer.ask("rds ack a b")
    assert peer.hears() == ["rds b=p"]
    other = Node("envoy-2", metadata=Params({"env": "test"}))
    wanted = SotwRequest((Key("a"), Key("b"), Key("c")), nonce=peer.heard[ROUTE][-1].nonce)
    peer.stream.receive(Request(ROUTE, wanted, other, other_node=True), bench.now)
    bench.put("rds c[env=prod]=p c[env!=prod]=t")
    assert peer.hears() == ["rds c=p"]
    assert len(bench.said(OtherNode)) == 1
    assert peer.stream.node is not None
    assert peer.stream.node.id == "envoy-1"


def test_a_stream_without_a_node_is_anonymous():
    # SRV-7
    bench = Bench()
    bench.put("cds a=1 b[env=prod]=1")
    peer = bench.connect(None, delta=False)
    peer.ask("cds")
    assert peer.hears() == ["cds a=1"]


def test_two_streams_of_one_node_are_independent():
    # SRV-22, NAK-6
    sotw(
        """
        store cds a=1 b=1; rds a=1
        > cds a
        b> cds b
        b> rds a
        < cds a=1
        b< cds b=1
        b< rds a=1

        > cds nack
        b> cds ack

        store cds a=2 b=2; rds a=2
        < cds a=2
        b< cds b=2
        b< rds a=2
        """
    )


def test_only_what_was_asked_for_is_sent():
    # SRV-21, SRV-23
    sotw(
        """
        store cds a=1 b=1; rds a=1 b=1; eds a=1
        > rds a
        < rds a=1

        store cds a=2 b=2; rds b=2; eds a=2
        """
    )
