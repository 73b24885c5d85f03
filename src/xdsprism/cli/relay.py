"""`xdsprism relay`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .options import (
    ENVIRONMENT,
    POLICY,
    Seconds,
    access_of,
    announcing,
    daemon_options,
    descriptors_option,
    keys,
    optional,
    policy_option,
    policy_path,
    settings_of,
    tls_of,
    validate_option,
)

if TYPE_CHECKING:
    from ..config import RelayConfig


@click.command(short_help="Cache in front of other xDS servers.")
@click.option(
    "--bootstrap",
    metavar="FILE",
    help="The upstream servers, in gRPC's bootstrap format; by default from GRPC_XDS_BOOTSTRAP or "
    "GRPC_XDS_BOOTSTRAP_CONFIG. Its dynamic_parameters are defaults for clients that send none, for each key that "
    "their node does not have.",
)
@daemon_options
@click.option(
    "--cache",
    metavar="FILE",
    help="Keep the last known state in this file, and serve it after a restart until an upstream server answers.",
)
@click.option(
    "--max-stale",
    type=Seconds(),
    default=86400.0,
    show_default=True,
    help="How long cached resources are given to new subscriptions after the upstream servers were lost.",
)
@click.option(
    "--group-by",
    metavar="KEY,KEY",
    help="For upstream servers that look at node metadata: ask as one node for each combination of these keys' values.",
)
@click.option(
    "--delta/--sotw",
    default=True,
    show_default=True,
    help="The protocol towards upstream servers. A server without delta is asked in SotW, which has no virtual hosts "
    "on demand.",
)
@click.option(
    "--upstream-form",
    type=click.Choice(["auto", "locators", "names"]),
    default="auto",
    show_default=True,
    help="Ask upstream servers by locators, which carry dynamic parameters, or by plain names; auto: whichever a "
    "server understands. With plain names all clients share what a server answers.",
)
@click.option(
    "--linger",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="How long the relay keeps an upstream subscription that no client wants any more.",
)
@click.option(
    "--report-nacks",
    is_flag=True,
    default=False,
    help="NACK upstream what clients reject, naming the client; ACKs wait for the clients, up to 5 s.",
)
@validate_option(
    "off",
    "What Envoy would refuse is NACKed by name, so that clients keep what they have (envoy), passed on and logged "
    "(warn), or not checked (off). A listener with an api_listener, which is for gRPC, is always passed on.",
)
@descriptors_option
@policy_option(POLICY)
def relay(**given: Any) -> None:
    """Cache in front of other xDS servers.

    Many clients cost an upstream server one stream. The relay answers a client from its cache if the client's params
    match a cached variant. Clients keep what they have while the upstream servers are down. SIGTERM ends every stream
    cleanly. Port 0 takes a free port. On the admin port, /readyz says whether a server was reached.

    \b
    Example:
      xdsprism relay --bootstrap bootstrap.json --cache relay.db
      xdsprism relay --bootstrap istio.json --group-by CLUSTER_ID,NAMESPACE
      xdsprism relay --bootstrap bootstrap.json --validate warn --descriptors own-filters.binpb
      xdsprism relay --bootstrap b.json --tls-cert relay.pem --tls-key relay.key --tls-client-ca ca.pem --policy p.yaml
    """  # noqa: D301
    from ..app import run
    from ..observe.logs import configure

    configure(given["log_format"], given["log_level"])
    run(_config(given), announcing(given["log_format"]))


def _config(given: dict[str, Any]) -> RelayConfig:
    from ..config import RelayConfig

    if given["bootstrap"] is None and not any(os.environ.get(name) for name in ENVIRONMENT):
        raise UsageError(f"no upstream servers: give --bootstrap FILE, or set {' or '.join(ENVIRONMENT)}")
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
        policy=policy_path(given),
        csds=given["csds"],
        access=access_of(given),
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
        raise UsageError(f"--group-by {text!r} is not a list of keys: write env,version")
    return frozenset(keys("--group-by", text) or ())
