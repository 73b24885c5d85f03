"""Recognizes an Envoy bootstrap and a config dump among documents."""

from __future__ import annotations

from typing import Any, Literal

Kind = Literal["bootstrap", "config dump"]

BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"
CONFIG_DUMP = "envoy.admin.v3.ConfigDump"
ADMIN = "envoy.admin."

# Fields of a bootstrap that no document of a configuration has.
_FIELDS = frozenset(
    {
        *("static_resources", "dynamic_resources", "layered_runtime", "cluster_manager", "bootstrap_extensions"),
        *("staticResources", "dynamicResources", "layeredRuntime", "clusterManager", "bootstrapExtensions"),
        *("stats_sinks", "statsSinks", "admin"),
    }
)


def kind_of_import(root: object) -> Kind | None:
    """Say which of both a document is; None: neither."""
    if isinstance(root, list):
        return "config dump" if root and all(map(_is_dump_part, root)) else None
    if not isinstance(root, dict):
        return None
    name = _type_of(root)
    if name == BOOTSTRAP or (not name and not _FIELDS.isdisjoint(root)):
        return "bootstrap"
    if name == CONFIG_DUMP or (not name and isinstance(root.get("configs"), list)) or _is_dump_part(root):
        return "config dump"
    return None


def _is_dump_part(item: object) -> bool:
    name = _type_of(item) if isinstance(item, dict) else ""
    return name.startswith(ADMIN) and "ConfigDump" in name


def _type_of(item: dict[Any, Any]) -> str:
    name = item.get("@type")
    return name.rpartition("/")[2] if isinstance(name, str) else ""
