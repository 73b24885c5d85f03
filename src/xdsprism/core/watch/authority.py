"""Choose the servers that a client asks for the names of one authority (xdstp, gRFCs A47, A71).

Fallback (gRFC A71): an authority asks the first server of its list. If that server can't be reached, and a watched
resource is neither cached nor known to be missing, the authority asks the next server as well, and so on. An authority
may be set to fall back whenever a server can't be reached, whatever is cached (gRFC A95). Once a server answers, the
servers behind it in the list are released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...errors import WatchError
from ..model.types import TypeSpec
from .entry import Entry, Recalled, members_of
from .resource_cache import ResourceCache
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
        failures = [None if upstream.connected else upstream.lifecycle.failing for upstream in self.active]
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


class Fallback:
    """Makes servers of authorities active, and releases them.

    recall: returns what an earlier run stored on disk about an entry, for when no server can be reached.
    """

    def __init__(self, cache: ResourceCache, recall: Callable[[Entry], Recalled | None]) -> None:
        self._cache = cache
        self._recall = recall

    def activate(self, authority: Authority) -> None:
        """Subscribe to everything that is watched on the next server of the authority (FBK-3), or on the first one."""
        upstream = authority.servers[len(authority.active)]
        authority.active = (*authority.active, upstream)
        upstream.users.add(authority)
        for entry in authority.entries:
            upstream.want(entry.type_url, entry.key)
        upstream.wake()
        if (
            upstream.lifecycle.failing is not None
        ):  # another authority uses this server, and found that it can't be reached
            self.fall_back_or_report(authority, authority.entries)

    def release(self, authority: Authority, kept: int) -> None:
        """Unsubscribe on the servers behind the first `kept` ones (FBK-4)."""
        for upstream in authority.active[kept:]:
            upstream.users.discard(authority)
            for entry in authority.entries:
                upstream.unwant(entry.type_url, entry.key)
                upstream.abandon(entry, members_of(entry))
            upstream.wake()
        authority.active = authority.active[:kept]

    def fall_back_or_report(self, authority: Authority, entries: Iterable[Entry]) -> None:
        """If all active servers have failed, fall back to the next one, or tell the watchers of these entries."""
        error = authority.failing
        if error is None:
            return
        # The next server may have what is missing, so watchers do not hear of the failure yet (FBK-5).
        if authority.wants_next_server:
            self.activate(authority)
            return
        for entry in [*entries]:  # FBK-2, FBK-5, CLI-17
            self._fall_back_on_disk(entry)
            entry.report_error(error)

    def _fall_back_on_disk(self, entry: Entry) -> None:
        """Use the state that an earlier run stored, if the entry has nothing and no server can be reached."""
        recalled = self._recall(entry) if entry.lacking and entry.kept_at is None else None
        if recalled is not None:
            self._cache.recall(entry, recalled)

    def recovered(self, upstream: Upstream) -> None:
        """Handle the first response of a stream: release lower servers, and clear the errors of the outage."""
        was_failing = upstream.lifecycle.failing is not None
        for authority in [*upstream.users]:
            # Only an error of the outage is over now. An error about the resource itself stays.
            failures = {each.lifecycle.failing for each in authority.active} - {None}  # watchers heard one of these
            self.release(authority, authority.active.index(upstream) + 1)
            for entry in authority.entries if was_failing else ():
                if entry.error in failures:
                    entry.recover()
        upstream.lifecycle.recover()


def resubscribe(entry: Entry, spec: TypeSpec) -> None:
    """Subscribe to an entry anew, because nothing that servers said about it counts any more.

    Unsubscribing and subscribing makes a server send the resource again; where that could lose something, a new stream
    does.
    """
    members = members_of(entry)
    renewing = [upstream for upstream in entry.authority.active if _needs_new_stream(spec, members, upstream)]
    entry.renew()
    for member in members:
        member.sent_by = None  # so that a new stream does not name their versions
    for upstream in entry.authority.active:
        if upstream in renewing:
            upstream.renew()
            continue
        upstream.pending.note_answered(entry)  # not awaited until its new subscription goes out
        upstream.unwant(entry.type_url, entry.key)
        upstream.want(entry.type_url, entry.key)


def _needs_new_stream(spec: TypeSpec, members: Iterable[Entry], upstream: Upstream) -> bool:
    """Whether unsubscribing and subscribing again on the same stream could lose something."""
    if not upstream.delta:
        return spec.full_state  # a full state in between would lack it, as if it were deleted
    # DLT-14: the stream began with the versions of the wildcard's members. A server that has yet to remove some of
    # them forgets them with the subscription, and hears of them only at the beginning of a stream (DLT-16).
    return any(member.variant is not None and not member.came_from(upstream) for member in members)


def doubt(entry: Entry, error: WatchError, now: float) -> None:
    """Note that the resource may be gone; each active server has MOMENT seconds to send it."""
    entry.doubt(error)
    for upstream in entry.authority.active:
        upstream.pending.doubt(entry, now)
