"""Completes types and names in a shell (bash, zsh, fish), by click's mechanism. docs/cli.md says how to switch it on.

A shell waits for the answer while somebody types, so everything ends after `SECONDS`, and whatever goes wrong completes
to nothing: an error message would end up in the middle of a command line.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any

import click
from click.shell_completion import CompletionItem

SECONDS = 1.0  # for all of a completion
ANSWER = 0.7  # seconds that a server has for its answer
MOST = 200  # names that are offered

Items = list[CompletionItem]


class OutOfTimeError(KeyboardInterrupt):
    """The time for a completion is over. An event loop passes this on as it does an interrupt, whatever it is doing."""


def complete_type(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Offer the first word of each type, or the others that begin with what was typed."""
    from ..core.model.types import PREFIX, TYPES

    typed = incomplete.lower()
    labels = [CompletionItem(spec.label, help=spec.url.removeprefix(PREFIX)) for spec in TYPES]
    found = [item for item in labels if item.value.startswith(typed)]
    return found or [CompletionItem(word) for spec in TYPES for word in spec.words if word.startswith(typed)]


def complete_asked_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Offer the names that the server of --server or --bootstrap lists, for `get` and `watch`."""
    taken = set(ctx.params.get("names") or ())
    return [each for each in _items(lambda: _listed(ctx.params), incomplete) if each.value not in taken]


def complete_known_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Offer the names in CONFIG, if it is on the command line already, or those of --admin."""
    return _items(lambda: _known(ctx.params, incomplete), incomplete)


def _items(names: Callable[[], list[str]], incomplete: str) -> Items:
    """Make items of the names that begin with what was typed; of none if anything goes wrong."""
    try:
        with _deadline():
            found = [name for name in names() if name.startswith(incomplete) and name.isprintable()]
    except (Exception, SystemExit, OutOfTimeError):  # noqa: BLE001 # see the head of this file
        return []
    return [CompletionItem(name) for name in sorted(found)[:MOST]]


@contextmanager
def _deadline() -> Iterator[None]:
    """Raise OutOfTimeError in the block when it has taken too long; if it then does not end, end the process."""
    alarms = count()

    def over(_: int, __: FrameType | None) -> None:
        if next(alarms):
            os._exit(1)
        raise OutOfTimeError

    if not hasattr(signal, "setitimer"):  # where nothing could end it
        raise OutOfTimeError
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _listed(given: dict[str, Any]) -> list[str]:
    """Ask a server for all resources of the type."""
    import asyncio

    from ..core.model.type_names import resolve_type
    from .asking import Question
    from .server_access import ServerAccess

    names = ("tls", "ca", "cert", "key", "node_id")
    access = ServerAccess(**{name: given[name] for name in names if given.get(name) is not None})
    question = Question(
        resolve_type(given["type_word"]),
        (),
        given.get("params") or None,
        given.get("server"),
        given.get("bootstrap"),
        given.get("delta"),
        given.get("transport"),
        access=access,
    )

    async def ask() -> list[str]:
        async with question.client() as client:
            client.readers.clear()  # no log lines
            found = await client.list(question.type_url, params=question.params, timeout=ANSWER)
            return [update.name for update in found]

    return asyncio.run(ask())


def _known(given: dict[str, Any], incomplete: str) -> list[str]:
    from ..core.model.type_names import resolve_type

    type_url = resolve_type(given["type_word"])
    config = _config_typed(given)
    if config:
        from .loading import load

        store, _ = load(tuple(config), "off")
        return [name for name, _ in store.table(type_url)]
    from urllib.parse import urlencode

    from .admin_port import AdminClient

    names = ("ca", "cert", "key", "token_file")
    admin = AdminClient(given["admin"], *[given.get(f"admin_{name}") for name in names])
    query = urlencode({"type": type_url, "search": incomplete, "limit": MOST})
    _, page = admin.request(f"/api/resources?{query}")
    return [row["name"] for row in page["resources"]]


def _config_typed(given: dict[str, Any]) -> list[str]:
    """Return the paths on the command line: before the cursor, or behind it where the shell says what is there."""
    config = list(given.get("config") or ())
    if config:
        return config
    try:
        words = shlex.split(os.environ.get("COMP_WORDS", ""))
    except ValueError:
        return []
    return [word for word in words[1:] if ("/" in word or "." in word) and os.path.exists(word)]  # noqa: PTH110
