"""What happened. The core appends facts to a list; metrics, logs and status pages read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..model.limits import Client, Scarce
from .dialect import RequestForm
from .events import Node, Rejection
from .limits import RefusalKind
from .removal_guard import HeldBack
from .types import TypeUrl

Lookup = Literal["hit", "miss", "stale"]
Outcome = Literal["found", "none", "failed"]


@dataclass(frozen=True, slots=True)
class Opened:
    stream: int
    method: str
    peer: str
    brief: bool = False  # for one question, and its answer
    identity: str = ""  # of the certificate that the client has shown


@dataclass(frozen=True, slots=True)
class Joined:
    """The first message of a stream said who the client is."""

    stream: int
    node: Node


@dataclass(frozen=True, slots=True)
class Closed:
    stream: int
    reason: str  # empty: the client left or the server drains


class Requested(NamedTuple):
    stream: int
    type_url: TypeUrl


class Sent(NamedTuple):
    stream: int
    type_url: TypeUrl
    nonce: str
    resources: int
    removed: int


class Acked(NamedTuple):
    stream: int
    type_url: TypeUrl
    nonce: str
    seconds: float  # from the response to its ACK


@dataclass(eq=False, slots=True)
class Routine:
    """Counts of one type's pushes and ACKs on the fast path (serve/fast_path.py) since the last look.

    These are many and alike, so that no fact is made for each.
    """

    type_url: TypeUrl
    pushes: int = 0  # responses
    resources: int = 0  # in these
    waits: list[float] = field(default_factory=list)  # by ACK, which is a request too: seconds since the response


@dataclass(frozen=True, slots=True)
class Nacked:
    stream: int
    type_url: TypeUrl
    nonce: str
    version: str
    error: Rejection
    parts: tuple[tuple[str, str], ...] = ()  # names and versions of what was in it, where that is known
    isolates: bool = False  # each of these is sent once more, alone (NAK-29)


@dataclass(frozen=True, slots=True)
class Suppressed:
    """Resources that were not sent because the client has them already."""

    stream: int
    type_url: TypeUrl
    resources: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """VHD-25: more names were asked for that nothing has than are remembered; these are the oldest."""

    stream: int
    type_url: TypeUrl
    names: int


@dataclass(frozen=True, slots=True)
class SubscriptionsRefused:
    """DYN-46: a request asked for something past a limit; that is answered as not existing, and all else is served."""

    stream: int
    type_url: TypeUrl
    limit: RefusalKind
    count: int
    reason: str  # of the first of them


@dataclass(frozen=True, slots=True)
class Oversize:
    """DLT-22: a resource too large for any response."""

    stream: int
    type_url: TypeUrl
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class OtherNode:
    """SRV-7: a later message named a different node, which is ignored."""

    stream: int


@dataclass(frozen=True, slots=True)
class Published:
    revision: int
    changes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A configuration was not taken; what was current stays current."""

    problems: tuple[str, ...]  # those that the last refusal did not have
    known: int = 0  # others, that were told with an earlier one


@dataclass(frozen=True, slots=True)
class ChangeHeldBack:
    """A configuration removes so much that it waits for a confirmation; what was current stays current (OPS-13)."""

    change: HeldBack
    remedy: str  # what lets it through


@dataclass(frozen=True, slots=True)
class ChangeLetThrough:
    """It was confirmed."""

    change: HeldBack


@dataclass(frozen=True, slots=True)
class Reached:
    """A stream to a server is open."""

    server: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A stream to a server is over, or none came about."""

    server: str
    error: str
    failed: bool  # it had not answered anything
    reached: bool = True  # there was a stream


@dataclass(frozen=True, slots=True)
class SubscriptionQuarantined:
    """PRX-35: a server ends the stream when it is asked for this; for so many seconds it is not asked again."""

    server: str
    type_url: TypeUrl
    name: str
    error: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ShareExceeded:
    """PRX-35: a relay's servers can't be asked for more, and a client has, or asks for, more than its share."""

    kind: Scarce
    client: Client
    gave_way: bool  # something that it had; otherwise what it asks for is refused
    count: int  # in one turn


@dataclass(frozen=True, slots=True)
class NackReported:
    """PRX-18: a server is told that a client of the relay rejects what it sent."""

    server: str
    type_url: TypeUrl
    version: str
    message: str


@dataclass(frozen=True, slots=True)
class FormFound:
    """PRX-32: a server turned out to understand locators, or plain names only. Once for each server and form."""

    server: str
    form: RequestForm


@dataclass(frozen=True, slots=True)
class LacksDelta:
    """PRX-33: a server does not have the delta method, and is asked in state of the world. Once for each server."""

    server: str


@dataclass(frozen=True, slots=True)
class Looked:
    """Somebody subscribed at a cache: it had an answer, had none, or had one that may be out of date."""

    type_url: TypeUrl
    found: Lookup
    count: int = 1


@dataclass(frozen=True, slots=True)
class Rejected:
    """A server's response had resources that can't be used."""

    server: str
    type_url: TypeUrl
    version: str
    message: str
    nameless: tuple[str, ...] = ()  # what is wrong with those that nobody can be told of


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """DYN-45: a server sent two variants for one subscription; the one received last is used."""

    type_url: TypeUrl
    name: str
    kept: str  # the constraints of both
    other: str
    first: bool  # that these were seen


@dataclass(frozen=True, slots=True)
class Consulted:
    """A provider was asked, and made something, or said that there is nothing, or failed."""

    type_url: TypeUrl
    name: str
    provider: str
    result: Outcome
    seconds: float
    error: str = ""
    news: bool = False  # it did not go like this the last time


@dataclass(frozen=True, slots=True)
class Polled:
    """A REST request was answered, with this status of HTTP."""

    status: int
    crowded: bool = False  # at once, as too many wait already


@dataclass(frozen=True, slots=True)
class LoadsHeard:
    """LRS-1: a client reported the loads of so many clusters."""

    node: str
    clusters: int


@dataclass(frozen=True, slots=True)
class LoadsRefused:
    """Of what it reported of one cluster nothing is used: it makes no sense."""

    node: str
    cluster: str
    message: str
    news: bool  # it was not so the last time


Fact = (
    Opened
    | Joined
    | Closed
    | Requested
    | Sent
    | Acked
    | Routine
    | Nacked
    | Suppressed
    | Forgotten
    | SubscriptionsRefused
    | Oversize
    | OtherNode
    | Published
    | Refused
    | ChangeHeldBack
    | ChangeLetThrough
    | Reached
    | Lost
    | SubscriptionQuarantined
    | ShareExceeded
    | NackReported
    | Rejected
    | Ambiguous
    | FormFound
    | LacksDelta
    | Looked
    | Consulted
    | Polled
    | LoadsHeard
    | LoadsRefused
)


class Facts(list[Fact]):
    """What happened, for whoever reads it."""

    __slots__ = ("routines",)

    def __init__(self) -> None:
        super().__init__()
        self.routines: dict[TypeUrl, Routine] = {}

    def routine(self, type_url: TypeUrl) -> Routine:
        found = self.routines.get(type_url)
        if found is None:
            found = self.routines[type_url] = Routine(type_url)
        return found

    def take(self) -> list[Fact]:
        """All of it; from here on it is another time."""
        taken = [*self, *self.routines.values()]
        self.clear()
        self.routines = {}
        return taken
