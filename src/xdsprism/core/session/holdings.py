"""Decide in which state each resource is at one client, as far as the client was told.

A resource is known by its key: the name, and the params of a locator or None. Its state follows from what the client
was sent. No other module changes it.

| state     | the client                                 | kept as                                                   |
|-----------|--------------------------------------------|-----------------------------------------------------------|
| WANTED    | subscribed, and waits for an answer        | a subscription that is not answered and holds nothing     |
| ABSENT    | was told that there is nothing             | a subscription that is answered and holds nothing         |
| HELD      | was sent a variant                         | a subscription that is answered and holds it              |
| RESENDING | has a variant, and must be sent it again   | a subscription that is not answered and holds one; `owed` |
| LEAVING   | has a variant that it should not have      | `leaving`                                                 |
| DECLINED  | unsubscribed from a member of its wildcard | `declined` (VHD-11)                                       |
| MEMBER    | has what its wildcard lists                | nothing: the wildcard's cursor says it                    |

    event                               WANTED     ABSENT     HELD       RESENDING  LEAVING    MEMBER
    begin     (it subscribes)           WANTED                                                 RESENDING (it inherits)
    ask_again (it asks, or must again)  WANTED     WANTED     RESENDING  RESENDING  LEAVING*   RESENDING (`owe`)
    deliver   (the store has a variant) HELD       HELD       HELD       HELD       HELD       MEMBER
    bring     (it has it already)       HELD
    miss      (the store has none)      ABSENT     ABSENT     LEAVING    LEAVING    LEAVING    LEAVING
    release   (the removal goes out)                                                ABSENT     (gone)
    decline   (it unsubscribes a member)                                            DECLINED   DECLINED
    forget    (it unsubscribes)         (gone)     (gone)     (gone)     (gone)     (gone)

    * A resource that is asked for again while its removal waits is answered by whatever comes of it.

What the client makes of a variant is not a state of the resource but of the responses that have it: in flight
(in_flight.py), accepted if no response with it is, rejected (rejections.py), or sent again alone (isolation.py).

An ABSENT subscription to a plain name on a delta stream is in `unknown`, too, the oldest first: above a limit the
session forgets them (VHD-25, lifecycle.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ..model.constraints import TRUE, Constraint
from ..model.events import Key
from ..model.types import Variant
from ..model.views import Transition, alike
from .context import SessionContext
from .due import Due
from .subscription import Group, NameSubscription, WildcardSubscription
from .subscriptions import Subscriptions

NO_KEYS: frozenset[Key] = frozenset()  # one for all sessions: each empty set takes 216 bytes


class ResourceState(Enum):
    """The state of one resource at one client."""

    WANTED = "wanted"
    ABSENT = "absent"
    HELD = "held"
    RESENDING = "resending"
    LEAVING = "leaving"
    DECLINED = "declined"
    MEMBER = "member"


class HeldDigest:
    """The hash of all that a SotW client holds by name (SRV-12). A variant that it holds several times counts once."""

    __slots__ = ("copies", "value")

    def __init__(self) -> None:
        self.copies: dict[Variant, int] = {}  # by how many subscriptions the client holds each variant
        self.value = 0

    def replace(self, before: Variant | None, after: Variant | None) -> None:
        """Note that a subscription held the one variant, and holds the other."""
        copies = self.copies
        if before is not None:
            left = copies[before] - 1
            if left:
                copies[before] = left
            else:
                del copies[before]
                self.value -= before.digest
        if after is not None:
            had = copies.get(after, 0)
            copies[after] = had + 1
            self.value += 0 if had else after.digest


class Holdings:
    """What one client holds of one type, by each of its subscriptions."""

    __slots__ = ("_context", "_due", "_is_grouped", "_subscriptions", "declined", "digest", "leaving", "unknown")

    def __init__(self, context: SessionContext, subscriptions: Subscriptions, due: Due) -> None:
        self._context = context
        self._subscriptions = subscriptions
        self._due = due
        self._is_grouped = not context.table.spec.is_numerous
        # Variants that the client holds and should not hold any more: their removals wait (ORD-2).
        self.leaving: dict[Key, Variant] = {}
        self.declined = NO_KEYS  # VHD-11: members of a wildcard that the client unsubscribed
        self.unknown: dict[NameSubscription, None] = {}  # VHD-25: delta, plain names that match nothing
        self.digest = HeldDigest() if not context.delta else None

    def state_of(self, key: Key) -> ResourceState | None:
        """Return the state of the resource with this key; None: the client does not subscribe to it."""
        if key in self.leaving:
            return ResourceState.LEAVING
        want = self._subscriptions.find(key)
        if want is not None:
            if want.held is not None:
                return ResourceState.HELD if want.answered else ResourceState.RESENDING
            return ResourceState.ABSENT if want.answered else ResourceState.WANTED
        wild = next(self._subscriptions.wildcards_over(key), None)
        if wild is None or not wild.started:
            return None
        if key in self.declined:
            return ResourceState.DECLINED
        if key in self._due.owed:
            return ResourceState.RESENDING
        return ResourceState.MEMBER if wild.listing.member(key.name, wild.params) is not None else None

    # -- a subscription begins and ends

    def begin(self, want: NameSubscription) -> None:
        """Take a new subscription. It holds what a wildcard has already sent the client of this name.

        A subscription to an alias inherits nothing: the wildcard goes on sending the resource under its name.
        """
        self._lack(want)
        wild = next((wild for wild in self._subscriptions.wildcards_over(want.key) if wild.started), None)
        if wild is None or self._context.table.owner(want.name) is not None:
            return
        # The client holds the variant as of the wildcard's cursor, which may be older than the listing.
        held = self.leaving.get(want.key)
        if held is None:
            held = wild.shown(want.name) if want.key not in self.declined else None
        self.hold(want, held)

    def forget(self, want: NameSubscription) -> None:
        """Undo all that was noted for a subscription that ended."""
        self.unknown.pop(want, None)
        if next(self._subscriptions.wildcards_over(want.key), None) is None:
            self.leaving.pop(want.key, None)  # otherwise its wildcard still owes the client the removal
        self.hold(want, None)
        self._context.interest.group(self._context.session, want, None)

    def forget_wildcard(self, wild: WildcardSubscription) -> None:
        """Forget the removals and answers that only a wildcard owed the client, which ended."""
        subscriptions, due = self._subscriptions, self._due
        tagged = [key for key in (*due.owed, *self.leaving) if key.tag == wild.tag and subscriptions.find(key) is None]
        for key in tagged:
            if next(subscriptions.wildcards_over(key), None) is None:
                due.drop_owed(key)
                self.leaving.pop(key, None)
        if self.declined:
            self.declined = frozenset(key for key in self.declined if key.tag != wild.tag) or NO_KEYS

    # -- the client asks again, or must be told again

    def ask_again(self, want: NameSubscription) -> None:
        """Have the next response answer this subscription, even if nothing changed."""
        want.answered = False
        self._due.dirty[want] = None

    def tell_again(self, want: NameSubscription) -> None:
        """Send the resource with its next change, or its next look, even if it is unchanged then (ERR-7)."""
        want.answered = False

    def owe(self, key: Key) -> None:
        """Have the next response say what a member of a wildcard is now."""
        self._due.owe(key)

    def resend(self, name: str) -> None:
        """Send the client again what it holds under this name, although it did not change (ORD-11)."""
        for want in self._subscriptions.holders(name):
            self.ask_again(want)
        for wild in self._subscriptions.covering(name):
            absent = self._subscriptions.find(wild.key_of(name)) is None
            if absent and wild.listing.member(name, wild.params) is not None:
                self.owe(wild.key_of(name))

    # -- the store has a variant

    def deliver(self, want: NameSubscription, after: Variant) -> bool:
        """Let a subscription hold this variant. Return whether the client must be sent it."""
        self.leaving.pop(want.key, None)  # it may have gone and come back before the client was told
        before = want.held
        self.hold(want, after)
        if want.answered and alike(before, after):
            return False
        want.answered, want.absence = True, None
        return True

    def bring(self, want: NameSubscription, variant: Variant) -> None:
        """Let a subscription hold the variant that the client brought (DLT-13). It need not be sent."""
        want.answered = True
        self.hold(want, variant)

    def deliver_member(self, key: Key, change: Transition) -> tuple[Variant | None, bool]:
        """Take the change of a member of a wildcard.

        Return what the client had of it, and whether it must be sent what it is now.
        """
        # A removal that still waits counts as what the client holds.
        before = self.leaving.pop(key, change.before)
        if change.after is None:
            if before is not None:
                self.leaving[key] = before
            return before, False
        return before, not alike(before, change.after)

    # -- the store has none

    def miss(self, want: NameSubscription, absence: Constraint | None) -> bool:
        """Take note that a subscription matches nothing. Return whether the client must be told so at once.

        It need not be if it holds something, whose removal waits then. `absence`: for whom there is nothing, where
        the client subscribed by a locator. DESIGN 6.4: the client may cache such a negative answer. So it gets a new
        one when the params keys that its constraints pin have changed.
        """
        answered, want.answered = want.answered, True
        if want.held is not None:
            self.leaving[want.key] = want.held
            self._lack(want)
            return False
        if not want.located:
            if not answered and self._context.delta:
                self.unknown[want] = None
            return not answered
        if answered and want.absence in (None, absence):
            return False
        want.absence = absence
        return True

    def resubscribe(self, want: NameSubscription) -> None:
        """Add a subscription that the session had forgotten; its client has a negative answer (VHD-25)."""
        want.answered = True
        self.unknown[want] = None
        self._due.dirty[want] = None

    def leave(self, key: Key, variant: Variant) -> None:
        """Remove a resource that the client has from an earlier stream, when that is allowed (DLT-14)."""
        self.leaving[key] = variant

    def release(self, keys: Iterable[Key] | None) -> dict[Key, Variant]:
        """Take these leaving variants, or all of them, from the client. Return them: their removals go out now."""
        gone = {key: self.leaving.pop(key) for key in (list(self.leaving) if keys is None else keys)}
        for key in gone:
            want = self._subscriptions.find(key)
            if want is not None:
                self.hold(want, None)
                want.answered = True
        return gone

    def note_absence(self, want: NameSubscription, absence: Constraint) -> None:
        """Remember the constraints of the client's negative answer."""
        want.absence = absence

    # -- members of a wildcard that the client does not want

    def decline(self, key: Key) -> None:
        """Let the wildcard send this member no more: the client unsubscribed from it (VHD-11)."""
        self.declined = self.declined | {key}
        self._due.drop_owed(key)
        self.leaving.pop(key, None)

    def take_back(self, keys: Iterable[Key]) -> None:
        """Let the wildcard send these members again: the client asked for them (VHD-11)."""
        self.declined = self.declined.difference(keys) or NO_KEYS

    # -- what a subscription holds

    def hold(self, want: NameSubscription, variant: Variant | None) -> None:
        """Record that the client holds this variant, or nothing, by this subscription.

        Also move the subscription to the right group of the index, and note it if the variant has another name.
        """
        held = want.held
        if self.digest is not None:
            self.digest.replace(held, variant)
        if variant is not None and (variant.constraint is not TRUE or want.group is not None):
            self._group(want, variant if variant.constraint is not TRUE else None)
        # The usual case: a new version of the same resource.
        if held is not None and variant is not None and held.name == variant.name:
            want.held = variant
            return
        if variant is not None:
            self.unknown.pop(want, None)
        else:
            self._lack(want)
        before = held.name if held is not None else want.name
        after = variant.name if variant is not None else want.name
        want.held = variant
        if before == after:
            return
        if before != want.name:
            self._subscriptions.unalias(want, before)
        if after != want.name:
            self._subscriptions.alias(want, after)

    def _lack(self, want: NameSubscription) -> None:
        """Group the subscription with those that hold nothing: any variant that comes may match it."""
        self._group(want, (self._context.type_url, want.name))

    def _group(self, want: NameSubscription, group: Group | None) -> None:
        """Register the subscription's group with the index, except for hosts."""
        if self._is_grouped:
            self._context.interest.group(self._context.session, want, group)
