"""Remembers header blocks with which connections begin, and what they say.

The clients of a fleet are alike: their first header blocks are equal, byte for byte, and so are the second ones, which
refer to what the first put into the HPACK table. To decompress such a block costs more than all else that opens a
stream. Its fields depend on nothing but its bytes, the bytes of earlier blocks that changed the table, and the limit on
the size of a list. So all connections share what one of them has decompressed.

What only one client sends, such as a token, is not remembered, and the size of all is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from .requests import FIELD_OVERHEAD, Field, Request

BLOCKS = 64  # remembered at once; the oldest makes room
LARGEST = 2_048  # bytes of a block's header list, counted as RFC 9113, section 10.5.1 does

Key = tuple[int, bytes, bytes]  # the limit, the block that made the table what it is (or nothing), and the block itself


class DecodedBlock:
    """A header block, its fields, and the request that they describe, once it was read."""

    __slots__ = ("fields", "octets", "request")

    def __init__(self, octets: bytes, fields: Sequence[Field]) -> None:
        self.octets = octets
        self.fields = fields
        self.request: Request | None = None


class KnownBlocks:
    """The blocks that are remembered."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: dict[Key, DecodedBlock] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def find(self, key: Key) -> DecodedBlock | None:
        return self._blocks.get(key)

    def add(self, key: Key, block: DecodedBlock) -> bool:
        """Remember a block, unless it is large or secret. Return whether it was."""
        if not _is_small_and_public(block.fields):
            return False
        if len(self._blocks) >= BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        self._blocks[key] = block
        return True


def _is_small_and_public(fields: Sequence[Field]) -> bool:
    size = 0
    for name, value in fields:
        size += len(name) + len(value) + FIELD_OVERHEAD
        if name == b"authorization":
            return False
    return size <= LARGEST
