"""Provides the credentials of a channel and of its calls, and reads their files again when they may have changed.

The files that the bootstrap names are read only before a stream is opened: an open stream does not need them, and no
task runs here. They are small and local, so reading them in the event loop is fine.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import grpc

from ..errors import PeerError, UsageError
from ..file_reading import read_file
from .bootstrap import GOOGLE_DEFAULT, TLS, ServerConfig, TlsFiles

# A97: seconds by which a token is taken to expire early, for clocks that differ and for the server's processing time.
SKEW = 30.0
# A97: seconds before that at which the client looks for a newer token.
EARLY = 60.0

# gRPC's connection-backoff.md, without jitter: reading a local file puts no load on a server.
_BACKOFF, _BACKOFF_FACTOR, _MAX_BACKOFF = 1.0, 1.6, 120.0

_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

_JWT = re.compile(r"[\w-]+=*\.[\w-]+=*\.[\w-]*=*", re.ASCII)

# Where systems keep their root certificates, if OpenSSL does not know: gRPC's own list.
_SYSTEM_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
)


def checked_credentials(given: Any) -> Any:
    """Check the type of the credentials that a program passed to its client. Raises UsageError."""
    if given is not None and not isinstance(given, grpc.ChannelCredentials):
        raise UsageError(f"credentials: expected grpc.ChannelCredentials, got {type(given).__name__}")
    return given


class Access:
    """The credentials for one server, kept fresh. Callers pass the time; `wall` is the clock that tokens expire by.

    given: grpc.ChannelCredentials of the program, for servers without channel_creds in the bootstrap.
    """

    def __init__(self, server: ServerConfig, wall: Callable[[], float] = time.time, given: Any = None) -> None:
        self._given = given if server.channel is None else None
        # BST-2: TLS with the system's roots, if neither the bootstrap nor the program gives credentials.
        self.is_tls_by_default = server.channel is None and given is None
        kind = server.channel.type if server.channel is not None else TLS
        self._server = server
        self._tls = _Tls(server) if kind == TLS and self._given is None else None
        self._google: Any = None
        self._is_google = kind == GOOGLE_DEFAULT
        self._tokens = tuple(_Token(call.file, server.uri, wall) for call in server.calls)

    @property
    def channel_credentials(self) -> Any:
        """The grpc.ChannelCredentials, or None for an insecure channel. Call `renew` before."""
        if self._given is not None:
            return self._given
        if self._tls is not None:
            return self._tls.credentials
        if self._is_google and self._google is None:
            self._google = _google_default(self._server.uri)
        return self._google

    def renew(self, now: float) -> bool:
        """Read the files again, if it is time to. Return True if they changed, so that a new channel is needed.

        If they can't be read, the last valid credentials stay in use. Raises PeerError if there are none.
        """
        return self._tls is not None and self._tls.renew(now)

    def metadata(self, now: float) -> tuple[tuple[str, str], ...]:
        """Return the metadata of the next call. Raises PeerError if there is no valid token. BST-4, BST-5."""
        return tuple(("authorization", f"Bearer {token.get(now)}") for token in self._tokens)


# -- tls, as A65 has it


class _InvalidFileError(Exception):
    """A file can't be used: its field in the bootstrap, its path and the reason."""


@dataclass(frozen=True, slots=True)
class _Pem:
    """The contents of the files of a TLS identity."""

    roots: bytes | None
    certificate: bytes | None
    key: bytes | None


class _Tls:
    """Channel credentials of type `tls`, as A65 describes them."""

    def __init__(self, server: ServerConfig) -> None:
        self._uri = server.uri
        self._files = (server.channel.config if server.channel is not None else None) or TlsFiles()
        self._pem: _Pem | None = None
        self._credentials: Any = None
        self._next = -math.inf

    @property
    def credentials(self) -> Any:
        if self._credentials is None:  # returning None would mean "insecure"
            raise UsageError("the files of a tls channel have not been read yet: call renew() first")
        return self._credentials

    def renew(self, now: float) -> bool:
        """BST-3: read the files again once the interval is over.

        Our choice: if reading fails, the next stream tries again without waiting for the interval. Files are often
        replaced one after the other, and a stream may open in between.
        """
        if now < self._next:
            return False
        try:
            pem = _read_pem(self._files)
        except _InvalidFileError as broken:
            if self._pem is None:
                raise PeerError("UNAVAILABLE", f"no TLS to {self._uri}: {broken}") from None
            return False
        self._next = now + self._files.refresh_interval
        if pem == self._pem:
            return False
        self._pem = pem
        self._credentials = grpc.ssl_channel_credentials(pem.roots, pem.key, pem.certificate)
        return True


def _read_pem(files: TlsFiles) -> _Pem:
    """Read and check the files. gRPC would accept any bytes and fail each handshake, with the valid ones replaced.

    OpenSSL checks files, not bytes. So the files are read before and after its check; if the bytes differ, it may have
    checked other bytes.
    """
    before = _contents(files)
    _check(files)
    if _contents(files) != before:
        raise _InvalidFileError("files of tls.config changed while they were read")
    return before


def _contents(files: TlsFiles) -> _Pem:
    roots = _bytes("ca_certificate_file", files.ca_certificate_file)
    return _Pem(
        _system_roots() if roots is None else roots,
        _bytes("certificate_file", files.certificate_file),
        _bytes("private_key_file", files.private_key_file),
    )


def _bytes(field: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return read_file(path)
    except (OSError, ValueError) as error:
        raise _InvalidFileError(f"{field} {path}: {getattr(error, 'strerror', None) or error}") from None


def _check(files: TlsFiles) -> None:
    """Check with OpenSSL that the files hold certificates, and a key that fits."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca_certificate_file is not None:
        try:
            context.load_verify_locations(files.ca_certificate_file)
        except (OSError, ValueError) as error:
            raise _InvalidFileError(
                f"ca_certificate_file {files.ca_certificate_file}: no certificates in it ({error})"
            ) from None
    if files.certificate_file is not None:
        try:  # With a password, so that OpenSSL does not ask the terminal for one.
            context.load_cert_chain(files.certificate_file, files.private_key_file, password="")
        except (OSError, ValueError) as error:
            names = f"certificate_file {files.certificate_file}, private_key_file {files.private_key_file}"
            raise _InvalidFileError(f"{names}: not a certificate with its key ({error})") from None


def _system_roots(environ: Mapping[str, str] = os.environ) -> bytes | None:
    """A65: return the system's root certificates. gRPC for Python would use those that it ships.

    Returns None for gRPC's own roots: if the system has none, or if gRPC's environment variable names a file.
    """
    if environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        return None
    for path in (ssl.get_default_verify_paths().cafile, *_SYSTEM_ROOTS):
        with suppress(OSError):
            if path is not None:
                return read_file(path)
    return None


def _google_default(uri: str) -> Any:
    """Return application default credentials over TLS. The optional package is imported by name."""
    auth = import_module("google.auth")
    plugin = import_module("google.auth.transport.grpc").AuthMetadataPlugin
    request = import_module("google.auth.transport.requests").Request
    try:
        credentials, _ = auth.default(scopes=[_GOOGLE_SCOPE])
    except import_module("google.auth.exceptions").GoogleAuthError as error:
        raise PeerError("UNAUTHENTICATED", f"no google_default credentials for {uri}: {error}") from error
    calls = grpc.metadata_call_credentials(plugin(credentials, request()))
    return grpc.composite_channel_credentials(grpc.ssl_channel_credentials(), calls)


# -- jwt_token_file, as A97 has it


class _Token:
    """One token file. The server verifies the token; the client only reads its expiry, to know when to renew it."""

    def __init__(self, file: str, uri: str, wall: Callable[[], float]) -> None:
        self._file = file
        self._uri = uri
        self._wall = wall
        self._token = ""
        self._end = -math.inf  # wall time of the expiry minus SKEW; A97: decisions use this, not `exp`
        self._failure: PeerError | None = None
        self._delay = _BACKOFF
        self._retry = -math.inf

    def get(self, now: float) -> str:
        """Return the token, reading the file again if it expires soon. Raises PeerError."""
        wall = self._wall()
        if wall >= self._end - EARLY and now >= self._retry:
            self._refresh(now)
        # A token that was just read is sent even if it seems expired: this host's clock may be wrong (A97).
        if self._failure is not None and wall >= self._end:
            raise PeerError(self._failure.status, self._failure.message)
        return self._token

    def _refresh(self, now: float) -> None:
        try:
            self._token, self._end = self._read()
        except PeerError as error:
            self._failure = error
            self._retry = now + self._delay
            self._delay = min(self._delay * _BACKOFF_FACTOR, _MAX_BACKOFF)
        else:
            self._failure, self._delay, self._retry = None, _BACKOFF, -math.inf

    def _read(self) -> tuple[str, float]:
        named = f"no token for {self._uri}: jwt_token_file {self._file}"
        try:
            content = read_file(self._file)
        except (OSError, ValueError) as error:
            raise PeerError("UNAVAILABLE", f"{named}: {getattr(error, 'strerror', None) or error}") from None
        try:
            token = content.strip().decode("ascii")
            return token, _expiry(token) - SKEW
        except (ValueError, OverflowError, RecursionError):  # not shown, as its text may contain a part of the token
            raise PeerError("UNAUTHENTICATED", f"{named}: not a JWT with a number as its exp") from None


def _expiry(token: str) -> float:
    """Return `exp` of a JWT (RFC 7519): three parts of base64url, of which the second is a JSON object."""
    if not _JWT.fullmatch(token):  # this also keeps line ends and the like out of the header
        raise ValueError("no JWT")
    payload = token.split(".")[1].rstrip("=")
    claims = json.loads(base64.b64decode(payload + "=" * (-len(payload) % 4), b"-_", validate=True))
    end = claims.get("exp") if isinstance(claims, dict) else None
    if not isinstance(end, (int, float)) or isinstance(end, bool) or not math.isfinite(end):
        raise ValueError("no exp")
    return float(end)
