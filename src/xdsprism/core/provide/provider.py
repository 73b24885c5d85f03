"""A provider, its result, and the calls of providers that wait or run."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ...argument_types import expect
from ...errors import UsageError
from ..model.types import Params, TypeUrl
from .recorded import Record

TIMEOUT = 5.0  # seconds for one call; Envoy holds a request for an unknown host for 15
AT_ONCE = 64  # calls of one provider that run at the same time

Subject = tuple[TypeUrl, str]


@dataclass(frozen=True, slots=True)
class Provider:
    """A function that makes the resources of one type, with its limits."""

    type_url: TypeUrl
    call: Callable[[str, Params], Awaitable[object]]
    keys: tuple[str, ...] = ()  # the keys of params that it may read
    label: str = "provider"
    timeout: float = TIMEOUT
    ttl: float | None = None  # seconds for which a result is good; None: until it is invalidated
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        if not all(isinstance(key, str) and key for key in self.keys) or len(set(self.keys)) != len(self.keys):
            raise UsageError(f"{self.label}: keys must be distinct names of parameters, not {list(self.keys)!r}")
        if self.timeout <= 0 or (self.ttl is not None and self.ttl <= 0):
            raise UsageError(f"{self.label}: timeout and ttl are seconds, more than 0")
        if self.at_once < 1:
            raise UsageError(f"{self.label}: at_once, the number of calls at the same time, must be at least 1")


@dataclass(frozen=True, slots=True)
class Provided:
    """A provider's result with a TTL.

    A provider may return the message alone. `ttl`: for how many seconds the result is good.
    """

    message: Any  # None: the resource does not exist
    ttl: float | timedelta | None = None

    def __post_init__(self) -> None:
        expect(self.ttl, float, timedelta, type(None))


@dataclass(eq=False, slots=True)
class ProviderJob:
    """One call of a provider for one name, on behalf of all clients of one class."""

    provider: Provider
    name: str
    category: Params
    started: float = 0.0
    generation: int = 0  # of the topic, when the call started

    @property
    def subject(self) -> Subject:
        """The type and name that the call is for."""
        return self.provider.type_url, self.name

    def record(self) -> Record:
        """Make the record of what this call reads of its params."""
        return Record(self.provider.label, self.provider.keys, self.category)


class ProviderJobQueues:
    """The calls that wait or run, by provider.

    For one name and class there is one call at a time, and one provider has at most `at_once` calls that run.
    """

    def __init__(self) -> None:
        self._waiting: dict[TypeUrl, deque[ProviderJob]] = {}
        self._running: dict[TypeUrl, int] = {}
        self._open: dict[tuple[Subject, Params], ProviderJob] = {}  # waiting or running
        self._busy: dict[Subject, int] = {}  # how many of these each name has

    def add_provider(self, type_url: TypeUrl) -> None:
        """Make the queue of a provider."""
        self._waiting[type_url] = deque()
        self._running[type_url] = 0

    def has(self, subject: Subject, category: Params) -> bool:
        """Whether a call for this name and class waits or runs."""
        return (subject, category) in self._open

    def is_busy(self, subject: Subject) -> bool:
        """Whether any call for this name waits or runs."""
        return subject in self._busy

    def add(self, job: ProviderJob) -> None:
        """Queue a call."""
        self._open[job.subject, job.category] = job
        self._busy[job.subject] = self._busy.get(job.subject, 0) + 1
        self._waiting[job.provider.type_url].append(job)

    def startable(self, provider: Provider) -> Iterator[ProviderJob]:
        """Yield the calls of a provider that may run now; the caller passes each to `start` or `discard`."""
        waiting = self._waiting[provider.type_url]
        while waiting and self._running[provider.type_url] < provider.at_once:
            yield waiting.popleft()

    def start(self, job: ProviderJob) -> None:
        """Count a call that runs from now on."""
        self._running[job.provider.type_url] += 1

    def end(self, job: ProviderJob) -> None:
        """Forget a call that ran."""
        self._running[job.provider.type_url] -= 1
        self.discard(job)

    def discard(self, job: ProviderJob) -> None:
        """Forget a call that neither waits nor runs any more."""
        del self._open[job.subject, job.category]
        self._busy[job.subject] -= 1
        if not self._busy[job.subject]:
            del self._busy[job.subject]
