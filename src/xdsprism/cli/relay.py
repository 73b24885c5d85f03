"""`xdsprism relay`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .options import ENVIRONMENT, Seconds, announce, daemon_options, keys, optional, settings_of, tls_of

if TYPE_CHECKING:
    from ..config import RelayConfig


@click.command()
@click.option(
    "--bootstrap",
    metavar="FILE",
    help="The servers behind it, in gRPC's JSON; if not given, as GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG say.",
)
@daemon_options
@click.option("--cache", metavar="FILE", help="Keep the last known state here, to start from while no server is there.")
@click.option(
    "--max-stale",
    type=Seconds(),
    default=86400.0,
    show_default=True,
    help="How long what is known is given to whoever asks, after the servers were there last.",
)
@click.option(
    "--group-by",
    metavar="KEY,KEY",
    help="For servers that tailor by node metadata: ask them as one node for each combination of these keys' values.",
)
@click.option(
    "--delta/--sotw",
    default=True,
    show_default=True,
    help="How the servers are asked; virtual hosts on demand are incremental only.",
)
@click.option(
    "--linger",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="How long something that nobody wants any more is kept up to date.",
)
def relay(**given: Any) -> None:
    """Pass on what other xDS servers have, and remember it.

    Many clients cost the servers one stream. Who has the params of a variant that is known gets it without asking, and
    all keep what they have while the servers are down. SIGTERM ends every stream cleanly. Port 0 takes a free port.
    On the admin port /readyz says whether a server was reached.

    \b
    Example:
      xdsprism relay --bootstrap bootstrap.json --cache relay.db
      xdsprism relay --bootstrap istio.json --group-by CLUSTER_ID,NAMESPACE
    """  # noqa: D301
    from ..app import run
    from ..observe.logs import configure

    configure(given["log_format"], given["log_level"])
    run(_config(given), announce)


def _config(given: dict[str, Any]) -> RelayConfig:
    from ..config import RelayConfig

    if given["bootstrap"] is None and not any(os.environ.get(name) for name in ENVIRONMENT):
        raise UsageError(f"nobody to ask: give --bootstrap FILE, or set {' or '.join(ENVIRONMENT)}")
    return RelayConfig(
        Path(given["bootstrap"]) if given["bootstrap"] is not None else None,
        given["listen"],
        optional(given["admin"]),
        settings_of(given),
        v2=given["transport"] == "v2,v3",
        rest=optional(given["rest"]),
        engine=given["engine"],
        max_connection_age=given["max_connection_age"],
        tls=tls_of(given),
        delta=given["delta"],
        cache=Path(given["cache"]) if given["cache"] is not None else None,
        group_by=_group_by(given["group_by"]),
        linger=given["linger"],
        max_stale=given["max_stale"],
    )


def _group_by(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    if text in ("*", "none"):
        raise UsageError(f"--group-by {text!r} is no list of keys: write env,version")
    return frozenset(keys("--group-by", text) or ())
