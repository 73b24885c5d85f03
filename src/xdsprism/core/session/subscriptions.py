"""Keep the subscriptions of one session, by name and by wildcard, and register them with the index and the demand.

`Subscriptions` answers which subscriptions there are. What the client holds by each is decided in holdings.py, and what
else must happen when one begins or ends in lifecycle.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..model.constraint_index import FEW
from ..model.events import WILDCARD, Key
from ..model.limits import counted_as, is_glob
from ..model.types import Params
from ..model.xdstp import wildcards
from .claims import demand, demand_members, listing_of, note_denied, params_of, undemand, undemand_members
from .context import SessionContext
from .subscription import NameSubscription, WildcardSubscription


class Subscriptions:
    """The subscriptions of one type on one stream."""

    __slots__ = ("_asked_keys", "_context", "_count", "aliased", "names", "wildcards")

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self.names: dict[str, dict[Key, NameSubscription]] = {}  # by name
        self.wildcards: dict[str, dict[Params | None, WildcardSubscription]] = {}  # by name: `*`, or a glob collection
        # Subscriptions by the name of the resource that they hold, where the client subscribed to another string: an
        # alias of the resource, or a host that a virtual host serves (VHD-3).
        self.aliased: dict[str, dict[NameSubscription, None]] = {}
        self._count = 0  # how many subscriptions there are
        # Of names with many subscriptions: uses of each params key. None: no such name was asked about.
        self._asked_keys: dict[str, Counter[str]] | None = None

    # -- which there are

    def find(self, key: Key) -> NameSubscription | None:
        """Return the subscription to a name with this key, if there is one."""
        return self.names.get(key.name, {}).get(key)

    def wildcard(self, key: Key) -> WildcardSubscription | None:
        """Return the wildcard subscription with this key, if there is one."""
        return self.wildcards.get(key.name, {}).get(key.tag)

    def has(self, key: Key) -> bool:
        """Whether there is a subscription with this key, by name or as a wildcard."""
        return self.find(key) is not None or key.tag in self.wildcards.get(key.name, {})

    def wants(self, name: str, params: Params) -> bool:
        """Whether the client has a subscription to this name, or this wildcard, with these params."""
        named = any(want.params == params and not want.is_denied for want in self.names.get(name, {}).values())
        wilds = self.wildcards.get(name, {}).values()
        return named or any(wild.params == params and not wild.is_denied for wild in wilds)

    def __len__(self) -> int:
        """Return how many subscriptions there are."""
        return self._count

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys of all subscriptions, wildcards first."""
        for wild in self.all_wildcards():
            yield wild.key
        for wants in self.names.values():
            yield from wants

    def all_names(self) -> Iterator[NameSubscription]:
        """Yield the subscriptions to names."""
        for wants in self.names.values():
            yield from wants.values()

    def all_wildcards(self) -> Iterator[WildcardSubscription]:
        """Yield the wildcard subscriptions."""
        for wilds in self.wildcards.values():
            yield from wilds.values()

    def covering(self, name: str) -> list[WildcardSubscription]:
        """Return the wildcards that this name is a member of (XTP-3)."""
        if not self.wildcards:
            return []
        return [wild for each in wildcards(name) for wild in self.wildcards.get(each, {}).values()]  # XTP-3

    def wildcards_over(self, key: Key) -> Iterator[WildcardSubscription]:
        """Yield the wildcards over this key's name that have the same params and form."""
        for wild in self.covering(key.name):
            if wild.tag == key.tag:
                yield wild

    @property
    def whole_table(self) -> Mapping[Params | None, WildcardSubscription]:
        """Return the subscriptions to `*`, by tag. SotW has no other wildcards (XTP-8)."""
        return self.wildcards.get(WILDCARD, {})

    def holders(self, name: str) -> list[NameSubscription]:
        """Return the subscriptions by which the client holds the resource of this name."""
        own = (want for want in self.names.get(name, {}).values() if want.held is not None and want.held.name == name)
        return [*own, *self.aliased.get(name, {})]

    @property
    def is_behind(self) -> bool:
        """Whether a wildcard has something to send."""
        # Without `all_wildcards`: every poll asks this.
        return any(
            wild.is_behind or not wild.started or wild.again or wild.is_held_over
            for wilds in self.wildcards.values()
            for wild in wilds.values()
        )

    def params_keys(self, name: str) -> Iterable[str]:
        """Return the params keys of all subscriptions to this name. Keep a count where there are many of them."""
        wants = self.names.get(name, {})
        if len(wants) <= FEW:
            return {key for want in wants.values() for key in want.params}
        asked = self._asked_keys = self._asked_keys or {}
        if name not in asked:
            asked[name] = Counter(key for want in wants.values() for key in want.params)
        return [key for key, count in asked[name].items() if count]

    # -- which come and go

    def note(self, key: Key) -> NameSubscription:
        """Remember and count a new subscription. `register` does the rest."""
        name, context = key.name, self._context
        claim = context.claim(key)
        want = NameSubscription(key, params_of(context, key, claim), context.table.moment, claim)
        self.names.setdefault(name, {})[key] = want
        if self._asked_keys and name in self._asked_keys:
            self._asked_keys[name].update([*want.params])
        self._charge(key, 1)
        return want

    def register(self, want: NameSubscription) -> None:
        """Register a new subscription with the index, and ask the upstream for it if this is a cache."""
        context, name = self._context, want.name
        context.interest.add(context.session, context.type_url, name)
        demand(context, want)

    def remove(self, want: NameSubscription) -> None:
        """Undo `note` and `register`."""
        name = want.name
        del self.names[name][want.key]
        asked = self._asked_keys or {}
        if name in asked:
            asked[name].subtract([*want.params])
        self._charge(want.key, -1)
        if not self.names[name]:
            del self.names[name]
            asked.pop(name, None)
            self._lose_interest(name)
        undemand(self._context, want)

    def alias(self, want: NameSubscription, name: str) -> None:
        """Note that the client holds the resource of this name by a subscription to another string."""
        self.aliased.setdefault(name, {})[want] = None
        context = self._context
        context.interest.add(context.session, context.type_url, name)

    def unalias(self, want: NameSubscription, name: str) -> None:
        """Undo `alias`."""
        del self.aliased[name][want]
        if not self.aliased[name]:
            del self.aliased[name]
            self._lose_interest(name)

    def add_wildcard(self, key: Key) -> WildcardSubscription:
        """Return the wildcard subscription with this key. Begin it if there is none."""
        name, tag = key
        wild = self.wildcard(key)
        if wild is None:
            context = self._context
            claim = context.claim(key)
            wild = WildcardSubscription(key, params_of(context, key, claim), listing_of(context, name, claim), claim)
            self.wildcards.setdefault(name, {})[tag] = wild
            context.interest.add_wild(context.session, context.type_url, name)
            demand_members(context, wild)
            note_denied(context, wild)
            self._charge(key, 1)
            if is_glob(key):
                context.budget.globs += 1
        return wild

    def remove_wildcard(self, wild: WildcardSubscription) -> None:
        """Undo `add_wildcard`."""
        context = self._context
        del self.wildcards[wild.name][wild.tag]
        self._charge(wild.key, -1)
        if is_glob(wild.key):
            context.budget.globs -= 1
        undemand_members(context, wild)
        wild.close(context.table)
        if not self.wildcards[wild.name]:
            del self.wildcards[wild.name]
            context.interest.remove_wild(context.session, context.type_url, wild.name)

    # -- another policy

    def regrant(self, want: NameSubscription) -> None:
        """Take what another policy makes of a subscription."""
        context = self._context
        claim = context.claim(want.key)
        if claim != want.claim:
            undemand(context, want)
            asked = self._asked_keys.get(want.name) if self._asked_keys else None
            if asked is not None:
                asked.subtract([*want.params])
            want.claim, want.params = claim, params_of(context, want.key, claim)
            if asked is not None:
                asked.update([*want.params])
            demand(context, want)

    def _lose_interest(self, name: str) -> None:
        """Leave the index for this name if no subscription asks for it or holds it."""
        if name not in self.names and name not in self.aliased:
            context = self._context
            context.interest.remove(context.session, context.type_url, name)

    def _charge(self, key: Key, step: int) -> None:
        """Count a subscription that came (`step` 1) or went (-1), here and in the budget of the stream."""
        self._count += step
        budget = self._context.budget
        budget.count(counted_as(self._context.table.spec, located=key.tag is not None), step)
        if key.tag:
            budget.count_params(key.tag, step)
