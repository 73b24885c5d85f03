"""Protects the admin port: from web pages in the browsers of people who can reach it, and from who has no token.

- DNS rebinding: a page may make its own name resolve to this port's address, and has the same origin then. So the Host
  header of a request must be a name of this port.
- Cross-site requests: a page may send requests whose responses it can't read. So only a GET may come from another site.
- Embedding: response headers forbid using a response as a script, a style or a frame.
- Tokens: with a token file (tokens.py), a request needs one of its tokens, except for pages that say nothing about what
  is served. No error or log line repeats a token.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from ..http2.facts import Fact, HttpRequestRefused, RequestRefusal
from ..server.http_gate import error_answer, is_from_page, peer_of
from ..token_bucket import Rate, TokenBucket
from .dashboard import PATHS
from .tokens import Tokens

log = logging.getLogger("xdsprism")

# What needs no token: probes of an orchestrator have none, and the files of the dashboard, which asks for a token and
# sends it with its own requests, are the same for every server.
OPEN = frozenset({"/", *PATHS, "/healthz", "/readyz"})
METRICS = "/metrics"
TRUSTED = "xdsprism.trusted"  # in the scope: whether whoever asks may see what is served
CHALLENGE = 'Bearer realm="xdsprism"'  # RFC 6750, section 3
WARNINGS = Rate(1, 1 / 60)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?", re.ASCII)


class HostNames:
    """The host names of a port: where it listens, and those that the operator gives."""

    def __init__(self, listen: str, given: Iterable[str] = ()) -> None:
        """`listen` is HOST:PORT; the port is ignored, as it may be forwarded."""
        host = host_of(listen)
        bound = _literal(host)
        self.is_loopback = host == "localhost" or (bound is not None and _is_loopback(bound))
        self._given = frozenset(map(host_of, given))
        self._names = self._given | {host, "localhost"}

    def has(self, header: str) -> bool:
        """Whether a Host header names this port. An IP address does, as DNS rebinding needs a name."""
        host = host_of(header)
        if host in self._names:
            return True
        literal = _literal(host)
        return literal is not None and (not self.is_loopback or _is_loopback(literal))

    def is_own_page(self, origin: str, header: str) -> bool:
        """Whether a page of that origin is from this port, or from a proxy with one of the given names."""
        try:
            parts = urlsplit(origin)
            return bool(parts.netloc) and (parts.netloc == header.lower() or host_of(parts.netloc) in self._given)
        except ValueError:
            return False


def host_of(text: str) -> str:
    """Return the host of HOST:PORT: `10.0.0.1` of `10.0.0.1:80`, `::1` of `[::1]:80`, `a.b` of `A.b.:80`."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, port = text.rpartition(":")
    if colon and ":" not in host and (port.isdecimal() or not port):
        text = host
    return text.removesuffix(".")


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address as such, or None if the text is a name; an IPv4-mapped address counts as IPv4."""
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _is_loopback(address: IPv4Address | IPv6Address) -> bool:
    return address.is_loopback


class RequestGuard:
    """Decides which requests the admin port refuses."""

    def __init__(
        self,
        names: HostNames,
        *,
        tokens: Callable[[], Tokens | None] = lambda: None,
        open_metrics: bool = False,
        report: Callable[[Sequence[Fact]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tokens` returns those that are valid now, or None if none is needed; `report` gets facts."""
        self._names = names
        self._tokens = tokens
        self._open = OPEN | {METRICS} if open_metrics else OPEN
        self._report = report
        self._clock = clock
        self._warnings = TokenBucket(WARNINGS, clock())

    def refuse(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response to a request that is not allowed, or None. Note in the scope whether it is trusted."""
        found = self._fault(scope, headers)
        if found is None:
            return None
        why, response = found
        self._report([HttpRequestRefused(peer_of(scope), "admin", why)])
        return response

    def _fault(self, scope: Scope, headers: Headers) -> tuple[RequestRefusal, Response] | None:
        hosts = headers.getlist("host") or [""]
        if any(host and not self._names.has(host) for host in hosts):  # HTTP/1.0 may have none; browsers always do
            return RequestRefusal.HOST, error_answer(421, self._misdirected(host_of(hosts[0])))
        method = scope["method"]
        if method != "GET" and is_from_page(headers, lambda origin: self._names.is_own_page(origin, hosts[0])):
            text = "a page of another site may not change anything here: use a page of this port, or curl"
            return RequestRefusal.PAGE, error_answer(403, text)
        tokens = self._tokens()
        given = headers.getlist("authorization")
        scope[TRUSTED] = tokens is None or (len(given) == 1 and tokens.has(_bearer(given[0])))
        if scope[TRUSTED] or (method in ("GET", "HEAD") and scope["path"] in self._open):
            return None
        if not given:
            text = "a token is needed: send `Authorization: Bearer TOKEN`, from the file of --admin-token-file"
            return RequestRefusal.NO_TOKEN, error_answer(401, text, {"www-authenticate": CHALLENGE})
        text = "the token is wrong: send `Authorization: Bearer TOKEN`, from the file of --admin-token-file"
        challenge = f'{CHALLENGE}, error="invalid_token"'
        return RequestRefusal.WRONG_TOKEN, error_answer(401, text, {"www-authenticate": challenge})

    def _misdirected(self, host: str) -> str:
        """Return the error for a foreign Host header, and log it once a minute with the remedy."""
        name = host if _NAME.fullmatch(host) else "NAME"
        remedy = f"start the server with --admin-host {name}"
        if self._warnings.spend(self._clock()):
            text = "the admin port refuses requests for an unknown host name; if it is a name of this port, %s"
            log.warning(text, remedy)
        return f"the Host header names another server; if clients reach this port by that name, {remedy}"


def _bearer(header: str) -> str:
    """Return the token of an Authorization header; nothing if it is of another scheme."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
