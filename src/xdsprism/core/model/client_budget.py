"""Count what each client has of a server: its streams, and how often it fetches (OPS-3, OPS-4).

A client is whoever proved one identity, or else whoever comes from one address. It may have three quarters of all
streams, unless `Limits.client_streams` says otherwise, so that it never keeps all others out. What is beyond a limit is
refused by itself, and nothing that the client has already is touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ...token_bucket import Rate, TokenBucket
from .limits import AT_ONCE, ClientLimit, Limits
from .truncation import NAME_BYTES, bounded

MEMORY = 10_000  # clients whose fetches are counted, the last ones
SHOWN = 1_000  # clients of which it is known what was refused, the last ones


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The limit that a client exceeds, and what it is told."""

    limit: ClientLimit
    message: str  # which limit, and what to do
    seconds: float = 0.0  # after which it may come again; 0: nobody knows


class ClientBudget:
    """The streams and fetches of all clients of one server."""

    __slots__ = ("_exceeded", "_fetches", "_limits", "_streams", "open")

    def __init__(self, limits: Limits) -> None:
        self.open = 0  # streams, of all clients
        self._limits = limits
        self._streams: dict[str, int] = {}
        self._fetches: dict[str, TokenBucket] = {}
        self._exceeded: dict[str, Counter[ClientLimit]] = {}

    def open_stream(self, client: str) -> Exceeded | None:
        """Count a stream of this client, or return the limit that refuses it."""
        had, limits = self._streams.get(client, 0), self._limits
        if self.open >= limits.all_streams:
            text = f"this server has {limits.all_streams:,} streams, and takes no more: "
            text += "come again later, ask another server, or start this one with a higher --limit all_streams=N"
            return self._refuse(client, Exceeded("all_streams", text))
        if had >= limits.streams_of_a_client:
            text = f"{bounded(client, NAME_BYTES)} has {had:,} streams at this server, and may have no more: "
            text += "end some that it does not need, or start the server with a higher --limit client_streams=N"
            return self._refuse(client, Exceeded("client_streams", text))
        self.open += 1
        self._streams[client] = had + 1
        return None

    def close_stream(self, client: str) -> None:
        """Count a stream of this client as closed."""
        self.open -= 1
        left = self._streams.pop(client) - 1
        if left:
            self._streams[client] = left

    def fetch(self, client: str, now: float) -> Exceeded | None:
        """Count a fetch of this client, or return the limit that refuses it.

        A fetch is refused and not delayed: it is one question without an order to keep, and its client asks again by
        itself. To let it wait would take a connection and memory for each, which is what a flood is after.
        """
        most = self._limits.fetches
        bucket = self._fetches.pop(client, None) or TokenBucket(Rate(most * AT_ONCE, most), now)
        if len(self._fetches) >= MEMORY:
            del self._fetches[next(iter(self._fetches))]
        self._fetches[client] = bucket  # the one that fetched last is at the end
        if bucket.spend(now):
            return None
        seconds = bucket.wait(now)
        text = f"{bounded(client, NAME_BYTES)} fetches more than {most:,} times a second: "
        text += f"ask again in {seconds:.3f} s, keep a stream open, or start the server with a higher --limit fetches=N"
        return self._refuse(client, Exceeded("fetches", text, seconds))

    def exceeded(self, client: str) -> Mapping[ClientLimit, int]:
        """Return how often this client exceeded which limit, as far as that is still known."""
        return self._exceeded.get(client, {})

    def all_exceeded(self) -> Mapping[str, Mapping[ClientLimit, int]]:
        """Return the same for each of the last clients that exceeded one."""
        return self._exceeded

    def _refuse(self, client: str, exceeded: Exceeded) -> Exceeded:
        self.note(client, exceeded.limit)
        return exceeded

    def note(self, client: str, limit: ClientLimit) -> None:
        """Note that a client exceeded a limit."""
        counts = self._exceeded.pop(client, None) or Counter()
        if len(self._exceeded) >= SHOWN:
            del self._exceeded[next(iter(self._exceeded))]
        self._exceeded[client] = counts
        counts[limit] += 1
