"""The state of one open stream (RFC 9113, section 5.1).

Idle and closed streams have no object. The other states follow from two attributes:

| state                | can_receive | has_ended |                                                                  |
|----------------------|-------------|-----------|------------------------------------------------------------------|
| open                 | yes         | no        |                                                                  |
| half-closed (remote) | no          | no        | the client sent END_STREAM                                       |
| half-closed (local)  | yes         | yes       | only until the next write: we then reset the stream (section 8.1) |
"""

from __future__ import annotations

from typing import Any

from .frames import UINT32


class Stream:
    """One open stream: flow control both ways, and the DATA that waits for a window."""

    __slots__ = (
        "can_receive",
        "credit",
        "end_block",
        "expected_bytes",
        "framed_bytes",
        "has_ended",
        "has_sent_headers",
        "is_closed",
        "is_held_back",
        "is_scheduled",
        "number",
        "number_bytes",
        "opened_at",
        "owner",
        "queue",
        "stalled_since",
        "window",
    )

    def __init__(self, number: int, now: float, window: int, credit: int) -> None:
        self.number = number
        self.number_bytes = UINT32.pack(number)
        self.opened_at = now
        self.can_receive = True  # the peer has not sent END_STREAM
        self.has_sent_headers = False  # our response headers are sent
        self.has_ended = False  # our END_STREAM is sent
        self.is_closed = False  # closed or reset, by either side: send nothing more
        self.window = window  # bytes that the peer lets us send; SETTINGS can make it negative (section 6.9.2)
        self.is_held_back = False  # send no WINDOW_UPDATE: the call still works on what it received
        self.credit = credit  # bytes that the peer may send before we send a WINDOW_UPDATE
        self.expected_bytes: int | None = None  # bytes of body still to come, if the request has a content-length
        self.queue: list[memoryview] = []  # DATA that a window holds back
        self.framed_bytes = 0  # of the first piece of the queue, which are sent already
        self.is_scheduled = False  # it is in `Outbound.ready`, the streams that can send
        self.end_block: bytes | None = None  # what ends it after the queue: trailers, or b"" for END_STREAM alone
        self.stalled_since: float | None = None
        self.owner: Any = None  # the Rpc of the layer above; None once the call is over
