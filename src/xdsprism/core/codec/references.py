"""Find the resources that a message refers to, by type and name: a client needs them to use the message.

    listener ─▶ scoped routes ─▶ route configuration ─▶ cluster ─▶ endpoints
        └──────────┴── filter configurations (ECDS)        └─▶ clusters of an aggregate

A listener is searched with everything that is packed in it (`Any`), so that every filter that names a cluster is found:
TCP proxies, external authorization, access logs. A packed message that can't be read has no references. References to
resources that a client gets elsewhere (from a file, or from another server) are left out, since no stream here serves
them.

The server orders removals by these references (removals.py), and the client follows them (dependencies.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any as AnyType

from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ..model.events import WILDCARD
from ..model.types import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    SCOPED_ROUTE,
    VIRTUAL_HOST,
    Reference,
    TypeUrl,
)
from ..model.xdstp import spelled

_ANY = "google.protobuf.Any"
_EDS = 3  # envoy.config.cluster.v3.Cluster.EDS
_DEPTH = 16  # levels of messages packed in one another
_SHARED = 100_000  # distinct tuples of references to keep once for all messages

# Compared with the end of a type's name, as v2 has other packages for the same messages (VER-9).
CONNECTION_MANAGER = ".HttpConnectionManager"
AGGREGATES = ("aggregate.v3.ClusterConfig", "aggregate.v2alpha.ClusterConfig")

# Packed types whose module is imported when one is met: end of the name -> module and class. Any other type is read
# only if the program has imported it already.
_HTTP = "envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2"
_TCP = "envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2"
_AGGREGATE = "envoy.extensions.clusters.aggregate.v3.cluster_pb2"
_PACKED = {
    CONNECTION_MANAGER: (_HTTP, "HttpConnectionManager"),
    ".TcpProxy": (_TCP, "TcpProxy"),
    **dict.fromkeys(AGGREGATES, (_AGGREGATE, "ClusterConfig")),
}

_ADS = (None, "ads", "self")  # config sources that mean the stream that brought the message; None: not set


def references_of(type_url: TypeUrl, message: AnyType) -> tuple[Reference, ...]:
    """Return the references of a message, each once, in order of occurrence; none if `message` is None (unreadable)."""
    if message is None:
        return ()
    if type_url == LISTENER:
        # Any filter of a listener may name a cluster.
        found = _search(message)
    elif type_url in (ROUTE, VIRTUAL_HOST):
        found = ((CLUSTER, name) for name in clusters_of(message))
    elif type_url == SCOPED_ROUTE:
        found = _scope(message)
    elif type_url == CLUSTER:
        found = _cluster(message)
    else:
        return ()
    named: dict[Reference, None] = {}
    with suppress(DecodeError):  # an unreadable part ends the search
        named.update(((kind, spelled(name)), None) for kind, name in found if name)
    return _shared(tuple(named))


@lru_cache(_SHARED)
def _shared(references: tuple[Reference, ...]) -> tuple[Reference, ...]:
    """Return one shared tuple for equal ones: of a million virtual hosts, most refer to the same few clusters."""
    return references


# -- each kind of resource


def clusters_of(message: AnyType) -> tuple[str, ...]:
    """Return the clusters that a route configuration or virtual host names; `cluster_header` names none."""
    # A virtual host has routes itself, a route configuration has virtual hosts.
    is_host = "routes" in message.DESCRIPTOR.fields_by_name
    names: dict[str, None] = {}
    for host in (message,) if is_host else message.virtual_hosts:
        for route in host.routes:
            if route.HasField("route"):
                names.update(dict.fromkeys(_targets(route.route)))
    for level in (message,) if is_host else (message, *message.virtual_hosts):
        names.update((policy.cluster, None) for policy in level.request_mirror_policies)
    # A route by `cluster_header` has an empty name here.
    names.pop("", None)
    return tuple(names)


def _targets(action: AnyType) -> list[str]:
    """Return the clusters of a route action: of the route or its weights, and the mirrors."""
    found = [policy.cluster for policy in action.request_mirror_policies]
    if action.HasField("weighted_clusters"):
        return [*(weighted.name for weighted in action.weighted_clusters.clusters), *found]
    return [action.cluster, *found]


def _scope(message: AnyType) -> Iterator[Reference]:
    """Yield the references of a scoped route configuration."""
    yield ROUTE, message.route_configuration_name
    if message.HasField("route_configuration"):
        yield from [(CLUSTER, name) for name in clusters_of(message.route_configuration)]


def _cluster(message: AnyType) -> Iterator[Reference]:
    """Yield the references of a cluster: its endpoints (EDS), or the clusters of an aggregate."""
    service = endpoints_of(message)
    if service is not None:
        yield ENDPOINT, service
    yield from [(CLUSTER, name) for name in aggregated(message) or ()]


def endpoints_of(cluster: AnyType) -> str | None:
    """Return the name to subscribe to for a cluster's endpoints; None if they do not come by EDS."""
    if cluster.WhichOneof("cluster_discovery_type") != "type" or cluster.type != _EDS:
        return None
    return str(cluster.eds_cluster_config.service_name or cluster.name)


def aggregated(cluster: AnyType) -> tuple[str, ...] | None:
    """Return the clusters of an aggregate; None for any other cluster. Raise DecodeError."""
    config = cluster.cluster_type.typed_config
    if not config.type_url.endswith(AGGREGATES):
        return None
    message = unpacked(config)
    return tuple(message.clusters) if message is not None else None


# -- the search through a message and what is packed in it


def _search(message: AnyType) -> Iterator[Reference]:
    """Yield the references of a listener, from every message in it.

    A loop and not a recursion, since the listener's author may have packed it deeply.
    """
    waiting = [(message, _DEPTH)]
    while waiting:
        each, depth = waiting.pop()
        kind = each.DESCRIPTOR.name
        if each.DESCRIPTOR.full_name == _ANY:
            with suppress(DecodeError):
                # Too deep: leave it unread.
                inner = unpacked(each) if depth else None
                waiting += [(inner, depth - 1)] if inner is not None else []
        # Routes inline in the connection manager.
        elif kind == "RouteConfiguration":
            yield from [(CLUSTER, name) for name in clusters_of(each)]
        # Routes by name.
        elif kind == "Rds":
            if _is_here(each.config_source):
                yield ROUTE, each.route_config_name
        elif kind == "ScopedRoutes":
            yield from _scoped_routes(each)
        else:
            yield from _named_in(each)
            waiting += ((inner, depth) for inner in _parts_of(each))


def _named_in(message: AnyType) -> Iterator[Reference]:
    """Yield the references in the fields of this message itself."""
    roles = _roles(message.DESCRIPTOR)
    for field, value in message.ListFields():
        role = roles.get(field.number)
        if role == "cluster":
            yield CLUSTER, value
        elif role == "filter" and _is_here(value.config_source):
            yield EXTENSION_CONFIG, message.name


def _parts_of(message: AnyType) -> Iterator[AnyType]:
    """Yield the messages directly inside this one."""
    roles = _roles(message.DESCRIPTOR)
    for field, value in message.ListFields():
        role = roles.get(field.number)
        if role == "message":
            yield value
        elif role == "list":
            yield from value
        elif role == "map":
            yield from value.values()


def _scoped_routes(message: AnyType) -> Iterator[Reference]:
    """Yield the references of a connection manager's scoped routes, by SRDS or inline."""
    if message.HasField("scoped_rds"):
        if _is_here(message.scoped_rds.scoped_rds_config_source):
            # SRDS has no names: the client subscribes to all scoped routes.
            yield SCOPED_ROUTE, WILDCARD
        return
    for scope in message.scoped_route_configurations_list.scoped_route_configurations:
        if _is_here(message.rds_config_source):
            yield from _scope(scope)


def _is_here(source: AnyType) -> bool:
    """Whether a client gets the resource on the stream that brought the message."""
    return source.WhichOneof("config_source_specifier") in _ADS


@lru_cache(4096)
def _roles(descriptor: AnyType) -> dict[int, str]:
    """Return the role of each field by its number; fields that can't have references are left out."""
    roles = ((field.number, _role(descriptor, field)) for field in descriptor.fields)
    return {number: role for number, role in roles if role is not None}


def _role(descriptor: AnyType, field: AnyType) -> str | None:
    """Return what a field can have: a cluster's name, a filter's config source, or messages to search; else None."""
    inner = field.message_type
    if inner is None:
        # A string field of one of these names refers to a cluster.
        names = ("cluster", "cluster_name", "name" if descriptor.name == "ClusterWeight" else "")
        text = field.cpp_type == field.CPPTYPE_STRING and not field.is_repeated
        return "cluster" if text and field.name in names else None
    if field.name == "config_discovery":
        # A filter with `config_discovery` gets its configuration by ECDS, under the name of the filter.
        return "filter" if "name" in descriptor.fields_by_name else None
    if inner.GetOptions().map_entry:
        return "map" if inner.fields_by_name["value"].message_type is not None else None
    return "list" if field.is_repeated else "message"


def unpacked(packed: AnyType) -> AnyType | None:
    """Return the message in an Any; None if the program does not know its type. Raise DecodeError.

    The type is looked up in the descriptor pool of the Any: messages from files have a pool of their own
    (messages/protos.py).
    """
    kind = _kind(packed.DESCRIPTOR.file.pool, packed.type_url.rpartition("/")[2])
    return kind.FromString(packed.value) if kind is not None else None


@lru_cache(4096)
def _kind(pool: DescriptorPool, full_name: str) -> type[Message] | None:
    """Return the class of a packed message, or None if it is not known."""
    for ending, (module, name) in _PACKED.items():
        if full_name.endswith(ending):
            # The pool of messages from files loads a type when it looks for it (messages/protos.py).
            if pool is Default():
                import_module(module)  # registers the type in the default pool
            full_name = f"{module.rpartition('.')[0]}.{name}"  # the v3 name, since the code reads v3's fields
    try:
        return GetMessageClass(pool.FindMessageTypeByName(full_name))
    except (KeyError, TypeError):
        return None
