"""Blocks that other connections had are not decompressed again, and nobody can tell."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http2.rig import CALL
from xdsprism.http2.blocks import OVERSIZE_FACTOR, Block, HeaderBlocks
from xdsprism.http2.codes import END_HEADERS
from xdsprism.http2.faults import ConnectionFault
from xdsprism.http2.known_blocks import BLOCKS, LARGEST, KnownBlocks
from xdsprism.http2.limits import Limits
from xdsprism.http2.requests import Request

Fields = list[tuple[str, str]]

SOME = st.sampled_from([*CALL, ("x", "1"), ("x", "2"), ("long", "v" * 200), ("authorization", "Bearer a"), ("te", "")])
CALLS = st.lists(st.lists(SOME, max_size=6), min_size=1, max_size=6)
SIZES = st.sampled_from([None, None, None, 0, 100])  # of the table: the next block then begins with an update


def block(octets: bytes) -> Block:
    found = HeaderBlocks(Limits(), KnownBlocks()).begin(END_HEADERS, 1, octets)
    assert found is not None
    return found


def decoders(blocks: HeaderBlocks) -> int:
    return 0 if blocks._decoder is None else 1  # noqa: SLF001 # a decoder costs memory; headers are read alike without it


def test_the_second_connection_of_a_fleet_has_no_decoder() -> None:
    known = KnownBlocks()
    answers: list[list[Request]] = []
    for _ in range(2):
        blocks, encoder = HeaderBlocks(Limits(), known), hpack.Encoder()
        answers.append([blocks.request(blocks.decode(block(encoder.encode(CALL)))) for _ in range(3)])
    assert decoders(blocks) == 0
    assert answers[0] == answers[1]
    assert all(one is other for one, other in zip(*answers, strict=True))


def test_a_connection_that_goes_on_in_its_own_way_has_the_table_of_the_first_block() -> None:
    known = KnownBlocks()
    for own in ("1", "2"):
        blocks, encoder = HeaderBlocks(Limits(), known), hpack.Encoder()
        for fields in (CALL, (*CALL, ("x", own)), CALL, (*CALL, ("x", own))):
            found = blocks.decode(block(encoder.encode(fields)))
            assert found == [(name.encode(), value.encode()) for name, value in fields]
    assert decoders(blocks) == 1


def test_the_same_indices_after_another_first_block_mean_something_else() -> None:
    known = KnownBlocks()
    for value in ("1", "2", "1", "2"):
        blocks, encoder = HeaderBlocks(Limits(), known), hpack.Encoder()
        for _ in range(2):
            assert blocks.decode(block(encoder.encode([("x", value)]))) == [(b"x", value.encode())]


def test_a_decoder_from_before_the_first_block_that_fills_the_table_is_not_used_after_it() -> None:
    known = KnownBlocks()
    octets = hpack.Encoder().encode([("x", "1")])
    HeaderBlocks(Limits(), known).decode(block(octets))
    blocks = HeaderBlocks(Limits(), known)
    blocks.decode(block(b"\x83"))  # :method POST, of the static table
    assert decoders(blocks) == 1
    blocks.decode(block(octets))
    assert blocks.decode(block(b"\x83\xbe")) == [(b":method", b"POST"), (b"x", b"1")]


# RFC 7541: fields depend on the bytes of this connection alone.
@given(connections=st.lists(st.lists(st.tuples(SIZES, CALLS), min_size=1, max_size=4), min_size=2, max_size=5))
def test_header_blocks_decode_as_hpack_decodes_them_whatever_other_connections_sent(
    connections: list[list[tuple[int | None, list[Fields]]]],
) -> None:
    known = KnownBlocks()
    for _ in range(2):
        for parts in connections:
            blocks, encoder, plain = HeaderBlocks(Limits(), known), hpack.Encoder(), hpack.Decoder()
            for size, calls in parts:
                if size is not None:
                    encoder.header_table_size = size
                for fields in calls:
                    octets = encoder.encode(fields)
                    assert blocks.decode(block(octets)) == [tuple(each) for each in plain.decode(octets, raw=True)]


@pytest.mark.parametrize(
    "fields",
    [[("authorization", "Bearer secret")], [("x", "v" * LARGEST)], [("x", "")] * (LARGEST // 33 + 1)],
    ids=["a token", "a long value", "many fields"],
)
def test_header_blocks_with_secrets_and_large_ones_are_not_remembered(fields: Fields) -> None:
    known = KnownBlocks()
    encoder = hpack.Encoder()
    blocks = HeaderBlocks(Limits(), known)
    for sent in ([*CALL, *fields], [*CALL, *fields], CALL):
        blocks.decode(block(encoder.encode(sent)))
    assert len(known) == 0


def test_only_so_many_are_remembered_and_the_newest_among_them() -> None:
    known = KnownBlocks()
    for number in range(2 * BLOCKS):
        blocks = HeaderBlocks(Limits(), known)
        blocks.decode(block(hpack.Encoder().encode([("x", str(number))])))
        assert len(known) == min(number + 1, BLOCKS)
    again = HeaderBlocks(Limits(), known)
    again.decode(block(hpack.Encoder().encode([("x", str(number))])))
    assert decoders(again) == 0


def test_a_server_with_lower_limits_does_not_take_what_another_took() -> None:
    known = KnownBlocks()
    octets = hpack.Encoder().encode([("x", "v" * 500)])
    HeaderBlocks(Limits(), known).decode(block(octets))
    with pytest.raises(ConnectionFault, match="far too large"):
        HeaderBlocks(Limits(header_bytes=500 // OVERSIZE_FACTOR), known).decode(block(octets))
