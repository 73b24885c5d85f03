"""What a client may want of one type: a name, or everything that its params see, in all or in a collection."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.constraints import Constraint
from ..model.events import Key
from ..model.table import Listing
from ..model.types import Params, ResourceProblem, TypeSpec, TypeUrl, Variant
from ..model.xdstp import is_xdstp, spelled

# Who is affected by the same changes: those who have this variant, or those who have nothing by this name.
Group = Variant | tuple[TypeUrl, str]


class NameSubscription:
    """One subscription to one name."""

    __slots__ = ("absence", "answered", "claimed", "group", "held", "key", "params", "since", "trouble")

    def __init__(self, key: Key, params: Params, since: int = 0) -> None:
        self.key = key
        self.params = params
        self.since = since  # the table's revision when it came
        self.held: Variant | None = None  # what the client was last sent
        self.group: Group | None = None  # Interest's
        self.answered = False  # it was sent something, or told that there is nothing
        self.absence: Constraint | None = None  # the constraints of the negative answer, where one was given
        self.trouble: ResourceProblem | None = None  # what the client was told is wrong with getting it (TP3)
        self.claimed: Mapping[str, str] | None = None  # delta: what the client has from an earlier stream

    @property
    def name(self) -> str:
        return self.key[0]

    @property
    def located(self) -> bool:
        return self.key[1] is not None


class WildcardSubscription:
    """One subscription to everything that its params see: of a type, or of a glob collection."""

    __slots__ = ("again", "cursor", "initial", "listing", "name", "params", "started", "tag", "trouble")

    def __init__(self, key: Key, params: Params, listing: Listing) -> None:
        self.name, self.tag = key  # as in any key: no tag, no locator
        self.params = params
        self.listing = listing
        self.cursor = listing.follow()
        self.started = False
        self.again = False  # delta: it was asked for once more, so that all members are due (DLT-3)
        self.initial: Mapping[str, str] = {}  # delta: what the client has from an earlier stream
        self.trouble: ResourceProblem | None = None  # what the client was told is wrong with getting it (TP3)

    @property
    def located(self) -> bool:
        return self.tag is not None

    @property
    def is_behind(self) -> bool:
        return self.cursor != self.listing.horizon


def read_keys(keys: tuple[Key, ...], spec: TypeSpec) -> tuple[Key, ...]:
    """XTP-1: whatever the spelling, one name. VHD-2: but a virtual host's begins with another's, as that is written."""
    if spec.on_demand or not any(is_xdstp(name) for name, _ in keys):
        return keys
    return tuple((spelled(name), tag) for name, tag in keys)
