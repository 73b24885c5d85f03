"""Say how much a table knows: whether the answer to a subscription is known, and whether the client may have it.

| knowledge                             | the table has                         | a name that is not there       |
|---------------------------------------|---------------------------------------|--------------------------------|
| `AllKnown`                            | what a server's configuration says    | does not exist                 |
| `MadeOnDemand`                        | the same, and what a provider made    | is not known: it may be made   |
| `CacheKnowledge` (cache_knowledge.py) | what a relay's servers answered       | is not known: it may come      |
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from .events import WILDCARD
from .lookup import Lookup
from .staged_changes import SpecialCounts
from .types import Params, ResourceProblem


class Knowledge(ABC):
    """What is known of the names and wildcards of one table: an interface without state."""

    is_complete: bool  # a name that is not in the table does not exist

    def join(self, whole: Knowledge) -> None:  # noqa: B027 # most have nothing to share
        """Share what is known of whole wildcards with the table of which this one's is an allowed part."""

    @abstractmethod
    def knows(self, name: str, params: Params, *, sure: bool = False) -> bool:
        """Whether the answer for these params is known, be it that there is none.

        sure: an answer known only from an earlier run of the process does not count.
        """

    @abstractmethod
    def lists(self, params: Params, name: str = WILDCARD, *, sure: bool = False) -> bool:
        """Whether all names are known that these params see under this wildcard or glob."""

    @abstractmethod
    def serves(self, name: str, params: Params, since: int) -> bool:
        """Whether the known answer may go to a client that subscribed at revision `since` (PRX-17)."""

    @abstractmethod
    def is_late(self, name: str, params: Params, *, is_returning: bool) -> bool:
        """Whether the answer takes too long to wait for it.

        A client that has nothing yet waits for a moment only; a returning one, which has the resource, waits longer.
        """

    @abstractmethod
    def problem(self, name: str, params: Params) -> ResourceProblem | None:
        """Return why these params can't get a resource that comes from an upstream server or a provider (TP3)."""


class AllKnown(Knowledge):
    """The table of a server has everything that exists."""

    is_complete = True

    def __init__(self, lookup: Lookup, special: SpecialCounts) -> None:
        pass

    def knows(self, name: str, params: Params, *, sure: bool = False) -> bool:  # noqa: ARG002
        return True

    def lists(self, params: Params, name: str = WILDCARD, *, sure: bool = False) -> bool:  # noqa: ARG002
        return True

    def serves(self, name: str, params: Params, since: int) -> bool:  # noqa: ARG002
        return True

    def is_late(self, name: str, params: Params, *, is_returning: bool) -> bool:  # noqa: ARG002
        return False

    def problem(self, name: str, params: Params) -> ResourceProblem | None:  # noqa: ARG002
        return None


class MadeOnDemand(Knowledge):
    """A provider makes what is not in the table, for subscriptions by name; wildcards list what was written."""

    is_complete = False

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def knows(self, name: str, params: Params, *, sure: bool = False) -> bool:
        known = self._lookup.get(name)
        return known is not None and known.knows(params, sure=sure)

    def lists(self, params: Params, name: str = WILDCARD, *, sure: bool = False) -> bool:  # noqa: ARG002
        return True

    def serves(self, name: str, params: Params, since: int) -> bool:  # noqa: ARG002
        return True

    def is_late(self, name: str, params: Params, *, is_returning: bool) -> bool:  # noqa: ARG002
        return False

    def problem(self, name: str, params: Params) -> ResourceProblem | None:
        known = self._lookup.get(name)
        return known.problem(params) if known is not None else None
