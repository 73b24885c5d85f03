"""Define the two kinds of subscription that a client may have for one type.

A `NameSubscription` is to one name. It records the variant that the client holds by it. A `WildcardSubscription` is to
all names of the type (`*`), or to all members of a glob collection of TP1 (`xdstp://authority/type/path/*`). It records
no variants. It records a cursor, the revision up to which the client was sent the listing, and the listing tells what
the client's params saw at that revision.

Both are known by a `Key` (events.py): the name, and the tag. The tag is the params of a locator (TP2), or None for a
plain name. Then the params come from the node. The form of the subscription decides the form of the answer: the server
answers a plain name by name, and a locator by name and constraints (DYN-26).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.constraints import Constraint
from ..model.events import Key
from ..model.listing import Listing
from ..model.types import Params, ResourceProblem, TypeSpec, TypeUrl, Variant
from ..model.xdstp import is_xdstp, spelled

# Subscriptions with equal groups are affected by the same changes. A subscription belongs to the variant that the
# client holds by it, or, where the client holds nothing, to the type and name.
Group = Variant | tuple[TypeUrl, str]


class NameSubscription:
    """One subscription to one name, and what the client knows and holds by it.

    A subscription is `answered` once the client was sent a variant, or a negative answer, for the newest request for
    it. holdings.py alone changes what is held, and whether it is answered.
    """

    __slots__ = (
        "absence",
        "answered",
        "claimed",
        "group",
        "held",
        "key",
        "located",
        "name",
        "params",
        "since",
        "trouble",
    )

    def __init__(self, key: Key, params: Params, since: int = 0) -> None:
        self.key = key
        self.name = key.name
        self.located = key.tag is not None  # by a locator: the client wants the answer with constraints
        self.params = params
        self.since = since  # the table's revision when the client subscribed
        self.held: Variant | None = None  # the variant that the client was last sent
        self.group: Group | None = None  # maintained by Interest.group
        self.answered = False  # whether the client was sent a variant or a negative answer
        self.absence: Constraint | None = None  # the constraints of the negative answer, if the client was sent one
        self.trouble: ResourceProblem | None = None  # the problem in getting it that the client was told of last (TP3)
        self.claimed: Mapping[str, str] | None = None  # delta: the client's initial_resource_versions


class WildcardSubscription:
    """One subscription to everything that its params see: of a type, or of a glob collection.

    The subscription has `started` once its first response went out. From then on the client holds what the listing
    showed to `params` at the revision `cursor`, and only the difference since then is sent.
    """

    __slots__ = ("again", "cursor", "initial", "listing", "name", "params", "started", "tag", "trouble")

    def __init__(self, key: Key, params: Params, listing: Listing) -> None:
        self.name, self.tag = key
        self.params = params
        self.listing = listing
        self.cursor = listing.follow()
        self.started = False
        self.again = False  # delta: the client subscribed once more, so all members are due (DLT-3)
        self.initial: Mapping[str, str] = {}  # delta: the client's initial_resource_versions
        self.trouble: ResourceProblem | None = None  # the problem in getting it that the client was told of last (TP3)

    @property
    def located(self) -> bool:
        """Whether the client subscribed by a locator, and so wants the members with constraints."""
        return self.tag is not None

    @property
    def key(self) -> Key:
        """Return the key of the subscription itself."""
        return Key(self.name, self.tag)

    def key_of(self, member: str) -> Key:
        """Return the key of a member of this name, as if it were subscribed by name in the same form."""
        return Key(member, self.tag)

    @property
    def is_behind(self) -> bool:
        """Whether the listing changed since the client was last sent it."""
        return self.cursor != self.listing.horizon


def read_keys(keys: tuple[Key, ...], spec: TypeSpec) -> tuple[Key, ...]:
    """Return the keys with each xdstp name in its canonical spelling (XTP-1)."""
    if not spec.has_xdstp_names or not any(is_xdstp(name) for name, _ in keys):
        return keys
    return tuple(Key(spelled(name), tag) for name, tag in keys)
