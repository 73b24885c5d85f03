"""Who holds one resource under a string that is not its name: the hosts that a virtual host serves (VHD-3).

Many hosts may have one virtual host, and a server sends it again with each answer to another host. So it is kept which
of them have the very version from the stream that it comes on. Those are not looked at again before something befalls
them (`Entry.unsettle`), and a response costs what it changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..model.constraints import Constraint
from ..model.responses import Arrival
from ..model.types import Params

if TYPE_CHECKING:
    from .authority import Authority
    from .entry import Entry
    from .upstream import Upstream

# From which stream of which server, version, contents, constraints, and whether it came in the form of a locator.
Mark = tuple["Upstream", int, str, bytes, Constraint, bool]


class Holders:
    """The entries that hold one resource under another string."""

    __slots__ = ("_alike", "_current", "_entries", "_marks", "_unsettled")

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}
        # By whom was asked, and with which params. From the front of a plain dict things can't be taken fast.
        self._alike: dict[tuple[Authority, Params | None], OrderedDict[Entry, None]] = {}
        self._unsettled: dict[Entry, None] = {}  # may be behind, or may not
        self._current: dict[Mark, dict[Entry, None]] = {}  # the others, by what they have
        self._marks: dict[Entry, Mark] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def add(self, entry: Entry) -> None:
        self._entries[entry] = self._unsettled[entry] = None
        self._alike.setdefault((entry.authority, entry.key[1]), OrderedDict())[entry] = None
        entry.holders = self

    def discard(self, entry: Entry) -> None:
        self.unsettle(entry)
        self._entries.pop(entry, None)
        self._unsettled.pop(entry, None)
        asker = entry.authority, entry.key[1]
        alike = self._alike.get(asker, OrderedDict())
        alike.pop(entry, None)
        if not alike:
            self._alike.pop(asker, None)
        entry.holders = None

    def alike(self, entry: Entry) -> Iterator[Entry]:
        """Those who were asked for at the same authority, with the same params."""
        return iter(self._alike.get((entry.authority, entry.key[1]), ()))

    def unsettle(self, entry: Entry) -> None:
        """Something befell an entry, so that it has to be looked at again."""
        mark = self._marks.pop(entry, None)
        if mark is None:
            return
        del self._current[mark][entry]
        if not self._current[mark]:
            del self._current[mark]
        self._unsettled[entry] = None

    def behind(self, arrival: Arrival, upstream: Upstream) -> list[Entry]:
        """Those to whom what came is news."""
        if arrival.ttl is not None:
            return [*self._entries]
        variant = arrival.variant
        mark = upstream, upstream.streams, variant.version, variant.body, variant.constraint, arrival.located
        for entry in [entry for entry in self._unsettled if is_current(entry, arrival, upstream)]:
            del self._unsettled[entry]
            self._current.setdefault(mark, {})[entry] = None
            self._marks[entry] = mark
        others = [entry for each, entries in self._current.items() if each != mark for entry in entries]
        return [*others, *self._unsettled]


def is_current(entry: Entry, arrival: Arrival, upstream: Upstream) -> bool:
    """Whether it has this very version from this stream, and nothing is wrong or awaited: then there is no news.

    Whatever changes an answer to this, but for what is in a `Mark`, has to call `Entry.unsettle`.
    """
    held, variant = entry.variant, arrival.variant
    if held is None or held.version != variant.version or held.name != variant.name or not entry.came_from(upstream):
        return False
    if not entry.is_settled or entry.doubted is not None:
        return False
    if not entry.suited or (entry.key[1] is not None) != arrival.located:
        return False
    lasting = arrival.ttl is None and entry.expires is None and entry not in upstream.awaited
    return lasting and held.body == variant.body and held.constraint == variant.constraint
