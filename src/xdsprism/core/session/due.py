"""Hold what the next poll of a session has to look at.

A wildcard is not listed here. It is due when its cursor is behind its listing, so that a change costs nothing for each
wildcard.
"""

from __future__ import annotations

from ..model.events import Key
from .subscription import NameSubscription


class Due:
    """What one session has to look at, or to say, in its next response."""

    __slots__ = ("added", "dirty", "owed", "passing", "response")

    def __init__(self) -> None:
        # Subscriptions that the collector compares with the store: their name changed, or the client asked for them.
        self.dirty: dict[NameSubscription, None] = {}
        self.owed: dict[Key, None] = {}  # members of a wildcard that the client must be sent, or told to be absent
        self.added: dict[NameSubscription, None] = {}  # SotW: new subscriptions, which wait while the nonce is stale
        # Delta: subscriptions that are answered negatively in the next response, and not remembered (VHD-25).
        self.passing: list[NameSubscription] | None = None
        self.response = False  # the request must be answered even with an empty response

    def __bool__(self) -> bool:
        """Whether something is due."""
        return bool(self.dirty or self.owed or self.response or self.added or self.passing)

    def mark(self, subscription: NameSubscription) -> None:
        """Have the next poll compare this subscription with the store."""
        self.dirty[subscription] = None

    def take_dirty(self) -> dict[NameSubscription, None]:
        """Return the dirty subscriptions. What changes from now on is dirty again."""
        taken, self.dirty = self.dirty, {}
        return taken

    def take_owed(self) -> dict[Key, None]:
        """Return the members that are owed."""
        taken, self.owed = self.owed, {}
        return taken

    def pass_over(self, subscription: NameSubscription) -> None:
        """Answer this subscription, and do not remember it."""
        self.passing = self.passing or []
        self.passing.append(subscription)

    def take_passing(self) -> list[NameSubscription]:
        """Return the subscriptions to answer and forget."""
        taken, self.passing = self.passing, None
        return taken or []

    def admit_added(self) -> None:
        """Make the new subscriptions of a SotW request due."""
        self.dirty.update(self.added)
        self.added.clear()

    def drop(self, subscription: NameSubscription) -> None:
        """Forget a subscription that ended."""
        self.dirty.pop(subscription, None)
        self.added.pop(subscription, None)
