"""The last good state on disk."""

# ruff: noqa: ASYNC220, ASYNC221, ASYNC240 - these loops have nothing else to do

from __future__ import annotations

import asyncio
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.support import insides
from xdsprism.client import disk as module
from xdsprism.client.disk import CachedEntry, Disk, may_keep
from xdsprism.client.disk_file import SCHEMA
from xdsprism.core.model.constraints import FALSE, TRUE, All, AnyOf, Constraint, Eq, Exists, Not
from xdsprism.core.model.types import CLUSTER, ENDPOINT, Variant, make_variant
from xdsprism.errors import UsageError

FIELDS = ("type_url", "name", "constraint", "body", "version", "digest", "aliases", "extras", "references")


def kept(name: str = "a", body: bytes = b"body", constraint: Constraint = TRUE, *, at: float = 1.0) -> CachedEntry:
    return CachedEntry(make_variant(CLUSTER, name, body, constraint), located=constraint != TRUE, written_at=at)


def plain(entry: CachedEntry) -> tuple[object, ...]:
    return (*(getattr(entry.variant, field) for field in FIELDS), entry.located, entry.written_at)


def contents(disk: Disk) -> dict[tuple[str, str], list[bytes]]:
    found: dict[tuple[str, str], list[bytes]] = {}
    for scope, entry in disk.load():
        found.setdefault((scope, entry.variant.name), []).append(entry.variant.body)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


@pytest.fixture
async def disk(path: Path) -> AsyncIterator[Disk]:
    disk = Disk(path)
    yield disk
    await disk.close()


async def write(path: Path, *entries: CachedEntry, scope: str = "s") -> None:
    disk = Disk(path)
    for entry in entries:
        disk.put(scope, entry.variant.type_url, entry.variant.name, [entry])
    await disk.close()
    assert disk.warnings() == []


# -- keeping


# PRX-3, PRX-16, PRX-22, PRX-25
@pytest.mark.parametrize(
    "constraint",
    [
        TRUE,
        FALSE,
        Eq("env", ""),
        Not(Not(Exists("k"))),
        All((Eq("b", "2"), AnyOf((Eq("a", "1"),)), Not(Eq("é\x00", '"')))),
    ],
)
async def test_a_variant_is_read_from_disk_as_it_was_written(path: Path, constraint: Constraint) -> None:
    everything = bytes(range(256))
    variant = Variant(
        CLUSTER,
        "n\x00ä",
        constraint,
        everything,
        version="upstream's own",
        digest=2**64 - 1,
        aliases=("x", "ÿ"),
        extras=pb.Resource(aliases=["x", "ÿ"], ttl={"seconds": 5}).SerializeToString(),
        references=((ENDPOINT, "w"),),
    )
    await write(path, entry := CachedEntry(variant, located=True, written_at=1234.5))
    again = Disk(path)
    ((scope, found),) = again.load()
    assert (scope, plain(found)) == ("s", plain(entry))
    assert [plain(one) for one in await again.find("s", CLUSTER, "n\x00ä")] == [plain(entry)]
    await again.close()


# PRX-25
async def test_the_variants_of_a_name_are_replaced_as_a_whole_and_keep_their_order(path: Path) -> None:
    disk = Disk(path)
    disk.put("s", CLUSTER, "a", [kept(body=b"1", constraint=Eq("k", "1")), kept(body=b"2", constraint=Eq("k", "2"))])
    await disk.flush()
    disk.put("s", CLUSTER, "a", [kept(body=b"3", constraint=Eq("k", "3")), kept(body=b"1", constraint=Eq("k", "1"))])
    await disk.close()
    again = Disk(path)
    assert contents(again) == {("s", "a"): [b"3", b"1"]}
    await again.close()


async def test_a_removed_entry_is_gone_after_a_restart(path: Path) -> None:
    await write(path, kept("a"), kept("b"))
    disk = Disk(path)
    disk.remove("s", CLUSTER, "a")
    disk.remove("s", CLUSTER, "never there")
    await disk.close()
    again = Disk(path)
    assert contents(again) == {("s", "b"): [b"body"]}
    await again.close()


async def test_scopes_and_types_are_apart(disk: Disk) -> None:
    other = CachedEntry(make_variant(ENDPOINT, "a", b"endpoint"), located=False, written_at=1.0)
    disk.put("s", CLUSTER, "a", [kept(body=b"s")])
    disk.put("t", CLUSTER, "a", [kept(body=b"t")])
    disk.put("s", ENDPOINT, "a", [other])
    await disk.flush()
    disk.remove("s", CLUSTER, "a")
    await disk.flush()
    assert contents(disk) == {("t", "a"): [b"t"], ("s", "a"): [b"endpoint"]}


async def test_a_large_state_is_read_page_by_page_and_in_full(path: Path) -> None:
    count = 2 * module._PAGE + 1  # noqa: SLF001 # two pages and a bit, whatever their size
    await write(path, *(kept(f"n{number}") for number in range(count)))
    disk = Disk(path)
    assert list(contents(disk)) == [("s", f"n{number}") for number in range(count)]
    await disk.close()


def test_names_that_do_not_belong_together_are_refused(path: Path) -> None:
    disk = Disk(path)
    with pytest.raises(UsageError, match="entries under 'b'"):
        disk.put("s", CLUSTER, "b", [kept("a")])
    asyncio.run(disk.close())


# PRX-17
async def test_a_do_not_cache_resource_is_not_written_and_removes_the_entry_before_it(path: Path) -> None:
    await write(path, kept(body=b"old"))
    extras = pb.Resource(cache_control={"do_not_cache": True}).SerializeToString()
    secret = make_variant(CLUSTER, "a", b"for-now-only", extras=extras)
    disk = Disk(path)
    disk.put("s", CLUSTER, "a", [CachedEntry(secret, located=False, written_at=2.0)])
    assert await disk.find("s", CLUSTER, "a") == []
    await disk.close()
    assert not may_keep(secret)
    assert not [file for file in path.parent.iterdir() if b"for-now-only" in file.read_bytes()]
    again = Disk(path)
    assert contents(again) == {}
    await again.close()


# PRX-17
@pytest.mark.parametrize(
    ("extras", "may"),
    [
        (b"", True),
        (pb.Resource(ttl={"seconds": 1}).SerializeToString(), True),
        (pb.Resource(cache_control={}).SerializeToString(), True),
        (pb.Resource(cache_control={"do_not_cache": True}).SerializeToString(), False),
        (b"\xff", False),
    ],
)
def test_extras_say_whether_a_resource_may_be_kept(extras: bytes, may: bool) -> None:
    assert may_keep(make_variant(CLUSTER, "a", b"", extras=extras)) is may


# -- writing


async def test_a_flush_writes_only_the_newest_value_of_each_entry(path: Path) -> None:
    disk = Disk(path)
    assert not disk.is_dirty
    for number in range(1000):
        disk.put("s", CLUSTER, "a", [kept(body=str(number).encode())])
    assert disk.is_dirty
    assert contents(disk) == {}
    statements: list[str] = []
    insides.database(disk).set_trace_callback(statements.append)
    await disk.flush()
    assert not disk.is_dirty
    assert len([one for one in statements if one.startswith("INSERT")]) == 1
    assert contents(disk) == {("s", "a"): [b"999"]}
    await disk.close()


async def test_a_lookup_sees_changes_that_are_not_written_yet(disk: Disk) -> None:
    disk.put("s", CLUSTER, "a", [kept(body=b"1")])
    assert [entry.variant.body for entry in await disk.find("s", CLUSTER, "a")] == [b"1"]
    await disk.flush()
    disk.remove("s", CLUSTER, "a")
    assert await disk.find("s", CLUSTER, "a") == []


async def test_writing_does_not_hold_up_the_loop(disk: Disk) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(_: str) -> None:
        began.set()
        assert go_on.wait(30)

    disk.put("s", CLUSTER, "a", [kept(body=b"1")])
    insides.database(disk).set_trace_callback(slow)
    flushing = asyncio.create_task(disk.flush())
    await asyncio.to_thread(began.wait, 30)
    disk.put("s", CLUSTER, "a", [kept(body=b"2")])  # while the first is on its way
    looking = asyncio.create_task(disk.find("s", CLUSTER, "a"))
    await asyncio.sleep(0)
    assert not flushing.done()
    go_on.set()
    await flushing
    insides.database(disk).set_trace_callback(None)
    assert [entry.variant.body for entry in await looking] == [b"2"]
    assert contents(disk) == {("s", "a"): [b"1"]}
    await disk.flush()
    assert contents(disk) == {("s", "a"): [b"2"]}


async def test_entries_that_can_not_be_written_are_written_by_the_next_flush(disk: Disk) -> None:
    statements: list[str] = []

    def meanwhile(statement: str) -> None:
        statements.append(statement)
        disk.put("s", CLUSTER, "a", [kept(body=b"2")])

    insides.database(disk).execute("PRAGMA query_only = 1")
    disk.put("s", CLUSTER, "a", [kept(body=b"1")])
    disk.put("s", CLUSTER, "b", [kept("b", b"1")])
    insides.database(disk).set_trace_callback(meanwhile)
    await disk.flush()
    insides.database(disk).set_trace_callback(None)
    (warning,) = disk.warnings()
    assert "readonly" in warning
    assert statements.count("BEGIN EXCLUSIVE") == 1  # no second attempt while nothing has changed
    assert [entry.variant.body for entry in await disk.find("s", CLUSTER, "b")] == [b"1"]
    insides.database(disk).execute("PRAGMA query_only = 0")
    await disk.flush()
    assert disk.warnings() == []
    assert contents(disk) == {("s", "a"): [b"2"], ("s", "b"): [b"1"]}


WRITER = """
import asyncio, sys
from xdsprism.client.disk import Disk, CachedEntry
from xdsprism.core.model.types import CLUSTER, make_variant

async def main():
    disk = Disk(sys.argv[1])
    generation = 0
    while True:
        generation += 1
        body = str(generation).encode().ljust(4000)
        for number in range(50):
            name = f"n{number}"
            disk.put("s", CLUSTER, name, [CachedEntry(make_variant(CLUSTER, name, body), False, 1.0)])
        await disk.flush()
        print(generation, flush=True)

asyncio.run(main())
"""


# PRX-25: killed in the middle of writing, five times over
async def test_after_a_kill_the_last_complete_transaction_is_there(path: Path) -> None:
    for generations in (1, 2, 3, 7, 20):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(generations):
                written = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            written = max([written, *map(int, writer.stdout.read().splitlines())])
        disk = Disk(path)
        found = contents(disk)
        assert disk.warnings() == []
        await disk.close()
        assert len(found) == 50
        (body,) = {body for bodies in found.values() for body in bodies}  # all of one transaction
        assert int(body) in (written, written + 1)  # what was said to be written is


# -- files that are not as they should be


def asides(path: Path) -> list[Path]:
    return sorted(path.parent.glob("cache.db.aside-*"))


# PRX-25
async def test_a_file_that_is_no_database_is_moved_aside(path: Path) -> None:
    path.write_bytes(b"node: {id: me}\n" * 100)
    disk = Disk(path)
    (warning,) = disk.warnings()
    assert str(path) in warning
    assert str(asides(path)[0]) in warning
    assert asides(path)[0].read_bytes() == b"node: {id: me}\n" * 100
    disk.put("s", CLUSTER, "a", [kept()])
    await disk.close()
    again = Disk(path)
    assert (again.warnings(), contents(again)) == ([], {("s", "a"): [b"body"]})
    await again.close()


async def test_earlier_files_that_were_moved_aside_are_left_alone(path: Path) -> None:
    for text in (b"first " * 50, b"second " * 50):
        path.write_bytes(text)
        await Disk(path).close()
    assert [aside.read_bytes() for aside in asides(path)] == [b"first " * 50, b"second " * 50]


# PRX-25
@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
async def test_companions_of_a_broken_file_are_never_those_of_the_new_one(path: Path, suffix: str) -> None:
    path.write_bytes(b"?" * 4096)
    companion = path.with_name(path.name + suffix)
    companion.write_bytes(bytes(5000))
    disk = Disk(path)
    assert not companion.exists()
    assert contents(disk) == {}
    assert asides(path)[0].read_bytes() == b"?" * 4096
    await disk.close()


# PRX-25
async def test_the_database_of_another_program_is_moved_aside_unchanged(path: Path) -> None:
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    before = path.read_bytes()
    disk = Disk(path)
    assert "another program" in disk.warnings()[0]
    await disk.close()
    assert asides(path)[0].read_bytes() == before


# PRX-25
async def test_another_schema_is_moved_aside(path: Path) -> None:
    await write(path, kept())
    later = sqlite3.connect(path)
    later.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    later.close()
    disk = Disk(path)
    assert f"schema {SCHEMA + 1}" in disk.warnings()[0]
    assert contents(disk) == {}
    await disk.close()


async def damaged(path: Path) -> None:
    """Written by this program, and then overwritten in the middle by something else."""
    await write(path, *(kept(f"n{number}", b"x" * 3000) for number in range(100)))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))


# PRX-25
async def test_damage_that_shows_while_reading_is_a_warning_and_the_file_begins_anew(path: Path) -> None:
    await damaged(path)
    disk = Disk(path)
    assert contents(disk) == {}
    assert "moved to" in disk.warnings()[0]
    disk.put("s", CLUSTER, "a", [kept()])
    await disk.flush()
    assert contents(disk) == {("s", "a"): [b"body"]}
    await disk.close()


# PRX-25
async def test_damage_that_shows_while_writing_costs_no_change(path: Path) -> None:
    await damaged(path)
    disk = Disk(path)
    disk.put("s", CLUSTER, "a", [kept()])
    await disk.flush()
    assert "moved to" in disk.warnings()[0]
    assert not disk.is_dirty
    assert contents(disk) == {("s", "a"): [b"body"]}
    await disk.close()


async def test_damage_that_shows_in_a_lookup_finds_nothing(path: Path) -> None:
    await damaged(path)
    disk = Disk(path)
    assert await disk.find("s", CLUSTER, "n1") == []
    assert "moved to" in disk.warnings()[0]
    await disk.close()


async def test_an_entry_whose_constraints_can_not_be_read_is_left_out(path: Path) -> None:
    await write(path, kept("a"), kept("b"))
    editor = sqlite3.connect(path)
    editor.execute("UPDATE kept SET constraints = x'ff' WHERE name = 'a'")
    editor.commit()
    editor.close()
    disk = Disk(path)
    assert contents(disk) == {("s", "b"): [b"body"]}
    assert "1 damaged entries" in disk.warnings()[0]
    await disk.close()


HOLDER = """
import sys
from xdsprism.client.disk import Disk
disk = Disk(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


# PRX-25: decision: one file, one process
async def test_a_second_process_is_refused_until_the_first_closes_the_file(path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(UsageError, match="in use by another process") as refused:
            Disk(path)
        assert str(path) in str(refused.value)
        holder.kill()
    await write(path, kept())
    assert asides(path) == []


async def test_a_second_cache_on_the_file_in_one_process_is_refused_too(disk: Disk, path: Path) -> None:
    with pytest.raises(UsageError, match="in use"):
        Disk(path)
    elsewhere = subprocess.run([sys.executable, "-c", HOLDER, path], input="", capture_output=True, check=False)
    assert b"in use" in elsewhere.stderr  # the attempt left the first one's lock in place


@pytest.mark.parametrize("where", ["nowhere/cache.db", ".", "file/cache.db"])
def test_a_place_that_can_not_be_written_is_an_error_with_its_path(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refused:
        Disk(tmp_path / where)
    assert str(tmp_path / where) in str(refused.value)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


async def test_only_the_owner_may_read_it(disk: Disk, path: Path) -> None:
    disk.put("s", CLUSTER, "a", [kept()])
    await disk.flush()
    files = list(path.parent.iterdir())
    assert path.with_name("cache.db-wal") in files
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
