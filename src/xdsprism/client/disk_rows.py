"""Converts cache entries to rows of the cache file and back, and finds the rows that are damaged (PRX-25).

A disk may return other bytes than were written to it. So each row has a checksum. A row must also be in the index by
name: if only one of table and index has it, the other lost it, or it is an old copy of a row that was replaced.
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

# UnicodeDecodeError: SQLite quotes a damaged schema in its error, and Python can't decode that.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)

_EMPTY_LIST = "[]"  # in JSON, as most lists are
_MAX_NAMED = 10  # dropped entries that a warning names

RowKey = tuple[str, TypeUrl, str]  # scope, type, name
Contacts = dict[tuple[int, str], float]  # run and place: wall time of the last contact


class RowKind(Enum):
    """What a row says about its name."""

    VARIANT = "variant"
    ABSENT = "absent"  # the resource does not exist for params that match the constraints; the row has no contents
    LIST = "list"  # the rows of the same scope are the complete list of this wildcard or glob


_KINDS = {kind.value: kind for kind in RowKind}


@dataclass(frozen=True, slots=True)
class CachedEntry:
    """A variant as it was received: with a locator's constraints, or under a plain name (DESIGN 6.1)."""

    variant: Variant
    located: bool  # received with a locator
    written_at: float  # wall time, from which the caller computes how stale it is
    kind: RowKind = RowKind.VARIANT
    run: int = 0  # the run whose last contact counts as the entry's age; 0: `written_at` alone counts


def row_of(scope: str, entry: CachedEntry) -> tuple[Any, ...]:
    """Return the values of COLUMNS for an entry."""
    variant = entry.variant
    values = (
        scope,
        variant.type_url,
        variant.name,
        constraint_to_proto(variant.constraint).SerializeToString(deterministic=True),  # PRX-3: as received
        int(entry.located),
        variant.version,
        str(variant.digest),  # an unsigned 64-bit number, too large for SQLite's integers
        variant.body,
        variant.extras,
        json.dumps(variant.aliases),
        json.dumps(variant.references),
        float(entry.written_at),
        entry.kind.value,
        entry.run,
    )
    return (*values, _checksum(values))


def entry_of(row: tuple[Any, ...], known: dict[bytes, Constraint] | None = None) -> CachedEntry | None:
    """Return the entry of a row with `id, COLUMNS`, or None if the row is damaged.

    `known` caches decoded constraints, as many rows have the same.
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
    others = tuple(json.loads(aliases)) if aliases != _EMPTY_LIST else ()
    variant = Variant(intern(url), name, constraint, body, version, int(digest), others, extras)
    if refers != _EMPTY_LIST:
        variant.references = tuple((kind, referred) for kind, referred in json.loads(refers))
    return CachedEntry(variant, bool(located), written_at, _KINDS[what], run)


def contact_of(run: int, place: str, at: float) -> tuple[Any, ...]:
    values = (run, place, float(at))
    return (*values, _checksum(values))


def contacts_in(rows: Iterable[tuple[Any, ...]]) -> Contacts:
    """Return the contacts, without damaged ones: the entries of those only count as older than they are."""
    return {(values[0], values[1]): values[2] for *values, checksum in rows if _checksum((*values,)) == checksum}


def text_of(raw: bytes) -> str:
    """Decode a text for `text_factory`. A damaged text that is not UTF-8 fails its checksum, not the whole query."""
    return raw.decode(errors="surrogateescape")


def _checksum(values: tuple[Any, ...]) -> int:
    """Compute the checksum of values with their types and lengths: damage may change a type, or move a text's end.

    marshal writes types and lengths. Its version 2 always writes equal values as equal bytes; later versions write
    references to values that occur twice.
    """
    return crc32(marshal.dumps(values, 2))


@dataclass(slots=True)
class RowFilter:
    """Separates the sound rows of a file from the damaged ones."""

    good: dict[int, tuple[str, CachedEntry]] = field(default_factory=dict)  # row id: scope and entry
    dropped: dict[tuple[int, RowKey], None] = field(default_factory=dict)  # both keys, if table and index differ
    lists: dict[int, RowKey] = field(default_factory=dict)  # sound LIST rows that lost members
    _constraints: dict[bytes, Constraint] = field(default_factory=dict)  # decoded so far

    @property
    def dropped_keys(self) -> list[RowKey]:
        return [key for _, key in self.dropped]

    def read(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            entry = entry_of(row, self._constraints)
            if entry is None:
                # str: damage may have changed the types of the columns.
                self.dropped[row[0], (str(row[1]), str(row[2]), str(row[3]))] = None
            else:
                self.good[row[0]] = row[1], entry

    def compare_with_index(self, index: Mapping[int, RowKey]) -> None:
        """Drop rows that the index by name lacks, and note as dropped those that only the index has."""
        for number, (scope, entry) in [*self.good.items()]:
            key = scope, entry.variant.type_url, entry.variant.name
            if index.get(number) != key:
                del self.good[number]
                self.dropped[number, key] = None
        self.dropped |= {(number, key): None for number, key in index.items() if number not in self.good}

    def drop_incomplete_lists(self, *, every: bool) -> None:
        """Drop the LIST rows of scopes that lost a row, or all of them: the lost member would look deleted."""
        hit = {(scope, type_url) for scope, type_url, _ in self.dropped_keys}
        for number, (scope, entry) in [*self.good.items()]:
            type_url = entry.variant.type_url
            if entry.kind is RowKind.LIST and (every or (scope, type_url) in hit):
                del self.good[number]
                self.lists[number] = scope, type_url, entry.variant.name

    def report(self) -> str:
        """List what was dropped, by type and name."""
        keys = [*dict.fromkeys((type_url, name) for _, type_url, name in self.dropped_keys)]
        named = [f"{_shown(type_url.rpartition('/')[2])} {_shown(name)!r}" for type_url, name in keys[:_MAX_NAMED]]
        more = [f"{len(keys) - _MAX_NAMED} more"] if len(keys) > _MAX_NAMED else []
        whole = [f"the complete lists of {len(self.lists)} wildcards"] if self.lists else []
        return ", ".join([*named, *more, *whole])


def _shown(text: str) -> str:
    return bounded(text, NAME_BYTES)


@dataclass(slots=True)
class SalvagedRows:
    """The sound rows of a file that is damaged."""

    rows: list[tuple[Any, ...]]
    contacts: list[tuple[Any, ...]]
    report: str  # lists the rows that were lost, as far as their names can be read


def salvage(db: sqlite3.Connection) -> SalvagedRows:
    """Read the sound rows of a damaged cache file, one by one, up to the point where SQLite fails."""
    if [sql for (sql,) in db.execute(_SCHEMA)] != [*TABLES]:
        return SalvagedRows([], [], "")
    rows, ends = RowFilter(), list[Exception]()
    rows.read(_readable(db, _ALL, ends))
    rows.compare_with_index({row[0]: (str(row[1]), str(row[2]), str(row[3])) for row in _readable(db, _INDEX, ends)})
    rows.drop_incomplete_lists(every=bool(ends))
    known = contacts_in(_readable(db, CONTACTS, ends))
    good = [row_of(scope, entry) for scope, entry in rows.good.values()]
    report = "; ".join(part for part in (rows.report(), "rows that can't be read" if ends else "") if part)
    return SalvagedRows(good, [contact_of(*key, at) for key, at in known.items()], report)


def _readable(db: sqlite3.Connection, query: str, ends: list[Exception]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows up to the first that can't be read; append the reason to `ends`."""
    try:
        yield from db.execute(query)
    except UNREADABLE as error:
        ends.append(error)


def structural_damage(db: sqlite3.Connection) -> str:
    """Read the whole file, and say what is wrong with its structure; empty if it is sound."""
    if [sql for (sql,) in db.execute(_SCHEMA)] != [*TABLES]:
        return "its tables differ from the schema"
    found = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return "" if found == "ok" else found.rpartition("\n")[2]  # after a heading
