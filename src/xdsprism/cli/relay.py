"""`xdsprism relay`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .options import (
    ENVIRONMENT,
    Seconds,
    announce,
    daemon_options,
    descriptors_option,
    keys,
    optional,
    settings_of,
    tls_of,
    validate_option,
)

if TYPE_CHECKING:
    from ..config import RelayConfig


@click.command()
@click.option(
    "--bootstrap",
    metavar="FILE",
    help="The servers behind it, in gRPC's JSON; if not given, as GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG say. "
    "Its dynamic_parameters are what clients have that send none, for each key that their node does not give.",
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
    help="How the servers are asked. One that has no delta is asked in SotW, without virtual hosts on demand.",
)
@click.option(
    "--upstream-form",
    type=click.Choice(["auto", "locators", "names"]),
    default="auto",
    show_default=True,
    help="Ask the servers with dynamic parameters, by plain names, or as each turns out to understand. By plain names "
    "all clients share what a server answers.",
)
@click.option(
    "--linger",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="How long something that nobody wants any more is kept up to date.",
)
@click.option(
    "--report-nacks",
    is_flag=True,
    default=False,
    help="Tell the servers what clients reject, by a NACK that names the client; ACKs wait for the clients, up to 5 s.",
)
@validate_option(
    "off",
    "What Envoy would refuse is refused by a NACK that names it, so that clients keep what they have; passed on and "
    "logged; or not looked for. A listener with an api_listener, which is gRPC's, is let pass.",
)
@descriptors_option
def relay(**given: Any) -> None:
    """Pass on what other xDS servers have, and remember it.

    Many clients cost the servers one stream. Who has the params of a variant that is known gets it without asking, and
    all keep what they have while the servers are down. SIGTERM ends every stream cleanly. Port 0 takes a free port.
    On the admin port /readyz says whether a server was reached.

    \b
    Example:
      xdsprism relay --bootstrap bootstrap.json --cache relay.db
      xdsprism relay --bootstrap istio.json --group-by CLUSTER_ID,NAMESPACE
      xdsprism relay --bootstrap bootstrap.json --validate warn --descriptors own-filters.binpb
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
        admin_hosts=given["admin_hosts"],
        delta=given["delta"],
        upstream_form=given["upstream_form"],
        cache=Path(given["cache"]) if given["cache"] is not None else None,
        group_by=_group_by(given["group_by"]),
        linger=given["linger"],
        max_stale=given["max_stale"],
        report_nacks=given["report_nacks"],
        validate=given["validate"],
    )


def _group_by(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    if text in ("*", "none"):
        raise UsageError(f"--group-by {text!r} is no list of keys: write env,version")
    return frozenset(keys("--group-by", text) or ())
