"""Decide which entries a negative answer concerns: a removal, a resource error, an unresolved host (PRX-31).

A removal without constraints does not say which set of params it answers, and a response may have been in flight before
a subscription that it seems to answer. Where the response can mean two subscriptions, the entry is "doubted": it keeps
its variant, the client asks again, and only silence or the next answer decides.
"""

from __future__ import annotations

from collections import Counter

from ...errors import WatchError
from ..model.constraints import TRUE, Constraint, canonical
from ..model.types import TypeSpec
from .authority import doubt, resubscribe
from .entry import Entry, State, subscribed
from .upstream import Upstream


class NegativeAnswers:
    """The negative answers of one response.

    touched: the entries that the response has answered so far; the reader of the response adds to it.
    """

    def __init__(self, spec: TypeSpec, upstream: Upstream, touched: set[Entry], now: float) -> None:
        self._spec = spec
        self._upstream = upstream
        self._touched = touched
        self._now = now
        self.denied: set[Entry] = set()  # entries that an answer may deny: a full state without them deletes them

    def concerned(self, entries: list[Entry], constraint: Constraint | None, error: WatchError) -> list[Entry]:
        """Return the entries that a negative answer concerns; doubt those for which that is unclear.

        Without constraints it answers one set of params, and removes no variant that has constraints (PRX-31). If
        several entries of the name wait for an answer, it may be for any of them: each is doubted until its own answer
        comes. So are they if it may be the removal of a variant that this stream was sent.
        """
        if self._upstream.by_names:
            return entries
        located = {entry for entry in entries if entry.params is not None and entry.collection is None}
        open_ = located - self._touched
        waiting = [entry for entry in entries if entry in open_ and self._awaits(entry)]
        gone = {entry for entry in located if self._is_equal(entry, constraint)}
        told = {each for each in located if not is_unasked(self._upstream, each)}
        # An entry without a variant may hear it again, since nothing is known about other params now.
        if not self._is_pinned(constraint):
            told = gone | {each for each in told if each.variant is None and each not in self._upstream.pending.awaited}
        explained = [entry for entry in waiting if gone or self._was_sent(entry.name, constraint)]
        # Constraints say exactly for whom there is nothing, except from a relay, which may know less.
        exact = self._is_pinned(constraint) and not self._upstream.is_relay
        holding = [entry for entry in waiting if entry.variant is not None]  # a variant from an earlier stream
        doubtful = explained or ([] if exact else self._several(waiting, located) or holding)
        for entry in doubtful:
            self._doubt(entry, error)
        told = (told | {*waiting}) - {*doubtful}
        return [entry for entry in entries if entry in told or entry not in located]

    def absence_for(self, entry: Entry, constraint: Constraint | None) -> Constraint | None:
        """Return the params for which a negative answer holds, as far as one entry can know (PRX-31).

        If the entry lost its variant earlier and the server owes it no answer, this is the answer to another
        subscription. The server will correct it there, and not here.
        """
        is_gone = entry.state is State.DOES_NOT_EXIST and entry.variant is None and entry.absence is None
        return None if is_gone and not self._awaits(entry) else self._covered_params(constraint)

    def _covered_params(self, constraint: Constraint | None) -> Constraint | None:
        """Return the params for which a negative answer holds; None: for the subscription that asked, only (PRX-31)."""
        return constraint if self._is_pinned(constraint) and not self._upstream.is_relay else None

    def _is_pinned(self, constraint: Constraint | None) -> bool:
        """Whether an absence says for which params it holds."""
        return constraint is not None and (self._upstream.pins_absence or canonical(constraint) != TRUE)

    def _several(self, waiting: list[Entry], known: set[Entry]) -> list[Entry]:
        """Return the waiting entries that are not the only open subscription to their name.

        A locator that was dropped before its answer counts once, since that answer may be this one.
        """
        asking = {each for each in known if each.doubted is not None or each in self._upstream.pending.awaited}
        askers = Counter((entry.type_url, entry.name) for entry in asking.union(waiting))
        askers.update(each for each in self._upstream.pending.abandoned if each in askers)
        # Such an answer is accounted for now.
        for each in askers:
            self._upstream.pending.abandoned.pop(each, None)
        return [entry for entry in waiting if askers[entry.type_url, entry.name] > 1]

    def _is_equal(self, entry: Entry, constraint: Constraint | None) -> bool:
        """Whether the entry holds this variant from this stream; by name alone, a variant without constraints."""
        held = entry.variant if entry.came_from(self._upstream) else None
        return held is not None and canonical(held.constraint) == (constraint if constraint is not None else TRUE)

    def _was_sent(self, name: str, constraint: Constraint | None) -> bool:
        """Whether this stream was sent the variant, and the entry that had it lost it since."""
        return (self._spec.url, name, constraint or TRUE) in self._upstream.pending.expected_removals

    def _awaits(self, entry: Entry) -> bool:
        """Whether the server owes the entry an answer on this stream; a member's answer is that of its collection."""
        if entry.member_of is not None:
            return self._upstream.delta and entry.variant is not None and not entry.came_from(self._upstream)
        return entry in self._upstream.pending.awaited or self._has_error(entry)

    def _has_error(self, entry: Entry) -> bool:
        """Whether the server has said nothing on this stream but that something is wrong with the resource.

        Then it has yet to say what the resource is; a variant from an earlier stream is no answer. For example, a relay
        that was restarted while its own server is down first reports the outage, and later that the resource is gone.
        """
        if entry.came_from(self._upstream) or entry.own_error is None:
            return False
        if entry.state is State.NACKED:
            return entry.variant is not None
        return entry.has_unclear_error

    def _doubt(self, entry: Entry, error: WatchError) -> None:
        """Note that the resource may be gone, and ask again where the server may believe that it has answered.

        An entry with a variant from an earlier stream may be up to date, and the server need not say so.
        """
        whole = self._spec.full_state and not self._upstream.delta  # CLI-8: what a full state lacks is deleted
        # A member of a wildcard, from an earlier stream.
        if entry.member_of is not None and entry.sent_by is not self._upstream:
            # The stream did not name its version, so the server sends it if it exists.
            self._upstream.pending.awaited.add(entry)
            doubt(entry, error, self._now)
        elif entry.doubted is not None or (whole and entry.variant is None):
            doubt(entry, error, self._now)
        elif whole:
            self.denied.add(entry)
        else:
            entry.doubt(error)
            resubscribe(subscribed(entry), self._spec)


def is_unasked(upstream: Upstream, entry: Entry) -> bool:
    """Whether no request with the entry has gone out that the server could be answering."""
    return entry.member_of is None and entry.state is State.REQUESTED and entry not in upstream.pending.awaited
