"""`xdsprism watch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from ..printable import printable
from . import output as out
from .asking import Question, StreamOutcomes, asking, describe_error, title

if TYPE_CHECKING:
    import asyncio

    from ..client.updates import Update
    from ..core.model.types import Variant
    from ..errors import WatchError
    from .documents import Documents

COLOURS = {"added": "green", "changed": "yellow", "removed": "red"}
SETTLED = 1.0  # seconds that a stream must last before it counts as back again


@click.command(short_help="Ask an xDS server for resources, and print every change.")
@asking
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Seconds to watch.  [default: until stopped]",
)
def watch(question: Question, *, output: str, timeout: float | None) -> None:
    """Print resources of TYPE, and every change to them, until stopped.

    Takes the arguments of `get`. Prints added and changed resources with their contents, removed ones by name; with
    -o json one line for each change. If the server is lost, the command reconnects and prints what changed meanwhile.
    Exit status: 0 if it is stopped by a signal or by --timeout, 1 if the server can't be reached, or refuses, at first.

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
    with suppress(TimeoutError, asyncio.CancelledError):  # being stopped is its normal end
        async with asyncio.timeout(seconds):
            await _follow(question, output)


async def _follow(question: Question, output: str) -> None:
    import asyncio

    from .documents import Documents

    outcomes = _AnnouncedOutcomes(asyncio.get_running_loop())
    document = Documents(secrets=question.secrets)
    shown = Shown()
    async with question.client() as client:
        client.readers[:] = [outcomes]
        async with client.watch(question.type_url, question.names or "*", params=question.params) as updates:
            async for update in updates:
                error = update.error or update.ambient_error
                if error is not None and outcomes.is_outage(error):
                    if outcomes.is_first(error):
                        raise error
                elif error is not None:
                    _print_error(update, error, shown, output, document)
                elif update.variant is not None:
                    for kind, name, variant in shown.update(update.name, update.variant):
                        _print_change(kind, title(update.type_url, name), variant, output, document)


class _AnnouncedOutcomes(StreamOutcomes):
    """Says on stderr when a server is lost, and when it is back."""

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
    """The resources that were printed, once each and by their own names: several aliases may lead to one (VHD-5)."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}  # asked name -> the resource's own name
        self._held: dict[
            str, tuple[Variant, set[str]]
        ] = {}  # by own name: the resource, and the names it was asked for by

    def update(self, asked: str, variant: Variant) -> Iterator[tuple[str, str, Variant | None]]:
        """Yield the changes to print, now that `variant` is the answer to `asked`."""
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
        """Forget the answer to `asked`. Returns the resource's own name if no other asked name leads to it."""
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


def _print_error(update: Update, error: WatchError, shown: Shown, output: str, document: Documents) -> None:
    """Print a removal, or why a resource can't be used or updated."""
    gone = shown.drop(update.name) if update.error is not None else None
    if gone is not None:
        _print_change("removed", title(update.type_url, gone), None, output, document)
    if gone is None or error.status != "NOT_FOUND":
        out.note(describe_error(update.type_url, update.name, error))


def _print_change(kind: str, name: str, variant: Variant | None, output: str, document: Documents) -> None:
    from .documents import aliases, columns

    coloured, shown = click.style(kind, fg=COLOURS[kind]), printable(name)
    if output == "name":
        click.echo(f"{coloured} {shown}")
    elif output == "wide":
        rest = columns(variant) if variant is not None else ("-", "-")
        also = [aliases(variant)] if variant is not None and variant.aliases else []
        click.echo(out.GAP.join([f"{coloured}{' ' * (9 - len(kind))}{shown}", *map(printable, (*rest, *also))]))
    elif output == "json":
        out.json_line({"change": kind, "resource": name, "contents": document(variant) if variant else None})
    else:
        click.echo(click.style(f"# {kind} {shown}", fg=COLOURS[kind]))
        if variant is not None:
            out.as_yaml(document(variant))
    document.tell()
