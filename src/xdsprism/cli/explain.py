"""`xdsprism explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.model.types import resolve_type
from ..errors import UsageError, XdsError
from . import output as out
from .admin_port import request
from .asking import title
from .options import Address, descriptors_option, params_option, validate_option
from .variables import choose_typed

if TYPE_CHECKING:
    from ..messages.validation import Validate


@click.command(short_help="Say which variant a client gets, and why.")
@click.argument("type_word", metavar="TYPE")
@click.argument("name")
@click.argument("config", nargs=-1, type=click.Path(exists=True))
@click.option("--admin", type=Address(), help="Ask a running server or relay instead of reading CONFIG.")
@params_option
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format.  [default: a table]")
@validate_option("envoy", "How to check CONFIG, as for `serve`.")
@descriptors_option
def explain(
    type_word: str,
    name: str,
    config: tuple[str, ...],
    admin: str | None,
    params: dict[str, str],
    output: str | None,
    validate: Validate,
) -> None:
    """Say which variant of a resource a client gets, and why the others do not match.

    Reads CONFIG (files, or directories of them), or asks the admin port of a running server or relay. A relay also
    shows which server a variant came from, and how old it is. Exit status 1: the resource does not exist, or has no
    variant for this client.

    \b
    Example:
      xdsprism explain rds main examples/config --param env=prod
      xdsprism explain rds main --admin 127.0.0.1:18001 --param env=prod
    """  # noqa: D301
    if not choose_typed("config", "admin")[1]:
        admin = None
    if bool(config) == (admin is not None):
        raise UsageError("give either CONFIG or --admin")
    type_url = resolve_type(type_word)
    if admin is not None:
        answer = _from_server(admin, type_url, name, params)
    else:
        answer = _from_files(config, validate, type_url, name, params)
    if answer is None:
        raise XdsError(f"{title(type_url, name)} does not exist")
    if output == "json":
        out.as_json(answer)
    elif output == "yaml":
        out.as_yaml(answer)
    else:
        _print(answer)
    if answer["variant"] is None:
        click.get_current_context().exit(1)


def _from_files(
    config: tuple[str, ...], validate: Validate, type_url: str, name: str, params: dict[str, str]
) -> dict[str, Any] | None:
    from ..admin import read_model
    from .loading import load

    store, _ = load(config, validate)
    return read_model.explain(store.table(type_url), name, params)


def _from_server(admin: str, type_url: str, name: str, params: dict[str, str]) -> dict[str, Any] | None:
    from urllib.parse import urlencode

    given = [("type", type_url), ("name", name), *(("param", f"{key}={value}") for key, value in params.items())]
    status, answer = request(admin, f"/api/explain?{urlencode(given)}")
    if status not in (200, 404):
        raise XdsError(f"{admin}: {answer.get('error', status)}")
    return answer if status == 200 else None


def _print(answer: dict[str, Any]) -> None:
    what, who = f"{answer['type']}/{answer['name']}", out.params_text(answer["params"])
    chosen = answer["variant"]
    if chosen is not None:
        click.echo(f"{what} for a client with {who} is")
    elif answer["absent"] is None:
        click.echo(f"{what} for a client with {who} is not in the cache: it would be asked for.")
    else:
        click.echo(f"{what} does not exist for a client with {who}.")
        click.echo(f"It is told so, and may remember it, for {answer['absent']}.")
    rows = [["=>", chosen["constraint"], "", _origin(chosen)]] if chosen is not None else []
    rows += [["", _what(other), _because(other), _origin(other)] for other in answer["others"]]
    click.echo()
    out.table(["", "VARIANT", "WHY NOT", "ORIGIN"], rows)


def _what(other: dict[str, Any]) -> str:
    constraint = str(other["constraint"])
    return constraint if other.get("exists", True) else f"nothing for {constraint}"


def _origin(variant: dict[str, Any]) -> str:
    """Where the variant is written, or which server sent it."""
    if "age_seconds" not in variant:
        return variant["origin"] or "-"
    parts = [variant["upstream"] or "an earlier answer", f"{variant['age_seconds']:.0f} s ago"]
    if variant["stale"]:
        parts.append(f"stale since {variant['stale_since']}")
    return ", ".join(parts)


def _because(other: dict[str, Any]) -> str:
    if other["fails"] is None:
        return "a newer one is for these params too"
    has = ", ".join(
        f"{key} is {value}" if value is not None else f"there is no {key}" for key, value in other["has"].items()
    )
    return f"needs {other['fails']}, but {has}" if has else str(other["fails"])
