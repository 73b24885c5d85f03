"""Choose the servers that a client asks for the names of one authority (xdstp, gRFCs A47, A71)."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import WatchError
from .entry import Entry
from .upstream import Upstream


class Authority:
    """One authority of the bootstrap: its servers, best first, and the number of them in use.

    `active` is a prefix of `servers`. Fallback makes it longer by one server at a time; the first response of a server
    cuts it behind that server (FBK-4). The servers in `active` are all asked for all `entries`.

    reachability_only: fall back as soon as a server can't be reached, although everything watched is cached (FBK-7).
    """

    def __init__(self, name: str, servers: Sequence[Upstream], *, reachability_only: bool = False) -> None:
        self.name = name
        self.servers = tuple(dict.fromkeys(servers))
        self.reachability_only = reachability_only
        self.active: tuple[Upstream, ...] = ()
        self.seeking = False  # find a server that can be reached, even if nothing is subscribed yet
        self.entries: dict[Entry, None] = {}

    @property
    def failing(self) -> WatchError | None:
        """Why no server can be asked: the error of the last server, if all servers in use have failed; else None.

        A server to which a stream is open again does not count as failed, even before its first response: a delta
        server that has nothing newer than the client sends nothing.
        """
        failures = [None if upstream.connected else upstream.failing for upstream in self.active]
        return failures[-1] if failures and all(failures) else None

    @property
    def pins_absence(self) -> bool:
        """Whether a server in use says for which params a resource does not exist (`Upstream.pins_absence`)."""
        return any(upstream.pins_absence for upstream in self.active)

    @property
    def lacks(self) -> bool:
        """Whether to look for a server: `seek` asked for one, or an entry is neither cached nor known to be missing."""
        return self.seeking or any(entry.lacking for entry in self.entries)

    @property
    def wants_next_server(self) -> bool:
        """Whether to fall back to the next server, given that all servers in use have failed."""
        if len(self.active) == len(self.servers):
            return False
        return self.lacks or self.reachability_only  # FBK-1, FBK-7
