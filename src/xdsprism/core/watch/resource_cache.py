"""Keep all watched entries of a client, and tell listeners which variant each of them holds.

Every change of what an entry holds goes through `accept`, `fail`, `share` or `recall`: they keep the indexes of
`WatchedType`, the TTLs and the listeners in step with the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...errors import WatchError
from ...timer_heap import TimerHeap
from ..model.constraints import Constraint
from ..model.facts import Fact
from ..model.responses import Arrival
from ..model.steps import Steps, finish
from ..model.types import TYPES, TypeSpec, TypeUrl, Variant
from .ambiguity import Ambiguities
from .entry import Entry, Event, Recalled, members_of
from .held_versions import find_held
from .quarantine import Question
from .upstream import Held, Upstream
from .watched_type import WatchedType


class ResourceCache:
    """The watched entries by type, with their TTLs.

    types: resource types beyond the known ones, or in place of them. verify_constraints: reject a variant that does not
    match the params that were sent (DYN-56).

    `facts` collects what happened, for metrics and logs.
    """

    def __init__(self, types: Iterable[TypeSpec] = (), *, verify_constraints: bool = False) -> None:
        self.facts: list[Fact] = []
        # Called with an entry and its former variant.
        self.listeners: list[Callable[[Entry, Variant | None], None]] = []
        self.topics: dict[TypeUrl, WatchedType] = {}
        self.ambiguities = Ambiguities(self.facts)
        self.strict = verify_constraints  # DYN-56
        self._specs = {spec.url: spec for spec in (*TYPES, *types)}
        # Timers of TTLs. One whose time is not `entry.expires` is obsolete and ignored.
        self._expiries: TimerHeap[Entry] = TimerHeap()

    # -- which entries there are

    def spec(self, type_url: TypeUrl) -> TypeSpec:
        """Return what is known about a type; defaults for a type that is not known."""
        return self._specs.get(type_url) or TypeSpec(type_url)

    def topic(self, type_url: TypeUrl) -> WatchedType:
        """Return the entries of a type; an empty one, which is not kept, if the type has no watcher."""
        return self.topics.get(type_url) or WatchedType(self.spec(type_url))

    def find(self, question: Question) -> Entry | None:
        """Return the entry of a subscription, if it is still watched."""
        type_url, key = question
        topic = self.topics.get(type_url)
        return topic.find(key) if topic is not None else None

    def entries(self) -> list[Entry]:
        """Return all entries, with the members of collections."""
        return [entry for topic in self.topics.values() for entry in topic]

    def add(self, entry: Entry) -> None:
        """Add the entry of a new subscription."""
        topic = self.topics.get(entry.type_url)
        if topic is None:
            topic = self.topics[entry.type_url] = WatchedType(self.spec(entry.type_url))
        topic.add(entry)

    def discard(self, entry: Entry) -> None:
        """Remove an unwatched entry; its TTL and those of its members end."""
        for one in (entry, *members_of(entry)):
            one.expires = None
        topic = self.topics[entry.type_url]
        topic.discard(entry)
        if not topic:
            del self.topics[entry.type_url]

    # -- what is held, for requests (`upstream.HeldResources`)

    def held(self, upstream: Upstream, type_url: TypeUrl) -> Held:
        """Return the versions that the client holds of a type from this server."""
        return finish(self.find_held(upstream, type_url))

    def find_held(self, upstream: Upstream, type_url: TypeUrl) -> Steps[Held]:
        """Do what `held` does, in steps."""
        topic = self.topics.get(type_url)
        return (yield from find_held(topic, upstream)) if topic is not None else Held({}, complete=True)

    def is_listed(self, type_url: TypeUrl, name: str) -> bool:
        """Whether a wildcard of the type has a member of this name."""
        topic = self.topics.get(type_url)
        return topic is not None and topic.is_listed(name)

    # -- changes of an entry

    def accept(self, topic: WatchedType, entry: Entry, arrival: Arrival, upstream: Upstream, now: float) -> bool:
        """Give a valid resource to an entry; return whether watchers were told."""
        before, was_kept = entry.variant, entry.kept_at is not None
        topic.forget_alias(entry)
        upstream.pending.note_answered(entry)
        # A server that knows no params answered for all params: entries with others may share it (PRX-32).
        entry.for_all = upstream.by_names
        news = entry.accept(arrival, upstream, now)
        if arrival.ttl is not None or entry.expires is not None:
            self.set_ttl(entry, arrival.ttl, now)
        if was_kept or entry.variant is not before:
            self._changed(entry, before)
        topic.note_taken(entry)
        return news

    def fail(
        self,
        entry: Entry,
        error: WatchError,
        event: Event,
        now: float,
        *,
        drop: bool,
        absence: Constraint | None = None,
    ) -> bool:
        """Report a resource as missing or as an error; `drop`: forget the cached one.

        `absence`: params for which it does not exist, if the server said so. Return whether watchers were told.
        """
        topic, before = self.topics[entry.type_url], entry.variant
        # A dropped resource has no name to be found by, and no TTL to run out.
        if drop:
            topic.forget_alias(entry)
            entry.expires = None
        entry.absence = absence
        news = entry.fail(error, event, now, drop=drop)
        if entry.variant is None:
            topic.left(entry)
        # Also if there was nothing before: listeners learn that the entry has its answer.
        if entry.variant is None or entry.variant is not before:
            self._changed(entry, before)
        return news

    def drop(self, entry: Entry, error: WatchError, now: float) -> None:
        """Report a resource as missing, and drop the cached one."""
        self.fail(entry, error, Event.REMOVED, now, drop=True)

    def answered(self, entry: Entry) -> None:
        """Note that a server has answered a wildcard or glob, which may have been from disk until now."""
        entry.kept_at = None
        self._changed(entry, None)

    def share_answer(self, entry: Entry) -> None:
        """Give a new entry what other entries have cached of it.

        A server may regard the resource as sent already, and stay silent.
        """
        topic = self.topics[entry.type_url]
        twin = topic.answered_for_all(entry)
        if twin is not None:
            # PRX-32: a server without params answered for other params.
            if entry.collection is not None and twin.collection is not None:
                for name, held in twin.collection.members.items():
                    self._share(entry.collection.member(name), held)
            self._share(entry, twin)
        elif entry.collection is not None:
            for name, held in topic.held_by_name(entry.collection).items():
                self._share(entry.collection.member(name), held)
        elif (member := topic.held_by_collection(entry)) is not None:
            self._share(entry, member)

    def _share(self, entry: Entry, held: Entry) -> None:
        """Give an entry the resource that another entry has (CLI-18).

        Servers in the field do not send it once more for the second subscription (WLD-10).
        """
        entry.adopt(held)
        if entry.expires is not None:
            self._expiries.set(entry, entry.expires)
        self._changed(entry, None)

    def recall(self, entry: Entry, recalled: Recalled) -> None:
        """Give an entry the state that an earlier run stored on disk."""
        # Members of a collection, or the one variant of a name.
        for variant in recalled.variants:
            held = entry.collection.member(variant.name) if entry.collection is not None else entry
            held.recall(variant, recalled.since)
            self._changed(held, None)
        if recalled.absent:
            entry.recall_absence(recalled.absence, recalled.since)
            self._changed(entry, None)
        if recalled.whole:
            entry.kept_at = recalled.since
            self._changed(entry, None)

    def _changed(self, entry: Entry, before: Variant | None) -> None:
        """Tell the listeners that an entry holds another variant."""
        for listener in self.listeners:
            listener(entry, before)
        if before is None or entry.holds(before.name):
            return
        other = self.topics[entry.type_url].another(before, entry)
        if other is not None:  # VHD-12: one string lost the virtual host, another still has it
            for listener in self.listeners:
                listener(other, other.variant)

    # -- TTLs

    def set_ttl(self, entry: Entry, ttl: float | None, now: float) -> None:
        """Set or clear the TTL of an entry, from now on."""
        entry.expires = now + ttl if ttl is not None else None
        entry.offer_again()
        if entry.expires is not None:
            self._expiries.set(entry, entry.expires)

    @property
    def due(self) -> float | None:
        """When to call `expire` next."""
        # Drop obsolete timers first, so that they wake no caller.
        while (first := self._expiries.first) is not None and first[1].expires != first[0]:
            self._expiries.cancel(first[1])  # the entry has no TTL any more
        return first[0] if first is not None else None

    def expire(self, now: float) -> None:
        """Drop the resources whose TTL is over, and tell watchers (TTL-4).

        The server set the TTL so that no client uses the resource any longer.
        """
        while (first := self._expiries.first) is not None and first[0] <= now:
            due, entry = first
            self._expiries.cancel(entry)
            if entry.expires == due:
                entry.expires = None
                self.drop(entry, WatchError("NOT_FOUND", f"{entry.name!r}: its TTL has expired"), now)
