"""Delta: subscriptions, responses and removals (C4)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench, play, variant
from xdsprism.core.model.events import DeltaRequest, Key
from xdsprism.core.model.facts import Forgotten
from xdsprism.core.model.settings import Limits, Settings
from xdsprism.core.model.types import CLUSTER, Params


def test_every_resource_has_a_name_a_version_and_a_body_and_every_response_a_nonce():
    # DLT-1, DLT-24
    bench = Bench()
    bench.put("cds a=1 b=2")
    peer = bench.delta()
    peer.ask("cds +a +b")
    (send,) = peer.poll()
    assert send.nonce
    assert send.version  # system_version_info
    assert [(v.name, v.body) for v in send.plain] == [("a", b"1"), ("b", b"2")]
    assert [v.version for v in send.plain] == [variant("cds", "a=1").version, variant("cds", "b=2").version]


def test_only_what_changed_is_sent():
    # DLT-2, DLT-7
    play(
        """
        store cds a=1 b=1 c=1
        > cds +a +b
        < cds a=1 b=1

        > cds ack

        store cds a=2 c=2
        < cds a=2
        """
    )


def test_subscribing_again_sends_again():
    # DLT-3
    play(
        """
        store cds a=1
        > cds +a
        < cds a=1

        > cds ack

        > cds +a
        < cds a=1
        """
    )


def test_subscribing_again_to_what_is_missing_is_answered_again():
    # DLT-3, DLT-4, DYN-22
    play(
        """
        > cds +a
        < cds -a

        > cds ack +a
        < cds -a

        > cds ack +b{env=prod}
        < cds -b[]

        > cds ack +b{env=prod}
        < cds -b[]
        """
    )


def test_a_missing_name_is_answered_at_once_and_sent_when_it_appears():
    # DLT-4, DLT-5
    play(
        """
        store cds a=1
        > cds +a +b
        < cds a=1 -b

        > cds ack

        store cds b=1
        < cds b=1
        """
    )


def test_names_that_nothing_has_are_remembered_up_to_a_limit_and_sent_when_they_appear():
    # VHD-25, VHD-21, DLT-5
    bench = play(
        """
        store cds a=1; eds e=1
        > cds +a +b +c +d
        < cds a=1 -b -c -d

        > cds ack
        > eds +e +x
        < eds e=1 -x

        > eds ack
        > cds +f -c
        < cds -f

        > cds ack
        store cds a=2 b=1 c=1 d=1 f=1 other=1; eds x=1
        < cds a=2 b=1 d=1 f=1
        < eds x=1

        > ack
        store cds b=2
        < cds b=2

        > ack
        > cds -b
        store cds b=3
        """,
        settings=Settings(limits=Limits(unresolved=1)),
    )
    assert [fact.names for fact in bench.facts if isinstance(fact, Forgotten)] == [2, 1]


def test_unknown_names_among_very_many_are_answered_without_a_subscription():
    # VHD-25
    bench = Bench(Settings(limits=Limits(unresolved=3)))
    bench.put("cds a=1 z=1")
    peer = bench.delta()
    peer.ask("cds +a +1 +2 +3 +4 +5 +z +l{env=prod}")
    kept = [Key("a"), Key("3"), Key("4"), Key("5"), Key("z"), Key("l", Params({"env": "prod"}))]
    assert [*peer.session("cds").subscriptions] == kept, "before it is answered"
    assert peer.hears() == ["cds -1 -2 -3 -4 -5 -l[] a=1 z=1"]
    assert [*peer.session("cds").subscriptions] == kept, "and after"
    assert [fact.names for fact in bench.facts if isinstance(fact, Forgotten)] == [2]
    peer.ask("cds ack")
    bench.put("cds 1=1 5=1 l=1")
    assert peer.hears() == ["cds 1=1 5=1 l[]=1"]


def test_a_name_that_was_forgotten_is_sent_when_it_comes_to_match():
    # VHD-25, DYN-10
    play(
        """
        store cds a[env=test]=t
        > cds +a +b
        < cds -a -b

        > ack
        store cds a[env=test]=t a[env=dev]=d

        store cds a[env=test]=t a[env=prod]=p
        < cds a=p
        """,
        settings=Settings(limits=Limits(unresolved=1)),
        node={"env": "prod"},
    )


def test_forgotten_names_end_with_their_stream():
    # VHD-25
    bench = Bench(Settings(limits=Limits(unresolved=1)))
    peer = bench.delta()
    peer.ask("cds +a +b")
    assert peer.hears() == ["cds -a -b"]
    peer.stream.close()
    bench.put("cds a=1")
    assert bench.left_behind() == {}


def test_a_deleted_resource_is_removed_once_and_pushed_when_it_is_back():
    # DLT-6
    play(
        """
        store cds a=1
        > cds +a
        < cds a=1

        > cds ack
        store cds -a
        < cds -a

        > cds ack

        store cds b=1

        store cds a=1
        < cds a=1
        """
    )


def test_a_resource_deleted_and_restored_between_polls_is_not_sent_again():
    # DLT-2
    bench = play(
        """
        store cds a=1
        > cds +a
        < cds a=1

        > cds ack
        > rds +r
        < rds -r

        > rds ack
        """
    )
    peer = bench.delta()
    peer.ask("cds +a +*")
    peer.poll()
    bench.put("cds -a")
    bench.put("cds a=1")
    assert peer.hears() == []


def test_updates_of_unsubscribed_names_are_not_sent():
    # DLT-7, DLT-9
    play(
        """
        store cds a=1 b=1
        > cds +a +b
        < cds a=1 b=1

        > cds ack -a

        store cds a=2

        store cds -a b=2
        < cds b=2
        """
    )


def test_unsubscribing_what_was_never_subscribed_is_ignored():
    # DLT-8
    play(
        """
        store cds a=1
        > cds +a
        < cds a=1

        > cds ack -b -c{env=prod} -*

        store cds a=2
        < cds a=2
        """
    )


def test_subscriptions_count_whatever_the_nonce():
    # DLT-10
    play(
        """
        store cds a=1 b=1 c=1
        > cds +a
        < cds a=1

        store cds a=2
        < cds a=2

        > cds ack@1 +b
        < cds b=1

        > cds @? +c
        < cds c=1

        > cds @? -a

        store cds a=3 b=3
        < cds b=3
        """
    )


def test_one_message_may_answer_and_subscribe_and_unsubscribe():
    # DLT-11
    bench = play(
        """
        store cds a=1 b=1 c=1
        > cds +a
        < cds a=1

        > cds ack +b -a
        < cds b=1

        > cds nack +c
        < cds c=1

        store cds a=2 c=2
        < cds c=2
        """
    )
    assert [type(fact).__name__ for fact in bench.facts if type(fact).__name__ in ("Acked", "Nacked")] == [
        "Acked",
        "Nacked",
    ]


def test_the_same_name_in_subscribe_and_unsubscribe_is_a_subscription():
    # DLT-18
    play(
        """
        store cds a=1
        > cds +a -a
        < cds a=1

        > cds ack +a -a
        < cds a=1

        store cds a=2
        < cds a=2
        """
    )


def test_a_name_that_is_asked_for_twice_comes_once():
    # SRV-19, DLT-19
    play(
        """
        store cds a=1
        > cds +a +a +*
        < cds a=1
        """
    )


# -- reconnects


def test_on_a_new_stream_what_is_old_is_sent_and_what_is_current_is_not():
    # DLT-12, DLT-13
    play(
        """
        store cds a=1 b=2
        > cds +a +b have a=1 b=1
        < cds b=2

        > cds ack
        store cds a=2
        < cds a=2
        """
    )


def test_a_later_subscription_is_answered_whatever_was_had_before():
    # DLT-13, DLT-16
    play(
        """
        store cds a=1 b=1
        > cds +a have a=1 b=1

        > cds +a +b have a=1 b=1
        < cds a=1 b=1
        """
    )


def test_endpoints_are_sent_again_on_a_new_stream_even_if_they_are_current():
    # DLT-13: Envoy's cluster would warm for 15 s
    play(
        """
        store eds a=1; rds a=1
        > eds +a have a=1
        > rds +a have a=1
        < eds a=1
        """
    )


def test_endpoints_of_a_wildcard_are_sent_again_on_a_new_stream_even_if_they_are_current():
    # DLT-13
    play(
        """
        store eds a=1; rds a=1
        > eds +* have a=1
        > rds +* have a=1
        < eds a=1
        """
    )


def test_a_returning_wildcard_is_told_of_members_that_are_gone():
    # DLT-14
    play(
        """
        store cds a=1 b=2 c=1
        > cds have a=1 b=1 gone=1
        < cds b=2 c=1

        wait 6   # the routes of that client may not have moved off it yet
        < cds -gone
        """
    )


def test_a_wildcard_that_has_everything_is_told_nothing():
    # DLT-13, WLD-10, OPS-12
    play(
        """
        store cds a=1 b=1
        > cds +* have a=1 b=1

        """
    )


def test_a_subscribed_name_that_is_gone_comes_back_as_removed():
    # DLT-15
    play(
        """
        store cds a=1
        > cds +a +b have a=1 b=1
        < cds -b
        """
    )


def test_initial_versions_of_what_is_not_subscribed_are_ignored():
    # DLT-16
    play(
        """
        store cds a=1 b=1
        > cds +a have b=7 gone=1
        < cds a=1

        wait 6   # a removal may take as long
        """
    )


def test_without_initial_versions_everything_is_sent():
    # DLT-17
    play(
        """
        store cds a=1 b=1
        > cds +a +b
        < cds a=1 b=1

        b> cds +*
        b< cds a=1 b=1
        """
    )


# -- aliases


def test_a_resource_can_be_asked_for_by_its_alias():
    # DLT-20
    play(
        """
        store cds a(x, y)=1
        > cds +x
        < cds a(x, y)=1

        > cds ack

        store cds a(x, y)=2
        < cds a(x, y)=2

        > cds ack -x

        store cds a(x, y)=3
        """
    )


def test_a_resource_asked_for_by_alias_can_be_unsubscribed_by_name_or_another_alias():
    # DLT-20
    play(
        """
        store cds a(x, y)=1
        > cds +x
        < cds a(x, y)=1

        > cds ack -a

        store cds a(x, y)=2

        > cds +x
        < cds a(x, y)=2

        > cds ack -y

        store cds a(x, y)=3
        """
    )


def test_an_alias_that_is_not_known_yet_is_sent_when_it_appears():
    # DLT-5, DLT-20
    play(
        """
        store cds a=1
        > cds +x
        < cds -x

        store cds a(x)=1
        < cds a(x)=1

        store cds -a
        < cds -a
        """
    )


def test_name_and_alias_of_one_resource_bring_it_once():
    # DLT-19, DLT-20, SRV-19
    play(
        """
        store cds a(x)=1
        > cds +a +x +*
        < cds a(x)=1

        store cds a(x)=2
        < cds a(x)=2

        store cds -a
        < cds -a
        """
    )


def test_a_resource_that_loses_an_alias_is_not_removed_from_who_wants_it_by_name():
    # DLT-19, DLT-20
    play(
        """
        store cds a(x)=1
        > cds +a +x
        < cds a(x)=1

        store cds a=2
        < cds a=2

        b> cds +* +x
        b< cds a=2 -x

        store cds a(x)=3
        < cds a(x)=3
        b< cds a(x)=3

        store cds a=4
        < cds a=4
        b< cds a=4
        """
    )


def test_an_alias_that_moves_takes_the_old_resource_away_from_who_has_it_by_that_alias_only():
    # DLT-20
    play(
        """
        store cds a(x)=1 b=1
        > cds +x
        < cds a(x)=1

        b> cds +x +a
        b< cds a(x)=1

        store cds a=1 b(x)=1
        < cds b(x)=1 -a
        b< cds a=1 b(x)=1
        """
    )


@pytest.mark.parametrize(("key", "held"), [("y", "main"), ("y{env=prod}", "main[env=prod]")])
def test_an_alias_that_one_variant_loses_is_lost_for_who_has_another_variant_by_it(key: str, held: str):
    # DLT-20, DYN-25: an alias belongs to the name with all its variants; the variant of this client stays as it is
    play(
        f"""
        store rds main[env=prod]=p main(y)[env!=prod]=t
        > rds +{key}
        < rds {held}=p

        > rds ack
        store rds main[env=prod]=p main[env!=prod]=t
        < rds -{held}
        """,
        node={"env": "prod"},
    )


def test_a_name_wins_over_an_alias():
    # DLT-20: our choice
    play(
        """
        store cds a(x)=1
        > cds +x
        < cds a(x)=1

        store cds x=1
        < cds x=1 -a

        store cds -x
        < cds a(x)=1 -x
        """
    )


# -- order of things said


def test_a_delete_and_a_new_resource_in_one_transaction_are_one_response():
    # DLT-2
    play(
        """
        store cds a=1
        > cds +*
        < cds a=1

        store cds -a b=1
        < cds b=1 -a
        """
    )


def test_responses_do_not_wait_for_answers():
    # DLT-23
    play(
        """
        store cds a=1
        > cds +*
        < cds a=1

        store cds a=2
        < cds a=2

        store cds a=3
        < cds a=3
        """
    )


def test_changes_between_two_polls_are_one_response_with_the_last_state():
    # DLT-23, SOT-16
    bench = Bench()
    peer = bench.delta()
    peer.ask("cds +a +b")
    wild = bench.delta()
    wild.ask("cds +*")
    for number in range(100):
        bench.put(f"cds a={number} c{number}=1")
        bench.put(f"cds b={number} -c{number}")
    assert peer.hears() == ["cds a=99 b=99"]
    assert wild.hears() == ["cds a=99 b=99"]


def test_an_update_that_changes_nothing_is_silent():
    # DLT-2
    play(
        """
        store cds a=1
        > cds +a +*
        < cds a=1

        store cds a=1
        """
    )


def test_a_wildcard_asked_for_again_still_hears_of_what_went_meanwhile():
    # DLT-3, WLD-11
    bench = Bench()
    bench.put("cds a=1 b=1")
    peer = bench.delta()
    peer.ask("cds +*")
    assert peer.hears() == ["cds a=1 b=1"]
    bench.put("cds -a")
    peer.ask("cds ack +*")
    assert peer.hears() == ["cds -a b=1"]


def test_100_000_names_in_both_lists_take_no_quadratic_time():
    names = tuple(Key(f"n{number}") for number in range(100_000))
    peer = Bench().delta()
    peer.receive(CLUSTER, DeltaRequest(names, names))
    (send,) = peer.poll()
    assert len(send.removed) == 100_000
