"""Track which entries hold a resource under a string that is not its name, as the hosts of a virtual host do (VHD-3).

Many hosts may share one virtual host, and the server sends it again in each answer for one more host. To offer each
copy to every host would cost the square of their number. So `Holders` remembers which entries have exactly this version
from the current stream. They are skipped until `Entry.offer_again` says that their state changed, and a response costs
only what it changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..model.constraints import Constraint
from ..model.responses import Arrival
from ..model.types import Params
from .entry import Entry, State

if TYPE_CHECKING:
    from .authority import Authority
    from .upstream import Upstream

# The server, the number of its stream, version, contents, constraints, and whether it came in the form of a locator.
Mark = tuple["Upstream", int, str, bytes, Constraint, bool]


class Holders:
    """The entries that hold one resource under another string."""

    __slots__ = ("_alike", "_current", "_entries", "_marks", "_uncertain")

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}
        # By authority and params. An OrderedDict, because removing the first items of a plain dict gets slow.
        self._alike: dict[tuple[Authority, Params | None], OrderedDict[Entry, None]] = {}
        self._uncertain: dict[Entry, None] = {}  # it is not known whether these have the current version
        self._current: dict[Mark, dict[Entry, None]] = {}  # all other entries, by the copy that they have
        self._marks: dict[Entry, Mark] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def add(self, entry: Entry) -> None:
        """Add an entry that took the resource; the next copy shows whether it is current."""
        self._entries[entry] = self._uncertain[entry] = None
        self._alike.setdefault((entry.authority, entry.params), OrderedDict())[entry] = None
        entry.holders = self

    def discard(self, entry: Entry) -> None:
        """Remove an entry that took another resource, or that has no watcher any more."""
        self.offer_again(entry)
        self._entries.pop(entry, None)
        self._uncertain.pop(entry, None)
        asker = entry.authority, entry.params
        alike = self._alike.get(asker, OrderedDict())
        alike.pop(entry, None)
        if not alike:
            self._alike.pop(asker, None)
        entry.holders = None

    def alike(self, entry: Entry) -> Iterator[Entry]:
        """Return the holders that have the same authority and params as the entry."""
        return iter(self._alike.get((entry.authority, entry.params), ()))

    def offer_again(self, entry: Entry) -> None:
        """Move an entry whose state changed back to those that the next copy is offered to."""
        mark = self._marks.pop(entry, None)
        if mark is None:
            return
        del self._current[mark][entry]
        if not self._current[mark]:
            del self._current[mark]
        self._uncertain[entry] = None

    def behind(self, arrival: Arrival, upstream: Upstream) -> list[Entry]:
        """Return the holders for which this copy is news."""
        # A TTL starts anew with every copy, for all of them.
        if arrival.ttl is not None:
            return [*self._entries]
        variant = arrival.variant
        mark = upstream, upstream.streams, variant.version, variant.body, variant.constraint, arrival.located
        # Mark the entries that turn out to have this copy, so that the next copy skips them.
        for entry in [entry for entry in self._uncertain if is_current(entry, arrival, upstream)]:
            del self._uncertain[entry]
            self._current.setdefault(mark, {})[entry] = None
            self._marks[entry] = mark
        # Entries that are marked with another copy need this one.
        others = [entry for each, entries in self._current.items() if each != mark for entry in entries]
        return [*others, *self._uncertain]


def is_current(entry: Entry, arrival: Arrival, upstream: Upstream) -> bool:
    """Whether the entry has exactly this copy from this stream, and neither an error nor an open request.

    Then the copy is no news to it. Code that changes the result for an entry must call `Entry.offer_again`, except for
    the fields of a `Mark`.
    """
    held, variant = entry.variant, arrival.variant
    if held is None or held.version != variant.version or held.name != variant.name or not entry.came_from(upstream):
        return False
    # After an error or in doubt, the same copy is news: it ends both.
    if entry.state is not State.ACKED or entry.error is not None or entry.doubted is not None:
        return False
    if not entry.suited or (entry.params is not None) != arrival.located:
        return False
    is_lasting = arrival.ttl is None and entry.expires is None and entry not in upstream.pending.awaited
    return is_lasting and held.body == variant.body and held.constraint == variant.constraint
