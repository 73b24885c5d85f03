"""`xdsprism bench`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..core.model.type_names import resolve_type
from ..errors import UsageError, WatchError
from . import output as out
from .asking import title, typed_first
from .completion import complete_type
from .options import Address, Seconds, params_option

if TYPE_CHECKING:
    from ..client.fleet import Fleet, FleetPlan

NODE = {"id": "bench"}


@click.command(short_help="Put a load on an xDS server, and measure its answers.")
@click.argument("type_word", metavar="TYPE", shell_complete=complete_type)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--server", type=Address(), help="The xDS server to load, without TLS.")
@click.option(
    "--bootstrap",
    type=click.Path(exists=True, dir_okay=False),
    help="A gRPC bootstrap file: load its first server, with its credentials.",
)
@params_option
@click.option(
    "--delta/--sotw", default=True, show_default=True, help="The incremental or the state-of-the-world protocol."
)
@click.option(
    "--streams",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Streams, spread over all connections.",
)
@click.option(
    "--connections", type=click.IntRange(min=1), default=10, show_default=True, help="TCP connections to the server."
)
@click.option(
    "--duration",
    type=Seconds(),
    default=10.0,
    show_default=True,
    help="How long to keep the streams open after the first answers.",
)
@click.option(
    "--timeout", type=Seconds(), default=30.0, show_default=True, help="How long to wait for the first answers."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The output format.",
)
def bench(  # noqa: PLR0913 # each is an option
    type_word: str,
    names: tuple[str, ...],
    server: str | None,
    bootstrap: str | None,
    params: dict[str, str],
    *,
    delta: bool,
    streams: int,
    connections: int,
    duration: float,
    timeout: float,
    output: str,
) -> None:
    """Put a load on an xDS server: open many streams, subscribe to TYPE or to NAMEs of it, and ACK every response.

    Prints how long the first answers took, and how many messages came during --duration after that. To cause messages,
    change the server's configuration meanwhile. The load comes from one Python process, which reaches some thousand
    messages a second. Exit status 1: the server can't be reached, ends a stream, or leaves one without an answer.

    \b
    Example:
      xdsprism bench cds --server 127.0.0.1:18000 --streams 1000 --connections 50 --duration 30
      xdsprism bench rds main --server 127.0.0.1:18000 --param env=prod --sotw
    """  # noqa: D301
    import asyncio

    from ..client.fleet import FleetPlan

    server, bootstrap = typed_first(server, bootstrap)
    if (server is None) == (bootstrap is None):
        raise UsageError("no server to load: give either --server or --bootstrap")
    if connections > streams:
        raise UsageError(f"{streams} streams can't be on {connections} connections: give fewer --connections")
    plan = FleetPlan(resolve_type(type_word), names, params, delta=delta, connections=connections)
    found = asyncio.run(_load(plan, streams, server, bootstrap, duration, timeout))
    _print(plan, found, output)
    if found.unanswered:
        raise WatchError("DEADLINE_EXCEEDED", f"{found.unanswered} streams had no answer within {timeout:g} s")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came, and how soon."""

    streams: int
    firsts: list[float]  # seconds from the opening of a stream to its first answer
    messages: int  # after the first answers
    resources: int
    bytes: int
    seconds: float

    @property
    def unanswered(self) -> int:
        return self.streams - len(self.firsts)

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


async def _load(
    plan: FleetPlan, streams: int, server: str | None, file: str | None, duration: float, patience: float
) -> LoadResult:
    import asyncio

    from ..client.bootstrap import Bootstrap
    from ..client.fleet import Fleet, numbered

    known = Bootstrap.load(file) if server is None else Bootstrap.for_server(server, node=NODE)
    clock = asyncio.get_running_loop().time
    fleet = Fleet(known.servers[0], plan, numbered(known.node, streams))
    try:
        answered = await fleet.open(patience)
        before, start = _counted(fleet), clock()
        if answered:
            await fleet.stay(duration)
        after, seconds = _counted(fleet), clock() - start
    finally:
        await fleet.close()
    messages, resources, size = (now - was for was, now in zip(before, after, strict=True))
    firsts = [member.first for member in fleet.members if member.first is not None]
    return LoadResult(streams, firsts, messages, resources, size, seconds)


def _counted(fleet: Fleet) -> tuple[int, int, int]:
    members = fleet.members
    return sum(m.messages for m in members), sum(m.resources for m in members), sum(m.bytes for m in members)


def _print(plan: FleetPlan, found: LoadResult, output: str) -> None:
    from statistics import median

    usual, worst = (median(found.firsts), max(found.firsts)) if found.firsts else (None, None)
    if output == "json":
        out.as_json(
            {
                "type": plan.type_url,
                "names": list(plan.names),
                "mode": "delta" if plan.delta else "sotw",
                "streams": found.streams,
                "connections": plan.connections,
                "answered": len(found.firsts),
                "first_answer_seconds": {"median": usual, "worst": worst},
                "seconds": found.seconds,
                "messages": found.messages,
                "messages_per_second": found.rate,
                "resources": found.resources,
                "bytes": found.bytes,
            }
        )
        return
    what = ", ".join(title(plan.type_url, name) for name in plan.names or ("*",))
    how = "delta" if plan.delta else "SotW"
    click.echo(f"{found.streams} streams on {plan.connections} connections ask for {what} ({how})")
    if usual is None or worst is None:
        click.echo("first answers: none")
        return
    times = f"{usual * 1e3:.1f} ms (median), {worst * 1e3:.1f} ms (worst)"
    click.echo(f"first answers: {len(found.firsts)} of {found.streams}, after {times}")
    click.echo(
        f"then, in {found.seconds:.1f} s: {found.messages} messages ({found.rate:,.0f} a second) "
        f"with {found.resources} resources, {found.bytes} bytes"
    )
