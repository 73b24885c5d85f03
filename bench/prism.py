"""xdsprism as a peer of the others: a program on the public API, with all that `xdsprism serve` has attached.

Prints `ready PORT`, then obeys `bump K V` on stdin: the next K resources get version V. With variants, it is the first
variant of the first resource. With --pulse it obeys `stall` too: it says for how many milliseconds the loop answered
nobody, at the longest since the last time, and how many of the processor a turn took. `gauges` asks how many streams,
subscriptions and connections there are, and `admin` where the admin port is. --policy is a policy file, as `serve` has
it. Ends with stdin.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from asyncio import TaskGroup
from inspect import signature

import uvloop
from envoy.config.endpoint.v3 import endpoint_pb2

import xdsprism as xp
from bench.pulse import Pulse
from xdsprism.admin.http import View
from xdsprism.app import Daemon
from xdsprism.config import ServeConfig
from xdsprism.observe.logs import configure
from xdsprism.server.hub import Hub


def assignment(name: str, version: int, size: int) -> endpoint_pb2.ClusterLoadAssignment:
    """The endpoints of a cluster, as the other peers make them, with the version in the first one's hostname."""
    message = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    locality = message.endpoints.add()
    for number in range(max(1, (size - 30) // 48)):
        host = locality.lb_endpoints.add()
        host.endpoint.hostname = f"upd-{version:010}" if number == 0 else "host-0000000000"
        address = host.endpoint.address.socket_address
        address.address = f"10.0.{number // 250}.{number % 250 + 1}"
        address.port_value = 8080
        host.load_balancing_weight.value = 1 + number % 7
    return message


class World:
    """What is served, and what changes next."""

    def __init__(self, store: xp.Store, resources: int, size: int, variants: int) -> None:
        self._store = store
        self._resources = resources
        self._size = size
        self._variants = variants
        self._next = 0
        with store.transaction() as tx:
            for number in range(bool(variants), resources):
                tx.put(assignment(f"r{number:06}", 0, size))
            for number in range(variants):
                tx.put(assignment("r000000", 1, size), when=f"class=c{number}")

    def subscriptions(self, hub: Hub) -> int:
        """How many there are, to names and to all of them."""
        names = (f"r{number:06}" for number in range(self._resources))
        by_name = sum(hub.interest.subscribers(xp.ENDPOINT, name) for name in names)
        return by_name + self._store.table(xp.ENDPOINT).sessions

    def bump(self, count: int, version: int) -> None:
        with self._store.transaction() as tx:
            if self._variants:
                tx.put(assignment("r000000", version, self._size), when="class=c0")
                return
            for _ in range(count):
                tx.put(assignment(f"r{self._next:06}", version, self._size))
                self._next = (self._next + 1) % self._resources


class Peer(Daemon):
    """`serve`, but its contents come from here."""

    def __init__(self, server: xp.Server, world: World, tls: xp.Tls | None, *, pulse: bool = False) -> None:
        more = {"policy": None} if "policy" in signature(Daemon.__init__).parameters else {}
        super().__init__(server, ServeConfig((), admin="127.0.0.1:0", tls=tls), **more)
        self._world = world
        self._pulse = Pulse() if pulse else None

    def _view(self) -> View:
        return View(self._server.hub, self._metrics, None, lambda: self._unready)

    def _reload(self) -> None:
        pass

    async def _prepare(self, group: TaskGroup) -> bool:
        beating = group.create_task(self._pulse.run()) if self._pulse is not None else None
        group.create_task(self._obey(beating))
        return True

    def _gauges(self) -> str:
        hub = self._server.hub
        found = re.search(rb"^xdsprism_connections (\S+)$", self._metrics.render(), re.MULTILINE)
        connections = int(float(found[1])) if found else -1
        return f"{len(hub.connected())} {self._world.subscriptions(hub)} {connections}"

    async def _finish(self) -> None:
        await self._server.stop(0)

    async def _obey(self, beating: asyncio.Task[None] | None) -> None:
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            if self._pulse is not None and line == b"stall\n":
                print(self._pulse.take(), flush=True)
                continue
            if line == b"gauges\n":
                print(self._gauges(), flush=True)
                continue
            if line == b"admin\n":
                print(self._operations.address, flush=True)
                continue
            _, count, version = line.split()
            self._world.bump(int(count), int(version))
            print("ok", flush=True)
        if beating is not None:
            beating.cancel()
        self._stop.set()


async def main(options: argparse.Namespace) -> None:
    store = xp.Store()
    world = World(store, options.resources, options.size, options.variants)
    tls = xp.Tls(options.tls_cert, options.tls_key) if options.tls_cert else None
    more = {}
    if options.policy:
        # Sources before this one, which may be measured too, have none.
        from xdsprism.sources.policy_file import load_policy  # noqa: PLC0415

        more["policy"] = load_policy(options.policy)
    server = xp.Server(store, "127.0.0.1:0", engine=options.engine, tls=tls, **more)
    async with TaskGroup() as group:
        peer = Peer(server, world, tls, pulse=options.pulse)
        await peer.run(group, lambda _: print("ready", server.address.rpartition(":")[2], flush=True))


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.prism")
    parser.add_argument("--engine", choices=["grpcio", "h2"], default="h2")
    parser.add_argument("--resources", type=int, default=1)
    parser.add_argument("--size", type=int, default=1024, help="bytes of each, about")
    parser.add_argument("--variants", type=int, default=0, help="of the first resource, by class=cN")
    parser.add_argument("--policy", help="a policy file")
    parser.add_argument("--pulse", action="store_true", help="note how long the loop answers nobody")
    parser.add_argument("--tls-cert", help="a certificate, for TLS")
    parser.add_argument("--tls-key", help="its key")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    configure("text", "info")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(options_of(sys.argv[1:])))
