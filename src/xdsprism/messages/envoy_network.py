"""Checks clusters, endpoints and listeners for what Envoy refuses beyond the annotations in their protos."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import product
from math import prod
from socket import AF_INET, AF_INET6, inet_pton
from typing import Any

from .document import Path
from .faults import Check, Faults
from .field_checks import FieldChecks

_STATIC_CLUSTER = "envoy.cluster.static"
_STATIC, _LOGICAL_DNS, _ORIGINAL_DST = 0, 2, 4  # Cluster.DiscoveryType
_UDP = 1  # SocketAddress.Protocol
_MAX_COMBINATIONS = 10_000  # of one filter chain; with more, only matches that are written alike are found


# -- addresses


def _is_ip(text: str) -> bool:
    """Whether a text is an IP address in the form that Envoy accepts."""
    try:
        inet_pton(AF_INET6, text.partition("%")[0]) if ":" in text else inet_pton(AF_INET, text)
    except (OSError, ValueError):
        return False
    return True


def _address(address: Any, path: Path, faults: Faults, hint: str) -> None:
    """Check an address that Envoy uses without resolving it: it must be an IP address with a port number."""
    if address.WhichOneof("address") != "socket_address" or address.socket_address.resolver_name:
        return
    place = (*path, "socket_address")
    inner = address.socket_address
    if not _is_ip(inner.address):
        faults.append(((*place, "address"), f"{inner.address!r} is not an IP address{hint}"))
    if inner.WhichOneof("port_specifier") == "named_port":
        faults.append(((*place, "named_port"), "named ports are not resolved here: write port_value"))


# -- clusters and endpoints


def _cluster(message: Any, faults: Faults) -> None:
    """Check that the endpoints of a cluster fit its discovery type."""
    kind = message.type
    if message.WhichOneof("cluster_discovery_type") == "cluster_type":
        kind = _STATIC if message.cluster_type.name == _STATIC_CLUSTER else None
    if kind == _STATIC and message.HasField("load_assignment"):
        hint = ": write one, or have names looked up with the type STRICT_DNS or LOGICAL_DNS"
        _assignment(message.load_assignment, ("load_assignment",), faults, hint)
    elif kind == _LOGICAL_DNS:
        sizes = [len(each.lb_endpoints) for each in message.load_assignment.endpoints]
        if sizes != [1]:
            faults.append((("load_assignment",), "must have exactly one endpoint, as the type is LOGICAL_DNS"))
    elif kind == _ORIGINAL_DST and message.HasField("load_assignment"):
        faults.append((("load_assignment",), "can't be set, as the type is ORIGINAL_DST: clients bring the address"))


def _eds_assignment(message: Any, faults: Faults) -> None:
    _assignment(message, (), faults, ": endpoints by EDS are not looked up")


def _assignment(message: Any, path: Path, faults: Faults, hint: str) -> None:
    """Check the addresses of all endpoints. The first condition skips those that are plainly valid."""
    for at, locality in enumerate(message.endpoints):
        for index, each in enumerate(locality.lb_endpoints):
            endpoint = each.endpoint
            address = endpoint.address
            inner = address.socket_address
            if not inner.port_value or endpoint.additional_addresses or not _is_ip(inner.address):
                place = (*path, "endpoints", at, "lb_endpoints", index, "endpoint")
                _address(address, (*place, "address"), faults, hint)
                for number, more in enumerate(endpoint.additional_addresses):
                    _address(more.address, (*place, "additional_addresses", number, "address"), faults, hint)


# -- listeners


def _listener(message: Any, faults: Faults) -> None:
    """Check the addresses and the filter chains of a listener. A gRPC listener has neither."""
    if message.HasField("api_listener"):
        return
    hint = ": a listener's own address is not looked up"
    _address(message.address, ("address",), faults, hint)
    for index, each in enumerate(message.additional_addresses):
        _address(each.address, ("additional_addresses", index, "address"), faults, hint)
    _chains(message, faults)


def _chains(message: Any, faults: Faults) -> None:
    """Check that a listener has the filter chains that its kind needs, and that they are distinct."""
    some = message.filter_chains or message.HasField("default_filter_chain")
    if _is_connectionless(message):
        if some:
            place = "filter_chains" if message.filter_chains else "default_filter_chain"
            faults.append(((place,), "can't be set: UDP without quic_options has no connections"))
    elif not some and not message.HasField("fcds_config") and _is_placed(message):
        faults.append((("filter_chains",), "a listener needs filter_chains or a default_filter_chain"))
    elif message.HasField("filter_chain_matcher"):
        _names(message.filter_chains, faults)
    else:
        _matches(message.filter_chains, faults)


def _is_connectionless(message: Any) -> bool:
    """Whether a listener is for plain UDP, which has no connections for filter chains."""
    udp = message.address.socket_address.protocol == _UDP
    return bool(udp and not message.udp_listener_config.HasField("quic_options"))


def _is_placed(message: Any) -> bool:
    """Whether a listener has an address, or needs none as it is internal."""
    return bool(message.HasField("address") or message.WhichOneof("listener_specifier") == "internal_listener")


def _names(chains: Any, faults: Faults) -> None:
    """Check that each filter chain has a name of its own, as filter_chain_matcher refers to chains by name."""
    seen: set[str] = set()
    for index, chain in enumerate(chains):
        if not chain.name:
            faults.append(
                (("filter_chains", index, "name"), "is required, as filter_chain_matcher finds it by its name")
            )
        elif chain.name in seen:
            faults.append((("filter_chains", index, "name"), f"{chain.name!r} is the name of another filter chain too"))
        seen.add(chain.name)


def _matches(chains: Any, faults: Faults) -> None:
    """Check that no two filter chains match exactly the same connections. One may match a part of another's."""
    if len(chains) == 1 and not chains[0].HasField("filter_chain_match"):
        return
    owners: dict[tuple[object, ...], int] = {}
    for index, chain in enumerate(chains):
        match = chain.filter_chain_match
        before = len(faults)
        _server_names(match, index, faults)
        if len(faults) > before:
            continue
        for each in _combinations(match):
            if each in owners:
                owner = f"as filter_chains[{owners[each]}]" if owners[each] != index else "twice"
                text = f"matches the same connections {owner}, which Envoy refuses"
                faults.append((("filter_chains", index, "filter_chain_match"), text))
                break
            owners[each] = index


def _server_names(match: Any, index: int, faults: Faults) -> None:
    for at, name in enumerate(match.server_names):
        if "*" in name and not name.startswith("*."):
            text = f"{name!r} has a wildcard that is not its first label: write a name, or one such as *.example.com"
            faults.append((("filter_chains", index, "filter_chain_match", "server_names", at), text))


def _combinations(match: Any) -> Iterator[tuple[object, ...]]:
    """Yield every combination of values that a filter chain match lists, one value for each criterion."""
    lists = (
        _networks(match.prefix_ranges),
        [name.lower().removeprefix("*") if name.startswith("*.") else name.lower() for name in match.server_names],
        list(match.application_protocols),
        _networks(match.direct_source_prefix_ranges),
        _networks(match.source_prefix_ranges),
        list(match.source_ports),
    )
    if prod(len(values) or 1 for values in lists) > _MAX_COMBINATIONS:
        yield (match.SerializeToString(deterministic=True),)
        return
    single = (match.destination_port.value, match.transport_protocol, match.source_type)
    for each in product(*(values or [""] for values in lists)):
        yield (*single, *each)


def _networks(ranges: Any) -> list[object]:
    """Return IP ranges in a comparable form: the network of each, without the host bits."""
    found: list[object] = []
    for each in ranges:
        try:
            address = ipaddress.ip_address(each.address_prefix)
            size = min(each.prefix_len.value, address.max_prefixlen)
            found.append(ipaddress.ip_network(f"{address}/{size}", strict=False))
        except ValueError:
            found.append(each.address_prefix)
    return found


_OF_CLUSTERS = ("type", "cluster_type", "load_assignment")
_OF_LISTENERS = ("address", "internal_listener", "filter_chains", "default_filter_chain")
CHECKS = {
    "envoy.config.cluster.v3.Cluster": FieldChecks({}, _cluster, _OF_CLUSTERS),
    "envoy.config.listener.v3.Listener": FieldChecks({}, _listener, _OF_LISTENERS),
}

# Checks of a message that is a resource. A load assignment inside a cluster is checked by the cluster's type instead.
RESOURCE_CHECKS: dict[str, Check] = {"envoy.config.endpoint.v3.ClusterLoadAssignment": _eds_assignment}
