"""Header blocks: gathered from HEADERS and CONTINUATION frames, then decompressed (RFC 9113, section 4.3)."""

from __future__ import annotations

import re

import hpack

from .codes import END_HEADERS, END_STREAM, LAST_STREAM, PADDED, PRIORITISED, Code
from .faults import Fault
from .frames import UINT32, unpadded
from .limits import Limit, Limits
from .requests import Field, Request, read_request

# Three dynamic table size updates (RFC 7541, section 6.3) at the beginning; what is no size is left to the decoder.
_RESIZED = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\0-\x7f]){3}").match

# Indexed fields only, whose numbers are short (RFC 7541, section 6.1): the table stays as it is.
_INDEXED = re.compile(rb"[\x81-\xfe]+").fullmatch

ROOM = 4  # times the limit of a header list, to hear it out and refuse one stream rather than all


class Block:
    """One header block: its stream, what its HEADERS frame said, and its fragments so far."""

    __slots__ = ("depends_on", "frames", "last", "number", "octets")

    def __init__(self, number: int, *, last: bool, depends_on: int) -> None:
        self.number = number
        self.last = last
        self.depends_on = depends_on
        self.frames = 0
        self.octets = b""


class HeaderBlocks:
    """All blocks of a connection, one after the other, for they share the table of HPACK."""

    __slots__ = ("_decoder", "_limits", "_request", "_same", "under_way")

    def __init__(self, limits: Limits) -> None:
        self.under_way: Block | None = None
        self._limits = limits
        self._decoder = hpack.Decoder(max_header_list_size=ROOM * limits.header_bytes)
        self._same: tuple[bytes, list[Field]] | None = None  # the last block, if another like it says the same
        self._request: Request | None = None  # that it makes

    def begin(self, flags: int, number: int, payload: bytes) -> Block | None:
        """HEADERS; the block, if that was all of it."""
        if number == 0:
            raise Fault(Code.PROTOCOL_ERROR, "HEADERS without a stream")
        if flags & PADDED:
            payload = unpadded(payload)
        dependency = 0
        if flags & PRIORITISED:
            if len(payload) < 5:
                raise Fault(Code.FRAME_SIZE_ERROR, "HEADERS too short for a priority")
            dependency = depends_on(payload)
            payload = payload[5:]
        self.under_way = Block(number, last=bool(flags & END_STREAM), depends_on=dependency)
        return self._add(self.under_way, flags, payload)

    def go_on(self, flags: int, number: int, payload: bytes) -> Block | None:
        """CONTINUATION."""
        block = self.under_way
        if block is None:
            raise Fault(Code.PROTOCOL_ERROR, f"CONTINUATION of nothing, on stream {number}")
        block.frames += 1
        if block.frames > self._limits.continuations:
            raise Fault(Code.ENHANCE_YOUR_CALM, "a header block in too many frames", Limit.CONTINUATIONS)
        return self._add(block, flags, payload)

    def _add(self, block: Block, flags: int, payload: bytes) -> Block | None:
        block.octets += payload
        if len(block.octets) > ROOM * self._limits.header_bytes:
            raise Fault(Code.ENHANCE_YOUR_CALM, "a header block far too large", Limit.HEADER_LIST)
        if not flags & END_HEADERS:
            return None
        self.under_way = None
        return block

    def decode(self, block: Block) -> list[Field]:
        """Calls of one client are alike: from the second on all fields are in the table, and a block is a few bytes."""
        octets = block.octets
        if self._same is not None and self._same[0] == octets:
            return self._same[1]
        fields = self._decode(block)
        self._same, self._request = ((octets, fields) if _INDEXED(octets) else None), None
        return fields

    def request(self, fields: list[Field]) -> Request:
        """Raises StreamFault for what can't be one."""
        if self._same is None or self._same[1] is not fields:
            return read_request(fields)
        if self._request is None:
            self._request = read_request(fields)
        return self._request

    def _decode(self, block: Block) -> list[Field]:
        if _RESIZED(block.octets):  # RFC 7541, section 4.2. More of them cost time, and none of the list's size
            why = "headers that begin with more than two sizes of the table"
            raise Fault(Code.COMPRESSION_ERROR, why, Limit.HEADER_LIST)
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block.octets, raw=True)]
        except hpack.OversizedHeaderListError as error:
            raise Fault(Code.ENHANCE_YOUR_CALM, "a header list far too large", Limit.HEADER_LIST) from error
        except (hpack.HPACKError, ValueError, IndexError) as error:
            raise Fault(Code.COMPRESSION_ERROR, "headers that can't be decompressed") from error


def depends_on(payload: bytes) -> int:
    return int(UINT32.unpack_from(payload)[0]) & LAST_STREAM
