"""Decide whether a subscription is within the limits, and why it is refused (DYN-46, VHD-26).

A limit concerns one subscription. One that exceeds a limit is answered alone: the resource does not exist, with the
reason in `resource_errors` for clients that read them. The stream and all its other subscriptions go on, because an
oversized name may come from a third party, such as the Host header of a request to an Envoy.

Two places decide. `Limits.refuses` judges a subscription by itself: the sizes of its name, type URL and params.
`StreamBudget` counts the subscriptions of one stream and says whether there is room for one more.

`Limits` has the other limits of a server too, those on streams (client_budget.py), on how often a client may ask
(pace.py), and on connections (http2/limits.py), so that all are set in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from math import inf
from typing import Literal

from ...argument_types import expect_fields
from ...errors import UsageError
from .events import WILDCARD, Key
from .types import Params, TypeSpec, TypeUrl
from .xdstp import is_xdstp

RefusalKind = Literal[
    "utf8",
    "name_bytes",
    "context_params",
    "type_url_bytes",
    "params",
    "key_bytes",
    "value_bytes",
    "params_bytes",
    "subscriptions",
    "locators",
    "hosts",
    "param_sets",
    "globs",
    "types",
    "request_names",
]

# The limits on what a client does beside its subscriptions. A stream or fetch beyond one is refused; a request waits.
ClientLimit = Literal["client_streams", "all_streams", "requests", "reports", "fetches", "idle_stream"]


AT_ONCE = 5  # a limit on how often something may happen in a second lets so many seconds' worth happen at once

# Nobody is served with a limit of 0.
_POSITIVE = {
    "client_streams",
    "all_streams",
    "requests",
    "reports",
    "fetches",
    "idle_stream",
    "connections",
    "address_connections",
    "handshakes",
    "address_handshakes",
    "preface",
    "first_request",
    "idle_connection",
}

# What a policy may not let a client have (core/policy/grant.py).
DenialKind = Literal["client", "type", "name", "param"]

Client = tuple[str, str]  # the owner of a share of a limit: an address, and the id of a node at that address


class Scarce(Enum):
    """The things of which a relay can ask its servers for only so many, shared fairly by its clients (PRX-35)."""

    SUBSCRIPTIONS = "subscriptions"  # on the upstream streams of one group
    TYPES = "types"  # resource types that neither Envoy nor gRPC knows
    GROUPS = "groups"  # groups of clients (--group-by)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a subscription is refused: the name of the limit in `Limits`, or bytes that are not UTF-8."""

    kind: RefusalKind
    message: str  # the text for the client; it never quotes the oversized text itself

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on what clients may do. What exceeds one is refused or delayed by itself; everything else goes on.

    docs/limits.md says what happens beyond each. `serve --limit NAME=NUMBER` sets one.
    """

    # On subscriptions (DYN-46).

    name_bytes: int = 4096  # of a resource name, and of a type URL
    context_params: int = 64  # of one xdstp name
    params: int = 1024  # of one locator
    key_bytes: int = 256
    value_bytes: int = 8 * 1024
    params_bytes: int = 64 * 1024  # keys and values of one locator together
    subscriptions: int = 2_000_000  # plain names per stream, virtual hosts not counted
    locators: int = 2_000_000  # per stream, virtual hosts not counted
    hosts: int = 2_000_000  # virtual hosts per stream: Envoy reconnects with all that it ever asked for (V15)
    param_sets: int = 100_000  # different params of the locators of one stream: a relay sends those of its clients
    globs: int = 100_000  # glob collections, and wildcards by a locator, on one stream; `*` by itself is none
    # Names of one type on a delta stream that do not exist; past this the session forgets the oldest (VHD-25).
    unresolved: int = 10_000
    types: int = 128  # per stream
    request_names: int = 4_000_000  # names read from one list of a request; the rest is counted and not answered
    # On streams, and how often a client asks (OPS-3, OPS-4). A client is an identity that was proved, or an address.
    client_streams: int | None = None  # of one client, at once; None: three quarters of all
    all_streams: int = 100_000  # of all clients together
    requests: int = 2_000  # a second and stream, without those that only answer a response
    reports: int = 100  # load reports, a second and stream
    fetches: int = 500  # REST requests and Fetch calls, a second and client
    idle_stream: float = inf  # seconds in which a discovery stream carries nothing, until it ends
    # On connections, and their first words; of the gRPC port (http2/limits.py has others, which are fixed).
    connections: int = 1 << 20  # at once, of clients; file descriptors limit them further
    address_connections: int | None = None  # the same of one address; None: three quarters of all
    handshakes: int = 10_000  # connections that have not begun to speak HTTP/2
    address_handshakes: int | None = None  # the same of one address; None: three quarters of all
    preface: float = 10.0  # seconds for a handshake
    first_request: float = 60.0  # seconds for the first message on a stream
    idle_connection: float = 300.0  # seconds without a stream, until the connection is drained
    # On what is kept for clients.
    polls: int = 10_000  # REST requests that wait for a change; further ones are answered at once
    loads: int = 10_000  # per stream: clusters and localities whose loads are kept
    all_loads: int = 100_000  # of all streams together, beyond 1,000 for each

    def __post_init__(self) -> None:
        expect_fields(self)
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not (value > 0 or (value == 0 and each.name not in _POSITIVE)):
                least = "more than 0" if each.name in _POSITIVE else "0 or more"
                raise UsageError(f"the limit {each.name} is {value}, and has to be {least}")
        if self.preface == inf:
            raise UsageError("the limit preface can't be off: silent connections would never end")

    @property
    def streams_of_a_client(self) -> int:
        """How many streams one client may have."""
        return self.client_streams if self.client_streams is not None else max(self.all_streams * 3 // 4, 1)

    def refuses(self, type_url: TypeUrl, name: str, params: Mapping[str, str] | None) -> Refusal | None:
        """Return why this subscription can't be served to any client, or None if it can.

        `params` are those of a locator; None, or empty, for a plain name. Params from a node's metadata are not judged
        here: they are cut down to the keys that variants mention before they count.
        """
        if _exceeds(name, self.name_bytes):
            return Refusal("name_bytes", f"the name has {_size(name)} bytes; at most {self.name_bytes} are accepted")
        if not is_utf8(name):
            return Refusal("utf8", "the name is not UTF-8")
        if is_xdstp(name) and name.count("&") >= self.context_params:
            text = f"the name has {name.count('&') + 1} context parameters; at most {self.context_params} are accepted"
            return Refusal("context_params", text)
        if _exceeds(type_url, self.name_bytes):
            text = f"the type_url has {_size(type_url)} bytes; at most {self.name_bytes} are accepted"
            return Refusal("type_url_bytes", text)
        return self._refuses_params(params) if params else None

    def _refuses_params(self, params: Mapping[str, str]) -> Refusal | None:
        """Judge the params of a locator: their number, then each key and value, then all bytes together."""
        if len(params) > self.params:
            return Refusal("params", f"the locator has {len(params)} parameters; at most {self.params} are accepted")
        # As in types.category, go to the dict itself: its items are much faster than those of a Mapping.
        items = (params._items if type(params) is Params else params).items()  # noqa: SLF001
        most = sum([len(key) + len(value) if key.isascii() and value.isascii() else inf for key, value in items])
        if most <= min(self.key_bytes, self.value_bytes, self.params_bytes):
            return None  # fast path: all params together are smaller than any limit
        total = 0
        for key, value in items:
            if not is_utf8(key) or not is_utf8(value):
                return Refusal("utf8", "the locator has a parameter that is not UTF-8")
            if _exceeds(key, self.key_bytes):
                text = f"the locator has a key of {_size(key)} bytes; at most {self.key_bytes} are accepted"
                return Refusal("key_bytes", text)
            if _exceeds(value, self.value_bytes):
                text = f"the locator has a value of {_size(value)} bytes; at most {self.value_bytes} are accepted"
                return Refusal("value_bytes", text)
            total += _size(key) + _size(value)
        if total > self.params_bytes:
            text = f"the locator's parameters have {total} bytes in all; at most {self.params_bytes} are accepted"
            return Refusal("params_bytes", text)
        return None


# The kinds of subscriptions that a stream counts, named after their limits.
Counted = Literal["subscriptions", "locators", "hosts"]

# What a stream has only so many of.
Bounded = Literal["subscriptions", "locators", "hosts", "param_sets", "globs"]

_WORDS: Mapping[str, str] = {
    "subscriptions": "names",
    "locators": "locators",
    "hosts": "virtual hosts",
    "param_sets": "different sets of parameters",
    "globs": "glob collections, or wildcards with parameters,",
}


class StreamBudget:
    """Count the subscriptions of one stream by kind, and those that were refused (DYN-46).

    Virtual hosts are counted apart from all others: hosts that third parties request from an Envoy take no room from
    its clusters and endpoints (VHD-26).
    """

    __slots__ = (
        "_limits",
        "_param_sets",
        "denied",
        "globs",
        "hosts",
        "limited",
        "locators",
        "refused",
        "subscriptions",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.subscriptions = self.locators = self.hosts = 0
        self.globs = 0  # of the subscriptions above
        self._param_sets: dict[Params, int] | None = None  # how many locators have these; None on most streams
        self.refused: Counter[RefusalKind] | None = None  # by limit; None on most streams, which have no refusals
        self.denied: Counter[DenialKind] | None = None  # by the policy; None on most streams, too
        self.limited: Counter[ClientLimit] | None = None  # how often the stream exceeded which limit; None on most

    def count(self, kind: Counted, step: int) -> None:
        """Count a subscription that comes (step 1) or goes (step -1)."""
        setattr(self, kind, getattr(self, kind) + step)

    def count_params(self, params: Params, step: int) -> None:
        """Count a locator with these params that comes (step 1) or goes (step -1)."""
        counts = self._param_sets = self._param_sets if self._param_sets is not None else {}
        left = counts.pop(params, 0) + step
        if left:
            counts[params] = left

    @property
    def param_sets(self) -> int:
        """How many different params the locators have."""
        return len(self._param_sets) if self._param_sets is not None else 0

    def locators_with(self, params: Params) -> int:
        """Return how many locators have these params."""
        return self._param_sets.get(params, 0) if self._param_sets is not None else 0

    def left(self, kind: Bounded) -> int:
        """Return how many more of this kind the stream may have."""
        return int(getattr(self._limits, kind)) - int(getattr(self, kind))

    def is_short(self, more: int) -> bool:
        """Whether `more` subscriptions, of whichever kind, might exceed a limit."""
        limits = self._limits
        return (
            self.subscriptions + more > limits.subscriptions
            or self.locators + more > limits.locators
            or self.hosts + more > limits.hosts
            or self.param_sets + more > limits.param_sets
            or self.globs + more > limits.globs
        )

    def refusal(self, kind: Bounded) -> Refusal:
        """Return the refusal for a stream that has as many of this kind as it may have."""
        return Refusal(
            kind, f"there are {getattr(self._limits, kind)} {_WORDS[kind]} on this stream, and no more are accepted"
        )

    def note_refused(self, kind: RefusalKind, count: int) -> None:
        """Count refused subscriptions by limit."""
        if self.refused is None:
            self.refused = Counter()
        self.refused[kind] += count

    def note_limited(self, limit: ClientLimit) -> None:
        """Count that the stream exceeded a limit on how often its client may ask, or was silent for too long."""
        if self.limited is None:
            self.limited = Counter()
        self.limited[limit] += 1

    def note_denied(self, kind: DenialKind, count: int) -> None:
        """Count subscriptions that the policy denies."""
        if self.denied is None:
            self.denied = Counter()
        self.denied[kind] += count


def is_glob(key: Key) -> bool:
    """Whether a wildcard subscription counts as a glob. `*` by itself does not: most clients depend on it."""
    return key.name != WILDCARD or bool(key.tag)


def counted_as(spec: TypeSpec, *, located: bool) -> Counted:
    """Return the limit that a subscription counts against: by a locator, or by a plain name."""
    if spec.on_demand:  # VHD-26: third parties make Envoy ask for these
        return "hosts"
    return "locators" if located else "subscriptions"


def is_utf8(text: str) -> bool:
    """Whether the text can be encoded.

    The codec puts lone surrogates in place of bytes that are not UTF-8 (codec/salvage.py).
    """
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _exceeds(text: str, limit: int) -> bool:
    """Whether the text takes more bytes than the limit; it encodes only text that might."""
    return len(text) > limit or (not text.isascii() and _size(text) > limit)


def _size(text: str) -> int:
    """Return the number of bytes that the text takes."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
