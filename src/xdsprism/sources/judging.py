"""Which faults count in what programs put into a store: all that Envoy would find, unless only gRPC uses the resource.

Who uses a resource changes with others: a listener for Envoy that leads to a cluster makes an error of what was a
warning until then, and is refused with it.
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
from ..messages.verdicts import Validate, is_for_grpc, judge_contents
from .usage import Key, Usage

log = logging.getLogger("xdsprism.store")

REMEMBERED = 100_000  # resources of which it is known what was logged


class Finding(NamedTuple):
    """What is to be said of one variant."""

    errors: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    for_grpc: bool  # by itself


# Of each variant of a name, by its constraint as a transaction knows it.
Findings = dict[Constraint, Finding]


class Judge:
    """Judges the changes of one store."""

    def __init__(self, store: Store, validate: Validate) -> None:
        self.validate: Validate = validate
        self._store = store
        self._usage: Usage | None = None  # made when something is first found
        self._findings: dict[Key, Findings] = {}
        self._told: dict[Key, tuple[str, ...]] = {}

    def look_at(self, variant: Variant) -> Finding | None:
        """None: there is nothing to say."""
        if self.validate == "off":
            return None
        found = judge_contents(variant.type_url, variant.body)
        if not found.errors and not found.notes:
            return None
        label = f"{variant.type_url.rpartition('/')[2]} {variant.name!r}"
        errors, notes = _problems(label, found.errors), _problems(label, found.notes)
        return Finding(errors, notes, is_for_grpc(variant.type_url, variant.body))

    def look_at_made(self, variant: Variant) -> None:
        """Judge what a provider made, which nobody can refuse later on. Raises ConfigError."""
        finding = self.look_at(variant)
        if finding is None:
            return
        key = variant.type_url, variant.name
        if self._usage is None and self.validate == "envoy" and finding.errors:
            self._usage = self._whole_store()
        if not self._is_waived(key, finding):
            raise ConfigError(finding.errors)
        self._tell({key: (*finding.errors, *finding.notes)})

    def findings(self, key: Key) -> Findings:
        """Of what is in the store."""
        return dict(self._findings.get(key, ()))

    @contextmanager
    def trial(self, changeset: Changeset, findings: Mapping[Key, Findings]) -> Iterator[tuple[Problem, ...]]:
        """Judge a change, and have it stand if the block does not raise. Gives the warnings; raises ConfigError."""
        found = {key: each for key, each in findings.items() if each or key in self._findings}
        if self._usage is None and self.validate == "envoy" and any(_errors(each) for each in found.values()):
            self._usage = self._whole_store()
        before = {key: self._findings.get(key, {}) for key in found}
        try:
            self._note(found)
            self._use(changeset)
            warnings = self._judged(found)
            yield tuple(problem for each in warnings.values() for problem in each)
        except BaseException:
            self._note(before)
            self._use({key: self._written(key) for key in changeset})
            if self._usage is not None:
                self._usage.stale.clear()
            raise
        self._tell(warnings)

    def _judged(self, findings: Iterable[Key]) -> dict[Key, tuple[Problem, ...]]:
        """The warnings of what changed, and of what is used by others now. Raises ConfigError."""
        stale = self._usage.stale & self._findings.keys() if self._usage is not None else set()
        errors: list[Problem] = []
        warnings: dict[Key, tuple[Problem, ...]] = {}
        for key in dict.fromkeys([*findings, *sorted(stale)]):
            own: list[Problem] = []
            for each in self._findings.get(key, {}).values():
                (own if self._is_waived(key, each) else errors).extend(each.errors)
                own += each.notes
            warnings[key] = tuple(own)
        if errors:
            raise ConfigError(errors)
        if self._usage is not None:
            self._usage.stale.clear()
        return warnings

    def _is_waived(self, key: Key, finding: Finding) -> bool:
        if self.validate == "warn" or finding.for_grpc or not finding.errors:
            return True
        return self._usage is not None and self._usage.is_for_grpc(key)

    def _tell(self, warnings: Mapping[Key, tuple[Problem, ...]]) -> None:
        """Log what was not said of a resource before."""
        if len(self._told) > REMEMBERED:
            self._told.clear()
        for key, problems in warnings.items():
            texts = tuple(str(problem) for problem in problems)
            for text in texts:
                if text not in self._told.get(key, ()):
                    log.warning("%s", text)
            self._told.pop(key, None)
            if texts:
                self._told[key] = texts

    def _note(self, findings: Mapping[Key, Findings]) -> None:
        for key, found in findings.items():
            self._findings.pop(key, None)
            if found:
                self._findings[key] = found

    def _use(self, changeset: Changeset) -> None:
        if self._usage is not None:
            for key, variants in changeset.items():
                self._usage.set(key, variants)

    def _whole_store(self) -> Usage:
        usage = Usage()
        for table in self._store.tables():
            for name, known in table:
                usage.set((table.spec.url, name), known.variants)
        self._store.listeners.append(self._heard)
        return usage

    def _heard(self, applied: Applied) -> None:
        """Whoever wrote it."""
        after = {(each.type_url, each.name): each.after for each in applied.changes}
        self._use({key: known.variants if known is not None else () for key, known in after.items()})

    def _written(self, key: Key) -> tuple[Variant, ...]:
        known = self._store.written(*key)
        return known.variants if known is not None else ()


def _errors(findings: Findings) -> bool:
    return any(each.errors for each in findings.values())


def _problems(label: str, faults: Faults) -> tuple[Problem, ...]:
    return tuple(Problem(f"{label}: {text}", path=show_path(path)) for path, text in faults)
