"""Define the facts that the core reports: one value for each thing that happened.

The core has no logger and no counters. It appends facts to a list (`Facts`); metrics, logs and status pages read the
list, and each picks the facts that it reports.

| facts                                              | about                                                           |
|----------------------------------------------------|-----------------------------------------------------------------|
| `Opened` to `OtherNode`                            | one downstream stream: its requests, responses, ACKs and NACKs  |
| `Published` to `ChangeLetThrough`                  | the configuration: transactions that were taken, refused or held|
| `Reached` to `LacksDelta`, `Rejected`, `Ambiguous` | the upstream servers of a client or a relay                     |
| `Looked`                                           | the cache of a relay                                            |
| `Consulted`                                        | a provider, which makes resources on demand                     |
| `Polled`, `LoadsHeard`, `LoadsRefused`             | REST requests and load reports                                  |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

from .dialect import RequestForm
from .events import Node, Rejection
from .history import Revision
from .limits import Client, ClientLimit, DenialKind, RefusalKind, Scarce
from .removal_guard import HeldBack
from .types import TypeUrl, Variant

Lookup = Literal["hit", "miss", "stale"]
Outcome = Literal["found", "none", "failed"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A client opened a stream, or a fetch that the server handles like one."""

    stream: int
    method: str
    peer: str
    brief: bool = False  # a stream for one request and one response
    identity: str = ""  # from the certificate that the client presented


@dataclass(frozen=True, slots=True)
class Joined:
    """The first request of a stream carried the client's node."""

    stream: int
    node: Node


@dataclass(frozen=True, slots=True)
class Closed:
    """A stream ended."""

    stream: int
    reason: str  # empty: the client closed it or the server drains
    is_usual: bool = False  # the reason is no trouble: a token expired, and the client comes back with a fresh one


class Requested(NamedTuple):
    """A request arrived.

    This and the two below are named tuples, which are cheaper to make, because there is one for each message.
    """

    stream: int
    type_url: TypeUrl


class Sent(NamedTuple):
    """A response was sent."""

    stream: int
    type_url: TypeUrl
    nonce: str
    resources: int
    removed: int


class Acked(NamedTuple):
    """The client ACKed a response."""

    stream: int
    type_url: TypeUrl
    nonce: str
    seconds: float  # from the response to its ACK


@dataclass(eq=False, slots=True)
class Routine:
    """Counts of one type's pushes and ACKs on the fast path (serve/fast_path.py) since the last `Facts.take`.

    Pushes on the fast path are many and alike, so one counter replaces a fact for each.
    """

    type_url: TypeUrl
    pushes: int = 0  # responses
    resources: int = 0  # resources in these responses
    # One entry per ACK, which is a request too: the seconds since its response.
    waits: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Nacked:
    """The client NACKed a response."""

    stream: int
    type_url: TypeUrl
    nonce: str
    version: str
    error: Rejection
    parts: tuple[tuple[str, str], ...] = ()  # names and versions of the resources in it, where they are known
    isolates: bool = False  # the session sends each of these resources once more, alone, to find the bad one (NAK-29)
    # The resources in it, which logs and events trace to where they are written.
    variants: tuple[Variant, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Recovered:
    """NAK-13: the client accepts what takes the place of resources that it NACKed."""

    stream: int
    type_url: TypeUrl
    names: tuple[str, ...]  # of these resources; none: the NACK was of a full state, or isolation found none bad
    seconds: float  # since the NACK


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The session did not send these resources, because the client has these versions already.

    It said so in initial_resource_versions (delta), or in version_info (SotW, REST).
    """

    stream: int
    type_url: TypeUrl
    resources: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """VHD-25: the client asked for more names that do not exist than the stream remembers; it forgot the oldest."""

    stream: int
    type_url: TypeUrl
    names: int


@dataclass(frozen=True, slots=True)
class SubscriptionsRefused:
    """DYN-46: subscriptions in a request exceed a limit. They are answered as not existing; all others are served."""

    stream: int
    type_url: TypeUrl
    limit: RefusalKind
    count: int
    reason: str  # for the first of the refused subscriptions


@dataclass(frozen=True, slots=True)
class LimitReached:
    """OPS-3, OPS-4: a client does more than it may. Only what is beyond the limit is refused or delayed."""

    limit: ClientLimit
    reason: str  # what the client is told, or would be
    client: str = ""  # the identity that it proved, or its address; empty: see the stream
    stream: int | None = None  # the stream that is concerned; None: one without a number


@dataclass(frozen=True, slots=True)
class Denied:
    """The policy does not let a client have what it subscribed to. It is told so for these subscriptions alone."""

    stream: int
    type_url: TypeUrl
    kind: DenialKind
    count: int
    name: str  # the first of them
    reason: str  # as the client is told
    rule: str  # of the policy


@dataclass(frozen=True, slots=True)
class TokenRefused:
    """A call was refused because of its bearer token."""

    peer: str  # the address
    cause: str  # a `RefusedFor` of core/policy/tokens.py
    reason: str  # as the client is told


@dataclass(frozen=True, slots=True)
class PolicyTaken:
    """The policy changed, and holds for all streams from now on."""

    rules: int
    streams: int  # whose grant changed


@dataclass(frozen=True, slots=True)
class PolicyRefused:
    """A changed policy has problems and was not taken; the current one stays."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Oversize:
    """DLT-22: a resource is too large for any response."""

    stream: int
    type_url: TypeUrl
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class OtherNode:
    """SRV-7: a later request named a different node; the stream ignores the new one."""

    stream: int


@dataclass(frozen=True, slots=True)
class Published:
    """The store took a transaction."""

    revision: int
    changes: int
    record: Revision | None = field(default=None, compare=False)  # what it changed; None: nothing


@dataclass(frozen=True, slots=True)
class ConfigLoaded:
    """The configuration was loaded and is served."""

    files: int
    resources: int  # names
    warnings: int


@dataclass(frozen=True, slots=True)
class Drained:
    """The server began to shut down, or is done with it: streams have ended, or were cut off."""

    event: Literal["started", "ended"]
    streams: int = 0  # that were open as it began
    seconds: float = 0.0  # that it took


@dataclass(frozen=True, slots=True)
class Refused:
    """The configuration has problems and was not taken; the current one stays."""

    problems: tuple[str, ...]  # problems that the previous refusal did not have
    known: int = 0  # number of further problems, which the previous refusal reported already


@dataclass(frozen=True, slots=True)
class ChangeHeldBack:
    """A configuration removes so much that it waits for a confirmation; the current one stays (OPS-13).

    `HeldBack` says what would go and why it waits (removal_guard.py).
    """

    change: HeldBack
    remedy: str  # how an operator lets the change through


@dataclass(frozen=True, slots=True)
class ChangeLetThrough:
    """An operator confirmed a change that was held back."""

    change: HeldBack


@dataclass(frozen=True, slots=True)
class Reached:
    """A stream to an upstream server is open."""

    server: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A stream to an upstream server ended, or could not be opened."""

    server: str
    error: str
    failed: bool  # the server had not sent any response on it
    reached: bool = True  # False: no stream came about


@dataclass(frozen=True, slots=True)
class SubscriptionQuarantined:
    """PRX-35: a server ends the stream over this subscription.

    The relay leaves the subscription out of its requests for this many seconds, so that the others are served.
    """

    server: str
    type_url: TypeUrl
    name: str
    error: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ShareExceeded:
    """PRX-35: a relay can't ask its servers for more, and one client exceeds its fair share.

    Either the client loses subscriptions that it had (`gave_way`), or the ones that it asks for now are refused.
    """

    kind: Scarce
    client: Client
    gave_way: bool  # True: the client lost subscriptions that it had; False: its new ones are refused
    count: int  # subscriptions in one turn


@dataclass(frozen=True, slots=True)
class NackReported:
    """PRX-18: the relay reported to a server that a downstream client NACKed one of its resources."""

    server: str
    type_url: TypeUrl
    version: str
    message: str


@dataclass(frozen=True, slots=True)
class FormFound:
    """PRX-32: a server turned out to understand locators, or plain names only. Reported once per server and form."""

    server: str
    form: RequestForm


@dataclass(frozen=True, slots=True)
class LacksDelta:
    """PRX-33: a server does not implement the delta method, and is asked in SotW. Reported once per server."""

    server: str


@dataclass(frozen=True, slots=True)
class Looked:
    """A client subscribed at a cache: a hit, a miss, or an answer that may be out of date (stale)."""

    type_url: TypeUrl
    found: Lookup
    count: int = 1


@dataclass(frozen=True, slots=True)
class Rejected:
    """An upstream server's response contained resources that can't be used."""

    server: str
    type_url: TypeUrl
    version: str
    message: str
    nameless: tuple[str, ...] = ()  # errors of resources without a readable name, which no subscription can be told of


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """DYN-45: a server sent two variants for one subscription; the one received last is used."""

    type_url: TypeUrl
    name: str
    kept: str  # the constraint of the variant in use; may be empty if `first` is False
    other: str  # the constraint of the other variant
    first: bool  # not reported before


@dataclass(frozen=True, slots=True)
class Consulted:
    """The engine asked a provider for a resource.

    The provider made it (found), said that there is none, or failed: it raised, took too long or made an invalid one.
    """

    type_url: TypeUrl
    name: str
    provider: str
    result: Outcome
    seconds: float
    error: str = ""
    news: bool = False  # the last call for these params ended differently: another error, or success after an error


@dataclass(frozen=True, slots=True)
class Polled:
    """A REST request was answered with this HTTP status."""

    status: int
    crowded: bool = False  # answered at once, because too many requests wait already


@dataclass(frozen=True, slots=True)
class LoadsHeard:
    """LRS-1: a client reported the loads of this many clusters."""

    node: str
    clusters: int


@dataclass(frozen=True, slots=True)
class LoadsRefused:
    """A client's load report for one cluster is invalid, and was dropped."""

    node: str
    cluster: str
    message: str
    news: bool  # the previous report for this cluster was usable, or had another fault


Fact = (
    Opened
    | Joined
    | Closed
    | Requested
    | Sent
    | Acked
    | Routine
    | Nacked
    | Recovered
    | Suppressed
    | Forgotten
    | SubscriptionsRefused
    | LimitReached
    | Denied
    | TokenRefused
    | PolicyTaken
    | PolicyRefused
    | Oversize
    | OtherNode
    | Published
    | ConfigLoaded
    | Drained
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


class Facts:
    """The facts since the last `take`, and the counters of routine pushes."""

    __slots__ = ("_facts", "routines")

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self.routines: dict[TypeUrl, Routine] = {}

    def __len__(self) -> int:
        """Return how many facts there are, without the counters."""
        return len(self._facts)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts)

    def __iadd__(self, facts: Iterable[Fact]) -> Self:
        self._facts += facts
        return self

    def append(self, fact: Fact) -> None:
        """Add one fact."""
        self._facts.append(fact)

    def clear(self) -> None:
        """Forget the facts, and keep the counters."""
        self._facts.clear()

    def routine(self, type_url: TypeUrl) -> Routine:
        """Return the counters of one type, making them at first use."""
        found = self.routines.get(type_url)
        if found is None:
            found = self.routines[type_url] = Routine(type_url)
        return found

    def take(self) -> list[Fact]:
        """Return all facts and counters, and start over empty."""
        taken = [*self._facts, *self.routines.values()]
        self._facts = []
        self.routines = {}
        return taken
