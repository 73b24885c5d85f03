"""Tells readers of /api/events what happens: server-sent events, as browsers take them.

`Events` reads the facts of the hub. While nobody listens it drops them unseen. Each event is encoded once, whatever the
number of readers. A `Reader` has a queue with a bound: if it is full, its contents give way to one `gap` event, so that
a reader which is slow never makes the server keep what it does not take. The queues share their events, so all of them
together keep about as much as one.

| event     | about                                                              |
|-----------|--------------------------------------------------------------------|
| revision  | what a revision of the store changed; its id is the revision       |
| client    | a client connected, joined (said which node it is), or left        |
| nack      | a client rejected a response                                       |
| recovered | a client accepts again what it had rejected                        |
| load      | the configuration was loaded, refused or held back                 |
| drain     | the server began to shut down                                      |
| gap       | the reader missed events, because it was slow or came back late    |
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..core.model.facts import (
    ChangeHeldBack,
    ChangeLetThrough,
    Closed,
    ConfigLoaded,
    Drained,
    Fact,
    Joined,
    Nacked,
    Opened,
    Published,
    Recovered,
    Refused,
)
from ..core.model.history import Revision
from ..core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ..core.model.types import TypeUrl
from ..observe.lines import described
from ..observe.traffic import EVERYDAY
from ..server.http_port import ENDLESS
from ..server.hub import Hub
from .history_model import label_of, revision_row
from .read_model import Row, time_of_day

EVENT_STREAM = "text/event-stream"
READERS = 64  # at the same time
QUEUED = 1_000  # events that wait for one reader
AT_ONCE = 10  # events that are encoded before other streams are served
CHUNK = 64 * 1024  # bytes that are written at a time
PACE = 0.1  # seconds between two writes, so that many events cost few of them
KEEPALIVE = 15.0  # seconds of silence after which a reader gets a comment line
RETRY = 1_000  # milliseconds after which a browser connects again
RESOURCES = 20  # listed of one NACK
PROBLEMS = 20  # listed of one load


class TooManyReadersError(Exception):
    """All places for readers are taken."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events a reader wants: those about a type, about a client, or both."""

    type_url: TypeUrl | None = None
    node: str | None = None


class Event:
    """One event. It is encoded when the first reader takes it, and then kept for the others."""

    __slots__ = ("_data", "_encoded", "_for_all", "_kind", "_node", "_type_url")

    def __init__(
        self, kind: str, data: Row, *, type_url: TypeUrl | None = None, node: str | None = None, for_all: bool = False
    ) -> None:
        """`for_all`: readers get it whatever else they want."""
        self._kind = kind
        self._data = data
        self._type_url = type_url
        self._node = node
        self._for_all = for_all
        self._encoded: bytes | None = None

    def for_reader(self, wanted: Filter) -> bytes | None:
        """Return the event as it is written; None: the reader does not want it."""
        is_wanted = wanted.node in (None, self._node) and wanted.type_url in (None, self._type_url)
        if not is_wanted and not self._for_all:
            return None
        if self._encoded is None:
            self._encoded = encoded(self._kind, self._data)
        return self._encoded


class RevisionEvent:
    """A revision, of which a reader may want the changes of one type only."""

    __slots__ = ("_encoded", "_revision", "number")

    def __init__(self, revision: Revision) -> None:
        self.number = revision.number
        self._revision = revision
        self._encoded: dict[TypeUrl | None, bytes | None] = {}

    def for_reader(self, wanted: Filter) -> bytes | None:
        """Return the event as it is written; None: the reader does not want it."""
        if wanted.node is not None:
            return None
        if wanted.type_url not in self._encoded:
            row = revision_row(self._revision, wanted.type_url)
            is_wanted = wanted.type_url is None or row["changes"] or row["more"]
            self._encoded[wanted.type_url] = encoded("revision", row, row["revision"]) if is_wanted else None
        return self._encoded[wanted.type_url]


def encoded(kind: str, data: Row, revision: int | None = None) -> bytes:
    """Write an event for the wire. JSON escapes line ends, so that no name can begin an event of its own."""
    number = f"id: {revision}\n" if revision is not None else ""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\n{number}data: {text}\n\n".encode(errors="backslashreplace")


class Reader:
    """One reader of events, and what waits for it."""

    def __init__(self, wanted: Filter, wall: Callable[[], float], seen: int) -> None:
        """`seen`: the newest revision that it knows; it gets no older one."""
        self._wanted = wanted
        self._seen = seen
        self._wall = wall
        self._queue: deque[Event | RevisionEvent] = deque()
        self._missed = 0  # events that were dropped since the last `take`
        self._news = asyncio.Event()
        self._is_over = False

    def put(self, event: Event | RevisionEvent) -> None:
        """Queue an event; if the queue is full, drop all of it."""
        if isinstance(event, RevisionEvent):
            if event.number <= self._seen:
                return
            self._seen = event.number
        if len(self._queue) >= QUEUED:
            self._missed += len(self._queue)
            self._queue.clear()
        self._queue.append(event)
        self._news.set()

    def end(self) -> None:
        """Have the stream end after what is queued."""
        self._is_over = True
        self._news.set()

    def take(self) -> bytes:
        """Return the next events, not too many at a time; nothing if none of these is wanted."""
        parts: list[bytes] = []
        size = 0
        if self._missed:
            row = {"time": time_of_day(self._wall()), "why": "this reader is too slow", "missed": self._missed}
            parts.append(encoded("gap", row))
            self._missed = 0
        for _ in range(min(len(self._queue), AT_ONCE)):
            event = self._queue.popleft().for_reader(self._wanted)
            if event is not None:
                parts.append(event)
                size += len(event)
            if size > CHUNK:
                break
        return b"".join(parts)

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield what waits, until `end`, and a comment now and then."""
        yield f": revision {self._seen}\nretry: {RETRY}\n\n".encode()
        while True:
            self._news.clear()
            while self._queue or self._missed:
                chunk = self.take()
                if chunk:
                    yield chunk
                await asyncio.sleep(0)  # to encode a revision may take a millisecond
            if self._is_over:
                return
            await asyncio.sleep(PACE)
            try:
                await asyncio.wait_for(self._news.wait(), KEEPALIVE)
            except TimeoutError:
                yield b": still here\n\n"


class EventResponse(StreamingResponse):
    """The response to a reader, for as long as the reader stays."""

    def __init__(self, events: Events, reader: Reader) -> None:
        # A proxy is not to keep events back until it has many.
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(reader.stream(), media_type=EVENT_STREAM, headers=headers)
        self._events = events
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        never_end = scope.get("extensions", {}).get(ENDLESS)
        if never_end is not None:
            never_end()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._events.close(self._reader)


class Events:
    """Reads facts, and gives each reader the events that it wants: `hub.readers.append(events)`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._readers: dict[Reader, None] = {}
        self._streams: dict[int, _Client] = {}  # known while there are readers
        self._is_over = False

    def __len__(self) -> int:
        """Return how many readers there are."""
        return len(self._readers)

    def __call__(self, facts: Sequence[Fact]) -> None:
        if not self._readers:
            return
        for fact in facts:
            if type(fact) not in EVERYDAY:
                event = self._event(fact)
                if event is not None:
                    for reader in self._readers:
                        reader.put(event)

    def open(self, wanted: Filter, since: int | None) -> Reader:
        """Begin to read; with `since`, first the revisions after that one. Raises TooManyReadersError."""
        if len(self._readers) >= READERS:
            raise TooManyReadersError
        if not self._readers:
            self._streams = {
                each.stream.number: _Client(
                    each.stream.node.id if each.stream.node is not None else "", each.peer.address
                )
                for each in self._hub.connected()
            }
        newest = self._hub.history.newest or 0
        reader = Reader(wanted, self._hub.wall, newest if since is None else min(since, newest))
        if since is not None:
            known = self._hub.history.since(since)
            if known is None:
                reader.put(Event("gap", self._gap(since), for_all=True))
            for revision in known or ():
                reader.put(RevisionEvent(revision))
        self._readers[reader] = None
        if self._is_over:
            reader.end()
        return reader

    def close(self, reader: Reader) -> None:
        """Forget a reader that is gone. Idempotent."""
        self._readers.pop(reader, None)
        if not self._readers:
            self._streams.clear()

    def end(self) -> None:
        """End all streams, and those that come."""
        self._is_over = True
        for reader in self._readers:
            reader.end()

    def _gap(self, since: int) -> Row:
        history = self._hub.history
        return {
            "time": self._now(),
            "why": "the revisions after this one are not known any more, or it is of another run of the server",
            "since": since,
            "oldest": history.oldest,
            "newest": history.newest,
        }

    def _now(self) -> str:
        return time_of_day(self._hub.wall())

    def _event(self, fact: Fact) -> Event | RevisionEvent | None:
        """Return the event of a fact, if there is one."""
        match fact:
            case Published():
                return RevisionEvent(fact.record) if fact.record is not None else None
            case Opened() | Joined() | Closed():
                return self._client_event(fact)
            case Nacked():
                return self._nack(fact)
            case Recovered(stream, type_url, names, seconds):
                node = self._streams.get(stream, _Client("", "")).node
                row: Row = {"time": self._now(), "stream": stream, "node": node, "type": label_of(type_url)}
                row |= {"type_url": bounded(type_url, TEXT_BYTES), "seconds": round(seconds, 3)}
                row |= {"names": [bounded(name, NAME_BYTES) for name in names[:RESOURCES]]}
                return Event("recovered", row, type_url=type_url, node=node)
            case ConfigLoaded() | Refused() | ChangeHeldBack() | ChangeLetThrough():
                return Event("load", {"time": self._now(), **_load(fact)})
            case Drained():
                row = {"time": self._now(), "event": fact.event, "streams": fact.streams, "seconds": fact.seconds}
                return Event("drain", row, for_all=True)
            case _:
                return None

    def _client_event(self, fact: Opened | Joined | Closed) -> Event | None:
        """A stream for one request is no event: a client that polls would have three each time."""
        row: Row = {"time": self._now()}
        match fact:
            case Opened(stream, method, peer, brief, identity):
                self._streams[stream] = client = _Client("", peer, brief)
                row |= {"event": "connected", "method": method.rpartition("/")[2], "identity": identity or None}
            case Joined(stream, node):
                before = self._streams.get(stream, _Client("", ""))
                self._streams[stream] = client = _Client(node.id, before.peer, before.is_brief)
                row |= {"event": "joined", "cluster": node.cluster, "user_agent": node.user_agent}
            case Closed(stream, reason):
                client = self._streams.pop(stream, _Client("", ""))
                row |= {"event": "left", "reason": bounded(reason, TEXT_BYTES) or None}
        if client.is_brief:
            return None
        row |= {"stream": stream, "node": client.node, "peer": client.peer}
        return Event("client", row, node=client.node)

    def _nack(self, fact: Nacked) -> Event:
        client = self._streams.get(fact.stream, _Client("", ""))
        row = {
            "time": self._now(),
            "stream": fact.stream,
            "node": client.node,
            "type": label_of(fact.type_url),
            "type_url": bounded(fact.type_url, TEXT_BYTES),
            "code": fact.error.code,
            "message": fact.error.message,
            "version": bounded(fact.version, NAME_BYTES),
            "resources": [described(each) for each in fact.variants[:RESOURCES]],
            "more": max(0, len(fact.variants) - RESOURCES),
        }
        return Event("nack", row, type_url=fact.type_url, node=client.node)


@dataclass(frozen=True, slots=True)
class _Client:
    """Who has a stream."""

    node: str  # empty before it said so
    peer: str
    is_brief: bool = False


def _load(fact: ConfigLoaded | Refused | ChangeHeldBack | ChangeLetThrough) -> Row:
    match fact:
        case ConfigLoaded(files, resources, warnings):
            return {"result": "ok", "files": files, "resources": resources, "warnings": warnings, "problems": []}
        case Refused(problems, known):
            shown = [bounded(each, TEXT_BYTES) for each in problems[:PROBLEMS]]
            return {"result": "refused", "problems": shown, "more": len(problems) - len(shown) + known}
        case ChangeHeldBack(change):
            return {"result": "held_back", "id": change.id, "problems": [*change.reasons[:PROBLEMS]]}
        case ChangeLetThrough(change):
            return {"result": "confirmed", "id": change.id, "problems": [*change.reasons[:PROBLEMS]]}
