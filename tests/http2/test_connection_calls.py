"""Calls on a connection of our own transport, without a socket: what they are told, and when they are asked."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.http2.rig import CALL, Client, Frame, bodies, data, headers, message, of, parse
from xdsprism.core.model.events import EncodedResponse
from xdsprism.errors import STATUS, PeerError
from xdsprism.http2 import frames
from xdsprism.http2.codes import DATA, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, RST_STREAM, Code
from xdsprism.http2.limits import Times
from xdsprism.server.calls import MISTAKE, Call, Method, Peer, UnaryCall
from xdsprism.server.connection_calls import ConnectionCalls


class Script(Call):
    """Does what a test says, and notes what happened to it."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.outbox: list[bytes] = []
        self.due: float | None = None
        self.error: Exception | None = None
        self.busy = False

    @property
    def is_busy(self) -> bool:
        return self.busy

    def _note(self, note: str) -> None:
        self.notes.append(note)
        if self.error is not None:
            raise self.error

    def receive(self, message: bytes) -> None:
        self._note(f"receive {message.decode()}")
        self.wake()

    def poll(self) -> Iterator[bytes]:
        while self.outbox:
            yield self.outbox.pop(0)
        if self.error is not None:
            raise self.error

    def deadline(self) -> float | None:
        return self.due

    def half_close(self) -> None:
        self._note("half_close")

    def close(self, reason: str = "") -> None:
        self.notes.append(f"close {reason}".strip())

    def say(self, *messages: bytes) -> None:
        self.outbox += messages
        self.wake()


class Rig:
    """A client by hand, a line, and the calls that were opened on it."""

    def __init__(self, settings: Iterable[tuple[int, int]] = (), times: Times | None = None, age: float = 1e9) -> None:
        self.client = Client(settings=list(settings), times=times or Times(keepalive=1e9), age=age)
        self.calls: list[Script] = []
        self.peers: list[Peer] = []
        self.wakes = 0
        self.next: Script | None = None  # the call that is opened next
        methods = {"/x": Method("/x", self._open), "/broken": Method("/broken", _broken)}
        methods["/refused"] = Method("/refused", _refused)
        methods["/unary"] = Method("/unary", lambda peer: UnaryCall(lambda asked: peer.address.encode() + b" " + asked))
        self.connection_calls = ConnectionCalls(self.client.rpcs, methods, Peer("peer", ("me",)), self._woken)

    def _open(self, peer: Peer) -> Call:
        self.peers.append(peer)
        self.calls.append(self.next or Script())
        return self.calls[-1]

    def _woken(self) -> None:
        self.wakes += 1

    def say(self, *said: bytes) -> list[Frame]:
        self.connection_calls.receive(b"".join(said), 0.0)
        return self.hear()

    def hear(self) -> list[Frame]:
        return parse(self.connection_calls.flush())

    def call(self, number: int = 1, **fields: str) -> Script:
        self.say(headers(number, _fields(**fields)))
        return self.calls[-1]

    def status(self, found: list[Frame], number: int = 1) -> tuple[str, str]:
        ends = [self.client.fields(frame) for frame in of(HEADERS, found) if frame.number == number]
        return STATUS[int(ends[-1]["grpc-status"])], ends[-1].get("grpc-message", "")


def _broken(_: Peer) -> Call:
    raise RuntimeError("no")


def _refused(_: Peer) -> Call:
    raise PeerError("RESOURCE_EXHAUSTED", "too many of you")


def _fields(path: str = "/x") -> list[tuple[str, str]]:
    return [(name, path if name == ":path" else value) for name, value in CALL]


def test_a_call_hears_and_speaks() -> None:
    rig = Rig()
    call = rig.call()
    rig.say(data(1, message(b"a")), data(1, message(b"b"), last=True))
    assert call.notes == ["receive a", "receive b", "half_close"]
    call.say(b"one", b"two")
    assert bodies(rig.hear()) == message(b"one") + message(b"two")


def test_a_call_knows_whose_it_is() -> None:
    rig = Rig()
    rig.call(1)
    rig.say(headers(3, [*_fields(), ("authorization", "Bearer abc"), ("x", "y")]))
    assert rig.peers == [Peer("peer", ("me",)), Peer("peer", ("me",), ("Bearer abc",))]


def test_a_unary_call() -> None:
    rig = Rig()
    found = rig.say(headers(1, _fields("/unary")), data(1, message(b"asks"), last=True))
    assert bodies(found) == message(b"peer asks")
    assert rig.status(found) == ("OK", "")
    assert not rig.connection_calls.call_streams


def test_all_that_woke_is_written_at_once() -> None:
    rig = Rig()
    calls = [rig.call(number) for number in (1, 3, 5)]
    rig.wakes = 0
    for call in calls:
        call.say(b"news")
        call.wake()
    assert rig.wakes == 1
    found = rig.hear()
    assert [frame.number for frame in of(DATA, found)] == [1, 3, 5]
    assert rig.connection_calls.flush() == b""
    calls[0].wake()
    assert rig.wakes == 2


class Shared(Script):
    """Sends one response that other calls send too."""

    def __init__(self, response: EncodedResponse) -> None:
        super().__init__()
        self._response = response

    def poll_shared(self) -> Iterator[EncodedResponse]:
        return iter((self._response,))


@pytest.mark.parametrize("size", [5, 100_000])
def test_a_shared_response_is_framed_once(size: int) -> None:
    rig, response = Rig(), EncodedResponse(bytes(size))
    made = []
    for number in (1, 3):
        rig.next = Shared(response)
        heard = rig.say(headers(number, _fields()))
        made.append(response.framed)
        assert bodies(heard, number) == message(response.body)[: len(bodies(heard, number))]
    assert made[0] is made[1] is not None


def test_a_call_that_is_not_read_is_not_asked() -> None:
    # SOT-16, DLT-23
    rig = Rig(settings=[(INITIAL_WINDOW_SIZE, 8)])
    call = rig.call()
    call.say(b"first", b"second")
    assert bodies(rig.hear()) == message(b"first")[:8]
    assert call.outbox == [b"second"]
    call.say(b"third")
    assert rig.hear() == []
    assert call.outbox == [b"second", b"third"]
    found = rig.say(frames.window_update(1, 5))
    assert bodies(found) == message(b"first")[8:] + message(b"second")[:3]
    assert call.outbox == [b"third"]
    rig.say(frames.window_update(1, 1_000))
    assert call.outbox == []


def test_a_call_whose_socket_is_full_is_not_asked() -> None:
    rig = Rig()
    call = rig.call()
    rig.client.rpcs.out.pause()
    call.say(b"news")
    assert rig.hear() == []
    assert call.outbox == [b"news"]
    rig.client.rpcs.out.resume()
    assert bodies(rig.hear()) == message(b"news")


def test_a_client_that_does_not_read_may_still_speak() -> None:
    rig = Rig(settings=[(INITIAL_WINDOW_SIZE, 0)])
    call = rig.call()
    call.say(b"news")
    rig.hear()
    rig.say(data(1, message(b"a")))
    assert call.notes == ["receive a"]


def test_a_finished_call_ends_with_ok_after_its_last_words() -> None:
    rig = Rig()
    call = rig.call()
    call.outbox.append(b"last")
    call.finished = True
    call.wake()
    found = rig.hear()
    assert bodies(found) == message(b"last")
    assert rig.status(found) == ("OK", "")
    assert call.notes == ["close"]


def test_a_call_that_finishes_while_it_writes_is_asked_once_more() -> None:
    rig = Rig(settings=[(INITIAL_WINDOW_SIZE, 5)])
    call = rig.call()
    call.say(b"first")
    rig.hear()
    call.finished = True
    call.say(b"after that")
    found = rig.say(frames.window_update(1, 1_000))
    assert bodies(found).endswith(message(b"after that"))
    assert rig.status(found) == ("OK", "")


ERRORS = [
    (PeerError("INVALID_ARGUMENT", "so not"), ("INVALID_ARGUMENT", "so not"), "close INVALID_ARGUMENT: so not"),
    (ValueError("a bug"), ("INTERNAL", MISTAKE), f"close {MISTAKE}"),
]
WAYS: dict[str, Callable[[Rig], list[Frame]]] = {
    "receive": lambda rig: rig.say(data(1, message(b"a"))),
    "half_close": lambda rig: rig.say(data(1, last=True)),
    "poll": lambda rig: (rig.calls[0].wake(), rig.hear())[1],
}


@pytest.mark.parametrize(("error", "status", "note"), ERRORS, ids=["of the peer", "of ours"])
@pytest.mark.parametrize("way", WAYS)
def test_an_error_ends_its_call_and_no_other(
    way: str, error: Exception, status: tuple[str, str], note: str, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-10
    rig = Rig()
    call, other = rig.call(1), rig.call(3)
    call.error = error
    found = WAYS[way](rig)
    assert rig.status(found) == status
    assert call.notes[-1] == note
    assert len(caplog.records) == isinstance(error, ValueError)
    other.say(b"fine")
    assert bodies(rig.hear(), 3) == message(b"fine")


def test_an_error_of_a_stuck_call_frees_it_at_once_and_is_told_when_it_is_read() -> None:
    # OPS-6
    rig = Rig(settings=[(INITIAL_WINDOW_SIZE, 3)])
    call = rig.call()
    call.say(b"first", b"never")
    rig.hear()
    call.error = PeerError("ABORTED", "enough")
    rig.say(data(1, message(b"a")))
    assert call.notes[-1] == "close ABORTED: enough"
    assert not rig.connection_calls.call_streams
    found = rig.say(frames.window_update(1, 1_000))
    assert bodies(found) == message(b"first")[3:]
    assert rig.status(found) == ("ABORTED", "enough")


def test_a_call_that_can_t_be_closed_is_over_all_the_same(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    call = rig.call()
    monkeypatch.setattr(call, "close", _broken)
    rig.say(frames.reset(1, Code.CANCEL))
    assert not rig.connection_calls.call_streams
    assert "could not be closed" in caplog.text


def test_an_unknown_method_gets_unimplemented() -> None:
    rig = Rig()
    assert rig.say(headers(1, _fields("/y"))) == []  # grpcio's clients would lose the status, if they still write
    assert rig.status(rig.say(data(1, message(b"a")))) == ("UNIMPLEMENTED", "no method /y")


def test_a_call_of_an_unknown_method_is_refused_though_it_sends_nothing() -> None:
    rig = Rig()
    rig.say(headers(1, _fields("/y")))
    rig.connection_calls.tick(rig.connection_calls.due)
    assert rig.status(rig.hear()) == ("UNIMPLEMENTED", "no method /y")


def test_a_call_that_can_t_be_opened(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    assert rig.status(rig.say(headers(1, _fields("/broken"))))[0] == "INTERNAL"
    assert "could not be opened" in caplog.text


def test_a_call_that_is_refused_is_told_why() -> None:
    rig = Rig()
    assert rig.status(rig.say(headers(1, _fields("/refused")))) == ("RESOURCE_EXHAUSTED", "too many of you")


def test_a_call_that_its_client_reset_is_closed_and_sends_nothing() -> None:
    rig = Rig()
    call = rig.call()
    rig.say(frames.reset(1, Code.CANCEL))
    assert call.notes == ["close"]
    call.say(b"too late")
    assert rig.hear() == []


def test_a_lost_connection_closes_every_call() -> None:
    rig = Rig()
    calls = [rig.call(1), rig.call(3)]
    rig.connection_calls.connection_lost("gone")
    assert [call.notes for call in calls] == [["close gone"]] * 2
    assert not rig.connection_calls.call_streams


def test_a_fault_of_the_connection_closes_every_call() -> None:
    rig = Rig()
    calls = [rig.call(1), rig.call(3)]
    found = rig.say(frames.frame(PING, 0, 1, bytes(8)))
    assert [frame.kind for frame in found] == [GOAWAY]
    assert [call.notes for call in calls] == [["close PING on a stream"]] * 2


# -- time


def test_a_call_is_asked_when_it_wants_to_be() -> None:
    rig = Rig()
    call = rig.call()
    call.due = 5.0
    call.wake()
    rig.hear()
    assert rig.connection_calls.due == 5.0
    call.outbox.append(b"heartbeat")
    rig.connection_calls.tick(4.9)
    assert rig.hear() == []
    call.due = None
    rig.connection_calls.tick(5.0)
    assert bodies(rig.hear()) == message(b"heartbeat")
    assert rig.connection_calls.due > 5.0


def test_a_call_may_change_its_mind_about_the_time() -> None:
    rig = Rig()
    call = rig.call()
    for due in (5.0, 9.0):
        call.due = due
        call.wake()
        rig.hear()
    call.outbox.append(b"heartbeat")
    rig.connection_calls.tick(5.0)
    assert rig.hear() == []
    rig.connection_calls.tick(9.0)
    assert bodies(rig.hear()) == message(b"heartbeat")


def test_timers_that_were_set_anew_do_not_pile_up() -> None:
    rig = Rig(times=Times(keepalive=1e9, first_request=1e9))
    call = rig.call()
    for due in range(1_000):
        call.due = 5_000.0 + due
        call.wake()
        rig.hear()
    assert rig.connection_calls._timers.entries < 100  # noqa: SLF001 # timers that pile up cost memory, and nobody sees them
    call.outbox.append(b"heartbeat")
    rig.connection_calls.tick(5_998.0)
    assert rig.hear() == []
    rig.connection_calls.tick(5_999.0)
    assert bodies(rig.hear()) == message(b"heartbeat")


def test_an_error_while_a_call_is_told_to_end_ends_it_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-10
    rig = Rig()
    call = rig.call()
    monkeypatch.setattr(call, "end", lambda: _broken(""))
    rig.connection_calls.drain(0.0, 5.0)
    assert rig.status(rig.hear())[0] == "INTERNAL"
    assert "a stream failed" in caplog.text
    assert call.notes == [f"close {MISTAKE}"]


# -- the end


def test_a_drain_ends_the_calls_after_the_first_goaway() -> None:
    rig = Rig()
    call = rig.call()
    rig.connection_calls.drain(0.0, 5.0)
    found = rig.hear()
    assert [frame.kind for frame in found] == [GOAWAY, PING, HEADERS, RST_STREAM]
    assert rig.status(found) == ("OK", "")
    assert call.notes == ["close"]


def test_a_call_that_comes_during_a_drain_is_served_shortly() -> None:
    rig = Rig()
    rig.connection_calls.drain(0.0, 5.0)
    rig.hear()
    assert rig.status(rig.say(headers(1, CALL))) == ("OK", "")


def test_an_old_connection_ends_its_calls() -> None:
    rig = Rig(age=10.0)
    call = rig.call()
    rig.connection_calls.tick(10.0)
    found = rig.hear()
    assert [frame.kind for frame in found][:2] == [GOAWAY, PING]
    assert call.notes == ["close"]


def test_a_unary_call_is_answered_even_during_a_drain() -> None:
    rig = Rig()
    rig.say(headers(1, _fields("/unary")))
    rig.connection_calls.drain(0.0, 5.0)
    rig.say(headers(3, _fields("/unary")))
    for number in (1, 3):
        found = rig.say(data(number, message(b"asks"), last=True))
        assert bodies(found, number) == message(b"peer asks")
        assert rig.status(found, number) == ("OK", "")


def test_a_call_that_is_over_does_not_wait_for_the_collector_of_garbage() -> None:
    rig = Rig()
    call = weakref.ref(rig.call())
    rig.calls.clear()
    gc.collect()
    gc.disable()
    try:
        rig.say(frames.reset(1, Code.CANCEL))
        assert call() is None
    finally:
        gc.enable()


# -- much at once


def test_many_messages_at_once_are_received_in_portions_and_in_order() -> None:
    # OPS-10
    rig = Rig()
    first, second = rig.call(1), rig.call(3)
    said = [b"%05d" % number for number in range(4_000)]
    frames_of = [data(1 if number % 2 else 3, message(each)) for number, each in enumerate(said)]
    rig.connection_calls.receive(b"".join(frames_of), 0.0)
    heard = len(first.notes) + len(second.notes)
    assert 0 < heard < len(said)
    rig.connection_calls.receive(data(1, b"", last=True), 0.0)  # comes after all that waits
    assert "half_close" not in first.notes
    while rig.connection_calls.backlog:
        rig.connection_calls.receive(b"", 0.0)
    assert first.notes == [f"receive {each.decode()}" for each in said[1::2]] + ["half_close"]
    assert second.notes == [f"receive {each.decode()}" for each in said[::2]]


def test_messages_that_wait_are_dropped_with_their_connection() -> None:
    # OPS-7
    rig = Rig()
    call = rig.call()
    rig.connection_calls.receive(b"".join(data(1, message(b"x" * 100)) for _ in range(1_000)), 0.0)
    rig.connection_calls.connection_lost()
    assert not rig.connection_calls.backlog
    assert call.notes[-1] == "close"


def test_a_call_that_is_busy_does_not_end_before_it_is_done() -> None:
    # OPS-10
    rig = Rig()
    call = rig.call()
    call.busy = True
    call.end()
    assert not of(HEADERS, rig.hear())
    call.busy = False
    call.say(b"done")
    found = rig.hear()
    assert bodies(found) == message(b"done")
    assert rig.status(found) == ("OK", "")
