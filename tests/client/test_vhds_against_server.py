"""Virtual hosts, the client's machine and the server's driven at random against each other.

Whenever both are quiet, each watcher has what serves its host, or knows that nothing does. And while something serves
it before and after a change, nobody is told on the way that it is gone, however domains move.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import xdsprism as xp
from tests.client.vhosts import vhost
from tests.support.examples import examples
from xdsprism.client.checks import checking
from xdsprism.core.codec.client_side import RequestEncoder, ResponseDecoder
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.model.events import Key
from xdsprism.core.model.facts import Ambiguous, Rejected
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import NO_PARAMS, Params
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Watch
from xdsprism.core.watch.subscriber import Subscriber
from xdsprism.errors import WatchError
from xdsprism.server.calls import Peer
from xdsprism.server.hub import Hub

HOSTS = ("rc/x", "rc/y", "rc/a.test")  # the last is what somebody may ask for as a host
DOMAINS = ("a.test", "b.test", "c.w.test", "*.w.test", "*.test", "a.*", "*")
STRINGS = ("rc/a.test", "rc/b.test", "rc/c.w.test", "rc/d.w.test", "rc/a.other", "rc/B.test:80", "rc/x", "other/a.test")
FAMILIES = ((), ("true",), ("true",), ("env=prod", "env!=prod"), ("env=prod",))
CHOICES = (None, None, Params({"env": "prod"}), Params({"env": "test"}))

changes = st.fixed_dictionaries(
    {"host": st.sampled_from(HOSTS), "domains": st.sets(st.sampled_from(DOMAINS)), "family": st.sampled_from(FAMILIES)}
)


class Watched:
    """A watcher that remembers what it was told."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.watch = Watch(lambda: None)
        self.told = False
        self.has: bytes | None = None
        self.lost = False  # told of as gone since it was last looked at

    def settle(self) -> None:
        while (notice := self.watch.take()) is not None:
            if not notice.ambient:
                self.told = True
                self.has = notice.variant.body if notice.variant is not None else None
                self.lost = self.lost or self.has is None


class Hosts(RuleBasedStateMachine):  # VHD-3, VHD-5, VHD-7, VHD-8, VHD-10, VHD-11, VHD-12, VHD-18
    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.store = Store()
        self.turns: list[Callable[[], None]] = []
        self.hub = Hub(self.store, Settings(epoch="test"), lambda: self.now, self.turns.append)
        self.client = Subscriber()
        self.upstream = self.client.upstream("server", delta=True, fail_on_data_errors=True)
        self.authority = Authority("", [self.upstream])
        self.watched: list[Watched] = []
        self.owners: dict[str, str] = {}
        self.families: dict[str, tuple[str, ...]] = {}
        self.marks = 0
        self.open()

    def open(self) -> None:
        self.call = self.hub.open("test", Peer("test"), delta=True, only_type=None)
        self.encoder = RequestEncoder(b"", delta=True, v3=True)
        self.decoder = ResponseDecoder(checking({}), delta=True)
        self.client.opened(self.upstream, self.now)

    @rule(change=changes)
    def change(self, change: dict) -> None:
        before = [self.expected(each) for each in self.watched]
        self.apply(**change)
        self.quiet()
        for had, each in zip(before, self.watched, strict=True):
            assert not (each.lost and had is not None and self.expected(each) is not None), each.key

    @rule(string=st.sampled_from(STRINGS), params=st.sampled_from(CHOICES))
    def ask(self, string: str, params: Params | None) -> None:
        made = Watched(Key(string, params))
        self.watched.append(made)
        self.client.watch(made.watch, self.authority, xp.VIRTUAL_HOST, made.key)
        self.quiet()

    @rule(number=st.integers(0, 10), talk_first=st.booleans())
    def leave(self, number: int, talk_first: bool) -> None:
        if self.watched:
            self.client.unwatch(self.watched.pop(number % len(self.watched)).watch)
            if talk_first:
                self.quiet()

    @rule(change=st.none() | changes, string=st.sampled_from(STRINGS), asks=st.booleans())
    def reconnect(self, change: dict | None, string: str, asks: bool) -> None:
        """A new stream; while there is none, something may change, and one more may ask."""
        self.call.close()
        self.client.ended(self.upstream, WatchError("UNAVAILABLE", "gone"), self.now, 0.5)
        if change is not None:
            self.apply(**change)
        if asks:
            made = Watched(Key(string))
            self.watched.append(made)
            self.client.watch(made.watch, self.authority, xp.VIRTUAL_HOST, made.key)
        self.open()
        self.quiet()

    def apply(self, host: str, domains: set[str], family: tuple[str, ...]) -> None:
        """One virtual host has these domains now, whoever had them before; all in one transaction."""
        touched = {host, *(self.owners[domain] for domain in domains if domain in self.owners)}
        self.owners = {domain: owner for domain, owner in self.owners.items() if owner != host}
        self.owners.update(dict.fromkeys(domains, host))
        self.families[host] = family
        changeset = {}
        for name in touched:
            self.marks += 1
            own = [domain for domain, owner in self.owners.items() if owner == name]
            message = vhost(name, *own, mark=f"{self.marks}")
            made = [variant_of(message, constraint=xp.parse(when).constraint) for when in self.families[name]]
            changeset[xp.VIRTUAL_HOST, name] = tuple(made) if own else ()
        self.store.apply(changeset)

    def quiet(self) -> None:
        """Let both talk until neither has anything to say; then everybody has what is theirs."""
        for each in self.watched:
            each.settle()
            each.lost = False
        idle = 0
        for _ in range(100):
            idle = 0 if self.talk() else idle + 1
            self.now += 6.0 * idle
            if idle == 2:
                break
        assert idle == 2, "they talk without an end"
        facts, self.client.facts[:] = self.client.facts[:], []
        assert not [fact for fact in facts if isinstance(fact, Ambiguous | Rejected)]
        for each in self.watched:
            each.settle()
            assert (each.key, each.told, each.has) == (each.key, True, self.expected(each))

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

    def expected(self, each: Watched) -> bytes | None:
        string, params = each.key
        found = self.store.table(xp.VIRTUAL_HOST).select(string, params or NO_PARAMS)
        return found.body if found is not None else None


TestHosts = Hosts.TestCase
TestHosts.settings = settings(max_examples=examples(150), stateful_step_count=25)
