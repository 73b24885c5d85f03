"""`xdsprism serve`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import announce, daemon_options, keys

if TYPE_CHECKING:
    from ..observe.logs import Format


@click.command()
@click.argument("config", nargs=-1, required=True, type=click.Path(exists=True))
@daemon_options
def serve(
    config: tuple[str, ...],
    listen: str,
    admin: str,
    node_params: str,
    resource_errors: str,
    transport: str,
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
    params = keys("--node-params", node_params)
    settings = Settings(node_params=params, resource_errors=resource_errors)  # type: ignore[arg-type]
    paths = tuple(Path(path) for path in config)
    admin_address = None if admin == "off" else admin
    run(ServeConfig(paths, listen, admin_address, settings, v2=transport == "v2,v3"), announce)
