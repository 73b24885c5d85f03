"""Hold what the parts of a session refer to and none of them changes: the stream, the table, the settings.

A session is one resource type on one stream. Its parts (session.py lists them) are separate objects, and each of them
gets this context.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.facts import Facts
from ..model.limits import SubscriptionBudget
from ..model.settings import Settings
from ..model.table import Table
from ..model.types import Params, TypeUrl
from ..model.xdstp import complaint
from .interest import Interest, Interested


@dataclass(frozen=True, slots=True)
class StreamContext:
    """What all sessions of one stream share."""

    number: int
    interest: Interest
    settings: Settings
    params: Params  # the params of plain subscriptions, taken from the node
    facts: Facts
    budget: SubscriptionBudget  # of subscriptions, over all sessions (DYN-46)
    delta: bool
    is_aggregated: bool  # the stream is ADS, and not of the service of one type


class SessionContext:
    """The type, the stream and the client that a session is about."""

    __slots__ = (
        "budget",
        "delta",
        "facts",
        "full_state",
        "interest",
        "params",
        "session",
        "settings",
        "stream",
        "table",
        "type_url",
    )
    __deletable__ = ("session",)  # compiled, no other attribute can be deleted

    def __init__(self, session: Interested, table: Table, stream: StreamContext) -> None:
        self.session = session  # as the index of subscriptions knows it; deleted when the session closes
        self.table = table
        self.type_url: TypeUrl = table.spec.url
        self.interest = stream.interest
        self.settings = stream.settings
        self.params = stream.params
        self.stream = stream.number
        self.facts = stream.facts
        self.budget = stream.budget
        self.delta = stream.delta
        self.full_state = table.spec.full_state and not stream.delta  # SOT-4: each response holds everything

    def close(self) -> None:
        """End the reference cycle with the session, which would otherwise wait for the garbage collector."""
        del self.session

    def plain_params(self, name: str) -> Params:
        """Return the params of a subscription to `name` that sends none (DESIGN 6.2)."""
        return self.settings.plain_params(self.params, name)

    def complaint(self, name: str) -> str | None:
        """Return why no server can have a resource of this name, or None (XTP-9)."""
        return complaint(name, self.type_url, globs=self.delta) if self.table.spec.has_xdstp_names else None
