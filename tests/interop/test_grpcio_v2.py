"""A real client of xDS v2: an old grpcio in an environment of its own, with a bootstrap that says nothing of `xds_v3`.

It asks in the names of v2, and gets what clients of v3 get from the same files, in the same push.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import grpcio_caller, scenarios
from tests.support.control_plane import ControlPlane
from tests.support.lab import Lab
from tests.support.relay_process import RelayedLab
from tests.support.resources import api_listener, eds_cluster, endpoints, routes, to
from tests.support.toolchains import command
from tests.support.waiting import becomes, eventually

# The first test installs the client.
pytestmark = pytest.mark.timeout(600)

Argv = list[str | Path]

V3_CLIENT = [sys.executable, Path(grpcio_caller.__file__)]
ADS = "/envoy.service.discovery.{}.AggregatedDiscoveryService/StreamAggregatedResources"


@pytest.fixture
def client() -> Argv:
    return command("grpcio-v2")


@pytest.fixture
def old_lab(lab: Lab) -> Lab:
    """The same, where callers are told of no version: so they take the one that needs no telling."""
    lab.features = []
    return lab


def methods(server: ControlPlane) -> list[str]:
    """Over which methods the clients came that are there now."""
    return sorted(each["method"] for each in json.loads(server.get("/api/clients"))["clients"])


# VER-1, VER-2, VER-4, SOT-2, SOT-5, ORD-1
def test_calls_reach_the_backend_and_an_update_moves_them(old_lab: Lab, client: Argv):
    scenarios.calls_reach_the_backend_and_an_update_moves_them(old_lab, client)


# VER-2, SOT-6, SOT-8
def test_a_removed_listener_fails_the_calls_and_they_recover(old_lab: Lab, client: Argv):
    scenarios.a_removed_listener_fails_the_calls_and_they_recover(old_lab, client)


# VER-2, NAK-1, NAK-3, NAK-4, NAK-6, NAK-28
def test_a_bad_cluster_does_not_hold_back_the_good_one(old_lab: Lab, client: Argv):
    scenarios.a_bad_cluster_does_not_hold_back_the_good_one(old_lab, client)


# VER-2, DYN-12, DYN-18, DYN-28, SRV-22
def test_two_clients_get_their_own_variants(old_lab: Lab, client: Argv):
    scenarios.two_clients_get_their_own_variants(old_lab, client)


def _served(lab: Lab, port: int, *flags: str) -> ControlPlane:
    server = lab.control_plane()
    server.flags = [*flags]
    cluster = eds_cluster("blue", lrs_server={"self": {}})
    server.write("main", api_listener("svc", "main"), routes("main", to("blue")), cluster)
    server.write("endpoints", endpoints("blue", port))
    server.start()
    return server


# VER-1, VER-6, VER-15
def test_a_v2_client_is_served_beside_a_v3_client(lab: Lab, client: Argv):
    blue, green = lab.grpc_backend("blue"), lab.grpc_backend("green")
    server = _served(lab, blue.port)
    new = lab.caller(V3_CLIENT, server)
    lab.features = []
    old = lab.caller(client, server)
    for caller in (old, new):
        caller.reaches("blue")
    assert methods(server) == [ADS.format("v2"), ADS.format("v3")]
    server.write("endpoints", endpoints("blue", green.port))
    for caller in (old, new):
        caller.reaches("green")


# VER-6: the bootstrap decides, not the age of the client
def test_told_of_v3_it_speaks_v3(lab: Lab, client: Argv):
    blue = lab.grpc_backend("blue")
    server = _served(lab, blue.port, "--transport", "v3")
    caller = lab.caller(client, server)
    caller.reaches("blue")
    assert methods(server) == [ADS.format("v3")]


def _issued(server: ControlPlane) -> float:
    """Calls per second to the only place of the only cluster that the only client reports of."""
    found: list[dict[str, Any]] = json.loads(server.get("/api/loads"))["clients"]
    places = [place for each in found for cluster in each["clusters"] for place in cluster["localities"]]
    return max((place["succeeded_per_second"] for place in places), default=0.0)


# VER-10, LRS-1
def test_a_v2_client_reports_its_load(old_lab: Lab, client: Argv):
    blue = old_lab.grpc_backend("blue")
    server = _served(old_lab, blue.port, "--load-interval", "0.5")
    caller = old_lab.caller(client, server)
    caller.reaches("blue")
    assert methods(server) == [ADS.format("v2")]
    assert eventually(lambda: _issued(server)) > 0
    assert 'client="caller",cluster="blue",locality="here",result="succeeded"' in server.get("/metrics")
    caller.close()
    becomes(lambda: json.loads(server.get("/api/loads"))["total"], 0)


# -- behind a relay, which speaks v3 with the server


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[RelayedLab]:
    with RelayedLab(tmp_path) as lab:
        lab.features = []
        yield lab
        for name, log in lab.logs().items():
            print(f"end of {name}:\n{log}")


# VER-14, PRX-15
def test_behind_a_relay_calls_reach_the_backend_and_an_update_moves_them(relayed: RelayedLab, client: Argv):
    scenarios.calls_reach_the_backend_and_an_update_moves_them(relayed, client)
