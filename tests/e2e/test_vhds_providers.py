"""Virtual hosts that are made when a real Envoy asks for them: the example with the SQLite table, as it is."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.envoy import bootstrap
from tests.support.lab import Lab
from tests.support.on_demand import Client, listener
from tests.support.programs import Program
from tests.support.tap import Tap
from tests.support.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples/sqlite_vhosts.py"


class Table:
    """The example, and the table behind it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "hosts.db"
        self.program = Program("made", [sys.executable, EXAMPLE, "127.0.0.1:0", self._path], folder / "made.log")
        self.port = int(eventually(lambda: re.search(r"serving on \S+:(\d+)", self.program.text()))[1])

    def write(self, statement: str, *values: str) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(statement, values)

    def made(self, host: str) -> int:
        return self.program.text().splitlines().count(f"made main/{host}")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    table = Table(tmp_path_factory.mktemp("table"))
    yield table
    table.program.kill()


@pytest.fixture(scope="module")
def clients(table: Table, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Client]]:
    """Two Envoys in production and one canary. The listener is in their bootstrap: the example has none."""
    web = {key: value for key, value in listener("web", "main").items() if key != "@type"}
    with Lab(tmp_path_factory.mktemp("envoys")) as lab, contextlib.ExitStack() as taps:
        running = []
        for number, env in enumerate(("prod", "prod", "canary")):
            tap = taps.enter_context(Tap(table.port))
            config = bootstrap("delta", tap.port, {"id": f"envoy-{number}", "cluster": "lab", "metadata": {"env": env}})
            del config["dynamic_resources"]["cds_config"], config["dynamic_resources"]["lds_config"]
            config["static_resources"]["listeners"] = [web]
            running.append(Client(lab.start_envoy(config), tap))
        yield running
        assert [client.nacks() for client in running] == [[], [], []]


# VHD-1, VHD-3, VHD-18, DYN-12
def test_each_envoy_gets_its_variant_and_the_table_is_asked_once_for_each(table: Table, clients: list[Client]) -> None:
    texts = [client.get("Shop.example.com") for client in clients]
    assert texts == ["Welcome to the shop."] * 2 + ["Welcome to the new shop."]
    assert table.made("shop.example.com") == 2
    assert [client.get("blog.example.com") for client in clients] == ["Welcome to the blog."] * 3
    assert table.made("blog.example.com") == 1


# VHD-7, VHD-8, VHD-9, VHD-10
def test_host_appears_changes_and_goes_with_its_row(table: Table, clients: list[Client]) -> None:
    client, other, _ = clients
    assert client.get("forum.example.com") == "HTTP 404"
    streams = dict(client.tap.streams)
    table.write("INSERT INTO hosts VALUES ('forum.example.com', 'Hello.', NULL)")
    client.becomes("forum.example.com", "Hello.")
    table.write("UPDATE hosts SET text = 'Closed.' WHERE host = 'forum.example.com'")
    client.becomes("forum.example.com", "Closed.")
    table.write("DELETE FROM hosts WHERE host = 'forum.example.com'")
    client.becomes("forum.example.com", "HTTP 404")
    assert client.tap.streams == streams
    assert "main/forum.example.com" not in other.hosts_told()


# VHD-24
def test_many_hosts_at_once(table: Table, clients: list[Client]) -> None:
    client, *_ = clients
    assert client.get("shop.example.com") == "Welcome to the shop."
    hosts = [f"h{number}.example.com" for number in range(200)]
    for host in hosts:
        table.write("INSERT INTO hosts VALUES (?, ?, NULL)", host, host)
    assert [request.answer() for request in client.send_all(hosts)] == hosts
