"""One stream: how far each side has come (RFC 9113, section 5.1).

Idle streams have no object, and closed ones lose theirs. Of the states between, `hearing` and `ended` say which:

    open                    hearing, not ended
    half-closed (remote)    not hearing, not ended
    half-closed (local)     hearing, ended: never for long, since who ends first also resets (section 8.1)
"""

from __future__ import annotations

from typing import Any

from .frames import UINT32


class Stream:
    __slots__ = (
        "answered",
        "ended",
        "ending",
        "expected",
        "gone",
        "hearing",
        "held",
        "number",
        "number_bytes",
        "opened",
        "owner",
        "queue",
        "queued",
        "slack",
        "stuck_since",
        "window",
    )

    def __init__(self, number: int, now: float, window: int, slack: int) -> None:
        self.number = number
        self.number_bytes = UINT32.pack(number)
        self.opened = now
        self.hearing = True  # the peer may say more
        self.answered = False  # our headers are sent
        self.ended = False  # our END_STREAM is sent
        self.gone = False  # over, either way
        self.window = window  # what the peer takes from us; below nothing, if a setting made it so
        self.held = False  # its window is not made whole: nobody takes what comes
        self.slack = slack  # what the peer may send before we owe it a larger window
        self.expected: int | None = None  # bytes of body, where there is a content-length
        self.queue: list[memoryview] = []  # what the windows held back
        self.queued = False  # it takes part in the round of streams that can send
        self.ending: bytes | None = None  # what ends it once the queue is empty: a header block, or nothing but the end
        self.stuck_since: float | None = None
        self.owner: Any = None  # whatever the layer above keeps with it
