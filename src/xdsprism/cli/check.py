"""`xdsprism check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from . import output as out

if TYPE_CHECKING:
    from ..core.store import Store

GAPS = 5  # examples shown of each resource


@click.command()
@click.argument("config", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("-o", "--output", type=click.Choice(["yaml", "json", "name", "wide"]), help="  [default: a table]")
def check(config: tuple[str, ...], output: str | None) -> None:
    """Validate CONFIG (files, or directories of them) and list its resources and their variants.

    Says also which clients no variant is for: params for which a resource does not exist, though it does for others.
    Exit status 1, and everything that is wrong on stderr, if `serve` would not take it.

    \b
    Example:
      xdsprism check examples/config -o wide
    """  # noqa: D301
    from .loading import load

    store, report = load(config)
    rows = _rows(store)
    if output == "name":
        for row in rows:
            click.echo(f"{row['type']}/{row['name']}")
    elif output == "json":
        out.as_json({"resources": rows})
    elif output == "yaml":
        out.as_yaml({"resources": rows})
    else:
        _table(rows, wide=output == "wide")
    variants = sum(len(row["variants"]) for row in rows)
    out.note(f"valid: {report.resources} resources, {variants} variants, {report.files} files")


def _rows(store: Store) -> list[dict[str, Any]]:
    """As /api/resources shows them, with what no variant covers."""
    from ..admin import read_model

    rows = list(read_model.resources(store, limit=None).rows)
    for row in rows:
        known = store.table(row["type_url"]).get(row["name"])
        row["not_covered"] = known.gaps(GAPS) if known is not None else []
    return rows


def _table(rows: list[dict[str, Any]], *, wide: bool) -> None:
    headers = ["RESOURCE", "VARIANT", *(["VERSION", "BYTES", "ORIGIN"] if wide else [])]
    lines = []
    for row in rows:
        for variant in row["variants"]:
            more = [variant["version"], str(variant["bytes"]), variant["origin"] or "-"] if wide else []
            lines.append([f"{row['type']}/{row['name']}", variant["constraint"], *more])
    out.table(headers, lines)
    gaps = [(row, params) for row in rows for params in row["not_covered"]]
    if gaps:
        click.echo("\nNo variant for, among others:")
        for row, params in gaps:
            click.echo(f"{row['type']}/{row['name']}{out.GAP}{out.params_text(params)}")
