"""Remember which names the next flush has to examine, for which params, and which of them it failed to examine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from ..model.steps import EVERY
from ..model.types import Params
from ..model.xdstp import wildcards
from .upstream_subscription import Subject

RETRY = 5.0  # seconds until a name that could not be examined is tried again, if nothing marks it before


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


class FailedNames:
    """The names that could not be examined because of an error in this program, each with the time of the next try.

    The cache keeps what it has of such a name, and may lack it. So no wildcard that covers it counts as complete
    (listings.py).
    """

    def __init__(self) -> None:
        self._due: dict[Subject, float] = {}  # in this order

    def note(self, subject: Subject, now: float) -> None:
        """Note that a name could not be examined."""
        self._due.pop(subject, None)
        self._due[subject] = now + RETRY

    def forget(self, subject: Subject) -> bool:
        """Note that a name was examined. Return whether that had failed before."""
        return self._due.pop(subject, None) is not None

    @property
    def due(self) -> float | None:
        """When to try the next one."""
        return next(iter(self._due.values()), None)

    def take_due(self, now: float) -> list[Subject]:
        """Return the names to try now; they count as failed until `forget`."""
        due = [subject for subject, at in self._due.items() if at <= now]
        for subject in due:
            self.note(subject, now)
        return due

    def is_under(self, wildcard: Subject) -> bool:
        """Whether one of the names is covered by this wildcard or glob."""
        type_url, wild = wildcard
        return any(each == type_url and wild in wildcards(name) for each, name in self._due)
