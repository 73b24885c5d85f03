"""`xdsprism get` with servers that are not ours, and do less, or nonsense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import grpc
import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.cli.rig import run
from xdsprism.cli import get as command

Serve = Callable[[bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server whose first answer to anything is these bytes (none: no answer), and that then stays silent."""
    over = Event()
    servers: list[grpc.Server] = []

    def start(answer: bytes) -> str:
        class Silent(grpc.GenericRpcHandler):  # type: ignore[misc]
            def service(self, _: Any) -> Any:
                return grpc.stream_stream_rpc_method_handler(self._answer)

            def _answer(self, requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
                next(requests)
                if answer:
                    yield answer
                over.wait(60)

        server = grpc.server(ThreadPoolExecutor(2), handlers=[Silent()])
        servers.append(server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return f"127.0.0.1:{port}"

    yield start
    over.set()
    for server in servers:
        server.stop(None).wait()


def _delta(*names: str, **fields: Any) -> bytes:
    response = pb.DeltaDiscoveryResponse(nonce="1")
    for name in names:
        resource = response.resources.add(name=name, version="1", **fields)
        resource.resource.Pack(Cluster(name=name))
    return response.SerializeToString()


def test_a_list_ends_when_a_server_falls_silent_that_does_not_say_so(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command, "QUIET", 0.2)
    done = run("get", "cds", "--server", serve(_delta("a", "b")), "-o", "name")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "cds/a\ncds/b\n", "")


def test_a_server_that_says_nothing_is_not_an_empty_one(serve: Serve):
    done = run("get", "cds", "--server", serve(b""), "--timeout", "0.3")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "no resources: no answer within 0.3 s\n")


@pytest.mark.parametrize("mode", ["--delta", "--sotw"])
def test_nonsense_is_told_and_is_status_1(serve: Serve, mode: str):
    address = serve(b"\xff\xff")
    done = run("get", "cds", mode, "--server", address)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: INTERNAL: {address} sent no discovery response: ")


# DYN-9
def test_constraints_that_are_none_are_told_and_are_status_1(serve: Serve):
    name = {"name": "a", "dynamic_parameter_constraints": {"constraint": {"value": "no key"}}}
    done = run("get", "cds", "a", "--server", serve(_delta("a", resource_name=name)))
    assert done.exit_code == 1
    assert "the constraints of 'a' are no constraints: a constraint has no key" in done.stderr


def test_a_type_whose_proto_is_not_installed_is_printed_as_base64(serve: Serve):
    response = pb.DeltaDiscoveryResponse(nonce="1")
    resource = response.resources.add(name="x", version="1")
    resource.resource.type_url, resource.resource.value = "type.googleapis.com/my.own.Thing", b"\x01\x02"
    done = run("get", "my.own.Thing", "x", "--server", serve(response.SerializeToString()))
    assert done.exit_code == 0
    assert "'@type': type.googleapis.com/my.own.Thing\n" in done.stdout
    assert "value: AQI=\n" in done.stdout
    assert "name: x\n" in done.stdout
