"""`xdsprism serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from .options import (
    FILES_VALIDATED,
    POLICY,
    Percent,
    access_of,
    announcing,
    daemon_options,
    descriptors_option,
    optional,
    policy_option,
    policy_path,
    settings_of,
    tls_of,
    validate_option,
)


@click.command(short_help="Serve resources from files to xDS clients.")
@click.argument("config", nargs=-1, required=True, type=click.Path())
@daemon_options
@validate_option("envoy", FILES_VALIDATED)
@descriptors_option
@click.option(
    "--max-removals",
    type=Percent(),
    metavar="N%",
    default="50%",
    show_default=True,
    help="Hold back an edit that removes more than this part of a type's resources, and at least 10 of them, or "
    "everything, until `xdsprism confirm` lets it through. 100%: hold nothing back.",
)
@policy_option(POLICY)
@click.option(
    "--allow-empty",
    is_flag=True,
    help="Start even if CONFIG has no resources or does not exist.",
)
def serve(config: tuple[str, ...], **given: Any) -> None:
    """Serve the resources in CONFIG (files, or directories of them) to xDS clients.

    An edit is applied as soon as the file is complete, as a whole or not at all. If it is invalid, the errors are
    logged and the last good configuration stays. An edit that would remove too much waits for `xdsprism confirm`.
    SIGHUP reads all files again, SIGTERM ends every stream cleanly. Port 0 takes a free port.

    \b
    Example:
      xdsprism serve examples/config --listen 0.0.0.0:18000 --node-params env,version
      xdsprism serve examples/config --rest 0.0.0.0:18080
      xdsprism serve examples/config --max-removals 20%
      xdsprism serve config --validate warn --descriptors own-filters.binpb
      xdsprism serve examples/config --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem
      xdsprism serve config --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem --policy policy.yaml
    """  # noqa: D301
    from ..app import run
    from ..config import ServeConfig
    from ..observe.logs import configure
    from .progress import shown

    if not given["allow_empty"]:
        for path in config:
            if not Path(path).exists():
                raise UsageError(f"CONFIG {path!r} does not exist; to start without it, give --allow-empty")
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
            policy=policy_path(given),
            csds=given["csds"],
            access=access_of(given),
            max_removals=given["max_removals"],
            allow_empty=given["allow_empty"],
            validate=given["validate"],
            loading=shown,
        ),
        announcing(given["log_format"]),
    )
