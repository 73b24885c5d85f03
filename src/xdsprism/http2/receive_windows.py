"""Says how much DATA the peer may send: on the connection, and on each stream (RFC 9113, section 5.2).

A peer may use half of its window before we send a WINDOW_UPDATE that restores it, and the other half while that frame
travels. `credit` is what is left of the first half. A frame is smaller than the second half, so a peer whose window we
keep restoring can't overdraw it; only a stream that is held back needs a check (`check`).
"""

from __future__ import annotations

from . import frames
from .codes import Code
from .faults import StreamFault
from .limits import Limits
from .outbound import Outbound
from .stream import Stream


class ReceiveWindows:
    """The receive windows of one connection."""

    __slots__ = ("_connection_half", "_out", "credit", "stream_credit")

    def __init__(self, limits: Limits, out: Outbound) -> None:
        self.stream_credit = limits.stream_window >> 1  # of a new stream
        self.credit = self._connection_half = limits.connection_window >> 1
        self._out = out

    def renew(self) -> None:
        """Restore the connection's receive window with a WINDOW_UPDATE."""
        self._out.control(frames.window_update(0, self._connection_half - self.credit))
        self.credit = self._connection_half

    def check(self, stream: Stream) -> None:
        """Restore a stream's receive window where that is due; raise StreamFault if a held-back one is overdrawn."""
        if stream.credit < 0 and not stream.is_held_back:
            self._renew_stream(stream)
        elif stream.credit < -self.stream_credit:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "more DATA than the stream's window allows")

    def hold_back(self, stream: Stream, *, waits: bool) -> bool:
        """Stop (`waits`) or resume restoring a stream's receive window. Return whether a WINDOW_UPDATE was due."""
        stream.is_held_back = waits
        if is_owed := not waits and stream.credit < 0 and stream.can_receive:
            self._renew_stream(stream)
        return is_owed

    def _renew_stream(self, stream: Stream) -> None:
        self._out.control(frames.window_update(stream.number, self.stream_credit - stream.credit))
        stream.credit = self.stream_credit
