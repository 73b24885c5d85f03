"""With which params a relay asks a server, so that the server need not refuse it (PRX-35, DYN-46).

A plain client's params come from its node's metadata, and may be more than fits into a locator. What is too much
concerns this client alone, whether it is too much for our own limits, or for a server that was found to take less:

1. Metadata within the limits of a locator is sent as it is.
2. Otherwise, where variants of the name are known, the keys that they mention are sent: no other can matter to these.
3. A key or a value that is too long by itself is left out: to the server it looks as if the client had no such key.
4. What is still too much is not asked at all, and the client is told that the resource does not exist.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...errors import WatchError
from ..model.limits import Limits, Refusal
from ..model.types import Params, TypeUrl
from .authority import Authority
from .entry import Entry, State

CROWDED = "RESOURCE_EXHAUSTED"

_NOBODY = Authority("", ())

# What every server takes that knows locators: so much ours took before they took more.
NARROW = Limits(params=64, key_bytes=256, value_bytes=1024, params_bytes=64 * 1024)


def narrowed(limits: Limits) -> Limits:
    """The same, but for locators no more than every server takes."""
    return replace(
        limits,
        params=min(limits.params, NARROW.params),
        key_bytes=min(limits.key_bytes, NARROW.key_bytes),
        value_bytes=min(limits.value_bytes, NARROW.value_bytes),
    )


def is_wide(params: Params | None) -> bool:
    """Whether some server may refuse a locator with these."""
    return params is not None and NARROW.refuses("", "", params) is not None


def is_cut(entry: Entry, params: Params) -> bool:
    """Whether a question that these params made was asked with less, or not at all."""
    return entry.key[1] not in (None, params) or not entry.authority.servers


def question_params(params: Params, mentioned: Collection[str], limits: Limits) -> Params | Refusal:
    if limits.refuses("", "", params) is None:
        return params
    kept = params.only(mentioned) if mentioned else params
    kept = Params({key: value for key, value in kept.items() if limits.refuses("", "", {key: value}) is None})
    return limits.refuses("", "", kept) or kept


def refused_entry(type_url: TypeUrl, name: str, params: Params, why: str) -> Entry:
    """A subscription that no server hears of."""
    entry = Entry(type_url, (name, params), _NOBODY, [])
    entry.fail(WatchError("INVALID_ARGUMENT", why), State.RECEIVED_ERROR, 0.0, drop=True)
    return entry


def crowded_entry(type_url: TypeUrl, name: str, params: Params, why: str) -> Entry:
    """A subscription that no server hears of, as there is no room for it at present (PRX-35).

    That is no answer: whoever has the resource keeps it.
    """
    entry = Entry(type_url, (name, params), _NOBODY, [])
    entry.fail(WatchError(CROWDED, why), State.RECEIVED_ERROR, 0.0, drop=True)
    return entry


def is_crowded(entry: Entry) -> bool:
    """Whether there is no room for it."""
    return entry.verdict is not None and entry.verdict.status == CROWDED and not entry.authority.servers
