"""Answer what one client holds of one type, or is about to be sent, by all of its subscriptions together.

A client may have the same resource by several subscriptions: a name and an alias, a name and a wildcard, two locators.
It still holds it once, so nothing may be removed that another subscription keeps. Nothing here changes anything.

The second half answers the questions of removals.py: which resources refer to which.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..model.events import WILDCARD, Key
from ..model.table import Table
from ..model.types import Params, Reference, Variant
from ..model.views import alike
from .context import SessionContext
from .holdings import Holdings
from .subscription import WildcardSubscription
from .subscriptions import Subscriptions

FOLLOWED = 5_000  # names that one client may hold of a type for their references to be followed


class ClientView:
    """What one client holds of one type."""

    __slots__ = ("_context", "_holdings", "_subscriptions")

    def __init__(self, context: SessionContext, subscriptions: Subscriptions, holdings: Holdings) -> None:
        self._context = context
        self._subscriptions = subscriptions
        self._holdings = holdings

    @property
    def _table(self) -> Table:
        return self._context.table

    @property
    def leaving(self) -> dict[Key, Variant]:
        """Return the variants whose removals wait (ORD-2)."""
        return self._holdings.leaving

    def held(self, name: str, *, located: bool) -> Iterator[Variant]:
        """Yield what the client holds, or is about to be sent, of this name in this form, by any subscription."""
        leaving, declined = self._holdings.leaving, self._holdings.declined
        for want in self._subscriptions.holders(name):
            if want.held is not None and want.located == located and want.key not in leaving:
                yield want.held
        for wild in self._subscriptions.covering(name):
            here = (wild.tag is not None) == located and wild.key_of(name) not in declined
            found = wild.listing.member(name, wild.params) if here else None
            if found is not None:
                yield found

    def held_of(self, name: str, *, located: bool) -> Iterator[Variant]:
        """Yield the variants that the client holds of this name, or of the glob collection of this name."""
        yield from self.held(name, located=located)
        for wild in self._subscriptions.wildcards.get(name, {}).values():
            if name != WILDCARD and (wild.tag is not None) == located:
                yield from wild.listing.snapshot(wild.params).variants

    def has(self, variant: Variant, *, located: bool) -> bool:
        """Whether the client is to have this variant."""
        return any(alike(held, variant) for held in self.held(variant.name, located=located))

    def located(self, name: str) -> Iterator[tuple[Variant, Params]]:
        """Yield the variants that the client holds of this name by locators, each with the locator's params."""
        for want in self._subscriptions.names.get(name, {}).values():
            if want.held is not None and want.located and want.key not in self._holdings.leaving:
                yield want.held, want.params
        for wild in self._subscriptions.covering(name):
            here = wild.started and wild.tag is not None and self.speaks_for(wild, name)
            found = wild.listing.member(name, wild.params) if here else None
            if found is not None:
                yield found, wild.params

    def speaks_for(self, wild: WildcardSubscription, name: str) -> bool:
        """Whether the wildcard sends this member: not if the client subscribed to it by name, too (WLD-7).

        VHD-11: nor if the client unsubscribed from this virtual host of the base set.
        """
        wants, declined = self._subscriptions.names.get(name), self._holdings.declined
        if not wants and not declined:
            return True  # nearly always, of up to a million members
        key = wild.key_of(name)
        return (not wants or key not in wants) and key not in declined

    def is_subscribed(self, name: str, *, located: bool) -> bool:
        """Whether a subscription of this form covers this name: by itself, by an alias or by a wildcard."""
        # The subscription may be to the name, or to an alias that the store, or the client's resource, has for it.
        subscriptions, known = self._subscriptions, self._table.get(name)
        strings = (name, *(known.aliases if known is not None else ()))
        named = (want for string in strings for want in subscriptions.names.get(string, {}).values())
        wilds = (wild.tag for wild in subscriptions.covering(name))
        tags = (*wilds, *(want.key.tag for want in (*named, *subscriptions.aliased.get(name, {}))))
        return any((tag is not None) == located for tag in tags)

    def may_have(self, name: str, *, located: bool) -> bool:
        """Whether the client may hold this name by one of its subscriptions, perhaps by an alias that is gone now."""
        return self.is_subscribed(name, located=located) or any(
            want.held is None and want.located == located for want in self._subscriptions.all_names()
        )

    def everything(self) -> Iterator[Variant]:
        """Yield all that the client holds, or is about to be sent."""
        for want in self._subscriptions.all_names():
            if want.held is not None:
                yield want.held
        for wild in self._subscriptions.all_wildcards():
            yield from wild.listing.snapshot(wild.params).variants

    # -- what refers to what (removals.py)

    def provides(self, name: str) -> bool:
        """Whether the client was sent a resource of this name, or for `*` the members of its wildcard."""
        if name == WILDCARD:
            return any(wild.started for wild in self._subscriptions.all_wildcards())
        return next(self._having(name), None) is not None

    def references_from(self, name: str) -> Iterator[Reference]:
        """Yield the references of what the client holds by this name, or by this wildcard."""
        if name == WILDCARD:
            yield from self.references()
            return
        for variant in self._having(name):
            yield from variant.references

    def references(self) -> set[Reference]:
        """Return the references of all that the client is to keep.

        A client that subscribes to very many names is a relay, and orders the removals for its own clients itself. The
        references of its named resources are left out.
        """
        found: set[Reference] = set()
        for wild in self._subscriptions.all_wildcards():
            found.update(wild.listing.references(wild.params))
        if len(self._subscriptions.names) <= FOLLOWED:
            found.update(reference for variant in self._kept() for reference in variant.references)
        return found

    def needs(self, reference: Reference) -> bool:
        """Whether a resource that the client is to keep refers to this one.

        Of a numerous type any one in the store counts, whether or not this client holds it.
        """
        if not self._table.referring.get(reference):
            return False
        if self._table.spec.is_numerous or any(reference in variant.references for variant in self._kept()):
            return True
        wilds = self._subscriptions.all_wildcards()
        return any(reference in wild.listing.references(wild.params) for wild in wilds)

    def refers_to(self, reference: Reference) -> bool:
        """Whether a resource that the client holds refers to this one, even if it is leaving.

        The client uses a leaving resource until it is told of the removal.
        """
        return self.needs(reference) or any(reference in held.references for held in self.leaving.values())

    def _having(self, name: str) -> Iterator[Variant]:
        """Yield the variants that the client holds by this name or alias, or through a wildcard."""
        subscriptions = self._subscriptions
        for want in (*subscriptions.names.get(name, {}).values(), *subscriptions.aliased.get(name, {})):
            if want.held is not None:
                yield want.held
        for wild in subscriptions.covering(name):
            found = wild.listing.member(name, wild.params)
            if found is not None:
                yield found

    def _kept(self) -> Iterator[Variant]:
        """Yield the variants that the client holds by name, without those that are leaving."""
        for wants in self._subscriptions.names.values():
            for key, want in wants.items():
                if want.held is not None and key not in self._holdings.leaving:
                    yield want.held
