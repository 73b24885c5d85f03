"""`--no-csds` of both daemons: clients are not told of each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.status.v3 import csds_pb2_grpc
from envoy.service.status.v3.csds_pb2 import ClientStatusRequest, ClientStatusResponse
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cli.rig import Daemon, write
from tests.cli.test_relay import bootstrap
from tests.support.resources import static_cluster

SERVICE = "envoy.service.status.v3.ClientStatusDiscoveryService"


def asked(daemon: Daemon) -> tuple[Any, Any]:
    """What it says of its clients, and of the health of this service; or as what it refuses to."""
    with grpc.insecure_channel(daemon.listen) as channel:
        found: list[Any] = []
        for call, request in (
            (csds_pb2_grpc.ClientStatusDiscoveryServiceStub(channel).FetchClientStatus, ClientStatusRequest()),
            (health_pb2_grpc.HealthStub(channel).Check, health_pb2.HealthCheckRequest(service=SERVICE)),
        ):
            try:
                found.append(call(request, timeout=20))
            except grpc.RpcError as error:
                found.append(error.code())
        return found[0], found[1]


@pytest.mark.parametrize("verb", ["serve", "relay"])
def test_without_csds_the_service_is_not_there(tmp_path: Path, verb: str):
    # CSD-1
    write(tmp_path / "config", "clusters", static_cluster("shop", "127.0.0.1", 1))
    given = [tmp_path / "config"] if verb == "serve" else ["--bootstrap", bootstrap(tmp_path, "127.0.0.1:1")]
    with Daemon(tmp_path, *given, "--no-csds", verb=verb) as daemon:
        assert asked(daemon) == (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND)
    with Daemon(tmp_path, *given, verb=verb) as daemon:
        told, health = asked(daemon)
        assert told == ClientStatusResponse()
        # PRX-30: this relay reaches no server
        response = health_pb2.HealthCheckResponse
        assert health.status == (response.SERVING if verb == "serve" else response.NOT_SERVING)
