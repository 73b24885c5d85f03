"""The REST port uses the same TLS settings as the xDS port."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Pair
from tests.wire.rig import PATIENCE, cluster, put, until
from xdsprism import Server, Store, Tls
from xdsprism.core.model.facts import Fact, Opened
from xdsprism.http2.facts import CertificatesInUse
from xdsprism.http2.facts import Fact as ConnectionFact

FREE = "127.0.0.1:0"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def server(store: Store, tmp_path: Path, authority: Authority) -> AsyncIterator[Server]:
    put(store, cluster("a"))
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    authority.make("first").put(*files)
    async with Server(store, FREE, rest=FREE, tls=Tls(*files, authority.certificate)) as running:
        yield running


async def fetch(server: Server, authority: Authority, client: Pair | None) -> tuple[int, str]:
    """Status, and the subject that the server shows."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.set_alpn_protocols(["h2", "http/1.1"])
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)

    def ask() -> tuple[int, str]:
        host, _, port = server.rest_address.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=PATIENCE)
        try:
            connection.request("POST", "/v3/discovery:clusters", b"{}")
            shown = dict(field[0] for field in connection.sock.getpeercert()["subject"])
            return connection.getresponse().status, shown["commonName"]
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def test_a_client_is_known_by_its_certificate(server: Server, authority: Authority) -> None:
    facts: list[Fact] = []
    server.hub.readers.append(facts.extend)
    assert await fetch(server, authority, authority.make("client", ("URI:spiffe://a/b",))) == (200, "first")
    await until(lambda: any(isinstance(fact, Opened) for fact in facts))
    assert [fact.identity for fact in facts if isinstance(fact, Opened)] == ["spiffe://a/b"]


async def test_a_client_without_a_certificate_is_refused(server: Server, authority: Authority) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await fetch(server, authority, None)


async def test_new_connections_get_the_new_certificate(server: Server, authority: Authority, tmp_path: Path) -> None:
    facts: list[ConnectionFact] = []
    server.connection_readers.append(facts.extend)
    authority.make("second").put(tmp_path / "tls.crt", tmp_path / "tls.key")
    await until(lambda: any(isinstance(fact, CertificatesInUse) for fact in facts))
    assert await fetch(server, authority, authority.make("client")) == (200, "second")
