"""How much of a text from outside is kept and shown: what a peer makes up may be of any length."""

from __future__ import annotations

NAME_BYTES = 256  # of a node's id, cluster, user agent, locality, of a version and a nonce
TEXT_BYTES = 4_096  # of what went wrong, in a peer's own words


def bounded(text: str, most: int) -> str:
    """The text itself if it has at most so many bytes, else its beginning and its size: `abc… (10,485,760 bytes)`.

    It is cut between two characters, and the mark comes on top: no text is longer than `most` and some 30 bytes.
    """
    if 4 * len(text) <= most:  # a character has up to four bytes
        return text
    encoded = text.encode(errors="surrogateescape")
    if len(encoded) <= most:
        return text
    return f"{encoded[:most].decode(errors='ignore')}… ({len(encoded):,} bytes)"
