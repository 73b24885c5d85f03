"""`xdsprism watch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from . import output as out
from .asking import Happenings, Question, asking, complaint, title

if TYPE_CHECKING:
    import asyncio

    from ..client.updates import Update
    from ..core.model.types import Variant
    from ..errors import WatchError

COLOURS = {"added": "green", "changed": "yellow", "removed": "red"}
SETTLED = 1.0  # seconds that a stream must last before it counts as back again


@click.command()
@asking
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to watch.  [default: for ever]")
def watch(question: Question, *, output: str, timeout: float | None) -> None:
    """Print resources of TYPE, and every change to them, until stopped.

    As `get`, but it stays: what is added or changed is printed with its contents, what is removed by its name. With
    -o json each change is one line. A server that goes away is tried again until it is back; what changed meanwhile is
    printed then. The exit status is 0 when it is stopped, by a signal or by --timeout, and 1 if the server can't be
    reached, or refuses, to begin with.

    \b
    Example:
      xdsprism watch rds main --server 127.0.0.1:18000 --param env=prod
      xdsprism watch cds --bootstrap bootstrap.json -o name
    """  # noqa: D301
    import asyncio

    asyncio.run(_watch(question, output, timeout))


async def _watch(question: Question, output: str, seconds: float | None) -> None:
    import asyncio
    import signal
    from contextlib import suppress

    task = asyncio.current_task()
    assert task is not None  # noqa: S101
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with suppress(TimeoutError, asyncio.CancelledError):  # however it is stopped, that is its end
        async with asyncio.timeout(seconds):
            await _follow(question, output)


async def _follow(question: Question, output: str) -> None:
    import asyncio

    happenings = _Announced(asyncio.get_running_loop())
    shown = Shown()
    async with question.client() as client:
        client.readers[:] = [happenings]
        async with client.watch(question.type_url, question.names or "*", params=question.params) as updates:
            async for update in updates:
                trouble = update.error or update.ambient_error
                if trouble is not None and happenings.is_outage(trouble):
                    if happenings.is_first(trouble):
                        raise trouble
                elif trouble is not None:
                    _print_trouble(update, trouble, shown, output)
                elif update.variant is not None:
                    for kind, name, variant in shown.take(update.name, update.variant):
                        _print_change(kind, title(update.type_url, name), variant, output)


class _Announced(Happenings):
    """Says on stderr when a server is gone, and when it is back."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop.time)
        self._later: Callable[..., asyncio.TimerHandle] = loop.call_later
        self._away: dict[str, asyncio.TimerHandle | None] = {}

    def lost(self, server: str, error: str) -> None:
        timer = self._away.get(server)
        if timer is not None:
            timer.cancel()
        if self.is_known(server) and server not in self._away:
            self._away[server] = None
            out.note(f"lost: {error} (trying again)")

    def reached(self, server: str) -> None:
        if server in self._away:
            self._away[server] = self._later(SETTLED, self._back, server)

    def refused(self, reasons: list[str]) -> None:
        for reason in reasons:
            out.note(reason)

    def _back(self, server: str) -> None:
        del self._away[server]
        out.note(f"back again: {server}")


class Shown:
    """What is printed: by its own name and once, although it may have been asked for by several (VHD-5)."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}  # the names of what came, by what was asked for
        self._held: dict[str, tuple[Variant, set[str]]] = {}  # what came, and what it was asked for by

    def take(self, asked: str, variant: Variant) -> Iterator[tuple[str, str, Variant | None]]:
        """What there is to print, now that this has come for that."""
        if self._own.get(asked, variant.name) != variant.name:  # VHD-12
            gone = self.drop(asked)
            if gone is not None:
                yield "removed", gone, None
        self._own[asked] = variant.name
        known, strings = self._held.get(variant.name, (None, set()))
        self._held[variant.name] = variant, strings | {asked}
        if known is None:
            yield "added", variant.name, variant
        elif known is not variant and (asked in strings or not _says_the_same(known, variant)):
            yield "changed", variant.name, variant

    def drop(self, asked: str) -> str | None:
        """Nothing is there any more by this name; what that was, if nobody has it now."""
        own = self._own.pop(asked, None)
        if own is None:
            return None
        strings = self._held[own][1]
        strings.discard(asked)
        if strings:
            return None
        del self._held[own]
        return own


def _says_the_same(one: Variant, other: Variant) -> bool:
    return (one.body, one.constraint) == (other.body, other.constraint)


def _print_trouble(update: Update, error: WatchError, shown: Shown, output: str) -> None:
    """It is gone, or there is none to use; or what is printed stays, and there is something wrong with a newer one."""
    gone = shown.drop(update.name) if update.error is not None else None
    if gone is not None:
        _print_change("removed", title(update.type_url, gone), None, output)
    if gone is None or error.status != "NOT_FOUND":
        out.note(complaint(update.type_url, update.name, error))


def _print_change(kind: str, name: str, variant: Variant | None, output: str) -> None:
    from .documents import aliases, columns, document

    coloured = click.style(kind, fg=COLOURS[kind])
    if output == "name":
        click.echo(f"{coloured} {name}")
    elif output == "wide":
        rest = columns(variant) if variant is not None else ("-", "-")
        also = [aliases(variant)] if variant is not None and variant.aliases else []
        click.echo(out.GAP.join([f"{coloured}{' ' * (9 - len(kind))}{name}", *rest, *also]))
    elif output == "json":
        out.json_line({"change": kind, "resource": name, "contents": document(variant) if variant else None})
    else:
        click.echo(click.style(f"# {kind} {name}", fg=COLOURS[kind]))
        if variant is not None:
            out.as_yaml(document(variant))
