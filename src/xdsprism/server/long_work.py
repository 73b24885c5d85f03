"""Long work of one call: a large request, a large answer, taken in slices (slicing.py) in the order in which they came.

A call has a `LongWork` only while there is some. As long as that is busy, what comes in waits, and the transport is
told to hold it back; what there is to say is said when it is known, each response encoded when there is room for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ..core.model.events import Send
from ..core.model.steps import Steps
from .slicing import LONG_COUNT, Job, Slices


class Worker(Protocol):
    """The call whose work it is."""

    def reading(self, message: bytes) -> Steps[None]:
        """Take a message in, in steps."""

    def encoding(self, send: Send) -> Steps[bytes]:
        """Encode a response, in steps."""

    def encode(self, send: Send) -> bytes:
        """Encode it at once."""

    def rested(self) -> None:
        """All that is under way is done."""


class LongWork:
    """What a call has in work, and what waits for that."""

    __slots__ = ("_call", "_encoded", "_error", "_job", "_sends", "_slices", "_waiting")

    def __init__(self, call: Worker, slices: Slices) -> None:
        self._call = call
        self._slices = slices
        self._job: Job | None = None
        self._error: Exception | None = None  # what the last job raised
        self._waiting: deque[bytes] = deque()  # messages, as they came
        self._sends: deque[Send] = deque()  # responses that are not given yet
        self._encoded: bytes | None = None  # the first of these

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    @property
    def is_over(self) -> bool:
        return self._job is None and not self._sends and self._error is None

    def receive(self, message: bytes) -> None:
        self._waiting.append(message)
        self.begin()

    def give(self, sends: Iterable[Send]) -> None:
        """These are to be said."""
        self._sends.extend(sends)

    def begin(self, work: Callable[[], Steps[None]] | None = None) -> None:
        """Do this in slices, unless something else is under way, and then take in what came meanwhile."""
        if self._job is None:
            self._job = self._slices.begin(self._run(work), self._fail)

    def poll(self) -> Iterator[bytes]:
        """Responses that are known; it ends before one that takes long to encode. Raises what the work raised."""
        self.check()
        while self._sends and self._job is None:
            send = self._sends[0]
            if self._encoded is None and is_long(send):
                self.begin(self._encode_first)
                return
            encoded, self._encoded = self._encoded, None
            self._sends.popleft()
            yield encoded if encoded is not None else self._call.encode(send)
        if self._job is None:
            self._call.rested()

    def check(self) -> None:
        """Raise what the work raised."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Abandon it."""
        if self._job is not None:
            self._job.abandon()
        self._waiting.clear()
        self._sends.clear()

    def _run(self, work: Callable[[], Steps[None]] | None) -> Steps[None]:
        if work is not None:
            yield from work()
        while self._waiting:
            yield from self._call.reading(self._waiting.popleft())
            yield
        self._job = None
        self._call.rested()

    def _encode_first(self) -> Steps[None]:
        self._encoded = yield from self._call.encoding(self._sends[0])

    def _fail(self, error: Exception) -> None:
        """OPS-10: it ends this call, and no other; the transport hears of it with its next poll."""
        self._job = None
        self._error = error
        self._waiting.clear()
        self._call.rested()


def is_long(send: Send) -> bool:
    """Whether it is to be encoded in steps."""
    said = send.count, len(send.removed), len(send.withdrawn), len(send.errors), len(send.unresolved)
    return sum(said) > LONG_COUNT or sum(map(len, send.aliases)) > LONG_COUNT
