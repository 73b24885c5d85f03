"""One response being read: what each thing in it means to the entries that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import STATUS, WatchError
from .closeness import Closeness, closeness, owns
from .constraints import Constraint, canonical, matches
from .events import ResourceError
from .expr import show
from .responses import Arrival, Flaw, Identity, Response, Unresolved, judge
from .topic import Topic
from .types import NO_PARAMS, VIRTUAL_HOST, Variant
from .upstream import Upstream
from .watching import Collection, Entry, State

if TYPE_CHECKING:
    from .subscriber import Subscriber

NOT_FOUND, PERMISSION_DENIED = 5, 7


class Reading:
    """Every good resource is used, whatever else is in the response (A46)."""

    def __init__(
        self, subscriber: Subscriber, topic: Topic, upstream: Upstream, response: Response, now: float
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
        self._unresolved = {string for item in response.unresolved for string in item.strings}
        self.fruitful = bool(response.heartbeats)  # it brought something

    def read(self) -> list[Flaw]:
        """Every good resource is used, whatever else is in the response (A46); returns what is wrong with the rest."""
        arrivals, flaws = judge(self._response)
        for arrival in arrivals:
            self._arrive(arrival, flaws)
        for entry, arrival in self._given.items():
            self._touched.add(entry)
            if entry.variant is not None and not entry.holds(arrival.variant.name):
                self._left.add((entry.variant.name, entry.key[1] is not None))
            self.fruitful |= self._subscriber.take(self._topic, entry, arrival, self._upstream, self._now)
        for flaw in flaws:
            self._refuse(flaw)
        for heartbeat in self._response.heartbeats:
            for entry in self._topic.living(heartbeat, self._upstream):
                self._touched.add(entry)
                self._subscriber.lives(entry, heartbeat.ttl, self._now)
        for item in self._response.unresolved:
            self._leave_unresolved(item)
        for error in self._response.errors:
            self._err(error)
        if self._upstream.delta:
            self._remove()
            self._release()
        elif self._topic.spec.full_state and all(flaw.name for flaw in flaws):  # NAK-27
            self._miss()
        for collection in self._topic.answered(self._upstream, self._touched):
            self._subscriber.answered(collection)
        return flaws

    def _arrive(self, arrival: Arrival, flaws: list[Flaw]) -> None:
        entries = self._topic.wanting(arrival, self._upstream, self._is_lenient)
        if not entries and self._subscriber.strict and arrival.located and self._is_ours(arrival):
            variant = arrival.variant
            reason = f"its constraints ({show(variant.constraint)}) do not match the params that were sent"
            flaws.append(Flaw(variant.name, variant.constraint, reason, variant.version))  # DYN-56
        for entry in entries:  # none: CLI-7
            if self._is_meant(entry, arrival.variant):
                self._compare(entry, arrival)
                self._given[entry] = arrival

    def _is_meant(self, entry: Entry, variant: Variant) -> bool:
        """Whether a resource is for an entry. VHD-12: strings move from one to another."""
        given, close = self._given.get(entry), closeness(entry.name, variant)
        if close is Closeness.LOST:
            self._lost[entry] = variant.name
            return False
        if close is Closeness.UNSURE:
            self._doubtful[entry] = None
            return False
        if given is not None:
            return close >= closeness(entry.name, given.variant)
        if close is Closeness.HELD:
            return entry.name not in self._unresolved and not self._is_doubtful(entry)
        return close is Closeness.MEANT or not self._is_owned(entry, variant)

    def _is_owned(self, entry: Entry, other: Variant) -> bool:
        """Whether the host is a domain of the one that it has: then another that only is called so is for others."""
        held = entry.variant
        if held is None or held.name == other.name or entry.state is not State.ACKED or self._is_gone(held):
            return False
        current = next((each.variant for each in self._response.arrivals if each.variant.name == held.name), held)
        if not owns(current, entry.name) or owns(other, entry.name):
            return False
        self._is_doubtful(entry)
        return True

    def _is_gone(self, variant: Variant) -> bool:
        return variant.name in self._response.removed or self._is_withdrawn(variant)

    def _is_lenient(self, entry: Entry) -> bool:
        return not self._subscriber.strict and self._is_open(entry)

    def _is_open(self, entry: Entry) -> bool:
        """Whether a variant that does not match its params can be for it. Not where one that does stays current.

        Then it is on its way to somebody who has just left. A server that chooses by other params than were sent is
        one whose variants do not match as a rule.
        """
        params = entry.key[1] or NO_PARAMS
        given, held = self._given.get(entry), entry.variant
        if given is not None and matches(given.variant.constraint, params):
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
            self._subscriber.note_ambiguity(entry, variant, other)

    def _not_withdrawn(self, entry: Entry) -> Variant | None:
        variant = entry.variant
        if variant is None or not self._upstream.delta or not entry.came_from(self._upstream):
            return None
        return None if self._is_withdrawn(variant) else variant

    def _is_withdrawn(self, variant: Variant) -> bool:
        identity = variant.identity
        return any((gone.name, canonical(gone.constraint)) == identity for gone in self._response.withdrawn)

    def _refuse(self, flaw: Flaw) -> None:
        if not flaw.name:
            return
        error = WatchError("INVALID_ARGUMENT", f"{flaw.name!r} from {self._upstream.label} is invalid: {flaw.reason}")
        for entry in self._topic.flawed(flaw, self._upstream, self._is_open):
            if entry in self._given:
                continue  # another variant was for this one
            self._upstream.timers.pop(entry, None)  # NAK-21
            self._touched.add(entry)
            self.fruitful |= entry.refuse(error, flaw.version or self._response.version, self._now)

    def _leave_unresolved(self, item: Unresolved) -> None:
        """VHD-7: the server knows nobody by these strings. It goes on looking: VHD-8."""
        constraint = canonical(item.constraint) if item.constraint is not None else None
        for entry in self._topic.unresolved(item, self._upstream):
            if entry not in self._touched:  # what has contents in the same response is there
                self._touched.add(entry)
                what = f"{entry.name!r} does not exist on {self._upstream.label}, which calls it unresolved"
                self._delete(entry, what, constraint)

    def _err(self, error: ResourceError) -> None:
        """TP3. ERR-10: where the server is trusted with data errors, what it denies is dropped."""
        status = STATUS[error.code] if 0 < error.code < len(STATUS) else "UNKNOWN"
        drop = error.code in (NOT_FOUND, PERMISSION_DENIED) and self._upstream.fail_on_data_errors
        told = WatchError(status, error.message or f"{error.about.name!r}: {self._upstream.label} has an error for it")
        denied = self._topic.denied(error.about, self._upstream)
        members = [one for each in denied if drop and isinstance(each, Collection) for one in each.members.values()]
        for entry in (*members, *denied):
            if entry in self._given:
                continue  # ERR-2
            self._upstream.timers.pop(entry, None)  # ERR-8
            self._touched.add(entry)
            self.fruitful |= self._subscriber.fail(
                entry, told, State.RECEIVED_ERROR, self._now, drop=drop, absence=error.about.constraint
            )

    def _remove(self) -> None:
        response, topic = self._response, self._topic
        gone: list[tuple[Identity, str]] = [((name, None), name) for name in response.removed]
        gone += [((each.name, canonical(each.constraint)), each.name) for each in response.withdrawn]
        for identity, name in gone:
            left = (name, identity[1] is not None) in self._left
            for entry in topic.withdrawn(identity, self._upstream, left=left):
                doubtful = name != entry.name and self._is_doubtful(entry)
                if entry not in self._touched and not doubtful:  # DYN-58: what replaces it has just come
                    self._touched.add(entry)
                    absence = identity[1] if entry.variant is None or entry.variant.identity != identity else None
                    self._delete(entry, f"{name!r} does not exist on {self._upstream.label}", absence)

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
            if came and entry not in self._touched and self._upstream in entry.authority.active:
                self._delete(entry, f"{self._upstream.label} has removed {entry.name!r}")

    def _delete(self, entry: Entry, why: str, absence: Constraint | None = None) -> None:
        """CLI-15: the value is kept, unless the server is trusted with deletions."""
        self._upstream.timers.pop(entry, None)
        error = WatchError("NOT_FOUND", why)
        drop = self._upstream.fail_on_data_errors
        state = State.DOES_NOT_EXIST
        self.fruitful |= self._subscriber.fail(entry, error, state, self._now, drop=drop, absence=absence)


def _held_name(entry: Entry) -> str:
    return entry.variant.name if entry.variant is not None else entry.name
