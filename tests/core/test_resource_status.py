"""What an operator is told of each resource of a client, and since when the client is behind."""

from __future__ import annotations

import pytest

from xdsprism.core.model.events import Send
from xdsprism.core.session.in_flight import MOST, InFlight
from xdsprism.core.session.resource_status import mentions
from xdsprism.core.session.sync_state import SyncState, worst


def _sent(flight: InFlight, number: int) -> None:
    flight.add(Send("t", delta=True, nonce=f"n{number}", version=""), float(number), None, ())


def test_a_client_is_stale_since_the_oldest_unanswered_response():
    flight = InFlight("cds")
    assert flight.stale_since is None
    for number in range(1, 4):
        _sent(flight, number)
    assert flight.stale_since == 1.0
    response = flight.answer("n1")
    assert response is not None
    flight.accepted(response, 9.0)
    assert flight.stale_since == 2.0


# a client that answers nothing is behind since the first response, however many of them were forgotten since then
def test_responses_that_are_forgotten_still_say_since_when():
    flight = InFlight("cds")
    for number in range(1, 3 * MOST):
        _sent(flight, number)
    assert (len(flight), flight.stale_since) == (MOST, 1.0)
    newest = flight.answer(f"n{3 * MOST - 1}")
    assert newest is not None
    flight.accepted(newest, 500.0)
    flight.drop_superseded()
    assert flight.stale_since is None
    for number in range(600, 600 + 2 * MOST):
        _sent(flight, number)
    assert flight.stale_since == 600.0


def test_a_client_is_in_the_worst_state_of_its_types():
    assert worst([]) is SyncState.NOT_SENT
    assert worst([SyncState.SYNCED, SyncState.NOT_SENT]) is SyncState.NOT_SENT
    assert worst([SyncState.NOT_SENT, SyncState.STALE]) is SyncState.STALE
    assert worst([SyncState.STALE, SyncState.NACKED, SyncState.SYNCED]) is SyncState.NACKED


@pytest.mark.parametrize(
    ("message", "name", "found"),
    [
        ("Error adding/updating listener(s) http: bad", "http", True),
        ("listener https: bad", "http", False),
        ("myhttp is bad, and http/2", "http", True),
        ("http", "http", True),
        ("a (b)", "", False),
        ("cluster a/b-1.", "a/b-1", True),
    ],
)
def test_a_message_mentions_a_name_as_a_word(message: str, name: str, found: bool):
    assert mentions(message, name) is found
