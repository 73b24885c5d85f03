"""TLS on both engines: accepted clients, their identities, and certificates that change while the server runs."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from prometheus_client import CollectorRegistry

from tests.support.certificates import Authority, Pair
from tests.wire.rig import DELTA, OPTIONS, PATIENCE, cluster, put, until
from xdsprism import CLUSTER, ConfigError, Server, Store, Tls
from xdsprism.admin.read_model import clients
from xdsprism.observe.connection_metrics import CertificateMetrics
from xdsprism.observe.logs import FactLog
from xdsprism.server import certificate_renewal
from xdsprism.server.tls import Material, read_renewed
from xdsprism.server.xds_call import Connected

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

SPIFFE = "spiffe://prod.example.com/envoy"
NAMES = (f"URI:{SPIFFE}", "DNS:envoy.example.com")


class Site:
    """A server, its files, and whoever trusts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.tls = Tls(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
        self.renew("first")
        self.trust(self.authority)
        self.client = self.authority.make("client", NAMES)
        self.store = Store()
        put(self.store, cluster("a"))
        self.registry = CollectorRegistry()
        self._metrics = CertificateMetrics(self.registry)
        self.server = self.make_server(self.tls)

    def make_server(self, tls: Tls, listen: str = "127.0.0.1:0") -> Server:
        server = Server(self.store, listen, tls=tls)
        server.connection_readers.append(self._metrics)
        return server

    def renew(self, name: str) -> None:
        self.authority.make(name).put(self.folder / "tls.crt", self.folder / "tls.key")

    def trust(self, *authorities: Authority) -> None:
        draft = self.folder / ".ca.draft"
        draft.write_bytes(b"".join(each.pem for each in authorities))
        draft.replace(self.folder / "ca.crt")

    def loads(self, result: str) -> float:
        return self.registry.get_sample_value("xdsprism_tls_loads_total", {"result": result}) or 0.0

    @asynccontextmanager
    async def stream(self, client: Pair | None, **options: Any) -> AsyncIterator[Line]:
        credentials = grpc.ssl_channel_credentials(self.authority.pem, *(client.pem if client else (None, None)))
        async with grpc.aio.secure_channel(self.server.address, credentials, options=OPTIONS) as channel:
            yield Line(channel.stream_stream(DELTA, None, None)(timeout=PATIENCE, **options))

    async def serves(self, client: Pair | None) -> bool:
        """Whether somebody who comes now gets what there is."""
        async with self.stream(client) as line:
            try:
                return await line.ask("a")
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return False

    async def shown(self) -> str:
        """Whose certificate those get who come now."""
        host, _, port = self.server.address.rpartition(":")
        pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)), timeout=PATIENCE)
        return next(
            path.stem for path in self.folder.glob("authority-*.pem") if path.read_text().strip() == pem.strip()
        )


class Line:
    """A stream by hand."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self._node = {"node": {"id": "test"}}

    async def ask(self, name: str) -> bool:
        request = pb.DeltaDiscoveryRequest(type_url=CLUSTER, resource_names_subscribe=[name], **self._node)
        self._node = {}
        await self.call.write(request.SerializeToString())
        answer = pb.DeltaDiscoveryResponse.FromString(await self.call.read())
        return [each.name for each in answer.resources] == [name]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    async with made.server:
        yield made


def only(server: Server) -> Connected:
    (found,) = server.hub.connected()
    return found


@contextmanager
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What is logged as one."""
    found: list[str] = []
    yield found
    found += [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


# -- who gets in


async def test_a_client_is_known_by_its_certificate(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.server.hub.readers.append(FactLog())
    async with site.stream(site.client, metadata=(("authorization", "Bearer abc"), ("x", "y"))) as line:
        assert await line.ask("a")
        peer = only(site.server).peer
        assert peer.identities == (SPIFFE, "envoy.example.com")
        assert peer.authorization == (), "without a jwks nobody verifies the token, so nobody keeps it (OPS-14)"
        assert "abc" not in repr(peer)
        (row,) = clients(site.server.hub.connected(), 0.0, 0.0).rows
        assert row["identities"] == [SPIFFE, "envoy.example.com"]
        assert any(f" as {SPIFFE} (DeltaAggregatedResources)" in text for text in caplog.messages)


@pytest.mark.parametrize("who", ["nobody", "a stranger"])
async def test_a_client_without_a_certificate_of_the_authority_is_refused(site: Site, tmp_path: Path, who: str) -> None:
    stranger = Authority(tmp_path, "elsewhere").make("client") if who == "a stranger" else None
    async with site.stream(site.client) as line:
        assert await line.ask("a")
        assert not await site.serves(stranger)
        put(site.store, cluster("b"))
        assert await line.ask("b"), "the others are served as ever"
    assert await site.serves(site.client)


async def test_without_a_client_ca_no_certificate_is_requested(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.server = site.make_server(Tls(site.tls.cert, site.tls.key))
    async with site.server, site.stream(site.client) as line:
        assert await line.ask("a")
        assert only(site.server).peer.identities == ()


async def test_on_a_plain_port_there_are_no_identities(store: Store) -> None:
    async with Server(store, "127.0.0.1:0") as server, grpc.aio.insecure_channel(server.address) as channel:
        call = channel.stream_stream(DELTA, None, None)(metadata=(("authorization", "Bearer abc"),))
        await call.write(pb.DeltaDiscoveryRequest(type_url=CLUSTER, node={"id": "test"}).SerializeToString())
        await until(server.hub.connected)
        assert only(server).peer.identities == ()
        assert only(server).peer.authorization == ()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize("version", ["TLSv1_1", "TLSv1_2", "TLSv1_3"])
async def test_versions_of_tls(site: Site, version: str) -> None:
    context = ssl.create_default_context(cafile=str(site.authority.certificate))
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(site.client.certificate, site.client.key)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # or OpenSSL itself would refuse the old ones
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    host, _, port = site.server.address.rpartition(":")
    if version == "TLSv1_1":
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
        return
    _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
    agreed = writer.get_extra_info("ssl_object")
    assert agreed.selected_alpn_protocol() == "h2"
    assert agreed.cipher()[0].startswith(("ECDHE-ECDSA-AES", "ECDHE-ECDSA-CHACHA", "TLS_AES", "TLS_CHACHA"))
    writer.close()


# -- certificates that change


async def test_new_connections_get_the_new_certificate_and_the_old_ones_stay(site: Site) -> None:
    async with site.stream(site.client) as line:
        assert await line.ask("a")
        assert await site.shown() == "authority-first"
        site.renew("second")
        await until(lambda: site.loads("ok") == 2)
        assert await site.shown() == "authority-second"
        assert await site.serves(site.client)
        put(site.store, cluster("b"))
        assert await line.ask("b")


async def test_a_broken_pair_changes_nothing_and_is_reported(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with errors(caplog) as told:
        (site.folder / "tls.key").write_text("oops")
        await until(lambda: site.loads("refused") == 1)
    assert len(told) == 1
    assert f"the last good ones stay: {site.folder / 'tls.key'}: there is no private key in it" in told[0]
    assert await site.shown() == "authority-first"
    assert await site.serves(site.client)
    site.renew("second")
    await until(lambda: site.loads("ok") == 2)
    assert await site.shown() == "authority-second"


async def test_a_certificate_and_its_key_may_come_one_after_the_other(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = site.authority.make("second")
    refusals: list[ConfigError] = []

    def look(*args: Any) -> Material | None:
        try:
            return read_renewed(*args)
        except ConfigError as error:
            refusals.append(error)
            raise

    monkeypatch.setattr(certificate_renewal, "read_renewed", look)
    with errors(caplog) as told:
        (site.folder / "tls.crt").write_bytes(second.certificate.read_bytes())
        await until(lambda: refusals)
        (site.folder / "tls.key").write_bytes(second.key.read_bytes())
        await until(lambda: site.loads("ok") == 2)
    assert told == []
    assert site.loads("refused") == 0


async def test_an_authority_that_is_trusted_no_more(site: Site) -> None:
    other = Authority(site.folder, "next")
    successor = other.make("client", NAMES)
    async with site.stream(site.client) as line:
        assert await line.ask("a")
        site.trust(site.authority, other)
        await until(lambda: site.loads("ok") == 2)
        assert await site.serves(site.client)
        assert await site.serves(successor)
        site.trust(other)
        await until(lambda: site.loads("ok") == 3)
        assert not await site.serves(site.client)
        assert await site.serves(successor)
        put(site.store, cluster("b"))
        assert await line.ask("b"), "who is in stays in"


async def test_a_mounted_secret_that_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Kubernetes: the files are symlinks through `..data`, which is renamed over."""
    site = Site(tmp_path)
    mounted = tmp_path / "mounted"
    mounted.mkdir()

    def mount(version: str, pair: Pair) -> None:
        contents = mounted / f"..{version}"
        contents.mkdir()
        pair.put(contents / "tls.crt", contents / "tls.key")
        (mounted / "..data_tmp").symlink_to(contents.name)
        (mounted / "..data_tmp").rename(mounted / "..data")

    mount("1", site.authority.make("first"))
    for name in ("tls.crt", "tls.key"):
        (mounted / name).symlink_to(Path("..data") / name)
    site.server = site.make_server(Tls(mounted / "tls.crt", mounted / "tls.key"))
    async with site.server:
        for count, name in enumerate(("second", "third"), start=2):
            mount(name, site.authority.make(name))
            await until(lambda: site.loads("ok") == count)  # noqa: B023 # it is over before the next
            assert await site.shown() == f"authority-{name}"


async def test_the_end_of_each_certificate_is_a_metric(site: Site) -> None:
    for file in (site.tls.cert, site.tls.client_ca):
        end = site.registry.get_sample_value("xdsprism_tls_certificate_not_after_seconds", {"file": str(file)})
        assert end is not None
        assert end > 1_700_000_000


async def test_a_look_can_be_asked_for(site: Site) -> None:
    """SIGHUP, for disks that tell nobody of changes."""
    site.renew("second")
    site.server.renew()
    await until(lambda: site.loads("ok") == 2)


# -- the end


async def test_a_stop_ends_streams_over_tls_cleanly(site: Site) -> None:
    async with site.stream(site.client) as line:
        assert await line.ask("a")
        await site.server.stop()
        assert await line.call.read() is grpc.aio.EOF
        assert await line.call.code() is grpc.StatusCode.OK


async def test_the_next_server_has_the_port_at_once(site: Site) -> None:
    address = site.server.address
    await site.server.stop()
    site.server = site.make_server(site.tls, address)
    async with site.server:
        assert await site.serves(site.client)
