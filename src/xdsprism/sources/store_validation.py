"""Validates the changes that programs make to a store: refuses what Envoy would refuse, unless only gRPC uses it.

Which clients use a resource depends on other resources. If a transaction adds an Envoy listener that leads to a
cluster with a problem, the problem was a warning until then and becomes an error, and the transaction is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from ..core.model.constraints import Constraint
from ..core.model.store import Applied, Store
from ..core.model.types import Changeset, Variant
from ..errors import ConfigError, Problem, show_path
from ..messages.faults import Faults
from ..messages.validation import Validate, check_resource, is_for_grpc
from .usage import TypedName, Usage

log = logging.getLogger("xdsprism.store")

MAX_REMEMBERED = 100_000  # resources whose logged warnings are remembered, so that each is logged once


class VariantProblems(NamedTuple):
    """The problems of one variant."""

    errors: tuple[Problem, ...]  # Envoy refuses these
    notes: tuple[Problem, ...]  # Envoy accepts these
    for_grpc: bool  # the resource itself is for gRPC: a listener with an `api_listener`


# The problems of each variant of a name, by the constraint that identifies the variant in a transaction.
ProblemsByConstraint = dict[Constraint, VariantProblems]


class StoreValidator:
    """Validates the changes of one store, and remembers the problems of the resources in it."""

    def __init__(self, store: Store, validate: Validate) -> None:
        self.validate: Validate = validate
        self._store = store
        self._usage: Usage | None = None  # built when the first problem is found
        self._problems: dict[TypedName, ProblemsByConstraint] = {}
        self._logged: dict[TypedName, tuple[str, ...]] = {}

    def check(self, variant: Variant) -> VariantProblems | None:
        """Return the problems of a variant, or None if it has none."""
        if self.validate == "off":
            return None
        found = check_resource(variant.type_url, variant.body)
        if not found.errors and not found.notes:
            return None
        label = f"{variant.type_url.rpartition('/')[2]} {variant.name!r}"
        errors, notes = _as_problems(label, found.errors), _as_problems(label, found.notes)
        return VariantProblems(errors, notes, is_for_grpc(variant.type_url, variant.body))

    def check_provided(self, variant: Variant) -> None:
        """Check a variant that a provider made, for which there is no transaction to refuse. Raises ConfigError."""
        found = self.check(variant)
        if found is None:
            return
        key = variant.type_url, variant.name
        if self._usage is None and self.validate == "envoy" and found.errors:
            self._usage = self._usage_of_store()
        if not self._is_waived(key, found):
            raise ConfigError(found.errors)
        self._log({key: (*found.errors, *found.notes)})

    def problems_of(self, key: TypedName) -> ProblemsByConstraint:
        """Return the problems of a resource in the store."""
        return dict(self._problems.get(key, ()))

    @contextmanager
    def validating(
        self, changeset: Changeset, problems: Mapping[TypedName, ProblemsByConstraint]
    ) -> Iterator[tuple[Problem, ...]]:
        """Validate a change, and undo what was noted of it if the block raises.

        Yields the warnings. Raises ConfigError, before the block runs, if the change has errors.
        """
        found = {key: each for key, each in problems.items() if each or key in self._problems}
        if self._usage is None and self.validate == "envoy" and any(_has_errors(each) for each in found.values()):
            self._usage = self._usage_of_store()
        before = {key: self._problems.get(key, {}) for key in found}
        try:
            self._remember(found)
            self._update_usage(changeset)
            warnings = self._warnings(found)
            yield tuple(problem for each in warnings.values() for problem in each)
        except BaseException:
            self._remember(before)
            self._update_usage({key: self._variants_in_store(key) for key in changeset})
            if self._usage is not None:
                self._usage.stale.clear()
            raise
        self._log(warnings)

    def _warnings(self, changed: Iterable[TypedName]) -> dict[TypedName, tuple[Problem, ...]]:
        """Return the warnings of changed resources, and of those whose users changed. Raises ConfigError for errors."""
        stale = self._usage.stale & self._problems.keys() if self._usage is not None else set()
        errors: list[Problem] = []
        warnings: dict[TypedName, tuple[Problem, ...]] = {}
        for key in dict.fromkeys([*changed, *sorted(stale)]):
            own: list[Problem] = []
            for each in self._problems.get(key, {}).values():
                (own if self._is_waived(key, each) else errors).extend(each.errors)
                own += each.notes
            warnings[key] = tuple(own)
        if errors:
            raise ConfigError(errors)
        if self._usage is not None:
            self._usage.stale.clear()
        return warnings

    def _is_waived(self, key: TypedName, found: VariantProblems) -> bool:
        """Whether the errors are only warnings: by the mode, or because only gRPC uses the resource."""
        if self.validate == "warn" or found.for_grpc or not found.errors:
            return True
        return self._usage is not None and self._usage.is_for_grpc(key)

    def _log(self, warnings: Mapping[TypedName, tuple[Problem, ...]]) -> None:
        """Log the warnings that were not logged for the same resource before."""
        if len(self._logged) > MAX_REMEMBERED:
            self._logged.clear()
        for key, problems in warnings.items():
            texts = tuple(str(problem) for problem in problems)
            for text in texts:
                if text not in self._logged.get(key, ()):
                    log.warning("%s", text)
            self._logged.pop(key, None)
            if texts:
                self._logged[key] = texts

    def _remember(self, problems: Mapping[TypedName, ProblemsByConstraint]) -> None:
        for key, found in problems.items():
            self._problems.pop(key, None)
            if found:
                self._problems[key] = found

    def _update_usage(self, changeset: Changeset) -> None:
        if self._usage is not None:
            for key, variants in changeset.items():
                self._usage.set(key, variants)

    def _usage_of_store(self) -> Usage:
        """Build the graph of references of all resources in the store, and follow its changes from now on."""
        usage = Usage()
        for table in self._store.tables():
            for name, known in table:
                usage.set((table.spec.url, name), known.variants)
        self._store.listeners.append(self._on_applied)
        return usage

    def _on_applied(self, applied: Applied) -> None:
        """Follow a change of the store that did not come through a transaction, such as one of a provider."""
        after = {(each.type_url, each.name): each.after for each in applied.changes}
        self._update_usage({key: known.variants if known is not None else () for key, known in after.items()})

    def _variants_in_store(self, key: TypedName) -> tuple[Variant, ...]:
        known = self._store.written(*key)
        return known.variants if known is not None else ()


def _has_errors(problems: ProblemsByConstraint) -> bool:
    return any(each.errors for each in problems.values())


def _as_problems(label: str, faults: Faults) -> tuple[Problem, ...]:
    return tuple(Problem(f"{label}: {text}", path=show_path(path)) for path, text in faults)
