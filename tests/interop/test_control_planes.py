"""`xdsprism get` and `watch` against control planes that nobody here wrote, on go-control-plane and java-control-plane.

What these do differently from what the protocol's documentation says is told where a test has to know it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, Queue

import pytest
import yaml
from click.testing import Result

from tests.cli.rig import command, environment, run
from tests.support.foreign import ForeignPlane
from tests.support.programs import Program
from tests.support.resources import Document
from tests.support.toolchains import CONTROL_PLANES
from tests.support.waiting import PATIENCE

# The first test of a control plane builds it, and a first build fetches its packages.
pytestmark = pytest.mark.timeout(600)

both_modes = pytest.mark.parametrize("mode", ["--delta", "--sotw"])
by_name = pytest.mark.parametrize("name", ["cds/shop", "eds/shop", "rds/main", "lds/main"])

EVERYTHING = (
    *("cluster shop 5", "cluster cart 6", "endpoint shop 8080", "endpoint cart 8081"),
    *("route main shop", "route spare cart", "listener main", "listener spare"),
)
ADS: Document = {"ads": {}, "resource_api_version": "V3"}


@pytest.fixture(scope="module", params=CONTROL_PLANES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignPlane]:
    plane = ForeignPlane(request.param, tmp_path_factory.mktemp("foreign"))
    try:
        yield plane
    finally:
        plane.close()


@pytest.fixture
def plane(running: ForeignPlane) -> ForeignPlane:
    """With nothing published by the tests before."""
    running.clear()
    return running


@pytest.fixture
def full(plane: ForeignPlane) -> ForeignPlane:
    """With two resources of each type."""
    plane.publish(*EVERYTHING)
    return plane


def get(plane: ForeignPlane, *args: object) -> Result:
    return run("get", *args, "--server", plane.address)


def one_document(done: Result) -> Document:
    assert done.exit_code == 0, done.stderr
    (document,) = yaml.safe_load_all(done.stdout)
    return document


class Watch:
    """A running `watch -o name`. Its lines are waited for as they come."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._program.stdout:
            self._lines.put(line.decode().rstrip("\n"))

    def lines(self, count: int = 1) -> list[str]:
        """The next ones. Sorted: resources of one response have no order."""
        try:
            return sorted([self._lines.get(timeout=PATIENCE) for _ in range(count)])
        except Empty:
            raise AssertionError(f"no line for {PATIENCE:g} s; stderr: {self._program.tail()}") from None

    def stop(self) -> tuple[int, list[str]]:
        """The exit status, and the lines that nobody waited for."""
        status = self._program.terminate()
        self._reader.join()
        return status, list(self._lines.queue)

    def close(self) -> None:
        self._program.kill()
        self._reader.join()
        self._program.stdout.close()


StartWatch = Callable[..., Watch]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[StartWatch]:
    """Starts a `watch` of the plane, which ends with the test."""
    with ExitStack() as stack:

        def start(plane: ForeignPlane, *args: str) -> Watch:
            argv = command("watch", *args, "-o", "name", "--server", plane.address)
            watch = Watch(Program("watch", argv, tmp_path / "watch.log", env=environment(), pipe=True))
            stack.callback(watch.close)
            return watch

        yield start


# In delta java-control-plane sends all clusters and listeners, whatever the names: what nobody asked for is not printed
@both_modes
@by_name
def test_get_prints_the_one_that_is_named(full: ForeignPlane, mode: str, name: str):
    done = get(full, *name.split("/"), mode, "-o", "name")
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{name}\n", "")


@both_modes
def test_get_prints_all_that_are_named(full: ForeignPlane, mode: str):
    done = get(full, "rds", "spare", "main", mode, "-o", "name")
    assert (done.exit_code, sorted(done.stdout.split())) == (0, ["rds/main", "rds/spare"])


# Neither understands `*` in SotW: go-control-plane answers with nothing, java-control-plane not at all
@both_modes
@pytest.mark.parametrize(("word", "names"), [("cds", ["cds/cart", "cds/shop"]), ("lds", ["lds/main", "lds/spare"])])
def test_get_without_a_name_prints_all(full: ForeignPlane, mode: str, word: str, names: list[str]):
    done = get(full, word, mode, "-o", "name")
    assert (done.exit_code, sorted(done.stdout.split()), done.stderr) == (0, names, "")


@both_modes
def test_a_cluster_is_printed_as_yaml(full: ForeignPlane, mode: str):
    assert one_document(get(full, "cds", "shop", mode, "-o", "yaml")) == {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "shop",
        "type": "EDS",
        "connect_timeout": "5s",
        "eds_cluster_config": {"eds_config": ADS},
    }


# A message within an Any inside the resource
@both_modes
def test_a_listener_is_printed_as_yaml(full: ForeignPlane, mode: str):
    document = one_document(get(full, "lds", "main", mode, "-o", "yaml"))
    assert document["api_listener"]["api_listener"] == {
        "@type": "type.googleapis.com/"
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "main",
        "rds": {"route_config_name": "main", "config_source": ADS},
    }


@both_modes
@pytest.mark.parametrize("word", ["cds", "lds"])
def test_other_control_planes_resources_printed_by_get_can_be_served(
    full: ForeignPlane, tmp_path: Path, mode: str, word: str
):
    printed = get(full, word, mode, "-o", "yaml").stdout
    assert len(list(yaml.safe_load_all(printed))) == 2
    (tmp_path / "printed.yaml").write_text(printed)
    assert run("check", tmp_path).exit_code == 0


# Neither says in every mode that there is no such resource: then the timeout ends the wait
@both_modes
@pytest.mark.parametrize("word", ["cds", "rds"])
def test_a_name_that_does_not_exist_is_status_1(full: ForeignPlane, mode: str, word: str):
    done = get(full, word, "nope", mode, "--timeout", 1, "-o", "name")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{word}/nope" in done.stderr


# SOT-6, DLT-1
@both_modes
def test_watch_sees_what_is_there_an_update_a_removal_and_a_return(plane: ForeignPlane, watch: StartWatch, mode: str):
    plane.publish("cluster shop 5", "cluster cart 6")
    seen = watch(plane, "cds", mode)
    assert seen.lines(2) == ["added cds/cart", "added cds/shop"]
    plane.publish("cluster shop 7")
    assert seen.lines() == ["changed cds/shop"]
    plane.publish("delete cluster shop")
    assert seen.lines() == ["removed cds/shop"]
    plane.publish("cluster shop 5")
    assert seen.lines() == ["added cds/shop"]
    assert seen.stop() == (0, [])


@both_modes
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("cds/shop", "cluster shop 5", "cluster shop 7"),
        ("eds/shop", "endpoint shop 8080", "endpoint shop 8082"),
        ("rds/main", "route main shop", "route main cart"),
    ],
)
def test_watch_by_name_sees_what_is_there_and_an_update(
    plane: ForeignPlane, watch: StartWatch, mode: str, name: str, before: str, after: str
):
    plane.publish(before)
    seen = watch(plane, *name.split("/"), mode)
    assert seen.lines() == [f"added {name}"]
    plane.publish(after)
    assert seen.lines() == [f"changed {name}"]
    assert seen.stop() == (0, [])


# DLT-1. Not in SotW: there a response without the name is no removal for most types, and java-control-plane sends none
@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("cds/shop", "cluster shop 5"),
        ("eds/shop", "endpoint shop 8080"),
        ("rds/main", "route main shop"),
        ("lds/main", "listener main"),
    ],
)
def test_watch_by_name_sees_a_removal(plane: ForeignPlane, watch: StartWatch, name: str, there: str):
    plane.publish(there)
    seen = watch(plane, *name.split("/"), "--delta")
    assert seen.lines() == [f"added {name}"]
    kind, key, *_ = there.split()
    plane.publish(f"delete {kind} {key}")
    assert seen.lines() == [f"removed {name}"]
    assert seen.stop() == (0, [])


# Both send a SotW response for every version, also where all resources are the same as before
@both_modes
def test_watch_is_silent_about_what_stays_the_same(plane: ForeignPlane, watch: StartWatch, mode: str):
    plane.publish("cluster shop 5")
    seen = watch(plane, "cds", mode)
    assert seen.lines() == ["added cds/shop"]
    plane.publish()
    plane.publish("cluster cart 6")
    assert seen.lines() == ["added cds/cart"]
    assert seen.stop() == (0, [])


# Not in SotW, where java-control-plane answers nothing as long as one of the names is missing
def test_watch_sees_what_is_created_later(plane: ForeignPlane, watch: StartWatch):
    plane.publish("route main shop")
    seen = watch(plane, "rds", "main", "later", "--delta")
    assert seen.lines() == ["added rds/main"]
    plane.publish("route later shop")
    assert seen.lines() == ["added rds/later"]
    assert seen.stop() == (0, [])
