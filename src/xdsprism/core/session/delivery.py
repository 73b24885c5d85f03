"""Put what a client must be told into a batch: a variant, a removal, a negative answer or an error.

The form of the subscription decides the form of the answer (DYN-26): a plain name is answered by name, and a locator by
name and constraints. How SotW and delta answer that there is nothing:

| subscription            | delta                                   | SotW                                   |
|-------------------------|-----------------------------------------|----------------------------------------|
| plain name              | the name in removed_resources (DLT-4)   | nothing                                |
| locator                 | a negative answer (TP2, DYN-11)         | an error (TP3), if the client reads it |
| host on demand (VHDS)   | a resource without contents (VHD-7)     | nothing                                |
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.constraints import TRUE, Constraint
from ..model.events import Absence, Key, ResourceError
from ..model.steps import EVERY, Steps, finish, pieces
from ..model.types import Params, ResourceProblem, Variant
from ..model.variants import pins
from ..policy.grant import PERMISSION_DENIED
from .batch import Batch
from .client_state import ClientState
from .context import SessionContext
from .refusals import ABSENT, INVALID_ARGUMENT
from .subscription import NameSubscription, WildcardSubscription
from .ttl import Ttl
from .type_rules import TypeRules
from .verdicts import Verdicts

NOT_FOUND = 5


class Delivery:
    """What one client is told, and how."""

    __slots__ = (
        "_client",
        "_context",
        "_rules",
        "_ttl",
        "_verdicts",
    )

    def __init__(
        self, context: SessionContext, client: ClientState, verdicts: Verdicts, ttl: Ttl, rules: TypeRules
    ) -> None:
        self._context = context
        self._client = client
        self._verdicts = verdicts
        self._ttl = ttl
        self._rules = rules

    # -- a variant

    def deliver(self, batch: Batch, before: Variant | None, after: Variant, *, located: bool) -> None:
        """Put a variant into the batch, and note the variant that it replaces.

        A client replaces a resource with the same name by itself, and a located one with the same name and constraints.
        For any other replaced variant the response must contain the withdrawal, too (DYN-24).
        """
        if not located:
            batch.plain[after.name] = after
        else:
            self._rules.deliver_located(batch, after)
        replaced = before is not None and (before.identity != after.identity if located else before.name != after.name)
        if before is not None and replaced:
            # DYN-24: the old variant goes in the response that brings the new one. For a plain name this happens only
            # if an alias moved to another resource (DYN-27).
            batch.replaced.append((before, located))

    def withdraw_replaced(self, batch: Batch) -> Steps[None]:
        """Withdraw the replaced variants, unless the client holds them by another subscription.

        This runs after all subscriptions were looked at, since only then it is known what each of them holds.
        """
        if not (batch.replaced or batch.removed or batch.withdrawn):
            return
        replaced, batch.replaced = batch.replaced, []
        full_state = self._context.full_state
        for piece in pieces(replaced):
            for held, located in piece:
                self._let_go(batch, held, located=located)
            if len(piece) == EVERY and not full_state:
                yield
        if full_state:  # a full state shows one moment, the last look: no pause from here on
            finish(batch.reconcile())
        else:
            yield from batch.reconcile()

    # -- a removal

    def release(self, keys: Iterable[Key] | None = None) -> Batch:
        """Return the removals of these leaving variants, or of all of them, as a batch.

        DYN-26: a removal has the form of the subscription: a name, or a name with constraints.
        """
        batch = Batch()
        gone = self._client.holdings.release(keys)
        if not self._context.delta:
            for key, held in gone.items():
                want = self._client.subscriptions.find(key)
                if want is not None:
                    self._explain(want, held, batch)
        for (_, tag), held in gone.items():
            self._let_go(batch, held, located=tag is not None)
        for (_, tag), held in gone.items():
            self._ttl.forget(held, located=tag is not None)
        if not self._context.delta:
            self._verdicts.forget_removed()
        return batch

    def _let_go(self, batch: Batch, held: Variant, *, located: bool) -> None:
        """Put the removal of a variant into the batch, unless the client holds it by another subscription.

        Two aliases of one resource are two subscriptions, but the client holds one resource.
        """
        others = self._client.view.held(held.name, located=located)
        if not located and next(others, None) is None:
            batch.removed[held.name] = None
        elif located and all(other.identity != held.identity for other in others):
            batch.withdrawn[Absence(held.name, held.constraint)] = None  # DYN-25: exactly as it was sent

    def depart(self, name: str, wild: WildcardSubscription, batch: Batch) -> None:
        """Tell the client that this name is not, or no longer, a member of the wildcard."""
        if wild.tag is None:
            batch.removed[name] = None
        else:
            batch.withdrawn[Absence(name, self.negative(name, wild.params), never=True)] = None

    def _explain(self, want: NameSubscription, held: Variant, batch: Batch) -> None:
        """Say in SotW, by a TP3 error, that a resource went away, to clients that read these errors (SOT-7).

        SotW has no removals. DYN-25: where a cache can't tell for whom there is nothing, the error repeats the
        constraints that the client was sent.
        """
        absence = self.absence(want) if want.located else TRUE
        is_known = self._context.table.authoritative or self._client.availability.denial(want) is not None
        if want.located and absence == TRUE and not is_known:
            absence = held.constraint
        self._client.holdings.note_absence(want, absence)
        self.absent(batch, want)

    # -- that there is nothing

    def negative(self, name: str, params: Params) -> Constraint:
        """Return the constraints of a negative answer: for which params there is nothing (DESIGN 6.4).

        A name without any variant has none for anybody. A cache knows only what was asked, so its constraints also pin
        the keys of all params with which this client subscribed to the name.
        """
        absence = self._own_words(name, params)
        if absence is not None:
            return absence
        table = self._context.table
        known = table.get(name)
        # A store knows its keys.
        beside = self._client.subscriptions.params_keys(name) if not table.authoritative else ()
        return known.negative(params, beside) if known is not None else TRUE

    def _own_words(self, name: str, params: Params) -> Constraint | None:
        """Return a negative answer's constraint that says only what this client said; None: it may say more.

        OPS-2: a relay can't tell whether the words of its server are about a resource that this client may have. The
        string may be an alias, or a host, of one that others have: for which params that has variants is their affair.
        """
        if not (self._context.table.is_part and self._context.interest.demand.caches):
            return None
        return pins({key: params.get(key) for key in {*params, *self._client.subscriptions.params_keys(name)}})

    def absence(self, want: NameSubscription) -> Constraint:
        """Return the constraints of a negative answer to this locator.

        They are about the params that the client sent, which it compares them with. A policy may have changed those
        that choose its variant. If it denies the locator, the constraints say nothing of the variants.
        """
        denial = self._client.availability.denial(want)
        return denial.absence if denial is not None else self.negative(want.name, want.key.tag or want.params)

    def absent(self, batch: Batch, want: NameSubscription) -> None:
        """Answer at once that there is nothing (DLT-4, DYN-11). The subscription stays."""
        delta = self._context.delta
        if delta and want.located:
            batch.withdrawn[_about(want)] = None
        elif self._rules.needs_empty_resource(want.key):
            self._unresolve(want, batch)
        elif delta:
            batch.removed[want.name] = None
        told = self._context.settings.resource_errors
        denial = self._client.availability.denial(want)
        if denial is not None:
            self._context.note_denied(denial, want.name)
        if told == "none":
            return
        wrong = self._context.complaint(want.name)
        if denial is not None:  # OPS-2: the stream and all else on it go on
            batch.errors[ResourceError(_about(want), PERMISSION_DENIED, denial.message)] = None
        elif wrong is not None:  # XTP-9: the client sent a name that can't exist
            batch.errors[ResourceError(_about(want), INVALID_ARGUMENT, wrong)] = None
        elif (told == "all" or (want.located and not delta)) and want.problem is None:
            label = self._context.type_url.rpartition("/")[2]
            error = ResourceError(_about(want), NOT_FOUND, f"{label} {want.name!r} does not exist for these parameters")
            batch.errors[error] = None  # ERR-1

    def _unresolve(self, want: NameSubscription, batch: Batch) -> None:
        """Answer with an empty resource for this host, unless the client came back with that answer (VHD-7)."""
        initial, want.initial = want.initial or {}, None
        if initial.get(want.name, "").startswith(ABSENT):
            self._verdicts.suppressed(1)  # the client has the answer from an earlier stream
        else:
            batch.unresolved[want.name] = None

    def say_empty(self, wild: WildcardSubscription, batch: Batch) -> None:
        """Answer that a glob collection is empty, by its own URL (XTP-5).

        TP1, Glob: if no resources are present, the URL of the collection is among the removed names.
        """
        if wild.tag is None:
            batch.removed[wild.name] = None
        else:
            absence = self._own_words(wild.name, wild.params)
            batch.withdrawn[Absence(wild.name, absence or wild.listing.negative(wild.params))] = None

    # -- an error

    def warn(self, want: NameSubscription | WildcardSubscription, batch: Batch) -> None:
        """Tell the client once, as a TP3 error, of a problem with getting this resource (PRX-22, PRX-11).

        The error has the upstream's own message. It is no answer: the client keeps what it holds.
        """
        problem = self._client.availability.problem(want)
        if problem is not None and problem != want.problem:
            if problem.refused and isinstance(want, NameSubscription) and want.held is not None:
                self._warn_holder(want, problem, batch)
            else:
                batch.errors[_error(want.name, problem)] = None
        want.problem = problem

    def _warn_holder(self, want: NameSubscription, problem: ResourceProblem, batch: Batch) -> None:
        """Tell a client that holds the resource that the relay has no room for it any more (PRX-35).

        A full state repeats the resources that stay, and a resource must not be in `resources` and in `resource_errors`
        at once (ERR-2), so there the client is told nothing. In all other cases the resource is sent once more when
        there is room again, even unchanged: that ends the error (ERR-7).
        """
        if not self._context.full_state:
            batch.errors[_error(want.name, problem)] = None
            self._client.holdings.tell_again(want)


def _error(name: str, problem: ResourceProblem) -> ResourceError:
    """Return the TP3 error that tells a client of a problem with getting a resource."""
    return ResourceError(Absence(name, problem.constraint, never=True), problem.code, problem.message)


def _about(want: NameSubscription) -> Absence:
    """Return the name and constraints of the negative answer to this subscription."""
    return Absence(want.name, want.absence if want.absence is not None else TRUE, never=True)
