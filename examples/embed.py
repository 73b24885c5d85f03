"""A control plane of your own: xdsprism as a library.

python examples/embed.py 127.0.0.1:18000
xdsprism watch cds checkout --server 127.0.0.1:18000 --param env=prod
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from envoy.config.cluster.v3 import cluster_pb2

import xdsprism as xp


def cluster(name: str, *, seconds: int) -> cluster_pb2.Cluster:
    message = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.STATIC)
    message.connect_timeout.seconds = seconds
    return message


async def main(listen: str) -> None:
    store = xp.Store()
    with store.transaction() as tx:  # all of it becomes current at once, or none of it does
        tx.put(cluster("checkout", seconds=1), when="env=prod")
        tx.put(cluster("checkout", seconds=5), when="env!=prod")
        tx.put(cluster("search", seconds=1))

    try:
        with store.transaction() as tx:
            tx.put(cluster("checkout", seconds=9), when="env=test")
    except xp.ConfigError as error:
        print("refused, and nothing changed:", error, flush=True)

    async with xp.Server(store, listen=listen) as server:
        print("serving on", server.address, flush=True)
        for seconds in range(2, 3600):  # every client in production sees its own variant change, and nobody else's
            await asyncio.sleep(1)
            with store.transaction() as tx:
                tx.put(cluster("checkout", seconds=seconds), when="env=prod")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:18000"))
