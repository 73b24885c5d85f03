"""`--admin` points at something that is not the admin port: every command says what it is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.elsewhere import Serve
from tests.cli.rig import FREE, Daemon, run

RIGHT = "the address after admin= in the line `xdsprism: ready` is the admin port"
COMMANDS = pytest.mark.parametrize(
    "command", [["status"], ["status", "envoy-1"], ["explain", "rds", "main"], ["confirm"]], ids=" ".join
)


class _Other(BaseHTTPRequestHandler):
    """An HTTP server that has JSON at every path, such as a metrics agent."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"clients": [], "total": 0}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Other)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@COMMANDS
def test_an_http_server_that_is_not_ours(other: str, command: list[str]):
    done = run(*command, "--admin", other)
    text = f"{other} answers HTTP, but is not the admin port of a server or relay of xdsprism: {RIGHT}"
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"Error: {text}\n")


@COMMANDS
def test_the_xds_port(shared: Daemon, command: list[str]):
    done = run(*command, "--admin", shared.listen)
    text = (
        f"no answer from the admin port {shared.listen}: what came is not HTTP/1; it speaks HTTP/2, as the port for xDS"
    )
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"Error: {text} does: {RIGHT}\n")


def test_the_port_of_another_grpc_server(serve: Serve):
    assert "it speaks HTTP/2, as the port for xDS does" in run("status", "--admin", serve().address).stderr


def test_the_rest_port(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, "--rest", FREE) as daemon:
        assert "is not the admin port of a server or relay" in run("status", "--admin", daemon.rest).stderr


def test_what_is_no_http_at_all():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"220 mail.example.com ESMTP\r\n")
                connection.recv(4096)

        thread = threading.Thread(target=greet)
        thread.start()
        done = run("status", "--admin", address)
        thread.join()
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: no answer from the admin port {address}: what came is not HTTP/1")
