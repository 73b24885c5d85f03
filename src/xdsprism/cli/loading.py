"""Read a configuration for commands that do not serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.model.store import Store
    from ..messages.validation import Validate
    from ..sources.files import LoadReport


def load(paths: tuple[str, ...], validate: Validate) -> tuple[Store, LoadReport]:
    """Load the files into a store. Raises ConfigError with every problem."""
    from ..core.model.store import Store
    from ..sources.files import FileSource

    store = Store()
    return store, FileSource(paths, validate=validate, allow_empty=True).load(store.apply).report
