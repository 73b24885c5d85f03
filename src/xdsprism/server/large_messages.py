"""Split messages above the size limit, where the transport can only hand them over whole (SRV-24, VHD-26).

An Envoy that comes back with very many subscriptions sends them in one large request. The transport of our own reads
such a message in pieces while it arrives (http2/grpc.py). grpc.aio has all of it in memory before we see it. So with
grpc.aio there is a limit on one message, LARGEST, and a limit on all large messages that calls hold at once, HELD. A
large message within these is split into the same pieces, which the call receives as requests one at a time.
"""

from __future__ import annotations

from collections.abc import Generator

from ..errors import PeerError
from ..http2.grpc import PiecesFactory
from ..http2.limits import Limits

LARGEST = 256 * 1024 * 1024  # bytes of one message. grpc needs three times as much while it assembles the message.
HELD = Limits().all_unfinished_bytes  # bytes of large messages that all calls may hold at once
CHUNK = 64 * 1024  # bytes that are split before others are served: some milliseconds, if all names are short


class LargeMessages:
    """The messages above `limit` that all calls of a server hold."""

    def __init__(self, limit: int, most: int = HELD) -> None:
        self.limit = limit
        self.held = 0  # bytes
        self._most = most

    def parts(self, message: bytes, parting: PiecesFactory | None) -> Generator[bytes | None]:
        """Yield the requests that a large message is split into. None: let others be served before the next one.

        The message counts as held until this iterator ends or is closed. Raises PeerError if the message is refused.
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
