"""A daemon with few descriptors, and peers that take all that they can get."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.cli.rig import FREE, Daemon, Plain, write
from tests.cli.test_relay import bootstrap
from tests.http2.rig import PREFACE
from tests.support import web
from tests.support.resources import static_cluster
from tests.support.waiting import becomes, eventually
from xdsprism import CLUSTER
from xdsprism.http2 import frames
from xdsprism.http2.facts import HttpRefusal

FEW = 128  # of which 64 are for clients, 16 for the admin port, and the rest for files and the like
HELLO = PREFACE + frames.settings([])
HALF = b"GET / HTTP/1.1\r\nhost:"


@pytest.fixture
def small(tmp_path: Path, config: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path, config, "--rest", FREE, files=FEW) as daemon:
        yield daemon


def _connect(address: str, source: str) -> socket.socket:
    return socket.create_connection(web.split(address), 30, (source, 0))


def _open_files(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


@contextmanager
def _flood(address: str, source: str, words: bytes) -> Iterator[None]:
    """Connections of one address, some 600 in each second; the newest 400 are kept open."""
    over = threading.Event()

    def run() -> None:
        kept: list[socket.socket] = []
        while not over.is_set():
            with suppress(OSError):
                kept.append(_connect(address, source))
                kept[-1].send(words)
            if len(kept) > 400:
                kept.pop(0).close()
            time.sleep(1 / 600)
        for each in kept:
            each.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _edit_loads(daemon: Daemon, config: Path, name: str) -> None:
    write(config, name, static_cluster(name, "127.0.0.1", 1))
    page = f"/api/resources?type=cds&name={name}"
    becomes(lambda: daemon.page(page)["total"], 1)
    assert daemon.page("/api/config")["last_load"]["ok"]


# OPS-6, OPS-8
@pytest.mark.parametrize("words", [b"", HALF])
def test_with_every_port_full_of_silent_peers_pages_answer_and_edits_load(small: Daemon, config: Path, words: bytes):
    with ExitStack() as stack:
        for host in (2, 3):
            for _ in range(60):
                stack.enter_context(_connect(small.listen, f"127.0.0.{host}")).send(HELLO)
        becomes(lambda: small.metric("xdsprism_connections"), FEW // 2)  # when those that are refused have gone
        for address in (small.admin, small.rest):
            for _ in range(100):
                stack.enter_context(_connect(address, "127.0.0.2")).send(words)
        _edit_loads(small, config, "first")
        assert small.page("/readyz") == {"status": "ready"}
        assert _open_files(small) < FEW
        assert all(eventually(lambda port=port: _refused(small, port)) for port in ("admin", "rest"))
    with Plain(small.listen, CLUSTER, "first") as stream:
        assert len(stream.read().resources) == 1
    assert "Too many open files" not in small.stderr


# OPS-6
@pytest.mark.parametrize("port", ["listen", "admin", "rest"])
def test_a_flood_of_connections_from_one_address_shuts_no_other_address_out(small: Daemon, config: Path, port: str):
    with _flood(getattr(small, port), "127.0.0.2", b""):
        eventually(lambda: "127.0.0.2" in small.stderr)  # the limit is met
        for number in range(5):
            _edit_loads(small, config, f"edit-{number}")
            assert _names(small, number) == [f"edit-{number}"]
            answer = web.post(small.rest, "/v3/discovery:clusters", b'{"resource_names": ["shop"]}')
            assert answer.status == 200
    assert "Too many open files" not in small.stderr


def _refused(daemon: Daemon, port: str) -> float:
    series = 'xdsprism_http_refused_connections_total{{port="{}",reason="{}"}}'
    return sum(daemon.metric(series.format(port, why)) for why in HttpRefusal)


def _names(daemon: Daemon, number: int) -> list[str]:
    with Plain(daemon.listen, CLUSTER, f"edit-{number}") as stream:
        answer: pb.DiscoveryResponse = stream.read()
    return [f"edit-{number}"] if answer.resources else []


# OPS-6, OPS-8
def test_a_relay_whose_port_is_full_writes_its_cache_all_the_same(tmp_path: Path, config: Path):
    cache = tmp_path / "cache.db"
    with Daemon(tmp_path, config) as server:
        named = ("--bootstrap", bootstrap(tmp_path, server.listen), "--cache", cache)
        with Daemon(tmp_path, *named, verb="relay", files=FEW) as relay:
            with Plain(relay.listen, CLUSTER, "shop") as first, ExitStack() as stack:
                assert len(first.read().resources) == 1
                for host in (2, 3):
                    for _ in range(100):
                        stack.enter_context(_connect(relay.listen, f"127.0.0.{host}")).send(HELLO)
                becomes(lambda: relay.metric("xdsprism_connections"), FEW // 2)
                both = static_cluster("shop", "127.0.0.1", 3), static_cluster("shop-next", "127.0.0.1", 2)
                write(config, "clusters", *both)
                assert len(first.read().resources) == 1
                assert _open_files(relay) < FEW
            relay.stop()
            assert "Too many open files" not in relay.stderr
    with Daemon(tmp_path, *named, verb="relay") as relay, Plain(relay.listen, CLUSTER, "shop") as again:
        (kept,) = again.read().resources
        (locality,) = Cluster.FromString(kept.value).load_assignment.endpoints
        assert locality.lb_endpoints[0].endpoint.address.socket_address.port_value == 3
