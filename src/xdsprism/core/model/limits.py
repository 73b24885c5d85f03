"""What a client may ask for, and why a subscription is refused (DYN-46, VHD-26).

A limit concerns one subscription. Whoever is past it is answered about that subscription alone: as not existing, with
the reason in `resource_errors` where the client reads them. The stream, and all else that is on it, goes on: what is
too large may come from a third party, such as the Host header of a request that an Envoy serves.

`Limits.refuses` is the one place that decides by the subscription itself. Whether there is room left on its stream for
one more is for the stream to count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Literal

from .types import Params, TypeUrl
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
    "types",
    "request_names",
]

Client = tuple[str, str]  # whose share of a limit something counts for: an address, and the id of a node at it


class Scarce(Enum):
    """What a relay can ask its servers for only so much of, shared fairly between its clients (PRX-35)."""

    SUBSCRIPTIONS = "subscriptions"  # on the streams of one group
    TYPES = "types"  # that neither Envoy nor gRPC knows
    GROUPS = "groups"  # of clients (--group-by)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a subscription is refused: by which limit, as it is named in `Limits`, or for bytes that are not UTF-8."""

    kind: RefusalKind
    message: str  # in words for the client; never quotes what is too long

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Limits:
    """Past these a subscription is answered as not existing; its stream and all other subscriptions go on (DYN-46)."""

    name_bytes: int = 4096  # of a resource's name, and of a type URL
    context_params: int = 64  # of an xdstp name
    params: int = 1024  # of one locator
    key_bytes: int = 256
    value_bytes: int = 8 * 1024
    params_bytes: int = 64 * 1024  # keys and values of one locator together
    subscriptions: int = 2_000_000  # plain names per stream, without virtual hosts
    locators: int = 2_000_000  # per stream, without virtual hosts
    hosts: int = 2_000_000  # virtual hosts per stream: Envoy comes back with all that it ever asked for (V15)
    unresolved: int = 10_000  # names of one type on a delta stream that nothing has: the oldest are forgotten (VHD-25)
    types: int = 128  # per stream
    request_names: int = 4_000_000  # that are read of one list in a request; the rest is counted, and not answered
    polls: int = 10_000  # REST requests that wait for news; more are told at once that there are none
    loads: int = 10_000  # per stream: clusters and localities whose loads are kept

    def refuses(self, type_url: TypeUrl, name: str, params: Mapping[str, str] | None) -> Refusal | None:
        """Why this subscription can't be served, whoever asks; None: it can.

        `params` are those of a locator; None, or empty, for a plain name. Parameters that come from a node's metadata
        are cut down to the keys that variants mention before they are counted, so they are not for here.
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
        if len(params) > self.params:
            return Refusal("params", f"the locator has {len(params)} parameters; at most {self.params} are accepted")
        # As in `category`: a dict's own items are much faster than those of a Mapping.
        items = (params._items if type(params) is Params else params).items()  # noqa: SLF001
        most = sum([len(key) + len(value) if key.isascii() and value.isascii() else inf for key, value in items])
        if most <= min(self.key_bytes, self.value_bytes, self.params_bytes):
            return None  # as nearly always
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


# What the stream counts, by the limit that ends it.
Counted = Literal["subscriptions", "locators", "hosts"]

_WORDS: Mapping[Counted, str] = {"subscriptions": "names", "locators": "locators", "hosts": "virtual hosts"}


class SubscriptionBudget:
    """How many subscriptions one stream has, of each kind that has a limit, and how many were refused (DYN-46).

    Virtual hosts are counted apart from all others: what third parties ask an Envoy for takes no room from its
    clusters and endpoints (VHD-26).
    """

    __slots__ = ("_limits", "hosts", "locators", "refused", "subscriptions")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.subscriptions = self.locators = self.hosts = 0
        self.refused: Counter[RefusalKind] | None = None  # by limit; most streams have none

    def count(self, kind: Counted, step: int) -> None:
        setattr(self, kind, getattr(self, kind) + step)

    def left(self, kind: Counted) -> int:
        return int(getattr(self._limits, kind)) - int(getattr(self, kind))

    def is_short(self, more: int) -> bool:
        """Whether so many more may be too many, of whichever kind."""
        limits = self._limits
        return (
            self.subscriptions + more > limits.subscriptions
            or self.locators + more > limits.locators
            or self.hosts + more > limits.hosts
        )

    def refusal(self, kind: Counted) -> Refusal:
        return Refusal(
            kind, f"there are {getattr(self._limits, kind)} {_WORDS[kind]} on this stream, which is the most"
        )

    def note_refused(self, kind: RefusalKind, count: int) -> None:
        if self.refused is None:
            self.refused = Counter()
        self.refused[kind] += count


def counted_as(params: Mapping[str, str] | None, *, on_demand: bool) -> Counted:
    """Which limit a subscription counts against. `params` is None for a plain name."""
    if on_demand:
        return "hosts"
    return "subscriptions" if params is None else "locators"


def is_utf8(text: str) -> bool:
    """Whether it can be encoded. What a client sent in other bytes has lone surrogates in their place (salvage.py)."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _exceeds(text: str, limit: int) -> bool:
    """Whether this takes more bytes than the limit; encodes only what may."""
    return len(text) > limit or (not text.isascii() and _size(text) > limit)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
