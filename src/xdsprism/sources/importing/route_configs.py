"""Takes the route configurations out of listeners, so that each is a resource that can have variants.

A changed listener drains its connections; a changed route configuration drains none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from ...core.model.types import ROUTE
from ...messages.document import Path
from ...messages.json_parts import parts_of
from .config_sources import HTTP_CONNECTION_MANAGER
from .names import free_name
from .resources import Resource


class _Inline(NamedTuple):
    """A route configuration in a listener."""

    listener: Resource
    manager: dict[str, Any]
    path: Path
    name: str  # its own; empty: none


def take_out(listeners: Sequence[Resource], source: dict[str, Any], taken: Collection[str]) -> list[Resource]:
    """Change the listeners so that they fetch their route configurations from `source`; return these.

    A route configuration keeps its name, unless it has none, another resource has it (`taken`), or several different
    ones share it, as every example calls its own `local_route`. Then the listener's name is put in front.
    """
    found = [each for listener in listeners for each in _inline(listener)]
    contents: dict[str, list[Any]] = {}
    for each in found:
        same = contents.setdefault(each.name, [])
        if each.manager["route_config"] not in same:
            same.append(each.manager["route_config"])
    names: dict[str, Any] = dict.fromkeys(taken)
    resources: list[Resource] = []
    for each in found:
        config = each.manager.pop("route_config")
        alone = bool(each.name) and len(contents[each.name]) == 1
        if alone and names.get(each.name) == config:  # two listeners with the same routes
            name = each.name
        else:
            wanted = each.name if alone else "-".join(filter(None, (each.listener.name, each.name)))
            name = free_name(wanted, names)
            names[name] = config
            body = {"name": name, **{key: value for key, value in config.items() if key != "name"}}
            remark = f"`{each.name}` of listener {each.listener.name}" if name != each.name else ""
            resources.append(Resource(ROUTE, name, body, each.path, (remark,) if remark else ()))
        each.manager["rds"] = {"config_source": deepcopy(source), "route_config_name": name}
    return resources


def _inline(listener: Resource) -> list[_Inline]:
    return [
        _Inline(
            listener,
            part.value,
            (*listener.path, *part.path, "route_config"),
            part.value["route_config"].get("name", ""),
        )
        for part in parts_of(listener.body, listener.type_name)
        if part.type == HTTP_CONNECTION_MANAGER and "route_config" in part.value
    ]
