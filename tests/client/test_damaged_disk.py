"""A damaged cache file: flipped bits, and a missing end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from xdsprism.client.disk import CachedEntry, Disk, RowKind
from xdsprism.client.last_good import LastGood
from xdsprism.core.model.constraints import TRUE, Constraint, Eq
from xdsprism.core.model.types import CLUSTER, ENDPOINT, LISTENER, TypeUrl, Variant, make_variant

FLIPS = int(os.environ.get("XDSPRISM_DISK_FLIPS", "320"))  # by hand: 3000
CUTS = FLIPS // 8

WRITTEN, CONTACT, NOW = 1_000.0, 1_500.0, 2_000.0
PLACE = json.dumps(["", ""])
NAMED, LISTED = (json.dumps([PLACE, [["env", "prod"]], collection]) for collection in (None, "*"))


@dataclass(frozen=True)
class Served:
    """Of one entry all that reaches clients, or decides for how long."""

    constraint: Constraint
    body: bytes
    version: str
    aliases: tuple[str, ...]
    extras: bytes
    located: bool
    kind: RowKind
    written_at: float


@dataclass(frozen=True)
class State:
    """What a file gives to a relay that starts with it."""

    entries: dict[tuple[TypeUrl, str], Served]
    lists: dict[TypeUrl, set[str]]  # the names of their members


def served(kept: CachedEntry) -> Served:
    each = kept.variant
    return Served(
        each.constraint,
        each.body,
        each.version,
        each.aliases,
        each.extras,
        kept.located,
        kept.kind,
        kept.written_at,
    )


def start(path: Path) -> tuple[State, list[str]]:
    """As a relay does it, up to where it serves; then something is written, and it stops."""
    said: list[str] = []
    file = LastGood(str(path), said.append, wall=lambda: NOW)
    entries = {
        (type_url, name): served(kept)
        for (_, type_url, name), by_subscription in file.entries.items()
        for kept in by_subscription.values()
        if name != "later"
    }
    lists = {type_url: set(file.members[place, type_url, asked]) for place, type_url, asked in file.complete_lists}
    file.disk.put(NAMED, CLUSTER, "later", [entry(CLUSTER, "later", b"later")])
    asyncio.run(file.close())
    return State(entries, lists), said


def entry(type_url: TypeUrl, name: str, body: bytes) -> CachedEntry:
    variant = make_variant(type_url, name, body, Eq("env", "prod"), aliases=(f"{name}-alias",), extras=b"\x1a\x01x")
    return CachedEntry(variant, located=True, written_at=WRITTEN, run=1)


def nothing(type_url: TypeUrl, name: str, kind: RowKind) -> CachedEntry:
    return CachedEntry(Variant(type_url, name, TRUE, b"", "", 0), located=False, written_at=WRITTEN, kind=kind, run=1)


async def fill(path: Path) -> None:
    """Wildcards, names and denials; rows of all sizes; some were replaced or removed, so pages have old copies."""
    disk = Disk(path)
    for version in (b"old", b"new"):
        for number in range(40):
            name = f"member-{number}"
            disk.put(LISTED, CLUSTER, name, [entry(CLUSTER, name, version * (number * 7 + 1))])
        for number in range(20):
            name = f"named-{number}"
            disk.put(NAMED, ENDPOINT, name, [entry(ENDPOINT, name, version * (5 + number * 150))])
        disk.put(LISTED, LISTENER, "only", [entry(LISTENER, "only", version)])
        await disk.flush()
    for number in range(0, 40, 9):
        disk.remove(LISTED, CLUSTER, f"member-{number}")
    for type_url in (CLUSTER, LISTENER):
        disk.put(LISTED, type_url, "*", [nothing(type_url, "*", RowKind.LIST)])
    disk.put(NAMED, CLUSTER, "absent", [nothing(CLUSTER, "absent", RowKind.ABSENT)])
    disk.contact(PLACE, CONTACT)
    await disk.close()


Original = tuple[bytes, State]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    path = tmp_path_factory.mktemp("disk") / "cache.db"
    asyncio.run(fill(path))
    contents = path.read_bytes()
    state, said = start(path)
    assert not said
    assert len(state.entries) == 35 + 20 + 1 + 1
    assert state.lists.keys() == {CLUSTER, LISTENER}
    assert {each.written_at for each in state.entries.values()} == {CONTACT}
    return contents, state


def check(damaged: bytes, original: State, path: Path) -> tuple[State, str]:
    """It starts; all that it would serve is what was written; what is missing was said, and is said once."""
    path.parent.mkdir()
    path.write_bytes(damaged)
    state, said = start(path)
    for key, each in state.entries.items():
        written = original.entries[key]
        assert each in (written, replace(written, written_at=WRITTEN))  # without the contact it is older
    for type_url, members in state.lists.items():
        assert members == original.lists[type_url]
    lost = original.entries.keys() - state.entries.keys()
    if lost or original.lists.keys() - state.lists.keys():
        assert said
    if len(lost) == 1:
        assert repr(*[name for _, name in lost]) in " ".join(said)
    again, repeated = start(path)
    assert (again, repeated) == (state, [])
    return state, " ".join(said)


# PRX-25
def test_no_flipped_bit_keeps_a_relay_from_starting_or_changes_what_it_serves(
    original: Original, tmp_path: Path
) -> None:
    contents, state = original
    chance = random.Random(25)
    spared = 0
    for number in range(FLIPS):
        bit = chance.randrange(8 * len(contents)) if number >= 100 else 8 * number + chance.randrange(8)  # the header
        damaged = bytearray(contents)
        damaged[bit // 8] ^= 1 << bit % 8
        found, _ = check(bytes(damaged), state, tmp_path / str(number) / "cache.db")
        spared += len(found.entries) >= len(state.entries) - 3
    assert spared > FLIPS // 2  # one bit rarely costs more than the row that it is in


# PRX-25
def test_a_truncated_file_does_not_keep_a_relay_from_starting(original: Original, tmp_path: Path) -> None:
    contents, state = original
    chance = random.Random(26)
    pages = [*range(0, len(contents), 4096)][: CUTS // 2]
    for length in [*pages, *(chance.randrange(len(contents)) for _ in range(CUTS - len(pages)))]:
        found, said = check(contents[:length], state, tmp_path / str(length) / "cache.db")
        assert said
        if length % 4096 == 0:  # SQLite reads nothing of a file that has fewer pages than it says
            assert found.entries == {}


# PRX-25: a relay that was killed leaves its latest transactions in SQLite's log
def test_no_flipped_bit_in_the_log_of_a_killed_relay_changes_what_is_served(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"

    async def be_killed() -> bytes:
        disk = Disk(path)
        for version in (b"1", b"2", b"3"):
            for name in "abc":
                disk.put(NAMED, CLUSTER, name, [entry(CLUSTER, name, version * 500)])
            await disk.flush()
        log = path.with_name("cache.db-wal").read_bytes()
        assert log
        before = path.read_bytes()
        await disk.close()
        path.write_bytes(before)
        return log

    log = asyncio.run(be_killed())
    base = path.read_bytes()
    chance = random.Random(27)
    for number in range(CUTS):
        damaged = bytearray(log)
        if number % 2:
            del damaged[chance.randrange(len(log)) :]
        else:
            damaged[chance.randrange(len(log))] ^= 1 << chance.randrange(8)
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "cache.db").write_bytes(base)
        (folder / "cache.db-wal").write_bytes(damaged)
        state, _ = start(folder / "cache.db")
        bodies = {each.body for each in state.entries.values()}
        assert len(state.entries) in (0, 3)
        assert len(bodies) <= 1  # of one transaction
        assert bodies <= {b"1" * 500, b"2" * 500, b"3" * 500}


def edited(contents: bytes, path: Path, *statements: str) -> bytes:
    path.write_bytes(contents)
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    damaged = path.read_bytes()
    path.unlink()
    return damaged


# PRX-25: a list without a member would look as if that had been deleted
def test_a_damaged_member_drops_itself_and_its_wildcard_and_nothing_else(original: Original, tmp_path: Path) -> None:
    contents, state = original
    damaged = edited(contents, tmp_path / "edit", "UPDATE kept SET body = x'00' WHERE name = 'member-7'")
    found, said = check(damaged, state, tmp_path / "x" / "cache.db")
    assert state.entries.keys() - found.entries.keys() == {(CLUSTER, "member-7")}
    assert found.lists.keys() == {LISTENER}
    assert "dropped 1 damaged entries" in said
    assert "Cluster 'member-7'" in said
    assert "1 wildcards" in said


# PRX-25
def test_a_text_that_is_not_utf8_any_more_drops_its_row_alone(original: Original, tmp_path: Path) -> None:
    contents, state = original
    damaged = contents.replace(b'["named-7-alias"]', b'["named-7-\xe1lias"]')
    assert damaged != contents
    found, said = check(damaged, state, tmp_path / "x" / "cache.db")
    assert state.entries.keys() - found.entries.keys() == {(ENDPOINT, "named-7")}
    assert "ClusterLoadAssignment 'named-7'" in said


# PRX-25: SQLite quotes what it can't parse, and that is no text
def test_a_file_whose_schema_is_not_utf8_any_more_is_set_aside(original: Original, tmp_path: Path) -> None:
    contents, state = original
    damaged = contents.replace(b"CREATE INDEX kept_by_name", b"CREATE \xc9NDEX kept_by_name")
    assert damaged != contents
    found, said = check(damaged, state, tmp_path / "x" / "cache.db")
    assert found == State({}, {})
    assert "moved to" in said


# PRX-25
def test_a_row_that_the_index_lacks_is_dropped_and_the_rest_taken_over(original: Original, tmp_path: Path) -> None:
    contents, state = original
    folder = tmp_path / "edit"
    damaged = edited(
        contents,
        folder,
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_master SET sql = sql || ' WHERE name <> ''named-7''' WHERE name = 'kept_by_name'",
        "PRAGMA writable_schema = RESET",
        "REINDEX kept_by_name",
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_master SET sql = replace(sql, ' WHERE name <> ''named-7''', '')",
    )
    found, said = check(damaged, state, tmp_path / "x" / "cache.db")
    assert state.entries.keys() - found.entries.keys() == {(ENDPOINT, "named-7")}
    assert found.lists == state.lists
    assert "ClusterLoadAssignment 'named-7'" in said
    assert "moved to" in said


# PRX-25: a row of the last run whose contact is lost must not look fresh by the contact of the next
def test_a_lost_contact_does_not_make_old_entries_look_fresh(original: Original, tmp_path: Path) -> None:
    contents, _ = original
    path = tmp_path / "cache.db"
    path.write_bytes(edited(contents, tmp_path / "edit", "UPDATE contact SET at = 9999.0"))
    file = LastGood(str(path), lambda _: None, wall=lambda: NOW)
    file.disk.contact(PLACE, NOW)
    asyncio.run(file.close())
    state, _ = start(path)
    assert {each.written_at for each in state.entries.values()} == {WRITTEN}


# PRX-25: schema 3 had no checksums
def test_a_file_without_checksums_is_set_aside(original: Original, tmp_path: Path) -> None:
    contents, state = original
    old = edited(
        contents,
        tmp_path / "edit",
        "ALTER TABLE kept DROP COLUMN checksum",
        "ALTER TABLE contact DROP COLUMN checksum",
        "PRAGMA user_version = 3",
    )
    found, said = check(old, state, tmp_path / "x" / "cache.db")
    assert found == State({}, {})
    assert "it has schema 3" in said
    assert (tmp_path / "x" / "cache.db.aside-1").exists()
