"""What a channel and its calls are secured with, read from the files that the bootstrap names, and read again.

Files are looked at only when a stream is about to be opened: a stream that is up does not need them, and nothing here
runs on its own. They are small and local, so reading them is not worth a thread.
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
from pathlib import Path
from typing import Any

import grpc

from ..errors import PeerError, UsageError
from .bootstrap import GOOGLE_DEFAULT, TLS, ServerConfig, TlsFiles

# A97: to allow for clocks that differ, and for the time that the server takes.
SKEW = 30.0
# A97: how long before that a token is looked for that lasts longer.
EARLY = 60.0

# gRPC's connection-backoff.md, without its jitter: a file is not a server that many clients could run into at once.
_BACKOFF, _BACKOFF_FACTOR, _BACKOFF_MOST = 1.0, 1.6, 120.0

_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

_JWT = re.compile(r"[\w-]+=*\.[\w-]+=*\.[\w-]*=*", re.ASCII)

# Where systems keep their roots, if OpenSSL does not know: gRPC's own list.
_SYSTEM_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
)


def checked_credentials(given: Any) -> Any:
    """The credentials that an application passed to its client. Raises UsageError where they are of another kind."""
    if given is not None and not isinstance(given, grpc.ChannelCredentials):
        raise UsageError(f"credentials: expected grpc.ChannelCredentials, got {type(given).__name__}")
    return given


class Access:
    """What it takes to get into one server, kept fresh. Times are given; `wall` is the clock that tokens expire by.

    given: grpc.ChannelCredentials of the application, for servers that the bootstrap names no channel_creds for.
    """

    def __init__(self, server: ServerConfig, wall: Callable[[], float] = time.time, given: Any = None) -> None:
        self._given = given if server.channel is None else None
        # BST-2: TLS with the system's roots where neither the bootstrap nor the application says anything.
        self.is_tls_by_default = server.channel is None and given is None
        kind = server.channel.type if server.channel is not None else TLS
        self._server = server
        self._tls = _Tls(server) if kind == TLS and self._given is None else None
        self._google: Any = None
        self._is_google = kind == GOOGLE_DEFAULT
        self._tokens = tuple(_Token(call.file, server.uri, wall) for call in server.calls)

    @property
    def channel_credentials(self) -> Any:
        """None for an insecure channel, otherwise grpc.ChannelCredentials. `renew` comes first."""
        if self._given is not None:
            return self._given
        if self._tls is not None:
            return self._tls.credentials
        if self._is_google and self._google is None:
            self._google = _google_default(self._server.uri)
        return self._google

    def renew(self, now: float) -> bool:
        """Look at the files, if it is time to. True: they are not what they were, so a new channel is needed.

        Raises PeerError where there is nothing to go on with; otherwise what was good last time stays in use.
        """
        return self._tls is not None and self._tls.renew(now)

    def metadata(self, now: float) -> tuple[tuple[str, str], ...]:
        """What the next call carries. Raises PeerError where a token is needed and there is none. BST-4, BST-5."""
        return tuple(("authorization", f"Bearer {token.get(now)}") for token in self._tokens)


# -- tls, as A65 has it


class _Broken(Exception):
    """A file, by its field in the bootstrap, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class _Pem:
    roots: bytes | None
    certificate: bytes | None
    key: bytes | None


class _Tls:
    def __init__(self, server: ServerConfig) -> None:
        self._uri = server.uri
        self._files = (server.channel.config if server.channel is not None else None) or TlsFiles()
        self._pem: _Pem | None = None
        self._credentials: Any = None
        self._next = -math.inf

    @property
    def credentials(self) -> Any:
        if self._credentials is None:  # None would be taken for "insecure"
            raise UsageError("the files of a tls channel have not been read yet: call renew() first")
        return self._credentials

    def renew(self, now: float) -> bool:
        """BST-3: look again once the interval is over.

        Our choice: a look that failed does not count, and the next stream looks again. Files are often replaced one
        after the other, and a stream may fall in between.
        """
        if now < self._next:
            return False
        try:
            pem = _read_pem(self._files)
        except _Broken as broken:
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
    """Read and check. gRPC would take any bytes and fail each handshake later, when the last good ones are gone.

    OpenSSL checks files, not bytes: what is read before and after that must be the same, or it was not what it checked.
    """
    before = _contents(files)
    _check(files)
    if _contents(files) != before:
        raise _Broken("files of tls.config changed while they were read")
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
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise _Broken(f"{field} {path}: {getattr(error, 'strerror', None) or error}") from None


def _check(files: TlsFiles) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca_certificate_file is not None:
        try:
            context.load_verify_locations(files.ca_certificate_file)
        except (OSError, ValueError) as error:
            raise _Broken(f"ca_certificate_file {files.ca_certificate_file}: no certificates in it ({error})") from None
    if files.certificate_file is not None:
        try:  # With a password, so that OpenSSL does not ask the terminal for one.
            context.load_cert_chain(files.certificate_file, files.private_key_file, password="")
        except (OSError, ValueError) as error:
            names = f"certificate_file {files.certificate_file}, private_key_file {files.private_key_file}"
            raise _Broken(f"{names}: not a certificate with its key ({error})") from None


def _system_roots(environ: Mapping[str, str] = os.environ) -> bytes | None:
    """A65: without a CA file it is the system's roots. gRPC for Python would take those that it brings along.

    None: gRPC's own, because there are no others, or because its own variable names a file.
    """
    if environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        return None
    for path in (ssl.get_default_verify_paths().cafile, *_SYSTEM_ROOTS):
        with suppress(OSError):
            if path is not None:
                return Path(path).read_bytes()
    return None


def _google_default(uri: str) -> Any:
    """Application default credentials over TLS. By name, since the package is optional."""
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
    """One token file. No full check of the token is made, that is the server's part; its end is needed to keep it."""

    def __init__(self, file: str, uri: str, wall: Callable[[], float]) -> None:
        self._file = file
        self._uri = uri
        self._wall = wall
        self._token = ""
        self._end = -math.inf  # by the wall clock; A97: all decisions are made with this, not with `exp`
        self._failure: PeerError | None = None
        self._delay = _BACKOFF
        self._retry = -math.inf

    def get(self, now: float) -> str:
        wall = self._wall()
        if wall >= self._end - EARLY and now >= self._retry:
            self._refresh(now)
        # Just read, it is sent whatever its end: whose clock is right is the server's to say (A97).
        if self._failure is not None and wall >= self._end:
            raise PeerError(self._failure.status, self._failure.message)
        return self._token

    def _refresh(self, now: float) -> None:
        try:
            self._token, self._end = self._read()
        except PeerError as error:
            self._failure = error
            self._retry = now + self._delay
            self._delay = min(self._delay * _BACKOFF_FACTOR, _BACKOFF_MOST)
        else:
            self._failure, self._delay, self._retry = None, _BACKOFF, -math.inf

    def _read(self) -> tuple[str, float]:
        named = f"no token for {self._uri}: jwt_token_file {self._file}"
        try:
            content = Path(self._file).read_bytes()
        except (OSError, ValueError) as error:
            raise PeerError("UNAVAILABLE", f"{named}: {getattr(error, 'strerror', None) or error}") from None
        try:
            token = content.strip().decode("ascii")
            return token, _expiry(token) - SKEW
        except (ValueError, OverflowError, RecursionError):  # Its text might hold a part of the token.
            raise PeerError("UNAUTHENTICATED", f"{named}: not a JWT with a number as its exp") from None


def _expiry(token: str) -> float:
    """Take `exp` out of a JWT (RFC 7519): three parts of base64url, the second is a JSON object."""
    if not _JWT.fullmatch(token):  # This also keeps line ends and the like out of a header.
        raise ValueError("no JWT")
    payload = token.split(".")[1].rstrip("=")
    claims = json.loads(base64.b64decode(payload + "=" * (-len(payload) % 4), b"-_", validate=True))
    end = claims.get("exp") if isinstance(claims, dict) else None
    if not isinstance(end, (int, float)) or isinstance(end, bool) or not math.isfinite(end):
        raise ValueError("no exp")
    return float(end)
