"""Shows how two documents differ, line by line, in the form of `diff -u`; coloured on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

LINES = 20_000  # of a document that are compared
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def print_difference(before: Any, after: Any, before_label: str, after_label: str) -> None:
    """Print the difference between two documents; None: there is none."""
    print_lines(difference(before, after, before_label, after_label))


def print_lines(lines: Iterable[str]) -> None:
    """Print the lines of a unified difference."""
    for line in lines:
        is_head = line.startswith(("+++ ", "--- "))
        click.echo(click.style(line, bold=True) if is_head else click.style(line, fg=_COLOURS.get(line[:1])))


def difference(before: Any, after: Any, before_label: str, after_label: str) -> Iterator[str]:
    """Yield the lines of a unified difference; none if the documents are equal."""
    from .. import yaml_text

    yield from yaml_text.difference(before, after, before_label, after_label, LINES)
