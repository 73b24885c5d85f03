"""`xdsprism confirm`."""

from __future__ import annotations

from typing import Any

import click

from ..errors import XdsError
from . import output as out
from .admin_port import AdminClient, admin_options


@click.command(short_help="Let through a change that a server holds back.")
@admin_options("127.0.0.1:18001", "The admin port of the running server.")
@click.option("--id", "change", metavar="ID", help="Confirm only this change; the log and /api/config show its id.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format.  [default: a table]")
def confirm(admin: AdminClient, change: str | None, output: str | None) -> None:
    """Let a server apply a change that it holds back because the change would remove too much.

    Prints what was let through. With --id, only the change that you have seen is confirmed: if the files were edited
    since and other resources would be removed, nothing happens. Exit status 1: nothing is held back, or the change that
    is held back is another one by now.

    \b
    Example:
      xdsprism confirm --admin 127.0.0.1:18001
      xdsprism confirm --admin 127.0.0.1:18001 --id 5d1c3ab0e2f4
      xdsprism confirm --admin xds.example:18001 --admin-ca ca.pem --admin-token-file token
    """  # noqa: D301
    from urllib.parse import urlencode

    shown = _held_back(admin)
    if change is not None and change != shown["id"]:
        raise XdsError(f"another change is held back by now: {shown['id']}, not {change}: {_why(shown)}")
    status, answer = admin.request(f"/api/config/confirm?{urlencode({'id': shown['id']})}", "POST")
    if status != 200:
        raise XdsError(f"{admin.address}: {answer.get('error', status)}")
    _print(answer["let_through"], output)


def _held_back(admin: AdminClient) -> dict[str, Any]:
    status, config = admin.request("/api/config")
    if status == 404:
        raise XdsError(f"{admin.address} is the admin port of a relay: only servers hold changes back")
    if status != 200:
        raise XdsError(f"{admin.address}: {config.get('error', status)}")
    shown: dict[str, Any] | None = config.get("held_back")
    if shown is None:
        raise XdsError("nothing is held back")
    return shown


def _why(shown: dict[str, Any]) -> str:
    return "; ".join(shown["why"])


def _print(done: dict[str, Any], output: str | None) -> None:
    if output == "json":
        out.as_json(done)
    elif output == "yaml":
        out.as_yaml(done)
    else:
        out.note(f"let through {done['id']}: {_why(done)}")
        rows = [[each["type"], f"{each['removed']} of {each['of']}", _names(each)] for each in done["removals"]]
        out.table(["TYPE", "REMOVED", "NAMES"], rows)


def _names(loss: dict[str, Any]) -> str:
    more = loss["removed"] - len(loss["names"])
    return ", ".join(loss["names"]) + (f" and {more} more" if more else "")
