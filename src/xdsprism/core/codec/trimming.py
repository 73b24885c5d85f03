"""Cut out of a long message what no server uses, in steps, before protobuf parses it (OPS-10, VHD-26).

A message of 64 MiB may be a list of names, which `wire.split_fields` splits. It may also be a single field: a node with
millions of metadata keys, a locator with millions of params, the text of a NACK. To parse such a field takes seconds,
and no other client would be served meanwhile. So a message above LARGE is trimmed first, by a table of its fields:

    _whole       kept as it is; a name of any length is answered (VHD-26)
    Short        a text: only its beginning is kept, with a digest of the whole, so that two long texts stay distinct
    _short_entry dropped above MOST bytes: a client that does not name a version is sent the resource again
    Inside       a message: its own fields are trimmed
    Metadata     of a node's metadata, what node_params.py may use
    (no entry)   dropped

The remaining message is parsed within milliseconds. The parts that are cut exceed a limit, or are never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from ...errors import PeerError
from ..model.limits import Limits
from ..model.node_params import ENTRY, FEATURES, METADATA, OTHERS, VALUE_BYTES
from ..model.steps import Steps
from ..model.truncation import TEXT_BYTES, marked
from .wire import fields_of, join_field

LARGE = 128 * 1024  # bytes; less is parsed within milliseconds, whatever is in it
MOST = 1024 * 1024  # bytes of the longest type_url, version entry, and metadata entry that is no text
CHUNK = 1024 * 1024  # bytes of a text to digest between two steps
SCANNED = 1_000  # fields to look at between two steps

Bytes = bytes | memoryview  # a view, so that 60 MB are not copied from message to field to field

# Returns in steps what to keep of a field's payload; None: drop the field.
Rule = Callable[[Bytes], Steps[Bytes | None]]


class Field(NamedTuple):
    """How to trim one field. `most`: how many to keep, if it is repeated."""

    rule: Rule
    most: int | None = None


Table = Mapping[int, Field]  # by field number


class Inside:
    """Trims a message that is above LARGE, field by field."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __call__(self, payload: Bytes) -> Steps[bytes]:
        """Return the trimmed message, in steps. Raise PeerError if the bytes are not a protobuf message."""
        if len(payload) <= LARGE:
            return bytes(payload)
        payload = memoryview(payload)
        kept: list[Bytes] = []
        seen: Counter[int] = Counter()
        for count, (number, start, body, end) in enumerate(fields_of(payload), 1):
            if count % SCANNED == 0:
                yield
            field = self._table.get(number)
            if field is None:
                continue
            seen[number] += 1
            if field.most is not None and seen[number] > field.most:
                continue
            if body is None or end - body <= LARGE:
                kept.append(payload[start:end])
                continue
            part = yield from field.rule(payload[body:end])
            if part is not None:
                kept.append(join_field(number, part))
        return b"".join(kept)


class Metadata:
    """Trims the Struct of a node's metadata to the entries that `node_params.node_of` keeps.

    Where the settings name the params, these are the named entries, and some others to show. Elsewhere only texts can
    be params: the shortest of them are kept, METADATA bytes in all.
    """

    def __init__(self, names: Collection[str] | None) -> None:
        # `a.b` may be the entry `a.b`, or be inside the entry `a`.
        self._heads = None if names is None else {head for name in names for head in _heads(name.encode())}

    def __call__(self, payload: Bytes) -> Steps[bytes]:
        if self._heads is not None:
            return (yield from self._named(payload, self._heads))
        sizes: Counter[int] = Counter()
        for count, (_, text, _) in enumerate(_entries(payload), 1):
            if text is not None:
                sizes[_size(text)] += 1
            if count % SCANNED == 0:
                yield
        left, room = METADATA, {}
        for size in sorted(sizes):
            room[size] = min(sizes[size], left // size)
            left -= room[size] * size
        kept: list[bytes] = []
        for count, (entry, text, _) in enumerate(_entries(payload), 1):
            if text is not None and room[_size(text)]:
                room[_size(text)] -= 1
                kept.append(join_field(1, (yield from _ENTRY(entry))))
            if count % SCANNED == 0:
                yield
        return b"".join(kept)

    def _named(self, payload: Bytes, heads: Collection[bytes]) -> Steps[bytes]:
        kept: list[bytes] = []
        others = 0
        for count, (entry, text, key) in enumerate(_entries(payload), 1):
            if count % SCANNED == 0:
                yield
            is_other = key not in heads and text is not None and others < OTHERS
            others += is_other
            if is_other or (key in heads and (text is not None or len(entry) <= MOST)):
                kept.append(join_field(1, (yield from _ENTRY(entry)) if text is not None else entry))
        return b"".join(kept)


def _heads(name: bytes) -> Iterator[bytes]:
    """Yield the name, and every part of it that ends before a dot."""
    yield name
    at = name.rfind(b".")
    while at > 0:
        yield name[:at]
        at = name.rfind(b".", 0, at)


def _size(entry: int) -> int:
    """Return what a text entry of the metadata counts: its value is cut (node_params.VALUE_BYTES)."""
    return min(entry, VALUE_BYTES) + ENTRY


def _entries(struct: Bytes) -> Iterator[tuple[Bytes, int | None, bytes]]:
    """Yield each entry of an encoded Struct: its bytes, their number if the value is a text, and the key."""
    for number, _, body, end in fields_of(struct):
        if number != 1 or body is None:
            continue
        entry, key, is_text = struct[body:end], b"", False
        for part, _, begin, until in fields_of(entry):
            if begin is not None and part == 1:
                key = bytes(entry[begin:until])
            elif begin is not None and part == 2:
                is_text = entry[begin : begin + 1] == b"\x1a"  # field 3 of Value: string_value
        yield entry, len(entry) if is_text else None, key


def _whole(payload: Bytes) -> Steps[Bytes | None]:
    return payload
    yield


def _short_entry(payload: Bytes) -> Steps[Bytes | None]:
    return payload if len(payload) <= MOST else None
    yield


class Short:
    """Cuts a text as `truncation.bounded` does: the beginning is kept, with the size and a digest of the whole."""

    def __init__(self, most: int, *, distinct: bool = True) -> None:
        self._most = most
        self._is_distinct = distinct

    def __call__(self, payload: Bytes) -> Steps[bytes]:
        digest = blake2b(digest_size=8)
        for at in range(0, len(payload) if self._is_distinct else 0, CHUNK):
            digest.update(payload[at : at + CHUNK])
            yield
        mark = marked(len(payload), digest.hexdigest() if self._is_distinct else "").encode()
        end = self._most - len(mark)
        while payload[end] & 0xC0 == 0x80 and self._most - len(mark) - end < 3:  # within a character
            end -= 1
        return bytes(payload[:end]) + mark


def _type_url(payload: Bytes) -> Steps[Bytes | None]:
    if len(payload) > MOST:
        raise PeerError("INVALID_ARGUMENT", f"the type_url has {len(payload):,} bytes")
    return payload
    yield


# -- tables, with the field numbers of the protos

TEXT, NAMED = Field(Short(VALUE_BYTES)), Field(_whole)
_ENTRY = Inside({1: TEXT, 2: Field(Inside({3: TEXT}))})  # of a Struct
_PARAM = Inside({1: TEXT, 2: TEXT})
_LOCALITY = Inside({1: TEXT, 2: TEXT, 3: TEXT})
_BUILD_VERSION = Inside({1: Field(_whole)})
_STATUS = Inside({1: Field(_whole), 2: Field(Short(TEXT_BYTES, distinct=False))})


def node_field(names: Collection[str] | None) -> Field:
    """Return how to trim a node; `names`: the metadata that the settings name."""
    fields = {1: TEXT, 2: TEXT, 3: Field(Metadata(names)), 4: Field(_LOCALITY), 6: TEXT, 7: TEXT}
    return Field(Inside({**fields, 8: Field(_BUILD_VERSION), 10: TEXT._replace(most=FEATURES)}))


def discovery_request(*, delta: bool, limits: Limits, names: Collection[str] | None) -> Inside:
    """Return how to trim a discovery request."""
    node, type_url, status = node_field(names), Field(_type_url), Field(_STATUS)
    # One more param than allowed, so that the locator is refused.
    locator = Field(Inside({1: NAMED, 2: Field(_PARAM, limits.params + 1)}))
    if delta:
        lists = {3: NAMED, 4: NAMED, 5: Field(_short_entry), 8: locator, 9: locator}
        return Inside({1: node, 2: type_url, **lists, 6: TEXT, 7: status})
    version = Field(Short(TEXT_BYTES))
    return Inside({1: version, 2: node, 3: NAMED, 4: type_url, 5: TEXT, 6: status, 7: locator})
