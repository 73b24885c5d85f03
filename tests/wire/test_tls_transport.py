"""TLS of our own transport, without sockets: a client's OpenSSL at one end, what is spoken at the other."""

from __future__ import annotations

import asyncio
import ssl
from itertools import chain, cycle, islice, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http2.rig import CALL, headers
from tests.support.certificates import Authority
from tests.wire.h2_rig import Rig
from tests.wire.rig import until
from xdsprism.http2 import frames
from xdsprism.http2.codes import DATA, PREFACE
from xdsprism.server.engine_h2 import SocketConnection
from xdsprism.server.tls_transport import RECORD, Inner, TlsTransport

LINGER = 0.01
WHOLE = 4 * RECORD
MANY = 2_000  # pieces, which are some records; the rest comes at once


class Wire:
    """In place of the socket's transport."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.ended = self.aborted = False
        self.is_reading = True

    def write(self, data: bytes) -> None:
        assert not self.ended
        self.writes.append(data)

    def write_eof(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return 7

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": "there"}.get(name, default)


class Spoken:
    """In place of a connection."""

    def __init__(self) -> None:
        self.heard = b""
        self.said: list[str] = []
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: TlsTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def pause_writing(self) -> None:
        self.said.append("pause")

    def resume_writing(self) -> None:
        self.said.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Pair:
    """Both ends of one connection."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, inner: Inner | None = None) -> None:
        self.wire, self.spoken = Wire(), Spoken()
        self.secured = TlsTransport(server, lambda: inner or self.spoken, LINGER)
        self.secured.connection_made(self.wire)  # type: ignore[arg-type] # all of a transport that it uses
        self._to_client, self._to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self._to_client, self._to_server, server_hostname="localhost")

    def carry(self, cuts: tuple[int, ...] = (WHOLE,)) -> None:
        """All that either end has to say, towards the server in pieces of these sizes."""
        sizes = chain(islice(cycle(cuts), MANY), repeat(WHOLE))
        said, at = self._to_server.read(), 0
        while at < len(said):
            size = next(sizes)
            self.secured.data_received(said[at : at + size])
            at += size
        for written in self.wire.writes:
            self._to_client.write(written)
        self.wire.writes.clear()

    def shake_hands(self) -> None:
        for _ in range(3):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.carry()
        self.carry()

    def read(self) -> bytes:
        heard = b""
        while True:
            try:
                heard += self.client.read(WHOLE)
            except ssl.SSLWantReadError:
                return heard


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = authority.make("server")
    context.load_cert_chain(own.certificate, own.key)
    return context


@pytest.fixture(scope="module", params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def client(authority: Authority, request: pytest.FixtureRequest) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.minimum_version = context.maximum_version = request.param
    return context


def in_a_frame(message: bytes) -> bytes:
    return frames.frame(DATA, 0, 1, b"\0" + len(message).to_bytes(4, "big") + message)


async def agreed(server: ssl.SSLContext, client: ssl.SSLContext, inner: Inner | None = None) -> Pair:
    pair = Pair(server, client, inner)
    pair.shake_hands()
    await pair.secured.agreed
    return pair


@given(
    sizes=st.lists(st.sampled_from([1, 9, 100, 16_384, 16_385, 70_000]), max_size=4),
    cuts=st.lists(st.sampled_from([1, 4, 5, 6, 21, 1_000, 16_400, WHOLE]), min_size=1, max_size=4),
)
def test_bytes_arrive_in_both_directions_however_the_records_are_cut(
    server: ssl.SSLContext, client: ssl.SSLContext, sizes: list[int], cuts: list[int]
) -> None:
    async def exchange() -> None:
        pair = await agreed(server, client)
        for number, size in enumerate(sizes):
            words = bytes([number]) * size
            at = 0
            while at < size:
                at += pair.client.write(words[at:])
            pair.secured.write(words)
        pair.carry(tuple(cuts))
        whole = b"".join(bytes([number]) * size for number, size in enumerate(sizes))
        assert (pair.spoken.heard, pair.read()) == (whole, whole)

    asyncio.run(exchange())


async def test_one_write_of_many_tls_records_is_one_write_to_the_socket(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    pair = await agreed(server, client)
    pair.secured.write(bytes(100_000))
    assert len(pair.wire.writes) == 1
    pair.carry()
    assert pair.read() == bytes(100_000)


async def test_the_protocol_inside_sees_the_socket_transport_through_tls(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    pair = await agreed(server, client)
    transport = pair.spoken.transport
    assert transport.get_extra_info("ssl_object").version().startswith("TLS")
    assert transport.get_extra_info("peername") == "there"
    assert transport.get_write_buffer_size() == 7
    assert not transport.can_write_eof()
    pair.secured.pause_writing()
    pair.secured.resume_writing()
    assert pair.spoken.said == ["pause", "resume"]
    transport.abort()
    assert pair.wire.aborted


async def test_reading_pauses_until_all_requests_of_a_client_that_sends_much_are_received(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    # OPS-10
    for context in (server, client):
        context.set_alpn_protocols(["h2"])
    rig = Rig()
    pair = await agreed(server, client, SocketConnection(rig.engine))
    asked = [b"%03d" % number * 100 for number in range(200)]
    pair.client.write(PREFACE + frames.settings([]) + headers(1, CALL))
    pair.carry()
    await asyncio.sleep(0)
    (call,) = rig.calls
    heard: list[bytes] = []
    call.receive = heard.append  # type: ignore[method-assign] # only what arrives matters here
    said = b"".join(map(in_a_frame, asked))
    for at in range(0, len(said), RECORD):
        pair.client.write(said[at : at + RECORD])
    pair.carry()
    assert not pair.wire.is_reading
    assert len(heard) < len(asked)
    await until(lambda: pair.wire.is_reading)
    assert heard == asked


async def test_close_notify_is_answered_and_a_client_that_then_stays_connected_is_aborted(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    pair = await agreed(server, client)
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.carry()
    assert pair.wire.ended
    pair.client.unwrap()  # which it can only once ours is there
    pair.secured.write(b"too late")
    assert pair.wire.writes == []
    await asyncio.sleep(LINGER * 3)
    assert pair.wire.aborted


async def test_bytes_that_arrive_after_close_are_ignored(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    pair = await agreed(server, client)
    pair.client.write(b"late")
    pair.secured.close()
    pair.secured.close()
    pair.carry()
    assert pair.spoken.heard == b""
    assert pair.client.read(10) == b""
    pair.secured.connection_lost(None)
    assert pair.spoken.lost == [None]
    await asyncio.sleep(LINGER * 3)
    assert not pair.wire.aborted  # it was gone before


async def test_garbage_after_the_handshake_ends_the_connection_with_an_alert(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    pair = await agreed(server, client)
    pair.secured.data_received(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert pair.wire.ended
    pair.carry()
    with pytest.raises(ssl.SSLError, match="ALERT"):
        pair.client.read(10)
    pair.secured.connection_lost(None)
    (error,) = pair.spoken.lost
    assert isinstance(error, ssl.SSLError)


async def test_a_failed_handshake_sends_the_client_an_alert(server: ssl.SSLContext, tmp_path: Path) -> None:
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    stranger = Authority(tmp_path).make("server")
    strict.load_cert_chain(stranger.certificate, stranger.key)
    strict.minimum_version = ssl.TLSVersion.TLSv1_3
    old = ssl.create_default_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    pair = Pair(strict, old)
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.do_handshake()
    pair.carry()
    with pytest.raises(ssl.SSLError):
        await pair.secured.agreed
    with pytest.raises(ssl.SSLError, match="ALERT"):
        pair.client.do_handshake()
    assert pair.wire.ended


async def test_giving_up_during_the_handshake_aborts_the_connection(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    pair = Pair(server, client)
    pair.secured.give_up()
    assert pair.wire.aborted
    pair.shake_hands()
    assert pair.spoken.heard == b""
    assert pair.secured.agreed.cancelled()
