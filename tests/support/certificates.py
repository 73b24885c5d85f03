"""Certificates for tests, each its own authority."""

from __future__ import annotations

import subprocess
from pathlib import Path


def identity(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for localhost and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *options, *names, *files], check=True, capture_output=True)
    return certificate, key
