"""The store as programs use it: they put messages into it in transactions, or register providers that make them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from google.protobuf.message import Message

from ..argument_types import expect, expect_string_map
from ..core.codec.expression import Expression
from ..core.codec.resources import refuse_v2, variant_of
from ..core.model.constraints import FALSE, TRUE, Constraint, canonical, unpadded
from ..core.model.expr import parse
from ..core.model.removal_guard import MAX_REMOVALS
from ..core.model.store import Store as CoreStore
from ..core.model.type_names import TypeName, own_types, resolve_type
from ..core.model.types import Params, TypeSpec, TypeUrl, Variant
from ..core.model.xdstp import spelled
from ..core.provide.provider import AT_ONCE, TIMEOUT, Provider
from ..core.provide.providing import Providing
from ..errors import Problem, UsageError
from ..messages.decoded import decoded
from ..messages.validation import Validate, check_mode
from .store_validation import ProblemsByConstraint, StoreValidator
from .stored import StoredVariant, stored

if TYPE_CHECKING:
    from .files import LoadReport
    from .following import Following, Paths

When = str | Expression | None


Function = Callable[[str, Params], Awaitable[object]]
_F = TypeVar("_F", bound=Function)


class Store(CoreStore):
    """Resources by type and name, each with one or more variants.

    with store.transaction() as tx:
        tx.put(cluster, when="env=prod")
        tx.delete(xdsprism.CLUSTER, "old")

    @store.provider(xdsprism.CLUSTER, keys=["env"])
    async def cluster(name, params):
        return Cluster(name=name, connect_timeout=seconds(1 if params["env"] == "prod" else 5))

    `validate` says what happens to a resource that Envoy would refuse:

    envoy     it is an error, or a warning if only gRPC clients can use the resource
    warn      it is a warning: logged, and in the transaction's `warnings`
    off       nothing is checked
    """

    def __init__(self, types: Iterable[TypeSpec] = (), *, validate: Validate = "envoy") -> None:
        self._own_types = own_types(types)
        super().__init__(self._own_types)
        self.following: Following | None = None  # the files in it, while they are followed; an admin port shows them
        self.providing = Providing(self)
        self.validator = StoreValidator(self, check_mode(validate))
        self.providing.judge = self.validator.check_provided

    def resolve(self, type_name: TypeName) -> TypeUrl:
        """Return the URL of a type: of a word (`cds`), a full name, a URL or a message class. Raises UsageError."""
        type_url = resolve_type(type_name, self._own_types)
        refuse_v2(type_url)
        return type_url

    # -- reading

    def get(self, type_url: TypeName, name: str, *, params: Mapping[str, str] | None = None) -> Any:
        """Return the resource that a client with these params gets, as a new message; None if it gets none.

        `name` may be an alias, or for a virtual host ROUTE_CONFIG/HOST, as in a subscription. No provider is called.
        """
        expect(name, str)
        known = self.answer(self.resolve(type_url), spelled(name))
        given = Params(expect_string_map("params", params)) if params is not None else Params()
        variant = known.select(given) if known is not None else None
        return decoded(variant.type_url, variant.body) if variant is not None else None

    def variants(self, type_url: TypeName, name: str) -> tuple[StoredVariant, ...]:
        """Return all variants of a resource; none if there is no resource of this name."""
        expect(name, str)
        known = self.named(self.resolve(type_url), spelled(name))
        return tuple(map(stored, known.variants)) if known is not None else ()

    def __contains__(self, key: object) -> bool:
        """`("cds", "main") in store`: whether there is a resource of this type and name."""
        if not isinstance(key, tuple) or len(key) != 2 or not isinstance(key[1], str):
            raise TypeError(f"a resource is a type and a name, as in ('cds', 'main') in store; got {key!r}")
        return self.named(self.resolve(key[0]), spelled(key[1])) is not None

    def __len__(self) -> int:
        """Return the number of resources, of all types."""
        return sum(map(len, self.tables()))

    def __bool__(self) -> bool:
        """Be true, also while it is empty: `store or Store()` keeps an empty store."""
        return True

    def __iter__(self) -> Iterator[tuple[TypeUrl, str]]:
        """Yield the type URL and the name of each resource, as of now: later changes do not matter."""
        return iter([(table.spec.url, name) for table in self.tables() for name, _ in table])

    def __repr__(self) -> str:
        counts = {table.spec.label: len(table) for table in self.tables() if len(table)}
        what = ", ".join(f"{label}: {count}" for label, count in counts.items())
        return f"<Store revision {self.revision}{', ' if what else ''}{what}>"

    # -- writing

    def transaction(self) -> Transaction:
        """Open a transaction: all changes in the `with` block are validated and applied as one, or none of them is."""
        return Transaction(self)

    def load(self, paths: Paths, *, validate: Validate | None = None, allow_empty: bool = False) -> LoadReport:
        """Read files, or folders of them, and apply all of their resources, as `xdsprism serve` does; once.

        Raises ConfigError with every problem, by file and line, and then changes nothing. Resources that the files
        don't define stay. `validate`: as for the store, unless given; `allow_empty`: accept files without resources.
        """
        from .following import load_files  # noqa: PLC0415 # imports PyYAML and watchfiles

        return load_files(self, paths, validate or self.validator.validate, allow_empty=allow_empty)

    def follow(
        self,
        paths: Paths,
        *,
        validate: Validate | None = None,
        max_removals: float = MAX_REMOVALS,
        allow_empty: bool = False,
        observe: Callable[[LoadReport], None] | None = None,
    ) -> Following:
        """Load files as `load` does, and apply every change of them while the block runs.

            async with store.follow("config"), xdsprism.Server(store) as server:
                ...

        A change that is invalid is logged, and the last good state stays. One that removes more than `max_removals` per
        cent of the resources of a type, and at least 10, waits for `confirm`. `observe` gets the report of every load.
        Files change the names that they define, and no others; when the block ends, their resources stay.
        """
        from .following import Following  # noqa: PLC0415 # imports PyYAML and watchfiles

        return Following(
            self,
            paths,
            validate=validate or self.validator.validate,
            max_removals=max_removals,
            allow_empty=allow_empty,
            observe=observe,
        )

    def provider(
        self,
        type_url: TypeName,
        *,
        keys: Iterable[str] = (),
        timeout: float = TIMEOUT,
        ttl: float | timedelta | None = None,
        at_once: int = AT_ONCE,
    ) -> Callable[[_F], _F]:
        """Register an async function that makes the resources of a type that are subscribed to and not in the store.

        The function gets a name and params, and returns a message, or None if there is no such resource. The store
        derives the constraints of the result from what the function does with the params: a comparison with a value
        constrains the key to be equal to that value or not; anything else, such as `str(params["env"])`, constrains it
        to the client's own value. A result is kept until it is invalidated, or for as long as `ttl` or
        `Provided(message, ttl=...)` says.

        keys      the parameters that the function may look at
        timeout   seconds that a call may take. After a timeout or an error the call is repeated while there are
                  subscribers
        ttl       seconds for which every result is kept
        at_once   the number of calls that may run at the same time
        """

        def register(function: _F) -> _F:
            label = f"provider {getattr(function, '__name__', type(function).__name__)}"
            if not (iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))):  # noqa: B004 # looks at the method, not whether it is callable
                raise UsageError(f"{label} must be an async function of a name and params")
            if isinstance(keys, str):
                raise UsageError(f"{label}: keys is a list of names, as in keys=[{keys!r}]")
            seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
            expect(timeout, float)
            expect(seconds, float, type(None))
            expect(at_once, int)
            known = self.resolve(type_url)
            self.providing.add(Provider(known, function, tuple(keys), label, timeout, seconds, at_once))
            return function

        return register

    def invalidate(self, type_url: TypeName, name: str | None = None) -> None:
        """Drop the provider's results for a name, or for all names of the type, and call the provider again.

        Clients keep the resources that they have until the new results are there.
        """
        expect(name, str, type(None))
        self.providing.invalidate(self.resolve(type_url), spelled(name) if name is not None else None)


class Transaction:
    """Collects changes, and applies them when the `with` block ends without an exception."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._touched: dict[tuple[TypeUrl, str], dict[Constraint, Variant]] = {}
        self._problems: dict[tuple[TypeUrl, str], ProblemsByConstraint] = {}
        self.revision: int | None = None  # of the store, once applied
        self.warnings: tuple[Problem, ...] = ()  # what the store accepted and Envoy may refuse, once applied

    def put(
        self,
        message: Message,
        *,
        when: When = None,
        name: str | None = None,
        aliases: Iterable[str] = (),
        ttl: float | timedelta | None = None,
        base: bool | str | Expression = False,
    ) -> None:
        """Add a variant, or replace the variant that has the same constraints.

        message   any xDS message, or an Any
        when      the variant's constraints. Variants of one name may constrain different keys, but must not overlap
        ttl       seconds after which clients drop the resource, unless the server's heartbeats renew it
        base      for a virtual host: whether clients get it with the route configuration (or the constraint of those
                  that do); the others get it on demand
        """
        seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
        expect(seconds, float, type(None))
        expect(name, str, type(None))
        belongs = _constraint(base) if not isinstance(base, bool) else TRUE if base else FALSE
        constraint = _constraint(when)
        variant = variant_of(
            message,
            name=name,
            constraint=constraint,
            aliases=aliases,
            ttl=seconds,
            base=belongs,
            written=constraint,
        )
        identity = _identity(constraint)
        self._variants(variant.type_url, variant.name)[identity] = variant
        problems = self._problems[variant.type_url, variant.name]
        problems.pop(identity, None)
        found = self._store.validator.check(variant)
        if found is not None:
            problems[identity] = found

    def delete(self, type_url: TypeName, name: str, *, when: When = None) -> None:
        """Remove a resource, or with `when` only the variant that has these constraints."""
        expect(name, str)
        url = self._store.resolve(type_url)
        variants = self._variants(url, spelled(name))
        problems = self._problems[url, spelled(name)]
        if when is None:
            variants.clear()
            problems.clear()
            return
        identity = _identity(_constraint(when))
        if variants.pop(identity, None) is None:
            raise UsageError(f"{url.rpartition('/')[2]} {name!r} has no variant for {when}")
        problems.pop(identity, None)

    def _variants(self, type_url: TypeUrl, name: str) -> dict[Constraint, Variant]:
        """Return the variants that a name has in this transaction, beginning with those in the store."""
        key = type_url, name
        if key not in self._touched:
            known = self._store.written(type_url, name)
            current = known.variants if known is not None else ()
            self._touched[key] = {_identity(variant.stated): variant for variant in current}
            self._problems[key] = self._store.validator.problems_of(key)
        return self._touched[key]

    def commit(self) -> None:
        """Validate and apply all changes. Raises ConfigError, and then changes nothing."""
        changeset = {key: tuple(variants.values()) for key, variants in self._touched.items()}
        with self._store.validator.validating(changeset, self._problems) as warnings:
            self.revision = self._store.apply(changeset).revision
        self.warnings = warnings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()


def _constraint(when: When) -> Constraint:
    if when is None:
        return TRUE
    return when.constraint if isinstance(when, Expression) else parse(when)


def _identity(constraint: Constraint) -> Constraint:
    """Return the constraint that identifies a variant in a transaction: canonical, and without padding (DYN-34)."""
    return unpadded(canonical(constraint))
