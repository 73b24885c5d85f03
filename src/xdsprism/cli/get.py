"""`xdsprism get`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from . import output as out
from .asking import asking, query_of, title

if TYPE_CHECKING:
    from ..client.follow import Follower
    from ..client.raw import Query, RawStream, Received

QUIET = 1.0  # seconds without news after which a list of a server that does not say so counts as complete


@click.command()
@asking
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True, help="Seconds to wait."
)
def get(
    type_word: str,
    names: tuple[str, ...],
    server: str,
    params: dict[str, str],
    *,
    delta: bool,
    output: str,
    timeout: float,
) -> None:
    """Ask a server for resources of TYPE, all of them or those called NAME, and print them.

    TYPE is one of lds, rds, srds, vhds, cds, eds, sds, rtds, ecds, a message's full name or a type URL. What is
    printed as YAML or JSON can be served again. Exit status 1: one of the names does not exist.

    \b
    Example:
      xdsprism get rds main --server 127.0.0.1:18000 --param env=prod
    """  # noqa: D301
    import asyncio

    query = query_of(type_word, names, params, delta=delta)
    found = asyncio.run(_ask(server, query, timeout))
    _print(query, list(found.held.values()), output)
    for name, message in found.missing.items():
        out.note(f"{title(query.type_url, name)} does not exist{f': {message}' if message else ''}")
    for name in found.unanswered:
        hint = "" if delta else " (it may not exist: --delta tells at once)"
        out.note(f"{title(query.type_url, name)}: no answer within {timeout:g} s{hint}")
    if not names and not found.held:
        out.note(f"no resources{'' if found.began else f': no answer within {timeout:g} s'}")
    if found.missing or found.unanswered or not (names or found.began):
        click.get_current_context().exit(1)


async def _ask(server: str, query: Query, seconds: float) -> Follower:
    import asyncio
    from contextlib import suppress

    from ..client.follow import Follower
    from ..client.raw import RawStream
    from .documents import name_in

    found = Follower(query)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), RawStream(server, query, name_in) as stream:
            await _collect(stream, found)
    return found


async def _collect(stream: RawStream, found: Follower) -> None:
    import asyncio

    while not found.complete:
        async with asyncio.timeout(QUIET if found.began and not found.unanswered else None):
            update = await stream.receive()
        found.take(update)
        await stream.acknowledge(update, found.subscribe_next())


def _print(query: Query, resources: list[Received], output: str) -> None:
    from ..core.expr import show
    from .documents import document

    if output == "name":
        for resource in resources:
            click.echo(title(resource.type_url, resource.name))
    elif output == "wide":
        rows = [
            [
                title(resource.type_url, resource.name),
                show(resource.constraint) if resource.constraint is not None else "-",
                resource.version or "-",
                str(len(resource.body)),
            ]
            for resource in resources
        ]
        out.table(["RESOURCE", "VARIANT", "VERSION", "BYTES"], rows)
    elif output == "yaml":
        out.as_yaml(*[document(resource) for resource in resources])
    elif len(query.names) == 1 and resources:
        out.as_json(document(resources[0]))
    else:
        out.as_json({"resources": [document(resource) for resource in resources]})
