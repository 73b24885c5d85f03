"""Hold all that a relay knows of one upstream subscription: one name, asked for with one set of params.

Every fact about an upstream subscription is an attribute of its `UpstreamSubscription`, or the time of a timer that
runs for it. Only the owner of the rule for a fact changes it:

    fact                                     changed by
    ---------------------------------------  -----------------------------------------------------------------------
    `entry`, `carrier`                       fairness.py: it was made, or refused for want of room;
                                             `UpstreamSubscriptions`: it is too large to be sent, or gave way
    `has_room`, `owner`, `refused_by`        fairness.py and shares.py: the room that it takes, and whose share that is
    `is_lent`, and until when it is kept     `SubscriptionGrace` (timers.py)
    `is_late`, and when it becomes late      `OverdueQueries` (timers.py)
    `is_too_old`                             `StalenessTracker` (timers.py); a new one that shares an entry begins
                                             with what the others know of it
    `refreshed_for`                          `NoCacheRefresh` (timers.py)
    until when a wildcard may be incomplete  `Listings` (listings.py)
    `holds`                                  `FindingIndex` (finding_index.py)
    `lost`                                   `UpstreamSubscriptions`: members come and go (`note_member`)

`UpstreamSubscriptions` (upstream_subscriptions.py) has all of them by name and params, and alone makes and ends them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model.cached import FindingId
from ..model.limits import Client
from ..model.types import Params, TypeUrl
from ..watch.entry import Entry, State

if TYPE_CHECKING:
    from .budgets import Budget
    from .upstream_feed import Carried

DENIED = "PERMISSION_DENIED"  # ERR-10: clients treat it as nonexistent
REFUSED = "INVALID_ARGUMENT"  # DYN-46: the server will never answer it
NO_ANSWER = frozenset({"NOT_FOUND", DENIED, REFUSED})

Subject = tuple[TypeUrl, str]


class UpstreamSubscription:
    """One upstream subscription of a relay.

    params: those of the client that it was made for. The server may be sent fewer (watch/query_params.py), or a group's
    (PRX-20); several upstream subscriptions then share one entry.
    """

    __slots__ = (
        "carrier",
        "entry",
        "has_room",
        "holds",
        "is_late",
        "is_lent",
        "is_too_old",
        "lost",
        "owner",
        "params",
        "refreshed_for",
        "refused_by",
        "subject",
    )

    entry: Entry  # what the servers said; where no server is asked, why not

    def __init__(self, subject: Subject, params: Params) -> None:
        self.subject = subject
        self.params = params
        self.carrier: Carried | None = None  # as the feed carries it; None: no server is asked
        self.has_room = False  # it takes room on a stream
        self.owner: Client | None = None  # whose share that room counts for; None: not known
        self.refused_by: Budget | None = None  # which budget has no room for it (PRX-35)
        self.is_lent = False  # its own client left, and others use its finding
        self.is_late = False  # the server has not answered for a moment or longer
        self.is_too_old = False  # its answer is older than `max_stale` (PRX-25)
        self.refreshed_for: dict[Subject, None] | None = None  # names for which the server was asked again (PRX-17)
        self.holds: FindingId | None = None  # the finding that it holds, while its name has a FindingIndex
        self.lost: dict[str, Entry] | None = None  # of a wildcard: members that it lost, if clients want their names

    @property
    def is_pending(self) -> bool:
        """Whether it has neither a variant nor an absence."""
        return is_pending(self.entry)

    @property
    def is_awaited(self) -> bool:
        """Whether a first answer is still to come."""
        return is_awaited(self.entry)

    def member(self, name: str) -> Entry | None:
        """Return a wildcard's entry for a name, even if the wildcard lost it; None if it never had it."""
        if self.entry.collection is None:
            return None
        return self.entry.collection.members.get(name) or (self.lost.get(name) if self.lost else None)

    def members(self) -> list[Subject]:
        """Return the names that a wildcard has."""
        names = self.entry.collection.members if self.entry.collection is not None else ()
        return [(self.subject[0], name) for name in names]

    def lost_members(self) -> list[Subject]:
        """Return the names that a wildcard lost."""
        return [(self.subject[0], name) for name in self.lost or ()]


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """What one upstream subscription says of a name: a subscription by that name, or a wildcard that covers it.

    entry: for a wildcard, its member of that name. wanted: a client wants the subscription, and a wildcard was
    answered.
    """

    subscription: UpstreamSubscription
    entry: Entry
    wild: bool
    wanted: bool

    @property
    def params(self) -> Params:
        """The params of the subscription."""
        return self.subscription.params


def is_missing(entry: Entry) -> bool:
    """Whether the server said that the resource does not exist, or gave an error that amounts to this."""
    status = entry.own_error.status if entry.own_error is not None and entry.state is State.RECEIVED_ERROR else ""
    denied = status in NO_ANSWER
    return entry.variant is None and (entry.state is State.DOES_NOT_EXIST or denied)


def is_pending(entry: Entry) -> bool:
    """Whether the entry has neither a variant nor an absence."""
    return entry.variant is None and not is_missing(entry)


def is_awaited(entry: Entry) -> bool:
    """Whether a first answer is still to come. An error is an answer too, though it decides nothing."""
    return is_pending(entry) and entry.own_error is None


def is_answered(entry: Entry) -> bool:
    """Whether a wildcard has all of its members, or is known not to exist.

    The members may be those that an earlier run left in the disk cache, as long as no server can be asked (PRX-25). A
    glob can be missing as a whole, for instance because no server has its authority.
    """
    return entry.state is State.ACKED or entry.kept_at is not None or is_missing(entry)
