"""Delta: after a NACK the good ones go out apart from the bad ones (C5)."""

from __future__ import annotations

import pytest

from tests.core.modes import BAD, answer, judged
from tests.core.support import Bench, play
from xdsprism.core.model.facts import Nacked
from xdsprism.core.model.type_names import resolve_type


def test_the_resources_of_a_nacked_response_are_sent_once_more_each_alone():
    # NAK-29, NAK-3, S12
    bench = play(
        """
        store cds a=1 b=bad c=1
        > cds +*
        < cds a=1 b=bad c=1

        > cds nack
        < cds a=1
        < cds b=bad
        < cds c=1

        > cds ack@2
        > cds nack@3
        > cds ack@4

        wait 60

        store cds a=2
        < cds a=2

        > cds ack

        store cds b=2
        < cds b=2

        > cds ack
        """
    )
    assert [name for name, _ in judged(bench)] == ["Nacked", "Acked", "Nacked", "Acked", "Acked", "Acked"]


def test_resources_that_are_nacked_alone_too_are_parked_all_of_them():
    # NAK-29, NAK-3, NAK-4
    play(
        """
        store cds a=bad b=bad
        > cds +a +b
        < cds a=bad b=bad

        > cds nack
        < cds a=bad
        < cds b=bad

        > cds nack@2
        > cds nack@3

        wait 60

        store cds a=1
        < cds a=1
        """
    )


def test_a_response_of_one_resource_that_was_nacked_is_not_repeated():
    # NAK-29, NAK-3
    play(
        """
        store cds a=bad b=1
        > cds +a
        < cds a=bad

        > cds nack

        store cds b=2
        """
    )


def test_a_removal_in_a_nacked_response_is_said_again():
    # NAK-29, S12: Envoy applies nothing of it, removals neither
    play(
        """
        store cds a=1 b=1 c=1
        > cds +*
        < cds a=1 b=1 c=1

        > cds ack
        store cds -a -b c=bad
        < cds c=bad -a -b

        > cds nack
        < cds c=bad
        < cds -a -b

        > cds nack@2
        > cds ack@3
        """
    )


def test_a_cluster_that_changed_before_the_nack_is_sent_in_its_new_version():
    # NAK-29, NAK-4
    play(
        """
        store cds a=1 b=bad c=1
        > cds +*
        < cds a=1 b=bad c=1

        store cds b=2 -c
        > cds nack
        < cds b=2 -c
        < cds a=1
        """
    )


def test_a_cluster_that_is_unsubscribed_with_the_nack_is_not_sent_again():
    # NAK-29, DLT-7
    play(
        """
        store cds a=1 b=bad c=1
        > cds +a +b +c
        < cds a=1 b=bad c=1

        > cds nack -b
        < cds a=1
        < cds c=1
        """
    )


def test_a_cluster_that_the_nack_subscribes_to_again_comes_once():
    # NAK-29, NAK-8
    play(
        """
        store cds a=1 b=bad
        > cds +a +b
        < cds a=1 b=bad

        > cds nack +a
        < cds a=1
        < cds b=bad
        """
    )


def test_variants_of_a_nacked_response_are_sent_alone_with_what_they_replace():
    # NAK-29, DYN-24, DYN-32
    play(
        """
        store cds a[env=prod]=1 b=1
        > cds +a{env=prod} +b{}
        < cds a[env=prod]=1 b[]=1

        > cds ack
        store cds a[env in (prod, test)]=bad b=2
        < cds a[env in (prod, test)]=bad -a[env=prod] b[]=2

        > cds nack
        < cds a[env in (prod, test)]=bad -a[env=prod]
        < cds b[]=2

        > cds nack@3
        > cds ack@4
        """
    )


def test_a_variant_that_is_asked_for_again_before_it_goes_out_alone_takes_along_what_it_replaced():
    # NAK-29, DYN-24: the client may have applied nothing of what it rejected, and so still have the old one
    play(
        """
        store cds a[env=prod]=1 b=1
        > cds +a{env=prod} +b{}
        < cds a[env=prod]=1 b[]=1

        > cds ack
        store cds a=2 b=bad
        < cds a[]=2 -a[env=prod] b[]=bad

        > cds nack +a{env=prod}
        < cds a[]=2 -a[env=prod]
        < cds b[]=bad
        """
    )


def test_a_variant_that_is_replaced_before_it_goes_out_alone_leaves_its_removals_to_the_next():
    # NAK-29, NAK-4, DYN-24
    play(
        """
        store cds a[env=prod]=1 b=1
        > cds +a{env=prod} +b{}
        < cds a[env=prod]=1 b[]=1

        > cds ack
        store cds a=2 b=bad
        < cds a[]=2 -a[env=prod] b[]=bad

        store cds a[env exists]=3
        > cds nack
        < cds a[env exists]=3 -a[] -a[env=prod]
        < cds b[]=bad
        """
    )


def test_withdrawals_of_two_nacked_responses_go_with_the_new_variant():
    # NAK-29, DYN-24: only the first said that the old variant is gone, and the client applied neither
    play(
        """
        store rds main[env=prod]=1 c=1
        > rds +main{env=prod,v=1} +c{}
        < rds main[env=prod]=1 c[]=1

        > rds ack
        store rds main[env=prod and v=1]=bad c=2
        < rds main[env=prod and v=1]=bad -main[env=prod] c[]=2

        store rds main[env=prod and v=1]=worse c=3
        < rds main[env=prod and v=1]=worse c[]=3

        > rds nack@2
        > rds nack@3
        < rds main[env=prod and v=1]=worse -main[env=prod]
        < rds c[]=3
        """
    )


def test_a_variant_that_waits_to_go_out_alone_still_does_though_another_of_its_name_changed():
    # NAK-29: the response with the changed one says nothing of the other
    play(
        """
        store rds main[env=prod]=1 main[env=test]=bad
        > rds +main{env=prod} +main{env=test}
        < rds main[env=prod]=1 main[env=test]=bad

        store rds main[env=prod]=1 main[env=test]=2
        > rds nack
        < rds main[env=test]=2
        < rds main[env=prod]=1
        """
    )


def test_a_removal_is_not_said_again_while_the_resource_waits_for_its_next_removal():
    # NAK-29, ORD-2: it came back since, and goes when the client has accepted the new route
    play(
        """
        store cds a=1 b=1; rds r=1
        > cds +*
        < cds a=1 b=1

        > cds ack
        store cds -a b=bad
        < cds b=bad -a

        store cds a=2
        > rds +r
        < cds a=2
        < rds r=1

        > rds ack
        store cds -a; rds r=2
        < rds r=2

        > cds nack@2
        < cds b=bad

        > rds ack
        < cds -a
        """
    )


def test_a_replaced_variant_is_not_withdrawn_for_an_ended_locator():
    # NAK-29, DLT-7, DLT-9
    play(
        """
        store cds a[env=prod]=1 b=1
        > cds +a{env=prod} +b{}
        < cds a[env=prod]=1 b[]=1

        > cds ack
        store cds a=2 b=bad
        < cds a[]=2 -a[env=prod] b[]=bad

        > cds nack -a{env=prod}
        < cds b[]=bad
        """
    )


@pytest.mark.parametrize(("tag", "old"), [("", ""), ("{}", "[]")])
def test_a_removal_of_what_was_held_by_an_alias_is_said_again(tag: str, old: str):
    # NAK-29, DLT-20: with the resource its alias went too, so that the name alone does not tell who had it
    play(
        f"""
        store cds a(x)=1 b=1
        > cds +x{tag} +b
        < cds a(x){old}=1 b=1

        > cds ack
        store cds -a b=bad
        < cds -a{old} b=bad

        > cds nack
        < cds b=bad
        < cds -a{old}
        """
    )


def test_a_nack_of_thousands_asks_a_few_at_a_time_and_ends():
    # NAK-29, OPS-6
    bench = Bench()
    names = [f"n{number}" for number in range(500)]
    bench.put("cds " + " ".join(f"{name}={'bad' if name == 'n77' else 1}" for name in names))
    peer = bench.delta()
    peer.ask("cds +*")
    (send,) = peer.poll()
    answer(peer, send, BAD)
    arrived: list[str] = []
    for _ in names:
        sends = peer.poll()
        assert len(sends) < 100
        for alone in sends:
            assert alone.count == 1
            (name,) = alone.names
            arrived.append(name)
            answer(peer, alone, BAD if name == "n77" else None)
    assert sorted(arrived) == sorted(names)
    assert list(peer.session("cds").rejections.by_label) == ["n77"]


def test_sotw_a_nacked_response_is_not_taken_apart():
    # NAK-29 is for delta: in SotW a response of one cluster would delete all the others
    play(
        """
        store cds a=1 b=bad; rds a=1 b=bad
        > cds
        > rds a b
        < cds a=1 b=bad
        < rds a=1 b=bad

        > cds nack
        > rds nack
        """,
        mode="sotw",
    )


def test_a_nack_of_nothing_is_quiet():
    # NAK-3, WLD-10
    bench = play(
        """
        > cds
        < cds nothing

        > cds nack
        """
    )
    (fact,) = bench.said(Nacked)
    assert fact.type_url == resolve_type("cds")
