"""What a peer did wrong, and how far that reaches (RFC 9113, section 5.4)."""

from __future__ import annotations

from .codes import Code
from .limits import Limit


class Fault(Exception):
    """The connection can't go on. `limit` is set where the peer broke no rule of HTTP/2 but one of ours."""

    def __init__(self, code: Code, why: str, limit: Limit | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.limit = limit


class StreamFault(Exception):
    """One stream can't go on; the others don't notice."""

    def __init__(self, code: Code, why: str, limit: Limit | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.limit = limit
