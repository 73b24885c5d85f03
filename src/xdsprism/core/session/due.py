"""Hold what the next poll of a session has to look at.

A wildcard is not listed here. It is due when its cursor is behind its listing, so that a change costs nothing for each
wildcard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..model.events import Key
from .subscription import NameSubscription


class Due:
    """What one session has to look at, or to say, in its next response."""

    __slots__ = ("_added", "_owed", "dirty", "passing", "response")

    def __init__(self) -> None:
        # Subscriptions that the collector compares with the store: their name changed, or the client asked for them.
        self.dirty: dict[NameSubscription, None] = {}
        # None where there is nothing: an empty dictionary takes 64 bytes of each session.
        self._owed: dict[Key, None] | None = None  # members of a wildcard that the client must be sent, or told absent
        self._added: dict[NameSubscription, None] | None = None  # SotW: new ones, which wait while the nonce is stale
        # Delta: subscriptions that are answered negatively in the next response, and not remembered (VHD-25).
        self.passing: list[NameSubscription] | None = None
        self.response = False  # the request must be answered even with an empty response

    def __bool__(self) -> bool:
        """Whether something is due."""
        return bool(self.dirty or self._owed or self.response or self._added or self.passing)

    def mark(self, subscription: NameSubscription) -> None:
        """Have the next poll compare this subscription with the store."""
        self.dirty[subscription] = None

    def take_dirty(self) -> dict[NameSubscription, None]:
        """Return the dirty subscriptions. What changes from now on is dirty again."""
        taken, self.dirty = self.dirty, {}
        return taken

    def __len__(self) -> int:
        """Return how many subscriptions and members the next poll looks at."""
        return len(self.dirty) + len(self._owed or ()) + len(self._added or ())

    @property
    def owed(self) -> Collection[Key]:
        """Return the members of wildcards that the client must be sent, or told to be absent."""
        return self._owed or ()

    def owe(self, key: Key) -> None:
        """Have the next response say what a member of a wildcard is now."""
        self._owed = self._owed if self._owed is not None else {}
        self._owed[key] = None

    def drop_owed(self, key: Key) -> None:
        """Owe a member no more."""
        if self._owed is not None:
            self._owed.pop(key, None)

    def take_owed(self) -> Collection[Key]:
        """Return the members that are owed."""
        taken, self._owed = self._owed, None
        return taken or ()

    def add(self, subscriptions: Iterable[NameSubscription]) -> None:
        """Note new subscriptions of a SotW request, for `admit_added`."""
        self._added = self._added if self._added is not None else {}
        self._added.update(dict.fromkeys(subscriptions))

    def answer_once(self, subscription: NameSubscription) -> None:
        """Answer this subscription, and do not remember it."""
        self.passing = self.passing or []
        self.passing.append(subscription)

    def take_passing(self) -> list[NameSubscription]:
        """Return the subscriptions to answer and forget."""
        taken, self.passing = self.passing, None
        return taken or []

    def admit_added(self) -> None:
        """Make the new subscriptions of a SotW request due."""
        if self._added is not None:
            self.dirty.update(self._added)
            self._added = None

    def drop(self, subscription: NameSubscription) -> None:
        """Forget a subscription that ended."""
        self.dirty.pop(subscription, None)
        if self._added is not None:
            self._added.pop(subscription, None)
