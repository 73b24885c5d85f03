"""Find out who the client of a call is by its bearer token; core/policy/tokens.py decides.

A token comes with each call, and not with the connection: streams of several subjects may share one connection. A call
without a token is that of whoever the certificate says, or of nobody. A call with a bad one is refused. If it were
served as anonymous, its client would take what it gets for all there is.

To check a signature takes 20 to 900 microseconds, depending on the key. So one address may cause only so many checks
that find it wrong. Tokens that are known to be right are not checked again, and are never kept waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..core.model.facts import Facts, TokenRefused
from ..core.policy.tokens import Standing, TokenRefusal, Tokens
from ..errors import PeerError
from ..peer_address import host_of
from ..token_bucket import Rate, TokenBucket
from .calls import Peer

BAD_CHECKS = Rate(100, 20)  # of wrong signatures, for one address
MEMORY = 10_000  # addresses that are remembered


class Bearers:
    """The bearer tokens of all calls of a server."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float], facts: Facts) -> None:
        """`clock` is that of the calls; `wall` is the one that tokens expire by."""
        self._clock = clock
        self._wall = wall
        self._facts = facts
        self._budgets: dict[str, TokenBucket] = {}  # of addresses that sent a wrong signature

    def identify(self, peer: Peer, tokens: Tokens | None) -> Peer:
        """Return the peer with what its token proves, and without the token. Raises PeerError if that is bad."""
        now, wall = self._clock(), self._wall()
        if tokens is None:
            return replace(peer, authorization=(), standing=Standing(None, now, wall))
        address = host_of(peer.address)
        budget = self._budgets.get(address)
        seconds = budget.wait(now) if budget is not None else 0.0
        found = tokens.judge(peer.authorization, wall, may_check=seconds == 0)
        if isinstance(found, TokenRefusal):
            self._charge(address, found.checks, now)
            self._facts.append(TokenRefused(peer.address, found.cause, found.message))
            if found.cause == "rate":
                raise PeerError("RESOURCE_EXHAUSTED", found.message, seconds)
            raise PeerError("UNAUTHENTICATED", found.message)
        return replace(
            peer,
            identities=(*peer.identities, str(found.identity)),
            authorization=(),
            proved=(*peer.proved, found.identity),
            standing=Standing(found, now, wall),
        )

    def _charge(self, address: str, checks: int, now: float) -> None:
        """Charge an address for checks that found a signature wrong."""
        if not checks:
            return
        budget = self._budgets.pop(address, None)
        if budget is None:
            budget = TokenBucket(BAD_CHECKS, now)
            if len(self._budgets) >= MEMORY:
                del self._budgets[next(iter(self._budgets))]
        self._budgets[address] = budget  # at the end: the dict is in order of the last use
        for _ in range(checks):
            budget.spend(now)
