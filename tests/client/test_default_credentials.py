"""What secures a channel where the bootstrap says nothing: the application's credentials, or TLS (BST-2, gRFC A30)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism as xp
from tests.support.certificates import Authority
from tests.support.waiting import PATIENCE


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def roots(authority: Authority) -> Path:
    return authority.certificate


@pytest.fixture
def credentials(authority: Authority) -> Any:
    """What an application has that trusts the authority."""
    return grpc.ssl_channel_credentials(authority.pem)


@pytest.fixture(autouse=True)
def system_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)


@pytest.fixture
async def server(authority: Authority) -> AsyncIterator[xp.Server]:
    pair = authority.make("server")
    async with xp.Server(_store(), listen="127.0.0.1:0", tls=xp.Tls(pair.certificate, pair.key)) as running:
        yield running


@pytest.fixture
def secured(server: xp.Server) -> str:
    return server.address


@pytest.fixture
async def plain() -> AsyncIterator[str]:
    async with xp.Server(_store(), listen="127.0.0.1:0") as running:
        yield running.address


def _store() -> xp.Store:
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(Cluster(name="a"))
    return store


def _entry(address: str, **fields: Any) -> dict[str, Any]:
    return {"server_uri": address, "server_features": ["xds_v3"], **fields}


async def _get(address: str, credentials: Any = None, **fields: Any) -> str:
    source = {"xds_servers": [_entry(address, **fields)], "node": {"id": "me"}}
    async with xp.Client(source, credentials=credentials) as client:
        return (await client.get(xp.CLUSTER, "a", timeout=PATIENCE)).name


async def _failure(address: str, credentials: Any = None, **fields: Any) -> str:
    with pytest.raises(xp.WatchError) as caught:
        await _get(address, credentials, **fields)
    assert caught.value.status == "UNAVAILABLE"
    return caught.value.message


# BST-2
async def test_without_channel_creds_it_is_tls_with_the_roots_of_the_system(
    secured: str, roots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 'channel_creds of type "tls" with its ca_certificate_file' in await _failure(secured)
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    assert await _get(secured) == "a"


# BST-2
async def test_without_channel_creds_no_plain_text_is_sent(plain: str) -> None:
    told = await _failure(plain)
    assert told.startswith(f"{plain}: ")
    assert 'if it speaks plain text, add "channel_creds": [{"type": "insecure"}]' in told
    assert await _get(plain, channel_creds=[{"type": "insecure"}]) == "a"


# BST-2
async def test_an_unreachable_server_gets_no_advice_about_plain_text() -> None:
    assert "channel_creds" not in await _failure("127.0.0.1:1")


# BST-2
async def test_credentials_of_the_application_are_used_where_the_bootstrap_names_none(
    secured: str, plain: str, credentials: Any
) -> None:
    assert await _get(secured, credentials) == "a"
    assert "channel_creds" not in await _failure(plain, credentials)  # TLS was asked for


# BST-2
async def test_the_bootstrap_counts_more_than_the_application(plain: str, secured: str, credentials: Any) -> None:
    assert await _get(plain, credentials, channel_creds=[{"type": "insecure"}]) == "a"
    assert "handshake" in (await _failure(secured, credentials, channel_creds=[{"type": "tls"}])).lower()


# BST-2
async def test_load_reports_go_the_same_way(server: xp.Server, credentials: Any) -> None:
    source = {"xds_servers": [_entry(server.address)], "node": {"id": "me"}}
    async with asyncio.timeout(PATIENCE), xp.Client(source, credentials=credentials) as client:
        client.loads().cluster("a").dropped()
        while not server.hub.reports.clients(0.0):  # noqa: ASYNC110 # nobody tells of it
            await asyncio.sleep(0.01)


# BST-2
def test_only_channel_credentials_are_taken() -> None:
    calls = grpc.access_token_call_credentials("token")
    with pytest.raises(xp.UsageError, match=r"expected grpc.ChannelCredentials, got CallCredentials"):
        xp.Client({"xds_servers": [_entry("h:1")]}, credentials=calls)
