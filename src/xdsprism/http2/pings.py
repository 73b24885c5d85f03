"""Decides when to acknowledge a PING of the peer, and how many are too many (RFC 9113, section 6.7)."""

from __future__ import annotations

from math import inf
from typing import Final

from ..token_bucket import TokenBucket
from . import frames
from .codes import Code
from .faults import ConnectionFault
from .limits import Limit, Limits
from .outbound import Outbound

ACK_DELAY: Final = 0.2  # seconds that the answer to a PING may wait for the next write; TCP delays its own as long
TOO_MANY_PINGS = "too_many_pings"  # gRPC clients recognise this text, and send PINGs less often


class Pings:
    """The PINGs that a peer sends on one connection."""

    __slots__ = ("_allowance", "_measured_at", "_out")

    def __init__(self, limits: Limits, out: Outbound, now: float) -> None:
        self._out = out
        self._allowance = TokenBucket(limits.pings, now)
        self._measured_at = -inf  # when the last PING came that followed frames of ours

    def answer(self, payload: bytes) -> None:
        """Acknowledge a PING, or fail the connection if PINGs come too often.

        gRPC clients send a PING after data to measure bandwidth and delay, so each frame that we send refills the
        allowance. From the answer they learn how large their windows should be, which matters while DATA waits for a
        window. Otherwise the answer goes with the next write, if we write so often that it comes soon: a write for it
        alone would be every second one. It goes to the end of that write, whose DATA causes no PING then, since clients
        await the answer to one before they send another. A keepalive PING comes after silence and never waits.
        """
        out = self._out
        answer = frames.PING_ACK + payload
        out.send_delayed()  # answers keep the order of the PINGs
        if out.has_sent:
            writes = 2 if out.delay_paid_off else 1  # since the last PING
            comes_soon = out.now < self._measured_at + writes * ACK_DELAY
            waits = comes_soon and not out.has_queued and not out.is_paused
            self._measured_at = out.now
            out.has_sent = out.has_queued = False
            self._allowance.refill()
            if waits:
                out.delay(answer, out.now + ACK_DELAY)
                return
            out.delay_paid_off = False
        elif not self._allowance.spend(out.now):
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, TOO_MANY_PINGS, Limit.PINGS)
        out.control(answer)
