"""What one stream wants of one type, and what it holds of it.

A session holds two kinds of subscription. A `Want` is one name; it remembers which variant the client holds. A `Wild`
is a wildcard; it remembers one number, the revision of the table up to which the client has been told, since what the
client holds follows from that. Both are cut from the same cloth in `collect`: each yields transitions from what the
client holds to what it should hold, and a transition either delivers a variant or lets one go.

What is let go is not removed at once. It waits in `leaving` until the stream says that removals may go out (make
before break, ORD-2), and is forgotten if it comes back before that.

What became of the responses is in answers.py. SotW and delta differ in how a request is read and how a batch is put
on the wire; see sotw.py and delta.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from .batch import Batch
from .constraints import TRUE, Constraint
from .events import WILDCARD, Absence, Key, ResourceError
from .facts import Fact, Forgotten
from .interest import Interest
from .settings import Settings
from .table import Table, Transition, alike
from .types import Params, Variant, Wrong
from .wants import Want, Wild

NOT_FOUND = 5
ABSENT = "absent."  # how the version of what is not there begins


class Session:
    """The part that SotW and delta share."""

    delta: bool

    def __init__(
        self, table: Table, interest: Interest, settings: Settings, params: Params, stream: int, facts: list[Fact]
    ) -> None:
        self.table = table
        table.sessions += 1
        self.settings = settings
        self.params = params  # of plain subscriptions
        self.leaving: dict[Key, Variant] = {}
        self.news: tuple[Variant, ...] = ()  # what the last poll found to be new or changed (ORD-11)
        self.stream = stream
        self._facts = facts
        self._interest = interest
        self._wants: dict[str, dict[Key, Want]] = {}  # by name
        self.count = 0  # of subscriptions
        self.locators = 0  # of these
        # By the name of what they hold, where that is not what they asked for: an alias, or a host (VHD-3).
        self._aliased: dict[str, dict[Want, None]] = {}
        self._wilds: dict[Params | None, Wild] = {}
        self._dirty: dict[Want, None] = {}
        self._owed: dict[Key, None] = {}  # members of a wildcard that are due an answer of their own
        self._parted: list[tuple[Variant, bool]] = []  # replaced for one subscription, by whether it is a locator
        self._unknown: dict[Want, None] = {}  # VHD-7: hosts that there are none for, the oldest first
        self._due = False  # the request must be answered even if there is nothing to say
        self._returns = False  # the client has something from an earlier stream

    # -- the verbs that both kinds share

    def notify(self, name: str) -> None:
        """A name that is subscribed here changed. Wildcards need no telling: they compare numbers."""
        self._dirty.update(dict.fromkeys(self._wants.get(name, {}).values()))
        self._dirty.update(self._aliased.get(name, {}))

    def rerouted(self, config: str) -> None:
        """The route configuration of virtual hosts that are wanted here changed."""

    @property
    def pending(self) -> bool:
        return bool(self._dirty or self._owed or self._due or self._behind)

    def close(self) -> None:
        self.table.sessions -= 1
        for wants in list(self._wants.values()):
            for want in list(wants.values()):
                self._drop(want)
        for wild in list(self._wilds.values()):
            self._drop_wild(wild)

    def resend(self, name: str) -> None:
        """Send again what the client holds under this name although it did not change (ORD-11)."""
        for want in self._holders(name):
            want.answered = False
            self._dirty[want] = None
        for tag, wild in self._wilds.items():
            if self._find((name, tag)) is None and self.table.member(name, wild.params) is not None:
                self._owed[name, tag] = None

    @property
    def _full_state(self) -> bool:
        """SOT-4: whether each response holds everything."""
        return self.table.spec.full_state and not self.delta

    # -- subscriptions

    @property
    def subscriptions(self) -> list[Key]:
        return [*self.keys()]

    def keys(self) -> Iterator[Key]:
        """The same one by one: there can be a million, and `count` says how many there are."""
        yield from ((WILDCARD, tag) for tag in self._wilds)
        for wants in self._wants.values():
            yield from wants

    @property
    def _behind(self) -> bool:
        wilds = self._wilds.values()
        return any(wild.cursor != self.table.horizon or not wild.started or wild.again for wild in wilds)

    @property
    def _waits(self) -> bool:
        """Something that was asked for is not known yet, neither what it is nor that it is not (PRX-11)."""
        if self.table.authoritative:
            return False
        if any(not wild.started and not self._lists(wild) for wild in self._wilds.values()):
            return True
        wants = (want for wants in self._wants.values() for want in wants.values())
        lacking = (want for want in wants if not want.answered and not self._knows(want))
        late = self.table.is_late
        return any(self._trouble(want) is None and not late(want.name, claims=self._returns) for want in lacking)

    def _lists(self, wild: Wild) -> bool:
        """PRX-25: what a cache has from disk may be older than what a client comes back with.

        So it is for those who have nothing yet. The others keep what they have until a server has spoken.
        """
        return self.table.lists(wild.params, sure=self._returns)

    def _knows(self, want: Want) -> bool:
        return self.table.knows(want.name, want.params, sure=self._returns) and self._serves(want)

    def _trouble(self, want: Want) -> Wrong | None:
        """What is wrong with getting it, if the client is one to be told: others would take it for an answer."""
        told = {"all": True, "none": False, "locators": want.located}[self.settings.resource_errors]
        return self.table.trouble(want.name, want.params) if told else None

    def _serves(self, want: Want) -> bool:
        """PRX-17: what must not be cached is not for those who come later."""
        return want.answered or self.table.serves(want.name, want.params, want.since)

    def _counted(self, key: Key, step: int) -> None:
        self.count += step
        self.locators += step if key[1] is not None else 0

    def _find(self, key: Key) -> Want | None:
        return self._wants.get(key[0], {}).get(key)

    def _add(self, key: Key) -> Want:
        want = self._find(key)
        if want is None:
            name, params = key
            # DYN-13: a locator without params matches like a plain name.
            want = Want(key, params or self.params, self.table.revision)
            self._wants.setdefault(name, {})[key] = want
            self._counted(key, 1)
            self._interest.add(self, self.table.spec.url, name)
            self._interest.demand.want(self.table.spec.url, name, want.params)
            self._inherit(want)
        return want

    def _inherit(self, want: Want) -> None:
        """A name that its wildcard already delivered: the client holds what the wildcard gave it.

        By an alias it gets the same, but of that the wildcard goes on speaking, under the name.
        """
        wild = self._wilds.get(want.key[1])
        if wild is None or not wild.started or self.table.owner(want.name) is not None:
            return
        held = self.leaving.get(want.key)
        if held is None:
            change = self.table.difference(wild.cursor, wild.params).get(want.name)
            held = change.before if change is not None else self.table.member(want.name, want.params)
        self._hold(want, held)

    def _drop(self, want: Want) -> None:
        name = want.name
        del self._wants[name][want.key]
        self._counted(want.key, -1)
        if not self._wants[name]:
            del self._wants[name]
            self._lose_interest(name)
        self._interest.demand.unwant(self.table.spec.url, name, want.params)
        self._dirty.pop(want, None)
        self._unknown.pop(want, None)
        if want.key[1] not in self._wilds:
            self.leaving.pop(want.key, None)  # otherwise its wildcard still owes the client the removal
        self._hold(want, None)

    def _lose_interest(self, name: str) -> None:
        if name not in self._wants and name not in self._aliased:
            self._interest.remove(self, self.table.spec.url, name)

    def _hold(self, want: Want, variant: Variant | None) -> None:
        """The client has this now by this subscription."""
        if variant is not None:
            self._unknown.pop(want, None)
        before = want.held.name if want.held is not None else want.name
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

    def _holders(self, name: str) -> list[Want]:
        """The subscriptions by which the client has what is called this."""
        own = (want for want in self._wants.get(name, {}).values() if want.held is not None and want.held.name == name)
        return [*own, *self._aliased.get(name, {})]

    def _add_wild(self, tag: Params | None) -> Wild:
        wild = self._wilds.get(tag)
        if wild is None:
            wild = self._wilds[tag] = Wild(tag, tag or self.params, self.table.follow())
            self._interest.add_wild(self, self.table.spec.url)
            self._interest.demand.want(self.table.spec.url, WILDCARD, wild.params)
            self._counted((WILDCARD, tag), 1)
        return wild

    def _drop_wild(self, wild: Wild) -> None:
        del self._wilds[wild.tag]
        self._counted((WILDCARD, wild.tag), -1)
        self._interest.demand.unwant(self.table.spec.url, WILDCARD, wild.params)
        self.table.unfollow(wild.cursor)
        if not self._wilds:
            self._interest.remove_wild(self, self.table.spec.url)
        for key in [key for key in (*self._owed, *self.leaving) if key[1] == wild.tag and self._find(key) is None]:
            self._owed.pop(key, None)
            self.leaving.pop(key, None)

    # -- from the store to a batch

    def collect(self) -> Batch:
        """Everything the client must be told now, except what only goes away (that waits in `leaving`)."""
        batch = Batch()
        dirty, self._dirty = self._dirty, {}
        owed, self._owed = self._owed, {}
        for want in dirty:
            self._collect_want(want, batch)
        for wild in self._wilds.values():
            self._collect_wild(wild, batch)
        for name, tag in owed:
            self._collect_owed(name, tag, batch)
        parted, self._parted = self._parted, []
        for held, located in parted:  # now that it is known what the others hold
            self._let_go(batch, held, located=located)
        batch.reconcile()
        if self.leaving and (batch.removed or batch.withdrawn):
            # Said for one subscription, it is said for all: what is replaced for some may only go away for others.
            said = [key for key, held in self.leaving.items() if batch.takes(held, located=key[1] is not None)]
            batch.join(self.release(said))
        self._forget_unknown()
        return batch

    def _collect_want(self, want: Want, batch: Batch) -> None:
        self._warn(want, batch)
        after = self._selected(want)
        if after is None:
            if self._knows(want) or self._is_given_up(want):
                self._miss(want, batch)
            return  # else an answer is on its way, and until then the client keeps what it has
        if not self._serves(want):
            return
        if want.claimed is not None and not want.answered and self._is_claimed(want, after):
            self._hold(want, after)
            return
        self.leaving.pop(want.key, None)  # it may have gone and come back before anybody was told
        before = want.held
        self._hold(want, after)
        if not want.answered or not alike(before, after):
            want.answered, want.absence = True, None
            self._deliver(batch, before, after, located=want.located)

    def _selected(self, want: Want) -> Variant | None:
        select = self.table.proven if want.located else self.table.select
        return select(want.name, want.params)

    def _warn(self, want: Want, batch: Batch) -> None:
        """PRX-22, PRX-11: once, in the server's words; it is no answer, and what the client has stays as it is."""
        trouble = self._trouble(want)
        if trouble is not None and trouble != want.trouble:
            about = Absence(want.name, trouble.constraint, never=True)
            batch.errors[ResourceError(about, trouble.code, trouble.message)] = None
        want.trouble = trouble

    def _is_claimed(self, want: Want, found: Variant) -> bool:
        """DLT-13: what the client has in its current version is not sent again."""
        claimed, want.claimed = want.claimed or {}, None
        if claimed.get(found.name) != found.version or self.table.spec.always_resend or found.ttl is not None:
            return False  # TTL-2: nobody knows for how long it is still good
        want.answered = True
        self._suppressed(1)
        return True

    def _suppressed(self, resources: int) -> None:
        """Something was not sent, as the client has it."""
        raise NotImplementedError

    def _is_given_up(self, want: Want) -> bool:
        """VHD-19: who made a client wait for long enough has it told that there is nothing, for the time being."""
        if want.answered or want.held is not None or not self._takes_unresolved(want):
            return False
        trouble = self.table.trouble(want.name, want.params)
        return trouble is not None and trouble.unresolved

    def _takes_unresolved(self, want: Want) -> bool:
        """VHD-7: to whom removals and errors say nothing about a host. TP2's negative answers do."""
        return self.delta and self.table.spec.on_demand and not want.located

    def _forget_unknown(self) -> None:
        """VHD-25: Envoy never unsubscribes a host (V14). All are answered, but not all are remembered."""
        excess = len(self._unknown) - self.settings.limits.unresolved
        for want in [*islice(self._unknown, max(0, excess))]:
            self._drop(want)
        if excess > 0:
            self._facts.append(Forgotten(self.stream, self.table.spec.url, excess))

    def _miss(self, want: Want, batch: Batch) -> None:
        if want.held is not None:
            self.leaving[want.key] = want.held
        elif not want.located:
            if not want.answered:
                self._absent(batch, want)
        elif not want.answered or want.absence not in (None, self._negative(want.name, want.params)):
            # DESIGN 6.4: a negative answer can be cached, so it is corrected when the keys it pins change.
            want.absence = self._negative(want.name, want.params)
            self._absent(batch, want)
        want.answered = True

    def _absent(self, batch: Batch, want: Want) -> None:
        """DLT-4, DYN-11: say at once that there is nothing; the subscription stays."""
        about = Absence(want.name, want.absence if want.absence is not None else TRUE, never=True)
        if self.delta and want.located:
            batch.withdrawn[about] = None
        elif self._takes_unresolved(want):
            self._unresolve(want, batch)
        elif self.delta:
            batch.removed[want.name] = None
        told = {"all": True, "none": False, "locators": want.located and not self.delta}
        if told[self.settings.resource_errors] and want.trouble is None:
            label = self.table.spec.url.rpartition("/")[2]
            error = ResourceError(about, NOT_FOUND, f"{label} {want.name!r} does not exist for these parameters")
            batch.errors[error] = None  # ERR-1

    def _unresolve(self, want: Want, batch: Batch) -> None:
        self._unknown[want] = None
        claimed, want.claimed = want.claimed or {}, None
        if claimed.get(want.name, "").startswith(ABSENT):
            self._suppressed(1)  # it was told on an earlier stream
        else:
            batch.unresolved[want.name] = None

    def _explain(self, want: Want, batch: Batch) -> None:
        """SotW has no removals; to whoever reads TP3 the error says that a resource went away (SOT-7)."""
        want.absence = self._negative(want.name, want.params) if want.located else TRUE
        self._absent(batch, want)

    def _collect_wild(self, wild: Wild, batch: Batch) -> None:
        """One number says what the client holds; the difference since then is shared by all that are as far."""
        if not wild.started:
            if not self._lists(wild):
                return
            self._start(wild, batch)
        if wild.cursor != self.table.horizon:
            for change in self.table.difference(wild.cursor, wild.params).values():
                if self._find((change.name, wild.tag)) is None:
                    self._collect_member(wild, change, batch)
            wild.cursor = self.table.advance(wild.cursor)
        if wild.again:
            wild.again = False
            self._collect_members(wild, batch)

    def _collect_member(self, wild: Wild, change: Transition, batch: Batch) -> None:
        """WLD-7: a member that has an explicit subscription is not for here, since that one speaks for it."""
        key = change.name, wild.tag
        before = self.leaving.pop(key, change.before)
        if change.after is None:
            if before is not None:
                self.leaving[key] = before
        elif not alike(before, change.after):
            self._deliver(batch, before, change.after, located=wild.tag is not None)

    def _start(self, wild: Wild, batch: Batch) -> None:
        wild.started = True
        wild.cursor = self.table.advance(wild.cursor)
        self._collect_members(wild, batch)

    def _collect_members(self, wild: Wild, batch: Batch) -> None:
        for variant in self.table.snapshot(wild.params).variants:
            if self._find((variant.name, wild.tag)) is None:
                self._start_member(wild, variant, batch)

    def _start_member(self, wild: Wild, variant: Variant, batch: Batch) -> None:
        self._deliver(batch, None, variant, located=wild.tag is not None)

    def _collect_owed(self, name: str, tag: Params | None, batch: Batch) -> None:
        wild = self._wilds.get(tag)
        if wild is None or (name, tag) in self.leaving:
            return
        current = self.table.member(name, wild.params)
        if current is not None:
            self._deliver(batch, None, current, located=tag is not None)
        elif not self.table.spec.on_demand:  # of what is got on demand no wildcard ever spoke
            self._depart(name, wild, batch)  # WLD-6

    def _depart(self, name: str, wild: Wild, batch: Batch) -> None:
        """Say that a name is not, or no longer, one of the wildcard's."""
        if wild.tag is None:
            batch.removed[name] = None
        else:
            batch.withdrawn[Absence(name, self._negative(name, wild.params), never=True)] = None

    def _negative(self, name: str, params: Params) -> Constraint:
        """DESIGN 6.4: constraints that say for whom there is nothing; with no variants at all, for anybody."""
        known = self.table.get(name)
        return known.negative(params) if known is not None else TRUE

    def _deliver(self, batch: Batch, before: Variant | None, after: Variant, *, located: bool) -> None:
        if located:
            batch.located[after] = None
        else:
            batch.plain[after.name] = after
        replaced = before is not None and (before.identity != after.identity if located else before.name != after.name)
        if before is not None and replaced:
            # DYN-24: old variant out, new one in, same response. Of a plain name only where an alias moved (DYN-27).
            self._parted.append((before, located))

    def _let_go(self, batch: Batch, held: Variant, *, located: bool) -> None:
        """One subscription lets go of this; the client too, unless it has it by another (two aliases, say)."""
        others = self._held(held.name, located=located)
        if not located and next(others, None) is None:
            batch.removed[held.name] = None
        elif located and all(other.identity != held.identity for other in others):
            batch.withdrawn[Absence(held.name, held.constraint)] = None  # DYN-25: exactly as it was sent

    def _held(self, name: str, *, located: bool) -> Iterator[Variant]:
        """What the client has, or is about to be given, of this name in this form, by whichever subscription."""
        for want in self._holders(name):
            if want.held is not None and want.located == located and want.key not in self.leaving:
                yield want.held
        for wild in self._wilds.values():
            found = self.table.member(name, wild.params) if (wild.tag is not None) == located else None
            if found is not None:
                yield found

    def holdings(self) -> Iterator[Variant]:
        """All that the client has, or is about to be given."""
        for wants in self._wants.values():
            yield from (want.held for want in wants.values() if want.held is not None)
        for wild in self._wilds.values():
            yield from self.table.snapshot(wild.params).variants

    def _has(self, variant: Variant, *, located: bool) -> bool:
        """Whether this is (to our knowledge) what the client should have."""
        return any(alike(held, variant) for held in self._held(variant.name, located=located))

    def release(self, keys: Iterable[Key] | None = None) -> Batch:
        """Let go of what is leaving: the removals themselves (DYN-26: in the form of the subscription)."""
        batch = Batch()
        leaving = {key: self.leaving.pop(key) for key in (list(self.leaving) if keys is None else keys)}
        for key in leaving:
            want = self._find(key)
            if want is not None:
                self._hold(want, None)
                want.answered = True
                if not self.delta:
                    self._explain(want, batch)
        for (_, tag), held in leaving.items():
            self._let_go(batch, held, located=tag is not None)
        return batch
