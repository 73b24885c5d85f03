"""What a series of responses means to whoever asked: complete or not, added, changed or removed. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..core.types import TYPES
from .raw import Missing, Query, Received, Update

# Nobody's name. A delta server answers a subscription to it with a removal, which comes after everything that it
# still had to send: the only sign that a list is complete, since delta has none of its own.
END_OF_LIST = "xdsprism.invalid/end-of-list"

_FULL_STATE = frozenset(spec.url for spec in TYPES if spec.full_state)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened to one name."""

    kind: Literal["added", "changed", "removed", "missing"]
    name: str
    resource: Received | None = None
    message: str = ""  # why it is missing


class Follower:
    """Follows one query's responses."""

    def __init__(self, query: Query) -> None:
        self.held: dict[str, Received] = {}
        self.missing: dict[str, str] = {}  # asked for by name, and the server says that it is not there
        self._query = query
        self._responses = 0
        self._listed = False

    @property
    def complete(self) -> bool:
        """Everything that was asked for was answered."""
        if self._query.names:
            return all(name in self.missing or self._has(name) for name in self._query.names)
        return self._listed if self._query.delta else self._responses > 0

    @property
    def began(self) -> bool:
        return self._responses > 0

    @property
    def unanswered(self) -> list[str]:
        return [name for name in self._query.names if name not in self.missing and not self._has(name)]

    def subscribe_next(self) -> tuple[str, ...]:
        """What to subscribe to with the ACK of the first response of a list."""
        return (END_OF_LIST,) if self._query.delta and not self._query.names and self._responses == 1 else ()

    def take(self, update: Update) -> list[Change]:
        self._responses += 1
        changes = [change for resource in update.resources if (change := self._put(resource)) is not None]
        present = {resource.name for resource in update.resources}
        for gone in (*update.removed, *update.errors, *self._left_out(present)):
            if gone.name == END_OF_LIST:
                self._listed = True
            elif gone.name not in present:  # else it is the old variant that left
                changes += self._remove(gone)
        return changes

    def _has(self, name: str) -> bool:
        """By name or alias."""
        return name in self.held or any(name in _aliases(resource) for resource in self.held.values())

    def _put(self, resource: Received) -> Change | None:
        before = self.held.get(resource.name)
        self.held[resource.name] = resource
        self.missing.pop(resource.name, None)
        if before is None:
            return Change("added", resource.name, resource)
        same = (before.body, before.constraint, before.version) == (
            resource.body,
            resource.constraint,
            resource.version,
        )
        return None if same else Change("changed", resource.name, resource)

    def _remove(self, gone: Missing) -> Iterator[Change]:
        if gone.name in self._query.names and gone.name not in self.missing:
            self.missing[gone.name] = gone.message
            if gone.name not in self.held:
                yield Change("missing", gone.name, message=gone.message)
        if self.held.pop(gone.name, None) is not None:
            yield Change("removed", gone.name, message=gone.message)

    def _left_out(self, present: set[str]) -> list[Missing]:
        """A SotW response of listeners or clusters holds all there are: the others went away, or never were."""
        if self._query.delta or self._query.type_url not in _FULL_STATE:
            return []
        return [Missing(name) for name in {**self.held, **dict.fromkeys(self._query.names)} if name not in present]


def _aliases(resource: Received) -> list[str]:
    return list(resource.extras.aliases) if resource.extras is not None else []
