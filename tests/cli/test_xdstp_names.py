"""`xdsprism get` and `watch` with xdstp names: `--server` names the server for every authority."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.rig import Daemon, run, write
from tests.cli.watching import Watching, watches
from tests.support.resources import Document, static_cluster

BASE = "xdstp://auth/envoy.config.cluster.v3.Cluster"
LIST = "envoy.config.listener.v3.ListenerCollection"
BLUE, GREEN, INNER = f"{BASE}/edge/blue", f"{BASE}/edge/green", f"{BASE}/edge/inner?a=1&b=2"

both_modes = pytest.mark.parametrize("mode", ["--delta", "--sotw"])


def _cluster(name: str, port: int = 1) -> Document:
    return static_cluster(name, "127.0.0.1", port)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    write(folder, "clusters", _cluster(BLUE), _cluster(GREEN), _cluster(f"{BASE}/edge/inner?b=2&a=1"))
    inline = {"inline_entry": {"name": "web", "resource": {"@type": LIST.replace("Collection", ""), "name": "web"}}}
    wrapper = {"@type": "envoy.service.discovery.v3.Resource", "name": f"xdstp://auth/{LIST}/edge"}
    write(folder, "list", {**wrapper, "resource": {"@type": LIST, "entries": [inline]}})
    return folder


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    with ExitStack() as stack:
        yield watches(stack, tmp_path)


# XTP-1, XTP-3, XTP-4, XTP-5
def test_get_asks_for_names_and_for_collections(daemon: Daemon):
    assert daemon.get("cds", f"{BASE}/edge/*", "-o", "name").stdout == f"cds/{BLUE}\ncds/{GREEN}\n"
    assert daemon.get("cds", f"{BASE}/edge/*?b=2&a=1", "-o", "name").stdout == f"cds/{INNER}\n"
    empty = daemon.get("cds", f"{BASE}/nobody/*", "-o", "name")
    assert (empty.exit_code, empty.stdout, empty.stderr) == (0, "", "no resources\n")
    gone = daemon.get("cds", f"{BASE}/edge/gone", "-o", "name")
    assert (gone.exit_code, gone.stderr) == (1, f"cds/{BASE}/edge/gone does not exist\n")


# XTP-1, XTP-2
@both_modes
def test_get_finds_a_name_in_any_spelling(daemon: Daemon, mode: str):
    done = daemon.get("cds", f"{BASE}/edge/inner?b=2&a=1", mode, "-o", "name")
    assert (done.exit_code, done.stdout) == (0, f"cds/{INNER}\n")


# XTP-10
@both_modes
def test_get_prints_a_list_collection_as_it_can_be_served(daemon: Daemon, mode: str, tmp_path: Path):
    done = daemon.get(LIST, f"xdstp://auth/{LIST}/edge", mode)
    assert done.exit_code == 0
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "list.yaml").write_text(done.stdout)
    with Daemon(tmp_path, copy) as other:
        assert other.get(LIST, f"xdstp://auth/{LIST}/edge", mode).stdout == done.stdout


# XTP-8, XTP-9
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["cds", f"{BASE}/edge/*", "--sotw"], "a glob collection can only be asked for in delta (incremental) xDS"),
        (["lds", BLUE], "its type is envoy.config.cluster.v3.Cluster, but this is a envoy.config.listener.v3.Listener"),
        (["lds", BLUE, "--sotw"], "but this is a envoy.config.listener.v3.Listener"),
        (["lds", f"{BASE}/edge/*"], "but this is a envoy.config.listener.v3.Listener"),
    ],
)
def test_get_says_why_no_resource_can_have_the_name(daemon: Daemon, args: list[str], message: str):
    done = daemon.get(*args)
    assert done.exit_code == 1
    assert message in done.stderr


# XTP-3
def test_watch_follows_a_collection(watching: Watching, daemon: Daemon, config: Path):
    watch = watching(daemon, "cds", f"{BASE}/edge/*", "-o", "name")
    assert [watch.line(), watch.line()] == [f"added cds/{BLUE}", f"added cds/{GREEN}"]
    write(config, "clusters", _cluster(BLUE, 2), _cluster(GREEN), _cluster(f"{BASE}/other/red"))
    assert watch.line() == f"changed cds/{BLUE}"
    write(config, "clusters", _cluster(BLUE, 2), _cluster(f"{BASE}/edge/red"))
    assert sorted([watch.line(), watch.line()]) == [f"added cds/{BASE}/edge/red", f"removed cds/{GREEN}"]
    assert watch.stop() == (0, "")


# XTP-9
def test_check_tells_of_bad_names(tmp_path: Path):
    write(tmp_path / "bad", "a", _cluster(f"{BASE}/foo/*"))
    done = run("check", tmp_path / "bad")
    assert done.exit_code == 1
    assert "a.yaml:2: name: bad resource name" in done.stdout + done.stderr


# XTP-1
def test_a_resource_is_explained_and_shown_by_any_spelling_of_its_name(daemon: Daemon, config: Path):
    for whom in ([config], ["--admin", daemon.admin]):
        done = run("explain", "cds", f"{BASE}/edge/inner?b=2&a=1", *whom)
        assert done.exit_code == 0, done.output
        assert INNER in done.stdout
    page = daemon.page(f"/api/resources?type=cds&name={quote(f'{BASE}/edge/inner?b=2&a=1', safe='')}")
    assert [row["name"] for row in page["resources"]] == [INNER]
