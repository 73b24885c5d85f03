"""What `get` and `watch` share: their options, and the query that these make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.types import TYPES, resolve_type
from .options import Address, params_option

if TYPE_CHECKING:
    from ..client.raw import Query

F = TypeVar("F", bound=Callable[..., Any])

_LABELS = {spec.url: spec.label for spec in TYPES}


def asking(command: F) -> F:
    """Add the arguments and options of a command that asks a server."""
    for decorate in (
        click.option(
            "-o", "--output", type=click.Choice(["yaml", "json", "name", "wide"]), default="yaml", show_default=True
        ),
        click.option("--delta/--sotw", default=True, show_default=True, help="Incremental, or state of the world."),
        params_option,
        click.option("--server", type=Address(), required=True, help="The xDS server to ask."),
        click.argument("names", metavar="[NAME]...", nargs=-1),
        click.argument("type_word", metavar="TYPE"),
    ):
        command = decorate(command)
    return command


def query_of(type_word: str, names: tuple[str, ...], params: dict[str, str], *, delta: bool) -> Query:
    """With params as locators (TP2), without as plain names, which every server understands."""
    from ..client.raw import Query

    return Query(resolve_type(type_word), tuple(dict.fromkeys(names)), params or None, delta)


def title(type_url: str, name: str) -> str:
    """`cds/shop`, as kubectl writes `pod/web`."""
    return f"{_LABELS.get(type_url, type_url.rpartition('/')[2])}/{name}"
