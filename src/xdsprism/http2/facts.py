"""What happened to connections, and to what secures them. Metrics and logs read these, as they do those of the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .codes import Code
from .limits import Limit


@dataclass(frozen=True, slots=True)
class Connected:
    peer: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    peer: str
    seconds: float  # that it lasted
    code: Code
    reason: str  # empty: the peer left, or was asked to


@dataclass(frozen=True, slots=True)
class Limited:
    """A peer met a limit, and one stream or the connection ended of it."""

    peer: str
    limit: Limit
    code: Code
    connection: bool  # all of it, not one stream


class Cause(StrEnum):
    """Why there was no connection to speak on: a label of metrics."""

    PLAIN = "plain"  # spoken to a port that wants TLS
    TLS = "tls"  # spoken to a port that has none
    HTTP1 = "http1"  # spoken, as by a browser
    NO_CERTIFICATE = "no_certificate"  # of the client
    UNTRUSTED = "untrusted"  # is the one that it has
    DISTRUST = "distrust"  # of the client, in ours
    TIMEOUT = "timeout"
    LEFT = "left"  # or distrusts us: some clients say no more than that
    ALPN = "alpn"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class HandshakeFailed:
    peer: str
    cause: Cause
    why: str


class Wrong(StrEnum):
    """Why a call can't be served by anybody here: a label of metrics."""

    METHOD = "method"  # there is no such
    NOT_GRPC = "not_grpc"  # but another kind of request


@dataclass(frozen=True, slots=True)
class CallRefused:
    peer: str
    wrong: Wrong
    why: str  # the method, or what the request is


class Dismissal(StrEnum):
    """Why a connection to the admin or REST port was refused, or ended before its peer wanted: a label of metrics."""

    CONNECTIONS = "connections"  # there were as many as may be
    ADDRESS = "address"  # or as many of its address
    EVICTED = "evicted"  # it asked for nothing, and made room for another
    SILENT = "silent"  # it never asked for anything
    HEADER = "header"  # its header did not end
    UNREAD = "unread"  # it did not read its answer, or too slowly


@dataclass(frozen=True, slots=True)
class Dismissed:
    peer: str
    port: str  # which of the ports, in a word
    why: Dismissal


@dataclass(frozen=True, slots=True)
class Secured:
    """Certificates are in use from now on."""

    not_after: Mapping[str, float]  # by file


@dataclass(frozen=True, slots=True)
class NotRenewed:
    """The files changed, and not for the better: what was in use stays."""

    why: str


Fact = Connected | Disconnected | Limited | HandshakeFailed | CallRefused | Dismissed | Secured | NotRenewed
