"""Opens the cache file of a client or a relay, and replaces a damaged one by its sound rows (disk.py).

A damaged file is moved aside, not deleted, and the sound rows go into a new one.

The file is locked while it is open (locking_mode=EXCLUSIVE). If two clients wrote to one file, it would hold a state
that no server ever sent. With the lock, SQLite's log (WAL) needs no shared memory either.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..errors import UsageError
from .disk_rows import CONTACT, INSERT, TABLES, UNREADABLE, SalvagedRows, salvage, structural_damage, text_of

APPLICATION = 0x58445350  # "XDSP", in the header of the file: PRAGMA application_id
SCHEMA = 5  # PRAGMA user_version; a file of another schema is not converted, as the servers have all of it

_WAIT = 1.0  # seconds to wait for another process to close the file
_NO_CONTACT = "DELETE FROM contact WHERE run NOT IN (SELECT run FROM kept)"

# SQLite's errors that do not mean that the contents of the file are damaged.
_NOT_DAMAGE = frozenset(
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
    """The file is of another program, of another schema, or damaged."""


class CacheFile:
    """One cache file, and how it is opened. `warn` is called with what was lost.

    Raises UsageError if another process has the file open, or it can't be written.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn

    def open(self) -> sqlite3.Connection:
        """Open the file. A damaged one, or one of another schema, is replaced."""
        if self._path.is_file() and not self._path.stat().st_size:
            self._warn(f"cache {self._path} is an empty file: began with an empty cache")
        try:
            return self._connect()
        except (*UNREADABLE, _Unusable) as error:
            if self._may_be_sound(error):
                raise self._refusal(error) from error
            return self.replace(str(error))

    def replace(self, reason: str) -> sqlite3.Connection:
        """Move the file aside, and copy its sound rows to a new file."""
        salvaged = self._salvage()
        try:
            aside = self._set_aside()
            db = self._connect()
        except (OSError, *UNREADABLE, _Unusable) as error:
            raise self._refusal(error) from error
        began = "began with an empty cache"
        if salvaged.rows:
            with transaction(db):
                db.executemany(INSERT, salvaged.rows)
                db.executemany(CONTACT, salvaged.contacts)
            dropped = f"; lost until servers send them again: {salvaged.report}" if salvaged.report else ""
            began = f"began with {len(salvaged.rows)} of its entries, which are sound{dropped}"
        self._warn(f"cache {self._path} can't be read ({reason}): moved to {aside}, {began}")
        return db

    def _salvage(self) -> SalvagedRows:
        try:
            with closing(self._database()) as db:
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
                if _program_and_schema(db) == (APPLICATION, SCHEMA):
                    return salvage(db)
        except (*UNREADABLE, MemoryError):  # a damaged length makes SQLite run out of memory
            pass
        return SalvagedRows([], [], "")

    def _connect(self) -> sqlite3.Connection:
        self._create()
        db = self._database()
        try:
            prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _database(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        db.text_factory = text_of
        return db

    def _create(self) -> None:
        """Create the file for its owner only, as it may hold secrets. SQLite gives its log the same mode.

        An existing file is not even opened: closing it would release the locks that this process has on it (POSIX).
        """
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> UsageError:
        """Return the UsageError for a file that can't be used."""
        if primary_code(error) == sqlite3.SQLITE_BUSY:
            return UsageError(f"cache {self._path} is in use by another process: give each its own file")
        return UsageError(f"cache {self._path} can't be used ({error}): give a file in a folder that can be written")

    def _set_aside(self) -> Path:
        """Rename the file and SQLite's log files: SQLite would apply a log that stayed behind to the new file."""
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.aside-{number}")).exists():
            number += 1
        for suffix in ("-wal", "-shm", "-journal", ""):
            source = self._path.with_name(self._path.name + suffix)
            if source.exists():
                source.rename(aside.with_name(aside.name + suffix))
        return aside

    def _may_be_sound(self, error: Exception) -> bool:
        """Whether the error only says that the file can't be opened now, not that it is damaged."""
        if primary_code(error) == sqlite3.SQLITE_READONLY:  # SQLite also reports a damaged header so
            return not os.access(self._path, os.W_OK)
        return primary_code(error) in _NOT_DAMAGE


def prepare(db: sqlite3.Connection) -> None:
    """Lock the file, check that it is a cache file of this schema, and only then change anything in it."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    with transaction(db):
        application, schema = _program_and_schema(db)
        if (application, schema) == (APPLICATION, SCHEMA):
            if damage := structural_damage(db):
                raise _Unusable(damage)
            db.execute(_NO_CONTACT)
        elif application == APPLICATION:
            raise _Unusable(f"it has schema {schema}, and this version of xdsprism uses {SCHEMA}")
        elif application or db.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise _Unusable("it is the database of another program")
        else:
            for statement in TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")  # a power cut may lose the last transactions, but never the whole file


def _program_and_schema(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the ids in the header of the file that say which program made it, with which schema."""
    return _pragma(db, "application_id"), _pragma(db, "user_version")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN EXCLUSIVE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            with suppress(sqlite3.Error):  # if the file can't be written, the first error is the one to raise
                db.execute("ROLLBACK")


def primary_code(error: Exception) -> int:
    """Return SQLite's primary error code: the lower 8 bits."""
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
