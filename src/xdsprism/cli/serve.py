"""`xdsprism serve`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from .options import Address

if TYPE_CHECKING:
    from ..observe.logs import Format


class AdminAddress(Address):
    """HOST:PORT, or 'off'."""

    name = "HOST:PORT|off"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if value == "off" else super().convert(value, param, ctx)


@click.command()
@click.argument("config", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--listen", type=Address(), default="127.0.0.1:18000", show_default=True, help="Where xDS clients connect."
)
@click.option(
    "--admin",
    type=AdminAddress(),
    metavar="HOST:PORT|off",
    default="127.0.0.1:18001",
    show_default=True,
    help="Status pages and metrics, or 'off'.",
)
@click.option(
    "--node-params",
    metavar="KEY,KEY|*|none",
    default="*",
    show_default=True,
    help="Which keys of a node's metadata are params of clients that send none of their own.",
)
@click.option(
    "--resource-errors",
    type=click.Choice(["locators", "all", "none"]),
    default="locators",
    show_default=True,
    help="Which subscriptions are told why a resource is missing: those with params of their own, all, or none.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def serve(
    config: tuple[str, ...],
    listen: str,
    admin: str,
    node_params: str,
    resource_errors: str,
    log_format: Format,
    log_level: str,
) -> None:
    """Serve the resources in CONFIG (files, or directories of them) to xDS clients.

    An edit is taken within a moment, whole or not at all: what is wrong with it is logged, and the last good
    configuration stays. SIGHUP reads everything again, SIGTERM ends every stream cleanly. Port 0 takes a free port.

    \b
    Example:
      xdsprism serve examples/config --listen 0.0.0.0:18000 --node-params env,version
    """  # noqa: D301
    from ..app import run
    from ..config import ServeConfig
    from ..core.settings import Settings
    from ..observe.logs import configure

    configure(log_format, log_level)
    settings = Settings(node_params=_keys(node_params), resource_errors=resource_errors)  # type: ignore[arg-type]
    paths = tuple(Path(path) for path in config)
    run(ServeConfig(paths, listen, None if admin == "off" else admin, settings), _announce)


def _announce(line: str) -> None:
    click.echo(f"xdsprism: {line}", err=True)


def _keys(text: str) -> Collection[str] | None:
    """DESIGN 6.2. None: all of them."""
    if text == "*":
        return None
    if text == "none":
        return frozenset()
    keys = [key.strip() for key in text.split(",")]
    if not all(keys) or "*" in keys:
        raise UsageError(f"--node-params {text!r} is no list of keys: write env,version or '*' or none")
    return frozenset(keys)
