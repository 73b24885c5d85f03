"""Reads a configuration for commands that look at it without serving it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.store import Store
    from ..sources.files import LoadReport


def load(paths: tuple[str, ...]) -> tuple[Store, LoadReport]:
    """Raises ConfigError with everything that is wrong."""
    from ..core.store import Store
    from ..sources.files import FileSource

    store = Store()
    return store, FileSource(paths).load(store.apply).report
