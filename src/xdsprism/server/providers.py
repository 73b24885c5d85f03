"""Runs the calls of resource providers, each in a task with a timeout; core/provide/ decides which to make."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import timedelta

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from ..core.codec.resources import name_of, variant_of
from ..core.model.constraints import Constraint
from ..core.model.facts import Ambiguous
from ..core.model.types import Origin, Variant
from ..core.provide.provider import Provided, ProviderJob
from ..core.provide.providing import Providing
from ..core.provide.recorded import recorded_params
from ..errors import UsageError, XdsError
from ..messages.protos import find_message, type_name
from ..observe.quota import Kind, Quota
from .hub import Hub

log = logging.getLogger("xdsprism.server")

LONGEST = 500  # characters of an error that clients are sent


class Providers:
    """Makes the calls that a store's providers are due for, while its server runs."""

    def __init__(self, providing: Providing, hub: Hub) -> None:
        self._providing = providing
        self._hub = hub
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0  # uvloop's handle does not say for when it is, if that is now
        self._quota = Quota()  # of log lines: a client that scans hosts can make a provider fail for each
        providing.idle = hub.settings.idle_results
        providing.awake.append(hub.turn)
        hub.chores.append(self._turn)

    def close(self) -> None:
        """Begin no more calls. Idempotent."""
        if self._hub.turn in self._providing.awake:
            self._providing.awake.remove(self._hub.turn)
            self._hub.chores.remove(self._turn)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self) -> None:
        """Cancel every call, and wait for their tasks."""
        self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _turn(self) -> None:
        """Start the calls that are due, in each turn of the hub."""
        loop = asyncio.get_running_loop()
        for job in self._providing.turn(loop.time()):
            task = loop.create_task(self._run(job), name=f"xdsprism {job.provider.label}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._report()
        self._be_woken(loop, self._providing.deadline())

    def _be_woken(self, loop: asyncio.AbstractEventLoop, due: float | None) -> None:
        """Set the timer for the next turn in which a call is due."""
        if self._timer is not None:
            if self._timer_at == due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = loop.call_at(due, self._hub.turn)
            self._timer_at = due

    def _report(self) -> None:
        """Log ambiguous answers, and pass facts to the hub."""
        for fact in self._providing.facts:
            if isinstance(fact, Ambiguous) and fact.first:  # DESIGN 6.10
                text = "the provider of %r returned two variants for the same params: `%s` is used, `%s` is not"
                log.warning(text, fact.name, fact.kept, fact.other)
        for (_, label), omitted in self._quota.take_all_omitted(_now()):
            log.warning("%d more lines about %s were omitted", omitted, label)
        self._hub.facts += self._providing.facts
        self._providing.facts.clear()

    async def _run(self, job: ProviderJob) -> None:
        """Make one call, and hand its result or its error to `Providing`."""
        try:
            whose, result = await _ask(job)
            variant = self._variant(job, result.message, whose)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                self._providing.dropped(job)
                raise
            self._failed(job, error)  # something that the provider awaited was cancelled, not this task
        except Exception as error:  # noqa: BLE001 # a provider is the user's code and may raise anything
            self._failed(job, error)
        else:
            ttl = result.ttl.total_seconds() if isinstance(result.ttl, timedelta) else result.ttl
            news = self._providing.made(job, whose, variant, _now(), ttl if ttl is not None else job.provider.ttl)
            if news and self._quota.allows(("", job.provider.label), Kind.PRESENCE, _now()):
                log.info("%s works again for %r", job.provider.label, job.name)

    def _failed(self, job: ProviderJob, error: BaseException) -> None:
        """Note the failure of a call, and log it if it is new."""
        message = _text(error)
        news = self._providing.failed(job, message, _now(), random.random())  # noqa: S311 # jitter
        if news and self._quota.allows(("", job.provider.label), Kind.PROBLEM, _now()):
            trace = None if isinstance(error, (XdsError, _Late)) else error
            log.warning("%s failed for %r: %s", job.provider.label, job.name, message, exc_info=trace)

    def _variant(self, job: ProviderJob, message: object, whose: Constraint) -> Variant | None:
        """Make a variant of the provider's message, checked like a transaction. Raises UsageError and ConfigError."""
        if message is None:
            return None
        if not isinstance(message, Message):
            raise UsageError(f"a provider returns a message or None, not {type(message).__name__}")
        name = self._providing.name_for(job, _inner(message))
        variant = variant_of(message, name=name, constraint=whose, origin=Origin(job.provider.label))
        if variant.type_url != job.provider.type_url:
            made, asked = (url.rpartition("/")[2] for url in (variant.type_url, job.provider.type_url))
            raise UsageError(f"it must return a {asked}, and returned a {made}")
        self._providing.judge(variant)
        return variant


class _Late(Exception):
    """A provider did not answer within its timeout."""


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _ask(job: ProviderJob) -> tuple[Constraint, Provided]:
    """Call the provider. Return its result, with the constraint on the parameters that it looked at."""
    record = job.record()
    try:
        async with asyncio.timeout(job.provider.timeout) as limit:
            result = await job.provider.call(job.name, recorded_params(record))
    except TimeoutError as error:
        if not limit.expired():
            raise  # the provider's own
        raise _Late(f"no answer within {job.provider.timeout:g} seconds") from error
    finally:
        whose = record.close()
    if record.undeclared is not None:
        record.exists(record.undeclared)  # raises: the result depends on a parameter that the provider did not declare
    return whose, result if isinstance(result, Provided) else Provided(result)


def _inner(message: Message) -> str | None:
    """Return the name inside a message, which may be packed in an Any."""
    if not isinstance(message, Any):
        return name_of(message)
    kind = find_message(type_name(message.type_url))
    try:
        return name_of(kind.FromString(message.value)) if kind is not None else None
    except DecodeError:  # `_variant` reports it as a problem of the message
        return None


def _text(error: BaseException) -> str:
    text = str(error) if isinstance(error, (XdsError, _Late)) else f"{type(error).__name__}: {error}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
