"""Why a resource is not there, said per resource (C12, the server's part)."""

from __future__ import annotations

import pytest

from tests.core.modes import both, connect
from tests.core.support import Bench, play
from xdsprism.core.model.constraints import Eq
from xdsprism.core.model.events import Absence
from xdsprism.core.model.settings import Settings

ALL = Settings(resource_errors="all")
NONE = Settings(resource_errors="none")


# -- who is told what


@both
@pytest.mark.parametrize("word", ["cds", "rds"])
def test_a_missing_name_is_an_error_with_its_name_a_code_and_a_text(mode: str, word: str):
    # ERR-1
    bench = Bench(ALL)
    peer = connect(bench, mode)
    peer.ask(f"{word} +gone")
    (send,) = peer.poll()
    (error,) = send.errors
    assert error.about.name == "gone"
    assert error.code == 5  # NOT_FOUND
    assert "'gone'" in error.message
    assert send.names == ()


@both
def test_a_locator_without_a_variant_is_an_error_that_says_for_whom(mode: str):
    # ERR-1, DYN-11
    bench = Bench(ALL)
    bench.put("rds r[env=prod]=p r[env=test]=t")
    peer = connect(bench, mode)
    peer.ask("rds +r{env=qa,zone=z}")
    (send,) = peer.poll()
    (error,) = send.errors
    assert error.about == Absence("r", Eq("env", "qa"))
    assert error.code == 5


def test_by_default_errors_are_for_sotw_locators():
    # ERR-1, DYN-11, SOT-9
    play(
        """
        s> rds r{env=qa}
        p> rds r
        d> rds +r{env=qa}
        e> rds +r
        d< rds -r[]
        e< rds -r
        s< rds !r[]=NOT_FOUND
        """,
        modes={"s": "sotw", "p": "sotw"},
    )


def test_errors_can_be_turned_off():
    # ERR-1
    play(
        """
        s> rds r{env=qa} q
        t> cds r{env=qa} q
        d> rds +r{env=qa} +q
        d< rds -r[] -q
        t< cds nothing
        """,
        modes={"s": "sotw", "t": "sotw"},
        settings=NONE,
    )


def test_errors_can_be_for_everybody():
    # ERR-1, ERR-5
    play(
        """
        s> rds q
        d> rds +r{env=qa} +q
        d< rds -r[] -q !r[]=NOT_FOUND !q[]=NOT_FOUND
        s< rds !q[]=NOT_FOUND
        """,
        modes={"s": "sotw"},
        settings=ALL,
    )


# -- never both, never again


@both
def test_a_name_is_either_a_resource_or_an_error(mode: str):
    # ERR-2, ERR-4
    bench = Bench(ALL)
    bench.put("cds a=1 b[env=prod]=1 c=1")
    peer = connect(bench, mode)
    peer.ask("cds +a +b +c +d")
    (send,) = peer.poll()
    assert send.names == ("a", "c")
    assert sorted(error.about.name for error in send.errors) == ["b", "d"]


def test_one_locator_of_a_name_may_get_an_error_and_another_the_resource():
    # ERR-2: the constraints tell them apart
    play(
        """
        store rds r[env=prod]=p
        > rds r{env=prod} r{env=qa}
        < rds r[env=prod]=p !r[env=qa]=NOT_FOUND
        """,
        mode="sotw",
    )


def test_two_locators_with_one_reason_are_one_error():
    # ERR-2, DYN-17
    play(
        """
        store rds r[env=prod]=p
        > rds r{env=qa} r{env=qa,zone=z}
        < rds !r[env=qa]=NOT_FOUND
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("word", ["cds", "lds"])
def test_sotw_an_error_is_not_repeated_in_later_responses(word: str):
    # ERR-3, ERR-4
    play(
        f"""
        store {word} a=1
        > {word} a gone b{{}}
        < {word} a=1 !gone[]=NOT_FOUND !b[]=NOT_FOUND

        > {word} ack

        store {word} a=2
        < {word} a=2

        > {word} ack
        store {word} -a
        < {word} !a[]=NOT_FOUND

        > {word} ack
        store {word} a=3
        < {word} a=3
        """,
        mode="sotw",
        settings=ALL,
    )


def test_sotw_an_error_that_was_acked_or_nacked_is_not_repeated():
    # ERR-3, NAK-3
    play(
        """
        > rds gone
        < rds !gone[]=NOT_FOUND

        > rds ack

        > rds gone also
        < rds !also[]=NOT_FOUND

        > rds nack

        wait 60
        """,
        mode="sotw",
        settings=ALL,
    )


@both
def test_a_variant_for_others_does_not_repeat_an_error(mode: str):
    # ERR-3
    play(
        """
        store rds a=1
        > rds +a +gone
        < rds a=1 GONE !gone[]=NOT_FOUND

        > rds ack
        store rds -a
        < rds REMOVED

        > rds ack
        store rds a[env=prod]=1 gone[env=prod]=1

        store rds a=2 gone=2
        < rds a=2 gone=2
        """.replace("GONE", "-gone" if mode == "delta" else "").replace(
            "REMOVED", "-a" if mode == "delta" else "!a[]=NOT_FOUND"
        ),
        mode=mode,
        settings=ALL,
    )


def test_sotw_a_new_subscription_gets_the_error_again():
    # ERR-3
    play(
        """
        store cds a=1
        > cds a gone
        < cds a=1 !gone[]=NOT_FOUND

        > cds a

        > cds a gone
        < cds a=1 !gone[]=NOT_FOUND

        b> cds gone
        b< cds !gone[]=NOT_FOUND
        """,
        mode="sotw",
        settings=ALL,
    )


def test_delta_an_error_is_said_once_and_to_a_new_subscription_again():
    # ERR-3, ERR-5, DLT-3
    play(
        """
        > cds +gone
        < cds -gone !gone[]=NOT_FOUND

        > cds ack
        store cds a=1

        > cds +gone
        < cds -gone !gone[]=NOT_FOUND

        > cds ack -gone

        > cds +gone
        < cds -gone !gone[]=NOT_FOUND
        """,
        settings=ALL,
    )


def test_sotw_a_response_with_errors_holds_all_that_is_there():
    # ERR-4, SOT-4
    play(
        """
        store cds a=1 b=1
        > cds a b
        < cds a=1 b=1

        > cds a b gone
        < cds a=1 b=1 !gone[]=NOT_FOUND

        > cds ack
        store cds -b
        < cds a=1 !b[]=NOT_FOUND
        """,
        mode="sotw",
        settings=ALL,
    )


@pytest.mark.parametrize("errors", ["locators", "all", "none"])
def test_delta_removals_are_said_whoever_reads_errors(errors: str):
    # ERR-5, DLT-4, DLT-6
    bench = Bench(Settings(resource_errors=errors))  # type: ignore[arg-type]
    bench.put("cds a=1")
    peer = bench.delta()
    peer.ask("cds +a +gone +lost{env=qa}")
    (send,) = peer.poll()
    assert send.removed == ("gone",)
    assert [absence.name for absence in send.withdrawn] == ["lost"]
    assert len(send.errors) == (2 if errors == "all" else 0)
    bench.put("cds -a")
    (send,) = peer.poll()
    assert send.removed == ("a",)


@both
@pytest.mark.parametrize("wish", ["", "+*", "+*{env=prod}"])
def test_a_wildcard_has_no_errors(mode: str, wish: str):
    # ERR-6
    form = "[]" if "{" in wish else ""
    play(
        f"""
        store cds q[env=qa]=1
        > cds {wish}
        < cds nothing

        > cds ack
        store cds a=1
        < cds a{form}=1

        > cds ack
        store cds -a
        < cds {"nothing" if mode == "sotw" else f"-a{form}"}
        """,
        mode=mode,
        settings=ALL,
    )


@both
@pytest.mark.parametrize("word", ["cds", "rds"])
def test_a_resource_that_appears_later_is_sent_and_ends_its_error(mode: str, word: str):
    # ERR-7
    play(
        f"""
        > {word} +a
        < {word} GONE !a[]=NOT_FOUND

        > {word} ack
        store {word} a=1
        < {word} a=1

        > {word} ack
        store {word} a=2
        < {word} a=2
        """.replace("GONE", "-a" if mode == "delta" else ""),
        mode=mode,
        settings=ALL,
    )


@both
def test_a_resource_that_appears_in_the_same_turn_is_never_an_error(mode: str):
    # ERR-2, ERR-7
    play(
        """
        > rds +a
        store rds a=1
        < rds a=1
        """,
        mode=mode,
        settings=ALL,
    )


def test_sotw_a_variant_that_appears_for_a_locator_ends_its_error():
    # ERR-7, DYN-10
    play(
        """
        store rds r[env=prod]=p
        > rds r{env=qa}
        < rds !r[env=qa]=NOT_FOUND

        > rds ack
        store rds r[env=prod]=p r[env=qa]=q
        < rds r[env=qa]=q

        > rds ack
        store rds r[env=prod]=p
        < rds !r[env=qa]=NOT_FOUND
        """,
        mode="sotw",
    )


def test_sotw_to_who_reads_errors_a_route_that_went_away_is_one():
    # ERR-1, SOT-7
    play(
        """
        store rds a=1 b=1
        > rds a b
        < rds a=1 b=1

        > rds ack
        store rds -a
        < rds !a[]=NOT_FOUND

        > rds ack
        store rds b=2
        < rds b=2

        p> rds a b
        p< rds b=2 !a[]=NOT_FOUND
        """,
        mode="sotw",
        settings=ALL,
    )
