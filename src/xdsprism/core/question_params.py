"""With which params a relay asks a server, so that the server need not refuse it (PRX-35, DYN-46).

A plain client's params come from its node's metadata, and may be more than fits into a locator. What is too much
concerns this client alone:

1. Metadata within the limits of a locator is sent as it is.
2. Otherwise, where variants of the name are known, the keys that they mention are sent: no other can matter to these.
3. A key or a value that is too long by itself is left out: to the server it looks as if the client had no such key.
4. What is still too much is not asked at all, and the client is told that the resource does not exist.
"""

from __future__ import annotations

from collections.abc import Collection

from ..errors import WatchError
from .authority import Authority
from .limits import Limits, Refusal
from .types import Params, TypeUrl
from .watching import Entry, State

_NOBODY = Authority("", ())


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
