"""The admin port of a server and of a relay that a program runs: the same pages as the daemon's."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism as xp
from tests.admin.rig import Peer
from tests.cli.rig import environment, write
from tests.support import web
from tests.support.waiting import eventually

PAGES = {"/", "/healthz", "/readyz", "/metrics", "/api/resources", "/api/clients", "/api/explain", "/api/loads"}


async def get(address: str, path: str) -> web.Answer:
    return await asyncio.to_thread(web.get, *web.split(address), path)


async def page(address: str, path: str) -> Any:
    answer = await get(address, path)
    assert answer.status == 200, answer
    return json.loads(answer.body)


def one_cluster() -> xp.Store:
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(Cluster(name="a"), when="env=prod")
    return store


async def test_a_server_of_a_program_shows_clients_resources_and_metrics() -> None:
    # OPS-11
    async with xp.Server(one_cluster(), "127.0.0.1:0", admin="127.0.0.1:0") as server:
        async with Peer(server.address, delta=True) as peer:
            await peer.ask(xp.CLUSTER, ["a"])
            clients = await page(server.admin_address, "/api/clients")
        assert clients["total"] == 1
        assert (await page(server.admin_address, "/api/resources"))["resources"][0]["name"] == "a"
        assert (await page(server.admin_address, "/readyz"))["status"] == "ready"
        metrics = await get(server.admin_address, "/metrics")
    assert 'xdsprism_resources{type="cds"} 1.0' in metrics.body
    assert "xdsprism_connections" in metrics.body  # of the transport, and not only of streams


async def test_a_relay_of_a_program_shows_its_upstream_servers_and_whether_one_was_reached() -> None:
    # PRX-28, PRX-30
    async with xp.Server(one_cluster(), "127.0.0.1:0") as server:
        bootstrap = xp.Bootstrap.for_server(server.address, node={"id": "relay"})
        async with xp.Relay(bootstrap, "127.0.0.1:0", admin="127.0.0.1:0") as relay:
            async with xp.Client(xp.Bootstrap.for_server(relay.address, node={"id": "x"})) as client:
                await client.get(xp.CLUSTER, "a", params={"env": "prod"}, timeout=20)
            upstreams = await page(relay.admin_address, "/api/upstreams")
            ready = await page(relay.admin_address, "/readyz")
            metrics = await get(relay.admin_address, "/metrics")
    assert upstreams["upstreams"][0]["server"].endswith(server.address)
    assert ready["status"] == "ready"
    assert 'xdsprism_cache_lookups_total{result="miss",type="cds"} 1.0' in metrics.body


async def test_the_admin_port_closes_with_its_server() -> None:
    server = xp.Server(xp.Store(), "127.0.0.1:0", admin="127.0.0.1:0")
    assert server.admin_address == ""
    async with server:
        address = server.admin_address
        assert (await get(address, "/healthz")).status == 200
    assert server.admin_address == ""
    with pytest.raises(ConnectionRefusedError):
        await get(address, "/healthz")


def test_without_admin_nothing_of_it_is_loaded() -> None:
    program = """
import asyncio, sys, xdsprism as xp
async def main():
    async with xp.Server(xp.Store(), "127.0.0.1:0") as server:
        assert server.admin_address == ""
asyncio.run(main())
print(sorted({"starlette", "uvicorn", "prometheus_client"} & {*sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=60, check=True
    )
    assert done.stdout == "[]\n"


async def test_a_server_whose_port_is_taken_leaves_no_admin_port_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as free:
        admin = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        server = xp.Server(xp.Store(), f"127.0.0.1:{other.getsockname()[1]}", admin=admin)
        with pytest.raises(xp.XdsError, match=r"can't listen on .* in use"):
            await server.start()
    with pytest.raises(ConnectionRefusedError):
        await get(admin, "/healthz")


async def test_an_admin_port_that_is_taken_keeps_the_server_from_starting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(xp.XdsError, match=f"can't listen on {taken} for admin: the address is in use"):
            await xp.Server(xp.Store(), "127.0.0.1:0", admin=taken).start()


async def test_tokens_protect_the_admin_port_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "tokens").touch(mode=0o600)
    (tmp_path / "tokens").write_text("0123456789abcdef0123456789abcdef\n")
    access = xp.Access(token_file=tmp_path / "tokens")
    async with xp.Server(xp.Store(), "127.0.0.1:0", admin="127.0.0.1:0", access=access) as server:
        assert (await get(server.admin_address, "/api/clients")).status == 401
        assert (await get(server.admin_address, "/healthz")).status == 200


async def test_an_admin_port_for_every_machine_needs_tokens_or_certificates() -> None:
    with pytest.raises(xp.UsageError, match=r"Access\(token_file=\.\.\.\)"):
        await xp.Server(xp.Store(), "127.0.0.1:0", admin="0.0.0.0:0").start()


async def test_files_that_a_store_follows_are_on_its_admin_port(tmp_path: Path) -> None:
    # OPS-8, OPS-13
    kind = {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster"}
    write(tmp_path, "a", *[{**kind, "name": f"c{number}"} for number in range(20)])
    store = xp.Store()
    async with store.follow(tmp_path) as files, xp.Server(store, "127.0.0.1:0", admin="127.0.0.1:0") as server:
        admin = server.admin_address
        config = await page(admin, "/api/config")
        assert (config["from"], config["last_load"]["resources"]) == ([str(tmp_path)], 20)
        assert 'xdsprism_config_loads_total{result="ok"} 1.0' in (await get(admin, "/metrics")).body
        write(tmp_path, "a", {**kind, "name": "c0", "nope": 1})
        await asyncio.to_thread(eventually, lambda: files.report is not None and files.report.errors)
        assert "no such field" in str((await page(admin, "/api/config"))["last_load"]["errors"])
        write(tmp_path, "a", {**kind, "name": "c0"})
        await asyncio.to_thread(eventually, lambda: files.report is not None and files.report.held)
        held = (await page(admin, "/api/config"))["held_back"]
        let_through = await asyncio.to_thread(web.post, admin, f"/api/config/confirm?id={held['id']}", b"")
        assert let_through.status == 200, let_through
        assert len(store) == 1
    async with xp.Server(store, "127.0.0.1:0", admin="127.0.0.1:0") as server:
        assert (await get(server.admin_address, "/api/config")).status == 404, "nothing is followed any more"
