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
    """Everything that watches leave behind in a client, if anything.

    It shows in memory only, after a long time: hence this looks inside.
    """
    subscriber, backpressure = client.subscriber, client.backpressure
    authorities = client._authorities.values()  # noqa: SLF001 # see above
    upstreams = [upstream for known in authorities for upstream in known.servers]
    askings = [each for upstream in upstreams for each in upstream.requests._builders.values()]  # noqa: SLF001 # see above
    return {
        "topics": dict(subscriber.cache.topics),
        "expiries": list(subscriber.cache._expiries._due),  # noqa: SLF001 # see above
        "facts": list(subscriber.facts),
        "entries": [entry for known in authorities for entry in known.entries],
        "timers": [entry for upstream in upstreams for entry in upstream.pending.timers],
        "wants": [key for each in upstreams for keys in each._wants.values() for key in keys],  # noqa: SLF001 # see above
        "answers": [answer for asking in askings for answer in asking._answers],  # noqa: SLF001 # see above
        "unsaid": [key for each in askings for key in (*each.keys.wanted, *each.keys.unsent, *each.keys.dropped)],
        "behind": set(backpressure._unread),  # noqa: SLF001 # see above
        "impatient": set(backpressure._awaiting_first),  # noqa: SLF001 # see above
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
