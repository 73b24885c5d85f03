"""`xdsprism history`."""

from __future__ import annotations

from typing import Any

import click

from . import output as out
from .admin_port import AdminClient, admin_options


@click.command(short_help="List the last revisions: who made them, and what they changed.")
@admin_options("127.0.0.1:18001", "The admin port of the running server or relay.")
@click.option("--since", type=click.IntRange(min=0), metavar="REVISION", help="List only revisions after this one.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    help="How many to list, the last ones.",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json", "name", "wide"]), help="The output format.  [default: a table]"
)
def history(admin: AdminClient, since: int | None, limit: int, output: str | None) -> None:
    """List the last revisions of a running server or relay, the oldest first: who made each, and what it changed.

    A revision is made by a load of files, SIGHUP, `xdsprism confirm`, a program, a provider, or an upstream server of a
    relay. -o wide has a line for each variant. The server remembers the last 1,000 revisions, and of very large ones
    the first changes. `xdsprism diff` shows how two revisions differ.

    \b
    Example:
      xdsprism history --admin 127.0.0.1:18001
      xdsprism history --since 40 -o wide
    """  # noqa: D301
    page = admin.page("/api/history", since=since, limit=1_000)
    rows = sorted(page["revisions"], key=lambda row: int(row["revision"]))[-limit:]
    if page["gap"]:
        out.note(f"not all revisions after {since} are remembered: these are the last")
    if output == "json":
        out.as_json(page | {"revisions": rows})
    elif output == "yaml":
        out.as_yaml(page | {"revisions": rows})
    elif output == "name":
        for row in rows:
            out.say(str(row["revision"]))
    elif not rows:
        out.note("no revision is remembered yet")
    elif output == "wide":
        out.table(["REVISION", "TIME", "BY", "CHANGE", "VARIANT", "VERSION", "ORIGIN"], _wide(rows))
    else:
        _print(rows)


def _print(rows: list[dict[str, Any]]) -> None:
    from .change_text import summary

    cells = [[str(row["revision"]), row["time"], row["by"], summary(row)] for row in rows]
    out.table(["REVISION", "TIME", "BY", "CHANGES"], cells)


def _wide(rows: list[dict[str, Any]]) -> list[list[str]]:
    from .change_text import variant_text

    lines: list[list[str]] = []
    for row in rows:
        head = [str(row["revision"]), row["time"], row["by"]]
        lines += [
            [*head, each["change"], variant_text(change, each), each["version"], each["origin"] or "-"]
            for change in row["changes"]
            for each in change["variants"]
        ]
        if row["more"]:
            lines.append([*head, "", f"{row['more']:,} resources that are not listed", "", ""])
    return lines
