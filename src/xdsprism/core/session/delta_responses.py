"""Make delta (incremental) responses of one type.

A response says what changed in the resources. A removal goes in the response that brings the replacement, if there is
one (DYN-24). A resource that only goes away is removed last, by a response of its own, once the other types on the
stream no longer refer to it (ORD-3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..model.events import Key, Send
from ..model.steps import Steps, chosen, finish
from ..model.types import Variant
from ..model.views import alike
from .batch import Batch
from .fast_path import News, Replaced, greet
from .subscription import NameSubscription, WildcardSubscription

if TYPE_CHECKING:
    from ..model.table import Table
    from .session import Session


class DeltaResponses:
    """The responses of one type on one delta stream."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _table(self) -> Table:
        return self._session.table

    @property
    def is_pending(self) -> bool:
        """Whether the next poll has something to look at, or may resend a NACKed resource."""
        session = self._session
        return bool(
            session.due
            or session.admission.refusals
            or (session.isolation.is_waiting and session.in_flight.room)
            or session.subscriptions.is_behind
            or session.rules.is_pending
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing that only delta knows of is due: nothing is in isolation, and the first request came."""
        return not (self._session.isolation or self._session.requests.is_first)

    def poll(self, now: float, *, together: bool = True) -> Steps[list[Send]]:
        """Return the responses that are due, in steps.

        `together`: no other type on the stream refers to this one, so removals go with the rest and do not wait.
        """
        session = self._session
        if not self.is_pending or now < (session.rules.paced_until or now):
            return []
        greeting = greet(session, now) if not session.progress.sent else None
        if greeting is not None:
            return greeting
        # An empty response is due only once nothing waits for the upstream.
        due = session.due.response and not session.availability.is_waiting
        session.due.response = session.due.response and not due
        batch = yield from session.collector.collect()
        leaving = session.holdings.leaving
        if together and leaving:
            batch.join(session.delivery.release([key for key, held in leaving.items() if not held.is_remnant]))
        session.isolation.add_withdrawals(batch, session.view)
        yield
        sends = (yield from self._chunks(batch, now)) if batch or due else []
        limit = session.context.settings.response_bytes
        if session.admission.refusals:  # in responses of their own: a NACK of them resends nothing
            told = yield from session.admission.answering(session.view)
            parts = yield from told.in_parts(limit)
            for part in parts:
                sends.append((yield from self._respond(part, now, keep=False)))
        # What a NACK isolated goes out last, if this poll has not said something newer about it.
        alone = session.isolation.take(batch, session.view, session.in_flight.room, limit)
        session.news = (*batch.variants, *(variant for part in alone for variant in part.variants))
        for part in alone:
            sends.append((yield from self._respond(part, now)))
        yield from session.rules.polled()
        return sends

    def removal_responses(self, now: float, keys: Iterable[Key] | None = None) -> list[Send]:
        """Return the responses that remove these leaving variants: removals.py allows them."""
        session = self._session
        gone = session.delivery.release(keys)
        session.isolation.add_withdrawals(gone, session.view)
        return finish(self._chunks(gone, now)) if gone else []

    def _chunks(self, batch: Batch, now: float) -> Steps[list[Send]]:
        """Return the batch as responses: several, if one would be too large or have a name in both forms.

        DLT-21 limits the size. DYN-15 forbids a name both plain and with constraints in one response.
        """
        limit = self._session.context.settings.response_bytes
        if (yield from batch.weighing()) > limit:
            yield from self._refuse_oversize(batch, limit)
        sends = []
        for part in (yield from batch.in_parts(limit)):
            sends.append((yield from self._respond(part, now)))
            yield
        return sends

    def _refuse_oversize(self, batch: Batch, limit: int) -> Steps[None]:
        """Replace each resource that is too large for any response by an error (DLT-22)."""
        for variant in (yield from chosen(batch.variants, lambda variant: variant.size > limit)):
            batch.errors[self._session.verdicts.oversize(variant)] = None
            batch.located.pop(variant, None)
            if batch.plain.get(variant.name) is variant:
                del batch.plain[variant.name]

    def _respond(self, batch: Batch, now: float, *, keep: bool = True) -> Steps[Send]:
        """Make the response with this batch, and wait for its ACK. `keep`: isolation needs its content after a NACK."""
        session = self._session
        send = Send(
            self._table.spec.url,
            True,  # noqa: FBT003
            session.verdicts.next_nonce(),
            str(self._table.shown_revision),
            tuple(batch.plain.values()),
            tuple(batch.located),
            tuple(batch.removed),
            tuple(batch.withdrawn),
            tuple(batch.errors),
        )
        return session.verdicts.sent((yield from session.rules.complete(send, batch)), now, keep=keep)

    def heartbeat(self, plain: tuple[Variant, ...], located: tuple[Variant, ...]) -> Send:
        """Return a response with these heartbeats. In delta they have no contents."""
        version, nonce = str(self._table.shown_revision), self._session.verdicts.next_nonce()
        return Send(self._table.spec.url, True, nonce, version, beats=plain, located_beats=located)  # noqa: FBT003

    # -- responses that sessions share (fast_path.py)

    def shared(self, replaced: list[Replaced]) -> Send | None:
        """Return the shared response with these replacements. None if they are in both forms (DYN-15)."""
        located = replaced[0][0].located
        if len(replaced) == 1:
            return self._once((replaced[0][1],), located=located)
        if any(want.located != located for want, _ in replaced):
            return None  # DYN-15
        return self._once(tuple(dict.fromkeys(after for _, after in replaced)), located=located)  # SRV-19

    def shared_name(self, want: NameSubscription, after: Variant) -> Send | None:
        """Return the shared response with one replacement; None: the fast path looks at all that is dirty.

        A plain variant is looked up by itself. The general lookup in `_once` builds a key with the form and a tuple.
        This runs for each client, so it avoids that.
        """
        held = want.held
        if want.located or held is None or held.version == after.version:
            return self.shared([(want, after)]) if not alike(held, after) else None
        shared = self._session.table.shared
        send = shared.get(after)
        if send is None:
            send = self._once((after,), located=False)
            if send is not None:
                shared[after] = send
        return send

    def shared_wildcard(self, wild: WildcardSubscription, news: News) -> Send | None:  # noqa: ARG002
        """Return the shared response with a wildcard's changed members."""
        return self._once(news, located=False)

    def _fits(self, news: News) -> bool:
        """Whether these variants fit into one response (DLT-21, DLT-22)."""
        return sum([variant.size for variant in news]) <= self._session.context.settings.response_bytes

    def _once(self, news: News, *, located: bool) -> Send | None:
        """Return the response with these variants, made by the first session that asks at this revision.

        All sessions that send it use the same object, and so the same nonce, and it is encoded once. None if they
        do not fit into one response.
        """
        key = True, located, news
        send = self._session.table.shared.get(key)
        if send is None and self._fits(news):
            plain, other = ((), news) if located else (news, ())
            url, version, nonce = (
                self._table.spec.url,
                str(self._table.shown_revision),
                self._session.verdicts.next_nonce(),
            )
            send = self._session.table.shared[key] = Send(url, True, nonce, version, plain, other)  # noqa: FBT003
        return send
