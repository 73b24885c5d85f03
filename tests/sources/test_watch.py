from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from watchfiles import Change

from xdsprism import file_watch
from xdsprism.file_watch import FileChange, FileWatch, WatchPlan, make_watch_plan


@asynccontextmanager
async def watching(plan: WatchPlan) -> AsyncIterator[asyncio.Queue[set[FileChange]]]:
    woken: asyncio.Queue[set[FileChange]] = asyncio.Queue()
    watch = FileWatch(plan, woken.put_nowait)
    await watch.start()
    try:
        yield woken
    finally:
        await watch.stop()


async def changes(woken: asyncio.Queue[set[FileChange]]) -> set[FileChange]:
    async with asyncio.timeout(30):
        return await woken.get()


async def test_nothing_is_missed_once_it_has_started(tmp_path: Path) -> None:
    async with watching(make_watch_plan([str(tmp_path)], [])) as woken:
        (tmp_path / "a.yaml").write_text("x")  # before the loop had another turn
        assert (Change.added, str(tmp_path / "a.yaml")) in await changes(woken)


def test_writes_beside_a_watched_file_cause_no_event() -> None:
    plan = make_watch_plan(["/conf/a.yaml"], [])
    assert plan.concerns("/conf/a.yaml")
    assert plan.concerns("/conf/..data")
    assert not plan.concerns("/conf/other.yaml")
    assert not plan.concerns("/conf/.a.yaml.swp")


def test_a_directory_made_anew_is_another_plan(tmp_path: Path) -> None:
    root = tmp_path / "conf"
    root.mkdir()
    before = make_watch_plan([str(root)], [])
    assert make_watch_plan([str(root)], []) == before
    root.rename(tmp_path / "old")
    gone = make_watch_plan([str(root)], [])
    root.mkdir()
    assert len({before, gone, make_watch_plan([str(root)], [])}) == 3


def test_a_directory_that_is_missing_is_waited_for_from_above(tmp_path: Path) -> None:
    plan = make_watch_plan([str(tmp_path / "not" / "yet")], [])
    assert [path for path, _, _ in plan.flat] == [tmp_path]
    assert plan.names == {"not", "yet"}
    assert not plan.trees


def test_only_targets_outside_of_the_roots_are_watched_on_their_own(tmp_path: Path) -> None:
    root = tmp_path / "conf"
    root.mkdir()
    plan = make_watch_plan([str(root)], [root.resolve() / "..1" / "a.yaml", Path("/elsewhere/b.yaml")])
    assert {path for path, _, _ in plan.flat} == {tmp_path, Path("/elsewhere")}
    assert "b.yaml" in plan.names
    assert "a.yaml" not in plan.names


def touch_badly_named(folder: Path) -> None:
    """As an editor does whose swap file has a name that is not UTF-8."""
    path = os.fsencode(folder) + b"/.caf\xe9.swp"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)  # noqa: PTH108 # bytes, which a Path can't have


# OPS-8
async def test_a_broken_watch_is_logged_replaced_by_polling_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_watch, "POLL", 0.2)
    watching = FileWatch(make_watch_plan([str(tmp_path)], []), (woken := asyncio.Queue()).put_nowait)
    await watching.start()
    try:
        touch_badly_named(tmp_path)
        assert await changes(woken) == set()  # a look at once: nobody knows what the watch would have told
        assert watching.polling_reason.startswith(f"can't watch {tmp_path}: ")
        assert "Unable to decode path" in watching.polling_reason
        while watching.polling_reason:
            assert await changes(woken) == set()
        (tmp_path / "a.yaml").write_text("x")
        while not (found := await changes(woken)):
            pass  # a look that began before the watch stood again
        assert str(tmp_path / "a.yaml") in {path for _, path in found}
    finally:
        await watching.stop()
    assert caplog.text.count(f"can't watch {tmp_path} (Unable to decode path") == 1
    assert caplog.text.count(f"{tmp_path} can be watched again") == 1


class Panic(BaseException):
    """As the Rust below watchfiles raises it: no Exception."""


# OPS-8
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(24, "Too many open files"), "[Errno 24] Too many open files"),
        (ExceptionGroup("in a group", [ValueError("a path")]), "a path"),
        (Panic("a lock is poisoned"), "a lock is poisoned"),
        (RuntimeError(), "RuntimeError"),
        (None, "the watcher ended"),
    ],
)
async def test_files_are_polled_whatever_the_watcher_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, why: str
) -> None:
    async def broken(*_: object, **__: object) -> AsyncIterator[set[FileChange]]:
        if error is not None:
            raise error
        return
        yield set()

    monkeypatch.setattr(file_watch, "awatch", broken)
    monkeypatch.setattr(file_watch, "POLL", 0.01)
    monkeypatch.setattr(file_watch, "RETRY_AT_MOST", 0.02)
    watching = FileWatch(make_watch_plan([str(tmp_path)], []), (woken := asyncio.Queue()).put_nowait)
    await watching.start()
    try:
        for _ in range(10):  # over several watches that were tried again
            assert await changes(woken) == set()
            assert f"can't watch {tmp_path}: {why}" in watching.polling_reason
    finally:
        await watching.stop()


async def test_a_directory_below_one_that_may_not_be_entered_is_one_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: Path) -> bool:
        if path != Path("/"):
            raise PermissionError(13, "Permission denied", str(path))
        return True

    monkeypatch.setattr(Path, "is_dir", refuse)
    assert [path for path, _, _ in make_watch_plan(["/closed/conf"], []).flat] == [Path("/")]
