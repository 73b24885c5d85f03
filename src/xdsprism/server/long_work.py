"""Process large requests and responses of one call in slices, in the order in which they came.

A call has a `LongWork` only while there is some, or while its client has to wait because it asks too often (OPS-4).
While a job runs, further messages wait, and the transport is told to read no more. Responses that the job found are
encoded one by one, when the transport has room for the next.

    receive(message) -> queue -> job: decode, give to the stream -> rested: the transport polls
    poll             -> responses; one that takes long to encode becomes a job first
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

from ..core.model.events import EncodedResponse, Send
from ..core.model.steps import Steps
from .slicing import LONG_COUNT, Job, Slices

LONG_NAMES = 1024 * 1024  # characters of names in a response, above which it is encoded in steps


class Worker(Protocol):
    """The call that the work is for."""

    def reading(self, message: bytes) -> Steps[None]:
        """Take a message, in steps."""

    def encoding(self, send: Send) -> Steps[EncodedResponse]:
        """Encode a response, in steps."""

    def encoded(self, send: Send) -> EncodedResponse:
        """Encode a response at once."""

    def rested(self) -> None:
        """Go on: no job is running."""


class LongWork:
    """The job of a call that runs, and the messages and responses that wait."""

    __slots__ = ("_call", "_encoded", "_error", "_job", "_owner", "_sends", "_slices", "_timer", "_waiting")

    def __init__(self, call: Worker, slices: Slices, owner: str = "") -> None:
        """`owner`: the address of the client."""
        self._call = call
        self._owner = owner
        self._slices = slices
        self._job: Job | None = None
        self._error: Exception | None = None  # what the last job raised
        self._waiting: deque[bytes] = deque()  # messages of the client, undecoded
        self._sends: deque[Send] = deque()  # responses that the transport has not taken
        self._encoded: EncodedResponse | None = None  # the first of these, if a job encoded it
        self._timer: asyncio.TimerHandle | None = None  # while no message is processed (OPS-4)

    @property
    def is_busy(self) -> bool:
        """Whether a job is running."""
        return self._job is not None

    @property
    def is_paused(self) -> bool:
        """Whether messages wait until the client may ask again."""
        return self._timer is not None

    @property
    def is_quiet(self) -> bool:
        """Whether no job is running, and nothing is there to be written."""
        return self._job is None and not self._sends and self._error is None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do, so that the call needs no LongWork any more."""
        return self.is_quiet and not self.is_paused

    def receive(self, message: bytes) -> None:
        """Queue a message, and begin to process the queue unless it has to wait."""
        self._waiting.append(message)
        if not self.is_paused:
            self.begin()

    def pause(self, until: float) -> None:
        """Process no further message before that time (OPS-4). Responses go out meanwhile."""
        if self._timer is None and self._slices.later is not None:
            self._timer = self._slices.later(until, self._go_on)

    def _go_on(self) -> None:
        """Process the messages that came during the pause."""
        self._timer = None
        if self._waiting:
            self.begin()
        elif self._job is None:
            self._call.rested()

    def give(self, sends: Iterable[Send]) -> None:
        """Queue responses."""
        self._sends.extend(sends)

    def begin(self, work: Callable[[], Steps[None]] | None = None) -> None:
        """Begin a job with this work, followed by the messages that wait. If a job is running, do nothing."""
        if self._job is None:
            self._job = self._slices.begin(self._run(work), self._fail, owner=self._owner)

    def poll(self) -> Iterator[EncodedResponse]:
        """Yield encoded responses, up to one that takes long to encode. Raises what the last job raised."""
        self.check()
        while self._sends and self._job is None:
            send = self._sends[0]
            if self._encoded is None and is_long(send):
                self.begin(self._encode_first)
                return
            encoded, self._encoded = self._encoded, None
            self._sends.popleft()
            yield encoded if encoded is not None else self._call.encoded(send)
        if self._job is None:
            self._call.rested()

    def check(self) -> None:
        """Raise what the last job raised."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Abandon the job, and drop what waits. The job and its error refer to this object: keep no cycle of them."""
        if self._job is not None:
            self._job.abandon()
            self._job = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._error = None
        self._waiting.clear()
        self._sends.clear()

    def _run(self, work: Callable[[], Steps[None]] | None) -> Steps[None]:
        """Do the work of a job, then process the messages that came meanwhile."""
        if work is not None:
            yield from work()
        while self._waiting and self._timer is None:
            yield from self._call.reading(self._waiting.popleft())
            yield
        self._job = None
        self._call.rested()

    def _encode_first(self) -> Steps[None]:
        """Encode the first response, in steps."""
        self._encoded = yield from self._call.encoding(self._sends[0])

    def _fail(self, error: Exception) -> None:
        """Keep an exception for the next poll, which ends this call and no other (OPS-10)."""
        self._job = None
        self._error = error
        self._waiting.clear()
        self._call.rested()


def is_long(send: Send) -> bool:
    """Whether to encode this response in steps."""
    said = send.count, len(send.removed), len(send.withdrawn), len(send.errors), len(send.unresolved)
    if sum(said) > LONG_COUNT or sum(map(len, send.aliases)) > LONG_COUNT:
        return True
    # A client may ask for a few names of many megabytes.
    return sum(map(len, chain(send.removed, send.unresolved))) > LONG_NAMES
