"""Says as whom a peer counts where limits and quotas are for each address."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address, IPv6Network
from urllib.parse import unquote

NETWORK_BITS = 64  # of an IPv6 address, the least that a provider gives to one customer


def host_of(peer: str) -> str:
    """Return the address of a peer without its port: `ipv4:10.0.0.1` of `ipv4:10.0.0.1:40000`.

    Of IPv6 it is the network, `ipv6:2001:db8::/64`, since who has one address of it mostly has all of them. An IPv4
    address in the form of IPv6, which a socket for both has, counts as what it is.
    """
    address = peer.rpartition(":")[0]
    return _network_of(address) if ":" in address.removeprefix("ipv4:") else address


@lru_cache(4_096)
def _network_of(address: str) -> str:
    """Return the network of an IPv6 address; what is none stays as it is."""
    kind = "ipv6:" if address.startswith("ipv6:") else ""
    try:
        host = IPv6Address(unquote(address.removeprefix(kind)).strip("[]"))  # grpc may quote the brackets
    except AddressValueError:
        return address
    if host.ipv4_mapped is not None:
        return f"{'ipv4:' if kind else ''}{host.ipv4_mapped}"
    return kind + str(IPv6Network((int(host), NETWORK_BITS), strict=False))
