"""Gathers header blocks from HEADERS and CONTINUATION frames, and decompresses them (RFC 9113, section 4.3).

All blocks of a connection share one HPACK table, so each block is decompressed in order, even if its stream is refused.
Nearly every connection begins with the same blocks as others, which are not decompressed again (known_blocks.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import hpack

from .codes import END_HEADERS, END_STREAM, LAST_STREAM, PADDED, PRIORITISED, Code
from .faults import ConnectionFault
from .frames import UINT32, strip_padding
from .known_blocks import DecodedBlock, KnownBlocks
from .limits import Limit, Limits
from .requests import Field, Request, read_request

# A block that begins with three dynamic table size updates (RFC 7541, section 6.3). The decoder checks everything else.
_RESIZED = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\0-\x7f]){3}").match

# A block of nothing but indexed fields with one-byte indexes (RFC 7541, section 6.1): decoding it changes no table.
_INDEXED = re.compile(rb"[\x81-\xfe]+").fullmatch

# A header list of up to this many times the limit is still read, so that it costs its stream and not the connection.
OVERSIZE_FACTOR = 4

_KNOWN = KnownBlocks()  # of all connections


class Block:
    """One header block: its stream, the flags of its HEADERS frame, and the fragments received so far."""

    __slots__ = ("depends_on", "frames", "last", "number", "octets")

    def __init__(self, number: int, *, last: bool, depends_on: int) -> None:
        self.number = number
        self.last = last  # END_STREAM is set: no body follows
        self.depends_on = depends_on  # stream number in the priority fields; 0 without these
        self.frames = 0  # CONTINUATION frames received
        self.octets = b""


class HeaderBlocks:
    """The header blocks of one connection, one after the other, with the HPACK table that they share.

    The calls of one client have equal headers. From the second call on all fields are in the table and the block is a
    few bytes of indexes; such a block is remembered with its fields and its request, and is not decoded again.

    As long as all blocks are known from other connections, this one has no decoder. When it needs one, it decodes the
    one block that filled the table once more.
    """

    __slots__ = ("_decoder", "_first", "_known", "_last", "_limits", "_most_bytes", "in_progress")

    def __init__(self, limits: Limits, known: KnownBlocks = _KNOWN) -> None:
        self.in_progress: Block | None = None
        self._limits = limits
        self._known = known
        self._most_bytes = OVERSIZE_FACTOR * limits.header_bytes  # of a block, and of the list that it describes
        self._decoder: hpack.Decoder | None = None
        self._first: bytes | None = b""  # the known block that filled the table, if any; None: others changed it, too
        self._last: DecodedBlock | None = None

    def begin(self, flags: int, number: int, payload: bytes) -> Block | None:
        """Begin a block with a HEADERS frame. Return the block if the frame has END_HEADERS."""
        if number == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "HEADERS without a stream")
        if flags & PADDED:
            payload = strip_padding(payload)
        dependency = 0
        if flags & PRIORITISED:
            if len(payload) < 5:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "HEADERS too short for a priority")
            dependency = depends_on(payload)
            payload = payload[5:]
        self.in_progress = Block(number, last=bool(flags & END_STREAM), depends_on=dependency)
        return self._add(self.in_progress, flags, payload)

    def continue_block(self, flags: int, number: int, payload: bytes) -> Block | None:
        """Add a CONTINUATION frame to the block in progress. Return the block if the frame has END_HEADERS."""
        block = self.in_progress
        if block is None:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"CONTINUATION without HEADERS, on stream {number}")
        block.frames += 1
        if block.frames > self._limits.continuations:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block in too many frames", Limit.CONTINUATIONS)
        return self._add(block, flags, payload)

    def _add(self, block: Block, flags: int, payload: bytes) -> Block | None:
        """Add a fragment. Return the block if it is complete."""
        block.octets += payload
        if len(block.octets) > self._most_bytes:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block far too large", Limit.HEADER_LIST)
        if not flags & END_HEADERS:
            return None
        self.in_progress = None
        return block

    def decode(self, block: Block) -> Sequence[Field]:
        """Decompress a block into its fields. Raises ConnectionFault: after an HPACK error the table is unknown."""
        octets = block.octets
        last = self._last
        if last is None or last.octets != octets or _INDEXED(octets) is None:
            last = self._last = self._known_or_decoded(octets)
        return last.fields

    def request(self, fields: Sequence[Field]) -> Request:
        """Read the request from fields that `decode` returned. Raises StreamFault if they are malformed."""
        last = self._last
        if last is None or last.fields is not fields:
            return read_request(fields)
        if last.request is None:
            last.request = read_request(fields)
        return last.request

    def _known_or_decoded(self, octets: bytes) -> DecodedBlock:
        """Find a block among those that other connections had, or decompress it."""
        changes_table = _INDEXED(octets) is None
        first = self._first
        if first is None or (first and changes_table):
            decoded = self._decoded(octets)
            if changes_table:
                self._first = None
            return decoded
        key = (self._most_bytes, first, octets)
        found, is_known = self._known.find(key), True
        if found is None:
            found = self._decoded(octets)
            is_known = self._known.add(key, found)
        elif changes_table:
            self._decoder = None  # if there is one, it has not seen this block, and no other that matters
        if changes_table:
            self._first = octets if is_known else None
        return found

    def _decoded(self, octets: bytes) -> DecodedBlock:
        """Decompress a block."""
        # RFC 7541, section 4.2 allows two size updates. More of them cost time and don't count in the list's size.
        if _RESIZED(octets):
            why = "headers with more than two updates of the table size"
            raise ConnectionFault(Code.COMPRESSION_ERROR, why, Limit.HEADER_LIST)
        decoder = self._decoder
        try:
            if decoder is None:
                decoder = self._decoder = hpack.Decoder(max_header_list_size=self._most_bytes)
                if self._first:
                    decoder.decode(self._first, raw=True)
            fields = [(bytes(name), bytes(value)) for name, value in decoder.decode(octets, raw=True)]
        except hpack.OversizedHeaderListError as error:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header list far too large", Limit.HEADER_LIST) from error
        except (hpack.HPACKError, ValueError, IndexError) as error:
            raise ConnectionFault(Code.COMPRESSION_ERROR, "headers that can't be decompressed") from error
        return DecodedBlock(octets, fields)


def depends_on(payload: bytes) -> int:
    """Read the stream dependency from priority fields (RFC 7540, section 6.3), without the exclusive bit."""
    return int(UINT32.unpack_from(payload)[0]) & LAST_STREAM
