"""As whom a peer counts: limits and quotas are for each address, and of IPv6 for each network."""

from __future__ import annotations

import pytest

from xdsprism.peer_address import host_of
from xdsprism.server.calls import Peer
from xdsprism.server.connection_limits import client_of


# OPS-4
@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:40000", "ipv4:10.0.0.1"),
        ("10.0.0.1:40000", "10.0.0.1"),
        ("ipv6:[2001:db8:1:2::1]:40000", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2:ffff:ffff:ffff:ffff]:1", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:3::1]:40000", "ipv6:2001:db8:1:3::/64"),
        ("ipv6:%5B2001:DB8:1:2::7%5D:40000", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:40000", "ipv6:fe80::/64"),
        ("2001:db8:1:2::1:40000", "2001:db8:1:2::/64"),
        ("ipv6:[::ffff:10.0.0.1]:40000", "ipv4:10.0.0.1"),
        ("::ffff:10.0.0.1:40000", "10.0.0.1"),
        ("unix:/run/xds.sock", "unix"),
        ("unknown", ""),
        ("", ""),
    ],
)
def test_an_address_counts_without_its_port_and_of_ipv6_as_its_network(peer: str, host: str) -> None:
    assert host_of(peer) == host


@pytest.mark.parametrize(
    "address",
    [
        "ipv6:[2001:db8::1]:1",
        "ipv6:%5B2001:db8::2%5D:1",  # from grpc
        "2001:db8::3:1",  # over REST
    ],
)
def test_all_clients_of_one_network_are_one_client_on_every_port(address: str) -> None:
    assert client_of(Peer(address)) == "2001:db8::/64"
