"""How commands print: tables for people, `-o yaml|json|name` for programs. Data goes to stdout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from shutil import get_terminal_size
from typing import Any

import click

from ..printable import printable, printable_json, printable_lines

GAP = "   "
NARROWEST = 12  # characters of a column that is cut


def note(text: str) -> None:
    """Print on stderr what is not data."""
    click.echo(printable_lines(text), err=True)


def say(text: str) -> None:
    """Print a line of data, whose names and texts may be those of a peer."""
    click.echo(printable(text))


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    paint: Callable[[str], str] = str,
    *,
    fit: bool = False,
) -> None:
    """Print columns as wide as their longest cell; nothing is cut, so that cells can be copied.

    `paint` may colour a cell, which is given as it is printed, with the spaces that fill its column. `fit`: cut the
    longest cells, so that a line fits the terminal.
    """
    lines = [list(headers), *[[printable(cell) for cell in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    if fit:
        widths = _fitted(widths, get_terminal_size().columns - len(GAP) * (len(headers) - 1))
        lines = [[_cut(cell, width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    for number, line in enumerate(lines):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        cells[-1] = cells[-1].rstrip()
        if number:
            click.echo(GAP.join(map(paint, cells)).rstrip())
        else:
            click.echo(click.style(GAP.join(cells).rstrip(), bold=True))


def _fitted(widths: Sequence[int], room: int) -> list[int]:
    """Make the widest columns narrower until all have room, but none narrower than NARROWEST."""
    found = [*widths]
    while sum(found) > room and max(found) > NARROWEST:
        widest = found.index(max(found))
        others = max((width for column, width in enumerate(found) if column != widest), default=0)
        found[widest] = max(found[widest] - (sum(found) - room), min(others, found[widest] - 1), NARROWEST)
    return found


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


_PRINTED = "xdsprism.json"  # in the context's meta: an object was printed


def has_printed_json() -> bool:
    """Whether this command has printed its JSON."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and _PRINTED in ctx.meta


def as_json(value: object) -> None:
    ctx = click.get_current_context(silent=True)
    if ctx is not None:
        ctx.meta[_PRINTED] = True
    click.echo(printable_json(json.dumps(value, indent=2, ensure_ascii=False)))


def json_line(value: object) -> None:
    click.echo(printable_json(json.dumps(value, ensure_ascii=False)))


def as_yaml(*documents: Any) -> None:
    """Print documents one after the other, each in one write."""
    for document in documents:
        click.echo(yaml_text(document), nl=False)


def yaml_text(document: Any) -> str:
    """Return a document as YAML, with its first line `---`."""
    from .. import yaml_text as text

    return text.yaml_text(document)


def params_text(params: dict[str, str]) -> str:
    """Params as an EXPR, which can be pasted into `$when`."""
    from ..core.model.constraints import All, Eq
    from ..core.model.expr import show

    return show(All(tuple(Eq(key, value) for key, value in params.items()))) if params else "no params"
