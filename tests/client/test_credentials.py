"""Credentials: which files are read when, what of them is used, and that real channels get them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc.aio
import pytest

from xdsprism.client import credentials
from xdsprism.client.bootstrap import CallCreds, ChannelCreds, ServerConfig, TlsFiles
from xdsprism.client.credentials import Access
from xdsprism.client.transport import Ended, GrpcTransport
from xdsprism.errors import PeerError, UsageError

PATIENCE = 60.0  # seconds; only a failing test ever waits this long
METHOD = "/test.Who/AmI"


@dataclass
class Clock:
    """Two clocks that go when they are told to: the loop's, and the one on the wall."""

    now: float = 1_000.0
    wall: float = 1_800_000_000.0

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@dataclass(frozen=True)
class Identity:
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Identity]:
    """A certificate that vouches for itself, one per name."""
    folder = tmp_path_factory.mktemp("identities")

    def make(name: str) -> Identity:
        made = Identity(folder / f"{name}.pem", folder / f"{name}.key")
        if not made.certificate.exists():
            options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
            names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
            files = ["-keyout", str(made.key), "-out", str(made.certificate)]
            subprocess.run(["openssl", "req", "-x509", *options, *names, *files], check=True, capture_output=True)
        return made

    return make


@dataclass(frozen=True)
class Disk:
    """The files that a bootstrap names."""

    ca: Path
    certificate: Path
    key: Path
    token: Path

    def put(self, identity: Identity) -> None:
        shutil.copy(identity.certificate, self.certificate)
        shutil.copy(identity.key, self.key)

    def tls(self, uri: str = "h:1", *, calls: bool = False) -> ServerConfig:
        files = TlsFiles(str(self.ca), str(self.certificate), str(self.key), 600.0)
        return ServerConfig(uri, ChannelCreds("tls", files), self._calls if calls else ())

    def jwt(self) -> ServerConfig:
        return ServerConfig("h:1", ChannelCreds("tls", TlsFiles()), self._calls)

    @property
    def _calls(self) -> tuple[CallCreds, ...]:
        return (CallCreds("jwt_token_file", str(self.token)),)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "token")


@pytest.fixture
def alice(disk: Disk, identity: Callable[[str], Identity]) -> Disk:
    shutil.copy(identity("server").certificate, disk.ca)
    disk.put(identity("alice"))
    return disk


def token(end: object, *, mark: str = "a") -> str:
    return as_jwt(json.dumps({"exp": end, "mark": mark}).encode())


def as_jwt(payload: bytes) -> str:
    parts = (b'{"alg":"none"}', payload, b"signature")
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def bearer(value: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {value}"),)


# -- channels


def test_an_insecure_channel_has_no_credentials() -> None:
    access = Access(ServerConfig("h:1", ChannelCreds("insecure")))
    assert not access.renew(0)
    assert access.channel_credentials is None
    assert access.metadata(0) == ()


# BST-3
def test_tls_needs_no_files_of_its_own() -> None:
    access = Access(ServerConfig("h:1", ChannelCreds("tls", TlsFiles())))
    assert access.renew(0)
    assert isinstance(access.channel_credentials, grpc.ChannelCredentials)
    assert not access.renew(10_000)


def test_tls_never_passes_for_insecure_before_its_files_are_read(alice: Disk) -> None:
    with pytest.raises(UsageError, match="renew"):
        _ = Access(alice.tls()).channel_credentials


# BST-3
def test_files_are_read_again_once_the_interval_is_over(alice: Disk, identity: Callable[[str], Identity]) -> None:
    access = Access(alice.tls())
    assert access.renew(1_000)
    first = access.channel_credentials
    alice.put(identity("bob"))
    assert not access.renew(1_599)
    assert access.channel_credentials is first
    assert access.renew(1_600)
    assert access.channel_credentials is not first


# BST-3
def test_files_that_did_not_change_need_no_new_channel(alice: Disk) -> None:
    access = Access(alice.tls())
    access.renew(1_000)
    first = access.channel_credentials
    alice.certificate.touch()
    assert not access.renew(1_600)
    assert access.channel_credentials is first


def remove(path: Path) -> None:
    path.unlink()


def spoil(path: Path) -> None:
    path.write_bytes(b"\x00 no PEM")


def empty(path: Path) -> None:
    path.write_bytes(b"")


# BST-3
@pytest.mark.parametrize("harm", [remove, spoil, empty])
@pytest.mark.parametrize("part", ["ca", "certificate", "key"])
def test_a_broken_file_is_an_error_at_first_and_later_the_last_good_one_stays(
    alice: Disk, identity: Callable[[str], Identity], part: str, harm: Callable[[Path], None]
) -> None:
    field = {"ca": "ca_certificate_file", "certificate": "certificate_file", "key": "private_key_file"}[part]
    path: Path = getattr(alice, part)
    running = Access(alice.tls())
    running.renew(1_000)
    good, kept = running.channel_credentials, path.read_bytes()
    harm(path)

    starting = Access(alice.tls("far:1"))
    with pytest.raises(PeerError) as caught:
        starting.renew(1_000)
    assert caught.value.status == "UNAVAILABLE"
    assert f"{field} {path}" in caught.value.message
    assert "far:1" in caught.value.message
    assert not running.renew(1_600)
    assert running.channel_credentials is good

    path.write_bytes(kept)
    assert starting.renew(1_000)
    alice.put(identity("bob"))
    assert running.renew(1_601)  # a look that failed does not count
    assert running.channel_credentials is not good


# BST-3
def test_a_key_of_another_certificate_is_not_used(alice: Disk, identity: Callable[[str], Identity]) -> None:
    access = Access(alice.tls())
    access.renew(1_000)
    good = access.channel_credentials
    shutil.copy(identity("bob").certificate, alice.certificate)
    assert not access.renew(1_600)
    assert access.channel_credentials is good
    shutil.copy(identity("bob").key, alice.key)
    assert access.renew(1_600)


ON_A_TERMINAL = """
import os, sys
from xdsprism.client.bootstrap import ChannelCreds, ServerConfig, TlsFiles
from xdsprism.client.credentials import Access
from xdsprism.errors import PeerError
os.open(os.ttyname(0), os.O_RDWR)  # becomes the one that is asked for passwords
try:
    Access(ServerConfig("h:1", ChannelCreds("tls", TlsFiles(*sys.argv[1:])))).renew(0)
except PeerError as error:
    print(error)
"""


def test_an_encrypted_key_is_refused_without_a_password_prompt(alice: Disk) -> None:
    command = ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", str(alice.key), "-out", str(alice.token)]
    subprocess.run(command, check=True, capture_output=True)
    files = (str(alice.ca), str(alice.certificate), str(alice.token))
    ours, theirs = os.openpty()
    ended = subprocess.run(
        [sys.executable, "-c", ON_A_TERMINAL, *files],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
        stdin=theirs,
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
        timeout=60,
    )
    assert ended.stdout.startswith("UNAVAILABLE: no TLS to h:1: certificate_file ")
    os.set_blocking(ours, False)
    with pytest.raises(BlockingIOError):  # nothing was written there
        os.read(ours, 100)
    os.close(theirs)
    os.close(ours)


def test_files_that_change_while_they_are_read_are_not_used(
    alice: Disk, identity: Callable[[str], Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(alice.tls())
    access.renew(1_000)
    good = access.channel_credentials
    alice.put(identity("bob"))
    read = credentials.read_file

    def read_then_change(path: str) -> bytes:
        content = read(path)
        if path == str(alice.key):
            alice.put(identity("carol"))
        return content

    with monkeypatch.context() as patch:
        patch.setattr(credentials, "read_file", read_then_change)
        assert not access.renew(1_600)
    assert access.channel_credentials is good
    assert access.renew(1_600)


# -- google_default


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What is used of google-auth, which is no dependency of this project."""
    auth, exceptions = ModuleType("google.auth"), ModuleType("google.auth.exceptions")
    plugin, requests = ModuleType("google.auth.transport.grpc"), ModuleType("google.auth.transport.requests")
    auth.default = lambda scopes: (scopes, "project")  # type: ignore[attr-defined]
    exceptions.GoogleAuthError = type("GoogleAuthError", (Exception,), {})  # type: ignore[attr-defined]
    plugin.AuthMetadataPlugin = lambda credentials, request: lambda context, callback: None  # type: ignore[attr-defined]
    requests.Request = object  # type: ignore[attr-defined]
    for made in (auth, exceptions, plugin, requests, ModuleType("google.auth.transport")):
        monkeypatch.setitem(sys.modules, made.__name__, made)
    return auth


def test_google_default_is_made_once_from_the_library(google: ModuleType) -> None:
    access = Access(ServerConfig("h:1", ChannelCreds("google_default")))
    assert not access.renew(0)
    made = access.channel_credentials
    assert isinstance(made, grpc.ChannelCredentials)
    assert access.channel_credentials is made


def test_google_default_without_an_account_is_an_error_of_the_stream(google: ModuleType) -> None:
    def default(scopes: list[str]) -> Any:
        raise sys.modules["google.auth.exceptions"].GoogleAuthError("no account")

    google.default = default  # type: ignore[attr-defined]
    with pytest.raises(PeerError, match="no google_default credentials for h:1: no account") as caught:
        _ = Access(ServerConfig("h:1", ChannelCreds("google_default"))).channel_credentials
    assert caught.value.status == "UNAUTHENTICATED"


# -- tokens


# BST-4, BST-5
def test_a_token_is_read_once_and_kept_until_shortly_before_its_end(disk: Disk, clock: Clock) -> None:
    access = Access(disk.jwt(), lambda: clock.wall)
    first, second = token(clock.wall + 3_600), token(clock.wall + 7_200, mark="b")
    disk.token.write_text(f"\n {first}\n")
    assert access.metadata(clock.now) == bearer(first)
    disk.token.write_text(second)
    clock.pass_by(3_600 - 30 - 60 - 1)
    assert access.metadata(clock.now) == bearer(first)
    clock.pass_by(1)  # A97: a minute before the end of its use, which is 30 s before the end of the token
    assert access.metadata(clock.now) == bearer(second)


# BST-5
def test_a_token_is_used_until_30_seconds_before_its_end_where_no_other_is_there(disk: Disk, clock: Clock) -> None:
    access = Access(disk.jwt(), lambda: clock.wall)
    only = token(clock.wall + 3_600)
    disk.token.write_text(only)
    access.metadata(clock.now)
    disk.token.unlink()
    clock.pass_by(3_600 - 30 - 1)
    assert access.metadata(clock.now) == bearer(only)
    clock.pass_by(1)
    with pytest.raises(PeerError) as caught:
        access.metadata(clock.now)
    assert caught.value.status == "UNAVAILABLE"


# BST-5
def test_a_token_that_was_just_read_is_sent_whatever_its_end(disk: Disk, clock: Clock) -> None:
    access = Access(disk.jwt(), lambda: clock.wall)
    for mark in ("a", "b"):  # and it is not kept
        late = token(clock.wall - 1, mark=mark)
        disk.token.write_text(late)
        assert access.metadata(clock.now) == bearer(late)


# BST-5
def test_a_token_file_that_cannot_be_read_is_unavailable(disk: Disk, clock: Clock) -> None:
    with pytest.raises(PeerError) as caught:
        Access(disk.jwt(), lambda: clock.wall).metadata(clock.now)
    assert caught.value.status == "UNAVAILABLE"
    assert f"no token for h:1: jwt_token_file {disk.token}: No such file" in caught.value.message


# BST-5
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"secret",
        b"secret.secret",
        b"secret.secret.secret",
        b"a.b.c.d",
        b"\xff.\xff.\xff",
        as_jwt(b"[1]").encode(),
        as_jwt(b"{").encode(),
        as_jwt(b"{}").encode(),
        as_jwt(b'{"exp": ' + b"[" * 100_000 + b"]" * 100_000 + b"}").encode(),
        token("1800000000").encode(),
        token(True).encode(),
        token(None).encode(),
        token(float("inf")).encode(),
        token(10**400).encode(),
        token(1_800_003_600).replace(".", ".\n", 1).encode(),
        token(1_800_003_600).encode() + b"\r\nx-admin: secret",
    ],
)
def test_a_file_without_a_token_that_ends_is_unauthenticated_and_not_shown(
    disk: Disk, clock: Clock, content: bytes
) -> None:
    disk.token.write_bytes(content)
    with pytest.raises(PeerError) as caught:
        Access(disk.jwt(), lambda: clock.wall).metadata(clock.now)
    assert caught.value.status == "UNAUTHENTICATED"
    assert str(disk.token) in caught.value.message
    assert "secret" not in caught.value.message


# BST-5
@pytest.mark.parametrize("end", [1_800_003_600, 1_800_003_600.5])
def test_a_token_may_end_at_a_fraction_of_a_second(disk: Disk, clock: Clock, end: float) -> None:
    disk.token.write_text(token(end))
    assert Access(disk.jwt(), lambda: clock.wall).metadata(clock.now) == bearer(token(end))


# BST-5
def test_after_a_failure_the_file_is_left_alone_for_longer_and_longer(disk: Disk, clock: Clock) -> None:
    access = Access(disk.jwt(), lambda: clock.wall)

    def status() -> str:
        with pytest.raises(PeerError) as caught:
            access.metadata(clock.now)
        return caught.value.status

    assert status() == "UNAVAILABLE"
    disk.token.write_text("no token")
    clock.pass_by(0.9)
    assert status() == "UNAVAILABLE"  # the last one, said again
    clock.pass_by(0.1)
    assert status() == "UNAUTHENTICATED"
    good = token(clock.wall + 3_600)
    disk.token.write_text(good)
    clock.pass_by(1.5)
    assert status() == "UNAUTHENTICATED"
    clock.pass_by(0.2)
    assert access.metadata(clock.now) == bearer(good)


# BST-5
def test_the_wait_after_failures_is_bounded_and_forgotten_after_a_success(disk: Disk, clock: Clock) -> None:
    access = Access(disk.jwt(), lambda: clock.wall)
    for _ in range(40):
        with pytest.raises(PeerError):
            access.metadata(clock.now)
        clock.pass_by(120)
    late = token(clock.wall - 1)
    disk.token.write_text(late)
    assert access.metadata(clock.now) == bearer(late)
    disk.token.unlink()
    with pytest.raises(PeerError):
        access.metadata(clock.now)
    disk.token.write_text(late)
    clock.pass_by(1)
    assert access.metadata(clock.now) == bearer(late)


# BST-4
def test_every_token_file_is_used(disk: Disk, clock: Clock, tmp_path: Path) -> None:
    other = tmp_path / "other"
    disk.token.write_text(token(clock.wall + 3_600))
    other.write_text(token(clock.wall + 60, mark="b"))
    calls = tuple(CallCreds("jwt_token_file", str(path)) for path in (disk.token, other))
    access = Access(ServerConfig("h:1", ChannelCreds("tls"), calls), lambda: clock.wall)
    assert access.metadata(clock.now) == (
        *bearer(token(clock.wall + 3_600)),
        *bearer(token(clock.wall + 60, mark="b")),
    )


# -- real channels


@dataclass
class Who:
    """A server that says who called: the name on the certificate, then the token."""

    address: str = ""
    connections: set[str] = field(default_factory=set)

    async def answer(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        self.connections.add(context.peer())
        names = context.auth_context().get("x509_common_name", [b"nobody"])
        tokens = [value for key, value in context.invocation_metadata() if key == "authorization"]
        yield names[0]
        yield ",".join(tokens).encode()
        async for _ in requests:
            pass


class EveryMethod(grpc.GenericRpcHandler):
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def service(self, handler_call_details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._answer)


@pytest.fixture
async def who(identity: Callable[[str], Identity]) -> AsyncIterator[Who]:
    who, own = Who(), identity("server")
    clients = b"".join(identity(name).certificate.read_bytes() for name in ("alice", "bob"))
    pair = (own.key.read_bytes(), own.certificate.read_bytes())
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((EveryMethod(who.answer),))
    own = grpc.ssl_server_credentials([pair], clients, require_client_auth=True)
    who.address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', own)}"
    await server.start()
    yield who
    await server.stop(None)


async def ask(transport: GrpcTransport) -> tuple[str, str]:
    async with asyncio.timeout(PATIENCE):
        stream = await transport.open(METHOD)
        answer = (await stream.receive()).decode(), (await stream.receive()).decode()
        stream.cancel()
    return answer


# BST-3, BST-4
async def test_a_renewed_certificate_is_shown_by_the_next_stream_and_the_token_arrives(
    who: Who, alice: Disk, identity: Callable[[str], Identity], clock: Clock
) -> None:
    value = token(4_000_000_000)
    alice.token.write_text(value)
    transport = GrpcTransport(alice.tls(who.address, calls=True), lambda: clock.now)
    assert await ask(transport) == ("alice", f"Bearer {value}")
    alice.put(identity("bob"))
    clock.pass_by(599)
    assert await ask(transport) == ("alice", f"Bearer {value}")
    assert len(who.connections) == 1
    clock.pass_by(1)
    assert await ask(transport) == ("bob", f"Bearer {value}")
    assert len(who.connections) == 2
    await transport.close()


# BST-3
async def test_without_a_ca_file_the_roots_of_the_system_are_used(
    who: Who, alice: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    files = TlsFiles(None, str(alice.certificate), str(alice.key))
    config = ServerConfig(who.address, ChannelCreds("tls", files))
    strict = GrpcTransport(config, lambda: 0.0)
    with pytest.raises(Ended) as caught:
        await ask(strict)
    assert caught.value.status == "UNAVAILABLE"
    await strict.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(alice.ca))  # OpenSSL's own word for them
    trusting = GrpcTransport(config, lambda: 0.0)
    assert await ask(trusting) == ("alice", "")
    await trusting.close()


async def test_a_stream_without_its_token_is_never_opened(who: Who, alice: Disk) -> None:
    transport = GrpcTransport(alice.tls(who.address, calls=True), lambda: 0.0)
    with pytest.raises(PeerError) as caught:
        await ask(transport)
    assert caught.value.status == "UNAVAILABLE"
    assert not who.connections
