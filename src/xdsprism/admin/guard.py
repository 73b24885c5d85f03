"""Who may ask the admin port, which has no passwords: whoever can reach it, but no web page that a browser is shown.

A page may have its own name resolve to this port's address (DNS rebinding), and is then of the same origin as what it
asks for; so a request has to be for a name that this port is known by. A page may also send what it can't read the
answer to; so a request that changes something must not come from another site. And what is answered may not be taken
for a script, a style or a frame.
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

HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
COMPLAINTS = Rate(1, 1 / 60)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?", re.ASCII)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


class Names:
    """The names that a port goes by: where it listens, and what its operator says it is called."""

    def __init__(self, listen: str, given: Iterable[str] = ()) -> None:
        """`listen` is HOST:PORT; the port does not matter, as it may be forwarded."""
        host = host_of(listen)
        bound = _literal(host)
        self._is_loopback = host == "localhost" or (bound is not None and _is_loopback(bound))
        self._given = frozenset(map(host_of, given))
        self._names = self._given | {host, "localhost"}

    def has(self, header: str) -> bool:
        """Tell whether a Host header is one of ours. A browser that was sent to an address says that address."""
        host = host_of(header)
        if host in self._names:
            return True
        literal = _literal(host)
        return literal is not None and (not self._is_loopback or _is_loopback(literal))

    def is_own_page(self, origin: str, header: str) -> bool:
        """Tell whether a page of that origin is of this port, or of a proxy that has one of the names given."""
        try:
            parts = urlsplit(origin)
            return bool(parts.netloc) and (parts.netloc == header.lower() or host_of(parts.netloc) in self._given)
        except ValueError:
            return False


def host_of(text: str) -> str:
    """`10.0.0.1` of `10.0.0.1:80`, `::1` of `[::1]:80`, `a.example` of `A.example.:80`."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, port = text.rpartition(":")
    if colon and ":" not in host and (port.isdecimal() or not port):
        text = host
    return text.removesuffix(".")


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _is_loopback(address: IPv4Address | IPv6Address) -> bool:
    return address.is_loopback


def policy_for(page: str) -> str:
    """Give the content security policy of a page that has styles in it, and nothing else."""
    styles = [b64encode(sha256(style.encode()).digest()).decode() for style in _STYLE.findall(page)]
    allowed = " ".join(f"'sha256-{each}'" for each in styles) or "'none'"
    return f"default-src 'none'; style-src {allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Guard:
    """Answers what may be asked by the application behind it, and the rest by itself."""

    def __init__(self, app: ASGIApp, names: Names, policy: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._names = names
        self._clock = clock
        self._complaints = TokenBucket(COMPLAINTS, clock())
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
        hosts = headers.getlist("host") or [""]
        if any(host and not self._names.has(host) for host in hosts):  # HTTP/1.0 may have none; browsers always do
            return _answer(421, self._misdirected(host_of(hosts[0])))
        if method in HARMLESS:
            return None
        origins = headers.getlist("origin")
        site = headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") or not all(self._names.is_own_page(each, hosts[0]) for each in origins):
            return _answer(403, "a page of another site may not change anything here: use this port's own, or curl")
        return None

    def _misdirected(self, host: str) -> str:
        name = host if _NAME.fullmatch(host) else "NAME"
        remedy = f"start the server with --admin-host {name}"
        if self._complaints.spend(self._clock()):
            log.warning("the admin port refuses requests for a name that is not its own: if it is, %s", remedy)
        return f"the Host header names another server than this; if this port goes by that name, {remedy}"


def _answer(status: int, text: str) -> Response:
    return Response(json.dumps({"error": text}), status, media_type="application/json")
