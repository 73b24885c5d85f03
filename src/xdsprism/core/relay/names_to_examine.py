"""Remember which names the next flush has to examine, and for which params."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from ..model.steps import EVERY
from ..model.types import Params
from .upstream_subscription import Subject


class NamesToExamine:
    """The marked names, each with the marked params, or as a whole.

    OrderedDicts, because a plain dict takes items from its front slowly.
    """

    def __init__(self) -> None:
        self._touched: OrderedDict[Subject, dict[Params, None] | None] = OrderedDict()  # None: all of its params

    def __bool__(self) -> bool:
        return bool(self._touched)

    def add(self, subject: Subject, params: Params) -> None:
        """Mark certain params of a name. A name that is marked as a whole stays so."""
        some = self._touched.setdefault(subject, {})
        if some is not None:
            some[params] = None

    def add_whole(self, subject: Subject) -> None:
        """Mark all params of a name."""
        self._touched[subject] = None

    def add_all(self, subjects: Iterable[Subject]) -> None:
        """Mark many names as a whole."""
        self._touched.update(dict.fromkeys(subjects))

    def take(self, is_divisible: Callable[[Subject], bool]) -> tuple[Subject, dict[Params, None] | None]:
        """Remove and return the next marked name with its marked params; None: all.

        If many params of it are marked, and the name can be examined in parts, as many as one step takes.
        """
        subject, some = self._touched.popitem(last=False)
        if some is not None and len(some) > EVERY and is_divisible(subject):
            # Copied once, so that each step takes its part from the front and leaves the others alone.
            rest = some if isinstance(some, OrderedDict) else OrderedDict(some)
            self._touched[subject] = rest
            self._touched.move_to_end(subject, last=False)
            return subject, dict(rest.popitem(last=False) for _ in range(EVERY))
        return subject, some
