"""`xdsprism events`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..errors import UsageError, XdsError
from . import output as out
from .admin_port import AdminClient, admin_options

SILENCE = 45.0  # seconds; the server writes a comment every 15
PAUSES = (1.0, 2.0, 5.0, 10.0)  # seconds before each further attempt to connect

Event = tuple[str, dict[str, Any]]  # what kind it is, and what it says


@click.command(short_help="Show what happens: revisions, clients, NACKs, loads.")
@admin_options("127.0.0.1:18001", "The admin port of the running server or relay.")
@click.option("--follow", is_flag=True, help="Go on until stopped, and reconnect if the server is lost.")
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="REVISION",
    help="Begin with the revisions after this one.  [default: the last 1,000; with --follow: only what is new]",
)
@click.option("--type", "type_word", metavar="TYPE", help="Show only events about this type, such as cds.")
@click.option("--node", metavar="ID", help="Show only events about the client with this node id.")
@click.option(
    "-o", "--output", type=click.Choice(["json"]), help="One JSON object a line.  [default: lines for people]"
)
def events(  # click passes each option
    admin: AdminClient,
    since: int | None,
    type_word: str | None,
    node: str | None,
    output: str | None,
    *,
    follow: bool,
) -> None:
    """Show what happens on a running server or relay.

    Prints what revisions changed, who connects and leaves, which client rejects what and accepts it again, whether the
    configuration was loaded, refused or held back, and the end of the server. Without --follow it prints the revisions
    that the server remembers, as nothing else is remembered, and ends. If the server is lost, --follow reconnects and
    goes on with the revisions that it missed. Exit status 1: the server can't be reached at first.

    \b
    Example:
      xdsprism events --follow --admin 127.0.0.1:18001
      xdsprism events --follow --type rds -o json
      xdsprism events --since 40
    """  # noqa: D301
    from ..core.model.type_names import resolve_type

    type_url = resolve_type(type_word) if type_word is not None else None
    if not follow:
        if node is not None:
            raise UsageError("--node needs --follow: only revisions are remembered, and they are about no client")
        _print_remembered(admin, since, type_url, output)
        return
    with _stopping_by_signal():
        for kind, data in Following(admin, since, {"type": type_url, "node": node}):
            _print(kind, data, output)


def _print_remembered(admin: AdminClient, since: int | None, type_url: str | None, output: str | None) -> None:
    """Print the revisions that the server remembers."""
    page = admin.page("/api/history", since=since, limit=1_000)
    if page["gap"]:
        out.note(f"not all revisions after {since} are remembered: these are the last")
    for row in sorted(page["revisions"], key=lambda row: int(row["revision"])):
        own = [each for each in row["changes"] if type_url in (None, each["type_url"])]
        if type_url is None or own or row["more"]:
            _print("revision", row | {"changes": own}, output)


@contextmanager
def _stopping_by_signal() -> Iterator[None]:
    """End the block when a signal asks to stop, which is its normal end."""
    import signal

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


class Following:
    """The events of a server, over as many connections as it takes. Raises XdsError if the first one fails."""

    def __init__(self, admin: AdminClient, since: int | None, wanted: dict[str, str | None]) -> None:
        self._admin = admin
        self._revision = since  # the last one that came; None: only what is new
        self._wanted = wanted
        self._was_connected = False
        self._failures = 0  # in a row

    def __iter__(self) -> Iterator[Event]:
        import time

        while True:
            try:
                yield from self._listen()
                reason = "it ended the stream"
            except XdsError as error:
                if not self._was_connected:
                    raise
                reason = str(error)
            if not self._failures:
                out.note(f"lost {self._admin.address}: {reason} (trying again)")
            time.sleep(PAUSES[min(self._failures, len(PAUSES) - 1)])
            self._failures += 1

    def _listen(self) -> Iterator[Event]:
        """Yield the events of one connection. Raises XdsError if it can't be made, or breaks."""
        import json
        from urllib.parse import urlencode

        given = {**self._wanted, "since": self._revision}
        query = urlencode({key: value for key, value in given.items() if value is not None})
        fields: dict[str, str] = {}
        for line in self._admin.lines("/api/events", query, SILENCE):
            if not line:
                if "event" in fields:
                    data = json.loads(fields["data"])
                    self._note(fields, data)
                    yield fields["event"], data
                fields = {}
            elif line.startswith(":"):
                self._connected(line)
            else:
                key, _, value = line.partition(": ")
                fields[key] = value

    def _connected(self, comment: str) -> None:
        """Note that there is a connection, and from which revision on."""
        if not self._was_connected:
            out.note(f"listening to {self._admin.address}, which is at{comment[1:]}")
        elif self._failures:
            out.note(f"back again: {self._admin.address}")
        self._was_connected, self._failures = True, 0
        if self._revision is None:
            self._revision = int(comment.rpartition(" ")[2])

    def _note(self, fields: dict[str, str], data: dict[str, Any]) -> None:
        """Note how far the events came: after a gap, begin with the newest revision."""
        if "id" in fields:
            self._revision = int(fields["id"])
        elif fields["event"] == "gap" and "newest" in data:
            self._revision = data["newest"] or 0


def _print(kind: str, data: dict[str, Any], output: str | None) -> None:
    from ..printable import printable
    from .change_text import colour_of, event_text

    if output == "json":
        out.json_line({"kind": kind, **data})
        return
    text = printable(f"{data['time']} {event_text(kind, data)}")
    click.echo(click.style(text, fg=colour_of(kind, data)))
