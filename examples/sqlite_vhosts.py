"""Virtual hosts out of a SQLite table, made when an Envoy needs one; however many rows there are.

python examples/sqlite_vhosts.py 127.0.0.1:18000 hosts.db
xdsprism get vhds main/shop.example.com --server 127.0.0.1:18000 --param env=canary
sqlite3 hosts.db "UPDATE hosts SET text = 'Sold out.' WHERE host = 'shop.example.com'"
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from typing import Any

from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

import xdsprism as xp

SCHEMA = """
CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, text TEXT NOT NULL, canary TEXT);
CREATE TABLE IF NOT EXISTS changes (id INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON hosts BEGIN INSERT INTO changes (host) VALUES (new.host); END;
CREATE TRIGGER IF NOT EXISTS edited AFTER UPDATE ON hosts BEGIN INSERT INTO changes (host) VALUES (new.host); END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON hosts BEGIN INSERT INTO changes (host) VALUES (old.host); END;
INSERT OR IGNORE INTO hosts VALUES ('shop.example.com', 'Welcome to the shop.', 'Welcome to the new shop.');
INSERT OR IGNORE INTO hosts VALUES ('blog.example.com', 'Welcome to the blog.', NULL);
"""


class Database:
    """SQLite waits for the disk, so every query has a thread of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(SCHEMA)

    async def rows(self, query: str, *values: object) -> list[Any]:
        return await asyncio.to_thread(self._rows, query, values)

    def _rows(self, query: str, values: tuple[object, ...]) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(query, values).fetchall()


async def follow(database: Database, store: xp.Store) -> None:
    """Whatever program changes a row: who has the host gets the new one, and who was told that there is none too."""
    ((last,),) = await database.rows("SELECT coalesce(max(id), 0) FROM changes")
    while True:
        for number, host in await database.rows("SELECT id, host FROM changes WHERE id > ? ORDER BY id", last):
            store.invalidate(xp.VIRTUAL_HOST, f"main/{host}")
            last = number
        await asyncio.sleep(0.2)


async def main(listen: str, path: str) -> None:
    store = xp.Store()
    database = Database(path)
    routes = RouteConfiguration(name="main", vhds={"config_source": {"ads": {}, "resource_api_version": "V3"}})
    with store.transaction() as tx:
        tx.put(routes)

    @store.provider(xp.VIRTUAL_HOST, keys=["env"])
    async def virtual_host(name: str, params: xp.Params) -> VirtualHost | None:
        config, _, host = name.rpartition("/")
        rows = await database.rows("SELECT text, canary FROM hosts WHERE host = ?", host)
        if config != "main" or not rows:
            return None
        ((text, canary),) = rows
        if canary is not None and params["env"] == "canary":  # a host without a canary is one variant for everybody
            text = canary
        print("made", name, flush=True)
        made = VirtualHost(name=name, domains=[host])
        made.routes.add(match={"prefix": "/"}, direct_response={"status": 200, "body": {"inline_string": text}})
        return made

    async with xp.Server(store, listen=listen) as server:
        print("serving on", server.address, flush=True)
        await follow(database, store)


if __name__ == "__main__":
    listen, path = [*sys.argv[1:], *("127.0.0.1:18000", "hosts.db")[len(sys.argv) - 1 :]]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(listen, path))
