"""Compare what the client holds with the store, and collect what it must be sent into a batch.

`collect` looks at each dirty name subscription and at each wildcard that is behind. For both it finds transitions from
the variant that the client holds to the variant that it should hold:

| client holds | store selects  | what happens                                                                         |
|--------------|----------------|--------------------------------------------------------------------------------------|
| nothing      | a variant      | `_deliver`: the variant goes into the batch                                          |
| a variant    | the same       | nothing, unless the client asked again (DLT-3)                                       |
| a variant    | another        | `_deliver`; if that has other constraints, the old one is withdrawn with it (DYN-24) |
| a variant    | nothing        | the variant moves to `leaving`                                                       |
| nothing      | nothing        | `_absent`: delta answers at once that there is nothing (DLT-4, DYN-11)               |
| either       | unknown        | nothing: a relay waits for its upstream, and the client keeps what it has (PRX-11)   |

A variant in `leaving` is not removed at once. It waits until the stream allows removals (make before break, ORD-2), and
`release` then puts the removal into a batch. If the resource comes back before that, the client never hears of it.

The end of the file answers questions of removals.py about references between the resources that the client holds.
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
ROUNDS = 3  # how often a full state looks again at what changed while it was collected
FOLLOWED = 5_000  # names that one client may hold of a type for their references to be followed


class CollectingSession(Session, ABC):
    """A session that compares its subscriptions with the store."""

    __slots__ = ()

    def foresee(self) -> Steps[None]:
        """Let the table compute, in steps, the snapshots and differences that `collect` will ask it for."""
        for wild in list(self._wildcards()):
            if not wild.started or wild.again or (wild.is_behind and not self.delta):
                yield from wild.listing.snapshotting(wild.params)
            if wild.started and wild.is_behind:
                yield from wild.listing.differencing(wild.cursor, wild.params)

    def collect(self) -> Steps[Batch]:
        """Return everything that the client must be sent now, in steps. Removals wait in `leaving`.

        What changes between two steps goes into the next response, with all else of its transaction. A full state can't
        leave anything out (SOT-4), so `_catch_up` looks at those changes too.
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
            # A removal for one subscription removes the variant for all. So release the others that wait for the same
            # removal: a variant that is replaced for some subscriptions may only go away for others.
            said = [key for key, held in self.leaving.items() if batch.takes(held, located=key[1] is not None)]
            batch.join(self.release(said))
        # A cache may hold variants that overlap, so their order in the response matters (DYN-45).
        if batch.located and not self.table.authoritative:
            yield from self._repeat_overtaken(batch)
            batch.located = dict.fromkeys(self._oldest_first(batch.located))
        if self._unknown:
            yield from self._forget_unknown()
        return batch

    def _part(self, batch: Batch) -> Steps[None]:
        """Withdraw the replaced variants, unless the client holds them by another subscription.

        This runs after all subscriptions were looked at, since only then `_held` tells what each of them holds.
        """
        parted, self._parted = self._parted, []
        for piece in pieces(parted):
            for held, located in piece:
                self._let_go(batch, held, located=located)
            if len(piece) == EVERY and not self._full_state:
                yield
        if self._full_state:  # a full state shows one moment, the last look: no pause from here on
            finish(batch.reconcile())
        else:
            yield from batch.reconcile()

    def _collect_wants(self, batch: Batch) -> Steps[None]:
        """Look at each dirty name subscription, in steps if there are many."""
        dirty, self._dirty = self._dirty, {}
        if len(dirty) <= EVERY:
            for want in dirty:
                self._collect_want(want, batch)
            return
        for piece in pieces(dirty):
            for want in piece:
                if want not in self._dirty:  # otherwise it changed since this began, and the next response has it
                    self._collect_want(want, batch)
            yield

    def _catch_up(self, batch: Batch) -> Steps[None]:
        """Look again at the names that changed meanwhile, the last time without a pause."""
        for _ in range(ROUNDS):
            self._drop_outdated_errors(batch)
            yield from self._collect_wants(batch)
        self._drop_outdated_errors(batch)
        finish(self._collect_wants(batch))

    def _drop_outdated_errors(self, batch: Batch) -> None:
        """Drop the errors about names that changed since: the next look makes them anew, if they are still true."""
        names = {want.name for want in self._dirty}
        for error in [error for error in batch.errors if error.about.name in names]:
            del batch.errors[error]

    def _repeat_overtaken(self, batch: Batch) -> Steps[None]:
        """Send again the variants that a client would otherwise replace by one that is for another locator (DYN-45).

        Variants of a cache may overlap, since it learns for one parameter set after the other that a variant is gone. A
        client that subscribes with several parameter sets uses, for each, the matching variant that it received last
        (PRX-24).
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
                if len(piece) == EVERY and not self._full_state:  # a full state shows one moment: no pause
                    yield

    def _located(self, name: str) -> Iterator[tuple[Variant, Params]]:
        """Yield the variants that the client holds of this name by locators, each with the locator's params."""
        for want in self._wants.get(name, {}).values():
            if want.held is not None and want.located and want.key not in self.leaving:
                yield want.held, want.params
        for wild in self._covering(name):
            here = wild.started and wild.tag is not None and self._speaks_for(wild, name)
            found = wild.listing.member(name, wild.params) if here else None
            if found is not None:
                yield found, wild.params

    def _oldest_first(self, located: Iterable[Variant]) -> list[Variant]:
        """Return the variants so that the newest comes last: of overlapping ones a client uses that (DYN-45).

        A cache lists the newest variant first. Variants that the cache no longer lists come before all others: the
        client keeps them only until something comes in their place (PRX-38).
        """
        variants = [*located]
        names = {each.name for each in variants} if len(variants) > 1 else ()
        known = [found for found in map(self.table.get, names) if found is not None]
        ages = {id(each): age for found in known for age, each in enumerate(found.variants)}
        return sorted(variants, key=lambda variant: -ages.get(id(variant), len(ages)))

    def _collect_want(self, want: NameSubscription, batch: Batch) -> None:
        """Find what one name subscription should hold, and put the transition into the batch."""
        self._warn(want, batch)
        after = self._selected(want)
        if after is None:
            if self._knows(want) or self._is_given_up(want):
                self._miss(want, batch)
            return  # otherwise the upstream has not answered: the client keeps what it has
        if not self._serves(want):
            return
        # DLT-13: the client came back with this version, so it need not be sent.
        if want.claimed is not None and not want.answered and self._is_claimed(want, after):
            self._hold(want, after)
            return
        self.leaving.pop(want.key, None)  # it may have gone and come back before the client was told
        before = want.held
        self._hold(want, after)
        if not want.answered or not alike(before, after):
            want.answered, want.absence = True, None
            self._deliver(batch, before, after, located=want.located)

    def _selected(self, want: NameSubscription) -> Variant | None:
        """Return the variant that this subscription should hold by the store.

        A client that subscribes by a locator may be a cache, and serve the answer to others (TP2, Caching).
        So it gets the variant with constraints that say for whom else it is the answer.
        """
        select = self.table.proven if want.located else self.table.select
        return select(want.name, want.params)

    def _warn(self, want: NameSubscription | WildcardSubscription, batch: Batch) -> None:
        """Tell the client once, as a TP3 error, of a problem with getting this resource (PRX-22, PRX-11).

        The error has the upstream's own message. It is no answer: the client keeps what it holds.
        """
        trouble = self._trouble(want)
        if trouble is not None and trouble != want.trouble:
            if trouble.refused and isinstance(want, NameSubscription) and want.held is not None:
                self._warn_holder(want, trouble, batch)
            else:
                batch.errors[_error(want.name, trouble)] = None
        want.trouble = trouble

    def _warn_holder(self, want: NameSubscription, trouble: ResourceProblem, batch: Batch) -> None:
        """Tell a client that holds the resource that the relay has no room for it any more (PRX-35).

        A full state repeats the resources that stay, and a resource must not be in `resources` and in `resource_errors`
        at once (ERR-2), so there the client is told nothing. In all other cases the resource is sent once more when
        there is room again, even unchanged: that ends the error (ERR-7).
        """
        if not self._full_state:
            batch.errors[_error(want.name, trouble)] = None
            want.answered = False

    def _is_claimed(self, want: NameSubscription, found: Variant) -> bool:
        """Whether the client came back with this variant in its current version, so that it is not sent (DLT-13)."""
        claimed, want.claimed = want.claimed or {}, None
        if claimed.get(found.name) != found.version or self.table.spec.always_resend or found.ttl is not None:
            return False  # TTL-2: nobody knows how much of its TTL is left
        want.answered = True
        self._suppressed(1)
        return True

    @abstractmethod
    def _suppressed(self, resources: int) -> None:
        """Count resources that were not sent because the client has them."""

    def _is_given_up(self, want: NameSubscription) -> bool:
        """Whether to answer that there is nothing although the upstream, or a provider, has not answered (VHD-19).

        This is for clients that hold nothing and have waited long enough. PRX-35: it is also for resources that a relay
        has no room for.
        """
        if want.answered or want.held is not None:
            return False
        trouble = self.table.trouble(want.name, want.params)
        return trouble is not None and (trouble.refused or (trouble.unresolved and self._takes_unresolved(want)))

    def _takes_unresolved(self, want: NameSubscription) -> bool:
        """Whether the client must be answered with an empty resource for a host that there is none for (VHD-7).

        Envoy's on-demand request ends neither by a removal nor by an error. A locator needs none of this: TP2's
        negative answer ends it.
        """
        return self.delta and self.table.spec.on_demand and not want.located

    def _forget_unknown(self) -> Steps[None]:
        """Drop the oldest subscriptions to names that match nothing, above a limit (VHD-25), in steps.

        Envoy never unsubscribes from what it requested on demand (V14), and anybody can make it request any name. So
        all requests are answered, but only so many are remembered.
        """
        excess = len(self._unknown) - self.settings.limits.unresolved
        for oldest in pieces([*islice(self._unknown, max(0, excess))]):
            self._forget([want.name for want in oldest])
            for want in oldest:
                self._interest.demand.forgot(self.table.spec.url, want.name, want.params)
                self._drop(want)
            if len(oldest) == EVERY:
                yield

    def _forget(self, names: Collection[str]) -> None:
        """Mark names as forgotten. If one of them is created, `recall` subscribes to it again."""
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
        """Handle a subscription that matches nothing: let go of what the client holds, or answer negatively."""
        if want.held is not None:
            self.leaving[want.key] = want.held
            self._lack(want)
        elif not want.located:
            if not want.answered:
                self._absent(batch, want)
        elif not want.answered or want.absence not in (None, self._negative(want.name, want.params)):
            # DESIGN 6.4: the client may cache a negative answer with its constraints. So it gets a new one when the
            # params keys that these constraints pin have changed.
            want.absence = self._negative(want.name, want.params)
            self._absent(batch, want)
        want.answered = True

    def _absent(self, batch: Batch, want: NameSubscription) -> None:
        """Answer at once that there is nothing (DLT-4, DYN-11). The subscription stays."""
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
        if wrong is not None:  # XTP-9: the client sent a name that can't exist
            batch.errors[ResourceError(_about(want), INVALID_ARGUMENT, wrong)] = None
        elif (told == "all" or (want.located and not self.delta)) and want.trouble is None:
            label = self.table.spec.url.rpartition("/")[2]
            error = ResourceError(_about(want), NOT_FOUND, f"{label} {want.name!r} does not exist for these parameters")
            batch.errors[error] = None  # ERR-1

    def _unresolve(self, want: NameSubscription, batch: Batch) -> None:
        """Answer with an empty resource for this host, unless the client came back with that answer (VHD-7)."""
        self._unknown[want] = None
        claimed, want.claimed = want.claimed or {}, None
        if claimed.get(want.name, "").startswith(ABSENT):
            self._suppressed(1)  # the client has the answer from an earlier stream
        else:
            batch.unresolved[want.name] = None

    def _explain(self, want: NameSubscription, held: Variant, batch: Batch) -> None:
        """Say in SotW, by a TP3 error, that a resource went away, to clients that read these errors (SOT-7).

        SotW has no removals. DYN-25: where a cache can't tell for whom there is nothing, the error repeats the
        constraints that the client was sent.
        """
        want.absence = self._negative(want.name, want.params) if want.located else TRUE
        if want.located and want.absence == TRUE and not self.table.authoritative:
            want.absence = held.constraint
        self._absent(batch, want)

    def _collect_wild(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """Collect what a wildcard has new: all members at its start, and then the difference since its cursor.

        The difference is computed once for all sessions with the same cursor and class of params.
        """
        self._warn(wild, batch)  # ERR-6
        if not wild.started:
            if not self._lists(wild):  # a relay does not know the whole listing yet
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
        """Whether the wildcard sends this member: not if the client subscribed to it by name, too (WLD-7).

        VHD-11: nor if the client unsubscribed from this virtual host of the base set.
        """
        key = name, wild.tag
        return self._find(key) is None and key not in self._declined

    def _collect_member(self, wild: WildcardSubscription, change: Transition, batch: Batch) -> None:
        """Put one member's transition into the batch, or into `leaving`."""
        key = change.name, wild.tag
        # A removal that still waits counts as what the client holds.
        before = self.leaving.pop(key, change.before)
        if change.after is None:
            if before is not None:
                self.leaving[key] = before
        elif not alike(before, change.after):
            self._deliver(batch, before, change.after, located=wild.tag is not None)

    def _start(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """Send all members, and follow the listing from this revision on."""
        wild.started = True
        wild.cursor = wild.listing.advance(wild.cursor)
        yield from self._collect_members(wild, batch)

    def _collect_members(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """Collect all members of a wildcard that is new, or that the client asked for again, in steps."""
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
        """Answer that a glob collection is empty, by its own URL (XTP-5).

        TP1, Glob: if no resources are present, the URL of the collection is among the removed names.
        """
        if wild.tag is None:
            batch.removed[wild.name] = None
        else:
            batch.withdrawn[Absence(wild.name, wild.listing.negative(wild.params))] = None

    def _start_member(self, wild: WildcardSubscription, variant: Variant, batch: Batch) -> None:
        """Deliver one member of a new wildcard. Delta overrides this for clients that come back (DLT-13)."""
        self._deliver(batch, None, variant, located=wild.tag is not None)

    def _collect_owed(self, name: str, tag: Params | None, batch: Batch) -> None:
        """Send one member of a wildcard once more, or tell the client that it is not there (WLD-6).

        A member is owed an answer when the client unsubscribed its name and the wildcard still covers it, or after
        `resend`.
        """
        wild = next(self._over((name, tag)), None)
        if wild is None or (name, tag) in self.leaving:
            return
        current = wild.listing.member(name, wild.params)
        if current is not None:
            self._deliver(batch, None, current, located=tag is not None)
        elif not self.table.spec.on_demand:  # a wildcard never sent the client what it requested on demand
            self._depart(name, wild, batch)  # WLD-6

    def _depart(self, name: str, wild: WildcardSubscription, batch: Batch) -> None:
        """Tell the client that this name is not, or no longer, a member of the wildcard."""
        if wild.tag is None:
            batch.removed[name] = None
        else:
            batch.withdrawn[Absence(name, self._negative(name, wild.params), never=True)] = None

    def _negative(self, name: str, params: Params) -> Constraint:
        """Return the constraints of a negative answer: for which params there is nothing (DESIGN 6.4).

        A name without any variant has none for anybody. A cache knows only what was asked, so its constraints also pin
        the keys of all params with which this client subscribed to the name.
        """
        known = self.table.get(name)
        beside = self._keys_of_all(name) if not self.table.authoritative else ()  # a store knows its keys
        return known.negative(params, beside) if known is not None else TRUE

    def _deliver(self, batch: Batch, before: Variant | None, after: Variant, *, located: bool) -> None:
        """Put a variant into the batch, and note the variant that it replaces.

        A client replaces a resource with the same name by itself, and a located one with the same name and constraints.
        For any other replaced variant the response must contain the withdrawal, too (DYN-24).
        """
        if not located:
            batch.plain[after.name] = after
        elif self.table.spec.on_demand:
            batch.locate(after)
        else:
            batch.located[after] = None
        replaced = before is not None and (before.identity != after.identity if located else before.name != after.name)
        if before is not None and replaced:
            # DYN-24: the old variant goes in the response that brings the new one. For a plain name this happens only
            # if an alias moved to another resource (DYN-27).
            self._parted.append((before, located))

    def _let_go(self, batch: Batch, held: Variant, *, located: bool) -> None:
        """Put the removal of a variant into the batch, unless the client holds it by another subscription.

        Two aliases of one resource are two subscriptions, but the client holds one resource.
        """
        others = self._held(held.name, located=located)
        if not located and next(others, None) is None:
            batch.removed[held.name] = None
        elif located and all(other.identity != held.identity for other in others):
            batch.withdrawn[Absence(held.name, held.constraint)] = None  # DYN-25: exactly as it was sent

    def _held(self, name: str, *, located: bool) -> Iterator[Variant]:
        """Yield what the client holds, or is about to be sent, of this name in this form, by any subscription."""
        for want in self._holders(name):
            if want.held is not None and want.located == located and want.key not in self.leaving:
                yield want.held
        for wild in self._covering(name):
            here = (wild.tag is not None) == located and (name, wild.tag) not in self._declined
            found = wild.listing.member(name, wild.params) if here else None
            if found is not None:
                yield found

    def _answer_refused(self) -> Steps[Batch]:
        """Return a batch that answers the subscriptions past a limit (DYN-46), in steps. Nothing of them is kept."""
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
        """Yield all that the client holds, or is about to be sent."""
        for wants in self._wants.values():
            yield from (want.held for want in wants.values() if want.held is not None)
        for wild in self._wildcards():
            yield from wild.listing.snapshot(wild.params).variants

    # -- what refers to what (core.serve.removals)

    @property
    def has_wildcards(self) -> bool:
        return bool(self._wilds)

    def provides(self, name: str) -> bool:
        """Whether the client was sent a resource of this name, or for `*` the members of its wildcard."""
        if name == WILDCARD:
            return any(wild.started for wild in self._wildcards())
        return next(self._having(name), None) is not None

    def references_from(self, name: str) -> Iterator[Reference]:
        """Yield the references of what the client holds by this name, or by this wildcard."""
        if name == WILDCARD:
            return iter(self.references())
        return (reference for variant in self._having(name) for reference in variant.references)

    def _having(self, name: str) -> Iterator[Variant]:
        """Yield the variants that the client holds by this name or alias, or through a wildcard."""
        for want in (*self._wants.get(name, {}).values(), *self._aliased.get(name, {})):
            if want.held is not None:
                yield want.held
        for wild in self._covering(name):
            found = wild.listing.member(name, wild.params)
            if found is not None:
                yield found

    def references(self) -> set[Reference]:
        """Return the references of all that the client is to keep.

        A client that subscribes to very many names is a relay, and orders the removals for its own clients itself. The
        references of its named resources are left out.
        """
        found: set[Reference] = set()
        for wild in self._wildcards():
            found.update(wild.listing.references(wild.params))
        if len(self._wants) <= FOLLOWED:
            found.update(reference for variant in self._kept() for reference in variant.references)
        return found

    def _kept(self) -> Iterator[Variant]:
        """Yield the variants that the client holds by name, without those that are leaving."""
        for wants in self._wants.values():
            for key, want in wants.items():
                if want.held is not None and key not in self.leaving:
                    yield want.held

    def needs(self, reference: Reference) -> bool:
        """Whether a resource that the client is to keep refers to this one.

        For virtual hosts any one in the store counts, whether or not this client holds it.
        """
        if not self.table.referring.get(reference):
            return False
        if self.table.spec.on_demand or any(reference in variant.references for variant in self._kept()):
            return True
        return any(reference in wild.listing.references(wild.params) for wild in self._wildcards())

    def refers_to(self, reference: Reference) -> bool:
        """Whether a resource that the client holds refers to this one, even if it is leaving.

        The client uses a leaving resource until it is told of the removal.
        """
        return self.needs(reference) or any(reference in held.references for held in self.leaving.values())

    def has(self, variant: Variant, *, located: bool) -> bool:
        """Whether the client is to have this variant."""
        return any(alike(held, variant) for held in self._held(variant.name, located=located))

    def release(self, keys: Iterable[Key] | None = None) -> Batch:
        """Return the removals of these leaving variants, or of all of them, as a batch.

        DYN-26: a removal has the form of the subscription: a name, or a name with constraints.
        """
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
    """Return the TP3 error that tells a client of a problem with getting a resource."""
    return ResourceError(Absence(name, trouble.constraint, never=True), trouble.code, trouble.message)


def _about(want: NameSubscription) -> Absence:
    """Return the name and constraints of the negative answer to this subscription."""
    return Absence(want.name, want.absence if want.absence is not None else TRUE, never=True)
