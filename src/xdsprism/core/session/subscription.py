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
from typing import NamedTuple

from ..model.constraints import Constraint
from ..model.events import Key
from ..model.listing import Listing
from ..model.table import Table
from ..model.types import Params, ResourceProblem, TypeSpec, TypeUrl, Variant
from ..model.views import Transition, alike
from ..model.xdstp import is_xdstp, spelled
from ..policy.grant import Claim

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
        "claim",
        "group",
        "held",
        "initial",
        "key",
        "located",
        "name",
        "params",
        "problem",
        "since",
    )

    def __init__(self, key: Key, params: Params, since: int = 0, claim: Claim | None = None) -> None:
        self.key = key
        self.name = key.name
        self.located = key.tag is not None  # by a locator: the client wants the answer with constraints
        self.params = params
        self.claim = claim  # what the policy makes of it; None: there is no policy
        self.since = since  # the revision of the whole table when the client subscribed
        self.held: Variant | None = None  # the variant that the client was last sent
        self.group: Group | None = None  # maintained by Interest.group
        self.answered = False  # whether the client was sent a variant or a negative answer
        self.absence: Constraint | None = None  # the constraints of the negative answer, if the client was sent one
        self.problem: ResourceProblem | None = None  # the problem in getting it that the client was told of last (TP3)
        self.initial: Mapping[str, str] | None = None  # delta: the client's initial_resource_versions

    @property
    def is_denied(self) -> bool:
        """Whether the policy denies it, whatever there is of this name."""
        return self.claim is not None and self.claim.denial is not None


class WildcardSubscription:
    """One subscription to everything that its params see: of a type, or of a glob collection.

    The subscription has `started` once its first response went out. From then on the client holds what the listing
    showed to `params` at the revision `cursor`, and only the difference since then is sent. If the policy has changed
    meanwhile, the client holds what it was shown `before`.
    """

    __slots__ = (
        "again",
        "before",
        "claim",
        "cursor",
        "initial",
        "is_held_over",
        "listing",
        "name",
        "params",
        "problem",
        "started",
        "tag",
    )

    def __init__(self, key: Key, params: Params, listing: Listing, claim: Claim | None = None) -> None:
        self.name, self.tag = key
        self.params = params
        self.claim = claim  # what the policy makes of it; None: there is no policy
        self.before: Shown | None = None  # what the client was shown under another policy, until the next poll
        # It shows what the client has, by another policy, until a relay knows what it sees by the one in force.
        self.is_held_over = False
        self.listing = listing
        self.cursor = listing.follow()
        self.started = False
        self.again = False  # delta: the client subscribed once more, so all members are due (DLT-3)
        self.initial: Mapping[str, str] = {}  # delta: the client's initial_resource_versions
        self.problem: ResourceProblem | None = None  # the problem in getting it that the client was told of last (TP3)

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
        return self.cursor != self.listing.horizon or self.before is not None

    @property
    def is_denied(self) -> bool:
        """Whether the policy denies all of it: for its names, or because of what the client says of itself."""
        return self.claim is not None and self.claim.denial is not None

    def show(self, claim: Claim | None, params: Params, listing: Listing, table: Table) -> None:
        """Show another listing from now on, or the same to other params. `table`: where the current one is from."""
        if self.started and self.before is None:
            self.before = Shown(table, self.listing, self.params, self.cursor)
        else:
            self._leave(table)
        self.claim, self.params, self.listing, self.cursor = claim, params, listing, listing.follow()

    def transitions(self) -> Mapping[str, Transition]:
        """Return what changed of its members since the client was last sent them."""
        if self.before is None:
            return self.listing.difference(self.cursor, self.params).transitions
        shown = self.before.members()
        now = {variant.name: variant for variant in self.listing.snapshot(self.params).variants}
        pairs = ((name, shown.get(name), now.get(name)) for name in {**shown, **now})
        return {name: Transition(name, was, found) for name, was, found in pairs if not alike(was, found)}

    def members(self, table: Table) -> dict[str, Variant]:
        """Return the members that the client was last sent. `table`: where the current listing is from."""
        return (self.before or Shown(table, self.listing, self.params, self.cursor)).members()

    def shown(self, name: str) -> Variant | None:
        """Return the member of this name that the client was last sent."""
        change = self.transitions().get(name)
        return change.before if change is not None else self.listing.member(name, self.params)

    def caught_up(self) -> None:
        """Note that the client is sent what changed."""
        self.cursor = self.listing.advance(self.cursor)
        if self.before is not None:
            self.before.leave(self.name)
            self.before = None

    def close(self, table: Table) -> None:
        """Follow nothing any more."""
        self._leave(table)
        if self.before is not None:
            self.before.leave(self.name)

    def _leave(self, table: Table) -> None:
        self.listing.unfollow(self.cursor)
        table.retire(self.name)


class Shown(NamedTuple):
    """What a wildcard showed at some revision, in a table that the client does not read any more."""

    table: Table
    listing: Listing
    params: Params
    cursor: int

    def members(self) -> dict[str, Variant]:
        """Return its members by name."""
        found = {variant.name: variant for variant in self.listing.snapshot(self.params).variants}
        for change in self.listing.difference(self.cursor, self.params).transitions.values():
            if change.before is not None:
                found[change.name] = change.before
            else:
                found.pop(change.name, None)
        return found

    def leave(self, name: str) -> None:
        """Follow it no more."""
        self.listing.unfollow(self.cursor)
        self.table.retire(name)


def read_keys(keys: tuple[Key, ...], spec: TypeSpec) -> tuple[Key, ...]:
    """Return the keys with each xdstp name in its canonical spelling (XTP-1)."""
    if not spec.has_xdstp_names or not any(is_xdstp(name) for name, _ in keys):
        return keys
    return tuple(Key(spelled(name), tag) for name, tag in keys)
