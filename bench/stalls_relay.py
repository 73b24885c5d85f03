"""How long a relay's event loop stands still, and whether its cost grows as the number of things does.

The relay is the real one. Its server and its clients are scripts in the same program, without a network, and their own
time is not counted. The clock jumps when everybody waits, so that only work takes time; which is that of the processor,
as others may use it too.

    python -m bench.stalls_relay [CASE ...]
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    Resource,
    ResourceLocator,
    ResourceName,
)

import xdsprism as xp
from xdsprism.client.transport import ByteStream, Ended, Transport
from xdsprism.relay.relay import Relay
from xdsprism.server.calls import DETACHED, CallPort, Peer
from xdsprism.server.xds_call import XdsCall
from xdsprism.testing.timeless import TimelessLoop

LINGER = 5.0  # seconds of the clock that jumps
SETTLED = 120.0  # ... after which everything has been said


class Row(NamedTuple):
    """What one case took with N things, and with 4 N of them."""

    name: str
    number: int  # N
    seconds: float
    seconds_of_4: float
    ratio: float
    longest_turn: float  # seconds, of the loop, with 4 N


class _TimedLoop(TimelessLoop):
    """Measures its turns, without what scripts take of them."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = 0.0
        self.longest = 0.0
        self._scripts = 0.0

    def _run_once(self) -> None:
        start, scripts = time.thread_time(), self._scripts
        super()._run_once()  # type: ignore[misc] # asyncio's own, of every loop in Python
        taken = time.thread_time() - start - (self._scripts - scripts)
        self.busy += taken
        self.longest = max(self.longest, taken)

    @contextmanager
    def script(self) -> Iterator[None]:
        start = time.thread_time()
        try:
            yield
        finally:
            self._scripts += time.thread_time() - start

    async def measure(self, *work: Callable[[], object]) -> None:
        """Do each of these in a turn, and let everything settle; only that is counted."""
        await asyncio.sleep(SETTLED)
        gc.collect()
        gc.disable()
        await asyncio.sleep(0.01)  # the turn of that collection is none of the relay's
        self.busy = self.longest = 0.0
        for each in work:
            each()
            await asyncio.sleep(0.01)
        await asyncio.sleep(SETTLED)
        gc.enable()


Answer = Callable[[str, Mapping[str, str] | None], Resource | None]


class _Server:
    """A server of delta streams that answers each name by a function, and pins to nobody that there is none.

    On a new stream it does not repeat what the client's first request says that it has.
    """

    def __init__(self, loop: _TimedLoop, answer: Answer, everything: Sequence[Resource] = ()) -> None:
        self._loop = loop
        self._answer = answer
        self._everything = everything  # what a wildcard gets
        self._unread: asyncio.Queue[bytes | Ended] = asyncio.Queue()
        self.asked = 0  # names and locators
        self._type_url = ""
        self._nonce = 0

    def connect(self, _server: object) -> Transport:
        return self

    async def open(self, _path: str) -> ByteStream:
        return self

    async def close(self) -> None:
        """Nothing is held."""

    async def send(self, message: bytes) -> None:
        await asyncio.sleep(0)
        with self._loop.script():
            request = DeltaDiscoveryRequest.FromString(message)
            self._type_url = request.type_url
            plain, located = request.resource_names_subscribe, request.resource_locators_subscribe
            questions = [(name, None) for name in plain if name != "*"]
            questions += [(each.name, dict(each.dynamic_parameters)) for each in located if each.name != "*"]
            wild = "*" in plain or any(each.name == "*" for each in located)
            self.asked += len(questions)
            answers = [(name, params, self._answer(name, params)) for name, params in questions]
            found = [*(self._everything if wild else ()), *(each for _, _, each in answers if each is not None)]
            held = request.initial_resource_versions
            resources = [each for each in found if held.get(_name(each)) != each.version] if held else found
            absent = [
                ResourceName(name=name) for name, params, found in answers if found is None and params is not None
            ]
            if resources or absent:
                self.say(resources, absent)

    def say(self, resources: Collection[Resource], absent: Collection[ResourceName] = ()) -> None:
        self._nonce += 1
        response = DeltaDiscoveryResponse(
            type_url=self._type_url, nonce=str(self._nonce), resources=resources, removed_resource_names=absent
        )
        self._unread.put_nowait(response.SerializeToString())

    def end(self) -> None:
        """End the stream, as a server does that restarts."""
        self._unread.put_nowait(Ended("UNAVAILABLE", "the server is restarted"))

    async def receive(self) -> bytes:
        message = await self._unread.get()
        if isinstance(message, Ended):
            raise message
        return message

    def cancel(self) -> None:
        self._unread = asyncio.Queue()


class _Port(CallPort):
    """What a call of the relay may ask of its client: to be polled."""

    __slots__ = ("_poll",)

    def __init__(self, poll: Callable[[], None]) -> None:
        self._poll = poll

    def wake(self) -> None:
        self._poll()


class _Client:
    """A delta client of the relay that ACKs whatever comes."""

    def __init__(
        self, loop: _TimedLoop, relay: Relay, type_url: str, metadata: Mapping[str, str] | None = None
    ) -> None:
        self._loop = loop
        self._call: XdsCall = relay.server.hub.open("bench", Peer("bench"), delta=True, only_type=None)
        self._call.attach(_Port(self._wake))
        self._type_url = type_url
        self._metadata = metadata
        self._is_awake = False
        self.resources = 0

    def ask(self, names: Collection[str] = (), locators: Collection[tuple[str, Mapping[str, str]]] = ()) -> None:
        with self._loop.script():
            located = [ResourceLocator(name=name, dynamic_parameters=params) for name, params in locators]
            request = DeltaDiscoveryRequest(type_url=self._type_url, resource_names_subscribe=names)
            request.resource_locators_subscribe.extend(located)
            request.node.id = "bench"
            request.node.metadata.update(dict(self._metadata or {}))
            message = request.SerializeToString()
        self._call.receive(message)
        self._wake()

    def leave(self) -> None:
        self._call.close()
        self._call.attach(DETACHED)

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_awake = False
        for message in self._call.poll():
            with self._loop.script():
                response = DeltaDiscoveryResponse.FromString(message)
                self.resources += len(response.resources)
                ack = DeltaDiscoveryRequest(type_url=self._type_url, response_nonce=response.nonce).SerializeToString()
            self._call.receive(ack)


def _cluster(name: str, when: str | None = None, mark: str = "") -> Resource:
    made = Resource(version=mark or "1")
    if when is None:
        made.name = name
    else:
        made.resource_name.name = name
        made.resource_name.dynamic_parameter_constraints.CopyFrom(xp.parse(when).to_proto())
    made.resource.Pack(Cluster(name=name, alt_stat_name=mark))
    return made


def _name(resource: Resource) -> str:
    return resource.name or resource.resource_name.name


def _for_pod(name: str, params: Mapping[str, str] | None) -> Resource | None:
    return _cluster(name, f"pod={params['pod']}") if params else None


def _for_all(name: str, params: Mapping[str, str] | None) -> Resource:
    return _cluster(name, "true" if params is not None else None)


def _nothing(_name: str, _params: Mapping[str, str] | None) -> None:
    return None


def _host(name: str, params: Mapping[str, str] | None) -> Resource:
    return _virtual_host(name, name.rpartition("/")[2], name, params)


def _wild_host(name: str, params: Mapping[str, str] | None) -> Resource:
    """One virtual host serves all; the answer names the one host that was asked for."""
    return _virtual_host("main/wild", "*.example.com", name, params)


def _virtual_host(name: str, domain: str, asked: str, params: Mapping[str, str] | None) -> Resource:
    made = Resource(version="1", aliases=[asked] if asked != name else [])
    if params is None:
        made.name = name
    else:
        made.resource_name.name = name
        made.resource_name.dynamic_parameter_constraints.CopyFrom(xp.parse("true").to_proto())
    made.resource.Pack(VirtualHost(name=name, domains=[domain]))
    return made


class _Scene:
    """A relay, its server and its clients."""

    def __init__(self, loop: _TimedLoop, server: _Server, **options: Any) -> None:
        self.loop = loop
        self.server = server
        source = {"xds_servers": [_ADDRESS], "node": {"id": "bench"}}
        self.relay = Relay(source, connect=server.connect, linger=LINGER, **options)
        self.relay.enter()

    def client(self, type_url: str = xp.CLUSTER, metadata: Mapping[str, str] | None = None) -> _Client:
        return _Client(self.loop, self.relay, type_url, metadata)


_ADDRESS = {"server_uri": "bench:1", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}


async def _params_of_one_name(loop: _TimedLoop, number: int) -> _Scene:
    """One client asks for one name with N parameter sets, each of which has a variant of its own."""
    scene = _Scene(loop, _Server(loop, _for_pod))
    client = scene.client()
    await loop.measure(lambda: client.ask(locators=[("shop", {"pod": f"p{each}"}) for each in range(number)]))
    _check(client.resources, number)
    return scene


async def _params_one_by_one(loop: _TimedLoop, number: int) -> _Scene:
    """N clients, each with params of its own, ask for one name one after the other; each has a variant of its own."""
    scene = _Scene(loop, _Server(loop, _for_pod))
    clients = [scene.client(metadata={"pod": f"p{each}"}) for each in range(number)]
    await loop.measure(*[_asking(client, ["shop"]) for client in clients])
    _check(sum(client.resources for client in clients), number)
    return scene


async def _params_without_answer(loop: _TimedLoop, number: int) -> _Scene:
    """One client asks for one name with N parameter sets; there is nothing for any, and nobody says for whom."""
    scene = _Scene(loop, _Server(loop, _nothing))
    client = scene.client()
    await loop.measure(lambda: client.ask(locators=[("shop", {"pod": f"p{each}"}) for each in range(number)]))
    return scene


async def _params_leave(loop: _TimedLoop, number: int) -> _Scene:
    """A client with N parameter sets of one name leaves."""
    scene = _Scene(loop, _Server(loop, _for_pod))
    client = scene.client()
    client.ask(locators=[("shop", {"pod": f"p{each}"}) for each in range(number)])
    await loop.measure(client.leave)
    _check(client.resources, number)
    return scene


async def _names(loop: _TimedLoop, number: int) -> _Scene:
    """A client asks for N names."""
    scene = _Scene(loop, _Server(loop, _for_all))
    client = scene.client()
    await loop.measure(lambda: client.ask([f"c{each}" for each in range(number)]))
    _check(client.resources, number)
    return scene


async def _names_leave(loop: _TimedLoop, number: int) -> _Scene:
    """A client with N names leaves, and nobody wants them any more."""
    scene = _Scene(loop, _Server(loop, _for_all))
    client = scene.client()
    client.ask([f"c{each}" for each in range(number)])
    await loop.measure(client.leave)
    _check(client.resources, number)
    return scene


async def _hosts(loop: _TimedLoop, number: int) -> _Scene:
    """A client asks for N virtual hosts at once, as an Envoy that reconnects does."""
    scene = _Scene(loop, _Server(loop, _host))
    client = scene.client(xp.VIRTUAL_HOST)
    await loop.measure(lambda: client.ask([f"main/h{each}.example.com" for each in range(number)]))
    _check(client.resources, number)
    return scene


async def _hosts_one_by_one(loop: _TimedLoop, number: int) -> _Scene:
    """A client asks for N hosts one after the other, each with a virtual host of its own."""
    scene = _Scene(loop, _Server(loop, _host))
    client = scene.client(xp.VIRTUAL_HOST)
    await loop.measure(*[_asking(client, [f"main/h{each}.example.com"]) for each in range(number)])
    _check(client.resources, number)
    return scene


async def _wild_hosts(loop: _TimedLoop, number: int) -> _Scene:
    """N hosts of one wildcard domain are asked for one after the other."""
    scene = _Scene(loop, _Server(loop, _wild_host))
    client = scene.client(xp.VIRTUAL_HOST)
    await loop.measure(*[_asking(client, [f"main/h{each}.example.com"]) for each in range(number)])
    _check(client.resources, number)
    return scene


async def _wildcard(loop: _TimedLoop, number: int) -> _Scene:
    """A client asks for everything: N resources."""
    scene = _Scene(loop, _Server(loop, _for_all, [_cluster(f"c{each}") for each in range(number)]))
    client = scene.client()
    await loop.measure(lambda: client.ask(["*"]))
    _check(client.resources, number)
    return scene


async def _wildcard_updates(loop: _TimedLoop, number: int) -> _Scene:
    """Of N resources that a wildcard has, each changes, in responses of 100."""
    scene = _Scene(loop, _Server(loop, _for_all, [_cluster(f"c{each}") for each in range(number)]))
    client = scene.client()
    client.ask(["*"])
    batches = [[_cluster(f"c{each}", mark="2") for each in range(at, at + 100)] for at in range(0, number, 100)]
    await loop.measure(*[_saying(scene.server, batch) for batch in batches])
    _check(client.resources, 2 * number)
    return scene


async def _reconnect(loop: _TimedLoop, number: int) -> _Scene:
    """The server ends its stream, and is asked again for N names, with the versions of what the relay has."""
    scene = _Scene(loop, _Server(loop, _for_all))
    client = scene.client()
    client.ask([f"c{each}" for each in range(number)])
    await loop.measure(scene.server.end)
    _check(client.resources, number)
    _check(scene.server.asked, 2 * number)
    return scene


async def _reconnect_params(loop: _TimedLoop, number: int) -> _Scene:
    """The same with N parameter sets of one name, of which no version can be said: all are sent again."""
    scene = _Scene(loop, _Server(loop, _for_pod))
    client = scene.client()
    client.ask(locators=[("shop", {"pod": f"p{each}"}) for each in range(number)])
    await loop.measure(scene.server.end)
    _check(client.resources, number)
    _check(scene.server.asked, 2 * number)
    return scene


async def _groups(loop: _TimedLoop, number: int) -> _Scene:
    """N names beside a wildcard of N: what both have is shared."""
    scene = _Scene(loop, _Server(loop, _for_all, [_cluster(f"c{each}") for each in range(number)]))
    first, second = scene.client(), scene.client()
    first.ask(["*"])
    await loop.measure(lambda: second.ask([f"c{each}" for each in range(number)]))
    _check(second.resources, number)
    return scene


def _asking(client: _Client, names: Collection[str]) -> Callable[[], None]:
    return lambda: client.ask(names)


def _saying(server: _Server, resources: Collection[Resource]) -> Callable[[], None]:
    return lambda: server.say(resources)


def _check(came: int, due: int) -> None:
    if came < due:
        raise RuntimeError(f"{came} resources came, and due were {due}")


Case = Callable[[_TimedLoop, int], Awaitable[_Scene]]

CASES: Mapping[str, tuple[Case, int]] = {
    "params of one name": (_params_of_one_name, 500),
    "params of one name, one by one": (_params_one_by_one, 50),
    "params of one name, without an answer": (_params_without_answer, 500),
    "params of one name leave": (_params_leave, 500),
    "names": (_names, 1_000),
    "names leave": (_names_leave, 1_000),
    "hosts": (_hosts, 1_000),
    "hosts, one by one": (_hosts_one_by_one, 250),
    "hosts of one wildcard domain, one by one": (_wild_hosts, 250),
    "resources of a wildcard": (_wildcard, 1_000),
    "resources of a wildcard change": (_wildcard_updates, 1_000),
    "names beside a wildcard": (_groups, 1_000),
    "names, and the server reconnects": (_reconnect, 1_000),
    "params of one name, and the server reconnects": (_reconnect_params, 500),
    "5,000 params of one name": (_params_of_one_name, 1_250),
    "5,000 params of one name leave": (_params_leave, 1_250),
    "30,000 names leave": (_names_leave, 7_500),
    "50,000 hosts": (_hosts, 12_500),
    "20,000 resources of a wildcard": (_wildcard, 5_000),
    "50,000 names, and the server reconnects": (_reconnect, 12_500),
}


def measure_relay(chosen: Collection[str] = tuple(CASES)) -> list[Row]:
    """Measure every case; what it takes in all is bounded by the numbers above."""
    return [[*measure_steps(name)][-1] for name in chosen]


def measure_steps(name: str) -> Iterator[Row]:
    """What is known before N, after N, and after 4 N: each may take very long."""
    case, number = CASES[name]
    yield Row(name, number, inf, inf, inf, inf)
    few = _measured(case, number)
    yield Row(name, number, few[0], inf, inf, inf)
    many = _measured(case, 4 * number)
    yield Row(name, number, few[0], many[0], many[0] / few[0], many[1])


def _measured(case: Case, number: int) -> tuple[float, float]:
    """Seconds in all, and the longest turn."""

    async def run() -> tuple[float, float]:
        scene = await case(loop, number)
        figures = loop.busy, loop.longest
        await scene.relay.stop()
        return figures

    loop = _TimedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run())


def run(chosen: Collection[str] = ()) -> None:
    print(f"{'case':<42} {'N':>6} {'s of N':>8} {'s of 4N':>8} {'ratio':>6} {'longest':>8}")
    for name in chosen or CASES:
        for row in measure_relay([name]):
            figures = f"{row.seconds:8.3f} {row.seconds_of_4:8.3f} {row.ratio:6.2f} {row.longest_turn:8.3f}"
            print(f"{row.name:<42} {row.number:6,} {figures}", flush=True)


if __name__ == "__main__":
    run(sys.argv[1:])
