"""`xdsprism watch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from . import output as out
from .asking import asking, query_of, title

if TYPE_CHECKING:
    from ..client.follow import Change
    from ..client.raw import Query

COLOURS = {"added": "green", "changed": "yellow", "removed": "red"}


@click.command()
@asking
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to watch.  [default: for ever]")
def watch(
    type_word: str,
    names: tuple[str, ...],
    server: str,
    params: dict[str, str],
    *,
    delta: bool,
    output: str,
    timeout: float | None,
) -> None:
    """Print resources of TYPE, and every change to them, until stopped.

    As `get`, but it stays: what is added or changed is printed with its contents, what is removed by its name. With
    -o json each change is one line. The exit status is 1 if the server ends the stream.

    \b
    Example:
      xdsprism watch rds main --server 127.0.0.1:18000 --param env=prod
    """  # noqa: D301
    import asyncio

    asyncio.run(_watch(server, query_of(type_word, names, params, delta=delta), output, timeout))


async def _watch(server: str, query: Query, output: str, seconds: float | None) -> None:
    import asyncio
    import signal
    from contextlib import suppress

    task = asyncio.current_task()
    assert task is not None  # noqa: S101
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with suppress(TimeoutError, asyncio.CancelledError):  # however it is stopped, that is its end
        async with asyncio.timeout(seconds):
            await _follow(server, query, output)


async def _follow(server: str, query: Query, output: str) -> None:
    from ..client.follow import Follower
    from ..client.raw import RawStream
    from .documents import name_in

    seen = Follower(query)
    async with RawStream(server, query, name_in) as stream:
        while True:
            update = await stream.receive()
            for change in seen.take(update):
                _print(query, change, output)
            await stream.acknowledge(update)


def _print(query: Query, change: Change, output: str) -> None:
    from ..core.expr import show
    from .documents import document

    name = title(query.type_url, change.name)
    if change.kind == "missing":
        out.note(f"{name} does not exist{f': {change.message}' if change.message else ''}")
        return
    kind = click.style(change.kind, fg=COLOURS[change.kind])
    contents = document(change.resource) if change.resource is not None else None
    if output == "name":
        click.echo(f"{kind} {name}")
    elif output == "wide":
        resource = change.resource
        variant = show(resource.constraint) if resource is not None and resource.constraint is not None else "-"
        version = resource.version if resource is not None and resource.version else "-"
        click.echo(f"{kind}{' ' * (9 - len(change.kind))}{name}   {variant}   {version}")
    elif output == "json":
        out.json_line({"change": change.kind, "resource": name, "contents": contents})
    else:
        click.echo(click.style(f"# {change.kind} {name}", fg=COLOURS[change.kind]))
        if contents is not None:
            out.as_yaml(contents)
