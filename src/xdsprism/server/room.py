"""How many connections there may be: the rules are those of `http2.limits.Crowd`, the descriptors this process's.

Whoever comes when there is no room is told so, by a GOAWAY or by status 503, and comes back later. The xDS port and the
REST port have one room together, the admin port has a small one of its own, so that somebody can look at a server that
is full. The rest of the reserve is for files, for listening, and for those who are told to go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ..http2.codes import Code
from ..http2.facts import Fact, Limited
from ..http2.faults import Fault
from ..http2.limits import Allowance, Crowd, Limit, Limits, Rate

try:
    import resource
except ImportError:  # Windows, where sockets have no such limit
    resource = None  # type: ignore[assignment] # a module, elsewhere

log = logging.getLogger("xdsprism.server")

MOST_DESCRIPTORS = 1 << 20  # where there is no limit, or none that anybody means
RESERVE = 64  # of them for other things, at least; a tenth, where that is more
ADMIN_SHARE = 4  # one in so many of the reserve is for connections to the admin port
MOST_ADMIN = 64  # connections to the admin port
COMPLAINTS = Rate(1, 1 / 60)
WHY = {
    Limit.CONNECTIONS: "too many connections to this server",
    Limit.ADDRESS: "too many connections to this server from one address",
}


def descriptors() -> int:
    """How many files and sockets this process may have open."""
    if resource is None:
        return MOST_DESCRIPTORS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MOST_DESCRIPTORS)


def room_for(descriptors: int) -> int:
    """How many connections of clients that makes."""
    return max(descriptors - _reserve(descriptors), 1)


def admin_room_for(descriptors: int) -> int:
    """How many connections to the admin port: out of the reserve, so that clients can't take them."""
    return min(_reserve(descriptors) // ADMIN_SHARE, MOST_ADMIN)


def _reserve(descriptors: int) -> int:
    return max(RESERVE, descriptors // 10)


def allow_more_descriptors() -> None:
    """As many as the host lets a process take. The usual 1,024 are for programs that call `select`, and we don't."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def leave_no_core_files() -> None:
    """A core file is all that is in memory: keys, tokens, secrets (OPS-14). Whoever runs us may set the limit again."""
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def host_of(peer: str) -> str:
    """`ipv4:10.0.0.1` of `ipv4:10.0.0.1:40000`."""
    return peer.rpartition(":")[0]


class Seat:
    """The place of one connection, from the first byte of TLS on, or what it is refused for."""

    __slots__ = ("_address", "_crowd", "_left", "refused", "without_words")

    def __init__(self, crowd: Crowd, address: str, refused: Fault | None) -> None:
        self.refused = refused
        self._crowd = crowd
        self._address = address
        self._left = False
        self.without_words = refused is not None and not crowd.begin_telling(address)  # no room to tell it why, even

    def facts(self, peer: str) -> list[Fact]:
        """What is told of it, if it was refused before it was a connection."""
        fault = self.refused
        return [Limited(peer, fault.limit, fault.code, connection=True)] if fault and fault.limit else []

    def leave(self) -> None:
        """May be said twice: connections end in more than one way at once."""
        if self._left:
            return
        self._left = True
        if self.refused is None:
            self._crowd.leave(self._address)
        elif not self.without_words:
            self._crowd.end_telling(self._address)


class Admits(Protocol):
    """Whoever gives a connection its seat."""

    def enter(self, peer: str) -> Seat: ...


class Room:
    """Where all connections are that share a limit."""

    def __init__(self, limits: Limits, clock: Callable[[], float], *, is_admin: bool = False) -> None:
        share = admin_room_for if is_admin else room_for
        self._most = min(limits.connections, share(descriptors()))
        self._is_admin = is_admin
        self._clock = clock
        self._complaints = Allowance(COMPLAINTS, clock())
        self.crowd = Crowd(replace(limits, connections=self._most))

    def enter(self, peer: str) -> Seat:
        """`peer` as in `ipv4:10.0.0.1:40000`. Everybody who comes has a seat, those too who are told to go."""
        address = host_of(peer)
        limit = self.crowd.join(address)
        if limit is None:
            return Seat(self.crowd, address, None)
        if self._complaints.spend(self._clock()):
            self._complain(address, limit)
        return Seat(self.crowd, address, Fault(Code.ENHANCE_YOUR_CALM, WHY[limit], limit))

    def _complain(self, address: str, limit: Limit) -> None:
        """Once in a while: who floods us is not to flood the log."""
        if self._is_admin:
            text = "%s meets the limit of the admin port, which is %d connections: see what it runs"
        elif limit is Limit.ADDRESS:
            text = "%s has three quarters of the %d connections that there may be, and gets no more: see what it runs"
        else:
            text = "%s is refused, as others may be: there are %d connections, and no more descriptors for them. "
            text += "Let the process have more (ulimit -n; LimitNOFILE= of systemd), or run another server"
        log.warning(text, address, self._most)
