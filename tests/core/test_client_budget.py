"""How many streams a client may have, and how often it may fetch (OPS-3, OPS-4)."""

from __future__ import annotations

import pytest

from xdsprism import Limits
from xdsprism.core.model.client_budget import MEMORY, SHOWN, ClientBudget
from xdsprism.errors import UsageError


def budget(**limits: int) -> ClientBudget:
    return ClientBudget(Limits(**limits))


def test_a_client_has_so_many_streams_and_others_have_theirs() -> None:
    # OPS-3
    found = budget(client_streams=2, all_streams=9)
    assert [found.open_stream("greedy") is None for _ in range(3)] == [True, True, False]
    assert found.open_stream("modest") is None
    assert found.open == 3  # what was refused does not count


def test_a_stream_that_ends_makes_room() -> None:
    # OPS-3, OPS-7
    found = budget(client_streams=1)
    assert found.open_stream("a") is None
    assert found.open_stream("a") is not None
    found.close_stream("a")
    assert found.open == 0
    assert found.open_stream("a") is None


def test_one_client_has_three_quarters_of_all_streams_unless_it_is_said() -> None:
    # OPS-3
    found = budget(all_streams=8)
    assert [found.open_stream("greedy") is None for _ in range(7)] == [True] * 6 + [False]
    assert [found.open_stream(f"modest {number}") is None for number in range(3)] == [True, True, False]
    assert budget(all_streams=1).open_stream("a") is None


def test_a_refusal_says_which_limit_and_what_to_do() -> None:
    # OPS-3
    found = budget(client_streams=1, all_streams=2)
    found.open_stream("a")
    of_client = found.open_stream("a")
    found.open_stream("b")
    of_all = found.open_stream("c")
    assert of_client is not None
    assert of_all is not None
    assert of_client.limit == "client_streams"
    assert of_client.message.startswith("a has 1 streams at this server, and may have no more: end some")
    assert "--limit client_streams=N" in of_client.message
    assert of_all.limit == "all_streams"
    assert "ask another server, or start this one with a higher --limit all_streams=N" in of_all.message


def test_a_client_fetches_so_often_and_then_is_told_when_to_come_again() -> None:
    # OPS-4
    found = budget(fetches=2)
    assert [found.fetch("a", 10.0) is None for _ in range(11)] == [True] * 10 + [False]
    assert found.fetch("b", 10.0) is None
    refused = found.fetch("a", 10.1)
    assert refused is not None
    assert refused.limit == "fetches"
    assert refused.seconds == pytest.approx(0.4)
    assert found.fetch("a", 10.1 + refused.seconds) is None


def test_how_often_a_client_exceeded_a_limit_is_known() -> None:
    # OPS-3, OPS-4
    found = budget(client_streams=1, fetches=1)
    found.open_stream("a")
    assert not found.exceeded("a")
    found.open_stream("a")
    found.open_stream("a")
    for _ in range(6):
        found.fetch("a", 0.0)
    assert found.exceeded("a") == {"client_streams": 2, "fetches": 1}
    assert found.all_exceeded() == {"a": {"client_streams": 2, "fetches": 1}}


def test_what_is_known_of_clients_that_come_and_go_is_bounded() -> None:
    # OPS-6
    found = budget(all_streams=1, fetches=1)
    found.open_stream("there")
    for number in range(SHOWN + 5):
        found.open_stream(f"client {number}")
    assert len(found.all_exceeded()) == SHOWN
    assert f"client {SHOWN + 4}" in found.all_exceeded()
    for _ in range(5):
        assert found.fetch("first", 0.0) is None
    for number in range(MEMORY):
        found.fetch(f"client {number}", 0.0)
    assert found.fetch("first", 0.0) is None  # it was forgotten


@pytest.mark.parametrize("name", ["client_streams", "all_streams", "requests", "reports", "fetches"])
def test_a_limit_with_which_nobody_is_served_is_an_error(name: str) -> None:
    with pytest.raises(UsageError, match=f"the limit {name} is 0, and has to be more than 0"):
        Limits(**{name: 0})


def test_a_limit_is_not_negative() -> None:
    with pytest.raises(UsageError, match="the limit hosts is -1, and has to be 0 or more"):
        Limits(hosts=-1)
    assert Limits(hosts=0).hosts == 0
