"""Define what the relay's machine needs from the side that subscribes to servers.

relay/feed.py implements it with xDS clients; tests implement it in memory.
"""

from __future__ import annotations

from typing import Protocol

from ..model.constraints import Constraint
from ..model.limits import Scarce
from ..model.types import Params, TypeUrl
from ..watch.entry import Entry


class Supply(Protocol):
    """Makes and drops upstream subscriptions."""

    def ask(self, type_url: TypeUrl, name: str, params: Params) -> Entry | Scarce:
        """Subscribe, and return the entry, which equal subscriptions may share; or what there is no room for."""

    def ask_again(self, entry: Entry) -> None:
        """Subscribe once more. The entry waits for a new answer, and keeps its variant until then."""

    def presume_gone(self, entry: Entry) -> None:
        """Take a moment of silence from the server for "does not exist". Idempotent.

        The relay calls this when the variant that answered the subscription was withdrawn from another one (PRX-34).
        """

    # Unsubscribe. An entry that several subscriptions share stays until the last of them is dropped.
    def drop(self, entry: Entry) -> None: ...

    def pin(self, entry: Entry) -> Constraint | None:
        """Return the constraint of the clients that an answer is for, whatever constraints it has.

        None: the constraints of the answer itself decide (TP2).
        """
