"""Keep the state of the stream to one server, and decide when the next one is opened.

    event       happens when                                         from              next state
    ----------  ---------------------------------------------------  ----------------  ----------
    (new)       the client has this server                                             IDLE
    CONNECT     the client begins to open a stream                   any               CONNECTING
    OPENED      the stream is open, and requests can be sent         any               OPEN
    RESPONSE    the server has sent a response                       OPEN, ANSWERED    ANSWERED
    ENDED       the stream ended, or could not be opened             any               BACKOFF
    REPLACED    the client closed the stream to open another at once any               IDLE
    RELEASED    no authority wants the server any more               any               IDLE

`TRANSITIONS` is this table, and `StreamLifecycle._on` alone applies it.

BACKOFF lasts until `retry_at`, which may be now. How the client reconnects after a stream has ended:

    stream                                            next attempt            failure (watchers may hear of it)
    ------------------------------------------------  ----------------------  ---------------------------------
    got a response                                    at once                 no (CLI-16)
    got a response, twice in a row for under HASTY s  after a backoff         no
    got none, and the form or method is to blame      at once, in another one no
    got none, or could not be opened                  after a backoff         yes (CLI-17)
"""

from __future__ import annotations

from enum import Enum

from ...errors import WatchError
from ..model.backoff import Backoff

# Seconds: a stream that lasted as long without a response resets the backoff, as a server without news is silent.
LASTING = 60.0
HASTY = 1.0  # seconds: after two streams in a row that lasted less, the next one waits for a backoff


class StreamState(Enum):
    """The state of the stream to a server."""

    IDLE = 1
    CONNECTING = 2
    OPEN = 3  # the server has not sent a response on it yet
    ANSWERED = 4
    BACKOFF = 5


class StreamEvent(Enum):
    """What changes the state of a stream; the module docstring says when each happens."""

    CONNECT = 1
    OPENED = 2
    RESPONSE = 3
    ENDED = 4
    REPLACED = 5
    RELEASED = 6


_CONNECTED = (StreamState.OPEN, StreamState.ANSWERED)

TRANSITIONS: dict[StreamEvent, dict[StreamState, StreamState]] = {
    StreamEvent.CONNECT: dict.fromkeys(StreamState, StreamState.CONNECTING),
    StreamEvent.OPENED: dict.fromkeys(StreamState, StreamState.OPEN),
    StreamEvent.RESPONSE: dict.fromkeys(_CONNECTED, StreamState.ANSWERED),
    StreamEvent.ENDED: dict.fromkeys(StreamState, StreamState.BACKOFF),
    StreamEvent.REPLACED: dict.fromkeys(StreamState, StreamState.IDLE),
    StreamEvent.RELEASED: dict.fromkeys(StreamState, StreamState.IDLE),
}


class StreamLifecycle:
    """The stream to one server: its state, how the last one ended, and when the next one may be opened."""

    def __init__(self) -> None:
        self.state = StreamState.IDLE
        self.failing: WatchError | None = None  # why the last stream got no response
        self.failures = 0  # how often the server began to fail (A78)
        self.lost: tuple[float, WatchError] | None = None  # when and how the last stream ended
        self.parted: float | None = None  # when the last stream that was open ended
        self.retry_at = 0.0
        self._backoff = Backoff()
        self._opened_at = 0.0
        self._was_hasty = False

    @property
    def connected(self) -> bool:
        """Whether a stream is open."""
        return self.state in _CONNECTED

    @property
    def is_answered(self) -> bool:
        """Whether the server has sent a response on the open stream."""
        return self.state is StreamState.ANSWERED

    @property
    def since(self) -> float | None:
        """When the open stream was opened; None: there is none."""
        return self._opened_at if self.connected else None

    def connect(self) -> None:
        """Note that the client opens a stream."""
        self._on(StreamEvent.CONNECT)

    def opened(self, now: float) -> None:
        """Note that the stream is open."""
        self._on(StreamEvent.OPENED)
        self._opened_at = now

    def note_response(self) -> bool:
        """Note a response; return whether it is the first one of the stream."""
        self._backoff.reset()
        first = self.state is StreamState.OPEN
        if self.connected:
            self._on(StreamEvent.RESPONSE)
        return first

    def recover(self) -> None:
        """Note that the outage is over: the server has sent a response."""
        self.failing = None

    def ended(self, error: WatchError, now: float, random: float, *, at_once: bool) -> bool:
        """Handle the end of a stream, or a failure to open one; return whether it is a failure (CLI-16, CLI-17).

        at_once: the next stream uses another form or method, so this end is no failure.
        """
        was_open, answered = self.connected, self.is_answered
        self._on(StreamEvent.ENDED)
        self.lost = now, error
        self.parted = now if was_open else self.parted
        hasty = was_open and now - self._opened_at < HASTY
        # The stream was fine; the server just had nothing to send.
        if was_open and now - self._opened_at >= LASTING:
            self._backoff.reset()
        # CLI-16: a stream that had a response is followed by the next one at once.
        if answered and not (hasty and self._was_hasty):
            self.retry_at = now
        else:
            self.retry_at = now + self._backoff.next(random)
        self._was_hasty = answered and hasty
        if answered:
            return False
        if at_once:
            self.retry_at = now
            return False
        self.failures += self.failing is None
        self.failing = error
        return True

    def replaced(self) -> None:
        """Note that the client closed the stream itself: no failure, and no backoff."""
        self._on(StreamEvent.REPLACED)

    def released(self) -> None:
        """Forget the stream and its failures: the server is not needed any more."""
        self._on(StreamEvent.RELEASED)
        self.failing = None
        self.retry_at = 0.0
        self._backoff.reset()

    def _on(self, event: StreamEvent) -> None:
        """Change the state; no other method does."""
        self.state = TRANSITIONS[event][self.state]
