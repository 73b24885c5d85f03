"""python -m fuzz live [SECONDS] [SEED]: clients that say anything well-formed, to a server and to a relay.

For SECONDS (60) each, they talk to `xdsprism serve`, to a `relay` of it, and to a server with a policy: SotW and delta,
v2 and v3, every service, locators, wildcards, globs, ACKs and NACKs, nonces that nobody sent, other nodes, load
reports, virtual hosts, and connections that end at any moment; while files are edited. Afterwards each has to serve a
client at once, with the gauges and nearly the memory that it began with, and no exception in its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.service.load_stats.v3 import lrs_pb2 as lrs
from google.rpc.status_pb2 import Status

from xdsprism.core.model.type_versions import as_v2
from xdsprism.core.model.types import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, VIRTUAL_HOST
from xdsprism.server.methods import V2, V3, Api

ROOT = Path(__file__).parents[1]
READY = re.compile(r"ready listen=(\S+) admin=(\S+)")
TALKERS = 12
GAUGES = ("xdsprism_streams", "xdsprism_connections", "xdsprism_load_streams", "xdsprism_refused_subscriptions")
GROWTH_MB = 64  # of memory between the first quarter, when all has been loaded and used, and the end

TYPES = (CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, VIRTUAL_HOST, "type.googleapis.com/none.such.Type", "", "odd")
NAMES = (
    "main",
    "checkout",
    "shop",
    "shop-next",
    "legacy",
    "edited",
    "nothing",
    "*",
    "",
    "main/shop.example",
    "main/*",
    "main/a:80",
    "xdstp://a/envoy.config.cluster.v3.Cluster/b/*",
    "xdstp://a/envoy.config.cluster.v3.Cluster/x?env=prod",
    "xdstp://%zz",
    "ü" * 50,
    "y" * 5_000,
)
PARAMS = (
    {},
    {"env": "prod"},
    {"env": "canary", "version": "v1"},
    {"version": "v2"},
    {"zone": "a"},
    {"": ""},
    {"k" * 300: "v"},
)
POLICY = """
default: deny
rules:
- identity: anonymous
  node: one-*
  types: [cds, eds, rds]
  names: {"*": [main, "shop*", checkout]}
  params: {env: {allow: [prod, canary]}, zone: any}
- identity: anonymous
  node: two-*
  params: any
"""
EDITED = '"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: edited\nconnect_timeout: {}s\n'


class Broken(Exception):
    """What was to hold afterwards does not."""


class Program:
    """A server or a relay in a process of its own."""

    def __init__(self, name: str, folder: Path, *words: str | Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "xdsprism", *map(str, words), *ports], stdout=log, stderr=subprocess.STDOUT
            )
        found = until(lambda: READY.search(self.text()), f"{name} is not ready", 60)
        self.address, self._admin = found[1], found[2]

    def text(self) -> str:
        if (status := getattr(self, "_process", None)) is not None and status.poll() is not None:
            raise Broken(f"{self.name} ended with {status.returncode}:\n{self.log.read_text()[-3000:]}")
        return self.log.read_text(errors="replace")

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self._admin}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    def gauges(self) -> dict[str, float]:
        found = dict.fromkeys(GAUGES, 0.0)
        for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", self.page("/metrics"), re.MULTILINE):
            if name in found:
                found[name] += float(value)
        found["clients"] = json.loads(self.page("/api/clients"))["total"]
        return found

    def memory(self) -> float:
        """Megabytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else 0.0

    def stop(self) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._process.kill()


def until(holds: Callable[[], Any], what: str, seconds: float) -> Any:
    end = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > end:
            raise Broken(what)
        time.sleep(0.1)
    return found


# -- what is said


class Talker:
    """One client after the other, each with a connection of its own or that of the one before."""

    def __init__(self, address: str, seed: int) -> None:
        self._address = address
        self._random = random.Random(seed)  # noqa: S311 - to be repeated
        self.said: dict[str, int] = {}

    async def run(self, end: float) -> None:
        while time.monotonic() < end:
            async with grpc.aio.insecure_channel(self._address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                for _ in range(self._random.randint(1, 4)):
                    calls = [self._call(channel, end) for _ in range(self._random.randint(1, 3))]
                    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                        await asyncio.gather(*calls)

    async def _call(self, channel: grpc.aio.Channel, end: float) -> None:
        pick = self._random
        api: Api = pick.choice((V3, V3, V2))
        service, noun, _ = pick.choice((*api.services, *api.delta_services))
        kind = pick.choice(("ads", "ads", "delta ads", "delta ads", "typed", "delta typed", "fetch", "loads"))
        self.said[kind] = self.said.get(kind, 0) + 1
        delta = kind.startswith("delta")
        if kind == "loads":
            await self._stream(channel, f"/{api.loads}/StreamLoadStats", self._loads, end)
        elif kind == "fetch":
            fetch = channel.unary_unary(f"/{service}/Fetch{noun}")
            await fetch(self._sotw(api, {}), timeout=pick.choice((0.01, 1, 5)))
        else:
            path = f"/{api.aggregated}/{'Delta' if delta else 'Stream'}AggregatedResources"
            if kind.endswith("typed"):
                path = f"/{service}/{'Delta' if delta else 'Stream'}{noun}"
            make = self._delta if delta else self._sotw
            await self._stream(channel, path, lambda heard: make(api, heard), end)

    async def _stream(
        self, channel: grpc.aio.Channel, path: str, make: Callable[[dict[str, Any]], bytes], end: float
    ) -> None:
        pick = self._random
        call = channel.stream_stream(path)()
        heard: dict[str, Any] = {}
        for _ in range(pick.randint(1, 25)):
            if time.monotonic() > end:
                break
            await call.write(make(heard))
            if pick.random() < 0.7:
                with contextlib.suppress(asyncio.TimeoutError):
                    body = await asyncio.wait_for(asyncio.shield(self._read(call)), 0.2)
                    self._hear(body, path, heard)
        if pick.random() < 0.3:
            await call.done_writing()
            await asyncio.sleep(0.05)
        call.cancel()

    @staticmethod
    async def _read(call: Any) -> bytes:
        try:
            return await call.read() or b""
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError, grpc.aio.UsageError):
            return b""

    @staticmethod
    def _hear(body: bytes, path: str, heard: dict[str, Any]) -> None:
        if not body or "LoadStats" in path:
            return
        form = pb.DeltaDiscoveryResponse if "/Delta" in path else pb.DiscoveryResponse
        response = form.FromString(body)
        heard["nonces"] = [*heard.get("nonces", [])[-3:], response.nonce]
        heard["type"] = response.type_url

    # -- messages

    def _type(self, api: Api, heard: dict[str, Any]) -> str:
        if "type" in heard and self._random.random() < 0.5:
            return str(heard["type"])
        found = self._random.choice(TYPES)
        return as_v2(found) or found if api.v2 else found

    def _names(self) -> list[str]:
        return self._random.choices(NAMES, k=self._random.choice((0, 1, 1, 2, 5, 40)))

    def _locators(self) -> list[pb.ResourceLocator]:
        if self._random.random() < 0.6:
            return []
        return [pb.ResourceLocator(name=name, dynamic_parameters=self._random.choice(PARAMS)) for name in self._names()]

    def _node(self, heard: dict[str, Any]) -> dict[str, Any]:
        if heard.get("node") and self._random.random() < 0.8:
            return {}
        heard["node"] = True
        node = {"id": self._random.choice(("one-1", "two-1", "two-2", "", "three")), "cluster": "c"}
        found = json.dumps({"params": self._random.choice(PARAMS)})
        metadata = pb.DiscoveryRequest().node.metadata
        metadata.update(json.loads(found))
        return {"node": {**node, "metadata": metadata}}

    def _answer(self, heard: dict[str, Any]) -> dict[str, Any]:
        pick = self._random
        nonce = pick.choice([*heard.get("nonces", []), *heard.get("nonces", [])[-1:] * 4, "", "odd"])
        found: dict[str, Any] = {"response_nonce": nonce}
        if pick.random() < 0.2:
            found["error_detail"] = Status(
                code=pick.choice((3, 13, 99)), message=pick.choice(("no", "x" * 5_000, "", "a\nb"))
            )
        return found

    def _sotw(self, api: Api, heard: dict[str, Any]) -> bytes:
        return pb.DiscoveryRequest(
            type_url=self._type(api, heard),
            version_info=self._random.choice(("", "1", "odd")),
            resource_names=self._names(),
            resource_locators=self._locators(),
            **self._node(heard),
            **self._answer(heard),
        ).SerializeToString()

    def _delta(self, api: Api, heard: dict[str, Any]) -> bytes:
        versions = dict.fromkeys(self._names(), "1") if self._random.random() < 0.2 else {}
        return pb.DeltaDiscoveryRequest(
            type_url=self._type(api, heard),
            resource_names_subscribe=self._names(),
            resource_names_unsubscribe=self._names() if self._random.random() < 0.3 else [],
            resource_locators_subscribe=self._locators(),
            resource_locators_unsubscribe=self._locators(),
            initial_resource_versions=versions,
            **self._node(heard),
            **self._answer(heard),
        ).SerializeToString()

    def _loads(self, heard: dict[str, Any]) -> bytes:
        request = lrs.LoadStatsRequest(**self._node(heard))
        for name in self._names()[:5]:
            stats = request.cluster_stats.add(cluster_name=name, total_dropped_requests=self._random.randrange(1 << 40))
            stats.load_report_interval.seconds = self._random.choice((0, 1, 10_000))
            where = stats.upstream_locality_stats.add(total_successful_requests=self._random.randrange(1 << 40))
            where.locality.zone = self._random.choice(("a", "b", ""))
        return request.SerializeToString()


# -- the run


def talk(program: Program, config: Path, seconds: float, seed: int) -> tuple[dict[str, int], float]:
    """Have all of them talk, and edit a file meanwhile. Returns what was said, and the memory of the first quarter."""
    command = [sys.executable, "-m", "fuzz", "live", "talk", program.address, str(seconds), str(seed)]
    warm, start, edits = 0.0, time.monotonic(), 0
    edited = config.with_name("edited")
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as talkers:
        try:
            while talkers.poll() is None:
                time.sleep(0.5)
                edits += 1
                edited.write_text(EDITED.format(1 + edits % 7))
                edited.replace(config / "edited.yaml")
                if not warm and time.monotonic() > start + seconds / 4:
                    warm = program.memory()
                program.text()
                if time.monotonic() > start + seconds + 60:
                    raise Broken(f"{program.name}: the talkers do not end: nobody answers them")
            if talkers.returncode or talkers.stdout is None:
                raise Broken(f"the talkers ended with {talkers.returncode}")
            said: dict[str, int] = json.loads(talkers.stdout.read())
        finally:
            talkers.kill()
    return said, warm


async def talkers(address: str, seconds: float, seed: int) -> dict[str, int]:
    all_of_them = [Talker(address, seed * 1_000 + number) for number in range(TALKERS)]
    await asyncio.gather(*(each.run(time.monotonic() + seconds) for each in all_of_them))
    return dict(sum((Counter(each.said) for each in all_of_them), Counter()))


def served(address: str) -> float:
    """Seconds until a plain client has a cluster."""
    start = time.monotonic()
    request = pb.DiscoveryRequest(type_url=CLUSTER, resource_names=["shop"], node={"id": "two-plain"})
    with grpc.insecure_channel(address) as channel:
        said: SimpleQueue[bytes | None] = SimpleQueue()
        said.put(request.SerializeToString())
        responses = channel.stream_stream(f"/{V3.aggregated}/StreamAggregatedResources")(
            iter(said.get, None), timeout=10
        )
        try:
            found = pb.DiscoveryResponse.FromString(next(responses))
        except (grpc.RpcError, StopIteration) as error:
            raise Broken(f"a plain client is not served: {error!r}") from None
        finally:
            said.put(None)
        if len(found.resources) != 1:
            raise Broken(f"a plain client is not served: {found}")
        responses.cancel()
    return time.monotonic() - start


def shaken(program: Program, config: Path, seconds: float, seed: int) -> None:
    served(program.address)
    until(lambda: not program.gauges()["clients"], "the first client does not leave", 20)
    base = program.gauges()
    said, warm = talk(program, config, seconds, seed)
    delay = served(program.address)
    try:
        until(lambda: program.gauges() == base, "", 30)
    except Broken:
        raise Broken(f"{program.name}: the gauges are {program.gauges()}, and were {base}") from None
    after = program.memory()
    calls = ", ".join(f"{count} {kind}" for kind, count in sorted(said.items()))
    print(
        f"{program.name}: {calls}; a client is served after {delay * 1000:.0f} ms; {warm:.0f} MB, then {after:.0f} MB",
        flush=True,
    )
    if after > warm + GROWTH_MB:
        raise Broken(f"{program.name}: memory grew from {warm:.0f} to {after:.0f} MB")
    bad = [line for line in program.text().splitlines() if re.search(r"Traceback|ERROR|Error:|Exception", line)]
    if bad:
        raise Broken(f"{program.name}: its log has {len(bad)} errors; the first is\n{bad[0]}\n{program.text()[-3000:]}")


@contextlib.contextmanager
def running(name: str, folder: Path, *words: str | Path) -> Iterator[Program]:
    program = Program(name, folder, *words)
    try:
        yield program
    finally:
        program.stop()


def run(seconds: float, seed: int) -> None:
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        config = folder / "config"
        config.mkdir()
        for file in (ROOT / "examples/config").glob("*.yaml"):
            (config / file.name).write_bytes(file.read_bytes())
        (folder / "policy.yaml").write_text(POLICY)
        node_params = ["--node-params", "params.env,params.zone"]
        with running("serve", folder, "serve", config) as server:
            shaken(server, config, seconds, seed)
            uri = {"server_uri": server.address, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
            (folder / "bootstrap.json").write_text(json.dumps({"xds_servers": [uri], "node": {"id": "two-relay"}}))
            with running("relay", folder, "relay", "--bootstrap", folder / "bootstrap.json") as relay:
                shaken(relay, config, seconds, seed + 1)
        with running("policy", folder, "serve", config, "--policy", folder / "policy.yaml", *node_params) as server:
            shaken(server, config, seconds, seed + 2)


def main(words: list[str]) -> None:
    if words[:1] == ["talk"]:
        # In a process of its own, whose end ends its connections, in whatever state they are.
        print(json.dumps(asyncio.run(talkers(words[1], float(words[2]), int(words[3])))), flush=True)
        os._exit(0)
    seconds = float(words[0]) if words else 60.0
    seed = int(words[1]) if len(words) > 1 else int.from_bytes(os.urandom(3))
    try:
        run(seconds, seed)
    except Broken as error:
        raise SystemExit(f"live: {error}") from None
