"""Facts about connections, refused calls and TLS certificates, for metrics and logs.

The transport appends facts, and readers (observe/) count and log them, as they do with the facts of the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .codes import Code
from .limits import Limit


@dataclass(frozen=True, slots=True)
class Connected:
    """A client connected."""

    peer: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection ended."""

    peer: str
    seconds: float  # how long the connection lasted
    code: Code
    reason: str  # empty: the peer disconnected by itself, or after our GOAWAY


@dataclass(frozen=True, slots=True)
class Limited:
    """A peer exceeded a limit, which ended one stream or the connection."""

    peer: str
    limit: Limit
    code: Code
    connection: bool  # the connection ended, not one stream


class Cause(StrEnum):
    """Why a connection never got to HTTP/2: a label of metrics."""

    PLAIN = "plain"  # the client spoke plain text to a port that needs TLS
    TLS = "tls"  # the client spoke TLS to a port that has none
    HTTP1 = "http1"  # the client spoke HTTP/1, as browsers do
    NO_CERTIFICATE = "no_certificate"  # the client sent no certificate
    UNTRUSTED = "untrusted"  # our client CA does not verify the client's certificate
    DISTRUST = "distrust"  # the client rejected our certificate with an alert
    TIMEOUT = "timeout"
    LEFT = "left"  # the client closed the connection; some clients do so instead of sending the alert above
    ALPN = "alpn"  # TLS did not agree on h2
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class HandshakeFailed:
    """A connection ended before its TLS handshake or its HTTP/2 preface was complete."""

    peer: str
    cause: Cause
    why: str
    port: str = "xds"  # or `admin` or `rest`


class RefusalCause(StrEnum):
    """Why the server can never serve a call like this one: a label of metrics."""

    METHOD = "method"  # the server has no such gRPC method
    NOT_GRPC = "not_grpc"  # the request is not a gRPC call


@dataclass(frozen=True, slots=True)
class CallRefused:
    """A client made a call that the server can never serve."""

    peer: str
    cause: RefusalCause
    why: str  # the method, or a description of the request


class HttpRefusal(StrEnum):
    """Why the server refused or ended a connection to the admin or REST port: a label of metrics."""

    CONNECTIONS = "connections"  # the port has as many connections as it may have
    ADDRESS = "address"  # the client's address has as many as it may have
    HANDSHAKES = "handshakes"  # too many connections have just begun, in all or from the client's address
    EVICTED = "evicted"  # it was idle when a new connection needed its slot
    SILENT = "silent"  # it never sent a request
    HEADER = "header"  # it did not send the rest of a request header in time
    UNREAD = "unread"  # it did not read the response, or too slowly


@dataclass(frozen=True, slots=True)
class HttpConnectionRefused:
    """The server refused or ended a connection to one of its HTTP/1 ports."""

    peer: str
    port: str  # `admin` or `rest`
    why: HttpRefusal


class RequestRefusal(StrEnum):
    """Why the admin or REST port refused a request: a label of metrics."""

    HOST = "host"  # its Host header names another server
    PAGE = "page"  # a web page sent it
    NO_TOKEN = "no_token"  # noqa: S105 # no password
    WRONG_TOKEN = "wrong_token"  # noqa: S105 # no password


@dataclass(frozen=True, slots=True)
class HttpRequestRefused:
    """One of the server's HTTP/1 ports refused a request for who sent it."""

    peer: str
    port: str  # `admin` or `rest`
    why: RequestRefusal


@dataclass(frozen=True, slots=True)
class CertificatesInUse:
    """The server uses these certificates for new connections from now on."""

    not_after: Mapping[str, float]  # by file: when the first certificate in it expires, in seconds since the epoch
    uses: Mapping[str, float] = field(default_factory=dict)  # the same by use: `server` or `client_ca`
    ports: tuple[str, ...] = ()  # that use them: `xds`, `rest` or `admin`


@dataclass(frozen=True, slots=True)
class CertificatesRefused:
    """The certificate files changed and are not usable: the certificates in use stay."""

    why: str


Fact = (
    Connected
    | Disconnected
    | Limited
    | HandshakeFailed
    | CallRefused
    | HttpConnectionRefused
    | HttpRequestRefused
    | CertificatesInUse
    | CertificatesRefused
)
