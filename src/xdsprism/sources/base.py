"""The one seam for whoever brings resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..core.model.types import Changeset

# Does what of publishing takes long, perhaps in a thread; what it returns does the rest. Raises as Publish does.
Prepare = Callable[[Changeset], Callable[[], object]]

# Takes the complete new variants of each name, all or none; raises ConfigError where the store refuses them.
Publish = Callable[[Changeset], object]


class Source(Protocol):
    """Anything that publishes resources for as long as it runs: files, etcd, memory, another server."""

    async def run(self, publish: Publish) -> None:
        """Publish what is there, then every change, until cancelled."""
