"""The last good state on disk, so that a client or a relay can start while every server is down (PRX-25).

One SQLite file. It is a cache: whatever is wrong with it, the client goes on without. A row that is not as it was
written is dropped with a warning. A file whose structure is damaged is moved aside, not deleted, and a new one begins
with what is sound in it. Changes are collected in memory, the latest of each name wins, and `flush` writes them as one
transaction in a thread. After a kill at any moment the file holds the last transaction that was complete.

The file is locked for as long as it is open (locking_mode=EXCLUSIVE): two clients that write their views of the world
into one file would leave a state that no server ever sent. SQLite's own log (WAL) needs no shared memory that way.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import DecodeError

from ..core.model.types import TypeUrl, Variant
from ..errors import UsageError
from .disk_rows import (
    COLUMNS,
    CONTACT,
    CONTACTS,
    INSERT,
    TABLES,
    UNREADABLE,
    Contacts,
    Kept,
    Rescued,
    Sieve,
    Subject,
    What,
    check,
    contact_of,
    contacts_in,
    kept_of,
    rescue,
    row_of,
    text_of,
)

__all__ = ["Disk", "Kept", "What", "may_keep"]

APPLICATION = 0x58445350  # "XDSP", in the header of the file: PRAGMA application_id
SCHEMA = 5  # PRAGMA user_version; another one is not converted, the servers have it all

_PAGE = 500  # rows read at a time
_WAIT = 1.0  # seconds for a predecessor to let go of the file

_DELETE = "DELETE FROM kept WHERE scope = ? AND type_url = ? AND name = ?"
_DROP = "DELETE FROM kept WHERE id = ?"
_FIND = f"SELECT id, {COLUMNS} FROM kept WHERE scope = ? AND type_url = ? AND name = ? ORDER BY id"  # noqa: S608
_NEXT = f"SELECT id, {COLUMNS} FROM kept WHERE id > ? ORDER BY id LIMIT {_PAGE}"  # noqa: S608
_NO_CONTACT = "DELETE FROM contact WHERE run NOT IN (SELECT run FROM kept)"

# What SQLite says when it is not a matter of what is in the file.
_ELSEWHERE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
    }
)


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
        self._pending: dict[Subject, tuple[Kept, ...]] = {}
        self._contacts: Contacts = {}
        self._latest = 0  # the latest run that left something, as far as it was loaded
        self._gate = Lock()  # for _pending and _warnings; held for moments, so that the loop may wait for it
        self._use = Lock()  # for the connection; held for a transaction, so only threads wait for it
        self._db = self._open()

    @cached_property
    def run(self) -> int:
        """Which one of those who had the file this is."""
        return 1 + max((run for run, _ in self.contacts()), default=self._latest)

    # -- reading

    def contacts(self) -> Contacts:
        """When somebody who could have told of changes was there last: by run and place, the caller's word for whom."""
        with self._use, self._recovering():
            return contacts_in(self._db.execute(CONTACTS))
        return {}

    def load(self) -> list[tuple[str, Kept]]:
        """Everything on disk, with its scope, in the order written. For the start: it reads in the caller's thread.

        What is not as it was written is dropped from the file too, with a warning that names it.
        """
        sieve, last = Sieve(), 0
        while rows := self._page(last):
            last = rows[-1][0]
            sieve.read(rows)
        if sieve.dropped:
            sieve.withhold_lists(every=False)
            self._drop([*(number for number, _ in sieve.dropped), *sieve.lists])
            count, report = len(sieve.dropped), sieve.report()
            self._warn(f"cache {self._path}: {count} entries are damaged and dropped, to be asked for again: {report}")
        found = [*sieve.good.values()]
        self._latest = max((kept.run for _, kept in found), default=0)
        return found

    def _drop(self, numbers: Iterable[int]) -> None:
        with self._use, self._recovering(), _transaction(self._db):
            self._db.executemany(_DROP, ((number,) for number in numbers))

    async def find(self, scope: str, type_url: TypeUrl, name: str) -> list[Kept]:
        """What is kept of one name, changes that are not written yet included."""
        return await asyncio.to_thread(self._find, (scope, type_url, name))

    def _page(self, after: int) -> list[Any]:
        with self._use, self._recovering():
            try:
                self._db.text_factory = str  # which takes less time than ours
                return self._db.execute(_NEXT, (after,)).fetchall()
            except sqlite3.OperationalError as error:
                if _code(error):
                    raise
            finally:
                self._db.text_factory = text_of
            return self._db.execute(_NEXT, (after,)).fetchall()  # some text in it is not UTF-8 any more
        return []

    def _find(self, key: Subject) -> list[Kept]:
        with self._use:
            with self._gate:
                if key in self._pending:
                    return list(self._pending[key])
            with self._recovering():
                return [kept for row in self._db.execute(_FIND, key) if (kept := kept_of(row)) is not None]
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

    def _written(self, batch: Mapping[Subject, tuple[Kept, ...]], contacts: Contacts) -> bool:
        for _ in range(2):
            before = self._db
            with self._recovering(), _transaction(self._db):
                self._db.executemany(_DELETE, batch)
                self._db.executemany(INSERT, (row_of(key[0], entry) for key, kept in batch.items() for entry in kept))
                self._db.executemany(CONTACT, (contact_of(*key, at) for key, at in contacts.items()))
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
        if self._path.is_file() and not self._path.stat().st_size:
            self._warn(f"cache {self._path} has no bytes: began with an empty one")
        try:
            return self._connect()
        except (*UNREADABLE, _Unusable) as error:
            if self._is_usable_later(error):
                raise self._refusal(error) from error
            return self._begin_anew(str(error))

    def _begin_anew(self, reason: str) -> sqlite3.Connection:
        """Set the file aside, and take over what is good in it."""
        rescued = self._rescue()
        try:
            aside = self._set_aside()
            db = self._connect()
        except (OSError, *UNREADABLE, _Unusable) as error:
            raise self._refusal(error) from error
        began = "began with an empty one"
        if rescued.rows:
            with _transaction(db):
                db.executemany(INSERT, rescued.rows)
                db.executemany(CONTACT, rescued.contacts)
            dropped = f"; dropped, to be asked for again: {rescued.report}" if rescued.report else ""
            began = f"began with {len(rescued.rows)} entries of it that are sound{dropped}"
        self._warn(f"cache {self._path} can't be read ({reason}): moved to {aside}, {began}")
        return db

    def _rescue(self) -> Rescued:
        try:
            with closing(self._database()) as db:
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
                if _marks(db) == (APPLICATION, SCHEMA):
                    return rescue(db)
        except (*UNREADABLE, MemoryError):  # SQLite runs out of it where a length is damaged
            pass
        return Rescued([], [], "")

    def _connect(self) -> sqlite3.Connection:
        self._create()
        db = self._database()
        try:
            _prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _database(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        db.text_factory = text_of
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

    def _set_aside(self) -> Path:
        """SQLite's companions go with it: a log that stays behind would be applied to the new file."""
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.aside-{number}")).exists():
            number += 1
        for suffix in ("-wal", "-shm", "-journal", ""):
            source = self._path.with_name(self._path.name + suffix)
            if source.exists():
                source.rename(aside.with_name(aside.name + suffix))
        return aside

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """Suppresses what SQLite raises: a broken file is set aside and begun anew, all else is a warning."""
        try:
            yield
        except UNREADABLE as error:
            if _code(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                self._warn(f"cache {self._path}: {error}")
                return
            self._db.close()
            try:
                self._db = self._begin_anew(str(error))
            except UsageError as refusal:
                self._warn(str(refusal))

    def _is_usable_later(self, error: Exception) -> bool:
        """Whether the file may be sound, and can only not be opened here and now."""
        if _code(error) == sqlite3.SQLITE_READONLY:  # which SQLite also says of a header that is damaged
            return not os.access(self._path, os.W_OK)
        return _code(error) in _ELSEWHERE

    def _warn(self, text: str) -> None:
        with self._gate:
            if text not in self._warnings:
                self._warnings.append(text)


def _prepare(db: sqlite3.Connection) -> None:
    """Take the lock, see whose file it is, and only then change anything about it."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    with _transaction(db):
        application, schema = _marks(db)
        if (application, schema) == (APPLICATION, SCHEMA):
            if damage := check(db):
                raise _Unusable(damage)
            db.execute(_NO_CONTACT)
        elif application == APPLICATION:
            raise _Unusable(f"it has schema {schema}, and this is {SCHEMA}")
        elif application or db.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise _Unusable("it is the database of another program")
        else:
            for statement in TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last transactions, never the file


def _marks(db: sqlite3.Connection) -> tuple[int, int]:
    """Whose file it is, and of which schema."""
    return _pragma(db, "application_id"), _pragma(db, "user_version")


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


def _code(error: Exception) -> int:
    """The primary code: the upper bits say more than is asked here."""
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
