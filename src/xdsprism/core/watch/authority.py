"""Whose names these are, and which servers are asked for them."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import WatchError
from .entry import Entry
from .upstream import Upstream


class Authority:
    """Whose names these are: the servers that know them, best first, and how many of those are in use.

    reachability_only: fall back as soon as a server can't be reached, although everything watched is cached (FBK-7).
    """

    def __init__(self, name: str, servers: Sequence[Upstream], *, reachability_only: bool = False) -> None:
        self.name = name
        self.servers = tuple(dict.fromkeys(servers))
        self.reachability_only = reachability_only
        self.active: tuple[Upstream, ...] = ()
        self.seeking = False  # a server is to be found, whether anything is asked or not
        self.entries: dict[Entry, None] = {}

    @property
    def failing(self) -> WatchError | None:
        """Why nobody can be asked: the last server's reason, if all that are in use have failed.

        One that is connected again can be asked, answered or not: where nothing is newer, a server has nothing to say.
        """
        failures = [None if upstream.connected else upstream.failing for upstream in self.active]
        return failures[-1] if failures and all(failures) else None

    @property
    def pins_absence(self) -> bool:
        """Whether a server that is asked says for whom there is nothing (Upstream)."""
        return any(upstream.pins_absence for upstream in self.active)

    @property
    def lacks(self) -> bool:
        return self.seeking or any(entry.lacking for entry in self.entries)

    @property
    def wants_next_server(self) -> bool:
        """Whether the next server is to be asked, now that all that are in use have failed."""
        if len(self.active) == len(self.servers):
            return False
        return self.lacks or self.reachability_only  # FBK-1, FBK-7
