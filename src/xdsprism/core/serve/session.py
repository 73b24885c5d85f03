"""What one stream subscribed to of one type, and what its client holds by each subscription.

A session has two kinds of subscription. A `NameSubscription` is to one name; it remembers which variant the client
holds. A `WildcardSubscription` is to all names, or to a glob collection, which is a wildcard over some names (TP1). It
remembers one number, the revision of the table up to which the client was told; what the client holds follows from it.

collecting.py decides what the client is told, and answered_session.py what an ACK or NACK means. SotW and delta differ
in how a request is read and in how a batch becomes responses: see sotw.py and delta.py.
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
    """The part that SotW and delta share."""

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
        self.params = params  # of plain subscriptions, by the node
        self.leaving: dict[Key, Variant] = {}
        self.news: tuple[Variant, ...] = ()  # what the last poll found to be new or changed (ORD-11)
        self.stream = stream
        self._facts = facts
        self._full_state = table.spec.full_state and not self.delta  # SOT-4: each response holds everything
        self._interest = interest
        self._wants: dict[str, dict[Key, NameSubscription]] = {}  # by name
        self._asked_keys: dict[str, Counter[str]] = {}  # of names that are wanted with many params: keys of these
        self.count = 0  # of subscriptions
        # By the name of what they hold, where that is not what they asked for: an alias, or a host (VHD-3).
        self._aliased: dict[str, dict[NameSubscription, None]] = {}
        self._wilds: dict[str, dict[Params | None, WildcardSubscription]] = {}  # by name: `*`, or a glob collection
        self._declined: frozenset[Key] = frozenset()  # VHD-11: members of a wildcard that the client unsubscribed
        self._open: dict[NameSubscription, None] = {}  # of a cache: not answered when this was last looked at
        self._dirty: dict[NameSubscription, None] = {}
        self._owed: dict[Key, None] = {}  # members of a wildcard that are due an answer of their own
        self._parted: list[tuple[Variant, bool]] = []  # replaced for one subscription, by whether it is a locator
        # VHD-25, of delta by plain names: what there is none for, the oldest first; and what of it was forgotten.
        self._unknown: dict[NameSubscription, None] = {}
        self._forgotten: ForgottenNames | None = None
        self._room = room  # what the stream counts, over all its sessions
        self._refused: Refusals | None = None  # subscriptions past a limit that are to be answered
        self._due = False  # the request must be answered even if there is nothing to say
        self._returns = False  # the client has something from an earlier stream

    # -- the verbs that both kinds share

    def notify(self, name: str) -> None:
        """A name that is subscribed here changed. Wildcards need no telling: they compare numbers."""
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
        """Whether the client waits for this name, and it is not among the subscriptions any more (VHD-25)."""
        return self._forgotten is not None and self._forgotten.awaits(name) and name not in self._wants

    def wants(self, name: str, params: Params) -> bool:
        """Whether there is a subscription to this, with these params."""
        named = any(want.params == params for want in self._wants.get(name, {}).values())
        return named or any(wild.params == params for wild in self._wilds.get(name, {}).values())

    def rerouted(self, config: str) -> Steps[None]:  # noqa: ARG002 # for virtual hosts
        """The route configuration of virtual hosts that are wanted here changed."""
        yield from ()

    def recall(self, change: Change) -> bool:
        """Whether this changed something that was forgotten here, and so is wanted again (VHD-25)."""
        names = self._forgotten.concerned(change) if self._forgotten is not None else ()
        keys: list[Key] = [(name, None) for name in names]
        recalled = [self._add(key) for key in keys if self._find(key) is None]
        for want in recalled:
            want.answered = True  # the client was told that there is nothing
            self._unknown[want] = self._dirty[want] = None
        return bool(recalled)

    def is_judging(self, names: Iterable[str]) -> bool:
        """Whether the client has yet to be sent what changed of these names, or to answer what it was sent."""
        if any(wild.started and wild.is_behind for wild in self._wildcards()):
            return True
        wants = (want for name in names for want in (*self._wants.get(name, {}).values(), *self._aliased.get(name, ())))
        return any(want in self._dirty for want in wants)

    @property
    def pending(self) -> bool:
        return bool(self._dirty or self._owed or self._due or self._refused or self._behind)

    def close(self) -> Steps[None]:
        names = [*self._wants]
        names.reverse()
        while names:  # the list is freed piece by piece too
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
    def backlog(self) -> int:
        """About how many subscriptions and resources the next poll looks at."""
        found = len(self._dirty) + len(self._owed)
        if self._refused is not None:
            found += len(self._refused)
        for wilds in self._wilds.values():
            for wild in wilds.values():
                if wild.is_behind or not wild.started or wild.again:
                    found += len(wild.listing)
        return found

    def resend(self, name: str) -> None:
        """Send again what the client holds under this name although it did not change (ORD-11)."""
        for want in self._holders(name):
            want.answered = False
            self._dirty[want] = None
        for wild in self._covering(name):
            if self._find((name, wild.tag)) is None and wild.listing.member(name, wild.params) is not None:
                self._owed[name, wild.tag] = None

    # -- subscriptions

    @property
    def subscriptions(self) -> list[Key]:
        return [*self.keys()]

    def keys(self) -> Iterator[Key]:
        """The same one by one: there can be a million, and `count` says how many there are."""
        yield from ((wild.name, wild.tag) for wild in self._wildcards())
        for wants in self._wants.values():
            yield from wants

    @property
    def _behind(self) -> bool:
        wilds = self._wildcards() if self._wilds else ()  # this is asked with every poll
        return any(wild.is_behind or not wild.started or wild.again for wild in wilds)

    @property
    def _waits(self) -> bool:
        """Something that was asked for is not known yet, neither what it is nor that it is not (PRX-11)."""
        if self.table.authoritative:
            return False
        if any(not wild.started and not self._lists(wild) for wild in self._wildcards()):
            return True
        answered: list[NameSubscription] = []
        waiting = next((want for want in self._open if self._is_waiting(want, answered)), None)
        for want in answered:  # seen once: what is looked at each time is what is still open
            del self._open[want]
        return waiting is not None

    def _is_waiting(self, want: NameSubscription, answered: list[NameSubscription]) -> bool:
        if want.answered:
            answered.append(want)
            return False
        late = self.table.is_late(want.name, want.params, claims=self._returns)
        return not (self._knows(want) or late or self._is_refused(want)) and self._trouble(want) is None

    def _lists(self, wild: WildcardSubscription) -> bool:
        """PRX-25: what a cache has from disk may be older than what a client comes back with.

        So it is for those who have nothing yet. The others keep what they have until a server has spoken.
        """
        return self.table.lists(wild.params, wild.name, sure=self._returns)

    def complaint(self, name: str) -> str | None:
        """XTP-9: why there can't be anything of this name, whoever is asked."""
        return complaint(name, self.table.spec.url, globs=self.delta) if not self.table.spec.on_demand else None

    def _knows(self, want: NameSubscription) -> bool:
        if not self.table.authoritative and self.complaint(want.name) is not None:
            return True
        return self.table.knows(want.name, want.params, sure=self._returns) and self._serves(want)

    def _trouble(self, want: NameSubscription | WildcardSubscription) -> ResourceProblem | None:
        """What is wrong with getting it, if the client is one to be told: others would take it for an answer.

        PRX-35: that there is no room for it is an answer, as where it is past a limit (DYN-46).
        """
        told = self.settings.resource_errors
        if told == "none":
            return None
        trouble = self.table.trouble(want.name, want.params)
        return trouble if told == "all" or want.located or (trouble is not None and trouble.refused) else None

    def _is_refused(self, want: NameSubscription) -> bool:
        """PRX-35: whether there is no room for it, whoever is told why."""
        trouble = self.table.trouble(want.name, want.params)
        return trouble is not None and trouble.refused

    def _serves(self, want: NameSubscription) -> bool:
        """PRX-17: what must not be cached is not for those who come later."""
        return want.answered or self.table.serves(want.name, want.params, want.since)

    def _admitted(self, keys: tuple[Key, ...], refused: dict[Key, Refusal]) -> tuple[Key, ...]:
        """Those that can be subscribed, each in one spelling; the others are noted in `refused` (DYN-46)."""
        found = refused_among(keys, self.table.spec.url, self.settings.limits)
        if found:
            refused.update(found)
            keys = tuple(key for key in keys if key not in found)
        return read_keys(keys, self.table.spec)

    def _admitting(self, keys: tuple[Key, ...], refused: dict[Key, Refusal]) -> Steps[tuple[Key, ...]]:
        """What `_admitted` does, in steps."""
        admitted: list[Key] = []
        for piece in pieces(keys):
            admitted += self._admitted(tuple(piece), refused)
            if len(piece) == EVERY:
                yield
        return tuple(admitted)

    def _refuse_keys(self, refused: Mapping[Key, Refusal]) -> None:
        """These are to be answered, each by itself, and not remembered (DYN-46)."""
        if refused:
            note_refused(self.table.spec.url, Counter(refused.values()), self._room, self.stream, self._facts)
            self._refused = self._refused or Refusals()
            self._refused.add(refused)

    def _lacking_room(self, wanted: Collection[Key], leaving: Collection[Key]) -> Steps[dict[Key, Refusal]]:
        """Those that the stream has no room for (DYN-46), when what is `leaving` has left; asked where it is short."""
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
                    continue  # there is one wildcard at most, and that is what most clients live by
                if left[kind] > 0:
                    left[kind] -= 1
                else:
                    refused[key] = room.refusal(kind)
            if len(piece) == EVERY:
                yield
        return refused

    def _has_subscribed(self, key: Key) -> bool:
        return self._find(key) is not None or key[1] in self._wilds.get(key[0], {})

    def _counted(self, key: Key, step: int) -> None:
        self.count += step
        self._room.count(counted_as(key[1], on_demand=self.table.spec.on_demand), step)

    def plain_params(self, name: str) -> Params:
        """What a subscription has that sends no params (DESIGN 6.2)."""
        return self.settings.plain_params(self.params, name)

    def _find(self, key: Key) -> NameSubscription | None:
        return self._wants.get(key[0], {}).get(key)

    def _add(self, key: Key) -> NameSubscription:
        want = self._find(key)
        if want is None:
            want = self._note(key)
            self._follow(want)
        return want

    def _adding(self, keys: Iterable[Key]) -> Steps[list[NameSubscription]]:
        """What `_add` does, for a piece of very many, in steps; returns those that are new.

        A dictionary that grows is copied as a whole, which takes 10 ms for 200,000 entries. All dictionaries with an
        entry for each subscription grow at the same one. So each step adds to one or two of them.
        """
        wants = [self._note(key) for key in keys if self._find(key) is None]
        try:
            yield
        finally:  # also where the work is abandoned: `_drop` takes back all of this
            for want in wants:
                self._follow(want)
        return wants

    def _note(self, key: Key) -> NameSubscription:
        """Begin a subscription: remember it, and count it."""
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
        """Hear of all that changes for a new subscription, and have it got from elsewhere, if that is to be."""
        name = want.name
        self._interest.add(self, self.table.spec.url, name)
        self._lack(want)
        if self.complaint(name) is None:
            self._interest.demand.want(self.table.spec.url, name, want.params, self.stream)
        self._inherit(want)

    def _wildcards(self) -> Iterator[WildcardSubscription]:
        return (wild for wilds in self._wilds.values() for wild in wilds.values())

    def _covering(self, name: str) -> list[WildcardSubscription]:
        """The wildcards that a name belongs to."""
        if not self._wilds:
            return []
        return [wild for each in wildcards(name) for wild in self._wilds.get(each, {}).values()]  # XTP-3

    def _over(self, key: Key) -> Iterator[WildcardSubscription]:
        """Of these, those that were asked for in the same way."""
        return (wild for wild in self._covering(key[0]) if wild.tag == key[1])

    def _inherit(self, want: NameSubscription) -> None:
        """A name that its wildcard already delivered: the client holds what the wildcard gave it.

        By an alias it gets the same, but of that the wildcard goes on speaking, under the name.
        """
        wild = next((wild for wild in self._over(want.key) if wild.started), None)
        if wild is None or self.table.owner(want.name) is not None:
            return
        held = self.leaving.get(want.key)
        if held is None:
            change = wild.listing.difference(wild.cursor, wild.params).transitions.get(want.name)
            held = change.before if change is not None else wild.listing.member(want.name, want.params)
            held = held if want.key not in self._declined else None
        self._hold(want, held)

    def _drop(self, want: NameSubscription) -> None:
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
        """The keys of all params with which a name is wanted here; counted where these are many."""
        wants = self._wants.get(name, {})
        if len(wants) <= FEW:
            return {key for want in wants.values() for key in want.params}
        if name not in self._asked_keys:
            self._asked_keys[name] = Counter(key for want in wants.values() for key in want.params)
        return [key for key, count in self._asked_keys[name].items() if count]

    def _lose_interest(self, name: str) -> None:
        if name not in self._wants and name not in self._aliased:
            self._interest.remove(self, self.table.spec.url, name)

    def _hold(self, want: NameSubscription, variant: Variant | None) -> None:
        """The client has this now by this subscription."""
        held = want.held
        if variant is not None and (variant.constraint is not TRUE or want.group is not None):
            self._group(want, variant if variant.constraint is not TRUE else None)
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
        """The client has nothing by this, or will not have it for long: whatever comes may be for it."""
        self._group(want, (self.table.spec.url, want.name))

    def _group(self, want: NameSubscription, group: Group | None) -> None:
        if not self.table.spec.on_demand:  # of hosts there may be a million
            self._interest.group(self, want, group)

    def _holders(self, name: str) -> list[NameSubscription]:
        """The subscriptions by which the client has what is called this."""
        own = (want for want in self._wants.get(name, {}).values() if want.held is not None and want.held.name == name)
        return [*own, *self._aliased.get(name, {})]

    def _add_wild(self, key: Key) -> WildcardSubscription:
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
