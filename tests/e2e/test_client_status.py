"""CSDS of a server and of a relay, beside what a real Envoy says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from envoy.service.status.v3 import csds_pb2_grpc
from envoy.service.status.v3.csds_pb2 import ERROR, SYNCED, ClientConfig, ClientStatusRequest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cli.rig import Daemon, write
from tests.cli.test_relay import bootstrap as relay_bootstrap
from tests.e2e.test_status import BAD, GOOD, MODES, NODE
from tests.support.envoy import Envoy, bootstrap
from tests.support.resources import static_cluster
from tests.support.waiting import eventually


@pytest.fixture(params=["serve", "relay"])
def role(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    config = tmp_path / "config"
    write(config, "clusters", static_cluster("shop", "127.0.0.1", 1))
    write(config, "listeners", GOOD, BAD)
    with ExitStack() as stack:
        server = stack.enter_context(Daemon(tmp_path, config, "--validate", "off"))
        if request.param == "serve":
            yield server
            return
        given = ["--bootstrap", relay_bootstrap(tmp_path, server.listen)]
        yield stack.enter_context(Daemon(tmp_path, *given, verb="relay"))


def shown(channel: grpc.Channel) -> ClientConfig:
    """What the server says of Envoy."""
    request = ClientStatusRequest()
    request.node_matchers.add().node_id.exact = "envoy-1"
    answer = csds_pb2_grpc.ClientStatusDiscoveryServiceStub(channel).FetchClientStatus(request, timeout=20)
    return answer.config[0] if answer.config else ClientConfig()


def versions_of(envoy: Envoy) -> dict[str, str]:
    """What Envoy says of itself: the versions of the dynamic clusters and listeners that it uses."""
    found: dict[str, str] = {}
    for part in json.loads(envoy.admin("/config_dump"))["configs"]:
        for each in part.get("dynamic_active_clusters", ()):
            found[each["cluster"]["name"]] = each["version_info"]
        for each in part.get("dynamic_listeners", ()):
            if "active_state" in each:
                found[each["active_state"]["listener"]["name"]] = each["active_state"]["version_info"]
    return found


@MODES
def test_what_the_server_says_of_an_envoy_is_what_envoy_says_of_itself(role: Daemon, mode: str, tmp_path: Path):
    # CSD-1, CSD-2
    envoy = Envoy(tmp_path, bootstrap(mode, int(role.listen.rpartition(":")[2]), NODE))
    try:
        with grpc.insecure_channel(role.listen) as channel:
            states = {"bad": ERROR, "good": SYNCED, "shop": SYNCED}
            found = eventually(
                lambda: shown(channel),
                lambda config: {each.name: each.config_status for each in config.generic_xds_configs} == states,
            )
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        assert (found.node.id, found.node.metadata["env"]) == ("envoy-1", "prod")
        entries = {each.name: each for each in found.generic_xds_configs}
        assert "nowhere" in entries["bad"].error_state.details
        used = versions_of(envoy)
        assert sorted(used) == ["good", "shop"]
        if mode == "delta":  # in SotW Envoy knows the versions of responses alone
            assert used == {name: entries[name].version_info for name in used}
    finally:
        envoy.close()
