"""The last good state on disk, so that a client or a relay can start while every server is down (PRX-25).

One SQLite file. It is a cache: whatever is wrong with it, the client goes on without, and what can't be read is moved
aside, not deleted. Changes are collected in memory, the latest of each name wins, and `flush` writes them as one
transaction in a thread. After a kill at any moment the file holds the last transaction that was complete.

The file is locked for as long as it is open (locking_mode=EXCLUSIVE): two clients that write their views of the world
into one file would leave a state that no server ever sent. SQLite's own log (WAL) needs no shared memory that way.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import DecodeError

from ..core.constraint_codec import constraint_from_proto, constraint_to_proto
from ..core.types import TypeUrl, Variant
from ..errors import UsageError

APPLICATION = 0x58445350  # "XDSP", in the header of the file: PRAGMA application_id
SCHEMA = 3  # PRAGMA user_version; another one is not converted, the servers have it all

_PAGE = 500  # rows read at a time
_WAIT = 1.0  # seconds for a predecessor to let go of the file

_TABLES = (
    """CREATE TABLE kept (
        id INTEGER PRIMARY KEY,
        scope TEXT NOT NULL, type_url TEXT NOT NULL, name TEXT NOT NULL,
        constraints BLOB NOT NULL, located INTEGER NOT NULL,
        version TEXT NOT NULL, digest TEXT NOT NULL, body BLOB NOT NULL, extras BLOB NOT NULL,
        aliases TEXT NOT NULL, refers TEXT NOT NULL, written_at REAL NOT NULL,
        what TEXT NOT NULL, run INTEGER NOT NULL
    )""",
    "CREATE INDEX kept_by_name ON kept (scope, type_url, name)",
    "CREATE INDEX kept_by_run ON kept (run)",
    "CREATE TABLE contact (run INTEGER NOT NULL, place TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (run, place))",
)
_COLUMNS = (
    "scope, type_url, name, constraints, located, version, digest, body, extras, aliases, refers, written_at, what, run"
)
_INSERT = f"INSERT INTO kept ({_COLUMNS}) VALUES ({', '.join('?' * 14)})"  # noqa: S608 - constants
_DELETE = "DELETE FROM kept WHERE scope = ? AND type_url = ? AND name = ?"
_FIND = f"SELECT id, {_COLUMNS} FROM kept WHERE scope = ? AND type_url = ? AND name = ? ORDER BY id"  # noqa: S608
_NEXT = f"SELECT id, {_COLUMNS} FROM kept WHERE id > ? ORDER BY id LIMIT {_PAGE}"  # noqa: S608
_CONTACT = "INSERT OR REPLACE INTO contact (run, place, at) VALUES (?, ?, ?)"
_CONTACTS = "SELECT run, place, at FROM contact"
_NO_CONTACT = "DELETE FROM contact WHERE run NOT IN (SELECT run FROM kept)"

_Key = tuple[str, TypeUrl, str]  # scope, type, name


class What(Enum):
    """What a row says of its name."""

    VARIANT = "variant"
    ABSENT = "absent"  # there is none for those whom the constraints match; of the variant there are only these
    LIST = "list"  # everything that was there under this wildcard or glob is in the rows of the same scope


@dataclass(frozen=True, slots=True)
class Kept:
    """A variant as it was received: with a locator's constraints, or under a plain name (DESIGN 6.1)."""

    variant: Variant
    located: bool
    written_at: float  # wall time, the caller's: how stale it is
    what: What = What.VARIANT
    run: int = 0  # in which run it was kept up to date to the end; then the last contact of that run counts


class _Unusable(Exception):
    """The file can be read, but it is not ours, or not of this schema."""


def may_keep(variant: Variant) -> bool:
    """PRX-17: do_not_cache says that a resource is for those who asked, and for nobody later."""
    if not variant.extras:
        return True
    try:
        resource = pb.Resource.FromString(variant.extras)
    except DecodeError:  # what it says about caching can't be known
        return False
    return not resource.cache_control.do_not_cache


class Disk:
    """One cache file. UsageError where it can't be used at all: another process has it, or it can't be written.

    `scope` is the caller's word for whose state it is; entries of different scopes never meet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._warnings: list[str] = []
        self._pending: dict[_Key, tuple[Kept, ...]] = {}
        self._contacts: dict[tuple[int, str], float] = {}
        self._gate = Lock()  # for _pending and _warnings; held for moments, so that the loop may wait for it
        self._use = Lock()  # for the connection; held for a transaction, so only threads wait for it
        self._db = self._open()

    @cached_property
    def run(self) -> int:
        """Which one of those who had the file this is."""
        return 1 + max((run for run, _ in self.contacts()), default=0)

    # -- reading

    def contacts(self) -> dict[tuple[int, str], float]:
        """When somebody who could have told of changes was there last: by run and place, the caller's word for whom."""
        with self._use, self._recovering():
            return {(run, place): at for run, place, at in self._db.execute(_CONTACTS)}
        return {}

    def load(self) -> Iterator[tuple[str, Kept]]:
        """Everything on disk, with its scope, in the order written. For the start: it reads in the caller's thread."""
        last, skipped = 0, 0
        while rows := self._page(last):
            last = rows[-1][0]
            for row in rows:
                kept = _kept(row)
                if kept is None:
                    skipped += 1
                else:
                    yield row[1], kept
        if skipped:
            self._warn(f"{self._path}: {skipped} entries have constraints that can't be read: left out")

    async def find(self, scope: str, type_url: TypeUrl, name: str) -> list[Kept]:
        """What is kept of one name, changes that are not written yet included."""
        return await asyncio.to_thread(self._find, (scope, type_url, name))

    def _page(self, after: int) -> list[Any]:
        with self._use, self._recovering():
            return self._db.execute(_NEXT, (after,)).fetchall()
        return []

    def _find(self, key: _Key) -> list[Kept]:
        with self._use:
            with self._gate:
                if key in self._pending:
                    return list(self._pending[key])
            with self._recovering():
                return [kept for row in self._db.execute(_FIND, key) if (kept := _kept(row)) is not None]
        return []

    # -- writing

    def put(self, scope: str, type_url: TypeUrl, name: str, kept: Iterable[Kept]) -> None:
        """The complete new variants of a name, in the order received; none: it is gone.

        What must not be cached is left out here too (PRX-17), and takes the place of what was kept before all the same.
        """
        variants = tuple(entry for entry in kept if may_keep(entry.variant))
        if any((entry.variant.type_url, entry.variant.name) != (type_url, name) for entry in variants):
            raise UsageError(f"kept under {name!r} are the variants of {name!r}, and no others")
        with self._gate:
            self._pending[scope, type_url, name] = variants

    def remove(self, scope: str, type_url: TypeUrl, name: str) -> None:
        self.put(scope, type_url, name, ())

    def contact(self, place: str, at: float) -> None:
        """Everything that this run has written for a place was still so at this time."""
        key = self.run, place
        with self._gate:
            self._contacts[key] = at

    @property
    def is_dirty(self) -> bool:
        return bool(self._pending or self._contacts)

    async def flush(self) -> None:
        """Write all changes as one transaction. What can't be written now stays for the next time, with a warning."""
        await asyncio.to_thread(self._flush)

    def warnings(self) -> list[str]:
        """What went wrong since the last call and was got over: for the caller to log. Look after each use."""
        with self._gate:
            taken, self._warnings = self._warnings, []
        return taken

    async def close(self) -> None:
        """Write what is left and let go of the file."""
        await asyncio.to_thread(self._close)

    def _flush(self) -> None:
        with self._use:
            with self._gate:
                batch, self._pending = self._pending, {}
                contacts, self._contacts = self._contacts, {}
            if (batch or contacts) and not self._written(batch, contacts):
                with self._gate:
                    self._pending = batch | self._pending
                    self._contacts = contacts | self._contacts

    def _written(self, batch: Mapping[_Key, tuple[Kept, ...]], contacts: Mapping[tuple[int, str], float]) -> bool:
        for _ in range(2):
            before = self._db
            with self._recovering(), _transaction(self._db):
                self._db.executemany(_DELETE, batch)
                self._db.executemany(_INSERT, (_row(key[0], entry) for key, kept in batch.items() for entry in kept))
                self._db.executemany(_CONTACT, ((*key, at) for key, at in contacts.items()))
                return True
            if self._db is before:
                break  # not a matter of the file: a second attempt, with a new one, would fare no better
        return False

    def _close(self) -> None:
        self._flush()
        with self._use:
            self._db.close()

    # -- the file

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except (sqlite3.DatabaseError, _Unusable) as error:
            if not _is_broken(error):
                raise self._refusal(error) from error
            return self._begin_anew(str(error))

    def _begin_anew(self, reason: str) -> sqlite3.Connection:
        try:
            self._set_aside(reason)
            return self._connect()
        except (OSError, sqlite3.DatabaseError, _Unusable) as error:
            raise self._refusal(error) from error

    def _connect(self) -> sqlite3.Connection:
        self._create()
        db = sqlite3.connect(self._path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _create(self) -> None:
        """For its owner only: it may hold secrets. SQLite gives its log the same mode.

        A file that exists is not even opened: closing it would undo the locks that this process has on it (POSIX).
        """
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> UsageError:
        if _code(error) == sqlite3.SQLITE_BUSY:
            return UsageError(f"cache {self._path} is in use by another process: give each its own file")
        return UsageError(f"cache {self._path} can't be used ({error}): give a file in a folder that can be written")

    def _set_aside(self, reason: str) -> None:
        """SQLite's companions go with it: a log that stays behind would be applied to the new file."""
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.aside-{number}")).exists():
            number += 1
        for suffix in ("-wal", "-shm", "-journal", ""):
            source = self._path.with_name(self._path.name + suffix)
            if source.exists():
                source.rename(aside.with_name(aside.name + suffix))
        self._warn(f"cache {self._path} can't be read ({reason}): moved to {aside}, began with an empty one")

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """Suppresses what SQLite raises: a broken file is set aside and begun anew, all else is a warning."""
        try:
            yield
        except sqlite3.Error as error:
            if not _is_broken(error):
                self._warn(f"cache {self._path}: {error}")
                return
            self._db.close()
            try:
                self._db = self._begin_anew(str(error))
            except UsageError as refusal:
                self._warn(str(refusal))

    def _warn(self, text: str) -> None:
        with self._gate:
            if text not in self._warnings:
                self._warnings.append(text)


def _prepare(db: sqlite3.Connection) -> None:
    """Take the lock, see whose file it is, and only then change anything about it."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    with _transaction(db):
        application, schema = _pragma(db, "application_id"), _pragma(db, "user_version")
        if (application, schema) != (APPLICATION, SCHEMA):
            if application == APPLICATION:
                raise _Unusable(f"it has schema {schema}, and this is {SCHEMA}")
            if application or db.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise _Unusable("it is the database of another program")
            for statement in _TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {SCHEMA}")
        db.execute(_NO_CONTACT)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last transactions, never the file


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN EXCLUSIVE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            with suppress(sqlite3.Error):  # of a file that can't be written any more; what it said first is raised
                db.execute("ROLLBACK")


def _is_broken(error: Exception) -> bool:
    return isinstance(error, _Unusable) or _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: Exception) -> int:
    """The primary code: the upper bits say more than is asked here."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _row(scope: str, kept: Kept) -> tuple[Any, ...]:
    variant = kept.variant
    return (
        scope,
        variant.type_url,
        variant.name,
        constraint_to_proto(variant.constraint).SerializeToString(deterministic=True),  # PRX-3: as received
        kept.located,
        variant.version,
        str(variant.digest),  # 64 bits without a sign, which SQLite's integers can't hold
        variant.body,
        variant.extras,
        json.dumps(variant.aliases),
        json.dumps(variant.references),
        kept.written_at,
        kept.what.value,
        kept.run,
    )


def _kept(row: Any) -> Kept | None:
    _, _, type_url, name, constraints, located, version, digest, body, extras, aliases, refers, written_at, *rest = row
    try:
        constraint = constraint_from_proto(pb.DynamicParameterConstraints.FromString(constraints))
    except (DecodeError, UsageError):
        return None
    known = tuple(json.loads(aliases))
    variant = Variant(type_url, name, constraint, body, version, int(digest), known, extras)
    variant.references = tuple((kind, referred) for kind, referred in json.loads(refers))
    return Kept(variant, bool(located), written_at, What(rest[0]), rest[1])
