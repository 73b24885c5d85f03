"""Messages above the limit, where the transport can only hand them over as a whole (SRV-24, VHD-26).

The transport of our own reads such a message in pieces while it comes (http2/grpc.py). grpc.aio has all of it in memory
before we see it. So there a message has a size that it may have at most, and all that calls hold of such messages at
once has one too. What is held is taken in by the same pieces, one at a time.
"""

from __future__ import annotations

from collections.abc import Generator

from ..errors import PeerError
from ..http2.grpc import PiecesFactory
from ..http2.limits import Limits

LARGEST = 256 * 1024 * 1024  # bytes of one message. While grpc makes it of what came, it takes three times as much.
HELD = Limits().all_unfinished_bytes  # bytes that calls hold of large messages at once
CHUNK = 64 * 1024  # bytes that are parted before others are served: some milliseconds, if all names are short


class LargeMessages:
    """The messages above `limit` that all calls of a server hold."""

    def __init__(self, limit: int, most: int = HELD) -> None:
        self.limit = limit
        self.held = 0  # bytes
        self._most = most

    def parts(self, message: bytes, parting: PiecesFactory | None) -> Generator[bytes | None]:
        """The requests that such a message is made of. None: let others be served before the next one.

        It counts as held until this iterator is at its end, or closed. Raises PeerError for what is not read.
        """
        size = len(message)
        if parting is None:
            raise _refusal(f"received message larger than max ({size:,} vs. {self.limit:,} bytes)")
        if self.held + size > self._most:
            raise _refusal(f"large requests of others take {self.held:,} bytes of {self._most:,}: try again later")
        self.held += size
        try:
            pieces = parting(self.limit)
            view = memoryview(message)
            for at in range(0, size, CHUNK):
                yield from pieces.feed(bytes(view[at : at + CHUNK]))
                yield None
            yield from pieces.end()
        finally:
            self.held -= size


def _refusal(why: str) -> PeerError:
    return PeerError("RESOURCE_EXHAUSTED", why)
