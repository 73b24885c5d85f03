from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.support.control_plane import ControlPlane
from tests.support.programs import Program
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/embed.py"
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Program]:
    program = Program("embed", [sys.executable, EXAMPLE, "127.0.0.1:0"], tmp_path / "embed.log")
    yield program
    program.kill()


async def test_embedding_example_serves_variants_and_pushes_its_changes(embedded: Program) -> None:
    # DYN-1, DYN-18, DYN-33, DYN-37
    address = eventually(lambda: re.search(r"serving on (\S+)", embedded.text()))[1]
    assert re.search(r"refused, and nothing changed: .*env=test", embedded.text())
    async with grpc.aio.insecure_channel(address) as channel:
        open_stream = channel.stream_stream(
            ADS,
            request_serializer=pb.DeltaDiscoveryRequest.SerializeToString,
            response_deserializer=pb.DeltaDiscoveryResponse.FromString,
        )
        production, elsewhere = open_stream(), open_stream()
        for stream, env in ((elsewhere, "test"), (production, "prod")):
            locator = pb.ResourceLocator(name="checkout", dynamic_parameters={"env": env})
            await stream.write(pb.DeltaDiscoveryRequest(type_url=xp.CLUSTER, resource_locators_subscribe=[locator]))
        assert timeout_in(await elsewhere.read()) == 5
        first, second = timeout_in(await production.read()), timeout_in(await production.read())
        assert second > first
        production.cancel()
        elsewhere.cancel()


def timeout_in(response: pb.DeltaDiscoveryResponse) -> int:
    cluster = cluster_pb2.Cluster()
    response.resources[0].resource.Unpack(cluster)
    return int(cluster.connect_timeout.seconds)


def test_embedding_example_is_in_its_own_docstring_with_a_command_that_exists() -> None:
    done = subprocess.run([sys.executable, "-m", "xdsprism", "watch", "--help"], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"--param" in done.stdout


# DYN-60
def test_watching_example_follows_two_variants_of_one_name(tmp_path: Path) -> None:
    lab = ControlPlane(tmp_path)
    for file in (ROOT / "examples/config").glob("*.yaml"):
        shutil.copy(file, lab.config)
    lab.start()
    argv = [sys.executable, ROOT / "examples/watch.py", f"127.0.0.1:{lab.port}"]
    watcher = Program("watch", argv, tmp_path / "watch.log")
    try:
        prod = eventually(lambda: re.search(r"prod: main has (\d+) routes, for (.*)", watcher.text()))
        canary = eventually(lambda: re.search(r"canary: main has (\d+) routes, for (.*)", watcher.text()))
        assert int(prod[1]) > int(canary[1])
        assert prod[2] != canary[2]
        (lab.config / "routes.yaml").unlink()
        eventually(lambda: re.search(r"canary: NOT_FOUND", watcher.text()))
    finally:
        watcher.kill()
        lab.stop()
