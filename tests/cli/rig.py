"""`xdsprism serve` and `relay` in processes of their own, and the other commands in this one."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Queue
from typing import Any, Self

import grpc
import yaml
from click.testing import CliRunner, Result
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.support import web
from tests.support.forked import Forked
from tests.support.resources import Document
from tests.support.waiting import eventually
from xdsprism.cli.main import main

READY = re.compile(r"^xdsprism: ready listen=(\S+) admin=(\S+)(?: rest=\S+)?$", re.MULTILINE)
READY_JSON = re.compile(r'^{.*"message": "ready listen=(\S+) admin=([^\s"]+)(?: rest=[^\s"]+)?".*}$', re.MULTILINE)
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
FREE = "127.0.0.1:0"


def run(*args: object) -> Result:
    """A command, as typed; what it wrote to stdout and stderr apart."""
    root, own = logging.getLogger(), logging.getLogger("xdsprism")
    before = root.handlers[:], root.level, own.level
    try:
        return CliRunner().invoke(main, [str(arg) for arg in args], prog_name="xdsprism", catch_exceptions=False)
    finally:  # daemons set up the log, of tests that come later too
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        own.setLevel(before[2])


def write(folder: Path, file: str, *documents: Document) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{file}.yaml"
    draft = folder / f".{file}.draft"
    draft.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    draft.replace(path)
    return path


def environment(**more: str) -> dict[str, str]:
    """The child imports what the tests import, also where the package is not installed."""
    path = os.pathsep.join([*filter(None, [more.pop("first", "")]), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **more}


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "xdsprism", *map(str, args)]


def separately(*args: object) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, to its end."""
    return subprocess.run(command(*args), capture_output=True, text=True, env=environment(), timeout=60, check=False)


class Daemon:
    """`xdsprism serve`, or another daemon, until the block ends.

    It is a fork, unless the test is about how the program starts and ends: then it is `fresh`, an interpreter of its
    own.
    """

    def __init__(
        self,
        folder: Path,
        *args: object,
        listen: str = FREE,
        admin: str = FREE,
        verb: str = "serve",
        fresh: bool = False,
        first: str = "",
        files: int | None = None,
    ) -> None:
        """With `first`, a folder of modules that the program finds before all others; with `files`, how many it may
        have open."""
        self._log = folder / f"daemon-{time.monotonic_ns()}.log"
        self._args = [str(arg) for arg in (verb, *args, "--listen", listen, "--admin", admin)]
        self._environment = environment(first=first)
        self._fresh = fresh or bool(first) or files is not None
        self._before = [] if files is None else ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
        self.listen = self.admin = ""

    def __enter__(self) -> Self:
        self.process = self._start()
        try:
            eventually(self._is_ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> subprocess.Popen[bytes] | Forked:
        if not self._fresh:
            return Forked(self._args, self._log, self._environment)
        with self._log.open("wb") as sink:
            argv = [*self._before, *command(*self._args)]
            return subprocess.Popen(argv, stdout=sink, stderr=sink, env=self._environment)

    def __exit__(self, *_exc: object) -> None:
        self.process.kill()
        self.process.wait()

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.stderr
        found = READY.search(self.stderr) or READY_JSON.search(self.stderr)
        if found is not None:
            self.listen, self.admin = found.groups()
        return found is not None

    @property
    def rest(self) -> str:
        """Where it answers over HTTP, if it was started with `--rest`."""
        (address,) = re.findall(r"ready listen=\S+ admin=\S+ rest=([^\s\"]+)", self.stderr, re.MULTILINE)
        return str(address)

    @property
    def stderr(self) -> str:
        return self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.send(number)
        return self.process.wait(20)

    def page(self, path: str) -> Any:
        answer = web.get(*web.split(self.admin), path)
        assert answer.status == 200, answer
        return json.loads(answer.body)

    def metric(self, line: str) -> float:
        """The value of one series, named as it is exposed; 0 where it is not there yet."""
        answer = web.get(*web.split(self.admin), "/metrics")
        values = dict(each.rsplit(" ", 1) for each in answer.body.splitlines() if not each.startswith("#"))
        return float(values.get(line, 0))

    def get(self, *args: object) -> Result:
        return run("get", *args, "--server", self.listen)


def ask(address: str, type_url: str, name: str, **metadata: object) -> pb.DiscoveryResponse:
    """The first SotW answer to a plain name, for a node with this metadata."""
    with Plain(address, type_url, name, **metadata) as stream:
        return stream.read()


class Plain:
    """A SotW ADS stream by hand, as a client without dynamic parameters has it."""

    def __init__(self, address: str, type_url: str, name: str, **metadata: object) -> None:
        self._channel = grpc.insecure_channel(address)
        method = self._channel.stream_stream(
            ADS + "StreamAggregatedResources",
            request_serializer=pb.DiscoveryRequest.SerializeToString,
            response_deserializer=pb.DiscoveryResponse.FromString,
        )
        self._request = pb.DiscoveryRequest(type_url=type_url, resource_names=[name])
        first = pb.DiscoveryRequest(type_url=type_url, resource_names=[name])
        first.node.id = "plain"
        first.node.metadata.update(metadata)
        self._requests: Queue[pb.DiscoveryRequest | None] = Queue()
        self._requests.put(first)
        self._responses = method(iter(self._requests.get, None), timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._requests.put(None)
        self._responses.cancel()
        self._channel.close()

    def read(self) -> pb.DiscoveryResponse:
        return next(self._responses)

    def nack(self, response: pb.DiscoveryResponse, message: str) -> None:
        request = pb.DiscoveryRequest(response_nonce=response.nonce)
        request.MergeFrom(self._request)
        request.error_detail.code = 3
        request.error_detail.message = message
        self._requests.put(request)

    def ack(self, response: pb.DiscoveryResponse) -> None:
        request = pb.DiscoveryRequest(response_nonce=response.nonce, version_info=response.version_info)
        request.MergeFrom(self._request)
        self._requests.put(request)
