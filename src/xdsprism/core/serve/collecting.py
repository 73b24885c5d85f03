"""From the store to a batch: what a client must be told, by what it wants and what it holds.

Names and wildcards are cut from the same cloth in `collect`: each yields transitions from what the client holds to what
it should hold, and a transition either delivers a variant or lets one go.

What is let go is not removed at once. It waits in `leaving` until the stream says that removals may go out (make
before break, ORD-2), and is forgotten if it comes back before that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from ..model.constraint_index import FirstMatch
from ..model.constraints import TRUE, Constraint
from ..model.events import WILDCARD, Absence, Key, ResourceError
from ..model.facts import Forgotten
from ..model.steps import EVERY, Steps, cut, finish, pieces
from ..model.types import Params, Reference, ResourceProblem, Variant
from ..model.views import Transition, alike
from .batch import Batch
from .forgotten_names import ForgottenNames
from .refusals import ABSENT, INVALID_ARGUMENT, answer_refused
from .session import Session
from .subscriptions import NameSubscription, WildcardSubscription

NOT_FOUND = 5
ROUNDS = 3  # looks at what changes while full state is collected
FOLLOWED = 5_000  # names that one client has of a type, and whose references are followed


class CollectingSession(Session, ABC):
    """A session that looks into the store."""

    __slots__ = ()

    def foresee(self) -> Steps[None]:
        """Have the table find in steps what `collect` is going to ask of it for wildcards."""
        for wild in list(self._wildcards()):
            if not wild.started or wild.again or (wild.is_behind and not self.delta):
                yield from wild.listing.snapshotting(wild.params)
            if wild.started and wild.is_behind:
                yield from wild.listing.differencing(wild.cursor, wild.params)

    def collect(self) -> Steps[Batch]:
        """Everything the client must be told now, except what only goes away (that waits in `leaving`).

        What changes between two steps goes into the next response, with all else of its transaction. Full state can't
        leave anything out (SOT-4), so there it is looked at once more.
        """
        batch = Batch()
        owed, self._owed = self._owed, {}
        yield from self._collect_wants(batch)
        for wild in list(self._wildcards()):
            yield from self._collect_wild(wild, batch)
        for keys in pieces(owed) if owed else ():
            for name, tag in keys:
                self._collect_owed(name, tag, batch)
            if len(keys) == EVERY:
                yield
        if self._full_state and self._dirty:
            yield from self._catch_up(batch)
        if self._parted or batch.removed or batch.withdrawn:
            yield from self._part(batch)
        if self.leaving and (batch.removed or batch.withdrawn):
            # Said for one subscription, it is said for all: what is replaced for some may only go away for others.
            said = [key for key, held in self.leaving.items() if batch.takes(held, located=key[1] is not None)]
            batch.join(self.release(said))
        if batch.located and not self.table.authoritative:
            yield from self._repeat_overtaken(batch)
            batch.located = dict.fromkeys(self._oldest_first(batch.located))
        if self._unknown:
            yield from self._forget_unknown()
        return batch

    def _part(self, batch: Batch) -> Steps[None]:
        """Let go of what was replaced, now that it is known what the others hold."""
        parted, self._parted = self._parted, []
        for piece in pieces(parted):
            for held, located in piece:
                self._let_go(batch, held, located=located)
            if len(piece) == EVERY and not self._full_state:
                yield
        if self._full_state:  # which is of one moment, from the last look on
            finish(batch.reconcile())
        else:
            yield from batch.reconcile()

    def _collect_wants(self, batch: Batch) -> Steps[None]:
        dirty, self._dirty = self._dirty, {}
        if len(dirty) <= EVERY:
            for want in dirty:
                self._collect_want(want, batch)
            return
        for piece in pieces(dirty):
            for want in piece:
                if want not in self._dirty:  # else it has changed since this began
                    self._collect_want(want, batch)
            yield

    def _catch_up(self, batch: Batch) -> Steps[None]:
        """Look again at what changed in the meantime, the last time without a pause."""
        for _ in range(ROUNDS):
            names = {want.name for want in self._dirty}
            for error in [error for error in batch.errors if error.about.name in names]:
                del batch.errors[error]
            yield from self._collect_wants(batch)
        finish(self._collect_wants(batch))

    def _repeat_overtaken(self, batch: Batch) -> Steps[None]:
        """DYN-45: say again what the client has by one subscription and would replace by what comes for another.

        Variants of a cache may overlap: it learns for one parameter set after the other that one is gone. A client
        that asks with several of them uses, for each, the one received last that matches (PRX-24).
        """
        coming: dict[str, list[Variant]] = {}
        for variant in batch.located if not self.table.spec.on_demand else ():
            coming.setdefault(variant.name, []).append(variant)
        for name, variants in coming.items():
            first = FirstMatch([each.constraint for each in variants])
            for piece in cut(self._located(name)):
                for held, params in piece:
                    if held not in batch.located and first.find(params) is not None:
                        batch.located[held] = None
                if len(piece) == EVERY and not self._full_state:  # which is of one moment, from the last look on
                    yield

    def _located(self, name: str) -> Iterator[tuple[Variant, Params]]:
        """What the client has of this name by locators, with the params of each."""
        for want in self._wants.get(name, {}).values():
            if want.held is not None and want.located and want.key not in self.leaving:
                yield want.held, want.params
        for wild in self._covering(name):
            here = wild.started and wild.tag is not None and self._speaks_for(wild, name)
            found = wild.listing.member(name, wild.params) if here else None
            if found is not None:
                yield found, wild.params

    def _oldest_first(self, located: Iterable[Variant]) -> list[Variant]:
        """DYN-45: of variants that overlap, a client uses the one received last. A cache has the newest first.

        What it does not have any more, a client keeps only until something comes in its place (PRX-38).
        """
        variants = [*located]
        names = {each.name for each in variants} if len(variants) > 1 else ()
        known = [found for found in map(self.table.get, names) if found is not None]
        ages = {id(each): age for found in known for age, each in enumerate(found.variants)}
        return sorted(variants, key=lambda variant: -ages.get(id(variant), len(ages)))

    def _collect_want(self, want: NameSubscription, batch: Batch) -> None:
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

    def _selected(self, want: NameSubscription) -> Variant | None:
        select = self.table.proven if want.located else self.table.select
        return select(want.name, want.params)

    def _warn(self, want: NameSubscription | WildcardSubscription, batch: Batch) -> None:
        """PRX-22, PRX-11: once, in the server's words; it is no answer, and what the client has stays as it is."""
        trouble = self._trouble(want)
        if trouble is not None and trouble != want.trouble:
            if trouble.refused and isinstance(want, NameSubscription) and want.held is not None:
                self._warn_holder(want, trouble, batch)
            else:
                batch.errors[_error(want.name, trouble)] = None
        want.trouble = trouble

    def _warn_holder(self, want: NameSubscription, trouble: ResourceProblem, batch: Batch) -> None:
        """PRX-35: there is no room any more for what the client has.

        A full state repeats what is to stay, and nothing may be both in it and wrong (ERR-2): so nothing is said. All
        others are sent the resource when there is room again, be it the same: that ends the error (ERR-7).
        """
        if not self._full_state:
            batch.errors[_error(want.name, trouble)] = None
            want.answered = False

    def _is_claimed(self, want: NameSubscription, found: Variant) -> bool:
        """DLT-13: what the client has in its current version is not sent again."""
        claimed, want.claimed = want.claimed or {}, None
        if claimed.get(found.name) != found.version or self.table.spec.always_resend or found.ttl is not None:
            return False  # TTL-2: nobody knows for how long it is still good
        want.answered = True
        self._suppressed(1)
        return True

    @abstractmethod
    def _suppressed(self, resources: int) -> None:
        """Something was not sent, as the client has it."""

    def _is_given_up(self, want: NameSubscription) -> bool:
        """VHD-19: who made a client wait for long enough has it told that there is nothing, for the time being.

        PRX-35: so is whoever has nothing, of what a relay has no room for.
        """
        if want.answered or want.held is not None:
            return False
        trouble = self.table.trouble(want.name, want.params)
        return trouble is not None and (trouble.refused or (trouble.unresolved and self._takes_unresolved(want)))

    def _takes_unresolved(self, want: NameSubscription) -> bool:
        """VHD-7: to whom removals and errors say nothing about a host. TP2's negative answers do."""
        return self.delta and self.table.spec.on_demand and not want.located

    def _forget_unknown(self) -> Steps[None]:
        """VHD-25: Envoy never unsubscribes what it got on demand (V14). All is answered, but not all is remembered."""
        excess = len(self._unknown) - self.settings.limits.unresolved
        for oldest in pieces([*islice(self._unknown, max(0, excess))]):
            self._forget([want.name for want in oldest])
            for want in oldest:
                self._interest.demand.forgot(self.table.spec.url, want.name, want.params)
                self._drop(want)
            if len(oldest) == EVERY:
                yield

    def _forget(self, names: Collection[str]) -> None:
        """If one of these is created, it is sent all the same (`recall`)."""
        if not names:
            return
        spec = self.table.spec
        if self._forgotten is None:
            self._forgotten = ForgottenNames()
            self._interest.add_forgetful(self, spec.url)
        for name in names:
            self._forgotten.add(name, is_host=spec.on_demand)
        self._facts.append(Forgotten(self.stream, spec.url, len(names)))

    def _miss(self, want: NameSubscription, batch: Batch) -> None:
        if want.held is not None:
            self.leaving[want.key] = want.held
            self._lack(want)
        elif not want.located:
            if not want.answered:
                self._absent(batch, want)
        elif not want.answered or want.absence not in (None, self._negative(want.name, want.params)):
            # DESIGN 6.4: a negative answer can be cached, so it is corrected when the keys it pins change.
            want.absence = self._negative(want.name, want.params)
            self._absent(batch, want)
        want.answered = True

    def _absent(self, batch: Batch, want: NameSubscription) -> None:
        """DLT-4, DYN-11: say at once that there is nothing; the subscription stays."""
        if self.delta and want.located:
            batch.withdrawn[_about(want)] = None
        elif self._takes_unresolved(want):
            self._unresolve(want, batch)
        elif self.delta:
            self._unknown[want] = None
            batch.removed[want.name] = None
        told = self.settings.resource_errors
        if told == "none":
            return
        wrong = self.complaint(want.name)
        if wrong is not None:  # XTP-9: it is the client who is wrong
            batch.errors[ResourceError(_about(want), INVALID_ARGUMENT, wrong)] = None
        elif (told == "all" or (want.located and not self.delta)) and want.trouble is None:
            label = self.table.spec.url.rpartition("/")[2]
            error = ResourceError(_about(want), NOT_FOUND, f"{label} {want.name!r} does not exist for these parameters")
            batch.errors[error] = None  # ERR-1

    def _unresolve(self, want: NameSubscription, batch: Batch) -> None:
        self._unknown[want] = None
        claimed, want.claimed = want.claimed or {}, None
        if claimed.get(want.name, "").startswith(ABSENT):
            self._suppressed(1)  # it was told on an earlier stream
        else:
            batch.unresolved[want.name] = None

    def _explain(self, want: NameSubscription, held: Variant, batch: Batch) -> None:
        """SotW has no removals; to whoever reads TP3 the error says that a resource went away (SOT-7).

        DYN-25: where a cache can't say more than the name, the error is about exactly what was sent.
        """
        want.absence = self._negative(want.name, want.params) if want.located else TRUE
        if want.located and want.absence == TRUE and not self.table.authoritative:
            want.absence = held.constraint
        self._absent(batch, want)

    def _collect_wild(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """One number says what the client holds; the difference since then is shared by all that are as far."""
        self._warn(wild, batch)  # ERR-6
        if not wild.started:
            if not self._lists(wild):
                return
            yield from self._start(wild, batch)
        elif wild.is_behind:
            transitions = wild.listing.difference(wild.cursor, wild.params).transitions
            wild.cursor = wild.listing.advance(wild.cursor)
            for piece in pieces(transitions.values()):
                for change in piece:
                    if self._speaks_for(wild, change.name):
                        self._collect_member(wild, change, batch)
                if len(piece) == EVERY:
                    yield
        if wild.again:
            wild.again = False
            yield from self._collect_members(wild, batch)

    def _speaks_for(self, wild: WildcardSubscription, name: str) -> bool:
        """WLD-7: of a member that has an explicit subscription that one speaks; VHD-11: of one that left, none."""
        key = name, wild.tag
        return self._find(key) is None and key not in self._declined

    def _collect_member(self, wild: WildcardSubscription, change: Transition, batch: Batch) -> None:
        key = change.name, wild.tag
        before = self.leaving.pop(key, change.before)
        if change.after is None:
            if before is not None:
                self.leaving[key] = before
        elif not alike(before, change.after):
            self._deliver(batch, before, change.after, located=wild.tag is not None)

    def _start(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        wild.started = True
        wild.cursor = wild.listing.advance(wild.cursor)
        yield from self._collect_members(wild, batch)

    def _collect_members(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        members = wild.listing.snapshot(wild.params).variants
        for piece in pieces(members):
            for variant in piece:
                if self._speaks_for(wild, variant.name):
                    self._start_member(wild, variant, batch)
            if len(piece) == EVERY:
                yield
        if not members and wild.name != WILDCARD:
            self._say_empty(wild, batch)

    def _say_empty(self, wild: WildcardSubscription, batch: Batch) -> None:
        """TP1, Glob: if no resources are present, the URL of the collection is among those removed (XTP-5)."""
        if wild.tag is None:
            batch.removed[wild.name] = None
        else:
            batch.withdrawn[Absence(wild.name, wild.listing.negative(wild.params))] = None

    def _start_member(self, wild: WildcardSubscription, variant: Variant, batch: Batch) -> None:
        self._deliver(batch, None, variant, located=wild.tag is not None)

    def _collect_owed(self, name: str, tag: Params | None, batch: Batch) -> None:
        wild = next(self._over((name, tag)), None)
        if wild is None or (name, tag) in self.leaving:
            return
        current = wild.listing.member(name, wild.params)
        if current is not None:
            self._deliver(batch, None, current, located=tag is not None)
        elif not self.table.spec.on_demand:  # of what is got on demand no wildcard ever spoke
            self._depart(name, wild, batch)  # WLD-6

    def _depart(self, name: str, wild: WildcardSubscription, batch: Batch) -> None:
        """Say that a name is not, or no longer, one of the wildcard's."""
        if wild.tag is None:
            batch.removed[name] = None
        else:
            batch.withdrawn[Absence(name, self._negative(name, wild.params), never=True)] = None

    def _negative(self, name: str, params: Params) -> Constraint:
        """DESIGN 6.4: constraints that say for whom there is nothing; with no variants at all, for anybody."""
        known = self.table.get(name)
        beside = self._keys_of_all(name) if not self.table.authoritative else ()  # which a store knows by itself
        return known.negative(params, beside) if known is not None else TRUE

    def _deliver(self, batch: Batch, before: Variant | None, after: Variant, *, located: bool) -> None:
        if not located:
            batch.plain[after.name] = after
        elif self.table.spec.on_demand:
            batch.locate(after)
        else:
            batch.located[after] = None
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
        for wild in self._covering(name):
            here = (wild.tag is not None) == located and (name, wild.tag) not in self._declined
            found = wild.listing.member(name, wild.params) if here else None
            if found is not None:
                yield found

    def _answer_refused(self) -> Steps[Batch]:
        """DYN-46: what is said of subscriptions past a limit; nothing is kept of them."""
        refused, self._refused = self._refused, None
        batch = Batch()
        for piece in pieces(refused.take().items() if refused is not None else ()):
            part = answer_refused(
                dict(piece),
                self.table.spec,
                delta=self.delta,
                errors=self.settings.resource_errors != "none",
                held=lambda key: self._held(key[0], located=key[1] is not None),
            )
            batch.join(part)
            if len(piece) == EVERY:
                yield
        return batch

    def holdings(self) -> Iterator[Variant]:
        """All that the client has, or is about to be given."""
        for wants in self._wants.values():
            yield from (want.held for want in wants.values() if want.held is not None)
        for wild in self._wildcards():
            yield from wild.listing.snapshot(wild.params).variants

    # -- what refers to what (core.serve.removals)

    @property
    def has_wildcards(self) -> bool:
        return bool(self._wilds)

    def provides(self, name: str) -> bool:
        """Whether the client has, or was sent, what is asked for by this name."""
        if name == WILDCARD:
            return any(wild.started for wild in self._wildcards())
        return next(self._having(name), None) is not None

    def references_from(self, name: str) -> Iterator[Reference]:
        """What the client needs for what it has by this name, or by this wildcard."""
        if name == WILDCARD:
            return iter(self.references())
        return (reference for variant in self._having(name) for reference in variant.references)

    def _having(self, name: str) -> Iterator[Variant]:
        for want in (*self._wants.get(name, {}).values(), *self._aliased.get(name, {})):
            if want.held is not None:
                yield want.held
        for wild in self._covering(name):
            found = wild.listing.member(name, wild.params)
            if found is not None:
                yield found

    def references(self) -> set[Reference]:
        """What the client needs for all that it is to keep.

        Who asks for very many by name is a relay, and sees to the order of its own clients: those are left out.
        """
        found: set[Reference] = set()
        for wild in self._wildcards():
            found.update(wild.listing.references(wild.params))
        if len(self._wants) <= FOLLOWED:
            found.update(reference for variant in self._kept() for reference in variant.references)
        return found

    def _kept(self) -> Iterator[Variant]:
        """What the client has by name, without what is leaving."""
        for wants in self._wants.values():
            for key, want in wants.items():
                if want.held is not None and key not in self.leaving:
                    yield want.held

    def needs(self, reference: Reference) -> bool:
        """Whether something that the client is to keep refers to this; of virtual hosts, whether any there is does."""
        if not self.table.referring.get(reference):
            return False
        if self.table.spec.on_demand or any(reference in variant.references for variant in self._kept()):
            return True
        return any(reference in wild.listing.references(wild.params) for wild in self._wildcards())

    def refers_to(self, reference: Reference) -> bool:
        """The same, of what is leaving as well: the client has it until it is told."""
        return self.needs(reference) or any(reference in held.references for held in self.leaving.values())

    def has(self, variant: Variant, *, located: bool) -> bool:
        """Whether the client is to have this variant."""
        return any(alike(held, variant) for held in self._held(variant.name, located=located))

    def release(self, keys: Iterable[Key] | None = None) -> Batch:
        """Let go of what is leaving: the removals themselves (DYN-26: in the form of the subscription)."""
        batch = Batch()
        leaving = {key: self.leaving.pop(key) for key in (list(self.leaving) if keys is None else keys)}
        for key, held in leaving.items():
            want = self._find(key)
            if want is not None:
                self._hold(want, None)
                want.answered = True
                if not self.delta:
                    self._explain(want, held, batch)
        for (_, tag), held in leaving.items():
            self._let_go(batch, held, located=tag is not None)
        return batch


def _error(name: str, trouble: ResourceProblem) -> ResourceError:
    return ResourceError(Absence(name, trouble.constraint, never=True), trouble.code, trouble.message)


def _about(want: NameSubscription) -> Absence:
    return Absence(want.name, want.absence if want.absence is not None else TRUE, never=True)
