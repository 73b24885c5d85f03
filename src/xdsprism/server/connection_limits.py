"""Limits how many connections a server has, by the file descriptors of the process and by address.

`http2.limits.ConnectionCount` has the rules; this file finds out how many descriptors there are, gives each connection
a `ConnectionSlot`, and logs refusals. A refused client gets a GOAWAY or HTTP status 503, and retries later.

The descriptors of the process are divided so:

    clients     the xDS port and the REST port share one `ConnectionLimits`: all but the reserve
    reserve     a tenth of the descriptors, at least 64
      admin     a quarter of the reserve, at most 64: the admin port answers even when the other ports are full
      the rest  files, listening sockets, and refused connections that are being told why
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ..http2.codes import Code
from ..http2.facts import Fact, Limited
from ..http2.faults import ConnectionFault
from ..http2.limits import ConnectionCount, Limit, Limits
from ..peer_address import host_of
from ..token_bucket import Rate, TokenBucket
from .calls import Peer

try:
    import resource
except ImportError:  # Windows, where sockets have no such limit
    resource = None  # type: ignore[assignment] # a module, elsewhere

log = logging.getLogger("xdsprism.server")

MOST_DESCRIPTORS = 1 << 20  # if the host sets no limit, or a higher one
RESERVE = 64  # descriptors kept from clients, at least; a tenth of all, if that is more
ADMIN_SHARE = 4  # the admin port gets one of this many descriptors in the reserve
MOST_ADMIN = 64  # connections to the admin port
WARNINGS = Rate(1, 1 / 60)  # log lines about refusals
WHY = {
    Limit.CONNECTIONS: "too many connections to this server",
    Limit.ADDRESS: "too many connections to this server from one address",
    Limit.HANDSHAKES: "too many connections to this server that have just begun",
    Limit.ADDRESS_HANDSHAKES: "too many connections to this server from one address that have just begun",
}


def descriptor_limit() -> int:
    """Return how many files and sockets this process may have open."""
    if resource is None:
        return MOST_DESCRIPTORS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MOST_DESCRIPTORS)


def connections_for(descriptors: int) -> int:
    """Return how many connections clients may have, of so many descriptors."""
    return max(descriptors - _reserve(descriptors), 1)


def admin_connections_for(descriptors: int) -> int:
    """Return how many connections the admin port may have. They come out of the reserve, which clients can't use."""
    return min(_reserve(descriptors) // ADMIN_SHARE, MOST_ADMIN)


def _reserve(descriptors: int) -> int:
    return max(RESERVE, descriptors // 10)


def raise_descriptor_limit() -> None:
    """Raise the soft limit on descriptors to the hard limit.

    The usual soft limit of 1,024 protects programs that call `select`, and this one does not.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def disable_core_files() -> None:
    """Set the soft limit on core files to 0: a core file would contain keys, tokens and secrets (OPS-14).

    The hard limit stays, so that an operator can raise the soft limit again.
    """
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def client_of(peer: Peer) -> str:
    """Return as whom a client counts: as the first identity that it proved, or else as its address, on any port."""
    if peer.proved:
        return str(peer.proved[0])
    return host_of(peer.address).removeprefix("ipv4:").removeprefix("ipv6:")


class ConnectionSlot:
    """One connection's share of the limits, from its accept on; or the reason why it is refused."""

    __slots__ = ("_address", "_count", "_left", "is_silent", "refused", "shakes_hands")

    def __init__(self, count: ConnectionCount, address: str, refused: ConnectionFault | None) -> None:
        self.refused = refused
        self._count = count
        self._address = address
        self._left = False
        self.shakes_hands = refused is None  # it counts as a connection in the handshake
        # Close a refused connection without a reason, if too many others are being told theirs.
        self.is_silent = refused is not None and not count.begin_refusal(address)

    def facts(self, peer: str) -> list[Fact]:
        """Return the fact of a refusal, for a connection that is closed before its protocol could report it."""
        fault = self.refused
        return [Limited(peer, fault.limit, fault.code, connection=True)] if fault and fault.limit else []

    def end_handshake(self) -> None:
        """Count the handshake as over: the client speaks the protocol of the port. Idempotent."""
        if self.shakes_hands:
            self.shakes_hands = False
            self._count.end_handshake(self._address)

    def release(self) -> None:
        """Give the slot back. Idempotent, since several things can end a connection at once."""
        if self._left:
            return
        self._left = True
        self.end_handshake()
        if self.refused is None:
            self._count.release(self._address)
        elif not self.is_silent:
            self._count.end_refusal(self._address)


class SlotSource(Protocol):
    """Gives each new connection a slot: `ConnectionLimits`, or a port that can evict idle connections first."""

    def admit(self, peer: str) -> ConnectionSlot:
        """Return a slot for a new connection of `peer`; its `refused` is set if there is no room."""


class ConnectionLimits:
    """The limits that the connections of one or more ports share."""

    def __init__(self, limits: Limits, clock: Callable[[], float], *, is_admin: bool = False) -> None:
        share = admin_connections_for if is_admin else connections_for
        self._most = min(limits.connections, share(descriptor_limit()))
        self._is_admin = is_admin
        self._clock = clock
        self._warnings = TokenBucket(WARNINGS, clock())
        self.count = ConnectionCount(replace(limits, connections=self._most))

    def admit(self, peer: str) -> ConnectionSlot:
        """Return a slot for a connection of `peer`, such as `ipv4:10.0.0.1:40000`. A refused one gets a slot too."""
        address = host_of(peer)
        limit = self.count.admit(address)
        if limit is None:
            return ConnectionSlot(self.count, address, None)
        if self._warnings.spend(self._clock()):
            self._warn(address, limit)
        return ConnectionSlot(self.count, address, ConnectionFault(Code.ENHANCE_YOUR_CALM, WHY[limit], limit))

    def _warn(self, address: str, limit: Limit) -> None:
        """Log a refusal. WARNINGS limits how often, so that a flood of connections does not flood the log."""
        if self._is_admin:
            text = "refused a connection from %s: the admin port has its limit of %d connections: check what runs there"
        elif limit is Limit.ADDRESS:
            text = "refused a connection from %s: it has its share of the %d connections: check what runs there, "
            text += "or start the server with a higher --limit address_connections=N"
        elif limit in {Limit.HANDSHAKES, Limit.ADDRESS_HANDSHAKES}:
            text = "refused a connection from %s: too many of the %d connections are in the handshake "
            text += f"(limit `{limit}`): check what connects and stays silent"
        else:
            text = "refused a connection from %s: there are %d connections, and no more are accepted. Let the process "
            text += "have more descriptors (ulimit -n; LimitNOFILE= of systemd), or run another server"
        log.warning(text, address, self._most)
