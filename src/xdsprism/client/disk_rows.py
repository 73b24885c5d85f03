"""The rows of a cache file: how an entry is written, and whether what is read is what was written (PRX-25).

A disk may give back other bytes than it was given. So each row has a checksum, and the index by name vouches for the
row: what is in only one of the two was lost from the other, or is the copy of a row that was replaced.
"""

from __future__ import annotations

import json
import marshal
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from sys import intern
from typing import Any
from zlib import crc32

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import DecodeError

from ..core.codec.constraints import constraint_from_proto, constraint_to_proto
from ..core.model.constraints import Constraint
from ..core.model.truncation import NAME_BYTES, bounded
from ..core.model.types import TypeUrl, Variant
from ..errors import UsageError

TABLES = (
    """CREATE TABLE kept (
        id INTEGER PRIMARY KEY,
        scope TEXT NOT NULL, type_url TEXT NOT NULL, name TEXT NOT NULL,
        constraints BLOB NOT NULL, located INTEGER NOT NULL,
        version TEXT NOT NULL, digest TEXT NOT NULL, body BLOB NOT NULL, extras BLOB NOT NULL,
        aliases TEXT NOT NULL, refers TEXT NOT NULL, written_at REAL NOT NULL,
        what TEXT NOT NULL, run INTEGER NOT NULL, checksum INTEGER NOT NULL
    )""",
    "CREATE INDEX kept_by_name ON kept (scope, type_url, name)",
    "CREATE INDEX kept_by_run ON kept (run)",
    """CREATE TABLE contact (
        run INTEGER NOT NULL, place TEXT NOT NULL, at REAL NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (run, place)
    )""",
)
COLUMNS = (
    "scope, type_url, name, constraints, located, version, digest, body, extras, aliases, refers, written_at, what, "
    "run, checksum"
)
INSERT = f"INSERT INTO kept ({COLUMNS}) VALUES ({', '.join('?' * 15)})"  # noqa: S608 - constants
CONTACT = "INSERT OR REPLACE INTO contact (run, place, at, checksum) VALUES (?, ?, ?, ?)"
CONTACTS = "SELECT run, place, at, checksum FROM contact"

_ALL = f"SELECT id, {COLUMNS} FROM kept NOT INDEXED ORDER BY id"  # noqa: S608
_INDEX = "SELECT id, scope, type_url, name FROM kept INDEXED BY kept_by_name"
_SCHEMA = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"

# SQLite quotes a damaged schema in its error, and Python can't make a text of that.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)

_NONE = "[]"  # an empty list in JSON, as most are
_NAMED = 10  # dropped entries that are named in a warning

Subject = tuple[str, TypeUrl, str]  # scope, type, name
Contacts = dict[tuple[int, str], float]


class What(Enum):
    """What a row says of its name."""

    VARIANT = "variant"
    ABSENT = "absent"  # there is none for those whom the constraints match; of the variant there are only these
    LIST = "list"  # everything that was there under this wildcard or glob is in the rows of the same scope


_WHAT = {what.value: what for what in What}


@dataclass(frozen=True, slots=True)
class Kept:
    """A variant as it was received: with a locator's constraints, or under a plain name (DESIGN 6.1)."""

    variant: Variant
    located: bool
    written_at: float  # wall time, the caller's: how stale it is
    what: What = What.VARIANT
    run: int = 0  # in which run it was kept up to date to the end; then the last contact of that run counts


def row_of(scope: str, kept: Kept) -> tuple[Any, ...]:
    """The values of COLUMNS."""
    variant = kept.variant
    values = (
        scope,
        variant.type_url,
        variant.name,
        constraint_to_proto(variant.constraint).SerializeToString(deterministic=True),  # PRX-3: as received
        int(kept.located),
        variant.version,
        str(variant.digest),  # 64 bits without a sign, which SQLite's integers can't hold
        variant.body,
        variant.extras,
        json.dumps(variant.aliases),
        json.dumps(variant.references),
        float(kept.written_at),
        kept.what.value,
        kept.run,
    )
    return (*values, _checksum(values))


def kept_of(row: tuple[Any, ...], known: dict[bytes, Constraint] | None = None) -> Kept | None:
    """What `id, COLUMNS` say; None where they are not as they were written.

    `known`: constraints that were read before, as many rows have the same.
    """
    values = row[1:-1]
    if _checksum(values) != row[-1]:
        return None
    _, url, name, constraints, located, version, digest, body, extras, aliases, refers, written_at, what, run = values
    constraint = known.get(constraints) if known is not None else None
    if constraint is None:
        try:
            constraint = constraint_from_proto(pb.DynamicParameterConstraints.FromString(constraints))
        except (DecodeError, UsageError):
            return None
        if known is not None:
            known[constraints] = constraint
    others = tuple(json.loads(aliases)) if aliases != _NONE else ()
    variant = Variant(intern(url), name, constraint, body, version, int(digest), others, extras)
    if refers != _NONE:
        variant.references = tuple((kind, referred) for kind, referred in json.loads(refers))
    return Kept(variant, bool(located), written_at, _WHAT[what], run)


def contact_of(run: int, place: str, at: float) -> tuple[Any, ...]:
    values = (run, place, float(at))
    return (*values, _checksum(values))


def contacts_in(rows: Iterable[tuple[Any, ...]]) -> Contacts:
    """One that is not as it was written is left out: then what it is about is older than it would be."""
    return {(values[0], values[1]): values[2] for *values, checksum in rows if _checksum((*values,)) == checksum}


def text_of(raw: bytes) -> str:
    """For `text_factory`: a text that is no UTF-8 any more fails its checksum, and not the whole query."""
    return raw.decode(errors="surrogateescape")


def _checksum(values: tuple[Any, ...]) -> int:
    """Of values with their kinds and lengths: damage may make an integer of a text, or move the end of one.

    marshal writes these, and in its version 2 the same values as the same bytes, whatever else refers to them.
    """
    return crc32(marshal.dumps(values, 2))


@dataclass(slots=True)
class Sieve:
    """Separates the rows that are as they were written from those that are not."""

    good: dict[int, tuple[str, Kept]] = field(default_factory=dict)  # by id
    dropped: dict[tuple[int, Subject], None] = field(default_factory=dict)  # where table and index differ, both
    lists: dict[int, Subject] = field(default_factory=dict)  # good ones, of which members were dropped
    _constraints: dict[bytes, Constraint] = field(default_factory=dict)  # by how they are written

    @property
    def subjects(self) -> list[Subject]:
        return [subject for _, subject in self.dropped]

    def read(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            kept = kept_of(row, self._constraints)
            if kept is None:
                self.dropped[row[0], (str(row[1]), str(row[2]), str(row[3]))] = None  # it may have become anything
            else:
                self.good[row[0]] = row[1], kept

    def vouch(self, index: Mapping[int, Subject]) -> None:
        """Drop what the table has and the index by name has not, and name what it is the other way round."""
        for number, (scope, kept) in [*self.good.items()]:
            subject = scope, kept.variant.type_url, kept.variant.name
            if index.get(number) != subject:
                del self.good[number]
                self.dropped[number, subject] = None
        self.dropped |= {(number, subject): None for number, subject in index.items() if number not in self.good}

    def withhold_lists(self, *, every: bool) -> None:
        """A list that lacks a member would look as if that had been deleted: from now on nobody has all of it."""
        hit = {(scope, type_url) for scope, type_url, _ in self.subjects}
        for number, (scope, kept) in [*self.good.items()]:
            type_url = kept.variant.type_url
            if kept.what is What.LIST and (every or (scope, type_url) in hit):
                del self.good[number]
                self.lists[number] = scope, type_url, kept.variant.name

    def report(self) -> str:
        """What was dropped, by type and name."""
        subjects = [*dict.fromkeys((type_url, name) for _, type_url, name in self.subjects)]
        named = [f"{_shown(type_url.rpartition('/')[2])} {_shown(name)!r}" for type_url, name in subjects[:_NAMED]]
        more = [f"{len(subjects) - _NAMED} more"] if len(subjects) > _NAMED else []
        whole = [f"that {len(self.lists)} wildcards have all of theirs"] if self.lists else []
        return ", ".join([*named, *more, *whole])


def _shown(text: str) -> str:
    return bounded(text, NAME_BYTES)


@dataclass(slots=True)
class Rescued:
    """What is good in a file that can't be used any more."""

    rows: list[tuple[Any, ...]]
    contacts: list[tuple[Any, ...]]
    report: str  # what else there was, as far as that can be told


def rescue(db: sqlite3.Connection) -> Rescued:
    """Read what can be read of a damaged file of ours: row by row, up to where SQLite gives up."""
    if [sql for (sql,) in db.execute(_SCHEMA)] != [*TABLES]:
        return Rescued([], [], "")
    sieve, ends = Sieve(), list[Exception]()
    sieve.read(_readable(db, _ALL, ends))
    sieve.vouch({row[0]: (str(row[1]), str(row[2]), str(row[3])) for row in _readable(db, _INDEX, ends)})
    sieve.withhold_lists(every=bool(ends))
    known = contacts_in(_readable(db, CONTACTS, ends))
    rows = [row_of(scope, kept) for scope, kept in sieve.good.values()]
    report = "; ".join(part for part in (sieve.report(), "what can't be read" if ends else "") if part)
    return Rescued(rows, [contact_of(*key, at) for key, at in known.items()], report)


def _readable(db: sqlite3.Connection, query: str, ends: list[Exception]) -> Iterator[tuple[Any, ...]]:
    """The rows up to the first that can't be read; `ends` gets the reason."""
    try:
        yield from db.execute(query)
    except UNREADABLE as error:
        ends.append(error)


def check(db: sqlite3.Connection) -> str:
    """What is wrong with the structure of the file, empty if it is sound. It reads all of it."""
    if [sql for (sql,) in db.execute(_SCHEMA)] != [*TABLES]:
        return "its tables are not as they were made"
    found = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return "" if found == "ok" else found.rpartition("\n")[2]  # after a heading
