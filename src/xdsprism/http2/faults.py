"""The two scopes of a peer's error: its connection, or one stream (RFC 9113, section 5.4).

`limit` is set where the peer broke one of our limits and not a rule of HTTP/2.
"""

from __future__ import annotations

from ..token_bucket import TokenBucket
from .codes import Code
from .limits import Limit


class ConnectionFault(Exception):
    """A connection error: the server sends GOAWAY with `code` and `why`, and closes the connection."""

    def __init__(self, code: Code, why: str, limit: Limit | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.limit = limit


class StreamFault(Exception):
    """A stream error: the server resets the stream with `code`; other streams go on."""

    def __init__(self, code: Code, why: str, limit: Limit | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.limit = limit


def charge(allowance: TokenBucket, limit: Limit, now: float) -> None:
    """Take a token, or fail the connection with ENHANCE_YOUR_CALM."""
    if not allowance.spend(now):
        raise ConnectionFault(Code.ENHANCE_YOUR_CALM, f"too many {limit.replace('_', ' ')}", limit)
