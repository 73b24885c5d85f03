"""The store as programs use it: messages in, in transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Self, TypeVar

from google.protobuf.message import Message

from ..core.codec.expression import Expression
from ..core.codec.server_side import variant_of
from ..core.model.constraints import FALSE, TRUE, Constraint, canonical, unpadded
from ..core.model.expr import parse
from ..core.model.types import Params, TypeSpec, TypeUrl, Variant, resolve_type
from ..core.model.xdstp import spelled
from ..core.provide.providing import AT_ONCE, TIMEOUT, Provider, ProvidingStore
from ..errors import Problem, UsageError
from ..messages.verdicts import Validate, check_mode
from .judging import Findings, Judge

When = str | Expression | None


Function = Callable[[str, Params], Awaitable[object]]
_F = TypeVar("_F", bound=Function)


class Store(ProvidingStore):
    """Resources by type and name, each with one or more variants.

    with store.transaction() as tx:
        tx.put(cluster, when="env=prod")
        tx.delete(xdsprism.CLUSTER, "old")

    @store.provider(xdsprism.CLUSTER, keys=["env"])
    async def cluster(name, params):
        return Cluster(name=name, connect_timeout=seconds(1 if params["env"] == "prod" else 5))

    `validate` says what becomes of that which Envoy would refuse:

    envoy     it is an error, but a warning where only gRPC can use the resource
    warn      it is a warning: logged, and in the transaction's `warnings`
    off       it is not looked for
    """

    def __init__(self, types: Iterable[TypeSpec] = (), *, validate: Validate = "envoy") -> None:
        super().__init__(types)
        self.judge = Judge(self, check_mode(validate))
        self.providing.judge = self.judge.look_at_made

    def transaction(self) -> Transaction:
        """Everything in the block is validated and applied as one, or it raises and changes nothing."""
        return Transaction(self)

    def provider(
        self,
        type_url: TypeUrl,
        *,
        keys: Iterable[str] = (),
        timeout: float = TIMEOUT,
        ttl: float | timedelta | None = None,
        at_once: int = AT_ONCE,
    ) -> Callable[[_F], _F]:
        """Have an async function make the resources of a type that are asked for and not in the store.

        It gets a name and params, and returns a message, or None if there is no such resource. What it looks at in the
        params are the constraints of what it returns: comparing a value asks no more than that, and anything else that
        is done with it, such as `str(params["env"])`, makes the answer one for that value alone. A result is kept
        until it is invalidated; `Provided(message, ttl=...)` says for how long, of one result.

        keys      the parameters that it may look at
        timeout   seconds that a call may take; it is made again while somebody wants the resource, as after an error
        ttl       seconds for which every result is good
        at_once   how many calls there are at most at one time
        """

        def register(function: _F) -> _F:
            label = f"provider {getattr(function, '__name__', type(function).__name__)}"
            if not (iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))):  # noqa: B004 # what it is, not whether
                raise UsageError(f"{label} must be an async function of a name and params")
            if isinstance(keys, str):
                raise UsageError(f"{label}: keys is a list of names, as in keys=[{keys!r}]")
            seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
            known = resolve_type(type_url)
            self.providing.add(Provider(known, function, tuple(keys), label, timeout, seconds, at_once))
            return function

        return register

    def invalidate(self, type_url: TypeUrl, name: str | None = None) -> None:
        """What the provider of this type said of a name, or of all, does not count any more: it is asked again.

        Clients keep what they have until the new answer is there.
        """
        self.providing.invalidate(resolve_type(type_url), spelled(name) if name is not None else None)


class Transaction:
    """What is to change. Nothing happens until the block ends without an exception."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._touched: dict[tuple[TypeUrl, str], dict[Constraint, Variant]] = {}
        self._findings: dict[tuple[TypeUrl, str], Findings] = {}
        self.revision: int | None = None  # of the store, once applied
        self.warnings: tuple[Problem, ...] = ()  # what was taken though Envoy might not; once applied

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
        """Add a variant, or replace the one with the same constraints. `message`: any xDS message, or an Any.

        `when`: whom it is for. Variants of one name may mention different keys, but must not overlap.
        `ttl`: seconds after which clients drop it unless they hear of it again; they do, while this server runs.
        `base`: of a virtual host, whether clients get it when they come, or which of them do; else when they ask.
        """
        seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
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
        findings = self._findings[variant.type_url, variant.name]
        findings.pop(identity, None)
        finding = self._store.judge.look_at(variant)
        if finding is not None:
            findings[identity] = finding

    def delete(self, type_url: TypeUrl, name: str, *, when: When = None) -> None:
        """Remove a resource, or with `when` the one variant that has these constraints."""
        variants = self._variants(type_url, spelled(name))
        findings = self._findings[type_url, spelled(name)]
        if when is None:
            variants.clear()
            findings.clear()
            return
        identity = _identity(_constraint(when))
        if variants.pop(identity, None) is None:
            raise UsageError(f"{type_url.rpartition('/')[2]} {name!r} has no variant for {when}")
        findings.pop(identity, None)

    def _variants(self, type_url: TypeUrl, name: str) -> dict[Constraint, Variant]:
        key = type_url, name
        if key not in self._touched:
            known = self._store.written(type_url, name)
            current = known.variants if known is not None else ()
            self._touched[key] = {_identity(variant.stated): variant for variant in current}
            self._findings[key] = self._store.judge.findings(key)
        return self._touched[key]

    def commit(self) -> None:
        changeset = {key: tuple(variants.values()) for key, variants in self._touched.items()}
        with self._store.judge.trial(changeset, self._findings) as warnings:
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
    """By what a transaction knows a variant: also one that is padded, or that is given with the padding (DYN-34)."""
    return unpadded(canonical(constraint))
