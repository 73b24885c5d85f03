"""The contract between a transport and a gRPC method: messages in and out, as bytes.

Every method, unary ones too, is served as a stream of messages each way, which is what gRPC is on the wire. A transport
(`engine_*.py`, `rest.py`, `testing/hub_transport.py`) does this for each call:

    call = method.open(peer)        the call begins
    call.attach(port)               the call may ask for a poll (`CallPort.wake`), or for no further messages
    call.receive(message)           for each message of the client
    for message in call.poll()      after each wake, and at `deadline()`; write as fast as the client reads
    call.half_close()               the client sends no more
    call.drain(by)                  the connection or the server is to end
    call.close(reason)              once, when the RPC is over

While a write is blocked the transport does not poll, and so changes merge meanwhile (SOT-16, DLT-23).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..core.model.events import EncodedResponse
from ..core.policy.identity import Identity
from ..core.policy.tokens import Standing
from ..errors import PeerError
from ..http2.grpc import PiecesFactory
from ..native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class CallPort:
    """What a call may ask of the transport that carries it. This one belongs to no transport, and does nothing."""

    __slots__ = ()

    def wake(self) -> None:
        """Poll the call soon. A call may ask for this at any time."""

    def hold_back(self, *, waits: bool) -> None:
        """Read no further messages of the client (`waits`), or go on."""


DETACHED = CallPort()

DETAILS = 1_000  # characters of an error: a status travels in trailers, and clients refuse more than 8 kB of those
MISTAKE = "internal error: a mistake of the server, whose log has the details"


def status_of(error: Exception) -> tuple[str, str]:
    """Return the gRPC status of an error and its text, as clients, the log and pages are told.

    Only what was raised for the client to read is quoted: any other text could have a value of somebody else in it.
    """
    if isinstance(error, PeerError):
        return error.status, error.message[:DETAILS]
    return "INTERNAL", MISTAKE


def reason_of(error: Exception) -> str:
    """Return why a call ended, for its `close`."""
    return str(error)[:DETAILS] if isinstance(error, PeerError) else MISTAKE


@mypyc_attr(allow_interpreted_subclasses=True)
class Call(ABC):
    """One RPC in progress."""

    finished = False  # once true, the next poll is the last; when that is written the RPC ends with status OK

    def __init__(self) -> None:
        self.port = DETACHED

    def attach(self, port: CallPort) -> None:
        """Take the port of the transport, after `open`; or DETACHED, after `close`."""
        self.port = port

    def wake(self) -> None:
        """Ask the transport for a poll."""
        self.port.wake()

    @property
    def is_busy(self) -> bool:
        """Whether it processes a message in slices. It wakes when that is done; don't end it before."""
        return False

    @abstractmethod
    def receive(self, message: bytes) -> None:
        """Process one message, and wake if there is something to send. Raises PeerError, whose status ends the RPC."""

    @abstractmethod
    def poll(self) -> Iterator[bytes]:
        """Return the messages to write now. Each is encoded when the transport takes it."""

    def poll_shared(self) -> Iterator[bytes | EncodedResponse]:
        """Do what `poll` does, with the object in place of its bytes where many calls send one message."""
        return self.poll()

    def deadline(self) -> float | None:
        """Return when to poll again although nothing called `wake`, in the clock that the call was made with."""
        return None

    def half_close(self) -> None:  # noqa: B027 # most calls need not know
        """Note that the client will send no more messages. May raise as `receive` does."""

    def end(self) -> None:
        """Finish with the next poll."""
        self.finished = True
        self.wake()

    def drain(self, by: float) -> None:
        """Finish in time: the transport closes the connection after its last call, and at `by` in any case."""
        del by
        self.end()

    def close(self, reason: str = "") -> None:  # noqa: B027 # nor this
        """Release what the call holds: the RPC is over. `reason` is empty unless it failed."""


class UnaryCall(Call):
    """A unary RPC: `answer` makes the response from the request."""

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
        """Go on until the response is sent: it won't take long, and OK without a response would be an error."""


SILENT_SECONDS = 1.0  # until a client that sends no message gets the status of a refused call


class RefusedCall(Call):
    """A call that ends with an error from its beginning on: of an unknown method, with a bad token, or beyond a limit.

    The status waits for the client's first message: grpcio clients lose the status of a call that ends while their
    first message is in flight. A client that sends nothing gets it after SILENT_SECONDS.
    """

    def __init__(self, status: str, message: str, now: float) -> None:
        super().__init__()
        self._status = status
        self._message = message
        self._due = now + SILENT_SECONDS
        self._opened = False

    def receive(self, message: bytes) -> None:
        del message
        raise self._error()

    def half_close(self) -> None:
        raise self._error()

    def poll(self) -> Iterator[bytes]:
        if self._opened:
            raise self._error()
        self._opened = True
        return iter(())

    def _error(self) -> PeerError:
        """Make the error when it is raised. One that the call kept would refer to the call, by the frames it passed."""
        return PeerError(self._status, self._message)

    def deadline(self) -> float | None:
        return self._due


@dataclass(frozen=True, slots=True)
class Peer:
    """The client of a call: at first as the transport knows it, then as its bearer token says (bearers.py)."""

    address: str  # as gRPC writes it: `ipv4:127.0.0.1:40000`
    identities: tuple[str, ...] = ()  # names in its verified certificate: SPIFFE ids, other URIs, hosts; of its token
    authorization: tuple[str, ...] = field(default=(), repr=False)  # values of that header, until they are verified
    proved: tuple[Identity, ...] = ()  # what the certificate and the token prove, for a policy
    standing: Standing | None = field(default=None, repr=False, compare=False)  # of a call that came with a token

    @property
    def identity(self) -> str:
        """The first identity, for logs and pages; empty if there is none."""
        return self.identities[0] if self.identities else ""


@dataclass(frozen=True, slots=True)
class Method:
    """A gRPC method: its path, and the function that opens a call of it."""

    path: str
    open: Callable[[Peer], Call]
    parting: PiecesFactory | None = None  # how to split a message above the size limit; None: it is refused
