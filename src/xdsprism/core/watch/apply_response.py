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

The hard part is negative answers. A removal without constraints does not say which set of params it answers, and a
response may have been in flight before a subscription that it seems to answer. Where the response can mean two
subscriptions, the entry is "doubted": it keeps its variant, the client asks again, and only silence or the next answer
decides (PRX-31).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import STATUS, WatchError
from ..model.constraints import TRUE, Constraint, canonical, matches
from ..model.events import ResourceError
from ..model.expr import show
from ..model.responses import Arrival, Heartbeat, Identity, InvalidResource, Response, Unresolved, judge
from ..model.steps import EVERY, Steps, pieces
from ..model.types import NO_PARAMS, VIRTUAL_HOST, Variant
from .entry import Collection, Entry, State
from .host_holders import is_current
from .match_rank import MatchRank, closeness, owns
from .upstream import Upstream
from .watched_type import WatchedType

if TYPE_CHECKING:
    from .subscriber import Subscriber

NOT_FOUND, PERMISSION_DENIED = 5, 7


class Reading:
    """One response while it is applied; collects which entries it answers, and with what."""

    def __init__(
        self, subscriber: Subscriber, topic: WatchedType, upstream: Upstream, response: Response, now: float
    ) -> None:
        self._subscriber = subscriber
        self._topic = topic
        self._upstream = upstream
        self._response = response
        self._now = now
        # The best resource so far for each entry.
        self._given: dict[Entry, Arrival] = {}
        self._touched: set[Entry] = set()  # entries that the response answers
        # Name and form (True: by locator) of the resources in place of which an entry gets another one.
        self._left: set[tuple[str, bool]] = set()
        self._lost: dict[Entry, str] = {}  # entries whose virtual host no longer serves their host: its name
        self._doubtful: dict[Entry, None] = {}  # entries to ask for again
        self._denied: set[Entry] = set()  # entries that an answer may deny: a full state without them deletes them
        self._removed = frozenset(response.removed)
        self._withdrawn = frozenset((gone.name, canonical(gone.constraint)) for gone in response.withdrawn)
        # By name; of several variants of a name, the first in the response.
        self._newest = {each.variant.name: each.variant for each in reversed(response.arrivals)}
        self._unresolved = {string for item in response.unresolved for string in item.strings}
        self.fruitful = bool(response.heartbeats)  # whether it brought anything: news for a watcher, or a heartbeat

    def read(self) -> Steps[list[InvalidResource]]:
        """Apply the response; return the invalid resources, for the NACK. Valid ones are used all the same (A46)."""
        arrivals, flaws = judge(self._response)
        yield from self._take_all(arrivals, flaws)
        for flaw in flaws:
            self._refuse(flaw)
        for heartbeat in self._response.heartbeats:
            self._beat(heartbeat)
        for item in self._response.unresolved:
            self._leave_unresolved(item)
        for error in self._response.errors:
            self._err(error)
        if self._upstream.delta:
            yield from self._remove()
            self._release()
        elif self._topic.spec.full_state and all(flaw.name for flaw in flaws):  # NAK-27
            self._miss()
        # What the response answers needs no timer any more.
        for entry in self._touched:
            self._upstream.note_answered(entry)
        for collection in self._topic.answered(self._upstream, self._touched):
            self._subscriber.answered(collection)
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
                self._take(entry, arrival)
            if len(given) == EVERY:
                yield

    def _arrive(self, arrival: Arrival, flaws: list[InvalidResource]) -> None:
        """Find the entries that a valid resource is for; with `strict`, one that no locator matches is invalid."""
        entries = self._topic.wanting(arrival, self._upstream, self._is_lenient)
        if not entries and self._subscriber.strict and arrival.located and self._is_ours(arrival):
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
            elif self._is_meant(entry, arrival.variant):
                self._compare(entry, arrival)
                self._given[entry] = arrival

    def _take(self, entry: Entry, arrival: Arrival) -> None:
        """Give a resource to an entry."""
        self._touched.add(entry)
        # The response may also remove the former resource: `WatchedType.withdrawn` has to know who it was for.
        if entry.variant is not None and not entry.holds(arrival.variant.name):
            self._left.add((entry.variant.name, entry.key[1] is not None))
        # The server still has to withdraw the former variant, and that removal is not for other subscriptions.
        if arrival.located and entry.variant is not None and entry.variant.identity != arrival.variant.identity:
            self._upstream.outlive(entry)
        self.fruitful |= self._subscriber.take(self._topic, entry, arrival, self._upstream, self._now)

    def _beat(self, heartbeat: Heartbeat) -> None:
        """Extend the TTL of the entries that hold exactly this variant."""
        for entry in self._topic.living(heartbeat, self._upstream):
            self._touched.add(entry)
            self._subscriber.lives(entry, heartbeat.ttl, self._now)

    def _is_meant(self, entry: Entry, variant: Variant) -> bool:
        """Whether a resource is for an entry that it fits by name or alias, or that holds it (VHD-12)."""
        given, close = self._given.get(entry), closeness(entry.name, variant)
        if close is MatchRank.LOST:
            self._lost[entry] = variant.name
            return False
        if close is MatchRank.UNSURE and not self._is_repeated(entry, variant):
            self._doubtful[entry] = None
            return False
        # Of two resources in the response for one entry, the better rank wins; the later one if both are equal.
        if given is not None:
            return close >= closeness(entry.name, given.variant)
        # An update of the virtual host that the entry holds. Not if the response calls the host unresolved, or if the
        # server has yet to say on this stream which virtual host serves it.
        if close is MatchRank.HELD:
            return entry.name not in self._unresolved and not self._is_doubtful(entry)
        return close is MatchRank.MEANT or not self._is_owned(entry, variant)

    def _is_repeated(self, entry: Entry, variant: Variant) -> bool:
        """Whether the server repeats the resource that the entry has from it, in an answer to other hosts (VHD-4)."""
        held = entry.variant
        same = held is not None and held.name == variant.name and held.body == variant.body
        return same and entry.came_from(self._upstream)

    def _is_owned(self, entry: Entry, other: Variant) -> bool:
        """Whether the virtual host that the entry holds has the host as an exact domain, and the other one does not.

        Then another virtual host that is merely named like the host answers another subscription.
        """
        held = entry.variant
        if held is None or held.name == other.name or entry.state is not State.ACKED or self._is_gone(held):
            return False
        current = self._newest.get(held.name, held)
        if not owns(current, entry.name) or owns(other, entry.name):
            return False
        self._is_doubtful(entry)
        return True

    def _is_gone(self, variant: Variant) -> bool:
        """Whether this response removes the variant."""
        return variant.name in self._removed or self._is_withdrawn(variant)

    def _is_lenient(self, entry: Entry) -> bool:
        """Whether an entry may get a variant that its params do not match: a leaf may ignore constraints (DYN-56)."""
        return not self._subscriber.strict and self._is_open(entry)

    def _is_open(self, entry: Entry) -> bool:
        """Whether a variant that does not match the entry's params can be for it all the same.

        Some servers choose by other params than were sent; their variants never match. But if the entry has a variant
        that matches and stays current, the other one was in flight to a subscription that has just been dropped.
        """
        # A locator of this name was dropped of late: a variant that does not match may be for that one.
        if (entry.type_url, entry.name) in self._upstream.let_go:
            return False
        params = entry.key[1] or NO_PARAMS
        given, held = self._given.get(entry), entry.variant
        if given is not None and matches(given.variant.constraint, params):
            return False
        # Either the server said that there is none, or it has not seen the subscription.
        if held is None and (entry.absence is not None or self._is_unasked(entry)):
            return False
        whole = self._topic.spec.full_state and not self._upstream.delta
        return held is None or whole or not matches(held.constraint, params) or self._is_withdrawn(held)

    def _is_ours(self, arrival: Arrival) -> bool:
        """Whether an entry was subscribed with a locator of this name."""
        return self._topic.has_located(arrival.variant.name, self._upstream)

    def _compare(self, entry: Entry, arrival: Arrival) -> None:
        """Report two variants that both match one entry, in one response or across two (DYN-45).

        In delta, the server should have withdrawn the variant that the entry holds.
        """
        params, variant = entry.key[1], arrival.variant
        other = self._given[entry].variant if entry in self._given else self._not_withdrawn(entry)
        if other is None or not arrival.located or params is None or other.name != variant.name:
            return
        both = matches(other.constraint, params) and matches(variant.constraint, params)
        if both and canonical(other.constraint) != canonical(variant.constraint):
            self._subscriber.ambiguities.note(entry, variant, other)

    def _not_withdrawn(self, entry: Entry) -> Variant | None:
        """Return the held variant, if it came on this delta stream and the response does not withdraw it."""
        variant = entry.variant
        if variant is None or not self._upstream.delta or not entry.came_from(self._upstream):
            return None
        return None if self._is_withdrawn(variant) else variant

    def _is_withdrawn(self, variant: Variant) -> bool:
        """Whether the response withdraws exactly this variant."""
        return bool(self._withdrawn) and variant.identity in self._withdrawn

    def _refuse(self, flaw: InvalidResource) -> None:
        """Tell the entries of an invalid resource, unless another variant in the response is for them."""
        if not flaw.name:
            return
        error = WatchError("INVALID_ARGUMENT", f"{flaw.name!r} from {self._upstream.label} is invalid: {flaw.reason}")
        for entry in self._topic.flawed(flaw, self._upstream, self._is_open):
            if entry in self._given:
                continue  # another variant was for this one
            self._touched.add(entry)  # NAK-21
            self.fruitful |= entry.refuse(error, flaw.version or self._response.version, self._now)

    def _leave_unresolved(self, item: Unresolved) -> None:
        """Report hosts that no virtual host serves as missing (VHD-7); their subscription stays (VHD-8)."""
        constraint = canonical(item.constraint) if item.constraint is not None else None
        error = WatchError("NOT_FOUND", f"{item.name!r} does not exist on {self._upstream.label}")
        for entry in self._meant(self._topic.unresolved(item, self._upstream), constraint, error):
            if entry not in self._touched:  # a resource in the same response is the better answer
                self._touched.add(entry)
                what = f"{entry.name!r} does not exist on {self._upstream.label}, which calls it unresolved"
                self._delete(entry, what, self._whom_told(entry, constraint))

    def _err(self, error: ResourceError) -> None:
        """Apply a resource error (TP3). With `fail_on_data_errors`, a negative one drops the variant (ERR-10)."""
        status = STATUS[error.code] if 0 < error.code < len(STATUS) else "UNKNOWN"
        told = WatchError(status, error.message or f"{error.about.name!r}: {self._upstream.label} has an error for it")
        denied = self._topic.denied(error.about, self._upstream)
        whom = canonical(error.about.constraint)
        # Only these two codes deny the resource; any other one leaves a cached variant in use (ERR-9).
        negative = error.code in (NOT_FOUND, PERMISSION_DENIED)
        drop = negative and self._upstream.fail_on_data_errors
        denied = self._meant(denied, whom, told) if negative else denied
        # If a glob is denied, its members go too.
        members = [one for each in denied if drop and isinstance(each, Collection) for one in each.members.values()]
        for entry in (*members, *denied):
            if entry in self._given:
                continue  # ERR-2
            self._touched.add(entry)  # ERR-8
            entry.for_all = self._upstream.by_names
            absence = self._whom_told(entry, whom) if negative else whom
            if error.code == NOT_FOUND and entry.variant is not None and entry.variant.identity[1] == whom:
                absence = None  # that variant is gone, which says nothing about other params
            state = State.RECEIVED_ERROR
            self.fruitful |= self._subscriber.fail(entry, told, state, self._now, drop=drop, absence=absence)

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
            concerned = topic.withdrawn(identity, self._upstream, left=left)
            meant = self._meant(concerned, identity[1], WatchError("NOT_FOUND", what))
            self._upstream.outlived.pop((topic.spec.url, name, identity[1] or TRUE), None)
            for entry in meant:
                doubtful = name != entry.name and self._is_doubtful(entry)
                if entry not in self._touched and not doubtful:  # DYN-58: what replaces it has just come
                    self._touched.add(entry)
                    lost = entry.variant is not None and entry.variant.identity == identity
                    absence = self._whom_told(entry, identity[1]) if not lost else None
                    self._delete(entry, what, absence)

    def _whom(self, constraint: Constraint | None) -> Constraint | None:
        """Return the params for which a negative answer holds; None: for the subscription that asked, only (PRX-31)."""
        return constraint if self._is_pinned(constraint) and not self._upstream.is_relay else None

    def _whom_told(self, entry: Entry, constraint: Constraint | None) -> Constraint | None:
        """Return the params for which a negative answer holds, as far as one entry can know (PRX-31).

        If the entry lost its variant earlier and the server owes it no answer, this is the answer to another
        subscription. The server will correct it there, and not here.
        """
        bereft = entry.state is State.DOES_NOT_EXIST and entry.variant is None and entry.absence is None
        return None if bereft and not self._awaits(entry) else self._whom(constraint)

    def _is_pinned(self, constraint: Constraint | None) -> bool:
        """Whether an absence says for which params it holds."""
        return constraint is not None and (self._upstream.pins_absence or canonical(constraint) != TRUE)

    def _meant(self, entries: list[Entry], constraint: Constraint | None, error: WatchError) -> list[Entry]:
        """Return the entries that a negative answer concerns; doubt those for which that is unclear.

        Without constraints it answers one set of params, and removes no variant that has constraints (PRX-31). If
        several entries of the name wait for an answer, it may be for any of them: each is doubted until its own answer
        comes. So are they if it may be the removal of a variant that this stream was sent.
        """
        if self._upstream.by_names:
            return entries
        located = {entry for entry in entries if entry.key[1] is not None and not isinstance(entry, Collection)}
        open_ = located - self._touched
        waiting = [entry for entry in entries if entry in open_ and self._awaits(entry)]
        gone = {entry for entry in located if self._is_equal(entry, constraint)}
        told = {each for each in located if not self._is_unasked(each)}
        # An entry without a variant may hear it again, since nothing is known about other params now.
        if not self._is_pinned(constraint):
            told = gone | {each for each in told if each.variant is None and each not in self._upstream.awaited}
        explained = [entry for entry in waiting if gone or self._was_sent(entry.name, constraint)]
        # Constraints say exactly for whom there is nothing, except from a relay, which may know less.
        exact = self._is_pinned(constraint) and not self._upstream.is_relay
        holding = [entry for entry in waiting if entry.variant is not None]  # a variant from an earlier stream
        doubtful = explained or ([] if exact else self._several(waiting, located) or holding)
        for entry in doubtful:
            self._doubt(entry, error)
        told = (told | {*waiting}) - {*doubtful}
        return [entry for entry in entries if entry in told or entry not in located]

    def _several(self, waiting: list[Entry], known: set[Entry]) -> list[Entry]:
        """Return the waiting entries that are not the only open subscription to their name.

        A locator that was dropped before its answer counts once, since that answer may be this one.
        """
        asking = {each for each in known if each.doubted is not None or each in self._upstream.awaited}
        askers = Counter((entry.type_url, entry.name) for entry in asking.union(waiting))
        askers.update(each for each in self._upstream.abandoned if each in askers)
        # Such an answer is accounted for now.
        for each in askers:
            self._upstream.abandoned.pop(each, None)
        return [entry for entry in waiting if askers[entry.type_url, entry.name] > 1]

    def _is_equal(self, entry: Entry, constraint: Constraint | None) -> bool:
        """Whether the entry holds this variant from this stream; by name alone, a variant without constraints."""
        held = entry.variant if entry.came_from(self._upstream) else None
        return held is not None and canonical(held.constraint) == (constraint if constraint is not None else TRUE)

    def _was_sent(self, name: str, constraint: Constraint | None) -> bool:
        """Whether this stream was sent the variant, and the entry that had it lost it since."""
        return (self._topic.spec.url, name, constraint or TRUE) in self._upstream.outlived

    def _awaits(self, entry: Entry) -> bool:
        """Whether the server owes the entry an answer on this stream; a member's answer is that of its collection."""
        if entry.collection is not None:
            return self._upstream.delta and entry.variant is not None and not entry.came_from(self._upstream)
        return entry in self._upstream.awaited or self._is_troubled(entry)

    def _is_troubled(self, entry: Entry) -> bool:
        """Whether the server has said nothing on this stream but that something is wrong with the resource.

        Then it has yet to say what the resource is; a variant from an earlier stream is no answer. For example, a relay
        that was restarted while its own server is down first reports the outage, and later that the resource is gone.
        """
        if entry.came_from(self._upstream) or entry.verdict is None:
            return False
        if entry.state is State.NACKED:
            return entry.variant is not None
        return entry.ailing

    def _is_unasked(self, entry: Entry) -> bool:
        """Whether no request with the entry has gone out that the server could be answering."""
        return entry.collection is None and entry.state is State.REQUESTED and entry not in self._upstream.awaited

    def _doubt(self, entry: Entry, error: WatchError) -> None:
        """Note that the resource may be gone, and ask again where the server may believe that it has answered.

        An entry with a variant from an earlier stream may be up to date, and the server need not say so.
        """
        whole = self._topic.spec.full_state and not self._upstream.delta  # CLI-8: what a full state lacks is deleted
        # A member of a wildcard, from an earlier stream.
        if entry.collection is not None and entry.source is not self._upstream:
            # The stream did not name its version, so the server sends it if it exists.
            self._upstream.awaited.add(entry)
            self._subscriber.doubt(entry, error, self._now)
        elif entry.doubted is not None or (whole and entry.variant is None):
            self._subscriber.doubt(entry, error, self._now)
        elif whole:
            self._denied.add(entry)
        else:
            entry.doubt(error)
            self._subscriber.ask_again(entry.collection or entry)

    def _release(self) -> None:
        """Report hosts that their virtual host no longer serves, if the response has no other one for them (VHD-12)."""
        for entry, name in self._lost.items():
            if entry not in self._touched and not self._is_doubtful(entry):
                self._touched.add(entry)
                self._delete(entry, f"{entry.name!r} does not exist on {self._upstream.label}: {name!r} has lost it")
        for entry in self._doubtful:
            if entry not in self._touched:
                self._subscriber.ask_again(entry)

    def _is_doubtful(self, entry: Entry) -> bool:
        """Whether the server has yet to say, on this stream, which virtual host serves the entry's host.

        The fate of the virtual host that the entry holds is no answer: another one may serve the host by now.
        """
        doubtful = entry.name != _held_name(entry) and not entry.came_from(self._upstream)
        if doubtful and entry.type_url == VIRTUAL_HOST:
            self._doubtful[entry] = None
        return entry in self._doubtful

    def _miss(self) -> None:
        """Delete the resources that a full state lacks (CLI-8), but not those that never came (CLI-9)."""
        for entry in [*self._topic]:
            came = entry.variant is not None or entry not in entry.authority.entries  # members were never asked for
            asked = self._upstream in entry.authority.active and not self._upstream.keeps(entry)
            if entry in self._touched or not asked or self._is_excused(entry):
                continue
            if came:
                self._touched.add(entry)
                self._delete(entry, f"{self._upstream.label} has removed {entry.name!r}")
            elif entry in self._upstream.awaited and self._upstream.full_state_decides:
                self._pass_over(entry)

    def _is_excused(self, entry: Entry) -> bool:
        """Whether the server reported an error for it on this stream, which it does not repeat (ERR-11, ERR-3)."""
        told = entry not in self._upstream.awaited and entry.collection is None
        return told and entry.ailing and entry not in self._denied

    def _pass_over(self, entry: Entry) -> None:
        """Note that a full state after the subscription lacks the resource (PRX-34).

        The server may have sent it before it read the subscription. So it decides only when the timer fires, or has
        fired. A full state from a relay never decides, because a relay leaves out what it does not know yet (SOT-4).
        """
        if self._upstream.is_relay:
            return
        self._upstream.passed_over.add(entry)
        # The timer has fired already, and this full state decides now.
        if entry.state is State.TIMEOUT:
            self._touched.add(entry)
            self._delete(entry, f"{self._upstream.label} does not have {entry.name!r}")

    def _delete(self, entry: Entry, why: str, absence: Constraint | None = None) -> None:
        """Report a resource as missing; drop the cached one only if the server is trusted with deletions (CLI-15)."""
        entry.for_all = self._upstream.by_names
        error = WatchError("NOT_FOUND", why)
        drop = self._upstream.fail_on_data_errors
        state = State.DOES_NOT_EXIST
        self.fruitful |= self._subscriber.fail(entry, error, state, self._now, drop=drop, absence=absence)


def _held_name(entry: Entry) -> str:
    """Return the name of the resource that the entry holds; its own if it holds none."""
    return entry.variant.name if entry.variant is not None else entry.name
