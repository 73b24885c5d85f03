"""Decide what an ACK or a NACK of a response means for its resources.

A response is in flight until its nonce comes back (in_flight.py). Then:

- An ACK accepts its resources: rejections of the same resources end, and their TTLs begin (ttl.py).
- A NACK of one resource rejects that resource. It is not sent again until it changes (NAK-3, rejections.py).
- A delta NACK of several resources rejects none of them yet: isolation.py resends each of them alone (NAK-29).
- A SotW NACK of several resources rejects all of them: the client may go on with the old version of any. A NACK of a
  full state rejects it as a whole, and names no resource (SOT-4).

A NACK counts for nothing if the client no longer subscribes to what was in the response, or has since accepted newer
versions of all of it (NAK-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from ..model.concealment import without_contents
from ..model.events import Absence, Rejection, ResourceError, Send
from ..model.facts import Acked, Nacked, Oversize, Recovered, Sent, Suppressed
from ..model.types import SECRET, Variant
from .client_view import ClientView
from .context import SessionContext
from .in_flight import InFlight, InFlightResponse
from .rejections import Rejections, ResponsePart, parts_of
from .ttl import Ttl

RESOURCE_EXHAUSTED = 8
_WORD: Final = re.compile(r"[^\s\"'`,;(){}<>\[\]]+")


class Verdicts:
    """The responses of one session, from when they go out until the client has ACKed or NACKed them."""

    __slots__ = ("_context", "_in_flight", "_progress", "_rejections", "_ttl", "_view")

    def __init__(
        self, context: SessionContext, view: ClientView, in_flight: InFlight, rejections: Rejections, ttl: Ttl
    ) -> None:
        self._context = context
        self._view = view
        self._in_flight = in_flight
        self._progress = in_flight.progress
        self._rejections = rejections
        self._ttl = ttl

    # -- a response goes out

    def next_nonce(self) -> str:
        """Return a nonce for a response at the table's revision."""
        return self._in_flight.next_nonce(self._context.table.shown_revision)

    def sent(self, send: Send, now: float, *, keep: bool = True) -> Send:
        """Count a response and wait for its answer. `keep`: isolation needs its content after a NACK.

        Errors are not kept: a NACK never resends them, and their names may be as long as a client likes (DYN-46).
        """
        timed = self._ttl.sent(send, self._progress.sent + 1)
        kept = None if self._context.full_state or not keep else replace(send, errors=()) if send.errors else send
        forgotten = self._in_flight.add(send, now, kept, timed)
        if forgotten is not None:
            self._ttl.forgotten(forgotten)
        gone = len(send.removed) + len(send.withdrawn)
        self._context.facts.append(Sent(self._context.stream, send.type_url, send.nonce, send.count, gone))
        return send

    def suppressed(self, resources: int) -> None:
        """Count resources that were not sent because the client has them from an earlier stream."""
        self._progress.spared = True
        if resources:
            self._context.facts.append(Suppressed(self._context.stream, self._context.type_url, resources))

    def oversize(self, variant: Variant) -> ResourceError:
        """Return the error that replaces a resource above the size limit (DLT-22). The others are delivered."""
        context = self._context
        context.facts.append(Oversize(context.stream, context.type_url, variant.name, variant.size))
        limit = context.settings.response_bytes
        message = f"{variant.name!r} takes {variant.size} bytes, more than the {limit} that a response may have"
        return ResourceError(Absence(variant.name, variant.constraint), RESOURCE_EXHAUSTED, message)

    # -- the client answers

    def judge(self, nonce: str, error: Rejection | None, now: float) -> InFlightResponse | None:
        """Take the ACK or NACK of a response; None: the nonce answers nothing (NAK-28).

        NAK-1, NAK-2: error_detail alone makes a NACK, whatever version_info says.
        """
        response = self._in_flight.answer(nonce)
        if response is None:
            return None
        context = self._context
        if error is None:
            self._accepted(response, now)
            context.facts.append(Acked(context.stream, context.type_url, nonce, now - response.sent_at))
        else:
            if context.type_url == SECRET:  # OPS-14
                error = Rejection(error.code, without_contents(error.message, response.variants))
            self._rejected(response, nonce, error, now)
            parts = [(each.name, each.version) for each in response.variants]
            isolates = context.delta and len(parts) > 1
            context.facts.append(
                Nacked(
                    context.stream,
                    context.type_url,
                    nonce,
                    response.version,
                    error,
                    tuple(parts),
                    isolates,
                    response.variants or tuple(self._mentioned(response, error)),
                )
            )
        return response

    def _mentioned(self, response: InFlightResponse, error: Rejection) -> Iterator[Variant]:
        """Yield the resources of a full state that the message of its NACK names, as Envoy's does (SOT-4)."""
        if response.send is not None or self._context.type_url == SECRET:
            return
        words = [word.rstrip(".:!?") for word in _WORD.findall(error.message)]
        for word in dict.fromkeys(words):
            yield from islice(self._view.held(word, located=False), 1)

    def _accepted(self, response: InFlightResponse, now: float) -> None:
        """Take an ACK: end the rejections that it answers, and the NACK state if none remain (NAK-13)."""
        self._in_flight.accepted(response, now)
        self._ttl.accepted(response)
        if response.is_heartbeat:
            return  # an ACK of a heartbeat says nothing about a rejected newer version
        context, nack = self._context, self._progress.nack
        since = nack[0] if nack is not None else now
        if self._rejections and response.send is not None:
            mended = self._rejections.accept(response.send, self._is_current)
            if mended:
                names = tuple(dict.fromkeys([each.part.name for each in mended]))
                since = min(each.at for each in mended)
                context.facts.append(Recovered(context.stream, context.type_url, names, now - since))
                nack = None
        if self._progress.nacked < response.number and not (context.delta and self._rejections):
            self._progress.nack = None  # NAK-13
            if nack is not None:
                context.facts.append(Recovered(context.stream, context.type_url, (), now - since))

    def _rejected(self, response: InFlightResponse, nonce: str, error: Rejection, now: float) -> None:
        """Take a NACK: record which resources it rejects, as far as it tells."""
        self._ttl.rejected(response)
        parts = {part.label: part for part in parts_of(response.send)} if response.send is not None else {}
        wanted = {label: part for label, part in parts.items() if self._is_wanted(part)}
        # NAK-11, ORD-4: a NACK of what is unsubscribed or replaced since then changes nothing.
        if (parts and not wanted) or self._overtaken(response):
            return
        self._in_flight.rejected(response, nonce, error, now)
        # A delta NACK of several resources does not tell which one is bad; isolation finds out (NAK-29).
        if len(parts) == 1 or not self._context.delta:
            self._rejections.add(wanted, response, error, now)

    def forget_superseded(self) -> None:
        """SotW: drop responses that Envoy will not answer because it has answered a newer one (S10).

        For TTLs they count as accepted: a heartbeat without an answer still prolongs the resource that the client has.
        """
        for response in self._in_flight.drop_superseded():
            self._ttl.accepted(response)

    # -- what is rejected is not wanted any more

    def forget_unwanted(self) -> None:
        """Forget rejected resources that the client no longer subscribes to: they hold up no removal (ORD-4)."""
        if self._rejections and self._rejections.discard_unless(self._is_wanted):
            self._progress.nack = None

    def forget_removed(self) -> None:
        """SotW: forget rejected resources that are gone, which hold up nothing any more (SOT-7).

        SotW has no removal that the client could ACK, so the rejection ends here.
        """
        if self._rejections.discard_unless(lambda part: any(self._view.held(part.name, located=part.located))):
            self._progress.nack = None

    def _overtaken(self, response: InFlightResponse) -> bool:
        """Whether the client has since accepted something newer in place of all that was in the response (NAK-11)."""
        if response.send is None or response.number > self._progress.acked:
            return False
        return not any(self._is_current(part) for part in parts_of(response.send))

    def _is_current(self, part: ResponsePart) -> bool:
        """Whether the client is to have this variant."""
        return part.variant is not None and self._view.has(part.variant, located=part.located)

    def _is_wanted(self, part: ResponsePart) -> bool:
        """Whether the client still subscribes to this resource in this form."""
        return self._view.is_subscribed(part.name, located=part.located)
