"""Say where a resource type may differ from all others: an interface of hooks that do nothing by default.

VHDS has rules of its own (virtual_hosts.py, where `rules_of` chooses). The other parts of a session call these hooks,
and know nothing of virtual hosts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..model.events import Key, Send
from ..model.steps import Steps
from ..model.types import Variant
from .batch import Batch
from .subscription import NameSubscription, WildcardSubscription


class TypeRules:
    """The rules of most types: nothing differs. It is an interface whose every hook has a default, and has no state."""

    __slots__ = ()

    has_fast_path = True  # what is due may be all that a change or an ACK makes due (fast_path.py)
    has_full_wildcard = True  # a wildcard has sent the client every resource that the client may name
    may_overlap = True  # variants of one name that a cache has may overlap at a client (DYN-45)

    # -- a request

    def note_brought(self, initial: Mapping[str, str]) -> None:
        """Note the resources that the client brought: its initial_resource_versions."""

    def subscribing(self, key: Key) -> None:
        """A subscription to this key begins, or is repeated."""

    def member_meant(self, key: Key) -> str | None:  # noqa: ARG002
        """Return the member of a wildcard that the client means by a key from which it unsubscribes, or None."""
        return None

    def unsubscribed(self, member: str, key: Key) -> None:
        """The client unsubscribed from this key, by which it means a member of its wildcard."""

    def wildcard_ended(self, wild: WildcardSubscription) -> None:
        """A wildcard subscription ended."""

    # -- what is sent

    @property
    def is_pending(self) -> bool:
        """Whether the rules have something to say in the next response."""
        return False

    @property
    def paced_until(self) -> float | None:
        """Return until when the session sends nothing to a client that is slow to ACK; None: it does not wait."""
        return None

    def deliver_located(self, batch: Batch, variant: Variant) -> None:
        """Put into the batch a variant that the client subscribed to by a locator."""
        batch.located[variant] = None

    def collected_name(self, want: NameSubscription, before: Variant | None, *, was_answered: bool) -> None:
        """The collector has compared a subscription with the store."""

    def wildcard_started(self, wild: WildcardSubscription) -> None:
        """A wildcard is answered for the first time."""

    def collected_wildcard(self, wild: WildcardSubscription, batch: Batch) -> None:
        """The collector has put into the batch what a wildcard has new."""

    def collected(self, batch: Batch) -> Steps[None]:  # noqa: ARG002
        """The collector has put everything into the batch."""
        yield from ()

    @property
    def knows_brought(self) -> bool:
        """Whether it is known which of the resources that the client brought are subscribed."""
        return True

    def needs_empty_resource(self, key: Key) -> bool:  # noqa: ARG002
        """Whether a subscription to this key that gets nothing is answered by a resource without contents."""
        return False

    def complete(self, send: Send, batch: Batch) -> Steps[Send]:  # noqa: ARG002
        """Return the response with what only this type has in it."""
        yield from ()
        return send

    def polled(self) -> Steps[None]:
        """The responses of a poll are made."""
        yield from ()

    # -- other types

    def rerouted(self, config: str) -> Steps[None]:  # noqa: ARG002
        """The route configuration of subscribed virtual hosts changed."""
        yield from ()

    def revisit(self, configs: Collection[str]) -> Steps[None]:  # noqa: ARG002
        """The client was sent these route configurations."""
        yield from ()
