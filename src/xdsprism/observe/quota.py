"""Limits how many log lines one peer may cause.

A peer is an address together with the node id that the client sends. Each peer has a burst and a rate of lines, and so
has each address, as a client may send any number of node ids. Omitted lines are counted, and a later line says how
many there were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ..token_bucket import Rate, TokenBucket

PEER = Rate(20, 1 / 60)  # lines about one peer, of each kind
ADDRESS = Rate(1_000, 1.0)  # lines about all that come from one address
MEMORY = 10_000  # peers, and addresses, that are remembered

Peer = tuple[str, str]  # address without a port, name


class Kind(Enum):
    """The kind of a line. Each has its own allowance: a client that reconnects often may have other trouble too."""

    PRESENCE = "presence"
    PROBLEM = "trouble"


@dataclass(slots=True, eq=False)
class _Account:
    """What one peer may still cause, and how many of its lines were omitted."""

    left: dict[Kind, TokenBucket]
    omitted: int = 0  # lines, since the last line that said how many


class Quota:
    """Decides for each line whether it is written. Time is an argument."""

    def __init__(self) -> None:
        self._accounts: dict[Peer, _Account] = {}
        self._addresses: dict[str, TokenBucket] = {}
        self._with_omitted: dict[Peer, None] = {}  # peers with omitted lines

    def allows(self, peer: Peer, kind: Kind, now: float) -> bool:
        """Whether a line may be written; if not, count it as omitted."""
        account = self._account(peer, now)
        if account.left[kind].spend(now) and self._address(peer[0], now).spend(now):
            return True
        self.omit(peer, now)
        return False

    def omit(self, peer: Peer, now: float) -> None:
        """Count a line that the caller omits because it wrote the same before."""
        self._account(peer, now).omitted += 1
        self._with_omitted[peer] = None

    def take_omitted(self, peer: Peer, now: float) -> int:
        """Return how many lines about a peer were omitted, and reset the count.

        Returns 0 if there are none, or if the peer's allowance has no line left to say so.
        """
        if peer not in self._with_omitted:
            return 0
        account = self._account(peer, now)
        if not (account.left[Kind.PROBLEM].spend(now) and self._address(peer[0], now).spend(now)):
            return 0
        del self._with_omitted[peer]
        omitted, account.omitted = account.omitted, 0
        return omitted

    def take_all_omitted(self, now: float) -> Iterator[tuple[Peer, int]]:
        for peer in [*self._with_omitted]:
            if omitted := self.take_omitted(peer, now):
                yield peer, omitted

    @property
    def has_omitted(self) -> bool:
        return bool(self._with_omitted)

    def _account(self, peer: Peer, now: float) -> _Account:
        """Return the account of a peer; the peer that was used least recently makes room for a new one."""
        account = self._accounts.pop(peer, None)
        if account is None:
            account = _Account({kind: TokenBucket(PEER, now) for kind in Kind})
            if len(self._accounts) >= MEMORY:
                oldest = next(iter(self._accounts))
                del self._accounts[oldest]
                self._with_omitted.pop(oldest, None)
        self._accounts[peer] = account  # at the end: the dict is in order of the last use
        return account

    def _address(self, address: str, now: float) -> TokenBucket:
        allowance = self._addresses.pop(address, None)
        if allowance is None:
            allowance = TokenBucket(ADDRESS, now)
            if len(self._addresses) >= MEMORY:
                del self._addresses[next(iter(self._addresses))]
        self._addresses[address] = allowance
        return allowance
