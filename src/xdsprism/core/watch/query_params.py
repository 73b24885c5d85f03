"""Cut the params of a plain client down to what fits into a locator to the upstream (PRX-35, DYN-46).

A relay takes the params of a plain client from its node's metadata, which may be larger than a locator may be. The
excess must affect this client alone, whether it exceeds our own limits or those of a server that takes less:

1. Metadata within the limits of a locator is sent as it is.
2. Otherwise, if variants of the name are known, only the keys that these mention are sent: no other key decides.
3. A key or a value that is too long by itself is left out: to the server, the client lacks that key.
4. If the rest is still too much, the server is not asked, and the client is told that the resource does not exist.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...errors import WatchError
from ..model.events import Key
from ..model.limits import Limits, Refusal
from ..model.types import Params, TypeUrl
from .authority import Authority
from .entry import Entry, Event

CROWDED = "RESOURCE_EXHAUSTED"

_NOBODY = Authority("", ())

# The limits within which every server that knows locators takes one: the former limits of this project's own servers.
NARROW = Limits(params=64, key_bytes=256, value_bytes=1024, params_bytes=64 * 1024)


def narrowed(limits: Limits) -> Limits:
    """Return the limits, with those for params at most as large as NARROW."""
    return replace(
        limits,
        params=min(limits.params, NARROW.params),
        key_bytes=min(limits.key_bytes, NARROW.key_bytes),
        value_bytes=min(limits.value_bytes, NARROW.value_bytes),
    )


def is_wide(params: Params | None) -> bool:
    """Whether some server may refuse a locator with these params."""
    return params is not None and NARROW.refuses("", "", params) is not None


def is_cut(entry: Entry, params: Params) -> bool:
    """Whether the entry of a client with these params was subscribed with fewer params, or not at all."""
    return entry.params not in (None, params) or not entry.authority.servers


def question_params(params: Params, mentioned: Collection[str], limits: Limits) -> Params | Refusal:
    """Return the params to subscribe with, cut to the limits, or the refusal if they still exceed them."""
    if limits.refuses("", "", params) is None:
        return params
    kept = params.only(mentioned) if mentioned else params
    kept = Params({key: value for key, value in kept.items() if limits.refuses("", "", {key: value}) is None})
    return limits.refuses("", "", kept) or kept


def refused_entry(type_url: TypeUrl, name: str, params: Params, why: str) -> Entry:
    """Return an entry that no server is asked for, because its params exceed the limits."""
    entry = Entry(type_url, Key(name, params), _NOBODY, [])
    entry.fail(WatchError("INVALID_ARGUMENT", why), Event.ERROR, 0.0, drop=True)
    return entry


def crowded_entry(type_url: TypeUrl, name: str, params: Params, why: str) -> Entry:
    """Return an entry that no server is asked for, because the stream has no room for more subscriptions now (PRX-35).

    That is no answer of a server: a client that has the resource keeps it.
    """
    entry = Entry(type_url, Key(name, params), _NOBODY, [])
    entry.fail(WatchError(CROWDED, why), Event.ERROR, 0.0, drop=True)
    return entry


def is_crowded(entry: Entry) -> bool:
    """Whether the entry came from `crowded_entry`."""
    return entry.own_error is not None and entry.own_error.status == CROWDED and not entry.authority.servers
