"""Reads and writes the SQLite file that caches the last good state of a client or a relay (PRX-25).

The file is only a cache: if anything is wrong with it, the client goes on without it. A row that is damaged is dropped
with a warning. A file whose structure is damaged is replaced (disk_file.py).

Changes are collected in memory, where the latest of each name wins. `flush` writes them as one transaction, in a
thread. If the process is killed at any moment, the file holds the last complete transaction.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import DecodeError

from ..core.model.types import TypeUrl, Variant
from ..errors import UsageError
from .disk_file import CacheFile, primary_code, transaction
from .disk_rows import (
    COLUMNS,
    CONTACT,
    CONTACTS,
    INSERT,
    UNREADABLE,
    CachedEntry,
    Contacts,
    RowFilter,
    RowKey,
    RowKind,
    contact_of,
    contacts_in,
    entry_of,
    row_of,
    text_of,
)

__all__ = ["CachedEntry", "Disk", "RowKind", "may_keep"]

_PAGE = 500  # rows read at a time

_DELETE = "DELETE FROM kept WHERE scope = ? AND type_url = ? AND name = ?"
_DROP = "DELETE FROM kept WHERE id = ?"
_FIND = f"SELECT id, {COLUMNS} FROM kept WHERE scope = ? AND type_url = ? AND name = ? ORDER BY id"  # noqa: S608
_NEXT = f"SELECT id, {COLUMNS} FROM kept WHERE id > ? ORDER BY id LIMIT {_PAGE}"  # noqa: S608


def may_keep(variant: Variant) -> bool:
    """PRX-17: whether a resource may be cached; with do_not_cache it is only for those who are subscribed now."""
    if not variant.extras:
        return True
    try:
        resource = pb.Resource.FromString(variant.extras)
    except DecodeError:  # its cache_control can't be read
        return False
    return not resource.cache_control.do_not_cache


class Disk:
    """One cache file. Raises UsageError if another process has the file open, or it can't be written.

    `scope` is a text by which the caller separates entries; entries of different scopes are independent. A run is the
    time from opening to closing the file; runs are numbered.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._warnings: list[str] = []
        self._pending: dict[RowKey, tuple[CachedEntry, ...]] = {}
        self._contacts: Contacts = {}
        self._latest = 0  # the highest run of any entry that was loaded
        self._gate = Lock()  # guards the pending changes and warnings; held so briefly that the event loop may wait
        self._use = Lock()  # guards the connection; held for a whole transaction, so only threads wait for it
        self._file = CacheFile(self._path, self._warn)
        self._db = self._file.open()

    @cached_property
    def run(self) -> int:
        """The number of this run."""
        return 1 + max((run for run, _ in self.contacts()), default=self._latest)

    # -- reading

    def contacts(self) -> Contacts:
        """Return the times of the last contacts, by run and place. A place is the caller's text for a server."""
        with self._use, self._recovering():
            return contacts_in(self._db.execute(CONTACTS))
        return {}

    def load(self) -> list[tuple[str, CachedEntry]]:
        """Return all entries with their scopes, in the order written. For the start: it reads in the caller's thread.

        Damaged rows are deleted from the file, with a warning that names them.
        """
        found, last = RowFilter(), 0
        while rows := self._page(last):
            last = rows[-1][0]
            found.read(rows)
        if found.dropped:
            found.drop_incomplete_lists(every=False)
            self._drop([*(number for number, _ in found.dropped), *found.lists])
            count, report = len(found.dropped), found.report()
            self._warn(f"cache {self._path}: dropped {count} damaged entries, which servers will send again: {report}")
        entries = [*found.good.values()]
        self._latest = max((entry.run for _, entry in entries), default=0)
        return entries

    def _drop(self, numbers: Iterable[int]) -> None:
        with self._use, self._recovering(), transaction(self._db):
            self._db.executemany(_DROP, ((number,) for number in numbers))

    async def find(self, scope: str, type_url: TypeUrl, name: str) -> list[CachedEntry]:
        """Return the entries of one name, including changes that are not written yet."""
        return await asyncio.to_thread(self._find, (scope, type_url, name))

    def _page(self, after: int) -> list[Any]:
        """Read the next rows; an empty list after the last one."""
        with self._use, self._recovering():
            try:
                self._db.text_factory = str  # faster than `text_of`
                return self._db.execute(_NEXT, (after,)).fetchall()
            except sqlite3.OperationalError as error:
                if primary_code(error):
                    raise
            finally:
                self._db.text_factory = text_of
            return self._db.execute(_NEXT, (after,)).fetchall()  # again, as a damaged text in it is not UTF-8
        return []

    def _find(self, key: RowKey) -> list[CachedEntry]:
        with self._use:
            with self._gate:
                if key in self._pending:
                    return list(self._pending[key])
            with self._recovering():
                return [entry for row in self._db.execute(_FIND, key) if (entry := entry_of(row)) is not None]
        return []

    # -- writing

    def put(self, scope: str, type_url: TypeUrl, name: str, entries: Iterable[CachedEntry]) -> None:
        """Replace all entries of a name, in the order received; with none, remove the name.

        An entry that must not be cached is left out (PRX-17), but it still replaces the entries before it.
        """
        variants = tuple(entry for entry in entries if may_keep(entry.variant))
        if any((entry.variant.type_url, entry.variant.name) != (type_url, name) for entry in variants):
            raise UsageError(f"entries under {name!r} must be variants of {name!r}")
        with self._gate:
            self._pending[scope, type_url, name] = variants

    def remove(self, scope: str, type_url: TypeUrl, name: str) -> None:
        self.put(scope, type_url, name, ())

    def contact(self, place: str, at: float) -> None:
        """Note that the entries that this run wrote for a place were still current at this time."""
        key = self.run, place
        with self._gate:
            self._contacts[key] = at

    @property
    def is_dirty(self) -> bool:
        return bool(self._pending or self._contacts)

    async def flush(self) -> None:
        """Write all changes as one transaction. If that fails, keep them for the next flush, with a warning."""
        await asyncio.to_thread(self._flush)

    def warnings(self) -> list[str]:
        """Return the warnings since the last call, for the caller to log. Call this after each other method."""
        with self._gate:
            taken, self._warnings = self._warnings, []
        return taken

    async def close(self) -> None:
        """Write the remaining changes and close the file."""
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

    def _written(self, batch: Mapping[RowKey, tuple[CachedEntry, ...]], contacts: Contacts) -> bool:
        """Write a batch of changes; return whether that succeeded."""
        for _ in range(2):
            before = self._db
            with self._recovering(), transaction(self._db):
                self._db.executemany(_DELETE, batch)
                rows = (row_of(key[0], entry) for key, entries in batch.items() for entry in entries)
                self._db.executemany(INSERT, rows)
                self._db.executemany(CONTACT, (contact_of(*key, at) for key, at in contacts.items()))
                return True
            if self._db is before:
                break  # `_recovering` made no new file, so a second attempt would fail, too
        return False

    def _close(self) -> None:
        self._flush()
        with self._use:
            self._db.close()

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """Suppress SQLite's errors: replace a damaged file, and turn any other error into a warning."""
        try:
            yield
        except UNREADABLE as error:
            if primary_code(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                self._warn(f"cache {self._path}: {error}")
                return
            self._db.close()
            try:
                self._db = self._file.replace(str(error))
            except UsageError as refusal:
                self._warn(str(refusal))

    def _warn(self, text: str) -> None:
        with self._gate:
            if text not in self._warnings:
                self._warnings.append(text)
