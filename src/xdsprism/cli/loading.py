"""Read a configuration for commands that do not serve it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..errors import ConfigError, Problem

if TYPE_CHECKING:
    from ..core.model.store import Store
    from ..messages.validation import Validate
    from ..sources.files import LoadReport

STDIN = "-"
STDIN_NAME = "<stdin>"


def load(paths: tuple[str, ...], validate: Validate) -> tuple[Store, LoadReport]:
    """Load the files into a store; `-` is the standard input. Raises ConfigError with every problem."""
    from ..core.model.store import Store
    from ..sources.files import FileSource
    from .progress import shown

    store = Store()
    texts = {STDIN_NAME: _read_stdin()} if STDIN in paths else {}
    source = FileSource([path for path in paths if path != STDIN], validate=validate, allow_empty=True, texts=texts)
    with shown(lambda: source.progress):
        return store, source.load(store.apply).report


def _read_stdin() -> bytes:
    """Read the standard input to its end. Raises ConfigError if it is too large, or can't be read."""
    from ..sources.files import MAX_BYTES

    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    except (AttributeError, OSError, ValueError) as error:  # closed before the command began, or a directory
        why = getattr(error, "strerror", None) or error
        raise ConfigError([Problem(f"can't be read: {why}", STDIN_NAME)]) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError([Problem(f"has more than {MAX_BYTES:,} bytes", STDIN_NAME)])
    return raw
