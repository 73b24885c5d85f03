"""Say who gets the resources that clients subscribe to, where they have to be fetched or made."""

from __future__ import annotations

from typing import Protocol

from .types import Params, TypeUrl


class Demand(Protocol):
    """Receives each subscription, so that a relay or a provider can get the resource from elsewhere."""

    caches: bool  # a relay: it knows what the upstream answered, for some params; the rest may be unknown

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:
        """Get this name, or this wildcard, for these params. `stream`: the downstream stream that subscribed."""

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None: ...

    def forgot(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Note that a session dropped a subscription that matches nothing, while its client still waits (VHD-25)."""


class NoDemand:
    """The demand of a server whose store has everything: it does nothing."""

    caches = False

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:
        """Nothing to do."""

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Nothing to do."""

    def forgot(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Nothing to do."""
