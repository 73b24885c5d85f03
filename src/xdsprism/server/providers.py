"""Runs providers: one task for each call, with a time limit. core/provide/ decides which calls there are."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import timedelta

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from ..core.codec.server_side import name_of, variant_of
from ..core.model.constraints import Constraint
from ..core.model.facts import Ambiguous
from ..core.model.types import Origin, Variant
from ..core.provide.providing import Job, Provided, Providing
from ..core.provide.recorded import RecordedParams
from ..errors import UsageError, XdsError
from ..messages.protos import find_message, type_name
from ..observe.quota import Kind, Quota
from .hub import Hub

log = logging.getLogger("xdsprism.server")

LONGEST = 500  # characters of an error; clients are told


class Providers:
    """Runs what the providers of a store are to be asked for, as long as a server is there."""

    def __init__(self, providing: Providing, hub: Hub) -> None:
        self._providing = providing
        self._hub = hub
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake = hub.turn
        self._quota = Quota()  # of lines: whoever scans hosts makes a provider fail for each
        providing.idle = hub.settings.idle_results
        providing.awake.append(self._wake)
        hub.chores.append(self._turn)

    def close(self) -> None:
        """Begin nothing more. May be said twice."""
        if self._wake in self._providing.awake:
            self._providing.awake.remove(self._wake)
            self._hub.chores.remove(self._turn)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self) -> None:
        """End every call."""
        self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        for job in self._providing.turn(loop.time()):
            task = loop.create_task(self._run(job), name=f"xdsprism {job.provider.label}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._tell()
        self._be_woken(loop, self._providing.deadline())

    def _be_woken(self, loop: asyncio.AbstractEventLoop, due: float | None) -> None:
        if self._timer is not None:
            if self._timer.when() == due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._hub.turn) if due is not None else None

    def _tell(self) -> None:
        for fact in self._providing.facts:
            if isinstance(fact, Ambiguous) and fact.first:  # DESIGN 6.10
                text = "the provider of %r gave two answers to one question: used is that for `%s`, not that for `%s`"
                log.warning(text, fact.name, fact.kept, fact.other)
        for (_, label), omitted in self._quota.settle_all(_now()):
            log.warning("%d more lines about %s were left out", omitted, label)
        self._hub.facts += self._providing.facts
        self._providing.facts.clear()

    async def _run(self, job: Job) -> None:
        try:
            whose, result = await _ask(job)
            variant = self._variant(job, result.message, whose)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                self._providing.dropped(job)
                raise
            self._failed(job, error)  # something else was cancelled, that it waited for
        except Exception as error:  # noqa: BLE001 # whatever a program of somebody else's may raise
            self._failed(job, error)
        else:
            ttl = result.ttl.total_seconds() if isinstance(result.ttl, timedelta) else result.ttl
            news = self._providing.made(job, whose, variant, _now(), ttl if ttl is not None else job.provider.ttl)
            if news and self._quota.allows(("", job.provider.label), Kind.PRESENCE, _now()):
                log.info("%s works again for %r", job.provider.label, job.name)

    def _failed(self, job: Job, error: BaseException) -> None:
        message = _text(error)
        news = self._providing.failed(job, message, _now(), random.random())  # noqa: S311 # jitter
        if news and self._quota.allows(("", job.provider.label), Kind.TROUBLE, _now()):
            trace = None if isinstance(error, (XdsError, _Late)) else error
            log.warning("%s failed for %r: %s", job.provider.label, job.name, message, exc_info=trace)

    def _variant(self, job: Job, message: object, whose: Constraint) -> Variant | None:
        """Check it as strictly as what a transaction puts; raises UsageError and ConfigError."""
        if message is None:
            return None
        if not isinstance(message, Message):
            raise UsageError(f"a provider returns a message or None, not {type(message).__name__}")
        name = self._providing.name_for(job, _inner(message))
        variant = variant_of(message, name=name, constraint=whose, origin=Origin(job.provider.label))
        if variant.type_url != job.provider.type_url:
            made, asked = (url.rpartition("/")[2] for url in (variant.type_url, job.provider.type_url))
            raise UsageError(f"it was asked for a {asked} and made a {made}")
        self._providing.judge(variant)
        return variant


class _Late(Exception):
    """A call took too long."""


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _ask(job: Job) -> tuple[Constraint, Provided]:
    """What the provider says, and whom it is for."""
    record = job.record()
    try:
        async with asyncio.timeout(job.provider.timeout) as limit:
            result = await job.provider.call(job.name, RecordedParams(record))
    except TimeoutError as error:
        if not limit.expired():
            raise  # its own
        raise _Late(f"no answer within {job.provider.timeout:g} seconds") from error
    finally:
        whose = record.close()
    if record.undeclared is not None:
        record.exists(record.undeclared)  # raises: an answer that goes by more than it says is nobody's
    return whose, result if isinstance(result, Provided) else Provided(result)


def _inner(message: Message) -> str | None:
    if not isinstance(message, Any):
        return name_of(message)
    kind = find_message(type_name(message.type_url))
    try:
        return name_of(kind.FromString(message.value)) if kind is not None else None
    except DecodeError:  # told as a fault
        return None


def _text(error: BaseException) -> str:
    text = str(error) if isinstance(error, (XdsError, _Late)) else f"{type(error).__name__}: {error}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
