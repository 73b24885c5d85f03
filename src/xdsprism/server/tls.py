"""Reads and checks the TLS files of a server, and decides whether a change of them is used.

Nothing here awaits; `certificate_renewal.py` does. Certificate, key and client CA are checked together, so that the
ones in use always belong together. A change that fails a check is reported, and the files in use stay.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from types import MappingProxyType

from ..errors import ConfigError, Problem, UsageError
from ..file_reading import read_file
from .certificates import Certificate, blocks, certificates

# A certificate that is not renewed is worth a warning in the last part of its life, which is long for long-lived ones.
LAST_PART = 0.1
LONGEST = 30 * 86400.0  # seconds before the end at most

TRIES = 3  # reads of files that change while they are read

# RFC 9113, section 9.2.2 forbids other cipher suites of TLS 1.2. All of TLS 1.3 are allowed.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

_ENCRYPTED = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")
_MISMATCH = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Tls:
    """The PEM files that secure a server. The server reads them again when they change.

    cert        the server's certificate, followed by its chain of intermediates
    key         its private key, not encrypted
    client_ca   if given, clients must have a certificate that one of these CAs signed
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
    """The contents of the files, checked, and the SSL contexts made of them."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    valid: tuple[float, float]  # when the server's own certificate begins and expires, in seconds since the epoch
    not_after: Mapping[str, float]  # by file, when the first certificate in it expires
    soon: Mapping[str, float]  # by file, from when on to warn that the first certificate in it expires
    h2: ssl.SSLContext = field(compare=False)
    http: ssl.SSLContext = field(compare=False)


def read_material(tls: Tls) -> Material:
    """Read and check the files. Raises ConfigError: which file, what is wrong with it, and what to do.

    OpenSSL reads a certificate and its key only from files. So the contents before and after it reads must be equal;
    otherwise the files are read again.
    """
    for _ in range(TRIES):
        before = _contents(tls)
        contexts = [_context(tls, before, protocol) for protocol in ("h2", "http/1.1")]
        if _contents(tls) == before:
            return _material(tls, before, contexts)
    raise _problem(tls.cert, "the TLS files changed while they were read: try again when they are complete")


def _material(tls: Tls, contents: Sequence[bytes], contexts: Sequence[ssl.SSLContext]) -> Material:
    certificate, key, *rest = contents
    (own, *_), client_ca = certificates(certificate), rest[0] if rest else None
    files = {tls.cert: certificate} | ({tls.client_ca: client_ca} if tls.client_ca and client_ca else {})
    read = {os.fspath(path): [each for each in certificates(pem) if each] for path, pem in files.items()}
    firsts = {path: min(found, key=lambda each: each.not_after) for path, found in read.items() if found}
    return Material(
        certificate,
        key,
        client_ca,
        (own.not_before, own.not_after) if own else (-inf, inf),
        MappingProxyType({path: first.not_after for path, first in firsts.items()}),
        MappingProxyType({path: _soon(first) for path, first in firsts.items()}),
        *contexts,
    )


def _soon(certificate: Certificate) -> float:
    """Return from when on a certificate is about to expire."""
    lifetime = certificate.not_after - certificate.not_before
    return certificate.not_after - min(lifetime * LAST_PART, LONGEST)


def _validity_problem(material: Material, now: float) -> list[str]:
    """Return why the server's own certificate is not valid now, as a list of at most one text."""
    begins, ends = material.valid
    if ends <= now:
        return [f"the certificate expired on {_date(ends)}: replace it, since clients that verify it refuse it"]
    if begins > now:
        return [f"the certificate is not valid before {_date(begins)}: replace it, or check the clock of this host"]
    return []


def expiry_warnings(tls: Tls, material: Material, now: float) -> list[str]:
    """Return warnings about certificates that have expired, or will soon.

    The server uses expired ones even so: to serve nothing would be no better.
    """
    cert = os.fspath(tls.cert)
    own = [f"{cert}: {text}" for text in _validity_problem(material, now)]
    old = {path: end for path, end in material.not_after.items() if end <= now and not (own and path == cert)}
    late = {path: end for path, end in material.not_after.items() if material.soon[path] <= now < end}
    return [
        *own,
        *(f"{path}: a certificate in it expired on {_date(end)}: replace it" for path, end in old.items()),
        *(f"{path}: a certificate in it expires soon, on {_date(end)}: replace it" for path, end in late.items()),
    ]


def next_warning(material: Material, now: float) -> float:
    """Return when `expiry_warnings` will say more than now; infinity if never."""
    times = [*material.soon.values(), *material.not_after.values()]
    return min((each for each in times if each > now), default=inf)


def read_renewed(tls: Tls, current: Material, now: float) -> Material | None:
    """Read the files again. Return None if nothing changed. Raises ConfigError if the material in use should stay."""
    found = read_material(tls)
    if found == current:
        return None
    problem = _validity_problem(found, now)
    if problem and not _validity_problem(current, now):
        raise _problem(tls.cert, problem[0])
    return found


# -- the files


def _contents(tls: Tls) -> list[bytes]:
    return [_bytes(path) for path in tls.paths]


def _bytes(path: str) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        raise _problem(path, "there is no such file") from None
    except PermissionError:
        raise _problem(path, "can't be read: give read permission to the user that runs xdsprism") from None
    except (OSError, ValueError) as error:
        raise _problem(path, f"can't be read: {getattr(error, 'strerror', None) or error}") from None


def _context(tls: Tls, contents: Sequence[bytes], protocol: str) -> ssl.SSLContext:
    """Make an SSL context for one ALPN protocol. Raises ConfigError."""
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
        raise _problem(path, f"is not PEM but DER: convert it with `openssl x509 -inform der -in {os.fspath(path)}`")
    raise _problem(path, "there is no certificate in it: it should be PEM, with a line `-----BEGIN CERTIFICATE-----`")


def _check_key(path: AnyPath, pem: bytes) -> None:
    if any(mark in pem for mark in _ENCRYPTED):
        raise _problem(path, f"the key is encrypted: decrypt it with `openssl pkey -in {os.fspath(path)}`")
    if b"PRIVATE KEY-----" not in pem:
        raise _problem(
            path, "there is no private key in it: it should be PEM, with a line `-----BEGIN PRIVATE KEY-----`"
        )


def _load(context: ssl.SSLContext, tls: Tls) -> None:
    """Load certificate and key into a context. Raises ConfigError."""
    try:  # an empty password, so that OpenSSL does not prompt for one
        context.load_cert_chain(tls.cert, tls.key, password="")
    except ssl.SSLError as error:
        if error.reason in _MISMATCH:
            message = f"the key does not belong to the first certificate in {os.fspath(tls.cert)}"
            raise _problem(tls.key, message) from None
        message = f"OpenSSL does not accept it with the key {os.fspath(tls.key)}: {error.reason or error}"
        raise _problem(tls.cert, message) from None
    except (OSError, ValueError) as error:
        raise _problem(tls.cert, f"can't be read with the key {os.fspath(tls.key)}: {error}") from None


def _trust(context: ssl.SSLContext, path: AnyPath, pem: bytes) -> None:
    """Demand client certificates that these CAs signed. Raises ConfigError."""
    _check_certificates(path, pem)
    try:
        context.load_verify_locations(cadata="\n".join(blocks(pem)))
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise _problem(path, f"OpenSSL does not accept the certificates in it: {reason}") from None
    context.verify_mode = ssl.CERT_REQUIRED


def _problem(path: AnyPath, message: str) -> ConfigError:
    return ConfigError([Problem(message, os.fspath(path))])


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d at %H:%M UTC")
