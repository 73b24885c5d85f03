"""Limit how much of a peer's text is kept and shown, because a peer may send text of any length."""

from __future__ import annotations

from hashlib import blake2b

NAME_BYTES = 256  # for a node's id, cluster and user agent, for metadata on pages, for a version in the log
TEXT_BYTES = 4_096  # for an error message in a peer's own words


def bounded(text: str, most: int, *, distinct: bool = False) -> str:
    """Return the text if it has at most `most` bytes, else its beginning and its size: `abc… (10,485,760 bytes)`.

    The cut is between two characters. The result, including the mark, has at most `most` bytes, so cutting it again
    changes nothing. distinct: the mark also includes a digest of the whole text, so that two long texts with the same
    beginning stay distinct.
    """
    if 4 * len(text) <= most:  # a character takes at most four bytes, so the text surely fits
        return text
    encoded = text.encode(errors="surrogateescape")
    if len(encoded) <= most:
        return text
    mark = marked(len(encoded), blake2b(encoded, digest_size=8).hexdigest() if distinct else "")
    return encoded[: most - len(mark.encode())].decode(errors="ignore") + mark


def marked(size: int, digest: str = "") -> str:
    """Return the mark at the end of a text that is cut; `digest`: of the whole text, or empty."""
    return f"… ({size:,} bytes{f', {digest}' if digest else ''})"
