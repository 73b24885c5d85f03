"""What some classes tell mypyc, which compiles them for wheels (docs/architecture.md). It changes nothing at run time.

A compiled class can't be the base of one that is interpreted, unless it says `allow_interpreted_subclasses`. One that
mypyc can't compile says `native_class=False`, and stays a class of Python in a compiled module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr  # mypyc knows it by this name
else:

    def mypyc_attr(**_marks: bool) -> Callable[[type], type]:
        """Return a decorator that does nothing: mypyc reads its arguments in the source."""
        return lambda kind: kind
