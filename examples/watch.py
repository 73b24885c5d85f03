"""Watch clusters from Python: two parameter sets of one name, on one stream.

    xdsprism serve examples/config
    python examples/watch.py 127.0.0.1:18000

Then change a `connect_timeout` in examples/config/clusters.yaml. The same works against any xDS server; with
a bootstrap file in place of the address it is set up as gRPC is.
"""

from __future__ import annotations

import asyncio
import sys

import xdsprism as xp


def bootstrap(address: str) -> dict[str, object]:
    server = {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    return {"xds_servers": [server], "node": {"id": "example"}}


async def follow(client: xp.Client, name: str, env: str) -> None:
    async for update in client.watch(xp.ROUTE, name, params={"env": env}):
        if update.resource is not None:
            routes = sum(len(host.routes) for host in update.resource.virtual_hosts)
            print(f"{env}: {update.name} has {routes} routes, for {update.constraint}", flush=True)
        else:  # none there, or none newer: `error` or `ambient_error` says why
            print(f"{env}: {update.error or update.ambient_error}", flush=True)


async def main(address: str) -> None:
    async with xp.Client(bootstrap(address)) as client:
        await asyncio.gather(follow(client, "main", "prod"), follow(client, "main", "canary"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:18000"))
