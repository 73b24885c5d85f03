"""Serves CSDS, the status of the clients, as calls; core/codec/client_status.py makes the answers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from time import time

from ..core.codec.client_status import Tools, answering, decode_question
from ..core.model.events import Node
from ..core.model.steps import Steps, finish
from ..core.policy.oversight import Viewer
from ..core.serve.client_status import Candidate, StatusQuestion
from ..errors import PeerError
from ..messages.redaction import redacting_bytes
from ..messages.sensitive import is_secret_metadata
from ..peer_address import host_of
from .calls import Call, Method, Peer, RefusedCall
from .connection_limits import client_of
from .hub import Hub
from .methods import CLIENT_STATUS
from .slicing import Job

# Answers that are made, or wait until they are written, at once. One takes 4 MB, and some 20 MB while it is made.
ANSWERS, ANSWERS_OF_A_CLIENT = 12, 4


def status_methods(hub: Hub) -> Iterator[Method]:
    """Return the methods of CSDS."""
    desk = StatusDesk(hub)
    yield desk.method("FetchClientStatus", is_stream=False)
    yield desk.method("StreamClientStatus", is_stream=True)


class StatusDesk:
    """Counts the answers in progress."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._answers: Counter[str] = Counter()  # by client

    def method(self, name: str, *, is_stream: bool) -> Method:
        """Return a method that begins a call for whoever its token says it is."""

        def open_call(peer: Peer) -> Call:
            try:
                return StatusCall(self, self.hub.identify(peer), is_stream=is_stream)
            except PeerError as error:
                return RefusedCall(error.status, error.message, self.hub.clock())

        return Method(f"/{CLIENT_STATUS}/{name}", open_call)

    def begin(self, client: str) -> None:
        """Count an answer. Raises PeerError if there are too many."""
        if self._answers[client] >= ANSWERS_OF_A_CLIENT or self._answers.total() >= ANSWERS:
            raise PeerError("RESOURCE_EXHAUSTED", "too many answers about clients are being made: ask again later")
        self._answers[client] += 1

    def end(self, client: str) -> None:
        """Count an answer as written, or given up."""
        self._answers[client] -= 1
        if not self._answers[client]:
            del self._answers[client]


class StatusCall(Call):
    """One call of CSDS. A stream gets one answer for each request, one after the other, and none between requests."""

    def __init__(self, desk: StatusDesk, peer: Peer, *, is_stream: bool) -> None:
        super().__init__()
        desk.hub.admit(peer)
        self._desk = desk
        self._hub = hub = desk.hub
        self._peer = peer
        self._client = client_of(peer)
        self._is_stream = is_stream
        self._node = Node()  # of the client, as it said last
        self._waiting: deque[StatusQuestion] = deque()
        self._job: Job | None = None
        self._has_begun = False  # an answer is being made, or waits to be written
        self._answer: bytes | None = None
        self._error: Exception | None = None
        self._is_ending = False  # no further request comes
        self._standing = peer.standing
        hub.policy_listeners.append(self._policy_changed)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being made."""
        return self._job is not None

    def receive(self, message: bytes) -> None:
        self._check()
        if self._is_ending:
            return
        self._is_ending = not self._is_stream
        self._hub.admit_fetch(self._peer)  # OPS-4: an answer is as much work as a fetch, or more
        self._waiting.append(decode_question(message, self._hub.settings.node_params))
        self._go_on()

    def _go_on(self) -> None:
        """Begin the next answer, unless one is in progress, and say whether to read on."""
        if self._waiting and not self._has_begun and self._error is None:
            self._desk.begin(self._client)
            self._has_begun = True
            question = self._waiting.popleft()
            if self._hub.slices is None:
                finish(self._answering(question))
            else:
                owner = host_of(self._peer.address)
                self._job = self._hub.slices.begin(self._answering(question), self._fail, owner=owner)
        self.port.hold_back(waits=self._has_begun)

    def _answering(self, question: StatusQuestion) -> Steps[None]:
        """Make an answer, in steps; anew if the policy changes meanwhile."""
        hub = self._hub
        self._node = question.node or self._node
        while True:
            policy = hub.policy
            viewer = Viewer(hub.grant_of(self._peer, self._node))
            if viewer.refusal:
                raise PeerError("PERMISSION_DENIED", viewer.refusal)
            tools = Tools(redacting_bytes, is_secret_metadata, time() - hub.clock())
            answer = yield from answering(self._candidates(), question, viewer, tools)
            if hub.policy is policy:
                break
        self._answer = answer
        self._job = None
        self._settle()
        self.wake()

    def _candidates(self) -> list[Candidate]:
        """Return the live streams. Those of one node id and host are one client (see `Hub.client`)."""
        return [
            Candidate(
                (host_of(each.peer.address), node.id) if (node := each.stream.node) and node.id else each.stream.number,
                each.stream,
            )
            for each in self._hub.connected()
        ]

    def _fail(self, error: Exception) -> None:
        """Keep an exception for the next poll, which ends this call and no other (OPS-10)."""
        self._job = None
        self._error = error
        self._waiting.clear()
        self.wake()

    def _check(self) -> None:
        """Raise PeerError if what the client proved by a token holds no longer."""
        if self._standing is not None:
            self._standing.check(self._hub.clock())

    def _policy_changed(self) -> None:
        if self._standing is not None:
            self._standing.review(self._hub.tokens)
            self.wake()

    def deadline(self) -> float | None:
        return self._standing.before(None) if self._standing is not None else None

    def poll(self) -> Iterator[bytes]:
        self._check()
        if self._error is not None:
            raise self._error
        answer, self._answer = self._answer, None
        if answer is not None:
            yield answer
            self._written()

    def _written(self) -> None:
        """Make the next answer: the transport has taken this one."""
        self._release()
        self._go_on()
        self._settle()

    def _release(self) -> None:
        """Count the answer in progress as over."""
        if self._has_begun:
            self._has_begun = False
            self._desk.end(self._client)

    def _settle(self) -> None:
        """Finish with the next poll if no request is left to be answered."""
        self.finished = self._is_ending and self._job is None and not self._waiting

    def half_close(self) -> None:
        if not self._is_stream and not self._is_ending:
            raise PeerError("INVALID_ARGUMENT", "this method takes one message, and none came")
        self._is_ending = True
        self._settle()

    def end(self) -> None:
        """Finish after the answers to what was asked; a fetch goes on until its response is sent."""
        if self._is_stream:
            self._is_ending = True
            self._settle()
            self.wake()

    def close(self, reason: str = "") -> None:
        del reason
        if self._job is not None:
            self._job.abandon()
            self._job = None
        self._release()
        self._error = None
        self._waiting.clear()
        self._hub.release(self._peer)
        if self._policy_changed in self._hub.policy_listeners:
            self._hub.policy_listeners.remove(self._policy_changed)
