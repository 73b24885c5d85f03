"""`xdsprism watch`: what is there, then each change, until stopped."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.cli.rig import Daemon, command, environment, run, write
from tests.support.resources import routes, static_cluster, to

both_modes = pytest.mark.parametrize("mode", ["--delta", "--sotw"])


class Watch:
    """A running `watch`; lines are waited for as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """The exit status, and what it said on stderr."""
        self._process.send_signal(number)
        rest, errors = self._process.communicate(timeout=20)
        assert rest == ""
        return self._process.returncode, errors


@contextmanager
def watching(daemon: Daemon, *args: object) -> Iterator[Watch]:
    argv = command("watch", *args, "--server", daemon.listen)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, env=environment()) as process:
        try:
            yield Watch(process)
        finally:
            process.kill()


# SOT-6, DLT-1
@both_modes
def test_prints_what_is_added_changed_and_removed(daemon: Daemon, config: Path, mode: str):
    with watching(daemon, "cds", mode, "-o", "name") as watch:
        assert [watch.line(), watch.line()] == ["added cds/shop", "added cds/shop-next"]
        write(config, "more", static_cluster("more", "127.0.0.1", 3))
        assert watch.line() == "added cds/more"
        write(config, "more", static_cluster("more", "127.0.0.1", 4))
        assert watch.line() == "changed cds/more"
        (config / "more.yaml").unlink()
        assert watch.line() == "removed cds/more"
        assert watch.stop() == (0, "")


# DYN-24: a client whose variant is replaced by another sees one change, not a removal and an addition
@both_modes
def test_a_change_of_variant_is_one_change(daemon: Daemon, config: Path, mode: str):
    with watching(daemon, "rds", "main", mode, "-p", "env=prod", "-o", "wide") as watch:
        added = watch.line().split()
        assert added[:3] == ["added", "rds/main", "env=prod"]
        other = {"$match": [{"when": "env=test", "value": "shop-next"}, {"value": "shop"}]}
        write(config, "routes", routes("main", to(other)))
        changed = watch.line().split()
        assert changed[:3] == ["changed", "rds/main", "env!=test"]
        assert changed[3] != added[3]
        write(config, "routes", {"$when": "env=test", **routes("main", to("shop"))})
        assert watch.line().split()[:2] == ["removed", "rds/main"]
        assert watch.stop(signal.SIGTERM)[0] == 0


# DLT-4, SOT-8
def test_a_name_that_does_not_exist_is_told_on_stderr_and_printed_when_it_does(daemon: Daemon, config: Path):
    with watching(daemon, "cds", "later", "-o", "name") as watch:
        write(config, "later", static_cluster("later", "127.0.0.1", 3))
        assert watch.line() == "added cds/later"
        status, errors = watch.stop()
    assert status == 0
    assert errors in ("cds/later does not exist\n", "")  # the file may be there before the question


def test_yaml_is_a_stream_of_documents_each_under_what_happened(daemon: Daemon, config: Path):
    with watching(daemon, "cds", "shop") as watch:
        assert [watch.line(), watch.line()] == ["# added cds/shop", "---"]
        (config / "clusters.yaml").unlink()
        document = yaml.safe_load("\n".join(iter(watch.line, "# removed cds/shop")))
    assert document["@type"] == "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    assert (document["name"], document["connect_timeout"]) == ("shop", "1s")


def test_json_is_one_object_a_line(daemon: Daemon, config: Path):
    with watching(daemon, "cds", "shop", "-o", "json") as watch:
        added = json.loads(watch.line())
        assert (added["change"], added["resource"], added["contents"]["name"]) == ("added", "cds/shop", "shop")
        (config / "clusters.yaml").unlink()
        assert json.loads(watch.line()) == {"change": "removed", "resource": "cds/shop", "contents": None}


@both_modes
def test_the_timeout_ends_it_with_status_0(shared: Daemon, mode: str):
    done = run("watch", "cds", mode, "-o", "name", "--timeout", "1", "--server", shared.listen)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "added cds/shop\nadded cds/shop-next\n", "")


def test_a_server_that_is_not_there_is_status_1():
    done = run("watch", "cds", "--server", "127.0.0.1:1")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: UNAVAILABLE: 127.0.0.1:1: ")


def test_wrong_usage_is_status_2():
    assert run("watch", "cds").exit_code == 2
    assert run("watch", "pods", "--server", "127.0.0.1:1").exit_code == 2
    assert run("watch", "cds", "--server", "127.0.0.1:1", "--timeout", "-1").exit_code == 2
