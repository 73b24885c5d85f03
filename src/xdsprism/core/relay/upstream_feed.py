"""Define what the relay's machine needs of the side that subscribes to servers.

relay/feed.py implements it with xDS clients; tests implement it in memory.
"""

from __future__ import annotations

from typing import Protocol

from ..model.constraints import Constraint
from ..model.limits import Scarce
from ..model.types import Params, TypeUrl
from ..watch.entry import Entry


class Carried(Protocol):
    """One subscription, as the feed carries it. Equal subscriptions may share the entry."""

    @property
    def entry(self) -> Entry:
        """What the servers said."""

    def ask_again(self) -> None:
        """Subscribe once more. The entry waits for a new answer, and keeps its variant until then."""

    def presume_gone(self) -> None:
        """Take a moment of silence from the server for "does not exist". Idempotent.

        The relay calls this when the variant that answered the subscription was removed for another one (PRX-34).
        """

    def end(self) -> None:
        """Unsubscribe. An entry that several subscriptions share stays until the last of them ends."""


class UpstreamFeed(Protocol):
    """Subscribes to servers."""

    def subscribe(self, type_url: TypeUrl, name: str, params: Params) -> Carried | Scarce:
        """Subscribe, and return the subscription; or what there is no room for."""

    def pin(self, entry: Entry) -> Constraint | None:
        """Return the constraint of the clients that an answer is for, whatever constraints it has.

        None: the constraints of the answer itself decide (TP2).
        """
