"""TLS for a server: which files, what is right with them, and what stays in use when they change.

Nothing here awaits; `renewal.py` does. What is read is checked whole, certificate, key and client CA together, so that
what is in use always belongs together; a change that is not right is told of, and changes nothing.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from types import MappingProxyType

from ..errors import ConfigError, Problem, UsageError
from .certificates import blocks, certificates

TRIES = 3  # where files change while they are read

# RFC 9113, section 9.2.2: of TLS 1.2 these, and none that the RFC forbids. Those of TLS 1.3 are all good.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

_ENCRYPTED = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")
_MISMATCH = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of PEM that a server is secured with. They are read again when they change.

    cert        the certificate, then those that lead from it to a root
    key         its key, not encrypted
    client_ca   if given, clients must have a certificate that leads to one in here
    """

    cert: AnyPath
    key: AnyPath
    client_ca: AnyPath | None = None

    def __post_init__(self) -> None:
        for path in (self.cert, self.key):
            if not isinstance(path, str | os.PathLike) or not os.fspath(path):
                raise UsageError("TLS needs both a certificate and its key, each a file")

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(os.fspath(path) for path in (self.cert, self.key, self.client_ca) if path is not None)


@dataclass(frozen=True, slots=True)
class Material:
    """What is in the files, checked, and as each engine wants it."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    valid: tuple[float, float]  # our own certificate, from when to when
    not_after: Mapping[str, float]  # by file, of the certificate in it that ends first
    h2: ssl.SSLContext = field(compare=False)
    http: ssl.SSLContext = field(compare=False)


def read_material(tls: Tls) -> Material:
    """Raises ConfigError: which file, what is wrong with it, what to do.

    OpenSSL takes a certificate and its key from files only: what they hold before and after that must be the same.
    """
    for _ in range(TRIES):
        before = _contents(tls)
        contexts = [_context(tls, before, protocol) for protocol in ("h2", "http/1.1")]
        if _contents(tls) == before:
            return _material(tls, before, contexts)
    raise _wrong(tls.cert, "it, or what belongs to it, is written to while it is read: try again when that is done")


def _material(tls: Tls, contents: Sequence[bytes], contexts: Sequence[ssl.SSLContext]) -> Material:
    certificate, key, *rest = contents
    (own, *_), client_ca = certificates(certificate), rest[0] if rest else None
    files = {tls.cert: certificate} | ({tls.client_ca: client_ca} if tls.client_ca and client_ca else {})
    ends = {os.fspath(path): [each.not_after for each in certificates(pem) if each] for path, pem in files.items()}
    return Material(
        certificate,
        key,
        client_ca,
        (own.not_before, own.not_after) if own else (-inf, inf),
        MappingProxyType({path: min(found) for path, found in ends.items() if found}),
        *contexts,
    )


def _unfit(material: Material, now: float) -> list[str]:
    """Why our own certificate is not good now."""
    begins, ends = material.valid
    if ends <= now:
        return [f"the certificate ended on {_date(ends)}: replace it, no client that looks will take it"]
    return [f"the certificate begins on {_date(begins)}: is the clock of this host right?"] if begins > now else []


def warnings(tls: Tls, material: Material, now: float) -> list[str]:
    """What clients will not like. It is used all the same: to have nothing for them would be no better."""
    cert = os.fspath(tls.cert)
    own = [f"{cert}: {text}" for text in _unfit(material, now)]
    old = {path: end for path, end in material.not_after.items() if end <= now and not (own and path == cert)}
    return own + [f"{path}: a certificate in it ended on {_date(end)}: replace it" for path, end in old.items()]


def renewed(tls: Tls, current: Material, now: float) -> Material | None:
    """What is in the files now, if that is something else. Raises ConfigError where what is in use should stay."""
    found = read_material(tls)
    if found == current:
        return None
    unfit = _unfit(found, now)
    if unfit and not _unfit(current, now):
        raise _wrong(tls.cert, unfit[0])
    return found


# -- the files


def _contents(tls: Tls) -> list[bytes]:
    return [_bytes(path) for path in tls.paths]


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise _wrong(path, "there is no such file") from None
    except PermissionError:
        raise _wrong(path, "can't be read: give the user that xdsprism runs as the right to") from None
    except (OSError, ValueError) as error:
        raise _wrong(path, f"can't be read: {getattr(error, 'strerror', None) or error}") from None


def _context(tls: Tls, contents: Sequence[bytes], protocol: str) -> ssl.SSLContext:
    certificate, key, *rest = contents
    _check_certificates(tls.cert, certificate)
    _check_key(tls.key, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # RFC 9113, section 9.2.1
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols([protocol])
    _load(context, tls)
    if tls.client_ca is not None:
        _trust(context, tls.client_ca, rest[0])
    return context


def _check_certificates(path: AnyPath, pem: bytes) -> None:
    if blocks(pem):
        return
    if pem[:1] == b"\x30":
        raise _wrong(path, f"is not PEM but DER: convert it with `openssl x509 -inform der -in {os.fspath(path)}`")
    raise _wrong(path, "there is no certificate in it: it should be PEM, with a line `-----BEGIN CERTIFICATE-----`")


def _check_key(path: AnyPath, pem: bytes) -> None:
    if any(mark in pem for mark in _ENCRYPTED):
        raise _wrong(path, f"the key is encrypted: decrypt it with `openssl pkey -in {os.fspath(path)}`")
    if b"PRIVATE KEY-----" not in pem:
        raise _wrong(path, "there is no private key in it: it should be PEM, with a line `-----BEGIN PRIVATE KEY-----`")


def _load(context: ssl.SSLContext, tls: Tls) -> None:
    try:  # with a password, so that OpenSSL does not ask the terminal for one
        context.load_cert_chain(tls.cert, tls.key, password="")
    except ssl.SSLError as error:
        if error.reason in _MISMATCH:
            message = f"the key does not belong to the first certificate in {os.fspath(tls.cert)}"
            raise _wrong(tls.key, message) from None
        message = f"OpenSSL does not take it with the key {os.fspath(tls.key)}: {error.reason or error}"
        raise _wrong(tls.cert, message) from None
    except (OSError, ValueError) as error:
        raise _wrong(tls.cert, f"can't be read with the key {os.fspath(tls.key)}: {error}") from None


def _trust(context: ssl.SSLContext, path: AnyPath, pem: bytes) -> None:
    _check_certificates(path, pem)
    try:
        context.load_verify_locations(cadata="\n".join(blocks(pem)))
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise _wrong(path, f"OpenSSL does not take the certificates in it: {reason}") from None
    context.verify_mode = ssl.CERT_REQUIRED


def _wrong(path: AnyPath, message: str) -> ConfigError:
    return ConfigError([Problem(message, os.fspath(path))])


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d at %H:%M UTC")
