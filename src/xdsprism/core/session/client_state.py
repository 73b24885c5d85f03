"""Bundle what a session knows of its client: what it wants, what it has, and what is due to it."""

from __future__ import annotations

from .availability import Availability
from .client_view import ClientView
from .context import SessionContext
from .due import Due
from .holdings import Holdings
from .subscriptions import Subscriptions


class ClientState:
    """The parts of a session that are about the client, without responses and requests. The rest builds on them."""

    __slots__ = ("availability", "due", "holdings", "subscriptions", "view")

    def __init__(self, context: SessionContext) -> None:
        self.due = Due()
        self.subscriptions = Subscriptions(context)
        self.holdings = Holdings(context, self.subscriptions, self.due)
        self.view = ClientView(context, self.subscriptions, self.holdings)
        self.availability = Availability(context, self.subscriptions)
