"""Files in the store of a program: `Store.load` and `Store.follow`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism as xp
from tests.cli.rig import write
from tests.support.resources import Document
from tests.support.waiting import eventually


def cluster(name: str, **more: Any) -> Document:
    return {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": name, **more}


@pytest.fixture
def store() -> xp.Store:
    return xp.Store()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what the watcher of the files brings about, while the event loop goes on."""
    await asyncio.to_thread(eventually, condition)


# DESIGN 3
def test_load_reads_files_and_folders_with_all_their_variants(store: xp.Store, tmp_path: Path) -> None:
    folder = tmp_path / "config"
    write(folder, "a", cluster("a", **{"$when": "env=prod"}), cluster("b"))
    alone = write(tmp_path, "alone", cluster("c"))
    report = store.load([folder, alone])
    assert (report.resources, report.files, report.warnings) == (3, 2, ())
    assert sorted(name for _, name in store) == ["a", "b", "c"]
    (variant,) = store.variants("cds", "a")
    assert (variant.when, variant.origin) == ("env=prod", f"{folder / 'a.yaml'}:1")
    assert store.load(str(alone)).resources == 1


def test_a_load_with_problems_changes_nothing_and_names_them_all(store: xp.Store, tmp_path: Path) -> None:
    file = write(tmp_path, "a", cluster("a"), cluster("b", nope=1), {"@type": "nope"})
    with pytest.raises(xp.ConfigError) as caught:
        store.load(file)
    assert [each.line for each in caught.value.problems] == [6, 8]
    assert len(store) == 0


def test_files_without_resources_are_refused_unless_they_are_allowed(store: xp.Store, tmp_path: Path) -> None:
    # OPS-13
    with pytest.raises(xp.ConfigError, match="has no resources"):
        store.load(tmp_path)
    assert store.load(tmp_path, allow_empty=True).resources == 0
    with pytest.raises(xp.ConfigError, match=r"does not exist|no such"):
        store.load(tmp_path / "nope")


@pytest.mark.parametrize("method", ["load", "follow"])
def test_wrong_arguments_are_refused_at_once(store: xp.Store, method: str) -> None:
    anything: Any = getattr(store, method)
    with pytest.raises(xp.UsageError, match="give a file or a folder"):
        anything([])
    with pytest.raises(TypeError):
        anything(5)
    with pytest.raises(xp.UsageError, match="validate='maybe': it is one of envoy, warn, off"):
        anything("config", validate="maybe")


def test_the_mode_of_the_store_is_the_mode_of_its_files(tmp_path: Path) -> None:
    bad = write(tmp_path, "a", cluster("a", connect_timeout="-1s"))
    with pytest.raises(xp.ConfigError):
        xp.Store().load(bad)
    assert xp.Store(validate="off").load(bad).resources == 1
    assert xp.Store(validate="off").load(bad).warnings == ()
    assert xp.Store().load(bad, validate="warn").warnings


async def test_follow_applies_every_change_and_keeps_what_the_program_put(store: xp.Store, tmp_path: Path) -> None:
    # OPS-8
    with store.transaction() as tx:
        tx.put(Cluster(name="own"))
    write(tmp_path, "a", cluster("a"))
    reports = []
    async with store.follow(tmp_path, observe=reports.append) as files:
        assert ("cds", "a") in store
        write(tmp_path, "b", cluster("b"))
        await until(lambda: ("cds", "b") in store)
        (tmp_path / "a.yaml").unlink()
        await until(lambda: ("cds", "a") not in store)
        assert ("cds", "own") in store
        assert files.report is reports[-1]
    write(tmp_path, "c", cluster("c"))
    assert ("cds", "b") in store, "resources stay when the block ends"
    assert reports[-1].resources == 1


async def test_an_invalid_change_is_logged_and_the_last_good_state_stays(
    store: xp.Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-8
    write(tmp_path, "a", cluster("a"))
    with caplog.at_level(logging.INFO, "xdsprism"):
        async with store.follow(tmp_path) as files:
            write(tmp_path, "a", cluster("a", nope=1))
            await until(lambda: files.report is not None and files.report.errors)
            assert ("cds", "a") in store
            write(tmp_path, "a", cluster("a2"))
            await until(lambda: ("cds", "a2") in store)
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "configuration loaded: 1 resources in 1 files"
    assert any(each.startswith(f"configuration refused, the last good one stays: {tmp_path}/a.yaml:") for each in said)


async def test_a_first_load_with_problems_raises_them_and_follows_nothing(store: xp.Store, tmp_path: Path) -> None:
    write(tmp_path, "a", cluster("a", nope=1))
    following = store.follow(tmp_path)
    with pytest.raises(xp.ConfigError, match="no such field"):
        async with following:
            raise AssertionError
    assert len(store) == 0
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "xdsprism files"]
    with pytest.raises(xp.UsageError, match="files are followed once"):
        async with following:
            raise AssertionError


async def test_a_change_that_removes_too_much_waits_for_a_confirmation(store: xp.Store, tmp_path: Path) -> None:
    # OPS-13
    write(tmp_path, "a", *[cluster(f"c{number}") for number in range(20)])
    async with store.follow(tmp_path) as files:
        write(tmp_path, "a", cluster("c0"))
        await until(lambda: files.report is not None and files.report.held is not None)
        assert len(store) == 20
        let_through = await files.confirm()
        assert len(store) == 1
        assert let_through.id
        with pytest.raises(xp.XdsError, match="nothing is held back"):
            await files.confirm()


async def test_clients_of_a_server_get_what_the_files_have(store: xp.Store, tmp_path: Path) -> None:
    write(tmp_path, "a", cluster("a", connect_timeout="1s"))
    async with (
        store.follow(tmp_path),
        xp.Server(store, "127.0.0.1:0") as server,
        xp.Client(xp.Bootstrap.for_server(server.address, node={"id": "x"})) as client,
    ):
        async with asyncio.timeout(60):
            async for update in client.watch("cds", "a"):
                if update.resource.connect_timeout.seconds == 2:
                    break
                write(tmp_path, "a", cluster("a", connect_timeout="2s"))
