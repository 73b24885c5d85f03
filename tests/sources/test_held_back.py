"""Changes of the files that look like an accident are not published: large removals, and half-written files."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.sources.rig import Put, Running, replace, running
from tests.sources.samples import FOUR, cluster
from xdsprism.core.model.removal_guard import Guard
from xdsprism.errors import ConfigError
from xdsprism.sources import files
from xdsprism.sources.files import FileSource, NotConfirmedError
from xdsprism.sources.quiet_period import MAX_WAIT

MANY = [f"c{n:02}" for n in range(40)]


def clusters(names: Iterable[str]) -> str:
    return "".join(map(cluster, names))


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


def move(path: Path, to: Path) -> None:
    path.rename(to)


class Clock:
    """Time passes for the source when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks: asyncio.Queue[float] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> float:
        self._loop.call_soon_threadsafe(self.looks.put_nowait, self.now)
        return self.now

    async def looked(self, number: int = 2) -> None:
        """Wait for so many further looks at the clock: what was done before them was seen."""
        while not self.looks.empty():
            self.looks.get_nowait()
        for _ in range(number):
            await asyncio.wait_for(self.looks.get(), 30)


# -- at the start


# OPS-13
@pytest.mark.parametrize("text", [None, "# nothing yet\n"])
def test_a_configuration_without_resources_is_refused_at_the_start(conf: Path, put: Put, text: str | None):
    if text is not None:
        put("a.yaml", text)
    with pytest.raises(ConfigError, match=f"^{conf}: has no resources; to start with none, give --allow-empty$"):
        FileSource([conf]).load()
    assert FileSource([conf], allow_empty=True).load().report.errors == ()


# OPS-13
def test_a_configuration_that_is_not_there_is_refused_at_the_start(tmp_path: Path):
    (tmp_path / "dangling").symlink_to("nowhere")
    for name, reason in (("nope", "does not exist"), ("dangling", "is a symlink to nowhere, which does not exist")):
        with pytest.raises(ConfigError, match=f"^{tmp_path / name}: {reason}$"):
            FileSource([tmp_path / name]).load()
        assert FileSource([tmp_path / name], allow_empty=True).load().report.errors == ()


# OPS-13
async def test_a_start_with_allow_empty_publishes_later_files(conf: Path, put: Put):
    shutil.rmtree(conf)
    async with running(conf, allow_empty=True) as served:
        await served.until([])
        put("a.yaml", cluster("a"))
        await served.until(["a"])


def test_a_bad_file_is_reported_though_no_other_file_has_resources(conf: Path, put: Put):
    bad = put("a.yaml", "a: [")
    with pytest.raises(ConfigError) as caught:
        FileSource([conf]).load()
    assert [problem.file for problem in caught.value.problems] == [str(bad)]


# -- removals


# OPS-13
async def test_an_emptied_directory_is_held_back_until_it_is_confirmed(conf: Path, put: Put):
    files = [put("a.yaml", cluster("a")), put("b.yaml", cluster("b"))]
    async with running(conf) as served:
        await served.until(["a", "b"])
        for file in files:
            file.unlink()
        report = await served.until(["a", "b"], held=True)
        assert report.held is not None
        assert report.held.reasons == ("nothing would be left of 2 resources",)
        assert not report.is_accepted
        assert await served.source.confirm(report.held.id) == report.held
        assert served.clusters() == []
        put("a.yaml", cluster("a"))
        await served.until(["a"])


# OPS-13
async def test_most_of_a_type_is_held_back_and_the_edit_that_brings_it_back_lets_all_through(conf: Path, put: Put):
    file = put("a.yaml", clusters(MANY))
    async with running(conf) as served:
        await served.until(MANY)
        replace(file, clusters(MANY[:4]))
        report = await served.until(MANY, held=True)
        assert report.held is not None
        assert report.held.summary == "36 of 40 cds"
        put("new.yaml", cluster("new"))
        again = await served.until(MANY, held=True)  # all that is pending is one change
        assert again.held == report.held
        replace(file, clusters(MANY[:30]))
        await served.until([*MANY[:30], "new"])


# OPS-13
async def test_a_removal_is_compared_with_what_was_published_last(conf: Path, put: Put):
    put("a.yaml", clusters(MANY[:20]))
    async with running(conf) as served:
        await served.until(MANY[:20])
        more = put("more.yaml", clusters(MANY[20:]))
        await served.until(MANY)
        put("same.yaml", FOUR)
        await served.until(MANY)
        more.unlink()
        await served.until(MANY[:20])  # half is not more than half
        (conf / "a.yaml").unlink()
        report = await served.until(MANY[:20], held=True)
        assert report.held is not None
        assert [(loss.label, len(loss.names), loss.of) for loss in report.held.losses] == [("cds", 20, 20)]


# OPS-13
async def test_a_name_that_stands_in_two_files_is_gone_when_both_are(conf: Path, put: Put):
    one = put("one.yaml", clusters(MANY[:19]) + cluster("both", "$when: env=prod"))
    two = put("two.yaml", cluster("both", "$when: env=test") + cluster("other"))
    names = ["both", *MANY[:19], "other"]
    async with running(conf) as served:
        await served.until(names)
        replace(two, cluster("other"))
        await served.until(names)
        replace(one, clusters(MANY[9:19]))
        await served.until([*MANY[9:19], "other"])  # 10 of 21
        replace(one, "# none\n")
        report = await served.until([*MANY[9:19], "other"], held=True)
        assert report.held is not None
        assert report.held.summary == "10 of 11 cds"


# OPS-13
async def test_an_ordinary_edit_is_not_held_back(conf: Path, put: Put):
    file = put("a.yaml", clusters(["a", "b"]))
    async with running(conf) as served:
        await served.until(["a", "b"])
        replace(file, cluster("b"))
        await served.until(["b"])
        replace(file, cluster("c"))  # all that there was is gone, but there is something
        await served.until(["c"])


# OPS-13
async def test_a_reload_does_not_publish_a_change_that_is_held_back(conf: Path, put: Put):
    file = put("a.yaml", cluster("a"))
    async with running(conf) as served:
        await served.until(["a"])
        file.unlink()
        report = await served.until(["a"], held=True)
        served.source.reload()
        assert await served.until(["a"], held=True) == report


# OPS-13
async def test_a_vanished_directory_is_refused_and_held_back_and_may_be_confirmed(conf: Path, tmp_path: Path, put: Put):
    other = tmp_path / "other.yaml"
    other.write_text(cluster("other"))
    put("a.yaml", cluster("a"))
    async with running(conf, other, guard=Guard(100.0)) as served:
        await served.until(["a", "other"])
        move(conf, tmp_path / "away")
        report = await served.until(["a", "other"], errors=1, held=True)
        assert report.held is not None
        assert report.held.reasons == (f"{conf} does not exist any more",)
        assert str(report.errors[0]) == f"{conf}: does not exist"
        await served.source.confirm(report.held.id)
        assert served.clusters() == ["other"]
        replace(other, cluster("more"))
        await served.until(["more"])  # it need not be there any more
        (tmp_path / "away").rename(conf)
        await served.until(["a", "more"])
        move(conf, tmp_path / "away")
        await served.until(["a", "more"], errors=1, held=True)  # now it must


# OPS-13
async def test_a_vanished_directory_that_is_back_is_as_if_nothing_had_been(conf: Path, tmp_path: Path, put: Put):
    put("a.yaml", cluster("a"))
    async with running(conf) as served:
        await served.until(["a"])
        move(conf, tmp_path / "away")
        await served.until(["a"], errors=1, held=True)
        (tmp_path / "away").rename(conf)
        await served.until(["a"])
        with pytest.raises(NotConfirmedError, match="nothing is held back"):
            await served.source.confirm()


# OPS-13
async def test_a_confirmation_of_an_earlier_change_is_refused(conf: Path, put: Put):
    file = put("a.yaml", clusters(MANY))
    async with running(conf) as served:
        await served.until(MANY)
        replace(file, clusters(MANY[:4]))
        first = (await served.until(MANY, held=True)).held
        replace(file, clusters(MANY[:3]))
        second = (await served.until(MANY, held=True)).held
        assert first is not None
        assert second is not None
        with pytest.raises(
            NotConfirmedError, match=f"another change is held back now: {second.id}, not {first.id}"
        ) as caught:
            await served.source.confirm(first.id)
        assert caught.value.held == second
        assert served.clusters() == MANY


async def turn(served: Running) -> float:
    """One look of the source at its files, and the seconds until it wants to look again; `run` would wait for them."""
    return await served.source._turn(served.publish)  # noqa: SLF001 # a clock of the test's own, without a wait


async def edit(served: Running, clock: Clock, file: Path, names: list[str]) -> None:
    """Edit a file, and have the source look at it until it is at rest, as `run` would."""
    rewrite(file, clusters(names))
    assert await turn(served) > 0
    clock.now += 1.0
    assert await turn(served) == 0


# OPS-13
async def test_an_edit_that_is_not_seen_yet_when_it_is_confirmed_is_not_let_through(conf: Path, put: Put):
    file = put("a.yaml", clusters(MANY))
    clock = Clock()
    served = Running(conf, ticks=clock)
    served.source.load(served.publish)
    await edit(served, clock, file, MANY[:4])
    shown = (await served.until(MANY, held=True)).held
    assert shown is not None
    confirming = asyncio.ensure_future(served.source.confirm(shown.id))
    await asyncio.sleep(0)
    await edit(served, clock, file, MANY[:3])
    with pytest.raises(NotConfirmedError, match="the files have changed, ") as caught:
        await confirming
    assert caught.value.held is not None
    assert caught.value.held.summary == "37 of 40 cds"
    assert served.clusters() == MANY


# OPS-13
async def test_a_confirmation_while_a_file_is_bad_has_no_effect_after_its_repair(conf: Path, put: Put):
    file = put("a.yaml", clusters(MANY))
    async with running(conf) as served:
        await served.until(MANY)
        replace(file, clusters(MANY[:4]))
        shown = (await served.until(MANY, held=True)).held
        bad = put("bad.yaml", "a: [")
        assert (await served.until(MANY, errors=1, held=True)).held == shown
        with pytest.raises(NotConfirmedError, match=r"the configuration is refused: .*bad\.yaml:1: "):
            await served.source.confirm()
        bad.unlink()
        assert (await served.until(MANY, held=True)).held == shown


# -- files that are being written


# OPS-13
async def test_a_write_that_pauses_between_two_documents_is_not_published_half(conf: Path, put: Put):
    clock = Clock()
    file = put("a.yaml", clusters(MANY[:5]))
    async with running(conf, ticks=clock) as served:
        await served.until(MANY[:5])
        with file.open("w") as opened:  # `> file`, and then documents as they are made
            for name in MANY[:6]:
                opened.write(cluster(name, seconds=9))
                opened.flush()
                await clock.looked(1)
        clock.now += 1.0
        await served.until(MANY[:6])
        assert served.published == [MANY[:5], MANY[:6]]


# OPS-13
async def test_a_file_that_is_truncated_and_appended_to_is_never_empty(conf: Path, put: Put):
    clock = Clock()
    file = put("a.yaml", cluster("a"))
    async with running(conf, ticks=clock) as served:
        await served.until(["a"])
        file.write_text("")
        await clock.looked()
        clock.now += 1.0
        report = await served.until(["a"], errors=1)
        assert "is empty now, like an unfinished write" in str(report.errors[0])
        with file.open("a") as opened:
            opened.write(clusters(["a", "b"]))
        await clock.looked()
        clock.now += 1.0
        await served.until(["a", "b"])
        assert served.published == [["a"], ["b"]]


# OPS-13
async def test_a_file_that_is_gone_for_a_moment_removes_nothing(conf: Path, put: Put):
    clock = Clock()
    file = put("a.yaml", cluster("a"))
    put("b.yaml", cluster("b"))
    async with running(conf, ticks=clock) as served:
        await served.until(["a", "b"])
        file.unlink()
        await clock.looked()
        put("a.yaml", cluster("a", seconds=9))
        await clock.looked()
        clock.now += 1.0
        await served.until(["a", "b"])
        assert served.published == [["a", "b"], ["a"]]


# OPS-13
async def test_an_edit_by_rename_is_not_waited_for(conf: Path, put: Put):
    clock = Clock()  # and no time passes
    file = put("a.yaml", clusters(["a", "b"]))
    async with running(conf, ticks=clock) as served:
        await served.until(["a", "b"])
        replace(file, cluster("a"))
        await served.until(["a"])


# OPS-13
async def test_a_file_that_changes_while_it_is_read_is_read_again(
    conf: Path, put: Put, monkeypatch: pytest.MonkeyPatch
):
    file = put("a.yaml", clusters(["a", "b"]))
    clock = Clock()
    served = Running(conf, ticks=clock)
    served.source.load(served.publish)
    found = files.scan([str(conf)])
    with monkeypatch.context() as patched:
        patched.setattr(files, "scan", lambda _: found)
        replace(file, cluster("a"))  # after the scan, and before it is read
        served.source.reload()
        assert await turn(served) > 0
        assert served.clusters() == ["a", "b"]
    await turn(served)
    clock.now += 1.0
    assert await turn(served) == 0
    assert served.clusters() == ["a"]


# OPS-13
async def test_a_file_that_is_written_for_ever_is_read_in_the_end(conf: Path, put: Put):
    clock = Clock()
    file = put("a.yaml", cluster("a"))
    async with running(conf, ticks=clock) as served:
        await served.until(["a"])
        with file.open("a") as opened:
            opened.write(cluster("b"))
            while served.clusters() == ["a"]:
                opened.write("# more\n")
                opened.flush()
                clock.now += 0.1
                await clock.looked(1)
        assert clock.now - 100.0 == pytest.approx(MAX_WAIT, abs=0.6)
        await served.until(["a", "b"])
