"""How much of a text from outside is kept and shown: what a peer makes up may be of any length."""

from __future__ import annotations

from hashlib import blake2b

NAME_BYTES = 256  # of a node's id, cluster and user agent, of metadata on pages, of a version in the log
TEXT_BYTES = 4_096  # of what went wrong, in a peer's own words


def bounded(text: str, most: int, *, distinct: bool = False) -> str:
    """The text itself if it has at most so many bytes, else its beginning and its size: `abc… (10,485,760 bytes)`.

    It is cut between two characters. With its mark it has at most so many bytes, so to cut it again changes nothing.
    distinct: the mark has a digest of the whole text too, so that two texts that begin alike stay two.
    """
    if 4 * len(text) <= most:  # a character has up to four bytes
        return text
    encoded = text.encode(errors="surrogateescape")
    if len(encoded) <= most:
        return text
    digest = f", {blake2b(encoded, digest_size=8).hexdigest()}" if distinct else ""
    mark = f"… ({len(encoded):,} bytes{digest})"
    return encoded[: most - len(mark.encode())].decode(errors="ignore") + mark
