"""One response being read: what each thing in it means to the entries that it is about."""

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
    """Every good resource is used, whatever else is in the response (A46)."""

    def __init__(
        self, subscriber: Subscriber, topic: WatchedType, upstream: Upstream, response: Response, now: float
    ) -> None:
        self._subscriber = subscriber
        self._topic = topic
        self._upstream = upstream
        self._response = response
        self._now = now
        self._given: dict[Entry, Arrival] = {}
        self._touched: set[Entry] = set()  # the response says something about these
        self._left: set[tuple[str, bool]] = set()  # what somebody had, in which form, and was given something else for
        self._lost: dict[Entry, str] = {}  # and these had something that came, and does not serve them any more
        self._doubtful: dict[Entry, None] = {}  # and these have to be asked for once more
        self._denied: set[Entry] = set()  # it may say of these that there is none: a full state that lacks them decides
        self._removed = frozenset(response.removed)
        self._withdrawn = frozenset((gone.name, canonical(gone.constraint)) for gone in response.withdrawn)
        self._newest = {each.variant.name: each.variant for each in reversed(response.arrivals)}
        self._unresolved = {string for item in response.unresolved for string in item.strings}
        self.fruitful = bool(response.heartbeats)  # it brought something

    def read(self) -> Steps[list[InvalidResource]]:
        """Every good resource is used, whatever else is in the response (A46); returns what is wrong with the rest."""
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
        for entry in self._touched:
            self._upstream.note_answered(entry)
        for collection in self._topic.answered(self._upstream, self._touched):
            self._subscriber.answered(collection)
        return flaws

    def _take_all(self, arrivals: Sequence[Arrival], flaws: list[InvalidResource]) -> Steps[None]:
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
        self._touched.add(entry)
        if entry.variant is not None and not entry.holds(arrival.variant.name):
            self._left.add((entry.variant.name, entry.key[1] is not None))
        if arrival.located and entry.variant is not None and entry.variant.identity != arrival.variant.identity:
            self._upstream.outlive(entry)
        self.fruitful |= self._subscriber.take(self._topic, entry, arrival, self._upstream, self._now)

    def _beat(self, heartbeat: Heartbeat) -> None:
        for entry in self._topic.living(heartbeat, self._upstream):
            self._touched.add(entry)
            self._subscriber.lives(entry, heartbeat.ttl, self._now)

    def _is_meant(self, entry: Entry, variant: Variant) -> bool:
        """Whether a resource is for an entry. VHD-12: strings move from one to another."""
        given, close = self._given.get(entry), closeness(entry.name, variant)
        if close is MatchRank.LOST:
            self._lost[entry] = variant.name
            return False
        if close is MatchRank.UNSURE and not self._is_repeated(entry, variant):
            self._doubtful[entry] = None
            return False
        if given is not None:
            return close >= closeness(entry.name, given.variant)
        if close is MatchRank.HELD:
            return entry.name not in self._unresolved and not self._is_doubtful(entry)
        return close is MatchRank.MEANT or not self._is_owned(entry, variant)

    def _is_repeated(self, entry: Entry, variant: Variant) -> bool:
        """VHD-4: whether the server says again, in answer to other hosts, what this one has from it."""
        held = entry.variant
        same = held is not None and held.name == variant.name and held.body == variant.body
        return same and entry.came_from(self._upstream)

    def _is_owned(self, entry: Entry, other: Variant) -> bool:
        """Whether the host is a domain of the one that it has: then another that only is called so is for others."""
        held = entry.variant
        if held is None or held.name == other.name or entry.state is not State.ACKED or self._is_gone(held):
            return False
        current = self._newest.get(held.name, held)
        if not owns(current, entry.name) or owns(other, entry.name):
            return False
        self._is_doubtful(entry)
        return True

    def _is_gone(self, variant: Variant) -> bool:
        return variant.name in self._removed or self._is_withdrawn(variant)

    def _is_lenient(self, entry: Entry) -> bool:
        return not self._subscriber.strict and self._is_open(entry)

    def _is_open(self, entry: Entry) -> bool:
        """Whether a variant that does not match its params can be for it. Not where one that does stays current.

        Then it is on its way to somebody who has just left. A server that chooses by other params than were sent is
        one whose variants do not match as a rule.
        """
        if (entry.type_url, entry.name) in self._upstream.let_go:
            return False
        params = entry.key[1] or NO_PARAMS
        given, held = self._given.get(entry), entry.variant
        if given is not None and matches(given.variant.constraint, params):
            return False
        if held is None and (entry.absence is not None or self._is_unasked(entry)):
            return False
        whole = self._topic.spec.full_state and not self._upstream.delta
        return held is None or whole or not matches(held.constraint, params) or self._is_withdrawn(held)

    def _is_ours(self, arrival: Arrival) -> bool:
        return self._topic.has_located(arrival.variant.name, self._upstream)

    def _compare(self, entry: Entry, arrival: Arrival) -> None:
        """Two variants for one subscription. In delta one that is still held should have been withdrawn."""
        params, variant = entry.key[1], arrival.variant
        other = self._given[entry].variant if entry in self._given else self._not_withdrawn(entry)
        if other is None or not arrival.located or params is None or other.name != variant.name:
            return
        both = matches(other.constraint, params) and matches(variant.constraint, params)
        if both and canonical(other.constraint) != canonical(variant.constraint):
            self._subscriber.ambiguities.note(entry, variant, other)

    def _not_withdrawn(self, entry: Entry) -> Variant | None:
        variant = entry.variant
        if variant is None or not self._upstream.delta or not entry.came_from(self._upstream):
            return None
        return None if self._is_withdrawn(variant) else variant

    def _is_withdrawn(self, variant: Variant) -> bool:
        return bool(self._withdrawn) and variant.identity in self._withdrawn

    def _refuse(self, flaw: InvalidResource) -> None:
        if not flaw.name:
            return
        error = WatchError("INVALID_ARGUMENT", f"{flaw.name!r} from {self._upstream.label} is invalid: {flaw.reason}")
        for entry in self._topic.flawed(flaw, self._upstream, self._is_open):
            if entry in self._given:
                continue  # another variant was for this one
            self._touched.add(entry)  # NAK-21
            self.fruitful |= entry.refuse(error, flaw.version or self._response.version, self._now)

    def _leave_unresolved(self, item: Unresolved) -> None:
        """VHD-7: the server knows nobody by these strings. It goes on looking: VHD-8."""
        constraint = canonical(item.constraint) if item.constraint is not None else None
        error = WatchError("NOT_FOUND", f"{item.name!r} does not exist on {self._upstream.label}")
        for entry in self._meant(self._topic.unresolved(item, self._upstream), constraint, error):
            if entry not in self._touched:  # what has contents in the same response is there
                self._touched.add(entry)
                what = f"{entry.name!r} does not exist on {self._upstream.label}, which calls it unresolved"
                self._delete(entry, what, self._whom_told(entry, constraint))

    def _err(self, error: ResourceError) -> None:
        """TP3. ERR-10: where the server is trusted with data errors, what it denies is dropped."""
        status = STATUS[error.code] if 0 < error.code < len(STATUS) else "UNKNOWN"
        told = WatchError(status, error.message or f"{error.about.name!r}: {self._upstream.label} has an error for it")
        denied = self._topic.denied(error.about, self._upstream)
        whom = canonical(error.about.constraint)
        negative = error.code in (NOT_FOUND, PERMISSION_DENIED)
        drop = negative and self._upstream.fail_on_data_errors
        denied = self._meant(denied, whom, told) if negative else denied
        members = [one for each in denied if drop and isinstance(each, Collection) for one in each.members.values()]
        for entry in (*members, *denied):
            if entry in self._given:
                continue  # ERR-2
            self._touched.add(entry)  # ERR-8
            entry.for_all = self._upstream.by_names
            absence = self._whom_told(entry, whom) if negative else whom
            if error.code == NOT_FOUND and entry.variant is not None and entry.variant.identity[1] == whom:
                absence = None  # that variant is gone; what others have in its place is not said
            state = State.RECEIVED_ERROR
            self.fruitful |= self._subscriber.fail(entry, told, state, self._now, drop=drop, absence=absence)

    def _remove(self) -> Steps[None]:
        response, topic = self._response, self._topic
        gone: list[tuple[Identity, str]] = [((name, None), name) for name in response.removed]
        gone += [((each.name, canonical(each.constraint)), each.name) for each in response.withdrawn]
        for number, (identity, name) in enumerate(dict.fromkeys(gone), 1):  # who says it twice says it once
            if number % EVERY == 0:
                yield
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
        """For whom there is nothing, as a negative answer says. PRX-31: without constraints it is for whoever asked."""
        return constraint if self._is_pinned(constraint) and not self._upstream.is_relay else None

    def _whom_told(self, entry: Entry, constraint: Constraint | None) -> Constraint | None:
        """The same, as one entry is told. PRX-31: one that lost its variant was not told whom else that concerns.

        The server owes it no answer, so this is the answer to somebody else: it corrects what it said to that one, and
        not to this.
        """
        bereft = entry.state is State.DOES_NOT_EXIST and entry.variant is None and entry.absence is None
        return None if bereft and not self._awaits(entry) else self._whom(constraint)

    def _is_pinned(self, constraint: Constraint | None) -> bool:
        return constraint is not None and (self._upstream.pins_absence or canonical(constraint) != TRUE)

    def _meant(self, entries: list[Entry], constraint: Constraint | None, error: WatchError) -> list[Entry]:
        """Whom of these a negative answer tells that there is nothing.

        PRX-31: without constraints it concerns the parameter set that asked, and takes no variant that has constraints.
        If several wait for an answer, nobody can tell which of them this is for: each is doubted until its own answer
        comes. The same where it is the removal of something that this stream was sent.
        """
        if self._upstream.by_names:
            return entries
        located = {entry for entry in entries if entry.key[1] is not None and not isinstance(entry, Collection)}
        open_ = located - self._touched
        waiting = [entry for entry in entries if entry in open_ and self._awaits(entry)]
        gone = {entry for entry in located if self._is_equal(entry, constraint)}
        told = {each for each in located if not self._is_unasked(each)}
        if not self._is_pinned(constraint):  # who has nothing may be told again: of others nothing is known any more
            told = gone | {each for each in told if each.variant is None and each not in self._upstream.awaited}
        explained = [entry for entry in waiting if gone or self._was_sent(entry.name, constraint)]
        exact = self._is_pinned(constraint) and not self._upstream.is_relay
        holding = [entry for entry in waiting if entry.variant is not None]  # from an earlier stream
        doubtful = explained or ([] if exact else self._several(waiting, located) or holding)
        for entry in doubtful:
            self._doubt(entry, error)
        told = (told | {*waiting}) - {*doubtful}
        return [entry for entry in entries if entry in told or entry not in located]

    def _several(self, waiting: list[Entry], known: set[Entry]) -> list[Entry]:
        """Of those who wait for an answer, those who are not the only ones for their name."""
        asking = {each for each in known if each.doubted is not None or each in self._upstream.awaited}
        askers = Counter((entry.type_url, entry.name) for entry in asking.union(waiting))
        askers.update(each for each in self._upstream.abandoned if each in askers)
        for each in askers:
            self._upstream.abandoned.pop(each, None)
        return [entry for entry in waiting if askers[entry.type_url, entry.name] > 1]

    def _is_equal(self, entry: Entry, constraint: Constraint | None) -> bool:
        """Whether it holds, from this stream, the very variant; by name alone, one without constraints."""
        held = entry.variant if entry.came_from(self._upstream) else None
        return held is not None and canonical(held.constraint) == (constraint if constraint is not None else TRUE)

    def _was_sent(self, name: str, constraint: Constraint | None) -> bool:
        """Whether the variant was sent on this stream to somebody who does not hold it any more."""
        return (self._topic.spec.url, name, constraint or TRUE) in self._upstream.outlived

    def _awaits(self, entry: Entry) -> bool:
        """Whether the server owes an answer: it was asked on this stream. A member's collection was."""
        if entry.collection is not None:
            return self._upstream.delta and entry.variant is not None and not entry.came_from(self._upstream)
        return entry in self._upstream.awaited or self._is_troubled(entry)

    def _is_troubled(self, entry: Entry) -> bool:
        """Whether all that the server said on this stream is that something is wrong: what there is, it has yet to say.

        What the entry holds from an earlier stream is no answer to that. A relay that was restarted while its own
        server was down reports the outage first, and that the resource is gone when it knows.
        """
        if entry.came_from(self._upstream) or entry.verdict is None:
            return False
        if entry.state is State.NACKED:
            return entry.variant is not None
        return entry.ailing

    def _is_unasked(self, entry: Entry) -> bool:
        """Whether no request has gone out that a server could have answered."""
        return entry.collection is None and entry.state is State.REQUESTED and entry not in self._upstream.awaited

    def _doubt(self, entry: Entry, error: WatchError) -> None:
        """Give the server a moment; it is asked again where it may believe to have answered.

        One that has something from an earlier stream may be up to date, and the server need not say so.
        """
        whole = self._topic.spec.full_state and not self._upstream.delta  # CLI-8: what a response lacks is gone
        if entry.collection is not None and entry.source is not self._upstream:
            self._upstream.awaited.add(entry)  # the stream began without a version of it: it is sent if it is there
            self._subscriber.doubt(entry, error, self._now)
        elif entry.doubted is not None or (whole and entry.variant is None):
            self._subscriber.doubt(entry, error, self._now)
        elif whole:
            self._denied.add(entry)
        else:
            entry.doubt(error)
            self._subscriber.ask_again(entry.collection or entry)

    def _release(self) -> None:
        """Of what had a string, and not any more; the server has said what has it now, or nothing has (VHD-12)."""
        for entry, name in self._lost.items():
            if entry not in self._touched and not self._is_doubtful(entry):
                self._touched.add(entry)
                self._delete(entry, f"{entry.name!r} does not exist on {self._upstream.label}: {name!r} has lost it")
        for entry in self._doubtful:
            if entry not in self._touched:
                self._subscriber.ask_again(entry)

    def _is_doubtful(self, entry: Entry) -> bool:
        """Whether the server has not said yet, on this stream, what serves its host.

        It was asked, and what became of another resource is no answer: something else may serve it by now.
        """
        doubtful = entry.name != _held_name(entry) and not entry.came_from(self._upstream)
        if doubtful and entry.type_url == VIRTUAL_HOST:
            self._doubtful[entry] = None
        return entry in self._doubtful

    def _miss(self) -> None:
        """CLI-8: what a full response lacks is gone. CLI-9: what never came is not judged by that."""
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
        """ERR-11: whether the server said on this stream what is wrong with it. It does not repeat that (ERR-3)."""
        told = entry not in self._upstream.awaited and entry.collection is None
        return told and entry.ailing and entry not in self._denied

    def _pass_over(self, entry: Entry) -> None:
        """PRX-34: this came after the question, and lacks the answer. The server may have been about to read it.

        So that decides when time is over. A relay does not decide: it leaves out what it does not know yet (SOT-4).
        """
        if self._upstream.is_relay:
            return
        self._upstream.passed_over.add(entry)
        if entry.state is State.TIMEOUT:
            self._touched.add(entry)
            self._delete(entry, f"{self._upstream.label} does not have {entry.name!r}")

    def _delete(self, entry: Entry, why: str, absence: Constraint | None = None) -> None:
        """CLI-15: the value is kept, unless the server is trusted with deletions."""
        entry.for_all = self._upstream.by_names
        error = WatchError("NOT_FOUND", why)
        drop = self._upstream.fail_on_data_errors
        state = State.DOES_NOT_EXIST
        self.fruitful |= self._subscriber.fail(entry, error, state, self._now, drop=drop, absence=absence)


def _held_name(entry: Entry) -> str:
    return entry.variant.name if entry.variant is not None else entry.name
