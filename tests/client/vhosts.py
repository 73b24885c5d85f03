"""Virtual hosts of a server: under their own name, with the requested strings as aliases."""

from __future__ import annotations

from typing import Any

from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.service.discovery.v3.discovery_pb2 import Resource

import xdsprism as xp
from tests.client.rig import status
from tests.client.wrapping import wrap


def vhost(name: str, *domains: str, mark: str = "") -> VirtualHost:
    return VirtualHost(name=name, domains=domains or ["*"], request_headers_to_remove=[mark] if mark else [])


def known(
    name: str, *aliases: str, serves: tuple[str, ...] = (), mark: str = "", version: str = "1", **options: Any
) -> Resource:
    """A virtual host that goes by these strings too; `mark` tells one version of contents from another."""
    made = wrap(vhost(name, *serves, mark=mark), version=version, **options)
    made.aliases.extend(aliases)
    return made


def void(name: str, *aliases: str, version: str = "absent.1") -> Resource:
    """VHD-7: what an unknown host is answered with."""
    return Resource(name=name, aliases=aliases, version=version)


def told(update: xp.Update) -> tuple[str, str]:
    """What was asked for, and what came: the name of the resource and its mark, or the status of an error."""
    if update.resource is None:
        return update.name, " ".join(status(update))
    return update.name, "=".join((update.resource.name, *update.resource.request_headers_to_remove))
