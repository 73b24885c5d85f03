"""Reads LEDS: the endpoints of a locality in a resource of their own, an `LbEndpointCollection` (gRFC A95, CLI-25)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint

from ..messages.protos import type_name

COLLECTION = "envoy.config.endpoint.v3.LbEndpointCollection"

_ENDPOINT = LbEndpoint.DESCRIPTOR.full_name


def entry_faults(collection: Any) -> Iterator[str]:
    """Yield the faults of a collection's entries: each must contain an LbEndpoint, not a reference to one."""
    for index, entry in enumerate(collection.entries):
        where = f"entries[{index}]"
        kind = entry.WhichOneof("resource_specifier")
        if kind != "inline_entry":
            yield f"{where}: expected an inline_entry, got {kind or 'nothing'}: references are not followed"
        elif type_name(entry.inline_entry.resource.type_url) != _ENDPOINT:
            got = entry.inline_entry.resource.type_url or "nothing"
            yield f"{where}.inline_entry.resource: expected an {_ENDPOINT}, got {got}"


def is_optional_name(message: Any, path: tuple[str | int, ...]) -> bool:
    """Whether the path is an empty name of an entry, which `validate.rules` refuse although it is optional."""
    if message.DESCRIPTOR.full_name != COLLECTION or path[2:] != ("inline_entry", "name"):
        return False
    return not message.entries[path[1]].inline_entry.name


def endpoints_in(collection: Any) -> tuple[Any, ...]:
    """Return the LbEndpoints of a collection; none: its locality is unreachable. Raises ValueError, DecodeError."""
    for fault in entry_faults(collection):
        raise ValueError(fault)
    return tuple(LbEndpoint.FromString(entry.inline_entry.resource.value) for entry in collection.entries)


def collections_of(assignment: Any) -> tuple[str, ...]:
    """Return the names of the collections that a ClusterLoadAssignment refers to. Raises ValueError."""
    return tuple(dict.fromkeys(name for each in assignment.endpoints if (name := _collection_of(each)) is not None))


def with_endpoints(assignment: Any, found: Mapping[str, Sequence[Any]]) -> Any:
    """Return the assignment with the endpoints of its collections in `lb_endpoints`; a missing collection has none."""
    filled = type(assignment)()
    filled.CopyFrom(assignment)
    for locality in filled.endpoints:
        name = _collection_of(locality)
        if name is not None:  # A95: lb_endpoints is ignored if the locality names a collection
            del locality.lb_endpoints[:]
            locality.lb_endpoints.extend(found.get(name, ()))
    return filled


def _collection_of(locality: Any) -> str | None:
    """Return the collection that a locality names, or None. Raises ValueError if it can't be followed."""
    if locality.WhichOneof("lb_config") != "leds_cluster_locality_config":
        return None
    config = locality.leds_cluster_locality_config
    if config.leds_config.WhichOneof("config_source_specifier") != "self":
        raise ValueError("leds_config: expected `self`: the collection is asked of the server that has the endpoints")
    name = str(config.leds_collection_name)
    if not name or name.endswith("/*"):
        text = "a glob, and only list collections are followed" if name else "empty"
        raise ValueError(f"leds_collection_name {name!r}: {text}")
    return name
