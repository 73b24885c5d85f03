"""Wildcards together with explicit names (C3)."""

from __future__ import annotations

import pytest

from tests.core.modes import both
from tests.core.support import Bench, play

# -- with explicit names


def test_sotw_goes_from_everything_to_a_name_to_nothing():
    # WLD-3, WLD-7, SOT-11
    play(
        """
        store cds a=1 b=1
        > cds
        < cds a=1 b=1

        > cds * a
        < cds a=1 b=1

        > cds ack
        store cds b=2
        < cds a=1 b=2

        > cds a

        store cds b=3

        store cds a=2
        < cds a=2

        > cds none

        store cds a=3 b=4 c=1

        > cds none
        """,
        mode="sotw",
    )


def test_delta_goes_from_everything_to_a_name_to_nothing():
    # WLD-4, WLD-9
    play(
        """
        store cds a=1 b=1
        > cds
        < cds a=1 b=1

        > cds ack +a
        < cds a=1

        > cds ack
        store cds b=2 c=1
        < cds b=2 c=1

        > cds ack -*

        store cds b=3 -c

        store cds a=2
        < cds a=2

        > cds ack -a

        store cds a=3 b=4 c=2

        > cds
        """
    )


@pytest.mark.parametrize("named", ["a", "*", "a{}", "*{env=prod}", "missing"])
def test_sotw_an_empty_list_is_no_wildcard_once_anything_was_named(named: str):
    # WLD-5, DYN-20
    bench = Bench()
    bench.put("cds a=1 b=1")
    peer = bench.sotw()
    peer.ask(f"cds {named}")
    assert len(peer.poll()) == 1
    peer.ask("cds none")
    assert peer.hears() == []
    bench.put("cds a=2 b=2 c=1")
    assert peer.hears() == []
    peer.ask("cds none @0")
    assert peer.hears() == []
    assert [*peer.session("cds").subscriptions] == []


def test_sotw_a_legacy_wildcard_that_was_named_later_is_no_legacy_wildcard_any_more():
    # WLD-5
    play(
        """
        store cds a=1
        > cds
        < cds a=1

        > cds *

        store cds a=2
        < cds a=2

        > cds none

        store cds a=3
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("named", ["a", "*", "a{}", "*{env=prod}", "missing"])
def test_delta_an_empty_message_is_no_wildcard_once_anything_was_named(named: str):
    # WLD-5
    bench = Bench()
    bench.put("cds a=1 b=1")
    peer = bench.delta()
    peer.ask(f"cds +{named}")
    assert len(peer.poll()) == 1
    peer.ask(f"cds -{named}")
    peer.ask("cds")
    assert peer.hears() == []
    bench.put("cds a=2 b=2 c=1")
    assert peer.hears() == []
    assert [*peer.session("cds").subscriptions] == []


def test_an_explicit_name_survives_the_wildcard_whichever_came_first():
    # WLD-7, WLD-9
    play(
        """
        store cds a=1 b=1
        > cds +a
        < cds a=1

        > cds ack +*
        < cds b=1

        > cds ack -*

        store cds a=2 b=2
        < cds a=2

        b> cds +*
        b< cds a=2 b=2

        b> cds ack +a
        b< cds a=2

        b> cds ack -*

        > cds -a
        store cds a=3 b=3
        b< cds a=3

        store cds -a -b
        b< cds -a
        """
    )


def test_sotw_an_explicit_name_survives_the_wildcard_whichever_came_first():
    # WLD-7
    play(
        """
        store lds a=1 b=1
        > lds a
        < lds a=1

        > lds a *
        < lds a=1 b=1

        > lds a

        store lds b=2

        store lds a=2
        < lds a=2
        """,
        mode="sotw",
    )


def test_a_missing_name_next_to_a_wildcard_is_remembered_when_the_wildcard_goes():
    # WLD-7, DLT-5
    play(
        """
        store cds b=1
        > cds +* +a
        < cds b=1 -a

        > cds ack -*

        store cds a=1 b=2
        < cds a=1
        """
    )


# -- unsubscribing a name that a wildcard covers


def test_unsubscribing_a_name_that_the_wildcard_still_covers_is_answered_with_it():
    # WLD-6
    play(
        """
        store cds a=1 b=1
        > cds +* +a
        < cds a=1 b=1

        > cds ack -a
        < cds a=1

        > cds ack
        store cds a=2
        < cds a=2
        """
    )


def test_unsubscribing_a_name_that_the_wildcard_does_not_cover_is_answered_with_its_removal():
    # WLD-6
    play(
        """
        store cds b=1 c[env=prod]=p
        > cds +* +a +c
        < cds b=1 -a -c

        > cds ack -a
        < cds -a

        > cds ack -c
        < cds -c

        > cds ack
        store cds a=1
        < cds a=1
        """
    )


def test_unsubscribing_what_only_the_wildcard_covers_is_ignored():
    # WLD-6, DLT-8
    play(
        """
        store cds a=1
        > cds +*
        < cds a=1

        > cds ack -a

        store cds a=2
        < cds a=2
        """
    )


def test_unsubscribing_by_alias_what_the_wildcard_covers_is_answered_with_it():
    # WLD-6, DLT-20
    play(
        """
        store cds a(x)=1
        > cds +* +x
        < cds a(x)=1

        > cds ack -x
        < cds a(x)=1

        > cds ack +a
        < cds a(x)=1

        > cds ack -x
        < cds a(x)=1
        """
    )


def test_unsubscribing_a_locator_is_answered_only_where_a_wildcard_with_its_params_is_there():
    # WLD-6, DYN-19, DYN-41
    play(
        """
        store cds a[env=prod]=p a[env=test]=t
        > cds +*{env=prod} +a{env=prod} +a{env=test} +a
        < cds -a
        < cds a[env=prod]=p a[env=test]=t

        > cds ack -a{env=prod}
        < cds a[env=prod]=p

        > cds ack -a{env=test} -a

        store cds a[env=prod]=p2 a[env=test]=t2
        < cds a[env=prod]=p2
        """
    )


def test_unsubscribing_wildcard_and_name_in_one_message_needs_no_answer():
    # WLD-6, WLD-9
    play(
        """
        store cds a=1 b=1
        > cds +* +a
        < cds a=1 b=1

        > cds ack -a -*

        store cds a=2 b=2
        """
    )


def test_a_first_message_that_only_unsubscribes_is_no_wildcard():
    # WLD-8
    play(
        """
        store cds a=1
        > cds -b

        > cds

        store cds a=2
        """
    )


def test_unsubscribing_the_wildcard_removes_nothing():
    # WLD-9
    play(
        """
        store cds a=1 b=1
        > cds +*
        < cds a=1 b=1

        > cds ack -*

        store cds -a b=2
        """
    )


def test_a_wildcard_that_is_back_brings_everything():
    # WLD-2, WLD-9
    play(
        """
        store cds a=1 b=1
        > cds +*
        < cds a=1 b=1

        > cds ack -*
        store cds -b

        > cds +*
        < cds a=1
        """
    )


@both
def test_wildcards_with_different_params_are_different_subscriptions(mode: str):
    # WLD-13, DYN-41
    play(
        """
        store cds a[env=prod]=p a[env=test]=t b[env=test]=1
        > cds +*{env=prod}
        < cds a[env=prod]=p

        > cds ack
        store cds b[env=test]=2

        store cds a[env=prod]=p2 a[env=test]=t
        < cds a[env=prod]=p2
        """,
        mode=mode,
    )
