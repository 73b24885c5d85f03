"""The client's machine and the server's, driven at random against each other, without anything between them.

Whenever both are quiet, each watcher has what the store has for its params, or knows that there is nothing. And while
something is there before and after a change, nobody is told on the way that it is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import xdsprism as xp
from tests.client.rig import MAKE
from tests.support.examples import examples
from xdsprism.client.checks import checking
from xdsprism.core.codec.client_side import RequestEncoder, ResponseDecoder
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.model.constraints import canonical
from xdsprism.core.model.events import WILDCARD, Key
from xdsprism.core.model.facts import Ambiguous, Rejected
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import NO_PARAMS, Params, Variant
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Watch
from xdsprism.core.watch.subscriber import Subscriber
from xdsprism.errors import WatchError
from xdsprism.server.calls import Peer
from xdsprism.server.hub import Hub

NAMES = ("a", "b")
FAMILIES = (
    (),
    (),
    ("true",),
    ("env=prod",),
    ("env=prod", "env!=prod"),
    ("env in (prod, test)",),
    ("env exists", "not env exists"),
    ("env=prod and v=1", "env=prod and v!=1"),
    ("env=prod and (v exists or not v exists)", "env!=prod and v=1"),
)
CHOICES = (None, None, *[Params(each) for each in ({"env": "prod"}, {"env": "test"}, {"env": "prod", "v": "1"})])
TYPES = (xp.CLUSTER, xp.ENDPOINT)
WATCHED = (*[(type_url, name) for type_url in TYPES for name in NAMES], (xp.CLUSTER, WILDCARD))

Shown = tuple[bytes, object]  # what a watcher has: contents, and constraints where it asked with params


class Watched:
    """A watcher that remembers what it was told."""

    def __init__(self, type_url: str, key: Key) -> None:
        self.type_url = type_url
        self.key = key
        self.watch = Watch(lambda: None)
        self.has: dict[str, Shown | None] = {}
        self.lost: set[str] = set()  # told of as gone since `settle`

    def settle(self) -> None:
        while (notice := self.watch.take()) is not None:
            if notice.error is None and notice.variant is not None:
                self.has[notice.name] = shown(self.key, notice.variant)
            elif not notice.ambient:
                self.has[notice.name] = None
                self.lost.add(notice.name)


def shown(key: Key, variant: Variant) -> Shown:
    return variant.body, canonical(variant.constraint) if key[1] is not None else None


class ClientAndServer(RuleBasedStateMachine):  # DYN-58, DYN-59, DYN-60, ERR-11
    @initialize(delta=st.booleans())
    def begin(self, delta: bool) -> None:
        self.now = 0.0
        self.delta = delta
        self.store = Store()
        self.turns: list[Callable[[], None]] = []
        self.hub = Hub(self.store, Settings(resource_errors="all"), lambda: self.now, self.turns.append)
        self.client = Subscriber()
        self.upstream = self.client.upstream("server", delta=delta, fail_on_data_errors=True)
        self.authority = Authority("", [self.upstream])
        self.watched: list[Watched] = []
        self.marks = 0
        self.open()

    def open(self) -> None:
        self.call = self.hub.open("test", Peer("test"), delta=self.delta, only_type=None)
        self.encoder = RequestEncoder(b"", delta=self.delta, v3=True)
        self.decoder = ResponseDecoder(checking({}), delta=self.delta)
        self.client.opened(self.upstream, self.now)

    @rule(type_url=st.sampled_from(TYPES), name=st.sampled_from(NAMES), family=st.sampled_from(FAMILIES))
    def change(self, type_url: str, name: str, family: tuple[str, ...]) -> None:
        before = [self.expected(each) for each in self.watched]
        made = []
        for when in family:
            self.marks += 1
            message = MAKE[type_url](name, str(self.marks))
            made.append(variant_of(message, constraint=xp.parse(when).constraint))
        self.store.apply({(type_url, name): tuple(made)})
        self.quiet()
        for had, each in zip(before, self.watched, strict=True):
            assert each.lost.isdisjoint(had.keys() & self.expected(each).keys())  # DYN-58

    @rule(what=st.sampled_from(WATCHED), params=st.sampled_from(CHOICES))
    def watch(self, what: tuple[str, str], params: Params | None) -> None:
        type_url, name = what
        if type_url == xp.ENDPOINT:  # in both forms it can't be told whom a SotW error without constraints is for
            params = None if name == "a" else params or CHOICES[-1]
        made = Watched(type_url, Key(name, params))
        self.watched.append(made)
        self.client.watch(made.watch, self.authority, type_url, made.key)
        self.quiet()

    @rule(number=st.integers(0, 10), talk_first=st.booleans())
    def unwatch(self, number: int, talk_first: bool) -> None:
        if self.watched:
            self.client.unwatch(self.watched.pop(number % len(self.watched)).watch)
            if talk_first:
                self.quiet()

    @rule(
        type_url=st.sampled_from(TYPES),
        name=st.sampled_from(NAMES),
        family=st.sampled_from(FAMILIES),
        away=st.booleans(),
    )
    def reconnect(self, type_url: str, name: str, family: tuple[str, ...], away: bool) -> None:
        """A new stream; while there is none, something may change."""
        self.call.close()
        self.client.ended(self.upstream, WatchError("UNAVAILABLE", "gone"), self.now, 0.5)
        if away:
            made = [variant_of(MAKE[type_url](name, "away"), constraint=xp.parse(when).constraint) for when in family]
            self.store.apply({(type_url, name): tuple(made)})
        self.open()
        self.quiet()

    def quiet(self) -> None:
        """Let both talk until neither has anything to say; then everybody has what is theirs."""
        for each in self.watched:
            each.settle()
            each.lost.clear()
        idle = 0
        while idle < 2:  # removals wait for a while (ORD-2)
            idle = 0 if self.talk() else idle + 1
            self.now += 6.0 * idle
        facts, self.client.facts[:] = self.client.facts[:], []
        assert not [fact for fact in facts if isinstance(fact, Ambiguous | Rejected)]
        for each in self.watched:
            each.settle()
            assert {name: has for name, has in each.has.items() if has is not None} == self.expected(each)
            assert each.has or each.key[0] == WILDCARD  # who asked for a name has been told something

    def talk(self) -> bool:
        asked = self.client.poll(self.upstream, self.now)
        for type_url, request in asked:
            self.call.receive(self.encoder.encode(type_url, request.body))
        while self.turns:
            self.turns.pop()()
        answers = [*self.call.poll()]
        for answer in answers:
            self.client.receive(self.upstream, self.decoder.decode(answer), self.now)
            for each in self.watched:
                each.settle()
        return bool(asked or answers)

    def expected(self, each: Watched) -> dict[str, Shown]:
        name, params = each.key
        table = self.store.table(each.type_url)
        found = {one: table.select(one, params or NO_PARAMS) for one in (NAMES if name == WILDCARD else [name])}
        return {one: shown(each.key, variant) for one, variant in found.items() if variant is not None}


TestClientAndServer = ClientAndServer.TestCase
TestClientAndServer.settings = settings(max_examples=examples(150), stateful_step_count=25)
