"""Control planes that know nothing of dynamic parameters, in the ways in which those in the field differ.

All of them skip what they do not know in a request: one that has locators and no names is one without names, which is a
wildcard if it is the first of its type.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import xdsprism as xp
from tests.client.rig import MAKE
from xdsprism.testing import PeerStream, ScriptedPeer


@dataclass
class Habits:
    """What one control plane does, and others do not."""

    has_delta: bool = True
    ends_on_locators: str = ""  # the status with which it ends a stream that has any
    tells_of_nothing: bool = False  # delta: of a name that it does not have it says so at once
    sends_all: bool = False  # delta: whatever the names are; and of one that was given up it tells no more that it goes


class Plane:
    """Resources by type and name, each with a mark; the same for every node."""

    def __init__(self, **habits: Any) -> None:
        self.peer = ScriptedPeer()
        self.habits = Habits(**habits)
        self.resources: dict[str, dict[str, str]] = {url: {} for url in MAKE}
        self.version = 0
        self.talks: list[Talk] = []
        self.paths: list[str] = []  # of the streams that were opened

    def publish(self, type_url: str = xp.CLUSTER, **marks: str) -> None:
        self.version += 1
        self.resources[type_url] = marks
        for talk in self.talks:
            talk.update()

    @property
    def streams(self) -> list[Talk]:
        return [talk for talk in self.talks if not talk.is_over]

    def end(self, status: str = "UNAVAILABLE") -> None:
        """Every stream is over; others may be opened."""
        for talk in self.streams:
            talk.end(status)

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                stream = await self.peer.accept()
                self.paths.append(stream.path.rpartition("/")[2])
                if stream.is_delta and not self.habits.has_delta:
                    stream.end("UNIMPLEMENTED", "unknown method DeltaAggregatedResources")
                    continue
                self.talks.append(Talk(self, stream))
                tasks.create_task(self.talks[-1].run())

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        serving = asyncio.ensure_future(self.serve())
        try:
            yield
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


@dataclass
class Watched:
    """One type on one stream."""

    names: dict[str, None] = field(default_factory=dict)
    is_wild: bool = False
    sent: dict[str, str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    nonce: str = ""


class Talk:
    """One stream."""

    def __init__(self, plane: Plane, stream: PeerStream) -> None:
        self.requests: list[Any] = []
        self.types: dict[str, Watched] = {}
        self._plane = plane
        self._stream = stream
        self._count = 0
        self._ended = False

    @property
    def is_over(self) -> bool:
        return self._ended or self._stream.cancelled.is_set()

    @property
    def locators(self) -> list[Any]:
        """All that were ever asked for."""
        asked = (self._lists(request)[1] for request in self.requests)
        return [locator for locators in asked for locator in locators]

    def end(self, status: str) -> None:
        self._ended = True
        self._stream.end(status)

    async def run(self) -> None:
        while True:
            request = await self._stream.request()
            self.requests.append(request)
            assert not request.HasField("error_detail"), request.error_detail
            if self._plane.habits.ends_on_locators and self._lists(request)[1]:
                self.end(self._plane.habits.ends_on_locators)
                return
            self._hear(request)

    def _lists(self, request: Any) -> tuple[Any, Any]:
        if self._stream.is_delta:
            return request.resource_names_subscribe, request.resource_locators_subscribe
        return request.resource_names, request.resource_locators

    def _hear(self, request: Any) -> None:
        names, _ = self._lists(request)
        is_first = request.type_url not in self.types
        watched = self.types.setdefault(request.type_url, Watched())
        if is_first:
            watched.is_wild = not names or (self._plane.habits.sends_all and self._stream.is_delta)
            watched.sent = dict(request.initial_resource_versions) if self._stream.is_delta else {}
        if self._stream.is_delta:
            self._hear_delta(request, watched, is_first=is_first)
        elif request.response_nonce in ("", watched.nonce):
            fresh = [name for name in names if name not in watched.names]
            if watched.names or names:
                watched.is_wild = False
            watched.names = dict.fromkeys(names)
            if fresh or is_first:
                self._send_all(request.type_url, watched)

    def _hear_delta(self, request: Any, watched: Watched, *, is_first: bool) -> None:
        fresh = [name for name in request.resource_names_subscribe if name not in watched.names]
        sends_all = self._plane.habits.sends_all
        watched.is_wild |= "*" in fresh and not sends_all
        watched.names.update(dict.fromkeys(fresh))
        for name in request.resource_names_unsubscribe:
            watched.is_wild &= name != "*" or sends_all
            watched.names.pop(name, None)
            if sends_all:
                watched.forgotten.add(name)
            else:
                watched.sent.pop(name, None)
        known = self._plane.resources[request.type_url]
        denied = [name for name in fresh if name not in known and name != "*" and self._plane.habits.tells_of_nothing]
        self._send_news(request.type_url, watched, denied, anyway=is_first and watched.is_wild)

    def _wanted(self, type_url: str, watched: Watched) -> dict[str, str]:
        known = self._plane.resources[type_url]
        return {name: mark for name, mark in known.items() if watched.is_wild or name in watched.names}

    def _send_news(self, type_url: str, watched: Watched, denied: list[str], *, anyway: bool = False) -> None:
        wanted = self._wanted(type_url, watched)
        news = [name for name in wanted if watched.sent.get(name) != wanted[name]]
        gone = [*denied, *(name for name in watched.sent if name not in wanted and name not in watched.forgotten)]
        watched.sent = wanted
        watched.forgotten.difference_update(news)
        if news or gone or anyway:
            self._respond(type_url, watched, news, tuple(gone))

    def _send_all(self, type_url: str, watched: Watched) -> None:
        watched.sent = self._wanted(type_url, watched)
        self._respond(type_url, watched, [*watched.sent], ())

    def _respond(self, type_url: str, watched: Watched, names: list[str], gone: tuple[str, ...]) -> None:
        self._count += 1
        watched.nonce = str(self._count)
        made = [MAKE[type_url](name, watched.sent[name]) for name in names]
        version = str(self._plane.version)
        self._stream.respond(type_url, *made, version=version, nonce=watched.nonce, removed=gone)

    def update(self) -> None:
        for type_url, watched in self.types.items() if not self.is_over else ():
            if self._stream.is_delta:
                self._send_news(type_url, watched, [])
            elif self._wanted(type_url, watched) != watched.sent:
                self._send_all(type_url, watched)
