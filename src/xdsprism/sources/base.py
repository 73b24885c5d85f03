"""Defines the interface between a source of resources and the store that it publishes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..core.model.types import Changeset

# The slow first step of publishing a changeset: it checks the variants, and may run in a thread. The callable that it
# returns applies them. Raises ConfigError as Publish does.
Prepare = Callable[[Changeset], Callable[[], object]]

# Applies the complete new variants of each name, all of them or none. Raises ConfigError where the store refuses them.
Publish = Callable[[Changeset], object]


class Source(Protocol):
    """Publishes resources for as long as it runs: from files, etcd, memory or another server."""

    async def run(self, publish: Publish) -> None:
        """Publish all current resources, then every change, until cancelled."""
