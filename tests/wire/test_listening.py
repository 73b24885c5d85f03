"""Listen addresses that can't be used: the error has the reason and the remedy."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.applications import Starlette

from xdsprism import Server, Store
from xdsprism.core.model.settings import Engine
from xdsprism.errors import XdsError
from xdsprism.server.http_port import HttpPort

PORTS = ["h2", "grpcio", "admin"]
LOW = (
    "permission denied: ports below 1024 need root or CAP_NET_BIND_SERVICE; "
    "take a higher port, or give the program that capability"
)


@pytest.fixture(params=PORTS)
def port(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def told(port: str, listen: str) -> str:
    """What is said of an address that can't be had."""
    engine: Engine = "grpcio" if port == "grpcio" else "h2"
    with pytest.raises(XdsError) as caught:
        if port == "admin":
            HttpPort(Starlette(), listen, "admin")
        else:
            async with Server(Store(), listen, engine=engine):
                pass
    text = str(caught.value)
    assert text.startswith(f"can't listen on {listen}{' for admin' if port == 'admin' else ''}: ")
    return text.partition(": ")[2]


@contextmanager
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield f"127.0.0.1:{other.getsockname()[1]}"


async def test_an_address_in_use(port: str) -> None:
    with taken() as listen:
        said = await told(port, listen)
    assert said == "the address is in use by another program; end that, or take another port (0: any that is free)"


HOLDER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], 0), family=family) as held:
    print(held.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(host: str) -> Iterator[tuple[str, int]]:
    """A port that another program has, and the id of that process."""
    holding = [sys.executable, "-c", HOLDER, host]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        yield other.stdout.readline().decode().strip(), other.pid
        other.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only the tables of Linux say who has a port")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_the_program_that_has_the_address_is_named(port: str, host: str) -> None:
    with held(host) as (number, process):
        said = await told(port, f"[::1]:{number}" if host == "::1" else f"{host}:{number}")
    assert said.startswith("the address is in use by another program: python")
    assert said.endswith(f" (process {process}); end that, or take another port (0: any that is free)")


async def test_an_address_of_another_machine(port: str) -> None:
    said = await told(port, "192.0.2.1:18000")  # RFC 5737: nobody's
    assert said == "192.0.2.1 is not an address of this machine; name one that is, or 0.0.0.0 for all"


async def test_a_host_that_is_unknown(port: str) -> None:
    said = await told(port, "no-such-host.invalid:18000")  # RFC 6761: there is none
    assert said.startswith("the host 'no-such-host.invalid' is unknown (")
    assert said.endswith("); name an address of this machine, or 0.0.0.0 for all")


def refuse(self: socket.socket, address: Any) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def refuse_as_grpc_does(self: Any, address: str, *_: object) -> int:
    raise RuntimeError(f"Failed to bind to address {address}; set GRPC_VERBOSITY=debug")


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:80", LOW),
        ("127.0.0.1:18000", "permission denied, by a rule of this machine for that port"),
    ],
)
async def test_a_port_that_needs_a_permission(
    port: str, listen: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "bind", refuse)
    monkeypatch.setattr("grpc.aio._server.Server.add_insecure_port", refuse_as_grpc_does)
    assert await told(port, listen) == expected


async def test_where_the_reason_is_unknown_the_error_quotes_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpc.aio._server.Server.add_insecure_port", refuse_as_grpc_does)
    assert (await told("grpcio", "127.0.0.1:0")).startswith("Failed to bind to address 127.0.0.1:0")
