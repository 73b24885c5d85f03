"""Decide when a stream that carries nothing ends (OPS-3)."""

from __future__ import annotations


class Idleness:
    """When one stream last carried something. To note that costs no more than to keep the time."""

    __slots__ = ("_seconds", "due", "last")

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self.last = now  # when a request or response was last carried; whoever sees one sets it
        self.due = now + seconds  # when to look

    def is_over(self, now: float) -> bool:
        """Whether the stream has carried nothing for too long. Otherwise `due` says when to look again."""
        if now < self.due:
            return False
        self.due = self.last + self._seconds
        return now >= self.due
