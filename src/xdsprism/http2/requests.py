"""Reads a request from its header list, and rejects malformed ones (RFC 9113, sections 8.1 to 8.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .codes import Code
from .faults import StreamFault

Field = tuple[bytes, bytes]
FIELD_OVERHEAD = 32  # bytes that each field counts beside its name and value (RFC 9113, section 10.5.1)

# Section 8.2.1: names have no upper-case characters.
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_BAD_VALUE = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z").search
_DIGITS = re.compile(rb"[0-9]{1,18}").fullmatch

_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
# Section 8.2.2: connection-specific fields make a message malformed.
_CONNECTION = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})


@dataclass(frozen=True, slots=True)
class Request:
    """The request that opened a stream."""

    method: bytes
    path: bytes
    fields: tuple[Field, ...]  # all but the pseudo-header fields
    length: int | None  # the content-length
    size: int  # as SETTINGS_MAX_HEADER_LIST_SIZE counts
    values: Mapping[bytes, bytes]  # the first value of each field

    def get(self, name: bytes) -> bytes:
        """Return the first value of a field, or b""."""
        return self.values.get(name, b"")


def read_request(headers: Sequence[Field]) -> Request:
    """Build the request that a header list describes. Raises StreamFault if the list is malformed."""
    pseudo: dict[bytes, bytes] = {}
    fields: list[Field] = []
    size = 0
    for name, value in headers:
        size += len(name) + len(value) + FIELD_OVERHEAD
        if name.startswith(b":"):
            _pseudo(name, value, pseudo, late=bool(fields))
        else:
            _check_field(name, value)
            fields.append((name, value))
    _check_pseudo(pseudo)
    values = dict(reversed(fields))
    return Request(pseudo[b":method"], pseudo.get(b":path", b""), tuple(fields), _length(fields), size, values)


def check_trailers(headers: Sequence[Field]) -> None:
    """Raise StreamFault if trailers are malformed."""
    for name, value in headers:
        if name.startswith(b":"):  # section 8.1
            raise _malformed("a pseudo-header field among trailers")
        _check_field(name, value)


def _pseudo(name: bytes, value: bytes, seen: dict[bytes, bytes], *, late: bool) -> None:
    """Check and collect one pseudo-header field (section 8.3)."""
    if late:
        raise _malformed("a pseudo-header field after others")
    if name not in _PSEUDO:
        raise _malformed("a pseudo-header field that requests don't have")
    if name in seen:
        raise _malformed("a pseudo-header field twice")
    if _BAD_VALUE(value):
        raise _malformed("a value with forbidden characters")
    seen[name] = value


def _check_pseudo(pseudo: dict[bytes, bytes]) -> None:
    """Check that all pseudo-header fields are there (section 8.3.1). CONNECT has fewer (section 8.5)."""
    if b":method" not in pseudo:
        raise _malformed("no :method")
    if pseudo[b":method"] == b"CONNECT":
        if b":scheme" in pseudo or b":path" in pseudo:
            raise _malformed("CONNECT has neither :scheme nor :path")
    elif not pseudo.get(b":scheme") or not pseudo.get(b":path"):
        raise _malformed("no :scheme or no :path")


def _check_field(name: bytes, value: bytes) -> None:
    """Check one regular field (sections 8.2.1 and 8.2.2)."""
    if not _NAME(name):
        raise _malformed("a field name with forbidden characters")
    if _BAD_VALUE(value):
        raise _malformed("a value with forbidden characters")
    if name in _CONNECTION or (name == b"te" and value != b"trailers"):
        raise _malformed("a connection-specific field")


def _length(fields: Sequence[Field]) -> int | None:
    """Return the content-length, which the body must match (section 8.1.1)."""
    values = {value for name, value in fields if name == b"content-length"}
    if not values:
        return None
    if len(values) > 1 or not _DIGITS(value := values.pop()):
        raise _malformed("a content-length that is no number")
    return int(value)


def _malformed(why: str) -> StreamFault:
    return StreamFault(Code.PROTOCOL_ERROR, f"malformed headers: {why}")
