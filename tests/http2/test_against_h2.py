"""The connection against `h2`, an implementation by others: whatever happens in whatever order, and however the bytes
are cut on their way, both agree on what was said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.http2.rig import CALL
from tests.support import insides
from tests.support.examples import examples
from xdsprism.errors import STATUS
from xdsprism.http2 import frames
from xdsprism.http2.grpc import MessageReader, framed
from xdsprism.http2.limits import Limits, Times
from xdsprism.http2.rpc import Called, Ended, HalfClosed, Message, Rpc, RpcConnection
from xdsprism.token_bucket import Rate

SIZES = st.one_of(st.integers(0, 60), st.sampled_from([900, 16_379, 16_380, 40_000]))
WINDOWS = st.sampled_from([0, 1, 10, 1_000, 65_535, 200_000])
ANY = Rate(1_000_000, 0)
LIMITS = Limits(
    header_bytes=40_000,  # more than a frame
    stream_window=65_535,  # so that they matter
    connection_window=70_000,
    settings=ANY,  # time stands still here
    pings=ANY,
    resets=ANY,
    tiny_frames=ANY,
    window_updates=ANY,
    noise=ANY,
)


def body_of(size: int, seed: int) -> bytes:
    return bytes((seed + at) & 255 for at in range(min(size, 64))) + bytes(max(size - 64, 0))


class Pair(RuleBasedStateMachine):
    """Two ends and a wire for each direction, on which bytes stay as long as chance has it."""

    def __init__(self) -> None:
        super().__init__()
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.client = h2.connection.H2Connection(config)
        self.server = RpcConnection(LIMITS, Times(), 0.0)
        self.upwards = bytearray()
        self.downwards = bytearray()
        self.seed = 0
        self.open: list[int] = []  # as the client sees it: it may speak
        self.cancelled: set[int] = set()
        self.asked: dict[int, list[bytes]] = defaultdict(list)  # what the client said
        self.heard: dict[int, list[bytes]] = defaultdict(list)  # what the server heard of it
        self.ended: set[int] = set()  # by the client, in good order
        self.heard_end: set[int] = set()
        self.rpcs: dict[int, Rpc] = {}  # at the server, under way
        self.answered: dict[int, list[bytes]] = defaultdict(list)  # what the server said
        self.statuses: dict[int, str] = {}
        self.inboxes: dict[int, MessageReader] = {}
        self.got: dict[int, list[bytes]] = defaultdict(list)  # what the client heard of it
        self.got_status: dict[int, str] = {}
        self.unread: list[tuple[int, int]] = []  # bytes that the client has not acknowledged
        self.pings = self.pongs = 0
        self.tail = b""  # what may be the beginning of an acknowledgement
        self.is_established = False  # h2 takes the first acknowledgement for that of whatever it set since
        self.client.initiate_connection()

    # -- the wire

    def up(self, size: int) -> None:
        """To the server."""
        self.upwards += self.client.data_to_send()
        part = bytes(self.upwards[:size])
        del self.upwards[:size]
        for event in self.server.receive(part, 0.0):
            self.server_event(event)

    def down(self, size: int) -> None:
        for event in self.server.send_queued():
            self.server_event(event)
        self.downwards += self.server.out.take_output()
        part = bytes(self.downwards[:size])
        del self.downwards[:size]
        for piece in self.cut(part):
            for event in self.client.receive_data(piece):
                self.client_event(event)

    def cut(self, part: bytes) -> Iterator[bytes]:
        """After each acknowledgement of settings: h2 goes by the larger frames that it allowed only from then on."""
        seen, begin, at = self.tail + part, len(self.tail), 0
        while (found := seen.find(frames.SETTINGS_ACK, at)) >= 0:
            at = found + len(frames.SETTINGS_ACK)
            yield seen[begin:at]
            begin = at
        yield seen[begin:]
        self.tail = seen[at:][1 - len(frames.SETTINGS_ACK) :]

    def server_event(self, event: Any) -> None:
        number = event.rpc.stream.number
        if isinstance(event, Called):
            self.rpcs[number] = event.rpc
        elif isinstance(event, Message):
            self.heard[number].append(event.message)
        elif isinstance(event, HalfClosed):
            self.heard_end.add(number)
        elif isinstance(event, Ended):
            assert event.why == ""
            assert number in self.cancelled
            del self.rpcs[number]

    def client_event(self, event: Any) -> None:
        if isinstance(event, h2.events.DataReceived):
            reader = self.inboxes.setdefault(event.stream_id, MessageReader(b"", 1 << 20))
            self.got[event.stream_id] += reader.feed(event.data)
            self.unread.append((event.flow_controlled_length, event.stream_id))
        elif isinstance(event, (h2.events.TrailersReceived, h2.events.ResponseReceived)):
            found = dict(event.headers)
            if "grpc-status" in found:
                self.got_status[event.stream_id] = STATUS[int(found["grpc-status"])]
        elif isinstance(event, h2.events.StreamReset):
            assert event.error_code == h2.errors.ErrorCodes.NO_ERROR
            self.close(event.stream_id)
        elif isinstance(event, h2.events.SettingsAcknowledged):
            self.is_established = True
        elif isinstance(event, h2.events.PingAckReceived):
            self.pongs += 1
        assert not isinstance(event, h2.events.ConnectionTerminated)

    def close(self, number: int) -> None:
        if number in self.open:
            self.open.remove(number)

    # -- what happens

    @rule(up=st.integers(0, 300), down=st.integers(0, 300))
    def a_little_arrives(self, up: int, down: int) -> None:
        self.up(up)
        self.down(down)

    @rule()
    def all_arrives(self) -> None:
        self.up(1 << 30)
        self.down(1 << 30)

    @rule(up=st.integers(0, 60), down=st.integers(0, 60))
    def a_little_arrives_byte_by_byte(self, up: int, down: int) -> None:
        for _ in range(up):
            self.up(1)
        for _ in range(down):
            self.down(1)

    @rule(extra=st.sampled_from([0, 0, 10, 9_000, 30_000]), last=st.booleans())
    def the_client_calls(self, extra: int, last: bool) -> None:
        number = self.client.get_next_available_stream_id()
        fields = [*CALL, ("x-extra", "v" * extra)]
        self.client.send_headers(number, fields, end_stream=last)
        if last:
            self.ended.add(number)
        else:
            self.open.append(number)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 99), size=SIZES, cut=st.integers(1, 20_000), pad=st.sampled_from([None, None, 0, 255]))
    def the_client_speaks(self, which: int, size: int, cut: int, pad: int | None) -> None:
        number = self.open[which % len(self.open)]
        self.seed += 1
        body = body_of(size, self.seed)
        said = framed(body)
        whole = said.first + bytes(said.rest or b"")
        padding = 0 if pad is None else pad + 1
        pieces = -(-len(whole) // cut)
        if len(whole) + pieces * padding > self.client.local_flow_control_window(number) or cut + padding > 16_384:
            return
        for at in range(0, len(whole), cut):
            self.client.send_data(number, whole[at : at + cut], pad_length=pad)
        self.asked[number].append(body)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 99), trailers=st.booleans())
    def the_client_says_no_more(self, which: int, trailers: bool) -> None:
        number = self.open.pop(which % len(self.open))
        self.ended.add(number)
        if trailers:
            self.client.send_headers(number, [("x-checksum", "1")], end_stream=True)
        else:
            self.client.end_stream(number)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 99))
    def the_client_leaves(self, which: int) -> None:
        number = self.open.pop(which % len(self.open))
        self.cancelled.add(number)
        self.client.reset_stream(number, h2.errors.ErrorCodes.CANCEL)

    @precondition(lambda self: self.unread)
    @rule()
    def the_client_reads(self) -> None:
        self.client.acknowledge_received_data(*self.unread.pop(0))

    @rule(size=st.sampled_from([1, 100, 16_384, 100_000]), which=st.integers(0, 99))
    def the_client_widens_a_window(self, size: int, which: int) -> None:
        """Whatever it has read; of the connection, or of a stream."""
        number = None if which % 2 or not self.open else self.open[which % len(self.open)]
        self.client.increment_flow_control_window(size, number)

    @rule(number=st.integers(0, 20), weight=st.integers(1, 256))
    def the_client_prefers(self, number: int, weight: int) -> None:
        self.client.prioritize(2 * number + 1, weight=weight)

    @precondition(lambda self: self.is_established)
    @rule(window=WINDOWS, frame=st.sampled_from([16_384, 20_000, 100_000]), table=st.sampled_from([0, 100, 4_096]))
    def the_client_sets(self, window: int, frame: int, table: int) -> None:
        codes = h2.settings.SettingCodes
        values = {codes.INITIAL_WINDOW_SIZE: window, codes.MAX_FRAME_SIZE: frame, codes.HEADER_TABLE_SIZE: table}
        self.client.update_settings(values)

    @rule()
    def the_client_pings(self) -> None:
        self.pings += 1
        self.client.ping(b"\0" * 8)

    @precondition(lambda self: self.rpcs)
    @rule(which=st.integers(0, 99), size=SIZES)
    def the_server_speaks(self, which: int, size: int) -> None:
        rpc = list(self.rpcs.values())[which % len(self.rpcs)]
        self.seed += 1
        body = body_of(size, self.seed)
        self.server.send(rpc, framed(body))
        self.answered[rpc.stream.number].append(body)

    @precondition(lambda self: self.rpcs)
    @rule(which=st.integers(0, 99), status=st.sampled_from(STATUS))
    def the_server_ends(self, which: int, status: str) -> None:
        number = list(self.rpcs)[which % len(self.rpcs)]
        self.server.end(self.rpcs.pop(number), status, "because: 100 %")
        self.statuses[number] = status

    @rule(pause=st.booleans())
    def the_socket_is_full_or_not(self, pause: bool) -> None:
        if pause:
            self.server.out.pause()
        else:
            self.server.out.resume()

    # -- what holds

    @invariant()
    def nobody_complains(self) -> None:
        assert self.server.connection.failed is None

    @invariant()
    def what_was_heard_was_said(self) -> None:
        for number, heard in self.heard.items():
            assert heard == self.asked[number][: len(heard)]
        for number, got in self.got.items():
            assert got == self.answered[number][: len(got)]

    def teardown(self) -> None:
        """In the end, with wide windows and all delivered, all that was said was heard."""
        self.server.out.resume()
        self.up(1 << 30)
        self.down(1 << 30)
        codes = h2.settings.SettingCodes
        self.client.update_settings({codes.INITIAL_WINDOW_SIZE: (1 << 30)})
        self.client.increment_flow_control_window(1 << 30)
        moving = True
        turns = 0
        while moving:
            turns += 1
            assert turns < 500, "it never comes to rest"
            self.up(1 << 30)
            self.down(1 << 30)
            self.upwards += self.client.data_to_send()
            moving = bool(self.upwards) or self.server.out.waits
        assert not self.upwards
        assert not self.downwards
        assert self.pongs == self.pings
        for number in self.asked.keys() | self.answered.keys():
            if number not in self.cancelled:
                assert self.got[number] == self.answered[number]
                if number not in self.statuses:
                    assert self.heard[number] == self.asked[number]
        assert {number: self.statuses[number] for number in self.got_status} == self.got_status
        assert self.statuses.keys() - self.cancelled <= self.got_status.keys()
        assert self.ended - self.heard_end <= self.statuses.keys()
        self.they_agree_on_windows()
        assert insides.unfinished(self.server) == 0
        assert set(self.rpcs) == set(self.server.connection.streams)

    def they_agree_on_windows(self) -> None:
        mine, theirs = self.server.connection, self.client
        assert mine.out.window == theirs.inbound_flow_control_window
        assert left_of(LIMITS.connection_window, mine._windows.credit) == theirs.outbound_flow_control_window  # noqa: SLF001 # both ends must count alike before either is out of credit
        for number, stream in mine.streams.items():
            assert min(stream.window, mine.out.window) == theirs.remote_flow_control_window(number)
            if number in self.open:
                assert (
                    left_of(LIMITS.stream_window, stream.credit) == theirs.streams[number].outbound_flow_control_window
                )


def left_of(window: int, credit: int) -> int:
    """Of what we let the client send: one half, and what is left of the other."""
    return window - window // 2 + credit


Pair.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=50, deadline=None)
TestBothAgree = Pair.TestCase


def transcript() -> bytes:
    """A client's side of a conversation with some of everything in it. Stream 5 is taken back as soon as it is opened:
    whether anybody hears of it depends on the cut."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, [*CALL, ("x-long", "v" * 200)])
    client.send_data(1, framed(b"one").first, pad_length=7)
    client.ping(b"12345678")
    client.send_headers(3, CALL)
    client.send_data(3, framed(b"two").first + framed(b"three").first[:7])
    client.increment_flow_control_window(1_000, 1)
    client.prioritize(5, weight=3)
    client.send_data(3, framed(b"three").first[7:], end_stream=True)
    client.send_headers(1, [("x-checksum", "1")], end_stream=True)
    client.send_headers(5, CALL)
    client.reset_stream(5, h2.errors.ErrorCodes.CANCEL)
    return client.data_to_send()


def outcome(*parts: bytes) -> tuple[list[Any], bytes]:
    server = RpcConnection(LIMITS, Times(), 0.0)
    told: list[Any] = []
    written = b""
    for part in parts:
        for event in server.receive(part, 0.0):
            if event.rpc.stream.number != 5:
                told.append((type(event), event.rpc.stream.number, getattr(event, "message", None)))
            if isinstance(event, HalfClosed):
                server.send(event.rpc, framed(b"answer"))
                server.end(event.rpc)
        server.send_queued()
        written += server.out.take_output()
    return told, written


def test_the_outcome_does_not_depend_on_where_the_bytes_are_cut() -> None:
    said = transcript()
    whole = outcome(said)
    assert [message for kind, _, message in whole[0] if kind is Message] == [b"one", b"two", b"three"]
    assert outcome(*(bytes((byte,)) for byte in said)) == whole
    for cut in range(len(said)):
        assert outcome(said[:cut], said[cut:]) == whole
