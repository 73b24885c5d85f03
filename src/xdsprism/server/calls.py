"""What a transport sees of a gRPC method: bytes in, bytes out.

Every method, unary ones too, is served as a stream of messages each way, which is what gRPC is on the wire. A transport
(`engine_*.py`) feeds messages to a `Call` and writes what `poll` gives, as fast as its peer reads; while a write is
blocked it does not poll, and so whatever changes meanwhile is merged (SOT-16, DLT-23).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..errors import PeerError
from ..http2.grpc import PiecesFactory


class Call(ABC):
    """One RPC in progress. The transport sets `wake`, which the call may use at any time to ask for a poll."""

    finished = False  # once true, the next poll is the last; when that is written the RPC ends with status OK
    is_busy = False  # it works on a message in slices, and wakes when it is done: don't end it before that

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        self.hold_back: Callable[[bool], None] = _at_will  # the transport's too: whether to read on is for later

    @abstractmethod
    def receive(self, message: bytes) -> None:
        """Take one message in, and wake if that gives something to say. Raises PeerError, whose status ends the RPC."""

    @abstractmethod
    def poll(self) -> Iterator[bytes]:
        """What to write now, encoded as it is taken."""

    def deadline(self) -> float | None:
        """When to poll again although nobody called `wake`; in the clock that the call was made with."""
        return None

    def half_close(self) -> None:  # noqa: B027 # most calls need not know
        """The client will send no more. May raise as `receive` does."""

    def end(self) -> None:
        """Finish when convenient."""
        self.finished = True
        self.wake()

    def drain(self, by: float) -> None:
        """The connection is closed when its last call is over, and at `by` in any case: finish in time."""
        del by
        self.end()

    def close(self, reason: str = "") -> None:  # noqa: B027 # nor this
        """The RPC is over; `reason` says what was wrong, if anything was."""


def _at_will(_: bool) -> None:  # noqa: FBT001 # there is nothing to choose
    """Whoever feeds the call has no way to wait."""


class UnaryCall(Call):
    """One message in, one out."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._answer = answer
        self._reply: bytes | None = None

    def receive(self, message: bytes) -> None:
        if not self.finished:
            self._reply = self._answer(message)
            self.finished = True
            self.wake()

    def poll(self) -> Iterator[bytes]:
        if self._reply is not None:
            yield self._reply
            self._reply = None

    def half_close(self) -> None:
        if not self.finished:
            raise PeerError("INVALID_ARGUMENT", "this method takes one message, and none came")

    def end(self) -> None:
        """Not before it is answered: it won't be long, and an end without an answer would be an error."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who calls, as far as the transport knows."""

    address: str  # as gRPC writes it: `ipv4:127.0.0.1:40000`
    identities: tuple[str, ...] = ()  # of its certificate, which was verified: SPIFFE ids, other URIs, hosts
    authorization: tuple[str, ...] = field(default=(), repr=False)  # what the call has of that field, to be verified

    @property
    def identity(self) -> str:
        """For people to read; empty, if it has none."""
        return self.identities[0] if self.identities else ""


@dataclass(frozen=True, slots=True)
class Method:
    """A gRPC method: its path, and how a call of it begins."""

    path: str
    open: Callable[[Peer], Call]
    parting: PiecesFactory | None = None  # how to read a message that is above the limit; None: it is refused
