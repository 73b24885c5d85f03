"""`xdsprism matrix`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..core.model.type_names import resolve_type
from ..similar import similar
from . import output as out
from .admin_port import AdminClient, admin_options, admin_or_files
from .asking import missing
from .completion import complete_known_name, complete_type
from .options import descriptors_option, params_option, validate_option

if TYPE_CHECKING:
    from ..messages.validation import Validate

Cell = int | str | None


@click.command(short_help="Show which variant answers which params.")
@click.argument("type_word", metavar="TYPE", shell_complete=complete_type)
@click.argument("name", shell_complete=complete_known_name)
@click.argument("config", nargs=-1, type=click.Path(exists=True, allow_dash=True))
@admin_options(None, "Ask a running server or relay instead of reading CONFIG.")
@params_option
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format.  [default: a table]")
@validate_option("envoy", "How to check CONFIG, as for `serve`.")
@descriptors_option
def matrix(
    type_word: str,
    name: str,
    config: tuple[str, ...],
    admin: AdminClient | None,
    params: dict[str, str],
    output: str | None,
    validate: Validate,
) -> None:
    """Show which variant of a resource answers which params, for all values that make a difference.

    Each key has a column with the values that constraints mention, (other) for any other value, and (absent). Rows that
    would differ in one key only are one row, with (any). Where the table would be too large, keys are held at one
    value, and the output says which; --param holds a key at a value of your choice.

    Reads CONFIG (files, or directories of them), or asks the admin port of a running server or relay. Exit status 1:
    the resource does not exist.

    \b
    Example:
      xdsprism matrix rds main examples/config
      xdsprism matrix rds main --admin 127.0.0.1:18001 --param env=prod
    """  # noqa: D301
    admin = admin_or_files(config, admin)
    type_url = resolve_type(type_word)
    if admin is not None:
        answer = admin.ask_about("matrix", type_url, name, params)
    else:
        answer = _from_files(config, validate, type_url, name, params)
    if output == "json":
        out.as_json(answer)
    elif output == "yaml":
        out.as_yaml(answer)
    else:
        _print(answer)


def _from_files(
    config: tuple[str, ...], validate: Validate, type_url: str, name: str, params: dict[str, str]
) -> dict[str, Any]:
    from ..admin import matrix_model, read_model
    from ..core.model.steps import finish
    from .loading import load

    store, _ = load(config, validate)
    table = store.table(type_url)
    found = finish(matrix_model.matrix(table, name, params))
    if found is None:
        raise missing(type_url, name, similar(name, read_model.names_to_compare(table)))
    return found


def _print(answer: dict[str, Any]) -> None:
    shown = [key for key in answer["keys"] if "held" not in key]
    held = {key["key"]: _choice(key["held"]) for key in answer["keys"] if "held" in key}
    what = f"{answer['type']}/{answer['name']}"
    where = ", ".join(f"{key} {value}" for key, value in held.items())
    out.say(f"{what} by params{f', where {where}' if where else ''}:")
    for key in answer["keys"]:
        if key["values_left_out"]:
            out.say(f"{key['values_left_out']:,} more values of {key['key']} are not in the table.")
    rows = []
    for *choices, cell in _rows(shown, answer["cells"]):
        variant = answer["variants"][cell] if isinstance(cell, int) else None
        found = variant["constraint"] if variant is not None else "not in the cache" if cell == "unknown" else "-"
        rows.append([*choices, found, (variant["origin"] or "-") if variant is not None else ""])
    click.echo()
    out.table([*(key["key"] for key in shown), "VARIANT", "ORIGIN"], rows)


def _rows(keys: Sequence[dict[str, Any]], cells: Sequence[Cell]) -> Iterator[list[Any]]:
    """Yield a choice of each key, and the cell; `(any)` for a key that makes no difference there."""
    if not keys:
        yield [cells[0]]
        return
    choices = keys[0]["choices"]
    size = len(cells) // len(choices)
    blocks = [cells[at : at + size] for at in range(0, len(cells), size)]
    if all(block == blocks[0] for block in blocks):
        yield from (["(any)", *rest] for rest in _rows(keys[1:], blocks[0]))
        return
    for choice, block in zip(choices, blocks, strict=True):
        yield from ([_choice(choice), *rest] for rest in _rows(keys[1:], block))


def _choice(choice: dict[str, str]) -> str:
    return choice["value"] if choice["is"] == "value" else f"({choice['is']})"
