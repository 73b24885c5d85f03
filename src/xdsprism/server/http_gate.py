"""Stands before the application of an HTTP port: refuses requests, and restricts what browsers do with answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .addresses import format_peer

# For every response: it is no script, style, frame or download of another site.
RESTRICTIONS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
_OWN_SITES = ("same-origin", "none")  # of Sec-Fetch-Site; none: a person typed the address


class Gate:
    """ASGI middleware that answers what `refuse` refuses, and adds headers to every response that lacks them."""

    def __init__(
        self, app: ASGIApp, refuse: Callable[[Scope, Headers], Response | None], headers: Mapping[str, str]
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._headers = dict(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def restricted(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refuse(scope, Headers(scope=scope))
        await (refused or self._app)(scope, receive, restricted)


def is_from_page(headers: Headers, is_own: Callable[[str], bool]) -> bool:
    """Whether a web page had a browser send this request, and it is none of those whose origin `is_own`.

    Browsers send Origin with every request that is not GET or HEAD; `null` if it is hidden, as in a sandbox or a file.
    Sec-Fetch-Site, which no page can forge or leave out, says the same of requests without Origin.
    """
    sites = headers.getlist("sec-fetch-site")
    return not all(site in _OWN_SITES for site in sites) or not all(map(is_own, headers.getlist("origin")))


def peer_of(scope: Scope) -> str:
    """Return the client of a request, as in `ipv4:10.0.0.1:40000`."""
    client = scope.get("client")
    return format_peer(tuple(client) if client is not None else None)


def error_answer(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps({"error": text}), status, headers, media_type="application/json")
