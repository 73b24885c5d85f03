"""How long a connection of HTTP/1 may take: by the clock of the test."""

from __future__ import annotations

import pytest

from xdsprism.http2.facts import HttpRefusal
from xdsprism.server.http_deadlines import HttpDeadlines, HttpTimes, IdleConnections

TIMES = HttpTimes(header=10, idle=75, unread=30, answer=600)


@pytest.fixture
def deadlines() -> HttpDeadlines:
    return HttpDeadlines(TIMES, 100.0)


def test_a_connection_that_says_nothing_has_the_time_of_a_header(deadlines: HttpDeadlines) -> None:
    assert not deadlines.is_over(109.9, 0)
    assert deadlines.is_over(110.0, 0)
    assert not deadlines.is_within_header


def test_a_header_is_not_prolonged_by_its_bytes(deadlines: HttpDeadlines) -> None:
    for now in range(100, 110):
        deadlines.note_bytes(float(now))
        assert not deadlines.is_over(float(now), 0)
    assert deadlines.is_within_header
    assert deadlines.is_over(110.0, 0)


def test_between_two_requests_there_is_more_time_and_for_the_second_header_as_much_as_for_the_first(
    deadlines: HttpDeadlines,
) -> None:
    deadlines.note_bytes(101.0)
    deadlines.begin(101.0)
    deadlines.end(102.0, 0)
    assert not deadlines.is_over(176.9, 0)
    deadlines.note_bytes(150.0)
    assert not deadlines.is_over(159.9, 0)
    assert deadlines.is_over(160.0, 0)


def test_a_next_header_does_not_prolong_the_time_between_two_requests(deadlines: HttpDeadlines) -> None:
    deadlines.begin(101.0)
    deadlines.end(102.0, 0)
    deadlines.note_bytes(176.0)
    assert deadlines.is_over(177.0, 0)


def test_a_request_that_waits_for_its_answer_has_all_the_time_that_the_answer_takes(deadlines: HttpDeadlines) -> None:
    deadlines.begin(100.0)
    for now in range(100, 700):
        deadlines.note_bytes(float(now))
        assert not deadlines.is_over(float(now), 0)
    assert deadlines.is_over(700.0, 0)


def test_an_answer_that_is_written_and_not_read_has_the_time_of_reading_and_not_that_between_requests(
    deadlines: HttpDeadlines,
) -> None:
    deadlines.begin(100.0)
    deadlines.end(100.0, 5_000)
    assert not deadlines.is_idle
    assert not deadlines.is_over(130.0, 5_000)  # it may have been written just now
    assert deadlines.is_over(160.0, 5_000)
    assert deadlines.fault is HttpRefusal.UNREAD


def test_an_answer_that_is_written_and_read_slowly_is_not_cut_off(deadlines: HttpDeadlines) -> None:
    deadlines.begin(100.0)
    deadlines.end(100.0, 5_000)
    for step in range(1, 10):
        assert not deadlines.is_over(100.0 + 30 * step, 5_000 - step)
    assert not deadlines.is_over(400.0, 0)
    assert deadlines.is_idle
    assert not deadlines.is_over(474.9, 0)
    assert deadlines.is_over(475.0, 0)
    assert deadlines.fault is None


def test_an_unread_answer_is_not_waited_for(deadlines: HttpDeadlines) -> None:
    deadlines.begin(100.0)
    assert not deadlines.is_over(130.0, 5_000)  # it may have been written just now
    assert not deadlines.is_over(160.0, 4_000)  # some of it was read
    assert deadlines.is_over(190.0, 4_000)


def test_an_answer_that_is_read_byte_by_byte_has_an_end(deadlines: HttpDeadlines) -> None:
    deadlines.begin(100.0)
    unsent = 100_000
    while not deadlines.is_over(deadlines.due, unsent):
        unsent -= 1
    assert deadlines.due == 700.0


def test_the_longest_idle_connection_is_evicted_of_its_address_or_of_the_largest() -> None:
    waiting: IdleConnections[int] = IdleConnections()
    assert waiting.oldest_of_largest() is waiting.oldest_of("a") is None
    for number in (1, 2, 3):
        waiting.add("a", number)
    waiting.add("b", 4)
    assert (waiting.oldest_of("a"), waiting.oldest_of("b"), waiting.oldest_of_largest()) == (1, 4, 1)
    waiting.discard("a", 1)
    waiting.add("a", 1)  # it asked for something in between
    assert waiting.oldest_of_largest() == 2
    for number in (1, 2, 3):
        waiting.discard("a", number)
    waiting.discard("a", 5)
    assert (waiting.oldest_of("a"), waiting.oldest_of_largest()) == (None, 4)


def test_an_answer_without_end_may_last_as_long_as_its_client_reads_all_of_it(deadlines: HttpDeadlines) -> None:
    deadlines.begin(100.0)
    deadlines.never_end()
    for now in range(100, 10_000):
        assert not deadlines.is_over(float(now), 0)


def test_of_an_answer_without_end_that_is_not_read_the_time_is_that_of_reading(deadlines: HttpDeadlines) -> None:
    deadlines.begin(100.0)
    deadlines.never_end()
    assert not deadlines.is_over(130.0, 5_000)
    assert deadlines.is_over(160.0, 5_000)
    assert deadlines.fault is HttpRefusal.UNREAD


def test_of_an_answer_without_end_that_is_never_read_to_its_end_the_time_is_that_of_an_answer(
    deadlines: HttpDeadlines,
) -> None:
    deadlines.begin(100.0)
    deadlines.never_end()
    assert not deadlines.is_over(130.0, 0)
    unread = iter(range(1_000_000, 0, -1))
    over = [now for now in range(131, 900) if deadlines.is_over(float(now), next(unread))]
    assert over[0] == 730


def test_an_answer_after_one_without_end_has_an_end(deadlines: HttpDeadlines) -> None:
    deadlines.begin(100.0)
    deadlines.never_end()
    deadlines.end(200.0, 0)
    deadlines.begin(200.0)
    assert not any(deadlines.is_over(float(now), 0) for now in range(200, 800))
    assert deadlines.is_over(800.0, 0)
