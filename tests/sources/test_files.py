from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.rig import Put, Running, replace, running
from tests.sources.samples import FOUR, cluster
from tests.support.waiting import eventually
from xdsprism import file_watch
from xdsprism.core.model import types
from xdsprism.errors import ConfigError
from xdsprism.sources import files
from xdsprism.sources.files import FileSource, LoadReport
from xdsprism.sources.scan import Scan, scan


def move_away(path: Path) -> Path:
    return path.rename(path.with_name("away"))


def make(directory: Path) -> None:
    directory.mkdir(parents=True)


# -- one load


def test_a_load_publishes_everything_at_once(conf: Path, put: Put) -> None:
    put("a.yaml", cluster("a") + cluster("b"))
    put("deep/down/r.yml", FOUR)
    put("c.json", '{"@type": "envoy.config.cluster.v3.Cluster", "name": "c"}')
    served = Running(conf)
    loaded = served.source.load(served.publish)
    assert loaded.report == LoadReport(1000.0, files=3, resources=4)
    assert served.source.report == loaded.report
    assert len(served.published) == 1
    assert len(loaded.changeset[types.ROUTE, "main"]) == 4
    assert served.clusters() == ["a", "b", "c"]


# OPS-8
def test_a_load_of_a_bad_file_raises_with_all_problems_and_publishes_nothing(conf: Path, put: Put) -> None:
    bad, worse = put("bad.yaml", cluster("a", "x: 1", "y: 1")), put("worse.yaml", "a: [")
    put("good.yaml", cluster("b"))
    served = Running(conf)
    with pytest.raises(ConfigError) as caught:
        served.source.load(served.publish)
    assert [str(problem).partition(" ")[0] for problem in caught.value.problems] == [
        f"{bad}:5:",
        f"{bad}:6:",
        f"{worse}:1:",
    ]
    assert served.published == []
    assert served.source.report is not None
    assert served.source.report.errors == caught.value.problems


# DYN-33, DYN-37
def test_a_load_that_the_store_refuses_raises_with_both_places(conf: Path, put: Put) -> None:
    one, two = put("one.yaml", cluster("a")), put("two.yaml", cluster("a"))
    served = Running(conf)
    with pytest.raises(ConfigError) as caught:
        served.source.load(served.publish)
    assert f"{one}:2" in str(caught.value)
    assert f"{two}:2" in str(caught.value)
    assert served.source.catalog.pending() != {}


@pytest.mark.parametrize(
    ("name", "contents", "problem"),
    [
        ("a.yaml", b"\xff\xfe", ":1: is not UTF-8: byte 0xff"),
        ("x.yaml", None, ": is a directory, although its name is"),
    ],
)
def test_a_load_of_unreadable_files_reports_each(conf: Path, name: str, contents: bytes | None, problem: str) -> None:
    (conf / name).mkdir() if contents is None else (conf / name).write_bytes(contents)
    with pytest.raises(ConfigError) as caught:
        FileSource([conf]).load()
    assert str(caught.value).startswith(f"{conf / name}{problem}")


def test_a_file_that_may_not_be_read_is_a_problem(conf: Path, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put("a.yaml", cluster("a"))

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    source = FileSource([conf])
    with monkeypatch.context() as patched:
        patched.setattr(files, "open_file", refuse)
        with pytest.raises(ConfigError, match=f"^{file}: can't be read: Permission denied$"):
            source.load()
    assert source.load().report.errors == ()


# OPS-12
def test_two_sources_give_the_same_versions(conf: Path, put: Put) -> None:
    put("r.yaml", FOUR)
    loads = [FileSource([conf]).load().changeset[types.ROUTE, "main"] for _ in range(2)]
    first, second = [[variant.version for variant in variants] for variants in loads]
    assert first == second


# -- running


# OPS-8
async def test_an_edit_a_new_file_and_a_removal_are_seen(conf: Path, put: Put) -> None:
    file = put("a.yaml", cluster("a"))
    async with running(conf) as served:
        await served.until(["a"])
        file.write_text(cluster("a") + cluster("b"))
        await served.until(["a", "b"])
        put("new/sub/c.yaml", cluster("c"))
        await served.until(["a", "b", "c"])
        file.unlink()
        report = await served.until(["c"])
        assert (report.files, report.resources) == (1, 1)


async def test_only_what_changed_is_parsed_and_published(conf: Path, put: Put) -> None:
    for n in range(20):
        put(f"{n}.yaml", "".join(cluster(f"c{n}-{m}") for m in range(5)))
    names = [f"c{n}-{m}" for n in range(20) for m in range(5)]
    async with running(conf) as served:
        await served.until(sorted(names))
        assert served.source.catalog.parsed == 100
        replace(conf / "7.yaml", "".join(cluster(f"c7-{m}", seconds=9 if m == 3 else 5) for m in range(5)))
        await served.until(sorted(names))
        assert served.source.catalog.parsed == 101
        assert served.published[1:] == [["c7-3"]]


async def test_an_atomic_rename_over_a_file_is_seen(conf: Path, put: Put) -> None:
    file = put("a.yaml", cluster("a"))
    async with running(file) as served:
        await served.until(["a"])
        for name in ("b", "c"):
            replace(file, cluster(name))
            await served.until([name])


async def test_an_event_counts_where_two_writes_have_the_same_stamp(
    conf: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    def coarse(roots: list[str]) -> Scan:
        """As if the clock of the file system had stopped, and all files were of one size."""
        found = scan(roots)
        found.files = {file: (*stamp[:2], 0, 0, 0) for file, stamp in found.files.items()}
        return found

    monkeypatch.setattr(files, "scan", coarse)
    monkeypatch.setattr(files, "stamp_of", lambda known: (known.st_dev, known.st_ino, 0, 0, 0))
    file = put("a.yaml", cluster("a"))
    async with running(conf) as served:
        await served.until(["a"])
        file.write_text(cluster("b"))
        await served.until(["b"])


@pytest.mark.parametrize("root", [".", "a.yaml"])
async def test_the_symlink_swap_of_a_mounted_config_map_is_seen(conf: Path, put: Put, root: str) -> None:
    put("..1/a.yaml", cluster("a"))
    (conf / "..data").symlink_to("..1")
    (conf / "a.yaml").symlink_to("..data/a.yaml")
    async with running(conf / root) as served:
        await served.until(["a"])
        for n, name in ((2, "b"), (3, "c")):
            await served.settled()
            put(f"..{n}/a.yaml", cluster(name))
            (conf / "..data_tmp").symlink_to(f"..{n}")
            (conf / "..data_tmp").replace(conf / "..data")
            await served.until([name])
            shutil.rmtree(conf / f"..{n - 1}")


async def test_a_file_behind_a_symlink_is_watched_where_it_is(conf: Path, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere" / "real.yaml"
    outside.parent.mkdir()
    outside.write_text(cluster("a"))
    (conf / "a.yaml").symlink_to(outside)
    async with running(conf) as served:
        await served.until(["a"])
        await served.settled()
        outside.write_text(cluster("b"))
        await served.until(["b"])


# OPS-8
async def test_a_bad_edit_leaves_the_old_state_and_its_repair_brings_all_that_waited(conf: Path, put: Put) -> None:
    file = put("a.yaml", cluster("a"))
    async with running(conf) as served:
        await served.until(["a"])
        file.write_text(cluster("a") + cluster("b")[:-8])
        report = await served.until(["a"], errors=1)
        assert str(report.errors[0]).startswith(f"{file}:8: not valid YAML: ")
        put("new.yaml", cluster("new"))
        await served.until(["a"], errors=1)
        file.write_text(cluster("a") + cluster("b"))
        await served.until(["a", "b", "new"])


# OPS-8, DYN-33
async def test_a_change_that_the_store_refuses_is_reported_and_retried_with_the_next_edit(conf: Path, put: Put) -> None:
    put("a.yaml", cluster("a"))
    async with running(conf) as served:
        await served.until(["a"])
        clash = put("b.yaml", cluster("a", seconds=7) + cluster("b"))
        report = await served.until(["a"], errors=1)
        assert "both match every client" in str(report.errors[0])
        clash.write_text(cluster("b"))
        await served.until(["a", "b"])


async def test_odd_things_that_appear_are_reported_and_their_going_too(conf: Path, put: Put) -> None:
    put("a.yaml", cluster("a"))
    odd = conf / "b.yaml"
    async with running(conf) as served:
        await served.until(["a"])
        odd.mkdir()
        await served.until(["a"], errors=1)
        odd.rmdir()
        await served.until(["a"])
        odd.symlink_to("nowhere")
        await served.until(["a"], errors=1)
        odd.unlink()
        odd.write_bytes(b"\xff")
        await served.until(["a"], errors=1)
        odd.write_text(cluster("b"))
        await served.until(["a", "b"])


async def test_a_root_that_goes_away_is_reported_and_picked_up_when_it_is_back(conf: Path, put: Put) -> None:
    put("a.yaml", cluster("a"))
    async with running(conf) as served:
        await served.until(["a"])
        for name in ("b", "c"):
            away = move_away(conf)
            report = await served.until(served.clusters(), errors=1, held=True)
            assert str(report.errors[0]) == f"{conf}: does not exist"
            shutil.rmtree(away)
            put("a.yaml", cluster(name))
            await served.until([name])
        put("d.yaml", cluster("d"))
        await served.until(["c", "d"])


async def test_a_root_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    root = tmp_path / "not" / "yet"
    async with running(root) as served:
        report = await served.until([], errors=1)
        assert str(report.errors[0]) == f"{root}: does not exist"
        make(root)
        report = await served.until([], errors=1)
        assert str(report.errors[0]) == f"{root}: has no resources; to start with none, give --allow-empty"
        (root / "a.yaml").write_text(cluster("a"))
        await served.until(["a"])


async def test_a_reload_on_demand_reads_every_file_again(conf: Path, put: Put) -> None:
    put("a.yaml", cluster("a"))
    async with running(conf) as served:
        first = await served.until(["a"])
        served.source.reload()
        assert await served.until(["a"]) == first
        assert served.source.catalog.parsed == 1
        assert len(served.published) == 1


async def test_a_load_before_running_is_not_published_again(conf: Path, put: Put) -> None:
    put("a.yaml", cluster("a"))
    served = Running(conf)
    served.source.load(served.publish)
    task = asyncio.create_task(served.source.run(served.publish))
    served.reports.get_nowait()
    put("b.yaml", cluster("b"))
    await served.until(["a", "b"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert served.published == [["a"], ["b"]]


async def test_files_are_polled_where_watching_fails(
    conf: Path, put: Put, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> AsyncIterator[set[object]]:
        raise OSError(28, "No space left on device")  # no inotify watches left

    monkeypatch.setattr(file_watch, "awatch", refuse)
    monkeypatch.setattr(file_watch, "POLL", 0.01)
    put("a.yaml", cluster("a"))
    async with running(conf) as served:
        await served.until(["a"])
        put("b.yaml", cluster("b"))
        await served.until(["a", "b"])
    assert "No space left on device" in caplog.text


async def test_other_files_beside_a_single_file_are_not_read(conf: Path, put: Put) -> None:
    file = put("a.yaml", cluster("a"))
    async with running(file) as served:
        await served.until(["a"])
        put("other.yaml", "not: [valid")
        put("noise.txt", "x")
        replace(file, cluster("b"))
        report = await served.until(["b"])
        assert report.files == 1


# -- what can't be read


# OPS-8
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES])
async def test_a_file_that_can_not_be_read_is_tried_again_without_an_event(
    conf: Path, put: Put, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(files, "RETRY", 0.05)
    file = put("a.yaml", cluster("a"))
    opened = files.open_file
    tried: list[str] = []

    def refuse(path: str) -> Any:
        tried.append(path)
        if len(tried) < 4:
            raise OSError(number, os.strerror(number), path)
        return opened(path)

    async with running(conf) as served:
        await served.until(["a"])
        await served.settled()
        with monkeypatch.context() as patched:
            patched.setattr(files, "open_file", refuse)
            replace(file, cluster("b"))
            report = await served.until(["a"], errors=1)
            assert str(report.errors[0]) == f"{file}: can't be read: {os.strerror(number)}"
            await served.until(["b"])
        assert tried == [str(file)] * 4
        assert served.reports.empty()  # what is as it was is not told again


# OPS-8
async def test_a_directory_that_can_not_be_listed_is_tried_again_without_an_event(
    conf: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "RETRY", 0.05)
    put("a.yaml", cluster("a"))
    listed = os.scandir
    refused = 3

    def refuse(path: str) -> Any:
        nonlocal refused
        if path == str(conf) and refused:
            refused -= 1
            raise OSError(errno.EMFILE, "Too many open files", path)
        return listed(path)

    async with running(conf) as served:
        await served.until(["a"])
        await served.settled()
        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", refuse)
            put("b.yaml", cluster("b"))
            await served.until(["a", "b"])
    assert refused == 0


# OPS-8
async def test_a_scan_that_raises_something_unexpected_is_reported_and_repeated(
    conf: Path, put: Put, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "RETRY", 0.01)
    file = put("a.yaml", cluster("a"))
    failures = 3

    def fail(roots: list[str]) -> Scan:
        nonlocal failures
        if failures:
            failures -= 1
            raise ValueError("what is this")
        return scan(roots)

    async with running(conf) as served:
        await served.until(["a"])
        await served.settled()
        with monkeypatch.context() as patched:
            patched.setattr(files, "scan", fail)
            replace(file, cluster("b"))
            report = await served.until(["a"], errors=1)
            assert str(report.errors[0]) == f"{conf}: can't be scanned: ValueError, see the log"
            await served.until(["b"])
    assert failures == 0
    assert caplog.text.count("can't scan the configuration files, retrying") == 1
    assert caplog.text.count("ValueError: what is this") == 1


# OPS-8
async def test_the_source_says_that_it_polls_and_why(conf: Path, put: Put) -> None:
    put("a.yaml", cluster("a"))
    async with running(conf) as served:
        await served.until(["a"])
        assert served.source.polling == ""
        path = os.fsencode(conf) + b"/.caf\xe9.swp"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        await asyncio.to_thread(eventually, lambda: served.source.polling)
        assert served.source.polling.startswith(f"can't watch {conf}: Unable to decode path")
        put("b.yaml", cluster("b"))
        await served.until(["a", "b"])
