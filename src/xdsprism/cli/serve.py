"""`xdsprism serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import announce, daemon_options, optional, settings_of, tls_of


@click.command()
@click.argument("config", nargs=-1, required=True, type=click.Path(exists=True))
@daemon_options
def serve(config: tuple[str, ...], **given: Any) -> None:
    """Serve the resources in CONFIG (files, or directories of them) to xDS clients.

    An edit is taken within a moment, whole or not at all: what is wrong with it is logged, and the last good
    configuration stays. SIGHUP reads everything again, SIGTERM ends every stream cleanly. Port 0 takes a free port.

    \b
    Example:
      xdsprism serve examples/config --listen 0.0.0.0:18000 --node-params env,version
      xdsprism serve examples/config --rest 0.0.0.0:18080
      xdsprism serve examples/config --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem
    """  # noqa: D301
    from ..app import run
    from ..config import ServeConfig
    from ..observe.logs import configure

    configure(given["log_format"], given["log_level"])
    run(
        ServeConfig(
            tuple(Path(path) for path in config),
            given["listen"],
            optional(given["admin"]),
            settings_of(given),
            v2=given["transport"] == "v2,v3",
            rest=optional(given["rest"]),
            engine=given["engine"],
            max_connection_age=given["max_connection_age"],
            tls=tls_of(given),
        ),
        announce,
    )
