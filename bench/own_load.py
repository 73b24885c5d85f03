"""The load generator where Go is missing: the commands of go/load/main.go on grpc.aio, with a limit of its own."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from typing import Any

import uvloop
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import discovery_pb2 as pb

from xdsprism.client.bootstrap import Bootstrap
from xdsprism.client.fleet import Fleet, FleetPlan, Member
from xdsprism.errors import XdsError

MARK = re.compile(rb"upd-(\d{10})")
PATIENCE = 300  # seconds for the first resources of all


class Stream:
    """What is known of one, beside what it counts itself."""

    __slots__ = ("class_number", "removed", "seen", "stale")

    def __init__(self, class_number: int) -> None:
        self.class_number = class_number
        self.seen = -1
        self.removed = 0
        self.stale = 0  # messages with nothing new


class Clients:
    """Does what it is told, and answers with what came."""

    def __init__(self) -> None:
        self._plan: dict[str, Any] = {"classes": 0, "type": "", "sotw": False}
        self._fleet: Fleet | None = None
        self._streams: dict[Member, Stream] = {}
        self._goal, self._class = 0, -1
        self._left: set[Member] = set()
        self._reached = asyncio.Event()

    async def obey(self, line: str) -> dict[str, Any]:
        command, _, rest = line.partition(" ")
        match command, rest.split():
            case "connect", _:
                await self._connect(json.loads(rest))
            case "expect", [version, *of]:
                self._expect(int(version), int(of[0]) if of else -1)
            case "wait", [seconds]:
                async with asyncio.timeout(float(seconds)):
                    await self._reached.wait()
            case "subscribe", [name]:
                request = pb.DeltaDiscoveryRequest(type_url=self._plan["type"], resource_names_subscribe=[name])
                await asyncio.gather(*[member.send(request.SerializeToString()) for member in self._streams])
            case "report", []:
                pass
            case "close", []:
                await self.close()
            case _:
                raise ValueError(f"no such command: {line!r}")
        if self._fleet is not None:
            await self._fleet.stay(0)  # if a stream has ended, this is the time to say so
        return self._report()

    async def close(self) -> None:
        if self._fleet is not None:
            await self._fleet.close()
        self._fleet, self._streams = None, {}

    async def _connect(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        numbers = range(plan["connections"] * plan["streams"])
        classes = {number: number % plan["classes"] if plan["classes"] else -1 for number in numbers}
        chosen = {number: each for number, each in classes.items() if plan["only"] in (-1, each)}
        asked = FleetPlan(
            plan["type"],
            tuple(plan["names"]),
            delta=not plan["sotw"],
            connections=plan["connections"],
            at_once=plan["at_once"],
        )
        nodes = [_node(number, each) for number, each in chosen.items()]
        self._fleet = Fleet(_bootstrap(plan).servers[0], asked, nodes, self._heard)
        self._streams = {
            member: Stream(each) for member, each in zip(self._fleet.members, chosen.values(), strict=True)
        }
        await self._fleet.open(PATIENCE)
        async with asyncio.timeout(PATIENCE):  # a first answer may not be all of it
            while any(member.resources < plan["first"] for member in self._streams):
                await self._fleet.stay(0.01)

    def _expect(self, version: int, class_number: int) -> None:
        self._goal, self._class = version, class_number
        self._left = {member for member, stream in self._streams.items() if class_number in (-1, stream.class_number)}
        self._reached.clear()

    def _heard(self, member: Member, response: Any) -> None:
        stream = self._streams[member]
        if not self._plan["sotw"]:
            stream.removed += len(response.removed_resources)
        found = [_version(each, sotw=self._plan["sotw"]) for each in response.resources]
        newest = max([stream.seen, *found])
        stream.stale += bool(found) and newest == stream.seen > 0
        stream.seen = newest
        if newest >= self._goal and member in self._left:
            self._left.remove(member)
            if not self._left:
                self._reached.set()

    def _report(self) -> dict[str, Any]:
        members, streams = list(self._streams), list(self._streams.values())
        classes = range(max(1, self._plan["classes"]))
        sizes = Counter(max(0, stream.class_number) for stream in streams)
        messages: Counter[int] = Counter()
        for member, stream in self._streams.items():
            messages[max(0, stream.class_number)] += member.messages
        return {
            "streams": len(members),
            "messages": sum(member.messages for member in members),
            "resources": sum(member.resources for member in members),
            "removed": sum(stream.removed for stream in streams),
            "backwards": sum(stream.stale for stream in streams),
            "oldest": min((stream.seen for stream in streams), default=-1),
            "by_class": [messages[number] for number in classes],
            "sizes": [sizes[number] for number in classes],
        }


def _version(resource: Any, *, sotw: bool) -> int:
    found = MARK.search(resource.value if sotw else resource.resource.value)
    if found is None:
        raise ValueError("a resource without a version in it")
    return int(found[1])


def _node(number: int, class_number: int) -> Node:
    node = Node(id=f"n{number}", user_agent_name="bench")
    if class_number >= 0:
        node.metadata.update({"class": f"c{class_number}", "pod": f"p{number}"})
    return node


def _bootstrap(plan: dict[str, Any]) -> Bootstrap:
    if not plan["ca"]:
        return Bootstrap.for_server(plan["address"])
    port = plan["address"].rpartition(":")[2]
    creds = {"type": "tls", "config": {"ca_certificate_file": plan["ca"]}}
    server = {"server_uri": f"localhost:{port}", "channel_creds": [creds], "server_features": ["xds_v3"]}
    return Bootstrap.load({"xds_servers": [server]})


async def main() -> None:
    lines = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    clients = Clients()
    while line := await lines.readline():
        try:
            print(json.dumps(await clients.obey(line.decode().strip())), flush=True)
        except (TimeoutError, ValueError, XdsError) as error:
            print("error", repr(error), flush=True)
    await clients.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
