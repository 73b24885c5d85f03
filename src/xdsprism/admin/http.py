"""Serves the routes of the admin port. What they show is built in the modules whose names end in `_model`."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..core.model.history_difference import finding_difference
from ..core.model.removal_guard import HeldBack
from ..core.model.steps import Steps
from ..core.model.table import Table
from ..core.model.types import TypeUrl
from ..errors import UsageError
from ..observe.metrics import CONTENT_TYPE, Metrics
from ..server.http_gate import RESTRICTIONS, Gate
from ..server.hub import Hub
from ..server.xds_call import Connected
from ..similar import similar
from ..sources.files import NotConfirmedError
from . import (
    cache_model,
    client_model,
    config_model,
    dashboard,
    history_model,
    holders_model,
    load_model,
    matrix_model,
    queries,
    read_model,
    reference,
)
from .cache_model import ClockReading, RelayView
from .config_model import ConfigLoads
from .events import EVENT_STREAM, EventResponse, Events, Filter, TooManyReadersError
from .guard import TRUSTED, HostNames, RequestGuard
from .overview_model import Daemon, Recent, overview
from .read_model import LIMIT, Page, Row

MAX_ROWS = 10_000  # in one response
PAGE = 64 * 1024 * 1024  # characters of one response
SLICE = 0.005  # seconds of work before the event loop gets a turn
MARK = {"x-xdsprism": "admin"}  # by this header a command knows that it asks an admin port (cli/admin_port.py)
T = TypeVar("T")
_ID = re.compile("[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True)
class View:
    """The objects that the admin port shows."""

    hub: Hub
    metrics: Metrics
    loads: ConfigLoads | None  # None: the daemon loads no configuration files
    unready: Callable[[], str | None]  # returns why the server is not ready, or None
    relay: RelayView | None = None  # None: the daemon is no relay
    confirm: Callable[[str | None], Awaitable[HeldBack]] | None = None  # publishes a change that is held back
    events: Events | None = None  # None: there is no /api/events
    comparing: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while texts are compared

    @property
    def moment(self) -> ClockReading:
        return ClockReading(self.hub.clock(), time.time())


def build(view: View, guard: RequestGuard | None = None) -> ASGIApp:
    """Make the ASGI application of the admin port; `guard` decides which requests it refuses."""
    app = Starlette(
        routes=routes(view),
        exception_handlers={HTTPException: _error_response, UsageError: _error_response},
    )
    app.router.redirect_slashes = False
    return Gate(app, (guard or RequestGuard(HostNames("localhost"))).refuse, RESTRICTIONS | MARK)


def routes(view: View) -> list[Route]:
    """Return the routes that this daemon has; reference.py describes them."""
    reading: dict[str, Answer] = {
        "/": _static_file,
        **dict.fromkeys(dashboard.PATHS, _static_file),
        "/healthz": _healthz,
        "/readyz": _readyz,
        "/metrics": _metrics,
        "/api": _list_paths,
        "/api/resources": _resources,
        "/api/clients": _clients,
        "/api/client": _client,
        "/api/explain": _explain,
        "/api/matrix": _matrix,
        "/api/holders": _holders,
        "/api/overview": _overview(Recent()),
        "/api/loads": _loads,
        "/api/history": _history,
        "/api/diff": _diff,
    }
    if view.events is not None:
        reading["/api/events"] = _events
    if view.loads is not None:
        reading["/api/config"] = _config
    if view.relay is not None:
        reading["/api/upstreams"] = _upstreams
    known = [Route(path, _bound(view, answer), methods=["GET"]) for path, answer in reading.items()]
    if view.confirm is not None:
        known.append(Route("/api/config/confirm", _bound(view, _confirm), methods=["POST"]))
    if view.relay is not None:
        known.append(Route("/api/resources", _bound(view, _forget), methods=["DELETE"]))
    return known


Answer = Callable[[View, Request], Awaitable[Response]]


class _Json(JSONResponse):
    """JSON in UTF-8. Bytes of file names that are not UTF-8 are escaped."""

    def render(self, content: Any) -> bytes:
        return _encoded(json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _bound(view: View, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """Make a Starlette endpoint of a function that takes the view, too."""

    async def endpoint(request: Request) -> Response:
        return await answer(view, request)

    return endpoint


async def _error_response(_: Request, error: Exception) -> Response:
    """Return an error as JSON, with its text."""
    if isinstance(error, HTTPException):
        known: HTTPException = error  # without Starlette, as the compiler reads this, mypy needs to be told
        if known.detail == "Not Found":
            known = HTTPException(404, "there is no such page; /api lists all pages")
        return _Json({"error": known.detail}, known.status_code, known.headers)
    return _Json({"error": str(error)}, 400)


# -- pages


async def _static_file(_: View, request: Request) -> Response:
    """Send a file of the dashboard, unless the browser has it."""
    queries.parameters(request)
    return dashboard.respond(request.url.path, request.headers.get("if-none-match"))


async def _list_paths(view: View, request: Request) -> Response:
    """List the paths that this daemon has."""
    queries.parameters(request)
    other = "serve" if view.relay is not None else "relay"
    return _Json({"paths": [each._asdict() for each in reference.PATHS if each.only != other]})


async def _healthz(_: View, request: Request) -> Response:
    queries.parameters(request)
    return _Json({"status": "alive"})


async def _readyz(view: View, request: Request) -> Response:
    """Say whether clients should connect: 503 with the reason if not."""
    queries.parameters(request)
    reason = view.unready()
    is_trusted = request.scope.get(TRUSTED, True)  # the reasons name servers and resources
    if reason is not None:
        return _Json({"status": "not ready", **({"reason": reason} if is_trusted else {})}, 503)
    held = view.loads.held if view.loads is not None else None
    if held is not None and is_trusted:  # OPS-13: the server is ready, as it serves the last good configuration
        return _Json({"status": "ready", "held_back": f"{'; '.join(held.reasons)}; see /api/config"})
    return _Json({"status": "ready"})


async def _metrics(view: View, request: Request) -> Response:
    queries.parameters(request)
    return Response(await _sliced(view.metrics.rendering()), media_type=CONTENT_TYPE)


async def _resources(view: View, request: Request) -> Response:
    given = queries.parameters(request, "type", "name", "search", "offset", "limit", "bodies")
    bodies, store = queries.flag(given, "bodies"), view.hub.store
    type_url = queries.given_type(given)
    if "name" in given and "search" in given:
        raise UsageError("name= and search= exclude each other: a name, or a part of names")
    found = read_model.find(store, type_url, given["name"]) if "name" in given else None
    if "search" in given:
        found = await _sliced(read_model.search(store, type_url, given["search"]))
    page = read_model.resources(
        store,
        view.hub.interest,
        type_url=type_url,
        found=found,
        offset=queries.number(given, "offset", 0),
        limit=queries.number(given, "limit", LIMIT, MAX_ROWS),
        bodies=bodies,
        variants=_cached_rows(view, bodies=bodies),
    )
    return await _page_response(page)


def _cached_rows(view: View, *, bodies: bool) -> read_model.Cached | None:
    """Return what lists the variants of a name in a relay's cache; None if the daemon is no relay."""
    if view.relay is None:
        return None
    relaying, moment = view.relay.relaying, view.moment
    return lambda type_url, name: cache_model.cached_rows(relaying, type_url, name, moment, bodies=bodies)


async def _forget(view: View, request: Request) -> Response:
    """PRX-28: drop a resource from the cache."""
    given = queries.parameters(request, "type", "name")
    type_url, name = queries.type_and_name(given, "DELETE /api/resources?type=rds&name=main")
    if view.relay is None or not view.relay.forget(type_url, name):
        raise HTTPException(404, f"there is no {queries.type_label(type_url)} of that name in the cache")
    return _Json({"forgotten": {"type_url": type_url, "name": name}})


async def _matrix(view: View, request: Request) -> Response:
    given = queries.parameters(request, "type", "name", "param")
    type_url, name = queries.type_and_name(given, "/api/matrix?type=rds&name=main")
    params = queries.assignments(request)
    table = _table(view, type_url)
    found = await _sliced(matrix_model.matrix(table, name, params)) if table is not None else None
    return await _existing(found, table, type_url, name)


async def _holders(view: View, request: Request) -> Response:
    given = queries.parameters(request, "type", "name", "offset", "limit")
    type_url, name = queries.type_and_name(given, "/api/holders?type=rds&name=main")
    offset, limit = queries.number(given, "offset", 0), queries.number(given, "limit", LIMIT, MAX_ROWS)
    table = _table(view, type_url)
    found = None
    if table is not None:
        found = await _sliced(holders_model.holders(view.hub, table, name, offset, limit))
    return await _existing(found, table, type_url, name)


def _overview(recent: Recent) -> Answer:
    """Make the page of the dashboard's overview, of which `recent` keeps the last one."""

    async def answer(view: View, request: Request) -> Response:
        queries.parameters(request)

        async def make() -> bytes:
            daemon = Daemon(view.hub, view.metrics, view.loads, view.unready(), view.relay)
            return bytes(_Json(await _sliced(overview(daemon, view.moment))).body)

        return Response(await recent.get(make), media_type="application/json")

    return answer


async def _upstreams(view: View, request: Request) -> Response:
    queries.parameters(request)
    if view.relay is None:
        return _Json({})
    return _Json(cache_model.upstreams(view.relay.upstreams(), view.moment) | cache_model.room(view.relay.relaying))


async def _clients(view: View, request: Request) -> Response:
    given = queries.parameters(request, "node", "type", "state", "brief", "offset", "limit")
    offset, limit = queries.number(given, "offset", 0), queries.number(given, "limit", LIMIT, MAX_ROWS)
    only_type, brief = queries.given_type(given), queries.flag(given, "brief")
    found, states = await _sliced(
        client_model.choosing(
            view.hub.connected(),
            node=given.get("node"),
            only_type=only_type,
            state=queries.state_of(given.get("state")),
        )
    )
    moment = view.moment
    page = read_model.clients(
        found,
        moment.now,
        moment.wall,
        offset=offset,
        limit=limit,
        budget=view.hub.clients,
        only_type=only_type,
        brief=brief,
    )
    page.head["states"] = states
    return await _page_response(page)


async def _client(view: View, request: Request) -> Response:
    """Show one client in full: a stream by its number, or all streams of a node."""
    given = queries.parameters(request, "node", "stream", "type", "state", "bodies", "offset", "limit")
    offset, limit = queries.number(given, "offset", 0), queries.number(given, "limit", LIMIT, MAX_ROWS)
    bodies, only_type, state = (
        queries.flag(given, "bodies"),
        queries.given_type(given),
        queries.state_of(given.get("state")),
    )
    streams = _streams_of(view, given)
    found = await _sliced(
        client_model.finding_resources(
            streams, view.hub.history, only_type=only_type, state=state, offset=offset, limit=limit
        )
    )
    return await _page_response(client_model.client(streams, found, view.moment, view.hub.clients, bodies=bodies))


def _streams_of(view: View, given: dict[str, str]) -> list[Connected]:
    """Return the streams of the client that a query names. Raises HTTPException if there is none."""
    if ("node" in given) == ("stream" in given):
        raise UsageError("give either node= or stream=: /api/client?node=ID, or stream=NUMBER as /api/clients has it")
    if "node" in given:
        found = client_model.named(view.hub.connected(), given["node"])
    else:
        number = queries.number(given, "stream", 0)
        found = [each for each in view.hub.connected() if each.stream.number == number]
    if not found:
        what = "node id" if "node" in given else "stream number"
        raise HTTPException(404, f"no client with this {what} is connected; /api/clients lists those that are")
    return found


async def _loads(view: View, request: Request) -> Response:
    given = queries.parameters(request, "offset", "limit")
    offset, limit = queries.number(given, "offset", 0), queries.number(given, "limit", LIMIT, MAX_ROWS)
    moment = view.moment
    clients = await _sliced(view.hub.reports.listing(moment.now))
    return await _page_response(load_model.loads(view.hub.reports, clients, moment, offset=offset, limit=limit))


async def _history(view: View, request: Request) -> Response:
    given = queries.parameters(request, "since", "limit")
    since = queries.number(given, "since", 0) if "since" in given else None
    limit = queries.number(given, "limit", LIMIT, MAX_ROWS)
    return await _page_response(history_model.history(view.hub.history, view.hub.store, since=since, limit=limit))


async def _diff(view: View, request: Request) -> Response:
    """Compare two revisions; `to` is the current one by default."""
    given = queries.parameters(request, "from", "to", "type", "name", "limit")
    if "from" not in given:
        raise UsageError("from= is missing: /api/diff?from=8&to=9")
    store, known = view.hub.store, view.hub.history
    old, new = queries.number(given, "from", 0), queries.number(given, "to", store.revision)
    limit = queries.number(given, "limit", LIMIT, MAX_ROWS)
    wanted = history_model.Wanted(queries.type_of(given["type"]) if "type" in given else None, given.get("name"))
    async with view.comparing:  # one at a time, since each may take seconds of a processor
        found = await _sliced(finding_difference(known, store, old, new))
        if found is None:
            kept = f"{(known.oldest or 1) - 1} to {known.newest or 0}" if known.newest else "none yet"
            raise HTTPException(404, f"not all of these revisions are remembered: {kept}")
        return _Json(await asyncio.to_thread(history_model.difference, found, old, new, wanted, limit=limit))


async def _events(view: View, request: Request) -> Response:
    """Stream events. A browser that lost its connection says in a header which revision it saw last."""
    given = queries.parameters(request, "since", "type", "node")
    since = queries.number(given, "since", 0) if "since" in given else None
    last = request.headers.get("last-event-id")
    if last is not None:
        since = int(last) if last.isdecimal() and last.isascii() and len(last) <= 18 else 10**18  # which is not known
    wanted = Filter(queries.type_of(given["type"]) if "type" in given else None, given.get("node"))
    if view.events is None or request.method == "HEAD":
        return Response(media_type=EVENT_STREAM)
    try:
        return EventResponse(view.events, view.events.open(wanted, since))
    except TooManyReadersError as error:
        text = f"{len(view.events)} readers of /api/events are connected, which is the limit: end one, or try later"
        raise HTTPException(503, text, {"retry-after": "10"}) from error


async def _config(view: View, request: Request) -> Response:
    queries.parameters(request)
    return _Json(config_model.config(view.loads, request.url.netloc) if view.loads is not None else {})


async def _confirm(view: View, request: Request) -> Response:
    """OPS-13: publish the change that is held back."""
    given = queries.parameters(request, "id")
    change = given.get("id")
    if change is not None and not _ID.fullmatch(change):
        change = "one that can't be"  # no change has this id, and the error must not repeat what the request had
    if view.confirm is None:
        raise HTTPException(404, "this daemon loads no configuration files")
    try:
        through = await view.confirm(change)
    except NotConfirmedError as error:
        shown = config_model.held_back(error.held) if error.held is not None else None
        return _Json({"error": str(error), "held_back": shown}, 409)
    return _Json({"let_through": config_model.held_back(through)})


async def _explain(view: View, request: Request) -> Response:
    given = queries.parameters(request, "type", "name", "param", "node")
    type_url, name = queries.type_and_name(given, "/api/explain?type=rds&name=main&param=env%3Dprod")
    params = queries.assignments(request)
    if "node" in given:
        return _Json(await _explained_to(view, _streams_of(view, {"node": given["node"]}), type_url, name, params))
    table = _table(view, type_url)
    found = await _explained(view, table, name, params) if table is not None else None
    return await _existing(found, table, type_url, name)


async def _explained_to(
    view: View, streams: list[Connected], type_url: TypeUrl, name: str, params: dict[str, str]
) -> Row:
    """Explain what a connected client would get. Raises HTTPException if there is nothing, and no policy denies it."""
    asked = await _sliced(client_model.asking(view.hub.store, streams, type_url, name, params))
    found = await _explained(view, asked.table, name, dict(asked.params)) if asked.denial is None else None
    view.hub.store.discard(type_url)
    if found is None and asked.denial is None:
        raise HTTPException(404, f"there is no {queries.type_label(type_url)} of that name for this client")
    return (found or client_model.nothing_row(asked, name)) | client_model.asked_row(asked)


async def _explained(view: View, table: Table, name: str, params: dict[str, str]) -> Row | None:
    """Explain by the store, or by a relay's cache."""
    if view.relay is None:
        return read_model.explain(table, name, params)
    return await _sliced(cache_model.explain(view.relay.relaying, table, name, params, view.moment))


# -- responses


async def _sliced(steps: Steps[T]) -> T:
    """Run the steps for a few milliseconds at a time, so that streams are served in between."""
    until = time.perf_counter() + SLICE
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE


async def _page_response(page: Page) -> Response:
    """Build and encode the rows for a few milliseconds at a time, so that streams are served in between.

    The response ends with the row that brings it to PAGE characters, and says so.
    """
    parts: list[str] = []
    size = 0
    until = time.perf_counter() + SLICE
    for row in page.rows:
        if row is not None:
            parts.append(json.dumps(row, ensure_ascii=False))
            size += len(parts[-1])
        if size > PAGE:
            page.head["cut"] = f"after {len(parts)} rows: ask for the others with offset="
            break
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE
    head = json.dumps(page.head, ensure_ascii=False)
    body = f"{head[:-1]}, {json.dumps(page.name)}: [{', '.join(parts)}]}}"
    return Response(_encoded(body), media_type="application/json")


def _table(view: View, type_url: TypeUrl) -> Table | None:
    """Return the table of a type. None: there is none, and a request makes none."""
    return next((table for table in view.hub.store.tables() if table.spec.url == type_url), None)


async def _existing(found: Row | None, table: Table | None, type_url: TypeUrl, name: str) -> Response:
    """Answer with what was found of a resource, or with 404, and a name that is nearly this one if there is any."""
    if found is not None:
        return _Json(found)
    names = read_model.names_to_compare(table) if table is not None else []
    near = await asyncio.to_thread(similar, name, names)  # it may take longer than streams should wait
    hint = {"similar": near} if near else {}
    return _Json({"error": f"there is no {queries.type_label(type_url)} of that name", **hint}, 404)
