"""Find the resource that a string means, when a client subscribes to it.

Of most types a string is a name or an alias (`NameLookup`). A virtual host is found by the hosts that it serves, too
(`HostLookup`, host_lookup.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from .staged_changes import StagedChanges
from .variants import Answer, VariantSet


class Lookup(ABC):
    """How a table is searched: an interface without state.

    The table keeps `sets` and `aliases`, and tells the lookup what it adds and removes.
    """

    listed: Mapping[str, VariantSet]  # the names that a wildcard may see

    @abstractmethod
    def get(self, name: str) -> Answer | None:
        """Return what is known of a name, an alias (DLT-20) or a host."""

    @abstractmethod
    def given(self, name: str) -> Answer | None:
        """Return the same as `get`, unless a provider made it."""

    @abstractmethod
    def question(self, name: str) -> str:
        """Return the name that a provider is asked for on behalf of a subscription to `name`."""

    @abstractmethod
    def owners(self, config: str, domain: str) -> tuple[str, ...]:
        """Return the names of the virtual hosts of a route configuration that have this domain."""

    @abstractmethod
    def configs(self) -> Iterable[str]:
        """Return the names of the route configurations that the virtual hosts belong to; empty for other types."""

    @abstractmethod
    def note(self, name: str, known: VariantSet, step: int) -> None:
        """Note that the table adds a set of variants (step 1), or removes it (step -1)."""

    @abstractmethod
    def note_all(self, staged: StagedChanges) -> None:
        """Note that the table has taken a large transaction."""


class NameLookup(Lookup):
    """Finds resources by name and by alias."""

    def __init__(self, sets: Mapping[str, VariantSet], aliases: Mapping[str, str]) -> None:
        self.listed = sets
        self._sets = sets
        self._aliases = aliases

    def get(self, name: str) -> Answer | None:
        """Return the variants of a name or an alias. A name wins over another resource's alias."""
        return self._sets.get(name) or self._sets.get(self._aliases.get(name, ""))

    def given(self, name: str) -> Answer | None:
        found = [self._sets.get(string) for string in (name, self._aliases.get(name, ""))]
        return next((known for known in found if known is not None and not known.made), None)

    def question(self, name: str) -> str:
        return name

    def owners(self, config: str, domain: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: only virtual hosts have domains."""
        return ()

    def configs(self) -> Iterable[str]:
        return ()

    def note(self, name: str, known: VariantSet, step: int) -> None:
        """Nothing to do: the table keeps the names and the aliases."""

    def note_all(self, staged: StagedChanges) -> None:
        """Nothing to do, as in `note`."""
