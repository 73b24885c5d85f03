"""Decide how long the next request of a stream waits, if its client asks too often (OPS-4).

No request is lost, and each is counted when it has been processed. Once there are more than the limit allows, the
server reads nothing of that stream for a while, which holds its client back by flow control. Then it goes on where it
was.
"""

from __future__ import annotations

from functools import cache

from ...token_bucket import Rate, TokenBucket
from .limits import AT_ONCE

PAUSE = 0.1  # seconds, at least: to wake for each single request would cost more than the request


@cache
def rate_of(per_second: int) -> Rate:
    """Return the rate of a limit on requests. All streams share it: they are many."""
    return Rate(per_second * AT_ONCE, per_second)


def count_request(bucket: TokenBucket, now: float) -> float | None:
    """Count a request of a stream. Return when to read its next one; None: it need not wait."""
    debt = bucket.owe(now)
    return now + max(debt, PAUSE) if debt > 0 else None
