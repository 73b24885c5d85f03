"""Names what has no name of its own, and tells apart what has the same name: always alike for the same file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any


def listener_names(listeners: Iterable[dict[str, Any]]) -> list[str]:
    """Return a name for each listener: its own, or one made of its address, as Envoy names statistics of listeners."""
    names = [each.get("name") or _of_address(each) for each in listeners]
    made = {index for index, each in enumerate(listeners) if not each.get("name")}
    taken = Counter(name for index, name in enumerate(names) if index not in made)
    for index in sorted(made):
        names[index] = free_name(names[index], taken)
        taken[names[index]] += 1
    return names


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, or `name-2` and so on if it is taken."""
    found, number = name, 1
    known = taken if isinstance(taken, (set, frozenset, dict)) else set(taken)
    while found in known:
        number += 1
        found = f"{name}-{number}"
    return found


def _of_address(listener: dict[str, Any]) -> str:
    address = listener.get("address", {})
    socket = address.get("socket_address")
    if socket is not None:
        port = socket.get("port_value", socket.get("named_port", 0))
        protocol = "_udp" if socket.get("protocol") == "UDP" else ""
        return f"{socket.get('address', '')}_{port}{protocol}"
    if "pipe" in address:
        return str(address["pipe"].get("path") or "pipe")
    internal = address.get("envoy_internal_address", {})
    return str(internal.get("server_listener_name") or "listener")
