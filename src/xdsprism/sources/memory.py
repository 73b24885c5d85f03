"""The store as programs use it: messages in, in transactions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Self

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from ..core import store as core
from ..core.codec import variant_of
from ..core.constraints import TRUE, Constraint, canonical
from ..core.expr import parse
from ..core.expression import Expression
from ..core.types import TypeUrl, Variant
from ..errors import ConfigError, Problem, UsageError, show_path
from ..messages.convert import Faults
from ..messages.protos import find_message, type_name
from ..messages.rules import check

When = str | Expression | None


class Store(core.Store):
    """Resources by type and name, each with one or more variants.

    with store.transaction() as tx:
        tx.put(cluster, when="env=prod")
        tx.delete(xdsprism.CLUSTER, "old")
    """

    def transaction(self) -> Transaction:
        """Everything in the block is validated and applied as one, or it raises and changes nothing."""
        return Transaction(self)


class Transaction:
    """What is to change. Nothing happens until the block ends without an exception."""

    def __init__(self, store: core.Store) -> None:
        self._store = store
        self._touched: dict[tuple[TypeUrl, str], dict[Constraint, Variant]] = {}
        self._problems: list[Problem] = []
        self.revision: int | None = None  # of the store, once applied

    def put(
        self,
        message: Message,
        *,
        when: When = None,
        name: str | None = None,
        aliases: Iterable[str] = (),
        ttl: float | timedelta | None = None,
    ) -> None:
        """Add a variant, or replace the one with the same constraints. `message`: any xDS message, or an Any.

        `ttl`: seconds after which clients drop it unless they hear of it again; they do, while this server runs.
        """
        seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
        variant = variant_of(message, name=name, constraint=_constraint(when), aliases=aliases, ttl=seconds)
        label = f"{variant.type_url.rpartition('/')[2]} {variant.name!r}"
        self._problems += [Problem(f"{label}: {message}", path=show_path(path)) for path, message in _faults(message)]
        self._variants(variant.type_url, variant.name)[canonical(variant.constraint)] = variant

    def delete(self, type_url: TypeUrl, name: str, *, when: When = None) -> None:
        """Remove a resource, or with `when` the one variant that has these constraints."""
        variants = self._variants(type_url, name)
        if when is None:
            variants.clear()
        elif variants.pop(canonical(_constraint(when)), None) is None:
            raise UsageError(f"{type_url.rpartition('/')[2]} {name!r} has no variant for {when}")

    def _variants(self, type_url: TypeUrl, name: str) -> dict[Constraint, Variant]:
        key = type_url, name
        if key not in self._touched:
            known = self._store.named(type_url, name)
            current = known.variants if known is not None else ()
            self._touched[key] = {canonical(variant.constraint): variant for variant in current}
        return self._touched[key]

    def commit(self) -> None:
        if self._problems:
            raise ConfigError(self._problems)
        changeset = {key: tuple(variants.values()) for key, variants in self._touched.items()}
        self.revision = self._store.apply(changeset).revision

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()


def _faults(message: Message) -> Faults:
    """What Envoy would refuse. A type that is not known here is taken as it is: any type works."""
    if not isinstance(message, Any):
        return check(message)
    kind = find_message(type_name(message.type_url))
    if kind is None:
        return []
    try:
        return check(kind.FromString(message.value))
    except DecodeError as error:
        return [((), f"the bytes are no {kind.DESCRIPTOR.full_name}: {error}")]


def _constraint(when: When) -> Constraint:
    if when is None:
        return TRUE
    return when.constraint if isinstance(when, Expression) else parse(when)
