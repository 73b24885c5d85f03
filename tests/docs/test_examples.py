from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.route.v3.route_components_pb2 import VirtualHost
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


# VHD-8, VHD-10, VHD-19
async def test_virtual_hosts_out_of_a_table_follow_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "hosts.db"
    argv = [sys.executable, ROOT / "examples/sqlite_vhosts.py", "127.0.0.1:0", path]
    program = Program("sqlite_vhosts", argv, tmp_path / "sqlite_vhosts.log")
    try:
        address = eventually(lambda: re.search(r"serving on (\S+)", program.text()))[1]
        server = {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
        async with xp.Client({"xds_servers": [server]}, delta=True) as client:
            for env, text in (("canary", "Welcome to the new shop."), ("prod", "Welcome to the shop.")):
                assert await text_of(client, "shop", env) == text
            assert await text_of(client, "blog", "canary") == "Welcome to the blog."
            watching = client.watch(xp.VIRTUAL_HOST, "main/forum.example.com", params={"env": "prod"})
            assert (await anext(watching)).error.status == "NOT_FOUND"
            write(path, "INSERT INTO hosts VALUES ('forum.example.com', 'Hello.', NULL)")
            assert text_in((await anext(watching)).resource) == "Hello."
            write(path, "UPDATE hosts SET text = 'Closed.' WHERE host = 'forum.example.com'")
            assert text_in((await anext(watching)).resource) == "Closed."
            write(path, "DELETE FROM hosts WHERE host = 'forum.example.com'")
            assert (await anext(watching)).ambient_error.status == "NOT_FOUND"
    finally:
        program.kill()
    made = re.findall(r"^made (\S+)$", program.text(), re.MULTILINE)
    assert made == ["main/shop.example.com"] * 2 + ["main/blog.example.com"] + ["main/forum.example.com"] * 2


def write(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


async def text_of(client: xp.Client, host: str, env: str) -> str:
    name = f"main/{host}.example.com"
    return text_in(await client.get(xp.VIRTUAL_HOST, name, params={"env": env}, timeout=30))


def text_in(host: VirtualHost) -> str:
    return str(host.routes[0].direct_response.body.inline_string)
