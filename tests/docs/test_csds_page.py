"""The program of docs/csds.md prints what the page says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import Node
from google.rpc.status_pb2 import Status

from tests.core.support import Bench
from tests.core.test_client_status import answered, connected, stored
from tests.docs.walking import CHILD, ROOT, blocks
from tests.wire.rig import Stream, put, until
from xdsprism import CLUSTER, Server, Store

PAGE = (ROOT / "docs/csds.md").read_text()


async def test_the_program_prints_how_far_each_client_is(tmp_path: Path) -> None:
    # CSD-1
    (program,) = blocks("python", PAGE)
    (tmp_path / "status.py").write_text(program)
    store = Store()
    put(store, Cluster(name="backend"))
    async with Server(store, "127.0.0.1:0") as server, Stream(server.address) as good, good.beside() as bad:
        await good.ack(await good.ask(CLUSTER, ["backend", "missing"], node=Node(id="envoy-1")))
        rejected = await bad.ask(CLUSTER, ["backend"], node=Node(id="envoy-2"))
        await bad.ack(rejected, error_detail=Status(code=3, message="no such filter"))
        await until(lambda: all(each.stream.is_answered for each in server.hub.connected()))
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "status.py", server.address],
            cwd=tmp_path,
            env={**os.environ, **CHILD},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == ""
    assert [line.split() for line in done.stdout.splitlines()] == [
        line.split() for line in blocks("text", PAGE)[0].splitlines()
    ]


def test_a_client_of_which_something_is_left_out_says_what_the_page_says() -> None:
    bench = Bench()
    stored(bench, 10, 1_000_000)
    (config,) = answered(connected(bench)).config
    assert blocks("text", PAGE)[1] == f"{config.client_scope}\n"
