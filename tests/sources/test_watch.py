from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from watchfiles import Change

from xdsprism.watch import FileChange, Plan, Watch, make_plan


@asynccontextmanager
async def watching(plan: Plan) -> AsyncIterator[asyncio.Queue[set[FileChange]]]:
    woken: asyncio.Queue[set[FileChange]] = asyncio.Queue()
    watch = Watch(plan, woken.put_nowait)
    await watch.start()
    try:
        yield woken
    finally:
        await watch.stop()


async def changes(woken: asyncio.Queue[set[FileChange]]) -> set[FileChange]:
    async with asyncio.timeout(30):
        return await woken.get()


async def test_nothing_is_missed_once_it_has_started(tmp_path: Path) -> None:
    async with watching(make_plan([str(tmp_path)], [])) as woken:
        (tmp_path / "a.yaml").write_text("x")  # before the loop had another turn
        assert (Change.added, str(tmp_path / "a.yaml")) in await changes(woken)


def test_what_others_write_beside_a_single_file_is_none_of_its_concern() -> None:
    plan = make_plan(["/conf/a.yaml"], [])
    assert plan.concerns("/conf/a.yaml")
    assert plan.concerns("/conf/..data")
    assert not plan.concerns("/conf/other.yaml")
    assert not plan.concerns("/conf/.a.yaml.swp")


def test_a_directory_made_anew_is_another_plan(tmp_path: Path) -> None:
    root = tmp_path / "conf"
    root.mkdir()
    before = make_plan([str(root)], [])
    assert make_plan([str(root)], []) == before
    root.rename(tmp_path / "old")
    gone = make_plan([str(root)], [])
    root.mkdir()
    assert len({before, gone, make_plan([str(root)], [])}) == 3


def test_a_directory_that_is_missing_is_waited_for_from_above(tmp_path: Path) -> None:
    plan = make_plan([str(tmp_path / "not" / "yet")], [])
    assert [path for path, _, _ in plan.flat] == [tmp_path]
    assert plan.names == {"not", "yet"}
    assert not plan.trees


def test_only_targets_outside_of_the_roots_are_watched_on_their_own(tmp_path: Path) -> None:
    root = tmp_path / "conf"
    root.mkdir()
    plan = make_plan([str(root)], [root.resolve() / "..1" / "a.yaml", Path("/elsewhere/b.yaml")])
    assert {path for path, _, _ in plan.flat} == {tmp_path, Path("/elsewhere")}
    assert "b.yaml" in plan.names
    assert "a.yaml" not in plan.names
