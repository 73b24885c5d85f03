"""What a relay needs of whoever subscribes to servers for it."""

from __future__ import annotations

from typing import Protocol

from ..model.constraints import Constraint
from ..model.limits import Scarce
from ..model.types import Params, TypeUrl
from ..watch.entry import Entry


class Supply(Protocol):
    """Subscriptions to a server."""

    def ask(self, type_url: TypeUrl, name: str, params: Params) -> Entry | Scarce:
        """Subscribe. Equal questions may share an entry. Otherwise: what there is no room for."""

    def ask_again(self, entry: Entry) -> None:
        """What was said before does not count any more."""

    def presume_gone(self, entry: Entry) -> None:
        """What it shared is gone: a moment of silence means that there is nothing instead. Idempotent."""

    def drop(self, entry: Entry) -> None: ...

    def pin(self, entry: Entry) -> Constraint | None:
        """Whom an answer without constraints is for; None: the server says it itself (TP2)."""
