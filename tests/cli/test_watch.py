"""`xdsprism watch`: the current resources, then each change, until stopped."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from tests.cli.elsewhere import Serve
from tests.cli.rig import Daemon, run, write
from tests.cli.watching import Watching, watches
from tests.support.resources import routes, static_cluster, to
from tests.support.waiting import becomes
from xdsprism import CLUSTER, RUNTIME

both_modes = pytest.mark.parametrize("mode", ["--delta", "--sotw"])


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    with ExitStack() as stack:
        yield watches(stack, tmp_path)


# SOT-6, DLT-1
@both_modes
def test_prints_what_is_added_changed_and_removed(watching: Watching, daemon: Daemon, config: Path, mode: str):
    watch = watching(daemon, "cds", mode, "-o", "name")
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
def test_a_change_of_variant_is_one_change(watching: Watching, daemon: Daemon, config: Path, mode: str):
    watch = watching(daemon, "rds", "main", mode, "-p", "env=prod", "-o", "wide")
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
def test_an_absent_name_is_reported_on_stderr_and_printed_when_it_appears(
    watching: Watching, daemon: Daemon, config: Path
):
    watch = watching(daemon, "cds", "later", "-o", "name")
    write(config, "later", static_cluster("later", "127.0.0.1", 3))
    assert watch.line() == "added cds/later"
    status, errors = watch.stop()
    assert status == 0
    assert errors in ("cds/later does not exist\n", "")  # the file may be there before the question


def test_yaml_is_a_stream_of_documents_each_under_what_happened(watching: Watching, daemon: Daemon, config: Path):
    watch = watching(daemon, "cds", "shop")
    assert [watch.line(), watch.line()] == ["# added cds/shop", "---"]
    (config / "clusters.yaml").unlink()
    document = yaml.safe_load("\n".join(iter(watch.line, "# removed cds/shop")))
    assert document["@type"] == "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    assert (document["name"], document["connect_timeout"]) == ("shop", "1s")


def test_json_is_one_object_a_line(watching: Watching, daemon: Daemon, config: Path):
    watch = watching(daemon, "cds", "shop", "-o", "json")
    added = json.loads(watch.line())
    assert (added["change"], added["resource"], added["contents"]["name"]) == ("added", "cds/shop", "shop")
    (config / "clusters.yaml").unlink()
    assert json.loads(watch.line()) == {"change": "removed", "resource": "cds/shop", "contents": None}


@both_modes
def test_the_timeout_ends_it_with_status_0(shared: Daemon, mode: str):
    done = run("watch", "cds", mode, "-o", "name", "--timeout", "1", "--server", shared.listen)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "added cds/shop\nadded cds/shop-next\n", "")


# As kubectl: what can't even begin is a failure
@both_modes
@pytest.mark.parametrize("names", [[], ["a", "b"]], ids=["list", "names"])
def test_a_server_that_is_not_there_to_begin_with_is_status_1(mode: str, names: list[str]):
    done = run("watch", "cds", *names, mode, "--server", "127.0.0.1:1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: UNAVAILABLE: 127.0.0.1:1: ")
    assert done.stderr.count("\n") == 1


# VER-1
def test_a_server_that_refuses_to_begin_with_is_status_1(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, "--transport", "v3") as server:
        done = run("watch", "cds", "shop", "--transport", "v2", "--server", server.listen)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: UNIMPLEMENTED: {server.listen}: ")


# CLI-16: what did not change is not printed again
@both_modes
@pytest.mark.parametrize("word", ["cds", "rtds"])
def test_a_server_that_goes_away_is_waited_for(watching: Watching, tmp_path: Path, config: Path, mode: str, word: str):
    """Also where the server had nothing to say before it went: there are no runtimes."""
    write(config, "more", static_cluster("more", "127.0.0.1", 3))
    with Daemon(tmp_path, config) as first:
        watch = watching(first, word, mode, "-o", "name")
        if word == "cds":
            assert [watch.line() for _ in range(3)] == ["added cds/more", "added cds/shop", "added cds/shop-next"]
        else:
            becomes(lambda: first.metric('xdsprism_acks_total{type="rtds"}'), 1.0)
        first.process.kill()
        assert watch.notes(1)[0].startswith(f"lost: UNAVAILABLE: {first.listen}: ")
    (config / "more.yaml").unlink()
    write(config, "new", static_cluster("new", "127.0.0.1", 4))
    write(config, "runtime", {"@type": RUNTIME, "name": "flags", "layer": {"a": 1}})
    with Daemon(tmp_path, config, listen=first.listen):
        if word == "cds":
            assert sorted([watch.line(), watch.line()]) == ["added cds/new", "removed cds/more"]
        else:
            assert watch.line() == "added rtds/flags"
        assert watch.notes(2)[1:] == [f"back again: {first.listen}"]
        status, notes = watch.stop()
    assert (status, len(notes.splitlines())) == (0, 2)


# NAK-15, NAK-17: what was printed stays, and the reason why the new one is not is told
@both_modes
def test_an_invalid_resource_is_reported_with_its_reason(watching: Watching, serve: Serve, mode: str):
    bad = Cluster(name="bad", connect_timeout=Duration())
    response: Any = pb.DeltaDiscoveryResponse() if mode == "--delta" else pb.DiscoveryResponse()
    response.type_url, response.nonce = CLUSTER, "1"
    item = response.resources.add()
    (item.resource if mode == "--delta" else item).Pack(bad)
    if mode == "--delta":
        item.name = "bad"
    server = serve(response.SerializeToString())
    watch = watching(server, "cds", mode)
    assert watch.notes(1)[0].startswith(f"cds/bad: 'bad' from {server.address} is invalid: connect_timeout: ")
    assert "bad: connect_timeout: " in server.request(1).error_detail.message
    assert watch.stop()[0] == 0


# DLT-20
def test_a_resource_requested_by_alias_is_printed_under_its_own_name(watching: Watching, daemon: Daemon, config: Path):
    aliased = {"name": "aliased", "aliases": ["other"], "resource": static_cluster("aliased", "127.0.0.1", 3)}
    write(config, "aliased", {"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", **aliased})
    watch = watching(daemon, "cds", "other", "-o", "name")
    assert watch.line() == "added cds/aliased"
    (config / "aliased.yaml").unlink()
    assert watch.line() == "removed cds/aliased"


def test_wrong_usage_is_status_2():
    assert run("watch", "pods", "--server", "127.0.0.1:1").exit_code == 2
    assert run("watch", "cds", "--server", "127.0.0.1:1", "--timeout", "-1").exit_code == 2
