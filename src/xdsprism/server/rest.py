"""Serves xDS over REST: one POST is one fetch, in JSON (RST-1 to RST-4).

A client that already has the newest version waits for a change (long polling). There is no ADS and no delta: the protos
define an HTTP path for the Fetch method of each type, and for nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import ceil

from google.api import annotations_pb2
from google.protobuf.descriptor_pool import Default
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from ..core.model.events import Send
from ..core.model.facts import Polled
from ..core.model.types import TypeUrl
from ..core.serve.fetching import ANSWER, Patience, Unchanged
from ..errors import PeerError, UsageError
from ..http2.facts import Fact, HttpRequestRefused, RequestRefusal
from ..http2.limits import Limits
from ..peer_address import host_of
from .calls import CallPort, Peer, status_of
from .certificates import identities_of, proved_by
from .connection_limits import ConnectionLimits
from .fetch import FetchCall, open_fetch
from .health import describe
from .http_gate import RESTRICTIONS, Gate, error_answer, is_from_page, peer_of
from .http_port import HttpPort
from .hub import Hub
from .methods import Api
from .rest_bodies import BodyBytes, BodyParser
from .rest_json import write_answer

log = logging.getLogger("xdsprism.server")

BODY = 4 * 1024 * 1024  # bytes of a request at most
READ = 10.0  # seconds for the client to send it
TIMEOUT = "x-envoy-expected-rq-timeout-ms"  # how long Envoy waits for the response, by default one second
MARGIN = 0.75  # the share of that time that the server uses; the rest is for the network

_STATUS = {"INVALID_ARGUMENT": 400, "UNAUTHENTICATED": 401, "RESOURCE_EXHAUSTED": 429, "UNAVAILABLE": 503}


def paths(apis: Iterable[Api]) -> Iterator[tuple[str, TypeUrl, Api]]:
    """Return the HTTP path, resource type and API of each Fetch method, from the protos' google.api.http options."""
    for api in apis:
        for service, noun, type_url in api.services:
            describe(service.rpartition(".")[0])
            method = Default().FindServiceByName(service).methods_by_name[f"Fetch{noun}"]
            yield method.GetOptions().Extensions[annotations_pb2.http].post, type_url, api


class Rest:
    """The ASGI application behind a REST port."""

    def __init__(
        self, hub: Hub, apis: Iterable[Api], report: Callable[[Sequence[Fact]], None] = lambda _: None
    ) -> None:
        self._hub = hub
        self._report = report
        self._bytes = BodyBytes()
        self._parser = BodyParser()
        self._calls: set[FetchCall] = set()
        self._draining = False
        known = list(paths(apis))
        self._paths = sorted(path for path, _, _ in known)
        app = Starlette(
            routes=[Route(path, self._endpoint(path, url, api), methods=["POST"]) for path, url, api in known],
            exception_handlers={HTTPException: self._refuse, Exception: self._fail},
        )
        app.router.redirect_slashes = False
        self.app = Gate(app, self._refuse_page, RESTRICTIONS)

    def drain(self) -> None:
        """Answer every request that waits for a change now."""
        self._draining = True
        for call in list(self._calls):
            call.end()

    def _endpoint(self, path: str, type_url: TypeUrl, api: Api) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                peer = self._hub.identify(_peer_of(request))  # before anything is read
                self._hub.admit_fetch(peer)
                message = await self._read(request, host_of(peer.address))
                call = open_fetch(self._hub, path, peer, type_url, v2=api.v2)
            except PeerError as error:
                raise _refusal(error) from error
            return await self._serve(call, request, message)

        return endpoint

    async def _read(self, request: Request, address: str) -> bytes:
        """Read and parse the body of a request."""
        held = 0

        def hold(more: int) -> bool:
            nonlocal held
            has_room = self._bytes.hold(address, held, more)
            held += more if has_room else 0
            return has_room

        try:
            return await self._parser.parse(address, await _read_body(request, hold))
        finally:
            self._bytes.release(address, held)

    def _refuse_page(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse whatever a web page sends: no client of xDS is one."""
        if not is_from_page(headers, lambda _: False):
            return None
        self._report([HttpRequestRefused(peer_of(scope), "rest", RequestRefusal.PAGE)])
        return self._counted(error_answer(403, "web pages may not ask for resources here"))

    def close(self) -> None:
        """Parse nothing more."""
        self._parser.close()

    async def _serve(self, call: FetchCall, request: Request, message: bytes) -> Response:
        """Serve one request as a fetch."""
        reason = ""
        self._calls.add(call)
        try:
            now = self._hub.clock()
            call.patience = _patience(request, now, self._hub.settings.poll_hold)
            call.receive(message)
            return await self._answer(call, request)
        except PeerError as error:
            reason = error.message
            raise _refusal(error) from error
        finally:
            self._calls.discard(call)
            call.close(reason)

    async def _answer(self, call: FetchCall, request: Request) -> Response:
        """Wait for the result of a fetch, and make the HTTP response."""
        crowded = len(self._calls) > self._hub.settings.limits.polls
        if crowded or self._draining:
            call.hurry()
        found = await _wait(call, request)
        if isinstance(found, Send):
            try:
                body = await write_answer(found, call.encoder(found))
            except UsageError as error:
                raise HTTPException(501, str(error)) from error
            return self._counted(Response(body, media_type="application/json"))
        return self._counted(Response(status_code=304), crowded=crowded)  # RST-2

    async def _refuse(self, request: Request, error: Exception) -> Response:
        """Answer an error in JSON: what is wrong, and where possible what would be right."""
        if not isinstance(error, HTTPException):
            raise error
        message = error.detail
        if error.detail == "Not Found":  # RST-3
            message = f"there is no {request.url.path} here; there are {', '.join(self._paths)}"
        elif error.status_code == 405:
            message = f"{request.method} is not for {request.url.path}: POST a DiscoveryRequest in JSON"
        return self._counted(JSONResponse({"error": message}, error.status_code, error.headers))

    async def _fail(self, _: Request, error: Exception) -> Response:
        """Answer a mistake of ours. Starlette raises it again, so that the port logs it."""
        return self._counted(JSONResponse({"error": status_of(error)[1]}, 500))

    def _counted(self, response: Response, *, crowded: bool = False) -> Response:
        """Count a response in the metrics."""
        self._hub.facts.append(Polled(response.status_code, crowded))
        self._hub.turn()
        return response


class RestPort:
    """A REST port, from its start to its end."""

    def __init__(
        self,
        hub: Hub,
        apis: Iterable[Api],
        listen: str,
        tls: ssl.SSLContext | None = None,
        *,
        connection_limits: ConnectionLimits | None = None,
        report: Callable[[Sequence[Fact]], None] = lambda _: None,
    ) -> None:
        """`connection_limits`: those of the xDS port, since all connections of clients are counted together."""
        self._rest = Rest(hub, apis, report)
        connection_limits = connection_limits or ConnectionLimits(Limits(), time.monotonic)
        self._port = HttpPort(self._rest.app, listen, "REST", tls, connection_limits=connection_limits, report=report)
        self.address = self._port.address
        self._serving = asyncio.get_running_loop().create_task(self._port.serve(), name="xdsprism REST")

    def drain(self) -> None:
        """Answer every request that waits for a change now."""
        self._rest.drain()

    def secure(self, tls: ssl.SSLContext) -> None:
        """Use this context for new connections."""
        self._port.secure(tls)

    async def stop(self) -> None:
        """Answer what waits, then close the port."""
        self.drain()
        self._port.stop()
        await self._serving
        self._rest.close()


def _peer_of(request: Request) -> Peer:
    address = f"{request.client.host}:{request.client.port}" if request.client is not None else ""
    chain = request.scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
    shown = chain[0].encode() if chain else b""
    said = tuple(request.headers.getlist("authorization"))
    return Peer(address, identities_of(shown), said, proved_by(shown)) if shown else Peer(address, (), said)


def _refusal(error: PeerError) -> HTTPException:
    """Return the HTTP status of an error, and when to come again where that is known."""
    headers = {"retry-after": str(ceil(error.retry_after))} if error.retry_after else {}
    if error.status == "UNAUTHENTICATED":  # RFC 6750, section 3; the texts have no quotes
        headers["www-authenticate"] = f'Bearer error="invalid_token", error_description="{error.message}"'
    return HTTPException(_STATUS.get(error.status, 500), error.message, headers)


async def _read_body(request: Request, hold: Callable[[int], bool]) -> bytes:
    """Read the body of a request, within limits of size and time. `hold`: whether there is room for so many bytes."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"the content-type is {kind or 'missing'}: send application/json")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(READ):
            async for part in request.stream():
                size += len(part)
                if size > BODY:
                    raise HTTPException(413, f"a request has at most {BODY} bytes")
                if not hold(len(part)):
                    raise HTTPException(503, "too many large requests are being read: try again later")
                parts.append(part)
    except TimeoutError as error:
        raise HTTPException(408, f"the request did not arrive within {READ:g} seconds") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the client left") from error
    return b"".join(parts)


def _patience(request: Request, now: float, hold: float) -> Patience:
    """Decide how long a request may wait for a change: `hold` seconds, and less than the client's own timeout."""
    given = request.headers.get(TIMEOUT, "")
    most = int(given) * MARGIN / 1000 if given.isascii() and given.isdecimal() and len(given) < 10 else 0.0
    return Patience(now + min(hold, most or hold), now + min(ANSWER, most or ANSWER))


class _RestCallPort(CallPort):
    """Wakes the coroutine that waits for a call's answer."""

    __slots__ = ("awake",)

    def __init__(self) -> None:
        self.awake = asyncio.Event()

    def wake(self) -> None:
        self.awake.set()


async def _wait(call: FetchCall, request: Request) -> Send | Unchanged:
    """Wait until the call has an answer; it has one at once after the client disconnects."""
    port = _RestCallPort()
    call.attach(port)
    gone = asyncio.create_task(_end_at_disconnect(request, call))
    try:
        while (found := call.answer()) is None:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(call.deadline()):
                    await port.awake.wait()
            port.awake.clear()
    finally:
        gone.cancel()
    return found


async def _end_at_disconnect(request: Request, call: FetchCall) -> None:
    """End the call when the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    call.end()
