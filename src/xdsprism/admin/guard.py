"""Protects the admin port, which has no passwords, from web pages in the browsers of people who can reach it.

- DNS rebinding: a page may make its own name resolve to this port's address, and has the same origin then. So the Host
  header of a request must be a name of this port.
- Cross-site requests: a page may send requests whose responses it can't read. So a request that changes something must
  not come from another site.
- Embedding: response headers forbid using a response as a script, a style or a frame.
"""

from __future__ import annotations

import json
import logging
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..http2.limits import Rate, TokenBucket

log = logging.getLogger("xdsprism")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
WARNINGS = Rate(1, 1 / 60)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?", re.ASCII)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


class Names:
    """The host names of a port: where it listens, and those that the operator gives."""

    def __init__(self, listen: str, given: Iterable[str] = ()) -> None:
        """`listen` is HOST:PORT; the port is ignored, as it may be forwarded."""
        host = host_of(listen)
        bound = _literal(host)
        self._is_loopback = host == "localhost" or (bound is not None and _is_loopback(bound))
        self._given = frozenset(map(host_of, given))
        self._names = self._given | {host, "localhost"}

    def has(self, header: str) -> bool:
        """Whether a Host header names this port. An IP address does, as DNS rebinding needs a name."""
        host = host_of(header)
        if host in self._names:
            return True
        literal = _literal(host)
        return literal is not None and (not self._is_loopback or _is_loopback(literal))

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


def policy_for(page: str) -> str:
    """Return the content security policy for a page that has inline styles and no other active contents."""
    styles = [b64encode(sha256(style.encode()).digest()).decode() for style in _STYLE.findall(page)]
    allowed = " ".join(f"'sha256-{each}'" for each in styles) or "'none'"
    return f"default-src 'none'; style-src {allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class RequestGuard:
    """ASGI middleware that refuses requests from web pages of other sites, and adds headers to every response."""

    def __init__(self, app: ASGIApp, names: Names, policy: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._names = names
        self._clock = clock
        self._warnings = TokenBucket(WARNINGS, clock())
        self._headers = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "cross-origin-resource-policy": "same-origin",
            "referrer-policy": "no-referrer",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        refused = self._refuse(scope["method"], Headers(scope=scope))
        await (refused or self._app)(scope, receive, guarded)

    def _refuse(self, method: str, headers: Headers) -> Response | None:
        """Return the response to a request that is not allowed, or None."""
        hosts = headers.getlist("host") or [""]
        if any(host and not self._names.has(host) for host in hosts):  # HTTP/1.0 may have none; browsers always do
            return _answer(421, self._misdirected(host_of(hosts[0])))
        if method in SAFE_METHODS:
            return None
        origins = headers.getlist("origin")
        site = headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") or not all(self._names.is_own_page(each, hosts[0]) for each in origins):
            return _answer(403, "a page of another site may not change anything here: use this port's own, or curl")
        return None

    def _misdirected(self, host: str) -> str:
        """Return the error for a foreign Host header, and log it once a minute with the remedy."""
        name = host if _NAME.fullmatch(host) else "NAME"
        remedy = f"start the server with --admin-host {name}"
        if self._warnings.spend(self._clock()):
            log.warning("the admin port refuses requests for a name that is not its own: if it is, %s", remedy)
        return f"the Host header names another server than this; if this port goes by that name, {remedy}"


def _answer(status: int, text: str) -> Response:
    return Response(json.dumps({"error": text}), status, media_type="application/json")
