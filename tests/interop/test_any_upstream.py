"""Control planes that know nothing of dynamic parameters behind `xdsprism relay --bootstrap FILE`, and no other flag.

A real Envoy and a real gRPC client get their traffic through each: at first, after an update, after a removal, and
after the control plane was killed and started again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import grpcio_caller, web
from tests.support.backends import GrpcBackend, HttpBackend
from tests.support.foreign import ForeignPlane
from tests.support.relay_process import RelayedLab
from tests.support.toolchains import CONTROL_PLANES, OTHER_CONTROL_PLANES
from tests.support.waiting import becomes

# The first test builds the control planes, and a first build fetches their packages.
pytestmark = pytest.mark.timeout(600)

GRPC = [sys.executable, Path(grpcio_caller.__file__)]
PLANES = [*CONTROL_PLANES, *OTHER_CONTROL_PLANES]


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[RelayedLab]:
    with RelayedLab(tmp_path) as lab:
        yield lab
        for name, log in lab.logs().items():
            print(f"end of {name}:\n{log}")


def world(web_backend: HttpBackend, rpc_backend: GrpcBackend) -> list[str]:
    return [
        *("cluster web 1", f"endpoint web {web_backend.port}", "route web web", "gateway web"),
        *("cluster rpc 1", f"endpoint rpc {rpc_backend.port}", "route svc rpc", "service svc"),
    ]


def upstream(lab: RelayedLab, plane: ForeignPlane) -> dict[str, Any]:
    """What the relay says of its server."""
    answer = web.get(*web.split(lab.relay(plane).admin), "/api/upstreams")
    (row,) = json.loads(answer.body)["upstreams"]
    return row


# PRX-32, PRX-33, PRX-10, PRX-15
@pytest.mark.parametrize("mode", ["delta", "sotw"])
@pytest.mark.parametrize("name", PLANES)
def test_envoy_and_grpc_get_their_traffic_from_any_control_plane(relayed: RelayedLab, name: str, mode: str):
    webs = {name: relayed.http_backend(f"web-{name}") for name in ("one", "two", "three")}
    rpcs = {name: relayed.grpc_backend(f"rpc-{name}") for name in ("one", "two", "three")}
    plane = relayed.foreign(name)
    plane.publish(*world(webs["one"], rpcs["one"]))
    envoy = relayed.envoy(plane, mode, {"env": "prod", "host": "envoy"})
    caller = relayed.caller(GRPC, plane, {"env": "test", "host": "grpc"})
    becomes(lambda: envoy.get("/"), "web-one")
    caller.reaches("rpc-one")
    row = upstream(relayed, plane)
    assert (row["form"], row["protocol"]) == ("names", "sotw" if name.endswith("sotw") else "delta")

    # Updates: other endpoints, then another cluster behind the same route.
    plane.publish(f"endpoint web {webs['two'].port}", f"endpoint rpc {rpcs['two'].port}")
    becomes(lambda: envoy.get("/"), "web-two")
    caller.reaches("rpc-two")
    plane.publish("cluster other 1", f"endpoint other {webs['three'].port}", "route web other")
    becomes(lambda: envoy.get("/"), "web-three")

    # A removal, and its return.
    plane.publish(*(f"delete {each}" for each in ("service svc", "gateway web", "cluster web", "endpoint web")))
    caller.fails("Say")
    becomes(envoy.listeners, {})
    becomes(lambda: sorted(envoy.clusters()), ["other", "rpc"])
    plane.publish("service svc", "gateway web")
    caller.reaches("rpc-two")
    becomes(lambda: envoy.get("/"), "web-three")

    # Nobody notices that the control plane is gone. The next one has something else.
    plane.kill()
    with envoy.traffic() as traffic:
        becomes(lambda: upstream(relayed, plane)["connected"], False)
        other = ("cluster other 1", f"endpoint other {webs['one'].port}", "route web other")
        plane.restart(*world(webs["one"], rpcs["one"]), *other)
        becomes(lambda: upstream(relayed, plane)["connected"], True)
        becomes(lambda: traffic.answers[-1:], ["web-one"])
    assert set(traffic.answers) == {"web-three", "web-one"}
    caller.reaches("rpc-one")
    plane.publish(f"endpoint other {webs['two'].port}", f"endpoint rpc {rpcs['two'].port}")
    becomes(lambda: envoy.get("/"), "web-two")
    caller.reaches("rpc-two")

    row = upstream(relayed, plane)
    assert (row["form"], row["protocol"]) == ("names", "sotw" if name.endswith("sotw") else "delta")
    said = [line for line in relayed.relay(plane).program.text().splitlines() if "dynamic parameters" in line]
    assert len(said) == 1
    assert not any(envoy.stats("update_rejected").values())
