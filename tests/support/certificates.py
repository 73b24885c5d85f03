"""Certificates for tests: each its own authority, or made by one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = ("DNS:localhost", "IP:127.0.0.1")
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def identity(folder: Path, name: str, names: Iterable[str] = HERE) -> tuple[Path, Path]:
    """A certificate, by default for localhost, and its key."""
    return _make(folder, name, names)


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path

    @property
    def pem(self) -> tuple[bytes, bytes]:
        """As grpc takes it: the key first."""
        return self.key.read_bytes(), self.certificate.read_bytes()

    def put(self, certificate: Path, key: Path) -> None:
        """In place of what is there, each at once, as programs that renew certificates do it."""
        for made, place in ((self.certificate, certificate), (self.key, key)):
            draft = place.with_name(f".{place.name}.draft")
            draft.write_bytes(made.read_bytes())
            draft.replace(place)


class Authority:
    """Whoever trusts it trusts what it makes."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = name
        self.certificate, self._key = _make(folder, name, (), extra=("-addext", "basicConstraints=critical,CA:TRUE"))

    @property
    def pem(self) -> bytes:
        return self.certificate.read_bytes()

    def make(self, name: str, names: Iterable[str] = HERE) -> Pair:
        signed = ("-CA", str(self.certificate), "-CAkey", str(self._key))
        return Pair(*_make(self._folder, f"{self._name}-{name}", names, common_name=name, extra=signed))


def _make(
    folder: Path, file: str, names: Iterable[str], *, common_name: str | None = None, extra: Iterable[str] = ()
) -> tuple[Path, Path]:
    certificate, key = folder / f"{file}.pem", folder / f"{file}.key"
    subject = ["-subj", f"/CN={file if common_name is None else common_name}" if common_name != "" else "/O=nobody"]
    others = ",".join(names)
    subject += ["-addext", f"subjectAltName={others}"] if others else []
    files = ["-keyout", str(key), "-out", str(certificate)]
    argv = ["openssl", "req", "-x509", *_KEY, *subject, *extra, *files]
    subprocess.run(argv, check=True, capture_output=True)
    return certificate, key
