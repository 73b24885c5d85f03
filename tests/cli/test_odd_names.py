"""Names that try to leave a directory, to control a terminal or to look like another line, wherever they are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.cli.rig import FREE, Daemon, run
from tests.cli.test_relay import bootstrap
from tests.support import web
from xdsprism import CLUSTER
from xdsprism.core.model.xdstp import spelled

NAMES = (
    "../../etc/passwd",
    "%2e%2e%2fetc%2fpasswd",
    "a\x00b",
    "\x1b]0;owned\x07\x1b[2J",
    "a\nERROR forged",
    "a\rb",
    "a\x9bb",
    "a\x85b",
    "a\u2028b",
    "\u202eevil",
    "<script>alert(1)</script>",
    "xdstp://authority/envoy.config.cluster.v3.Cluster/%2e%2e/x?a=%00",
    "x" * 4_000,
)
# Control characters but line ends, line separators and direction marks.
ODD = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
PATHS = (
    "/../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "//etc/passwd",
    "/api/../../x",
    "/api/resources%00",
    "/static/../x",
)


class Pair(NamedTuple):
    """A server of these names, and a relay of it with a file."""

    folder: Path
    server: Daemon
    relay: Daemon


def write_names(folder: Path) -> Path:
    folder.mkdir()
    for number, name in enumerate(NAMES):
        cluster = {"@type": CLUSTER, "name": name, "connect_timeout": "1s"}
        (folder / f"{number}.json").write_text(json.dumps(cluster))
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("names")
    with Daemon(folder, write_names(folder / "config"), "--rest", FREE) as server:
        kept = folder / "cache" / "cache.db"
        kept.parent.mkdir()
        named = ("--bootstrap", bootstrap(folder, server.listen), "--cache", kept)
        with Daemon(folder, *named, verb="relay") as relay:
            yield Pair(folder, server, relay)


@pytest.mark.parametrize("output", ["name", "wide", "yaml", "json"])
@pytest.mark.parametrize("who", ["server", "relay"])
def test_no_command_prints_a_control_character_of_a_name(pair: Pair, who: str, output: str) -> None:
    result = getattr(pair, who).get("cds", "-o", output)
    assert result.exit_code == 0
    assert not ODD.search(result.stdout + result.stderr)
    assert "\nERROR" not in result.stdout
    if output in ("name", "wide"):
        assert len(result.stdout.splitlines()) == len(NAMES) + (output == "wide")
        assert "cds/\\x1b]0;owned\\x07\\x1b[2J" in result.stdout


def test_data_means_the_same_as_what_was_sent(pair: Pair) -> None:
    found = yaml.safe_load_all(pair.server.get("cds", "-o", "yaml").stdout)
    assert sorted(each["name"] for each in found) == sorted(map(spelled, NAMES))
    listed = json.loads(pair.server.get("cds", "-o", "json").stdout)
    assert sorted(each["name"] for each in listed["resources"]) == sorted(map(spelled, NAMES))


def test_files_are_listed_and_faults_told_without_control_characters(pair: Pair, tmp_path: Path) -> None:
    for output in ((), ("-o", "name"), ("-o", "wide"), ("-o", "yaml"), ("-o", "json")):
        result = run("check", pair.folder / "config", *output)
        assert not ODD.search(result.stdout + result.stderr)
    for number in range(2):  # a name twice is a fault that quotes it
        (tmp_path / f"{number}.json").write_text((pair.folder / "config" / "3.json").read_text())
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert "owned" in result.stderr
    assert not ODD.search(result.stderr)


@pytest.mark.parametrize("name", NAMES)
def test_a_resource_of_any_name_is_got_by_it_and_nothing_else_is(pair: Pair, name: str) -> None:
    result = pair.relay.get("cds", name, "-o", "json")
    assert json.loads(result.stdout)["name"] == spelled(name)
    assert web.post(pair.server.rest, "/v3/discovery:clusters", json.dumps({"resource_names": [name]})).status == 200


def test_a_name_leads_to_no_file(pair: Pair) -> None:
    """The cache is one file, with names as rows."""
    assert {path.name for path in (pair.folder / "cache").iterdir()} <= {"cache.db", "cache.db-wal", "cache.db-shm"}
    assert {path.name.partition("-")[0] for path in pair.folder.iterdir()} == {
        "config",
        "cache",
        "daemon",
        "bootstrap.json",
    }


@pytest.mark.parametrize("path", PATHS)
def test_a_path_with_tricks_is_no_page(pair: Pair, path: str) -> None:
    for daemon in (pair.server, pair.relay):
        assert web.get(*web.split(daemon.admin), path).status == 404
    assert web.post(pair.server.rest, path, b"{}").status == 404
    assert web.post(pair.server.rest, "/v3/discovery:clusters" + path, b"{}").status == 404


def test_pages_and_logs_show_names_escaped(pair: Pair) -> None:
    for daemon in (pair.server, pair.relay):
        page = web.get(*web.split(daemon.admin), "/api/resources")
        assert {each["name"] for each in json.loads(page.body)["resources"]} >= {*map(spelled, NAMES)}
        assert not re.search("[\x00-\x09\x0b-\x1f]", page.body)
        assert not ODD.search(daemon.stderr)
        assert "\nERROR" not in daemon.stderr
