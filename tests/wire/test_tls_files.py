"""The TLS files: their errors, the messages about them, and when a change is used."""

from __future__ import annotations

import asyncio
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Pair, identity
from tests.wire.rig import until
from xdsprism import ConfigError, Server, Store, Tls, UsageError
from xdsprism.file_watch import symlink_steps
from xdsprism.http2.facts import CertificatesInUse, CertificatesRefused, Fact
from xdsprism.server import tls
from xdsprism.server.certificate_renewal import CertificateRenewal
from xdsprism.server.tls import Material, expiry_warnings, read_material, read_renewed

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def files(tmp_path: Path) -> Tls:
    ca, _ = identity(tmp_path, "ca")
    return Tls(*identity(tmp_path, "server"), ca)


def wrong(files: Tls) -> str:
    with pytest.raises(ConfigError) as refused:
        read_material(files)
    (problem,) = refused.value.problems
    return f"{Path(problem.file).name}: {problem.message}"


def test_good_files_are_taken(files: Tls) -> None:
    material = read_material(files)
    assert material == read_material(files)
    assert set(material.not_after) == {os.fspath(files.cert), os.fspath(files.client_ca or "")}
    assert expiry_warnings(files, material, material.valid[0]) == []


def test_the_key_is_in_no_text(files: Tls) -> None:
    assert "PRIVATE" not in repr(read_material(files))


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem"])
def test_a_file_that_is_not_there(files: Tls, tmp_path: Path, name: str) -> None:
    (tmp_path / name).unlink()
    assert wrong(files) == f"{name}: there is no such file"


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem"])
def test_a_file_that_may_not_be_read(files: Tls, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may read everything, perhaps."""
    read = tls.read_file

    def refuse(path: str) -> bytes:
        if path == str(tmp_path / name):
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(tls, "read_file", refuse)
    assert wrong(files) == f"{name}: can't be read: give read permission to the user that runs xdsprism"


def test_a_directory(files: Tls, tmp_path: Path) -> None:
    (tmp_path / "server.key").unlink()
    (tmp_path / "server.key").mkdir()
    assert wrong(files) == "server.key: can't be read: it is a directory, and only regular files are read"


@pytest.mark.parametrize("name", ["server.pem", "ca.pem"])
def test_a_file_without_a_certificate_is_refused(files: Tls, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("hello\n")
    told = "there is no certificate in it: it should be PEM, with a line `-----BEGIN CERTIFICATE-----`"
    assert wrong(files) == f"{name}: {told}"


def test_a_certificate_in_der(files: Tls, tmp_path: Path) -> None:
    made = tmp_path / "server.pem"
    der = subprocess.run(["openssl", "x509", "-in", made, "-outform", "der"], check=True, capture_output=True).stdout
    made.write_bytes(der)
    assert wrong(files).startswith("server.pem: is not PEM but DER: convert it with `openssl x509 -inform der -in /")


@pytest.mark.parametrize("name", ["server.pem", "ca.pem"])
def test_a_certificate_that_is_cut_off_inside(files: Tls, tmp_path: Path, name: str) -> None:
    lines = (tmp_path / name).read_text().splitlines()
    (tmp_path / name).write_text("\n".join([*lines[:3], lines[-1]]))
    assert wrong(files).startswith(f"{name}: OpenSSL does not accept")


def test_a_file_without_a_key_is_refused(files: Tls, tmp_path: Path) -> None:
    (tmp_path / "server.key").write_bytes((tmp_path / "server.pem").read_bytes())
    told = "there is no private key in it: it should be PEM, with a line `-----BEGIN PRIVATE KEY-----`"
    assert wrong(files) == f"server.key: {told}"


@pytest.mark.parametrize("form", [[], ["-traditional"]], ids=["PKCS 8", "traditional"])
def test_a_key_that_is_encrypted(files: Tls, tmp_path: Path, form: list[str]) -> None:
    key = tmp_path / "server.key"
    secret = ["-aes256", "-passout", "pass:secret"]
    argv = ["openssl", "pkey", "-in", key, *form, *secret]
    key.write_bytes(subprocess.run(argv, check=True, capture_output=True).stdout)
    assert wrong(files) == f"server.key: the key is encrypted: decrypt it with `openssl pkey -in {key}`"


def test_the_key_of_another_certificate(files: Tls, tmp_path: Path) -> None:
    (tmp_path / "server.key").write_bytes((tmp_path / "ca.key").read_bytes())
    certificate = tmp_path / "server.pem"
    assert wrong(files) == f"server.key: the key does not belong to the first certificate in {certificate}"


def test_a_chain_in_the_wrong_order(files: Tls, tmp_path: Path) -> None:
    certificate = tmp_path / "server.pem"
    certificate.write_bytes((tmp_path / "ca.pem").read_bytes() + certificate.read_bytes())
    assert wrong(files) == f"server.key: the key does not belong to the first certificate in {certificate}"


def test_words_around_the_certificates_do_no_harm(files: Tls, tmp_path: Path) -> None:
    """Bundles are full of them."""
    for name in ("ca.pem", "server.pem"):
        bundle = tmp_path / name
        bundle.write_bytes("# Größte Authority\n".encode() + bundle.read_bytes() + b"\nthe end\n")
    read_material(files)


@pytest.mark.parametrize(("cert", "key"), [("", "a"), ("a", ""), (None, "a"), ("a", None)])
def test_a_certificate_and_its_key_go_together(cert: str | None, key: str | None) -> None:
    with pytest.raises(UsageError, match="both a certificate and its key"):
        Tls(cert, key)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["grpcio", "h2"])
async def test_a_server_does_not_start_on_bad_files(files: Tls, tmp_path: Path, engine: str) -> None:
    (tmp_path / "server.key").unlink()
    store = Store()
    server = Server(store, "127.0.0.1:0", engine=engine, tls=files)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"server\.key: there is no such file"):
        await server.start()
    assert store.listeners == []
    await server.stop()


# -- what is no good today


def test_an_expired_certificate_is_used_with_a_warning(files: Tls) -> None:
    material = read_material(files)
    later = material.valid[0] + 3 * DAY
    told = expiry_warnings(files, material, later)
    assert [text.split(": ")[0] for text in told] == [os.fspath(files.cert), os.fspath(files.client_ca or "")]
    assert [text.split(": ")[1].split(" on ")[0] for text in told] == [
        "the certificate expired",
        "a certificate in it expired",
    ]


def test_a_certificate_that_is_not_valid_yet_is_reported(files: Tls) -> None:
    material = read_material(files)
    (told,) = expiry_warnings(files, material, material.valid[0] - DAY)
    assert "check the clock of this host" in told


# -- when they change


def test_equal_files_are_no_change(files: Tls, tmp_path: Path) -> None:
    material = read_material(files)
    for path in files.paths:
        Path(path).write_bytes(Path(path).read_bytes())
    assert read_renewed(files, material, material.valid[0] + HOUR) is None
    Pair(*identity(tmp_path, "next")).put(tmp_path / "server.pem", tmp_path / "server.key")
    assert read_renewed(files, material, material.valid[0] + HOUR) == read_material(files)


def test_a_change_of_the_client_ca_is_one(files: Tls, tmp_path: Path) -> None:
    material = read_material(files)
    (tmp_path / "ca.pem").write_bytes(Authority(tmp_path, "another").pem)
    found = read_renewed(files, material, material.valid[0] + HOUR)
    assert found is not None
    assert found.client_ca != material.client_ca


def test_an_expired_certificate_does_not_replace_a_valid_one(files: Tls, tmp_path: Path) -> None:
    ended = read_material(files)
    now = ended.valid[0] + 3 * DAY
    lasting = replace(ended, valid=(ended.valid[0], now + DAY))
    Pair(*identity(tmp_path, "next")).put(tmp_path / "server.pem", tmp_path / "server.key")
    with pytest.raises(ConfigError, match=r"server\.pem: the certificate expired on"):
        read_renewed(files, lasting, now)
    assert read_renewed(files, ended, now) is not None, "neither is good, so it is the newer one"


def test_an_old_authority_among_others_is_no_reason_to_refuse_them(files: Tls, tmp_path: Path) -> None:
    """Our own certificate is what matters, and that is the same."""
    current = read_material(files)
    (tmp_path / "ca.pem").write_bytes((tmp_path / "ca.pem").read_bytes() + Authority(tmp_path, "new").pem)
    found = read_renewed(files, current, current.valid[0] + 3 * DAY)
    assert found is not None
    assert len(expiry_warnings(files, found, current.valid[0] + 3 * DAY)) == 2


def test_files_that_change_while_they_are_read_are_read_again(
    files: Tls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = Pair(*identity(tmp_path, "next"))
    read, reads = tls.read_file, []

    def swap(path: str) -> bytes:
        contents = read(path)
        reads.append(path)
        if len(reads) == 3:  # all of them, once
            monkeypatch.setattr(tls, "read_file", read)
            after.put(tmp_path / "server.pem", tmp_path / "server.key")
        return contents

    monkeypatch.setattr(tls, "read_file", swap)
    assert read_material(files).certificate == after.certificate.read_bytes()


class Watched:
    """What a server does about its files, without the server."""

    def __init__(self, files: Tls, now: float | None = None) -> None:
        self.secured: list[Material] = []
        self.facts: list[Fact] = []
        self.now = read_material(files).valid[0] + HOUR if now is None else now
        self.renewal = CertificateRenewal(files, self.secured.append, self.facts.extend, wall=lambda: self.now)
        self.renewal.quiet, self.renewal.retry = 0.05, 0.1

    @property
    def waits(self) -> bool:
        """All was looked at that there is."""
        return bool(self.renewal._wake._waiters)  # noqa: SLF001 # what waits can't be told from what works, but by this

    def count(self, kind: type[Fact]) -> int:
        return sum(isinstance(fact, kind) for fact in self.facts)


def test_a_server_starts_with_an_expired_certificate_and_warns(files: Tls, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(files, read_material(files).valid[0] + 3 * DAY)
    assert watched.renewal.load() == read_material(files)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert watched.count(CertificatesInUse) == 1


def warnings(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [text for text in found if word in text]


async def test_a_certificate_that_nears_its_end_is_one_warning_and_one_more_when_it_has_expired(  # OPS-14
    files: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    material = read_material(files)
    end, soon = min(material.not_after.values()), min(material.soon.values())
    assert DAY / 10 < end - soon < DAY / 4  # the last tenth of two days
    watched = Watched(files, soon - 0.2)
    watched.renewal.load()
    assert caplog.records == []
    running = asyncio.create_task(watched.renewal.run())
    await until(lambda: watched.waits)
    watched.now = soon + HOUR  # nobody tells it: it knows when to look
    await until(lambda: len(warnings(caplog, "expires soon, on ")) == 2)  # one for each file
    watched.renewal.check_now()
    await until(lambda: watched.waits)
    assert len(caplog.records) == 2
    watched.now = end + HOUR
    watched.renewal.check_now()
    await until(lambda: len(warnings(caplog, "expired on ")) == 2)
    running.cancel()
    assert len(caplog.records) == 4


async def test_a_fault_is_logged_once_and_again_after_its_repair(
    files: Tls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(files)
    watched.renewal.load()
    running = asyncio.create_task(watched.renewal.run())
    key = tmp_path / "server.key"
    good = key.read_bytes()
    for told in (1, 2):
        key.write_text("oops")
        await until(lambda: watched.count(CertificatesRefused) == told)  # noqa: B023 # it is over before the next
        watched.renewal.check_now()
        key.write_text("oops")
        (tmp_path / "ca.pem").write_bytes(Authority(tmp_path, f"another{told}").pem)
        key.write_bytes(good)
        await until(lambda: len(watched.secured) == told)  # noqa: B023
    running.cancel()
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == watched.count(CertificatesRefused) == 2
    assert all(str(key) in error for error in errors)


async def test_a_certificate_that_has_not_begun_is_taken_when_it_does(files: Tls, tmp_path: Path) -> None:
    """The clocks of those who make certificates are not always ours."""
    watched = Watched(files)
    watched.renewal.load()
    early = watched.now - DAY
    watched.now, began = early, watched.now
    watched.renewal._current = replace(watched.renewal._current, valid=(early, began + DAY))  # noqa: SLF001 # no tool makes a certificate of the future
    running = asyncio.create_task(watched.renewal.run())
    Pair(*identity(tmp_path, "next")).put(tmp_path / "server.pem", tmp_path / "server.key")
    await until(lambda: watched.count(CertificatesRefused) == 1)
    assert watched.secured == []
    watched.now = began
    await until(lambda: watched.secured)
    running.cancel()


async def test_a_directory_that_is_swapped_as_a_whole_is_noticed(tmp_path: Path) -> None:
    """By a symlink, as tools have it that deploy one release beside the other."""
    for release in ("v1", "v2"):
        (tmp_path / release).mkdir()
        identity(tmp_path / release, "server")
    (tmp_path / "current").symlink_to("v1")
    watched = Watched(Tls(tmp_path / "current" / "server.pem", tmp_path / "current" / "server.key"))
    watched.renewal.load()
    running = asyncio.create_task(watched.renewal.run())
    await until(lambda: watched.waits)
    (tmp_path / "next").symlink_to("v2")
    (tmp_path / "next").rename(tmp_path / "current")
    await until(lambda: watched.secured)
    running.cancel()
    assert watched.secured[0].certificate == (tmp_path / "v2" / "server.pem").read_bytes()


# -- where to look


def test_every_link_on_the_way_is_looked_at(tmp_path: Path) -> None:
    """As certbot has it, and a directory that is swapped as a whole."""
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "a.pem").touch()
    (tmp_path / "current").symlink_to("v1")
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "a.pem").symlink_to(tmp_path / "current" / "a.pem")
    found = {path.relative_to(tmp_path).as_posix() for path in symlink_steps([str(tmp_path / "live" / "a.pem")])}
    assert found == {"live/a.pem", "current", "v1/a.pem"}


def test_links_in_a_circle_have_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert {path.name for path in symlink_steps([str(tmp_path / "a")])} == {"a", "b"}
