"""How commands print: tables for people, `-o yaml|json|name` for other programs. Data goes to stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import click

GAP = "   "


def note(text: str) -> None:
    """Say something that is not data."""
    click.echo(text, err=True)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they must be; nothing is cut, so that what is shown can be copied."""
    lines = [list(headers), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for number, line in enumerate(lines):
        text = GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        click.echo(text if number else click.style(text, bold=True))


def as_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def json_line(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def as_yaml(*documents: Any) -> None:
    """One document after another, each of them whole when it is printed."""
    import yaml

    for document in documents:
        text = yaml.dump(
            document, Dumper=_dumper(), sort_keys=False, allow_unicode=True, explicit_start=True, width=120
        )
        click.echo(text, nl=False)


@cache
def _dumper() -> Any:
    """Text of several lines as a block, which is how people write it."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # which of them depends on libyaml
        pass

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_multi_representer(dict, Dumper.represent_dict)  # json_format makes other mappings too
    return Dumper


def params_text(params: dict[str, str]) -> str:
    """Params as EXPR writes them, so that what is printed can be pasted into `$when`."""
    from ..core.model.constraints import All, Eq
    from ..core.model.expr import show

    return show(All(tuple(Eq(key, value) for key, value in params.items()))) if params else "no params"
