"""Serves a fetch (one request, one response) as a call, over gRPC and REST; core/serve/fetching.py decides."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.model.events import EncodedResponse, Request, Send
from ..core.model.facts import Facts
from ..core.model.steps import Steps
from ..core.model.type_versions import TypeNames
from ..core.model.types import TypeUrl
from ..core.serve.fetching import Fetch, Patience, Unchanged
from ..errors import PeerError
from .calls import Peer
from .hub import Hub
from .long_work import is_long
from .slicing import LONG_COUNT
from .xds_call import Connected, XdsCall


class FetchCall(XdsCall):
    """One fetch: a request, and a response once there is something to answer.

    gRPC polls it like any call. REST (rest.py) asks `answer`, and sets `patience` so that the server may hold the
    response until something changes.
    """

    def __init__(self, hub: Hub, connected: Connected, names: TypeNames, fetch: Fetch) -> None:
        super().__init__(hub, connected, names)
        self._idleness = None  # it may wait for a change
        self._fetch = fetch
        self._answered = False
        self._found: Send | Unchanged | None = None  # the result of `_finding`, which ran in slices
        self.patience: Patience | None = None  # REST: how long to wait for a change

    @property
    def is_held(self) -> bool:
        """Whether the response waits for a change."""
        return self._fetch.is_held

    def take(self, request: Request) -> None:
        if not self._fetch.is_asked:
            self._fetch.receive(self._named(request), self._hub.clock(), self.patience)
            self.port.wake()
            self._pass_on()

    def taking(self, request: Request) -> Steps[None]:
        if not self._fetch.is_asked:
            yield from self._fetch.receiving(self._named(request), self._hub.clock(), self.patience)
            self._pass_on()

    def deadline(self) -> float | None:
        return self.before_lapse(self._fetch.deadline())

    def poll_shared(self) -> Iterator[bytes | EncodedResponse]:
        self.check()
        if self._answered and self._work is not None:
            return self._work.poll()
        answer = self.answer()
        if not isinstance(answer, Send):
            return iter(())
        work = self._long_work() if is_long(answer) else None
        if work is None:
            return iter((self.encoded(answer),))
        work.give([answer])
        return work.poll()

    def answer(self) -> Send | Unchanged | None:
        """Return the response once it is known; None before that, and after it was returned."""
        if self._answered:
            return None
        self.check()
        if self._work is not None:
            self._work.check()
            return None
        if self.finished:  # the server drains: answer now, with what there is
            if not self._fetch.is_asked:
                raise PeerError("UNAVAILABLE", "the server is stopping: ask again, or another one")
            self.hurry()
        if self._found is None and self._fetch.is_asked and self._fetch.backlog > LONG_COUNT:
            work = self._long_work()
            if work is not None:
                work.begin(self._finding)
                return None
        found = self._found or self._fetch.poll(self._hub.clock())
        if found is not None:
            self._answered = True
            self.end()
        self._pass_on()
        return found

    def _finding(self) -> Steps[None]:
        self._found = yield from self._fetch.polling(self._hub.clock())

    def hurry(self) -> None:
        """Answer at the next poll, without waiting for a change."""
        self._fetch.hurry(self._hub.clock())

    def half_close(self) -> None:
        if not self._fetch.is_asked and self._work is None:
            raise PeerError("INVALID_ARGUMENT", "this method takes one message, and none came")

    def drain(self, by: float) -> None:
        """Finish at once: unlike a stream, a fetch gets no ACK that would show that the response was read."""
        del by
        self.end()

    def _pass_on(self) -> None:
        """Pass the facts of the fetch to the hub."""
        self._hub.facts += self._fetch.reported_facts
        self._fetch.reported_facts.clear()
        self._hub.turn()


def open_fetch(hub: Hub, method: str, peer: Peer, only_type: TypeUrl, *, v2: bool) -> FetchCall:
    """Begin a fetch of one resource type. Raises PeerError if the client has too many streams."""
    hub.admit(peer)
    facts = Facts()
    stream = hub.stream(facts, peer, delta=False, only_type=only_type)
    connected = Connected(stream, method, peer, hub.clock())
    call = FetchCall(hub, connected, TypeNames(only_type, v2=v2), Fetch(stream, facts, only_type))
    hub.enter(call, brief=True)
    return call
