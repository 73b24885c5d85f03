"""When a PING of the client is answered: at once, or with the next write (section 6.7)."""

from __future__ import annotations

from math import inf

import pytest

from tests.http2.rig import CALL, Client, Frame, headers, of, only
from xdsprism.http2 import frames
from xdsprism.http2.codes import ACK, DATA, GOAWAY, INITIAL_WINDOW_SIZE, PING, SETTINGS, Code
from xdsprism.http2.grpc import framed
from xdsprism.http2.limits import Limits
from xdsprism.http2.pings import ACK_DELAY
from xdsprism.http2.rpc import Called, Rpc
from xdsprism.token_bucket import Rate

SOON = ACK_DELAY / 4


class Busy(Client):
    """A client that measures the network: it sends a PING after DATA, and none before that one is answered."""

    def __init__(self, limits: Limits | None = None, window: int = 65_535) -> None:
        super().__init__(limits, [(INITIAL_WINDOW_SIZE, window)])
        self.say(headers(1, CALL))
        self.rpc: Rpc = only(self.take(), Called).rpc
        self.sent = 0

    def update(self, body: bytes = b"news") -> list[Frame]:
        """What the server writes with a message."""
        self.rpcs.send(self.rpc, framed(body))
        return self.hear()

    def ping(self) -> list[Frame]:
        """What the server writes at once."""
        self.sent += 1
        return self.say(frames.ping(self.sent.to_bytes(8, "big")))

    def measured(self) -> None:
        """The server has reason to expect the next PING and the next write soon."""
        self.update()
        assert answers(self.ping()) == [self.sent]
        self.now += SOON
        self.update()


def answers(found: list[Frame]) -> list[int]:
    """Which PINGs are answered."""
    assert all(frame.flags == ACK for frame in of(PING, found))
    return [int.from_bytes(frame.payload, "big") for frame in of(PING, found)]


def test_on_a_busy_connection_the_answer_goes_to_the_end_of_the_next_write() -> None:
    client = Busy()
    client.measured()
    assert client.ping() == []
    client.now += SOON
    assert [frame.kind for frame in client.update()] == [DATA, PING]
    assert client.rpcs.out.delayed_until == inf
    assert client.update()[-1].kind == DATA  # and only once


def test_the_answer_goes_alone_when_nothing_else_is_written_in_time() -> None:
    client = Busy()
    client.measured()
    assert client.ping() == []
    due = client.rpcs.due
    assert due == client.now + ACK_DELAY
    assert client.tick(due - 0.001) == []
    assert answers(client.tick(due)) == [client.sent]
    assert client.rpcs.due > due


def test_a_write_that_is_caused_by_the_same_bytes_has_the_answer_in_it() -> None:
    client = Busy()
    client.measured()
    found = client.say(frames.ping(bytes(8)), frames.settings([]))
    assert [frame.kind for frame in found] == [SETTINGS, PING]


def test_a_client_that_awaits_each_answer_sends_a_ping_for_every_second_write() -> None:
    client = Busy()
    client.update()
    is_answered, alone = True, 0
    for _ in range(100):
        client.now += SOON
        measures = False
        for frame in client.update():
            if frame.kind == DATA and is_answered:
                is_answered, measures = False, True
            elif frame.kind == PING:
                is_answered = True
        if measures and answers(client.ping()):
            is_answered, alone = True, alone + 1
    assert alone == 1  # the first, when nothing was known of this client yet
    assert client.sent == 51


@pytest.mark.parametrize("pause", [ACK_DELAY, 10.0])
def test_a_ping_is_answered_at_once_where_writes_are_rare(pause: float) -> None:
    client = Busy()
    for _ in range(5):
        client.update()
        assert answers(client.ping()) == [client.sent]
        client.now += pause


def test_one_answer_to_a_ping_waits_in_vain_when_writes_become_rare() -> None:
    client = Busy()
    client.measured()
    at_once = []
    for _ in range(5):
        at_once.append(answers(client.ping()))
        client.tick(client.now + ACK_DELAY)
        client.now += ACK_DELAY / 2  # it has been one and a half times as long
        client.update()
    assert at_once[0] == []
    assert at_once[1:] == [[2 + number] for number in range(1, 5)]


def test_where_every_answer_goes_with_a_write_pings_come_half_as_often_and_still_wait() -> None:
    client = Busy()
    client.measured()
    for _ in range(5):
        assert client.ping() == []
        client.now += 0.9 * ACK_DELAY
        assert answers(client.update()) == [client.sent]
        client.now += 0.9 * ACK_DELAY
        client.update()


def test_after_a_pause_no_answer_waits_longer_than_writes_are_apart() -> None:
    client = Busy()
    client.measured()
    assert client.ping() == []
    assert answers(client.update()) == [client.sent]
    client.now += 10.0
    for _ in range(5):
        client.update()
        assert answers(client.ping()) == [client.sent]
        client.now += 1.5 * ACK_DELAY


def test_a_ping_that_follows_no_write_is_answered_at_once() -> None:
    """A keepalive PING, or the second of two."""
    client = Busy()
    client.measured()
    assert client.ping() == []
    assert answers(client.ping()) == [client.sent - 1, client.sent]
    assert answers(client.ping()) == [client.sent]
    client.now += 10.0
    assert answers(client.ping()) == [client.sent]


def test_answers_do_not_wait_while_a_window_holds_data_back() -> None:
    """The client learns from them how large its windows should be."""
    client = Busy(window=1_000)
    client.measured()
    client.update(bytes(5_000))
    for _ in range(5):
        client.now += SOON / 10
        assert answers(client.ping()) == [client.sent]
        assert of(DATA, client.say(frames.window_update(1, 500)))
    client.say(frames.window_update(1, 10_000))
    client.ping()
    client.now += SOON
    client.update()
    assert client.ping() == []


def test_answers_do_not_wait_while_the_socket_is_full() -> None:
    client = Busy(Limits(unread_bytes=16))
    client.measured()
    client.rpcs.out.pause()
    assert of(GOAWAY, client.ping())[0].code is Code.ENHANCE_YOUR_CALM  # and it counts


def test_a_flood_is_a_flood_though_one_answer_waits() -> None:
    client = Busy(Limits(pings=Rate(3, 0)))
    client.measured()
    assert client.ping() == []
    found = [client.ping() for _ in range(4)]
    assert [answers(each) for each in found[:3]] == [[2, 3], [4], [5]]
    assert of(GOAWAY, found[3])[0].code is Code.ENHANCE_YOUR_CALM
