"""Nothing is left behind: no task, no entry, no complaint that asyncio would only have written to a log."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import xdsprism as xp
from tests.support.poller import of_the_past


@asynccontextmanager
async def sound() -> AsyncIterator[None]:
    """What is in here ends as it began.

    Fails for tasks that are still there, for "Task exception was never retrieved" and exceptions in callbacks, and for
    "coroutine was never awaited" and unclosed things, which Python says when they are collected.
    """
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    before = tasks()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
        await settled(before)
    left = tasks() - before
    assert not left, left
    complaints = [each for each in complaints if not of_the_past(each["message"], each.get("exception"))]
    assert not complaints, complaints
    grave = [each for each in caught if issubclass(each.category, RuntimeWarning | ResourceWarning)]
    assert not grave, [str(each.message) for each in grave]


def soundly(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """The whole of a test, for those that begin anew many times."""

    @wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        async with sound():
            await test(*args, **kwargs)

    return run


def tasks() -> set[asyncio.Task[Any]]:
    """All but those of gRPC's own server, which waits for its next call in a new task each time."""
    return {task for task in asyncio.all_tasks() if "aio/server.pyx" not in repr(task)}


async def settled(before: set[asyncio.Task[Any]]) -> None:
    """Tasks that were told to stop need some turns to do so."""
    for _ in range(100):
        if tasks() <= before:
            return
        await asyncio.sleep(0.001)


def remains(client: xp.Client) -> dict[str, Any]:
    """Everything that watches leave behind in a client, if anything."""
    subscriber = client.subscriber
    askings = [asking for upstream in subscriber._upstreams for asking in upstream.requests._builders.values()]
    return {
        "topics": dict(subscriber.cache.topics),
        "expiries": list(subscriber.cache._expiries._due),
        "facts": list(subscriber.facts),
        "entries": [entry for known in client._authorities.values() for entry in known.entries],
        "timers": [entry for upstream in subscriber._upstreams for entry in upstream.pending.timers],
        "wants": [key for upstream in subscriber._upstreams for keys in upstream._wants.values() for key in keys],
        "answers": [answer for asking in askings for answer in asking._answers],
        "unsaid": [key for asking in askings for key in (*asking._wanted, *asking._unsent, *asking._dropped)],
        "behind": set(client.backpressure._unread),
        "impatient": set(client.backpressure._awaiting_first),
        "deadline": subscriber.deadline(),
    }


NOTHING = {
    "topics": {},
    "expiries": [],
    "facts": [],
    "entries": [],
    "timers": [],
    "wants": [],
    "answers": [],
    "unsaid": [],
    "behind": set(),
    "impatient": set(),
    "deadline": None,
}
