"""`xdsprism status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..core.model.type_names import resolve_type
from ..core.session.sync_state import SyncState
from ..errors import UsageError, XdsError
from . import output as out
from .admin_port import AdminClient, admin_options
from .completion import complete_type

if TYPE_CHECKING:
    from .fleet import FleetClient

PAGE = 1_000  # clients or resources that are asked for at a time
MOST = 10_000  # resources of a client that are listed
_STATES = [state.name for state in SyncState]


@click.command(short_help="Show what each client has, and who is in trouble.")
@click.argument("node", required=False)
@admin_options("127.0.0.1:18001", "The admin port of the running server or relay.")
@click.option("--nodes", metavar="GLOB", help="Show only clients whose node id matches, such as 'web-*'.")
@click.option(
    "--type",
    "type_word",
    metavar="TYPE",
    shell_complete=complete_type,
    help="Show only this type, such as cds, and who asked for it.",
)
@click.option("--state", type=click.Choice(_STATES, case_sensitive=False), help="Show only what is in this state.")
@click.option(
    "--stale",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="How long a client may be STALE before the exit status is 1.",
)
@click.option("--watch", is_flag=True, help="Show every change until stopped: redraw a terminal, else print changes.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    help="How often --watch looks.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "name", "wide"]),
    help="The output format.  [default: a table]",
)
def status(  # noqa: PLR0913 # click passes each option
    node: str | None,
    admin: AdminClient,
    nodes: str | None,
    type_word: str | None,
    state: str | None,
    stale: float,
    output: str | None,
    interval: float,
    *,
    watch: bool,
) -> None:
    """Show the clients of a running server or relay, those in trouble first; with NODE, one client in full.

    Each type that a client asked for is in one of these states:

    \b
      NACKED    it rejected what it was sent last
      STALE     it has not answered what it was sent last, since so long
      NOT SENT  it asked, and was not sent anything yet
      SYNCED    it accepted what it was sent last

    With NODE it shows each resource: what the client has and what is current, how these differ, and of a rejected
    resource the error, the variant, and the file and line that it came from. -o wide adds the variant and the last
    error of each client. Exit status 1: a client is NACKED, or has been STALE for longer than --stale.

    \b
    Example:
      xdsprism status --admin 127.0.0.1:18001
      xdsprism status --watch --nodes 'web-*' --state NACKED
      xdsprism status envoy-1 -o wide
    """  # noqa: D301
    if node is not None and nodes is not None:
        raise UsageError("give either NODE, which is one client, or --nodes, which are several")
    if watch and output in ("yaml", "name"):
        raise UsageError(f"--watch prints changes: leave out -o {output}, or give -o json")
    query = {
        "node": nodes,
        "type": resolve_type(type_word) if type_word is not None else None,
        "state": state,
    }
    if watch:
        from .status_watch import follow

        follow(lambda: _draw(admin, node, query, output), lambda: _clients(admin, node, query), output, interval)
        return
    clients = _draw(admin, node, query, output)
    if any(client.is_in_trouble(stale) for client in clients):
        click.get_current_context().exit(1)


def _draw(admin: AdminClient, node: str | None, query: dict[str, Any], output: str | None) -> list[FleetClient]:
    """Print what there is, and return the clients that were printed."""
    if node is not None:
        return _show_one(admin, node, query, output)
    from .fleet import print_fleet

    rows = [*_rows(admin, query, brief=output is None)]
    clients = _fleet(rows)
    ordered = [row for client in clients for row in client.rows]
    if output == "json":
        out.as_json({"clients": ordered})
    elif output == "yaml":
        out.as_yaml({"clients": ordered})
    elif output == "name":
        for client in clients:
            out.say(client.node or client.peer)
    elif clients:
        print_fleet(clients, wide=output == "wide")
    else:
        out.note("no client is connected" if not any(query.values()) else "no client that is connected matches")
    return clients


def _show_one(admin: AdminClient, node: str, query: dict[str, Any], output: str | None) -> list[FleetClient]:
    """Print one client in full."""
    from .status_one import print_client

    page = _client(admin, node, query)
    if output == "json":
        out.as_json(page)
    elif output == "yaml":
        out.as_yaml(page)
    elif output == "name":
        for each in page["resources"]:
            out.say(f"{each['type']}/{each['name']}")
    else:
        print_client(page, wide=output == "wide")
    return _fleet(page["clients"])


def _client(admin: AdminClient, node: str, query: dict[str, Any]) -> dict[str, Any]:
    """Ask for the resources of a client, those in trouble first."""
    found: dict[str, Any] = {"resources": []}
    while len(found["resources"]) < MOST:
        offset = len(found["resources"])
        given = {**query, "node": node, "offset": offset, "limit": PAGE, "bodies": int(not offset)}
        status, page = admin.ask("/api/client", **given)
        if status == 404:
            raise XdsError(f"no client with the node id {node!r} is connected: `xdsprism status -o name` lists them")
        if status != 200:
            raise XdsError(f"{admin.address}: {page.get('error', status)}")
        found = {**page, "resources": found["resources"] + page["resources"]}
        if not page["resources"] or len(found["resources"]) >= page["total"]:
            break
    return found


def _clients(admin: AdminClient, node: str | None, query: dict[str, Any]) -> list[FleetClient]:
    """Ask for the state of each client."""
    rows = _rows(admin, query, brief=True)
    return _fleet([row for row in rows if node is None or (row["node"] or {}).get("id") == node])


def _rows(admin: AdminClient, query: dict[str, Any], *, brief: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of /api/clients, page by page."""
    offset = 0
    while True:
        page = admin.page("/api/clients", **query, brief=int(brief), offset=offset, limit=PAGE)
        yield from page["clients"]
        offset += len(page["clients"])
        if not page["clients"] or offset >= page["total"]:
            return


def _fleet(rows: list[dict[str, Any]]) -> list[FleetClient]:
    from .fleet import fleet_of

    return fleet_of(rows)
