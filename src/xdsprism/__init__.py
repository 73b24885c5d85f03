"""xdsprism: one xDS resource name, many variants, each client gets its own and every variant stays cacheable.

    import xdsprism as xp

    store = xp.Store()
    with store.transaction() as tx:
        tx.put(cluster_message, when="env=prod")

    async with xp.Server(store, listen="127.0.0.1:0") as server:
        ...

    async with xp.Client("bootstrap.json") as client:
        async for update in client.watch(xp.CLUSTER, "backend"):
            ...

What is not imported here is private. Imports happen on first use, so that a program pays for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .builds import choose
from .release import __version__ as __version__

if TYPE_CHECKING:
    from .admin.access import Access
    from .client.bootstrap import Bootstrap
    from .client.checks import check_rules
    from .client.client import Client
    from .client.updates import Update
    from .core.codec.expression import Expression
    from .core.model.limits import Limits
    from .core.model.settings import Settings
    from .core.model.types import (
        CLUSTER,
        ENDPOINT,
        EXTENSION_CONFIG,
        LB_ENDPOINT_COLLECTION,
        LISTENER,
        ROUTE,
        RUNTIME,
        SCOPED_ROUTE,
        SECRET,
        VIRTUAL_HOST,
        Params,
        TypeSpec,
    )
    from .core.provide.provider import Provided
    from .errors import ConfigError, PeerError, UsageError, WatchError, XdsError
    from .relay.relay import Relay
    from .server.tls import Tls
    from .serving import Server
    from .sources.memory import Store

choose()  # before anything else of the package is imported

_HOMES = {
    "Access": "admin.access",
    "Bootstrap": "client.bootstrap",
    "CLUSTER": "core.model.types",
    "Client": "client.client",
    "ConfigError": "errors",
    "ENDPOINT": "core.model.types",
    "EXTENSION_CONFIG": "core.model.types",
    "Expression": "core.codec.expression",
    "LB_ENDPOINT_COLLECTION": "core.model.types",
    "LISTENER": "core.model.types",
    "Limits": "core.model.limits",
    "Params": "core.model.types",
    "PeerError": "errors",
    "Provided": "core.provide.provider",
    "ROUTE": "core.model.types",
    "RUNTIME": "core.model.types",
    "Relay": "relay.relay",
    "SCOPED_ROUTE": "core.model.types",
    "SECRET": "core.model.types",
    "Server": "serving",
    "Settings": "core.model.settings",
    "Store": "sources.memory",
    "Tls": "server.tls",
    "TypeSpec": "core.model.types",
    "Update": "client.updates",
    "UsageError": "errors",
    "VIRTUAL_HOST": "core.model.types",
    "WatchError": "errors",
    "XdsError": "errors",
    "check_rules": "client.checks",
}

__all__ = [
    "CLUSTER",
    "ENDPOINT",
    "EXTENSION_CONFIG",
    "LB_ENDPOINT_COLLECTION",
    "LISTENER",
    "ROUTE",
    "RUNTIME",
    "SCOPED_ROUTE",
    "SECRET",
    "VIRTUAL_HOST",
    "Access",
    "Bootstrap",
    "Client",
    "ConfigError",
    "Expression",
    "Limits",
    "Params",
    "PeerError",
    "Provided",
    "Relay",
    "Server",
    "Settings",
    "Store",
    "Tls",
    "TypeSpec",
    "Update",
    "UsageError",
    "WatchError",
    "XdsError",
    "check_rules",
    "parse",
]


def parse(text: str) -> Expression:
    """Read an EXPR, such as `env=prod and not version exists`; a UsageError says where and what was expected."""
    from .core.codec.expression import Expression  # noqa: PLC0415 # lazily, as everything here

    return Expression.parse(text)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List what is exported, also what was not used and so not imported yet."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
