"""State of the world: resources that go away, and names that are not wanted any more (C2)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench, play
from xdsprism.core.model.types import ENDPOINT

FULL_STATE = ["cds", "lds", "srds"]
ONE_BY_ONE = ["eds", "rds", "sds"]


def transcript(script: str, word: str) -> None:
    """The same story for another type: `TYPE` stands for it."""
    play(script.replace("TYPE", word), mode="sotw")


# -- removals


@pytest.mark.parametrize("word", FULL_STATE)
def test_a_removed_resource_is_left_out_of_the_next_response_down_to_an_empty_one(word):
    # SOT-6
    transcript(
        """
        store TYPE a=1 b=1
        > TYPE a b
        < TYPE a=1 b=1

        > TYPE ack
        store TYPE -a
        < TYPE b=1

        > TYPE ack
        store TYPE -b
        < TYPE nothing

        > TYPE ack
        """,
        word,
    )


@pytest.mark.parametrize("word", FULL_STATE)
def test_a_wildcard_sees_the_last_resource_go(word):
    # SOT-6
    transcript(
        """
        store TYPE a=1 b=1
        > TYPE
        < TYPE a=1 b=1

        > TYPE ack
        store TYPE -a b=2
        < TYPE b=2

        > TYPE ack
        store TYPE -b
        < TYPE nothing
        """,
        word,
    )


@pytest.mark.parametrize("word", ONE_BY_ONE)
def test_a_removed_resource_of_the_other_types_is_not_spoken_of(word):
    # SOT-7
    transcript(
        """
        store TYPE a=1 b=1
        > TYPE a b
        < TYPE a=1 b=1

        > TYPE ack
        store TYPE -a

        store TYPE -b

        store TYPE a=1
        < TYPE a=1
        """,
        word,
    )


def test_a_removed_resource_shows_in_the_version_of_the_next_response():
    # SOT-7, SRV-11
    bench = Bench()
    bench.put("eds a=1 b=1")
    stayed, late = bench.sotw(), bench.sotw()
    stayed.ask("eds a b")
    stayed.poll()
    bench.put("eds -a")
    assert stayed.hears() == []
    bench.put("eds b=2")
    assert stayed.hears() == ["eds b=2"]
    late.ask("eds a b")
    assert late.hears() == ["eds b=2"]
    assert stayed.heard[ENDPOINT][-1].version == late.heard[ENDPOINT][-1].version


def test_a_locator_is_told_by_an_error_that_its_resource_went_away():
    # SOT-7, ERR-1
    play(
        """
        store rds a=1 b=1
        > rds a{} b
        < rds a[]=1 b=1

        > rds ack
        store rds -a -b
        < rds !a[]=NOT_FOUND
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ONE_BY_ONE)
def test_a_missing_name_is_remembered_and_sent_when_it_appears(word):
    # SOT-8
    transcript(
        """
        store TYPE a=1
        > TYPE a x
        < TYPE a=1

        > TYPE ack
        store TYPE x=1
        < TYPE x=1
        """,
        word,
    )


@pytest.mark.parametrize("word", FULL_STATE)
def test_a_missing_name_of_a_full_state_type_is_remembered_and_sent_with_the_rest(word):
    # SOT-8, SOT-4
    transcript(
        """
        store TYPE a=1
        > TYPE a x
        < TYPE a=1

        > TYPE ack
        store TYPE x=1
        < TYPE a=1 x=1

        > TYPE ack
        store TYPE -x
        < TYPE a=1

        > TYPE ack
        store TYPE x=2
        < TYPE a=1 x=2
        """,
        word,
    )


# -- names that are dropped


@pytest.mark.parametrize("word", ONE_BY_ONE)
def test_a_dropped_name_needs_no_response_and_is_not_heard_of_again(word):
    # SOT-10
    transcript(
        """
        store TYPE a=1 b=1
        > TYPE a b
        < TYPE a=1 b=1

        > TYPE b ack

        store TYPE a=2

        store TYPE -a

        store TYPE a=3 b=3
        < TYPE b=3
        """,
        word,
    )


@pytest.mark.parametrize("word", FULL_STATE)
def test_a_dropped_name_is_not_in_the_full_state_any_more(word):
    # SOT-10
    transcript(
        """
        store TYPE a=1 b=1
        > TYPE a b
        < TYPE a=1 b=1

        > TYPE b ack

        store TYPE a=2

        store TYPE -a

        store TYPE a=3 b=3
        < TYPE b=3
        """,
        word,
    )


def test_a_name_that_goes_away_and_is_dropped_before_a_poll_causes_no_response():
    # SOT-10, SOT-14
    play(
        """
        store cds a=1 b=1
        > cds a b
        < cds a=1 b=1

        store cds -a
        > cds b ack

        store cds b=2
        < cds b=2
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ONE_BY_ONE + FULL_STATE)
def test_an_empty_list_after_names_is_no_wildcard(word):
    # SOT-11
    transcript(
        """
        store TYPE a=1 b=1
        > TYPE a
        < TYPE a=1

        > TYPE none ack

        store TYPE a=2 b=2

        > TYPE none

        store TYPE -a

        > TYPE b
        < TYPE b=2
        """,
        word,
    )
