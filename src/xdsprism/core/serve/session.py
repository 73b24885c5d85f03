"""Keep the subscriptions of one type on one stream, and what the client holds by each.

A session has two kinds of subscription (subscriptions.py). A `NameSubscription` is to one name; it remembers which
variant the client holds. A `WildcardSubscription` is to all names, or to a glob collection, which is a wildcard over
some names (TP1). It remembers one number, the revision of the table up to which the client was sent it.

The session is one object, built in layers. Each layer adds one decision:

| file                      | class                | decides                                                       |
|---------------------------|----------------------|---------------------------------------------------------------|
| session.py                | `Session`            | which subscriptions there are, and which of them are due      |
| collecting.py             | `CollectingSession`  | which resources, removals and errors the client must be sent  |
| answered_session.py       | `AnsweredSession`    | what an ACK or a NACK means, and when a heartbeat is due      |
| fast_path.py              | `SteadySession`      | when one shared response is all that a change needs           |
| sotw.py, delta.py         | `SotwSession`, ...   | how a request is read, and how a batch becomes responses      |
| virtual_host_session.py   | `VirtualHostSession` | what differs for VHDS                                         |

A subscription is due for a look at the store when it is in `_dirty`. `Interest` puts it there when its name changed,
and a request does when it is new. A wildcard is due when its cursor is behind its listing, so changes cost nothing per
wildcard. A resource that the client holds and should hold no more moves to `leaving`, and stays there until the stream
allows the removal (removals.py).

Methods that return `Steps` are generators. They yield after every `EVERY` items, so that the server can serve other
streams in between (core/model/steps.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from ..model.constraint_index import FEW
from ..model.constraints import TRUE
from ..model.events import WILDCARD, Key
from ..model.facts import Facts
from ..model.limits import Refusal, SubscriptionBudget, counted_as
from ..model.settings import Settings
from ..model.steps import EVERY, Steps, pieces
from ..model.table import Table
from ..model.types import NO_PARAMS, Change, Params, ResourceProblem, Variant
from ..model.xdstp import complaint, wildcards
from .forgotten_names import ForgottenNames
from .interest import Interest
from .refusals import Refusals, note_refused, refused_among
from .subscriptions import Group, NameSubscription, WildcardSubscription, read_keys


class Session:
    """The subscriptions of one type on one stream: the part that SotW and delta share."""

    __slots__ = (
        "_aliased",
        "_asked_keys",
        "_declined",
        "_dirty",
        "_due",
        "_facts",
        "_forgotten",
        "_full_state",
        "_interest",
        "_open",
        "_owed",
        "_parted",
        "_refused",
        "_returns",
        "_room",
        "_unknown",
        "_wants",
        "_wilds",
        "count",
        "leaving",
        "news",
        "params",
        "settings",
        "stream",
        "table",
    )

    delta: bool

    def __init__(
        self,
        table: Table,
        interest: Interest,
        settings: Settings,
        params: Params,
        stream: int,
        facts: Facts,
        room: SubscriptionBudget,
    ) -> None:
        self.table = table
        table.sessions += 1
        self.settings = settings
        self.params = params  # the params of plain subscriptions, taken from the node
        # Variants that the client holds and should not hold any more: their removals wait (ORD-2).
        self.leaving: dict[Key, Variant] = {}
        self.news: tuple[Variant, ...] = ()  # the variants that the last poll found new or changed (ORD-11)
        self.stream = stream
        self._facts = facts
        self._full_state = table.spec.full_state and not self.delta  # SOT-4: each response holds everything
        self._interest = interest
        self._wants: dict[str, dict[Key, NameSubscription]] = {}  # by name
        self._asked_keys: dict[str, Counter[str]] = {}  # of names with many subscriptions: uses of each params key
        self.count = 0  # how many subscriptions there are
        # Subscriptions by the name of the resource that they hold, where the client subscribed to another string: an
        # alias of the resource, or a host that a virtual host serves (VHD-3).
        self._aliased: dict[str, dict[NameSubscription, None]] = {}
        self._wilds: dict[str, dict[Params | None, WildcardSubscription]] = {}  # by name: `*`, or a glob collection
        self._declined: frozenset[Key] = frozenset()  # VHD-11: members of a wildcard that the client unsubscribed
        self._open: dict[NameSubscription, None] = {}  # in a cache: subscriptions not yet seen answered by `_waits`
        # Subscriptions that the next `collect` compares with the store.
        self._dirty: dict[NameSubscription, None] = {}
        self._owed: dict[Key, None] = {}  # members of a wildcard that the client must be sent, or told to be absent
        self._parted: list[tuple[Variant, bool]] = []  # variants that `collect` replaced, and whether by locator
        # VHD-25, delta, plain names: subscriptions that match nothing, the oldest first. Above a limit the session
        # drops the oldest ones, and marks their names in `_forgotten`.
        self._unknown: dict[NameSubscription, None] = {}
        self._forgotten: ForgottenNames | None = None
        self._room = room  # the budget of the stream, over all its sessions
        self._refused: Refusals | None = None  # subscriptions past a limit that wait for their answer
        self._due = False  # the request must be answered even with an empty response
        self._returns = False  # the client holds something from an earlier stream

    # -- the verbs that both kinds share

    def notify(self, name: str) -> None:
        """Mark the subscriptions to a changed name as dirty.

        `Interest` calls this. Wildcards need no call: they compare their cursor with the listing.
        """
        wants = self._wants.get(name)
        if wants is not None:
            for want in wants.values():
                self._dirty[want] = None
        if self._aliased:
            self._dirty.update(self._aliased.get(name, {}))

    def touch(self, want: NameSubscription) -> None:
        """What this subscription is about changed."""
        self._dirty[want] = None

    def has_forgotten(self, name: str) -> bool:
        """Whether the client still waits for this name although the session dropped its subscription (VHD-25)."""
        return self._forgotten is not None and self._forgotten.awaits(name) and name not in self._wants

    def wants(self, name: str, params: Params) -> bool:
        """Whether the client has a subscription to this name, or this wildcard, with these params."""
        named = any(want.params == params for want in self._wants.get(name, {}).values())
        return named or any(wild.params == params for wild in self._wilds.get(name, {}).values())

    def rerouted(self, config: str) -> Steps[None]:  # noqa: ARG002 # for virtual hosts
        """Note that the route configuration of subscribed virtual hosts changed. Only VHDS sessions act on it."""
        yield from ()

    def recall(self, change: Change) -> bool:
        """Subscribe again to dropped names that this change may create (VHD-25). Return whether there are any."""
        names = self._forgotten.concerned(change) if self._forgotten is not None else ()
        keys: list[Key] = [(name, None) for name in names]
        recalled = [self._add(key) for key in keys if self._find(key) is None]
        for want in recalled:
            want.answered = True  # the client was told that there is nothing
            self._unknown[want] = self._dirty[want] = None
        return bool(recalled)

    def is_judging(self, names: Iterable[str]) -> bool:
        """Whether a change of one of these names has yet to be sent, or is in flight."""
        if any(wild.started and wild.is_behind for wild in self._wildcards()):
            return True
        wants = (want for name in names for want in (*self._wants.get(name, {}).values(), *self._aliased.get(name, ())))
        return any(want in self._dirty for want in wants)

    @property
    def pending(self) -> bool:
        """Whether the next poll has something to look at."""
        return bool(self._dirty or self._owed or self._due or self._refused or self._behind)

    def close(self) -> Steps[None]:
        """Drop all subscriptions, in steps, and leave the table and the index."""
        names = [*self._wants]
        names.reverse()
        while names:  # `del` frees the list in pieces too: one large list would take long to free
            piece = names[: -EVERY - 1 : -1]
            del names[-EVERY:]
            for name in piece:
                for want in [*self._wants[name].values()]:
                    self._drop(want)
            if len(piece) == EVERY:
                yield
        for wild in list(self._wildcards()):
            self._drop_wild(wild)
        if self._forgotten is not None:
            self._interest.remove_forgetful(self, self.table.spec.url)
        self.table.sessions -= 1

    @property
    def changed(self) -> int:
        """Return how many subscriptions to names the next poll looks at."""
        return len(self._dirty)

    @property
    def backlog(self) -> int:
        """Return about how many subscriptions and resources the next poll looks at."""
        found = len(self._dirty) + len(self._owed)
        if self._refused is not None:
            found += len(self._refused)
        for wilds in self._wilds.values():
            for wild in wilds.values():
                # A wildcard may have to look at each of its members.
                if wild.is_behind or not wild.started or wild.again:
                    found += len(wild.listing)
        return found

    def resend(self, name: str) -> None:
        """Send the client again what it holds under this name, although it did not change (ORD-11)."""
        for want in self._holders(name):
            want.answered = False
            self._dirty[want] = None
        for wild in self._covering(name):
            if self._find((name, wild.tag)) is None and wild.listing.member(name, wild.params) is not None:
                self._owed[name, wild.tag] = None

    # -- subscriptions

    @property
    def subscriptions(self) -> list[Key]:
        """Return the keys of all subscriptions, wildcards first."""
        return [*self.keys()]

    def keys(self) -> Iterator[Key]:
        """Yield what `subscriptions` lists, without the list: a stream may have a million of them."""
        yield from ((wild.name, wild.tag) for wild in self._wildcards())
        for wants in self._wants.values():
            yield from wants

    @property
    def _behind(self) -> bool:
        """Whether a wildcard has something to send."""
        wilds = self._wildcards() if self._wilds else ()  # every poll asks this
        return any(wild.is_behind or not wild.started or wild.again for wild in wilds)

    @property
    def _waits(self) -> bool:
        """Whether a subscription has no answer yet because a cache does not know one (PRX-11).

        A relay knows a resource, or that there is none, only once its upstream has answered.
        """
        if self.table.authoritative:
            return False
        if any(not wild.started and not self._lists(wild) for wild in self._wildcards()):
            return True
        answered: list[NameSubscription] = []
        waiting = next((want for want in self._open if self._is_waiting(want, answered)), None)
        for want in answered:  # each is seen answered once; then only the open ones remain to be looked at
            del self._open[want]
        return waiting is not None

    def _is_waiting(self, want: NameSubscription, answered: list[NameSubscription]) -> bool:
        """Whether this subscription waits for the upstream. Note it in `answered` if it has its answer."""
        if want.answered:
            answered.append(want)
            return False
        late = self.table.is_late(want.name, want.params, claims=self._returns)
        return not (self._knows(want) or late or self._is_refused(want)) and self._trouble(want) is None

    def _lists(self, wild: WildcardSubscription) -> bool:
        """Whether the table knows the whole listing of this wildcard, well enough for this client (PRX-25).

        What a relay restored from disk may be older than what a client holds that comes back. So the restored listing
        serves only clients that hold nothing yet. The others keep what they have until the upstream has answered.
        """
        return self.table.lists(wild.params, wild.name, sure=self._returns)

    def complaint(self, name: str) -> str | None:
        """Return why no server can have a resource of this name, or None (XTP-9)."""
        return complaint(name, self.table.spec.url, globs=self.delta) if not self.table.spec.on_demand else None

    def _knows(self, want: NameSubscription) -> bool:
        """Whether the table knows the answer to this subscription: a variant, or that there is none."""
        if not self.table.authoritative and self.complaint(want.name) is not None:
            return True
        return self.table.knows(want.name, want.params, sure=self._returns) and self._serves(want)

    def _trouble(self, want: NameSubscription | WildcardSubscription) -> ResourceProblem | None:
        """Return the problem with getting this resource, if this client may be told of it in resource_errors.

        A client that does not read TP3 errors as transient would take one for an answer. So plain subscriptions hear of
        problems only where the settings say "all", or where the relay has no room for the resource: that is an answer,
        as for a subscription past a limit (PRX-35, DYN-46).
        """
        told = self.settings.resource_errors
        if told == "none":
            return None
        trouble = self.table.trouble(want.name, want.params)
        return trouble if told == "all" or want.located or (trouble is not None and trouble.refused) else None

    def _is_refused(self, want: NameSubscription) -> bool:
        """Whether the relay has no room for this resource, even if the client is not told why (PRX-35)."""
        trouble = self.table.trouble(want.name, want.params)
        return trouble is not None and trouble.refused

    def _serves(self, want: NameSubscription) -> bool:
        """Whether this subscription may have what the table holds (PRX-17).

        A resource with do_not_cache serves only the subscriptions that were there before it arrived. PRX-25: a
        resource that no upstream confirmed for too long serves nobody new.
        """
        return want.answered or self.table.serves(want.name, want.params, want.since)

    def _admitted(self, keys: tuple[Key, ...], refused: dict[Key, Refusal]) -> tuple[Key, ...]:
        """Return the keys that are within the limits, in canonical spelling. Note the others in `refused` (DYN-46)."""
        found = refused_among(keys, self.table.spec.url, self.settings.limits)
        if found:
            refused.update(found)
            keys = tuple(key for key in keys if key not in found)
        return read_keys(keys, self.table.spec)

    def _admitting(self, keys: tuple[Key, ...], refused: dict[Key, Refusal]) -> Steps[tuple[Key, ...]]:
        """Do what `_admitted` does, in steps."""
        admitted: list[Key] = []
        for piece in pieces(keys):
            admitted += self._admitted(tuple(piece), refused)
            if len(piece) == EVERY:
                yield
        return tuple(admitted)

    def _refuse_keys(self, refused: Mapping[Key, Refusal]) -> None:
        """Queue an answer for each of these keys. The session does not remember them as subscriptions (DYN-46)."""
        if refused:
            note_refused(self.table.spec.url, Counter(refused.values()), self._room, self.stream, self._facts)
            self._refused = self._refused or Refusals()
            self._refused.add(refused)

    def _lacking_room(self, wanted: Collection[Key], leaving: Collection[Key]) -> Steps[dict[Key, Refusal]]:
        """Return those of `wanted` that exceed the stream's budget once `leaving` is gone (DYN-46), in steps.

        The caller asks only where the budget is nearly used up.
        """
        room, on_demand = self._room, self.table.spec.on_demand
        kinds = {located: counted_as(NO_PARAMS if located else None, on_demand=on_demand) for located in (False, True)}
        left = {kind: room.left(kind) for kind in kinds.values()}
        for piece in pieces(leaving):
            for key in piece:
                left[kinds[key[1] is not None]] += self._has_subscribed(key)
            if len(piece) == EVERY:
                yield
        refused: dict[Key, Refusal] = {}
        for piece in pieces(wanted):
            for key in piece:
                kind = kinds[key[1] is not None]
                if key == (WILDCARD, None) or self._has_subscribed(key):
                    continue  # `*` is at most one subscription, and most clients depend on it
                if left[kind] > 0:
                    left[kind] -= 1
                else:
                    refused[key] = room.refusal(kind)
            if len(piece) == EVERY:
                yield
        return refused

    def _has_subscribed(self, key: Key) -> bool:
        """Whether there is a subscription with this key, by name or as a wildcard."""
        return self._find(key) is not None or key[1] in self._wilds.get(key[0], {})

    def _counted(self, key: Key, step: int) -> None:
        """Count a subscription that came (`step` 1) or went (-1), here and in the budget of the stream."""
        self.count += step
        self._room.count(counted_as(key[1], on_demand=self.table.spec.on_demand), step)

    def plain_params(self, name: str) -> Params:
        """Return the params of a subscription to `name` that sends none (DESIGN 6.2)."""
        return self.settings.plain_params(self.params, name)

    def _find(self, key: Key) -> NameSubscription | None:
        return self._wants.get(key[0], {}).get(key)

    def _add(self, key: Key) -> NameSubscription:
        """Return the subscription with this key. Begin it if there is none."""
        want = self._find(key)
        if want is None:
            want = self._note(key)
            self._follow(want)
        return want

    def _adding(self, keys: Iterable[Key]) -> Steps[list[NameSubscription]]:
        """Begin many subscriptions at once, in steps. Return the new ones.

        A dictionary that grows is copied as a whole, which takes 10 ms for 200,000 entries. All dictionaries with one
        entry per subscription would grow at the same subscription. So each step adds to one or two of them only.
        """
        wants = [self._note(key) for key in keys if self._find(key) is None]
        try:
            yield
        finally:  # even if the caller abandons the work: `_drop` takes all of this back
            for want in wants:
                self._follow(want)
        return wants

    def _note(self, key: Key) -> NameSubscription:
        """Begin a subscription: remember it and count it."""
        name, params = key
        # DYN-13: a locator without params matches like a plain name.
        want = NameSubscription(key, params or self.plain_params(name), self.table.revision)
        self._wants.setdefault(name, {})[key] = want
        if name in self._asked_keys:
            self._asked_keys[name].update([*want.params])
        if not self.table.authoritative:
            self._open[want] = None
        self._counted(key, 1)
        return want

    def _follow(self, want: NameSubscription) -> None:
        """Register a new subscription with the index, and ask the upstream for it if this is a cache."""
        name = want.name
        self._interest.add(self, self.table.spec.url, name)
        self._lack(want)
        if self.complaint(name) is None:
            self._interest.demand.want(self.table.spec.url, name, want.params, self.stream)
        self._inherit(want)

    def _wildcards(self) -> Iterator[WildcardSubscription]:
        return (wild for wilds in self._wilds.values() for wild in wilds.values())

    def _covering(self, name: str) -> list[WildcardSubscription]:
        """Return the wildcards that this name is a member of (XTP-3)."""
        if not self._wilds:
            return []
        return [wild for each in wildcards(name) for wild in self._wilds.get(each, {}).values()]  # XTP-3

    def _over(self, key: Key) -> Iterator[WildcardSubscription]:
        """Yield the wildcards over this key's name that have the same params and form."""
        return (wild for wild in self._covering(key[0]) if wild.tag == key[1])

    def _inherit(self, want: NameSubscription) -> None:
        """Let a new subscription hold what a wildcard has already sent the client of this name.

        A subscription to an alias inherits nothing: the wildcard goes on sending the resource under its name.
        """
        wild = next((wild for wild in self._over(want.key) if wild.started), None)
        if wild is None or self.table.owner(want.name) is not None:
            return
        # The client holds the variant as of the wildcard's cursor, which may be older than the listing.
        held = self.leaving.get(want.key)
        if held is None:
            change = wild.listing.difference(wild.cursor, wild.params).transitions.get(want.name)
            held = change.before if change is not None else wild.listing.member(want.name, want.params)
            held = held if want.key not in self._declined else None
        self._hold(want, held)

    def _drop(self, want: NameSubscription) -> None:
        """End a subscription and undo all that `_note`, `_follow` and `_hold` did for it."""
        name = want.name
        del self._wants[name][want.key]
        if name in self._asked_keys:
            self._asked_keys[name].subtract([*want.params])
        self._counted(want.key, -1)
        if not self._wants[name]:
            del self._wants[name]
            self._asked_keys.pop(name, None)
            self._lose_interest(name)
        if self.complaint(name) is None:
            self._interest.demand.unwant(self.table.spec.url, name, want.params)
        for noted in (self._dirty, self._unknown, self._open):
            noted.pop(want, None)
        if next(self._over(want.key), None) is None:
            self.leaving.pop(want.key, None)  # otherwise its wildcard still owes the client the removal
        self._hold(want, None)
        self._interest.group(self, want, None)

    def _keys_of_all(self, name: str) -> Iterable[str]:
        """Return the params keys of all subscriptions to this name. Keep a count where there are many of them."""
        wants = self._wants.get(name, {})
        if len(wants) <= FEW:
            return {key for want in wants.values() for key in want.params}
        if name not in self._asked_keys:
            self._asked_keys[name] = Counter(key for want in wants.values() for key in want.params)
        return [key for key, count in self._asked_keys[name].items() if count]

    def _lose_interest(self, name: str) -> None:
        """Leave the index for this name if no subscription asks for it or holds it."""
        if name not in self._wants and name not in self._aliased:
            self._interest.remove(self, self.table.spec.url, name)

    def _hold(self, want: NameSubscription, variant: Variant | None) -> None:
        """Record that the client holds this variant, or nothing, by this subscription.

        Also move the subscription to the right group of the index, and to `_aliased` if the variant has another name.
        """
        held = want.held
        if variant is not None and (variant.constraint is not TRUE or want.group is not None):
            self._group(want, variant if variant.constraint is not TRUE else None)
        # The usual case: a new version of the same resource.
        if held is not None and variant is not None and held.name == variant.name:
            want.held = variant
            return
        if variant is not None:
            self._unknown.pop(want, None)
        else:
            self._lack(want)
        before = held.name if held is not None else want.name
        after = variant.name if variant is not None else want.name
        want.held = variant
        if before == after:
            return
        if before != want.name:
            del self._aliased[before][want]
            if not self._aliased[before]:
                del self._aliased[before]
                self._lose_interest(before)
        if after != want.name:
            self._aliased.setdefault(after, {})[want] = None
            self._interest.add(self, self.table.spec.url, after)

    def _lack(self, want: NameSubscription) -> None:
        """Group the subscription with those that hold nothing: any variant that comes may match it."""
        self._group(want, (self.table.spec.url, want.name))

    def _group(self, want: NameSubscription, group: Group | None) -> None:
        """Register the subscription's group with the index, except for hosts: a stream may have a million of those."""
        if not self.table.spec.on_demand:
            self._interest.group(self, want, group)

    def _holders(self, name: str) -> list[NameSubscription]:
        """Return the subscriptions by which the client holds the resource of this name."""
        own = (want for want in self._wants.get(name, {}).values() if want.held is not None and want.held.name == name)
        return [*own, *self._aliased.get(name, {})]

    def _add_wild(self, key: Key) -> WildcardSubscription:
        """Return the wildcard subscription with this key. Begin it if there is none."""
        name, tag = key
        wild = self._wilds.get(name, {}).get(tag)
        if wild is None:
            wild = WildcardSubscription(key, tag or self.plain_params(name), self.table.listing(name))
            self._wilds.setdefault(name, {})[tag] = wild
            self._interest.add_wild(self, self.table.spec.url, name)
            self._interest.demand.want(self.table.spec.url, name, wild.params, self.stream)
            self._counted(key, 1)
        return wild

    def _drop_wild(self, wild: WildcardSubscription) -> None:
        """End a wildcard subscription, and forget the removals and answers that only it owed the client."""
        del self._wilds[wild.name][wild.tag]
        self._counted((wild.name, wild.tag), -1)
        self._interest.demand.unwant(self.table.spec.url, wild.name, wild.params)
        wild.listing.unfollow(wild.cursor)
        if not self._wilds[wild.name]:
            del self._wilds[wild.name]
            self._interest.remove_wild(self, self.table.spec.url, wild.name)
            self.table.retire(wild.name)
        for key in [key for key in (*self._owed, *self.leaving) if key[1] == wild.tag and self._find(key) is None]:
            if next(self._over(key), None) is None:
                self._owed.pop(key, None)
                self.leaving.pop(key, None)
