"""The programs in docs/client.md are run, each against a server that has what they ask for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from xdsprism import Bootstrap

PAGE = (Path(__file__).parents[2] / "docs/client.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SETTING = """
import asyncio
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_components_pb2 import VirtualHost
import xdsprism as xp

def bootstrap_for(address):
    server = {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    return {"xds_servers": [server], "node": {"id": "docs"}}
"""
ASYNC = """
async def main():
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(Cluster(name="backend"))
        tx.put(Cluster(name="other"), when="env=prod")
        tx.put(VirtualHost(name="main/shop", domains=["shop.example.com"]))
    async with xp.Server(store, listen="127.0.0.1:0") as server:
        bootstrap = bootstrap_for(server.address)
"""


def run(source: str) -> str:
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.splitlines()[0] for program in PROGRAMS])
def test_program_on_the_page_runs(program: str) -> None:
    if "run_timeless" in program:
        run(SETTING + 'bootstrap = bootstrap_for("memory")\n' + program)
    else:
        run(SETTING + ASYNC + textwrap.indent(program, " " * 8) + "\nasyncio.run(main())\n")


def test_first_program_prints_what_it_promises() -> None:
    printed = run(SETTING + ASYNC + textwrap.indent(PROGRAMS[0], " " * 8) + "\nasyncio.run(main())\n")
    assert re.fullmatch(r"backend\nbackend, version [0-9a-f]{16}, for true\n", printed)


# VHD-22
def test_virtual_hosts_are_found_and_not_found() -> None:
    (program,) = (each for each in PROGRAMS if "request_vhost" in each)
    found, gone = run(SETTING + ASYNC + textwrap.indent(program, " " * 8) + "\nasyncio.run(main())\n").splitlines()
    assert found == "main/shop ['shop.example.com'] ('main/shop.example.com',)"
    assert gone.startswith("NOT_FOUND: 'main/nobody.example.com' does not exist on 127.0.0.1:")


# BST-1
def test_bootstrap_on_the_page_is_one() -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    bootstrap = Bootstrap.load(text, {})
    assert bootstrap.params == {"env": "prod"} or dict(bootstrap.params) == {"env": "prod"}
    assert bootstrap.authorities.keys() == {"other.example.com"}
