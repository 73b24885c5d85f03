"""`xdsprism diff`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError, XdsError
from . import output as out
from .admin_port import AdminClient, admin_options
from .options import FILES_VALIDATED, descriptors_option, validate_option

if TYPE_CHECKING:
    from ..messages.validation import Validate

MOST = 10_000  # variants that are listed


@click.command(short_help="Show how two revisions, or files and a server, differ.")
@click.argument("what", nargs=-1, required=True, metavar="REVISION REVISION | CONFIG...")
@admin_options("127.0.0.1:18001", "The admin port of the running server or relay.")
@click.option("--type", "type_word", metavar="TYPE", help="Compare only resources of this type, such as cds.")
@click.option("--name", metavar="NAME", help="Compare only the resource with this name.")
@validate_option("envoy", FILES_VALIDATED)
@descriptors_option
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json", "name"]), help="The output format.  [default: as `diff -u`]"
)
def diff(  # click passes each option
    what: tuple[str, ...],
    admin: AdminClient,
    type_word: str | None,
    name: str | None,
    validate: Validate,
    output: str | None,
) -> None:
    """Show how two revisions of a running server differ, or what would change if it loaded CONFIG.

    Compares by resource and variant, and shows the contents line by line, without secrets. Of CONFIG (files, or
    directories of them; ./9 if one is called 9) it prints what loading them, and nothing else, would add, change and
    remove; nothing is sent to the server.

    Exit status: 0 there is no difference, 1 there is one, 2 wrong usage, 3 there was nothing to compare, because the
    server can't be reached, does not remember the revisions, or CONFIG has errors.

    \b
    Example:
      xdsprism diff 8 9 --admin 127.0.0.1:18001
      xdsprism diff examples/config --admin 127.0.0.1:18001
      xdsprism diff examples/config --type rds -o name
    """  # noqa: D301
    from ..core.model.type_names import resolve_type

    type_url = resolve_type(type_word) if type_word is not None else None
    with _failing():
        if _are_revisions(what):
            rows, unknown = _between(admin, int(what[0]), int(what[1]), type_url, name)
        else:
            from .config_diff import compare

            rows, unknown = compare(what, validate, admin, type_url, name, with_texts=output != "name"), 0
    _print(rows, output)
    if unknown:
        out.note(f"{unknown:,} changes of resources are not remembered in full: there may be more differences")
    if rows or unknown:
        click.get_current_context().exit(1)


def _are_revisions(what: tuple[str, ...]) -> bool:
    """Whether two revisions are meant, and not files. Raises UsageError if there are one or three."""
    numbers = [each for each in what if each.isdecimal() and each.isascii()]
    if numbers and (len(what) != 2 or len(numbers) != 2):
        raise UsageError(f"give two revisions, or CONFIG; of a file that is called {numbers[0]} write ./{numbers[0]}")
    return bool(numbers)


@contextmanager
def _failing() -> Iterator[None]:
    """Give errors an exit status of their own."""
    from .failures import NotCompared

    try:
        yield
    except UsageError:
        raise
    except XdsError as error:
        raise NotCompared(error) from error


def _between(
    admin: AdminClient, old: int, new: int, type_url: str | None, name: str | None
) -> tuple[list[dict[str, Any]], int]:
    """Return how two revisions differ, and of how many changes the server knows no more."""
    page = admin.page("/api/diff", **{"from": old, "to": new, "type": type_url, "name": name, "limit": MOST})
    if page["more"]:
        out.note(f"{page['more']:,} more variants differ: choose with --type and --name")
    return page["differences"], page["unknown"]


def _print(rows: list[dict[str, Any]], output: str | None) -> None:
    from ..printable import printable
    from .change_text import COLOURS, variant_text
    from .differences import print_lines

    if output == "json":
        out.as_json({"differences": rows})
        return
    if output == "yaml":
        out.as_yaml({"differences": rows})
        return
    for row in rows:
        origin = f" ({row['origin']})" if row["origin"] and output is None else ""
        text = printable(f"{row['change']} {variant_text(row, row)}{origin}")
        click.echo(click.style(text, fg=COLOURS[row["change"]]))
        if output is None:
            if row["diff"] is not None:
                print_lines(map(printable, row["diff"].split("\n")))
            else:
                out.say(f"  {row.get('why_no_diff', '')}".rstrip())
