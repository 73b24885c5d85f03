"""Shows how two documents differ, line by line, in the form of `diff -u`; coloured on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from . import output as out

CONTEXT = 3  # unchanged lines around a change
LINES = 20_000  # of a document that are compared: the time grows with the square of what differs
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def print_difference(before: Any, after: Any, before_label: str, after_label: str) -> None:
    """Print the difference between two documents; None: there is none."""
    for line in difference(before, after, before_label, after_label):
        is_head = line.startswith(("+++ ", "--- "))
        click.echo(click.style(line, bold=True) if is_head else click.style(line, fg=_COLOURS.get(line[:1])))


def difference(before: Any, after: Any, before_label: str, after_label: str) -> Iterator[str]:
    """Yield the lines of a unified difference; none if the documents are equal."""
    from difflib import unified_diff

    from ..printable import printable

    labels = printable(before_label), printable(after_label)
    yield from unified_diff(_lines(before), _lines(after), *labels, n=CONTEXT, lineterm="")


def _lines(document: Any) -> list[str]:
    """Return a document as lines of YAML."""
    if document is None:
        return []
    lines = out.yaml_text(document).removeprefix("---\n").splitlines()
    more = len(lines) - LINES
    return [*lines[:LINES], f"# and {more:,} more lines"] if more > 0 else lines
