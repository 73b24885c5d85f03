"""Header blocks that are alike are read once, as long as that can't be told."""

from __future__ import annotations

import hpack
import pytest

from tests.http2.rig import CALL
from xdsprism.http2.blocks import Block, HeaderBlocks
from xdsprism.http2.codes import END_HEADERS
from xdsprism.http2.faults import StreamFault
from xdsprism.http2.limits import Limits


def block(octets: bytes) -> Block:
    found = HeaderBlocks(Limits()).begin(END_HEADERS, 1, octets)
    assert found is not None
    return found


def test_a_block_of_indices_is_read_once() -> None:
    blocks, encoder = HeaderBlocks(Limits()), hpack.Encoder()
    first = blocks.decode(block(encoder.encode(CALL)))
    again = encoder.encode(CALL)
    second = blocks.decode(block(again))
    assert second == first
    assert blocks.decode(block(again)) is second
    assert blocks.request(second) is blocks.request(second)


def test_the_same_indices_mean_something_else_when_the_table_has_moved() -> None:
    # RFC 7541, section 2.3.3
    blocks, encoder = HeaderBlocks(Limits()), hpack.Encoder()
    blocks.decode(block(encoder.encode([("x", "1")])))
    known = encoder.encode([("x", "1")])
    assert blocks.decode(block(known)) == [(b"x", b"1")]
    blocks.decode(block(encoder.encode([("x", "2")])))
    assert blocks.decode(block(known)) == [(b"x", b"2")]


def test_malformed_headers_are_refused_each_time_they_are_repeated() -> None:
    blocks, encoder = HeaderBlocks(Limits()), hpack.Encoder()
    for _ in range(3):
        fields = blocks.decode(block(encoder.encode([(":method", "GET"), (":nonsense", "1")])))
        with pytest.raises(StreamFault, match="that requests don't have"):
            blocks.request(fields)
