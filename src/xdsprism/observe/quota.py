"""How many log lines one peer may cause, however often it does what they tell of.

Lines are counted by peer: an address and the name that it gives itself. Each has a number of lines at once, and a rate
at which they come back; so has each address, whatever names come from it. What is left out is counted and told later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ..http2.limits import Rate, TokenBucket

PEER = Rate(20, 1 / 60)  # lines about one peer, of each kind
ADDRESS = Rate(1_000, 1.0)  # lines about all that come from one address
MEMORY = 10_000  # peers, and addresses, that are remembered

Peer = tuple[str, str]  # address without a port, name


class Kind(Enum):
    """Each has an allowance of its own: whoever comes and goes all the time may have trouble that is worth a line."""

    PRESENCE = "presence"
    TROUBLE = "trouble"


@dataclass(slots=True, eq=False)
class _Account:
    left: dict[Kind, TokenBucket]
    omitted: int = 0  # lines, since it was last told how many


class Quota:
    """Decides for each line whether it is written. Time is an argument."""

    def __init__(self) -> None:
        self._accounts: dict[Peer, _Account] = {}
        self._addresses: dict[str, TokenBucket] = {}
        self._owing: dict[Peer, None] = {}  # those with lines that were left out

    def allows(self, peer: Peer, kind: Kind, now: float) -> bool:
        """Whether a line may be written; if not, it is counted as left out."""
        account = self._account(peer, now)
        if account.left[kind].spend(now) and self._address(peer[0], now).spend(now):
            return True
        self.omit(peer, now)
        return False

    def omit(self, peer: Peer, now: float) -> None:
        """Count a line that is not written since it was written before."""
        self._account(peer, now).omitted += 1
        self._owing[peer] = None

    def settle(self, peer: Peer, now: float) -> int:
        """How many lines about it were left out, to be told now; 0: none, or it can't be told yet."""
        if peer not in self._owing:
            return 0
        account = self._account(peer, now)
        if not (account.left[Kind.TROUBLE].spend(now) and self._address(peer[0], now).spend(now)):
            return 0
        del self._owing[peer]
        omitted, account.omitted = account.omitted, 0
        return omitted

    def settle_all(self, now: float) -> Iterator[tuple[Peer, int]]:
        for peer in [*self._owing]:
            if omitted := self.settle(peer, now):
                yield peer, omitted

    @property
    def owes(self) -> bool:
        return bool(self._owing)

    def _account(self, peer: Peer, now: float) -> _Account:
        account = self._accounts.pop(peer, None)
        if account is None:
            account = _Account({kind: TokenBucket(PEER, now) for kind in Kind})
            if len(self._accounts) >= MEMORY:
                oldest = next(iter(self._accounts))
                del self._accounts[oldest]
                self._owing.pop(oldest, None)
        self._accounts[peer] = account  # the one that was used last is at the end
        return account

    def _address(self, address: str, now: float) -> TokenBucket:
        allowance = self._addresses.pop(address, None)
        if allowance is None:
            allowance = TokenBucket(ADDRESS, now)
            if len(self._addresses) >= MEMORY:
                del self._addresses[next(iter(self._addresses))]
        self._addresses[address] = allowance
        return allowance
