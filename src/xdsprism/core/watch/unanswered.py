"""Track subscriptions that a server is not asked for, or does not answer: quarantine, timers and doubts.

Neither the quarantine nor silence is an answer of a server, yet watchers have to hear of both:

    what happens                                           watchers hear
    -----------------------------------------------------  ---------------------------------------------------
    every active server has it in quarantine (PRX-35)      an error: the server ended the stream when asked
    SotW can't subscribe to its type (PRX-33, VHD-1)       it does not exist
    no answer in 15 s (CLI-11)                             it does not exist; if the timer is transient, TIMEOUT
    a resource that may be gone is not sent in MOMENT s    it does not exist, or the error that raised the doubt
"""

from __future__ import annotations

from functools import partial

from ...errors import WatchError
from .authority import doubt
from .entry import Entry, Event
from .quarantine import RETRY, Quarantined, Question
from .resource_cache import ResourceCache
from .upstream import Upstream


class UnansweredSubscriptions:
    """What becomes of subscriptions that no server answers."""

    def __init__(self, cache: ResourceCache) -> None:
        self._cache = cache

    # -- PRX-35: subscriptions for which a server ends the stream

    def find_culprit(self, upstream: Upstream, error: WatchError, now: float) -> Quarantined | None:
        """Return the subscription that the end of a stream puts into quarantine."""
        return upstream.quarantine.ended(error.status, str(error), now, partial(self._is_open, upstream))

    def _is_open(self, upstream: Upstream, question: Question) -> bool:
        """Whether a subscription is watched, and the server has said nothing about it on the current stream."""
        entry = self._cache.find(question)
        if entry is None or entry.came_from(upstream):
            return False
        return entry.lacking or entry.usable

    def send_released(self, upstream: Upstream, now: float) -> None:
        """Send the subscriptions that the quarantine releases now."""
        for question in upstream.quarantine.release(now, partial(self._is_open, upstream)):
            entry = self._cache.find(question)
            if entry is not None:
                entry.release()
            upstream.ask_kept(*question)

    def note_quarantine(self, entry: Entry) -> None:
        """Tell watchers if every active server has the subscription in quarantine, and why."""
        held = [each.quarantine.find((entry.type_url, entry.key)) for each in entry.authority.active]
        if held and (last := held[-1]) is not None and all(held):
            server = entry.authority.active[-1].label
            what = f"{entry.name!r} is withheld: {server} ended the stream after it was requested"
            error = WatchError("UNAVAILABLE", f"{what} ({last.error})")
            self._cache.fail(entry, error, Event.ERROR, last.until - RETRY, drop=False)

    def deny_unaskable(self, upstream: Upstream, now: float) -> None:
        """Treat resources that a server without delta can't serve as missing there (PRX-33, VHD-1)."""
        unaskable, upstream.requests.unaskable[:] = upstream.requests.unaskable[:], []
        for type_url, key in unaskable:
            entry = self._cache.find((type_url, key))
            if entry is not None and entry.lacking:
                what = f"{entry.name!r} needs delta, and {upstream.label} has no delta method"
                self._cache.fail(entry, WatchError("NOT_FOUND", what), Event.REMOVED, now, drop=False)

    # -- silence

    def tick(self, upstream: Upstream, now: float) -> None:
        """Handle the timers of a server that are over."""
        # Doubts first: they began at the same time as the timers, and are shorter.
        for entry in upstream.pending.take_expired(upstream.pending.doubts, now):
            if entry.doubted is not None:
                self._confirm(entry, entry.doubted, upstream, now)
        for entry in upstream.pending.take_expired(upstream.pending.timers, now):
            if entry.unanswered:  # not if another server has answered meanwhile
                self._time_out(entry, upstream, now)

    def _time_out(self, entry: Entry, upstream: Upstream, now: float) -> None:
        """Handle an unanswered subscription: the resource does not exist (CLI-11), or may come later (CLI-14)."""
        what = f"{entry.name!r}: {upstream.label} has not answered in {answer_timeout(upstream):g} s"
        if upstream.timer_is_transient and entry not in upstream.pending.passed_over:  # CLI-14
            entry.fail(WatchError("UNAVAILABLE", what), Event.TIMED_OUT, now, drop=False)
        else:
            error = WatchError("NOT_FOUND", f"{what}, so it does not exist")
            self._cache.fail(entry, error, Event.UNANSWERED, now, drop=upstream.fail_on_data_errors)

    def _confirm(self, entry: Entry, error: WatchError, upstream: Upstream, now: float) -> None:
        """Report a doubted resource as missing, because the server stayed silent."""
        upstream.pending.note_answered(entry)
        event = Event.REMOVED if error.status == "NOT_FOUND" else Event.ERROR
        self._cache.fail(entry, error, event, now, drop=upstream.fail_on_data_errors)

    def presume_gone(self, entry: Entry, now: float) -> bool:
        """Doubt an entry that waits for an answer, because the variant that it shared is gone (PRX-34).

        The silence of the server then means that there is none; but not where a server always answers, nor in SotW for
        a type that is not full state (SOT-7). Return whether the doubt is new.
        """
        full_state = self._cache.spec(entry.type_url).full_state
        news = entry.doubted is None and any(
            full_state if not each.delta else not each.pins_absence for each in entry.authority.active
        )
        if news:
            doubt(entry, WatchError("NOT_FOUND", f"{entry.name!r} does not exist any more"), now)
        return news


def answer_timeout(upstream: Upstream) -> float:
    """Return the seconds until an unanswered subscription times out (CLI-11), or is a transient error (CLI-14)."""
    return 30.0 if upstream.timer_is_transient else 15.0
