"""Apply one response to the watched entries: what each part of it means for which entry.

Every valid resource is used, whatever else is in the response (A46). `Reading.read` goes through the parts in this
order, since an earlier part may answer an entry that a later part would remove (DYN-58):

    part                          meaning for the entries that it concerns
    ----------------------------  ----------------------------------------------------------------------------------
    resources                     take the variant that fits best; the variant received last wins (DYN-45)
    invalid resources             keep the last valid variant, and tell watchers (NAK-15); the response is NACKed
    heartbeats                    extend the TTL
    unresolved hosts (VHDS)       the host does not exist (VHD-7)
    resource errors (TP3)         an error; NOT_FOUND and PERMISSION_DENIED may drop the variant (ERR-10)
    removals (delta)              the variant is gone (DYN-59), or a locator has none
    what is missing (SotW)        of a full-state type: deleted (CLI-8)

response_matching.py finds the entries that a part concerns, negative_answers.py those that a negative answer means, and
host_answers.py which virtual host serves a host.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import STATUS, WatchError
from ..model.constraints import TRUE, Constraint, canonical, matches
from ..model.events import ResourceError
from ..model.expr import show
from ..model.responses import Arrival, Heartbeat, Identity, InvalidResource, Response, Unresolved, judge
from ..model.steps import EVERY, Steps, pieces
from ..model.types import NO_PARAMS, VIRTUAL_HOST, Variant
from .authority import resubscribe
from .entry import Entry, Event, State, members_of
from .host_answers import HostAnswers
from .host_holders import is_current
from .negative_answers import NegativeAnswers, is_unasked
from .resource_cache import ResourceCache
from .response_matching import ResponseMatching
from .upstream import Upstream
from .watched_type import WatchedType

NOT_FOUND, PERMISSION_DENIED = 5, 7


class Reading:
    """One response while it is applied; collects which entries it answers, and with what."""

    def __init__(
        self, cache: ResourceCache, topic: WatchedType, upstream: Upstream, response: Response, now: float
    ) -> None:
        self._cache = cache
        self._topic = topic
        self._upstream = upstream
        self._response = response
        self._now = now
        # The best resource so far for each entry.
        self._given: dict[Entry, Arrival] = {}
        self._touched: set[Entry] = set()  # entries that the response answers
        # Name and form (True: by locator) of the resources in place of which an entry gets another one.
        self._left: set[tuple[str, bool]] = set()
        self._matching = ResponseMatching(topic, upstream)
        self._negative = NegativeAnswers(topic.spec, upstream, self._touched, now)
        self._hosts = HostAnswers(response, upstream, self._given)
        self.fruitful = bool(response.heartbeats)  # whether it brought anything: news for a watcher, or a heartbeat

    def read(self) -> Steps[list[InvalidResource]]:
        """Apply the response; return the invalid resources, for the NACK. Valid resources are used even so (A46)."""
        arrivals, flaws = judge(self._response)
        received = len(arrivals) + len(flaws)
        yield from self._take_all(arrivals, flaws)
        self._upstream.valid[self._response.type_url] += received - len(flaws)
        self._upstream.invalid[self._response.type_url] += len(flaws)
        for flaw in flaws:
            self._refuse(flaw)
        for heartbeat in self._response.heartbeats:
            self._extend_ttls(heartbeat)
        for item in self._response.unresolved:
            self._leave_unresolved(item)
        for error in self._response.errors:
            self._apply_error(error)
        if self._upstream.delta:
            yield from self._remove()
            self._release()
        elif self._topic.spec.full_state and all(flaw.name for flaw in flaws):  # NAK-27
            self._remove_missing()
        # What the response answers needs no timer any more.
        for entry in self._touched:
            self._upstream.pending.note_answered(entry)
        for collection in self._topic.answered(self._upstream, self._touched):
            self._cache.answered(collection)
        return flaws

    def _take_all(self, arrivals: Sequence[Arrival], flaws: list[InvalidResource]) -> Steps[None]:
        """Find the best resource for each entry, and then give it to the entry, in steps."""
        for piece in pieces(arrivals):
            for arrival in piece:
                self._arrive(arrival, flaws)
            if len(piece) == EVERY:
                yield
        for given in pieces(self._given.items()):
            for entry, arrival in given:
                self._accept(entry, arrival)
            if len(given) == EVERY:
                yield

    def _arrive(self, arrival: Arrival, flaws: list[InvalidResource]) -> None:
        """Find the entries that a valid resource is for; with `strict`, one that no locator matches is invalid."""
        entries = self._matching.wanting(arrival, self._is_lenient)
        if not entries and self._cache.strict and arrival.located and self._is_ours(arrival):
            variant = arrival.variant
            reason = f"its constraints ({show(variant.shown)}) do not match the params that were sent"
            flaws.append(InvalidResource(variant.name, variant.constraint, reason, variant.version))  # DYN-56
        for entry in entries:  # none: CLI-7
            if (
                entry.type_url == VIRTUAL_HOST
                and entry not in self._given
                and is_current(entry, arrival, self._upstream)
            ):
                entry.relabel(arrival.variant)
            elif self._hosts.is_meant(entry, arrival.variant):
                self._compare(entry, arrival)
                self._given[entry] = arrival

    def _accept(self, entry: Entry, arrival: Arrival) -> None:
        """Give a resource to an entry."""
        self._touched.add(entry)
        # The response may also remove the former resource: `ResponseMatching.withdrawn` has to know who it was for.
        if entry.variant is not None and not entry.holds(arrival.variant.name):
            self._left.add((entry.variant.name, entry.params is not None))
        # The server still has to withdraw the former variant, and that removal is not for other subscriptions.
        if arrival.located and entry.variant is not None and entry.variant.identity != arrival.variant.identity:
            self._upstream.expect_removal(entry)
        self.fruitful |= self._cache.accept(self._topic, entry, arrival, self._upstream, self._now)

    def _extend_ttls(self, heartbeat: Heartbeat) -> None:
        """Extend the TTL of the entries that hold exactly this variant."""
        for entry in self._matching.holding_exactly(heartbeat):
            self._touched.add(entry)
            self._cache.set_ttl(entry, heartbeat.ttl, self._now)

    def _is_lenient(self, entry: Entry) -> bool:
        """Whether an entry may get a variant that its params do not match: a leaf may ignore constraints (DYN-56)."""
        return not self._cache.strict and self._is_open(entry)

    def _is_open(self, entry: Entry) -> bool:
        """Whether a variant that does not match the entry's params can be for it even so.

        Some servers choose by other params than were sent; their variants never match. But if the entry has a variant
        that matches and stays current, the other one was in flight to a subscription that has just been dropped.
        """
        # A locator of this name was dropped of late: a variant that does not match may be for that one.
        if (entry.type_url, entry.name) in self._upstream.pending.let_go:
            return False
        params = entry.params or NO_PARAMS
        given, held = self._given.get(entry), entry.variant
        if given is not None and matches(given.variant.constraint, params):
            return False
        # Either the server said that there is none, or it has not seen the subscription.
        if held is None and (entry.absence is not None or is_unasked(self._upstream, entry)):
            return False
        whole = self._topic.spec.full_state and not self._upstream.delta
        return held is None or whole or not matches(held.constraint, params) or self._hosts.is_withdrawn(held)

    def _is_ours(self, arrival: Arrival) -> bool:
        """Whether an entry was subscribed with a locator of this name."""
        return self._topic.has_located(arrival.variant.name, self._upstream)

    def _compare(self, entry: Entry, arrival: Arrival) -> None:
        """Report two variants that both match one entry, in one response or across two (DYN-45).

        In delta, the server should have withdrawn the variant that the entry holds.
        """
        params, variant = entry.params, arrival.variant
        other = self._given[entry].variant if entry in self._given else self._not_withdrawn(entry)
        if other is None or not arrival.located or params is None or other.name != variant.name:
            return
        both = matches(other.constraint, params) and matches(variant.constraint, params)
        if both and canonical(other.constraint) != canonical(variant.constraint):
            self._cache.ambiguities.note(entry, variant, other)

    def _not_withdrawn(self, entry: Entry) -> Variant | None:
        """Return the held variant, if it came on this delta stream and the response does not withdraw it."""
        variant = entry.variant
        if variant is None or not self._upstream.delta or not entry.came_from(self._upstream):
            return None
        return None if self._hosts.is_withdrawn(variant) else variant

    def _refuse(self, flaw: InvalidResource) -> None:
        """Tell the entries of an invalid resource, unless another variant in the response is for them."""
        if not flaw.name:
            return
        error = WatchError("INVALID_ARGUMENT", f"{flaw.name!r} from {self._upstream.label} is invalid: {flaw.reason}")
        for entry in self._matching.flawed(flaw, self._is_open):
            if entry in self._given:
                continue  # another variant was for this one
            self._touched.add(entry)  # NAK-21
            self.fruitful |= entry.reject(error, flaw.version or self._response.version, self._now)

    def _leave_unresolved(self, item: Unresolved) -> None:
        """Report hosts that no virtual host serves as missing (VHD-7); their subscription stays (VHD-8)."""
        constraint = canonical(item.constraint) if item.constraint is not None else None
        error = WatchError("NOT_FOUND", f"{item.name!r} does not exist on {self._upstream.label}")
        for entry in self._negative.concerned(self._matching.unresolved(item), constraint, error):
            if entry not in self._touched:  # a resource in the same response is the better answer
                self._touched.add(entry)
                what = f"{entry.name!r} does not exist on {self._upstream.label}, which reports it as unresolved"
                self._delete(entry, what, self._negative.absence_for(entry, constraint))

    def _apply_error(self, error: ResourceError) -> None:
        """Apply a resource error (TP3). With `fail_on_data_errors`, a negative one drops the variant (ERR-10)."""
        status = STATUS[error.code] if 0 < error.code < len(STATUS) else "UNKNOWN"
        told = WatchError(status, error.message or f"{error.about.name!r}: {self._upstream.label} reports an error")
        denied = self._matching.denied(error.about)
        whom = canonical(error.about.constraint)
        # Only these two codes deny the resource; any other one leaves a cached variant in use (ERR-9).
        negative = error.code in (NOT_FOUND, PERMISSION_DENIED)
        drop = negative and self._upstream.fail_on_data_errors
        denied = self._negative.concerned(denied, whom, told) if negative else denied
        # If a glob is denied, its members go too.
        members = [one for each in denied if drop for one in members_of(each)]
        for entry in (*members, *denied):
            if entry in self._given:
                continue  # ERR-2
            self._touched.add(entry)  # ERR-8
            entry.for_all = self._upstream.by_names
            absence = self._negative.absence_for(entry, whom) if negative else whom
            if error.code == NOT_FOUND and entry.variant is not None and entry.variant.identity[1] == whom:
                absence = None  # that variant is gone, which says nothing about other params
            self.fruitful |= self._cache.fail(entry, told, Event.ERROR, self._now, drop=drop, absence=absence)

    def _remove(self) -> Steps[None]:
        """Apply the removals of a delta response: of names, and of variants by name and constraints."""
        response, topic = self._response, self._topic
        gone: list[tuple[Identity, str]] = [((name, None), name) for name in response.removed]
        gone += [((each.name, canonical(each.constraint)), each.name) for each in response.withdrawn]
        for number, (identity, name) in enumerate(dict.fromkeys(gone), 1):  # repeated removals count once
            if number % EVERY == 0:
                yield
            # An entry that just got another resource explains this removal.
            left = (name, identity[1] is not None) in self._left
            what = f"{name!r} does not exist on {self._upstream.label}"
            concerned = self._matching.withdrawn(identity, left=left)
            meant = self._negative.concerned(concerned, identity[1], WatchError("NOT_FOUND", what))
            self._upstream.pending.expected_removals.pop((topic.spec.url, name, identity[1] or TRUE), None)
            for entry in meant:
                doubtful = name != entry.name and self._hosts.is_doubtful(entry)
                if entry not in self._touched and not doubtful:  # DYN-58: what replaces it has just come
                    self._touched.add(entry)
                    lost = entry.variant is not None and entry.variant.identity == identity
                    absence = self._negative.absence_for(entry, identity[1]) if not lost else None
                    self._delete(entry, what, absence)

    def _release(self) -> None:
        """Report hosts that their virtual host no longer serves, if the response has no other one for them (VHD-12)."""
        for entry, name in self._hosts.lost.items():
            if entry not in self._touched and not self._hosts.is_doubtful(entry):
                self._touched.add(entry)
                lost = f"it is no alias of {name!r} any more"
                self._delete(entry, f"{entry.name!r} does not exist on {self._upstream.label}: {lost}")
        for entry in self._hosts.doubtful:
            if entry not in self._touched:
                resubscribe(entry, self._topic.spec)

    def _remove_missing(self) -> None:
        """Delete the resources that a full state lacks (CLI-8), but not those that never came (CLI-9)."""
        for entry in [*self._topic]:
            came = entry.variant is not None or entry not in entry.authority.entries  # members were never asked for
            asked = self._upstream in entry.authority.active and not self._upstream.keeps(entry)
            if entry in self._touched or not asked or self._is_excused(entry):
                continue
            if came:
                self._touched.add(entry)
                self._delete(entry, f"{self._upstream.label} has removed {entry.name!r}")
            elif entry in self._upstream.pending.awaited and self._upstream.full_state_decides:
                self._pass_over(entry)

    def _is_excused(self, entry: Entry) -> bool:
        """Whether the server reported an error for it on this stream, which it does not repeat (ERR-11, ERR-3)."""
        told = entry not in self._upstream.pending.awaited and entry.member_of is None
        return told and entry.has_unclear_error and entry not in self._negative.denied

    def _pass_over(self, entry: Entry) -> None:
        """Note that a full state after the subscription lacks the resource (PRX-34).

        The server may have sent it before it read the subscription. So it decides only when the timer fires, or has
        fired. A full state from a relay never decides, because a relay leaves out what it does not know yet (SOT-4).
        """
        if self._upstream.is_relay:
            return
        self._upstream.pending.passed_over.add(entry)
        # The timer has fired already, and this full state decides now.
        if entry.state is State.TIMEOUT:
            self._touched.add(entry)
            self._delete(entry, f"{self._upstream.label} does not have {entry.name!r}")

    def _delete(self, entry: Entry, why: str, absence: Constraint | None = None) -> None:
        """Report a resource as missing; drop the cached one only if the server is trusted with deletions (CLI-15)."""
        entry.for_all = self._upstream.by_names
        error = WatchError("NOT_FOUND", why)
        drop = self._upstream.fail_on_data_errors
        self.fruitful |= self._cache.fail(entry, error, Event.REMOVED, self._now, drop=drop, absence=absence)
