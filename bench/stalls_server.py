"""The longest time that a server answers nobody, while somebody asks for very much (within the limits).

The server has a process of its own. A task in its loop sleeps a moment, again and again, and notes by how much it woke
late: that is how long everybody else waited. `measure_server` returns the rows; run as a module, it prints them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import Request, urlopen

import grpc
import grpc.aio
import uvloop
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from bench.at_once import run_at_once
from bench.pulse import Pulse
from xdsprism import app
from xdsprism.observe.connection_log import ConnectionLog
from xdsprism.observe.connection_metrics import ConnectionMetrics, LimitMetrics
from xdsprism.observe.logs import FactLog
from xdsprism.observe.metrics import Metrics
from xdsprism.serving import Server
from xdsprism.sources.files import FileSource

if TYPE_CHECKING:  # versions before this one have it elsewhere
    from xdsprism.core.model.settings import Engine

CLUSTERS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
HOSTS = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
LISTENERS = "type.googleapis.com/envoy.config.listener.v3.Listener"
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService"

QUIET = 2.0  # seconds without an answer, after which there is none left
PATIENCE = 300.0  # seconds for the first answer
SERVED = 50_000  # clusters in the file that is reloaded
FILES = 10_000  # written into the folder of edits, each with one cluster
VARIANTS = 1_000  # of the template there
CLIENTS = 1_000  # who come back at once, or hold a variant each
HELD = 100  # resources of each who comes back
EDITS = "edits"  # a folder that the server watches
MOVED = "moved"  # the route configuration of virtual hosts in the other file


class Row(NamedTuple):
    case: str
    stall: float  # milliseconds
    seconds: float  # until the last answer
    busy: float = 0.0  # milliseconds of the processor in the longest turn: the stall, where nobody else wants it
    limit: float = 0.0  # milliseconds, of the stall


# -- the server


class _Changes:
    """Counts the names that change in a store."""

    def __init__(self, store: xp.Store) -> None:
        self._count = self._due = 0
        self._reached = asyncio.Event()
        store.listeners.append(lambda applied: self._add(len(applied.changes)))

    def _add(self, more: int) -> None:
        self._count += more
        if self._count >= self._due:
            self._reached.set()

    def reset(self) -> None:
        self._count = 0

    async def reach(self, count: int) -> None:
        self._due = count
        self._reached.clear()
        self._add(0)
        await self._reached.wait()


def _write_clusters(file: Path, version: int) -> None:
    resources = [
        {"@type": CLUSTERS, "name": f"c{i}", "type": "STATIC", "connect_timeout": f"{version}s"} for i in range(SERVED)
    ]
    fresh = file.with_name("fresh")
    fresh.write_text(json.dumps({"resources": resources}))
    fresh.rename(file)


def _write_hosts(file: Path, version: int) -> None:
    """1,000 virtual hosts with a wildcard each; which of them has which wildcard differs from version to version."""
    kind = {"@type": HOSTS}
    resources = [
        {**kind, "name": f"{MOVED}/v{i}", "domains": [f"*.v{(i + version) % 1_000}.example.com"]} for i in range(1_000)
    ]
    fresh = file.with_name("fresh")
    fresh.write_text(json.dumps({"resources": resources}))
    fresh.rename(file)


def _spare_collections() -> None:
    """As the daemon does when it is ready. Versions before this one, which may be measured too, have no name for it."""
    if hasattr(app, "spare_collections"):
        app.spare_collections()
    else:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 10, 10)


async def _serve(engine: Engine, folder: Path) -> None:
    """Answers each line on its standard input.

    `reset` and `report`; what to reload, and the version to do it with; or `until` and how many names have to change
    since the last reset before it reports.
    """
    files = {"clusters": folder / "clusters.json", "hosts": folder / "hosts.json"}
    (folder / EDITS).mkdir()
    writers = {"clusters": _write_clusters, "hosts": _write_hosts}
    for kind, write in writers.items():
        write(files[kind], 1)
    store = xp.Store(validate="off")
    _fill_hosts(store)
    taken = asyncio.Event()
    source = FileSource([*files.values(), folder / EDITS], validate="off", observe=lambda _: taken.set())
    source.load(store.apply)
    pulse = Pulse()
    changed = _Changes(store)
    made = Server(store, listen="127.0.0.1:0", rest="127.0.0.1:0", engine=engine)
    _attach_readers(made, store)
    async with made as server:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(pulse.run()), loop.create_task(_follow(source, store))]
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await asyncio.sleep(0.5)
        _spare_collections()
        print(server.address, server.rest_address, flush=True)
        while line := (await reader.readline()).decode().strip():
            if line == "reset":
                pulse.reset()
                changed.reset()
            elif line.startswith("until "):
                await changed.reach(int(line.removeprefix("until ")))
                await asyncio.sleep(QUIET)
            elif line != "report":
                kind, version = line.split()
                taken.clear()
                await asyncio.to_thread(writers[kind], files[kind], int(version))
                pulse.reset()
                await taken.wait()
                await asyncio.sleep(QUIET)
            print(pulse.longest * 1e3, pulse.busiest * 1e3, flush=True)
        for task in tasks:
            task.cancel()


def _attach_readers(server: Server, store: xp.Store) -> None:
    """Metrics and logs, as the daemon has them."""
    logging.basicConfig(level=logging.INFO)
    metrics = Metrics(store)
    server.hub.readers.extend([metrics, FactLog()])
    server.connection_readers.append(ConnectionLog())
    if server.engine == "h2":
        server.connection_readers += [ConnectionMetrics(metrics.registry), LimitMetrics(metrics)]


def _follow(source: FileSource, store: xp.Store) -> Coroutine[Any, Any, None]:
    """As the daemon does. Versions before this one publish in one step."""
    prepare = getattr(store, "prepare", None)
    return source.run(store.apply, prepare) if prepare is not None else source.run(store.apply)


def _fill_hosts(store: xp.Store) -> None:
    from envoy.config.route.v3.route_components_pb2 import VirtualHost  # noqa: PLC0415 # for the server alone

    with store.transaction() as transaction:
        for i in range(1_000):
            host = VirtualHost(name=f"main/v{i}", domains=[f"*.v{i}.example.com"])
            transaction.put(host)


# -- its clients


def delta_names(count: int, type_url: str = ENDPOINTS) -> bytes:
    names = [f"service-{i}.default.svc.cluster.local" for i in range(count)]
    asked = pb.DeltaDiscoveryRequest(node=Node(id="n"), type_url=type_url, resource_names_subscribe=names)
    return asked.SerializeToString()


def delta_locators(count: int) -> bytes:
    asked = pb.DeltaDiscoveryRequest(node=Node(id="n"), type_url=CLUSTERS)
    for i in range(count):
        params = {"env": "prod", "version": f"v{i % 10}", "zone": "a"}
        asked.resource_locators_subscribe.add(name=f"c{i}", dynamic_parameters=params)
    return asked.SerializeToString()


def moved_hosts(count: int) -> bytes:
    """Hosts that other virtual hosts serve after a reload."""
    names = [f"{MOVED}/h{i}.v{i % 1_000}.example.com" for i in range(count)]
    return pb.DeltaDiscoveryRequest(
        node=Node(id="n"), type_url=HOSTS, resource_names_subscribe=names
    ).SerializeToString()


def sotw_return() -> bytes:
    """Of one who has everything of an earlier version."""
    asked = pb.DiscoveryRequest(node=Node(id="n"), type_url=CLUSTERS, version_info="0123456789abcdef")
    return asked.SerializeToString()


def reconnect_of_hosts(count: int) -> bytes:
    """As Envoy comes back: all hosts that it ever asked for, and the versions of what it has."""
    asked = pb.DeltaDiscoveryRequest(node=Node(id="n"), type_url=HOSTS)
    asked.resource_names_subscribe.extend(f"main/h{i}.v{i % 1_000}.example.com" for i in range(count))
    for i in range(1_000):
        asked.initial_resource_versions[f"main/v{i}"] = "old"
    return asked.SerializeToString()


def sotw_names(count: int, type_url: str) -> bytes:
    names = [f"c{i}" for i in range(count)]
    return pb.DiscoveryRequest(node=Node(id="n"), type_url=type_url, resource_names=names).SerializeToString()


def xdstp_names(count: int, params: int) -> bytes:
    kind = ENDPOINTS.rpartition("/")[2]
    query = "&".join(f"k{i}=v" for i in range(params))
    names = [f"xdstp://a/{kind}/s{i}?{query}" for i in range(count)]
    return pb.DeltaDiscoveryRequest(type_url=ENDPOINTS, resource_names_subscribe=names).SerializeToString()


def bomb() -> bytes:
    """60 MB that gzip makes 58 kB of."""
    names = ["x" * 28] * 2_000_000
    return pb.DeltaDiscoveryRequest(type_url=ENDPOINTS, resource_names_subscribe=names).SerializeToString()


def delta_return(number: int) -> bytes:
    """Of one of many clients, each with other clusters, that has them all in another version."""
    asked = pb.DeltaDiscoveryRequest(node=Node(id=f"n{number}"), type_url=CLUSTERS)
    for name in _held(number):
        asked.resource_names_subscribe.append(name)
        asked.initial_resource_versions[name] = "old"
    return asked.SerializeToString()


def sotw_return_of(number: int) -> bytes:
    asked = pb.DiscoveryRequest(node=Node(id=f"n{number}"), type_url=CLUSTERS, resource_names=_held(number))
    asked.version_info = "0123456789abcdef"
    return asked.SerializeToString()


def _held(number: int) -> list[str]:
    first = number * SERVED // CLIENTS
    return [f"c{(first + each) % SERVED}" for each in range(HELD)]


def one_of_a_class(number: int) -> bytes:
    """Who gets one variant of the template."""
    node = Node(id=f"n{number}")
    node.metadata.update({"class": f"k{number}"})
    asked = pb.DeltaDiscoveryRequest(node=node, type_url=CLUSTERS, resource_names_subscribe=["template"])
    return asked.SerializeToString()


def write_files(folder: Path, version: int) -> None:
    for number in range(FILES):
        _write(folder / EDITS / f"f{number}.yaml", f"{CLUSTER}name: f{number}\nconnect_timeout: {version}s\n")


def write_template(folder: Path, version: int) -> None:
    """A document with so many variants, of which another version changes every one."""
    branches = [f"  - {{when: class=k{number}, value: {number + version}s}}" for number in range(1, VARIANTS)]
    text = "\n".join(
        [f"{CLUSTER}name: template\nconnect_timeout:\n  $match:", *branches, f"  - {{value: {version}.5s}}", ""]
    )
    _write(folder / EDITS / "template.yaml", text)


def write_a_branch(folder: Path, version: int) -> None:
    """Change one variant of the template."""
    file = folder / EDITS / "template.yaml"
    _write(file, file.read_text().replace("when: class=k500, value: 50", f"when: class=k500, value: {version}50"))


CLUSTER = f'"@type": {CLUSTERS}\ntype: STATIC\n'


def _write(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}")
    draft.write_text(text)
    draft.rename(file)


STREAMS: tuple[tuple[str, str, Callable[[], bytes]], ...] = (
    ("99,000 locators, delta", "Delta", lambda: delta_locators(99_000)),
    ("100,000 names, SotW", "Stream", lambda: sotw_names(100_000, ENDPOINTS)),
    ("50,000 names in full state, SotW", "Stream", lambda: sotw_names(50_000, CLUSTERS)),
    ("50,000 resources by a wildcard, SotW, a reconnect", "Stream", sotw_return),
    ("50,000 hosts, a reconnect", "Delta", lambda: reconnect_of_hosts(50_000)),
    ("200,000 hosts, a reconnect", "Delta", lambda: reconnect_of_hosts(200_000)),
    ("5,000 xdstp names with 400 context parameters", "Delta", lambda: xdstp_names(5_000, 400)),
)


def _follow_up(address: str, message: bytes, then: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Ask on a delta stream, wait for all answers, and do this before the stream is closed."""
    return asyncio.run(_asked(address, message, then))


async def _asked(address: str, message: bytes, then: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stream = channel.stream_stream(f"{ADS}/DeltaAggregatedResources", None, None)()
        await stream.write(message)
        await asyncio.wait_for(stream.read(), PATIENCE)
        while True:
            try:
                await asyncio.wait_for(_another(stream), QUIET)
            except TimeoutError:
                break
        return await asyncio.to_thread(then)


async def _another(stream: Any) -> None:
    """Read, without the cancelling of a call whose answer does not come in time."""
    await asyncio.shield(asyncio.ensure_future(stream.read()))


def _ask_once(address: str, method: str, message: bytes, *, gzip: bool = False) -> float:
    return asyncio.run(_ask(address, method, message, gzip=gzip))


async def _ask(address: str, method: str, message: bytes, *, gzip: bool) -> float:
    """Seconds until the last answer, or until the call is refused.

    Not every request is answered. So a second one follows, which is (SOT-9, DLT-4), and not before the first is read.
    """
    last_words = pb.DeltaDiscoveryRequest(type_url=LISTENERS, resource_names_subscribe=["none"])
    if method == "Stream":
        last_words = pb.DiscoveryRequest(type_url=LISTENERS, resource_names=["none"])
    compression = grpc.Compression.Gzip if gzip else None
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options, compression=compression) as channel:
        stream = channel.stream_stream(f"{ADS}/{method}AggregatedResources", None, None)()
        start = last = time.perf_counter()
        try:
            await stream.write(message)
            with suppress(asyncio.InvalidStateError):  # the server has refused the call already: the read says so
                await stream.write(last_words.SerializeToString())
            patience = PATIENCE
            while await asyncio.wait_for(stream.read(), patience) is not grpc.aio.EOF:
                last = time.perf_counter()
                patience = QUIET
        except grpc.aio.AioRpcError:
            last = time.perf_counter()
        except TimeoutError:
            if last == start:
                raise SystemExit(f"no answer within {PATIENCE:.0f} s") from None
        return last - start


def _post(address: str, count: int) -> float:
    body = json.dumps({"node": {"id": "n"}, "resource_names": [f"c{i}" for i in range(count)]}).encode()
    start = time.perf_counter()
    request = Request(f"http://{address}/v3/discovery:endpoints", body, {"content-type": "application/json"})
    with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 # the address is ours
        answer.read()
    return time.perf_counter() - start


class Handle:
    """A server in its process, as its measurer sees it."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, address: str, rest: str) -> None:
        self.folder, self.address, self.rest = folder, address, rest
        self._process = process

    def say(self, line: str) -> tuple[float, float]:
        """The longest stall so far, in milliseconds, and the most processor time between two beats."""
        if self._process.stdin is None or self._process.stdout is None:
            raise SystemExit("the server has no pipes")
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        stall, busy = self._process.stdout.readline().split()
        return float(stall), float(busy)

    def measure(self, case: str, ask: Callable[[], float]) -> Row:
        self.say("reset")
        seconds = ask()
        time.sleep(QUIET)  # whoever leaves makes work too
        stall, busy = self.say("report")
        return Row(case, stall, seconds, busy)


Case = Callable[[Handle, str], Row]


@contextmanager
def _serving(engine: Engine) -> Iterator[Handle]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.stalls_server", engine, folder]
        log = Path(folder) / "log"
        with (
            log.open("w") as told,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, text=True) as process,
        ):
            try:
                line = process.stdout.readline() if process.stdout is not None else ""
                if not line:
                    raise SystemExit(f"the server did not become ready:\n{log.read_text()}")
                yield Handle(process, Path(folder), *line.split())
            finally:
                process.kill()


def _stream(method: str, make: Callable[[], bytes], *, gzip: bool = False) -> Case:
    def measure(server: Handle, case: str) -> Row:
        message = make()
        return server.measure(case, partial(_ask_once, server.address, method, message, gzip=gzip))

    return measure


def _reload(server: Handle, case: str) -> Row:
    start = time.perf_counter()
    stall, busy = server.say("clusters 2")
    return Row(case, stall, time.perf_counter() - start, busy)


def _leave(make: Callable[[], bytes]) -> Case:
    """How long the end of a stream takes, without what was before."""

    def measure(server: Handle, case: str) -> Row:
        message = make()
        _follow_up(server.address, message, lambda: server.say("reset"))
        start = time.perf_counter()
        time.sleep(5 * QUIET)
        return Row(case, *_swapped(server.say("report"), time.perf_counter() - start))

    return measure


def _move_hosts(count: int) -> Case:
    """How long a reload takes that gives each host which a client asked for another virtual host."""

    def measure(server: Handle, case: str) -> Row:
        start = time.perf_counter()
        figures = _follow_up(server.address, moved_hosts(count), lambda: server.say("hosts 2"))
        return Row(case, *_swapped(figures, time.perf_counter() - start))

    return measure


Write = Callable[[Path, int], None]


def _edit(
    write: Write,
    names: int,
    *,
    before: Write | None = None,
    clients: Sequence[bytes] = (),
    each: int = 0,
    more: int = 0,
) -> Case:
    """How long an edit takes that changes so many names, after another one, while clients are there.

    Each client has as many resources before the edit as `each` says, and gets `more` by it.
    """

    def measure(server: Handle, case: str) -> Row:
        if before is not None:
            server.say("reset")
            before(server.folder, 1)
            server.say(f"until {names if before is write else 1}")
        start = time.perf_counter()

        def edit() -> tuple[float, float]:
            server.say("reset")
            write(server.folder, 2)
            return server.say(f"until {names}")

        figures = run_at_once(server.address, clients, each, edit, more=more)
        return Row(case, *_swapped(figures, time.perf_counter() - start))

    return measure


def _return(request: Callable[[int], bytes], *, delta: bool = True) -> Case:
    """How long it takes to serve clients that all come back at once, each with its own resources."""

    def measure(server: Handle, case: str) -> Row:
        asked = [request(number) for number in range(CLIENTS)]

        def ask() -> float:
            start = time.perf_counter()
            run_at_once(server.address, asked, HELD, delta=delta)
            return time.perf_counter() - start

        return server.measure(case, ask)

    return measure


def _swapped(figures: tuple[float, float], seconds: float) -> tuple[float, float, float]:
    """In the order of a row."""
    stall, busy = figures
    return stall, seconds, busy


CLASSES = [one_of_a_class(number) for number in range(1, CLIENTS + 1)]
WILDCARD = delta_names(0, CLUSTERS)
COMMON: dict[str, Case] = {  # what users do, at sizes that they have
    "100,000 names, delta": _stream("Delta", lambda: delta_names(100_000)),
    "50,000 resources by a wildcard, delta": _stream("Delta", lambda: WILDCARD),
    "50,000 resources by a wildcard, SotW": _stream("Stream", lambda: sotw_names(0, CLUSTERS)),
    "10,000 files are added": _edit(write_files, FILES, clients=[WILDCARD], each=SERVED, more=FILES),
    "10,000 files are changed": _edit(
        write_files, FILES, before=write_files, clients=[WILDCARD], each=SERVED + FILES, more=FILES
    ),
    "a template of 1,000 variants is added": _edit(write_template, 1),
    "all variants of the template change": _edit(write_template, 1, before=write_template),
    "all variants of the template change, 1,000 clients": _edit(
        write_template, 1, before=write_template, clients=CLASSES, each=1, more=1
    ),
    "one variant of the template changes, 1,000 clients": _edit(
        write_a_branch, 1, before=write_template, clients=CLASSES, each=1
    ),
    "1,000 clients with 100 resources come back, delta": _return(delta_return),
    "1,000 clients with 100 resources come back, SotW": _return(sotw_return_of, delta=False),
}
RARE: dict[str, Case] = {  # as much as the limits allow
    **{case: _stream(method, make) for case, method, make in STREAMS},
    "60 MB in 58 kB of gzip": _stream("Delta", bomb, gzip=True),
    "190,000 names, REST": lambda server, case: server.measure(case, lambda: _post(server.rest, 190_000)),
    "50,000 resources, a reload": _reload,
    "50,000 hosts that a reload moves": _move_hosts(50_000),
    "200,000 hosts, the end of their stream": _leave(lambda: reconnect_of_hosts(200_000)),
    "100,000 locators, the end of their stream": _leave(lambda: delta_locators(100_000)),
}
CASES: Mapping[str, Case] = {**RARE, **COMMON}
LONGEST, LONGEST_COMMON = 100.0, 50.0  # ms that a stall may take


def limit_of(case: str) -> float:
    return LONGEST_COMMON if case in COMMON else LONGEST


def measure_server(engine: Engine = "h2") -> list[Row]:
    """The longest stall of each case, worst inputs that are within the limits. Takes about a minute."""
    with _serving(engine) as server:
        return [measure(server, case) for case, measure in CASES.items()]


def measure_steps(case: str, engine: Engine = "h2") -> Iterator[Row]:
    """One case against a server of its own: what is known when that is ready, and at the end, which may be late."""
    with _serving(engine) as server:
        yield Row(case, inf, inf, inf, limit_of(case))
        yield CASES[case](server, case)._replace(limit=limit_of(case))


def main() -> None:
    if len(sys.argv) == 3:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the daemon does
            runner.run(_serve("h2" if sys.argv[1] == "h2" else "grpcio", Path(sys.argv[2])))
        return
    for row in measure_server("grpcio" if "grpcio" in sys.argv else "h2"):
        print(f"  {row.case:<50} {row.stall:8,.0f} ms {row.seconds:8.2f} s   busy {row.busy:8,.0f} ms", flush=True)


if __name__ == "__main__":
    main()
