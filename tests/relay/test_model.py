"""A relay between a server and clients, driven at random: clients see the same as without it.

Whenever all are quiet and the server can be reached, each client has what the server's store has for its params. On the
way nobody is given what is somebody else's, nor told that something is gone which was there all the time. And of the
server no more is asked than there are answers.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

import xdsprism as xp
from tests.client.rig import MAKE
from tests.client.test_against_server import Shown, shown
from tests.relay.model import Clock, ModelClient, RelaySite, Site, Watcher
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.model.cached import NOTHING
from xdsprism.core.model.constraints import Constraint, canonical, matches
from xdsprism.core.model.events import WILDCARD
from xdsprism.core.model.steps import finish
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import Params
from xdsprism.core.model.xdstp import is_wild, wildcards
from xdsprism.core.relay.finding_index import FindingIndex
from xdsprism.core.relay.findings import listen
from xdsprism.core.relay.planning import Planner
from xdsprism.core.relay.relaying import LINGER
from xdsprism.core.relay.upstream_subscriptions import UpstreamSubscriptions

NAMES = ("a", "b")
TALKATIVE = 100  # turns after which nobody can have anything new to say
TYPES = (xp.CLUSTER, xp.ENDPOINT)
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
PARAMS = [
    Params(each)
    for each in (
        {},
        {"env": "prod"},
        {"env": "test"},
        {"env": "prod", "v": "1"},
        {"env": "prod", "v": "2"},
        {"env": "test", "v": "1", "x": "1"},
        {"x": "1"},
    )
]
WATCHED = (*[(type_url, name) for type_url in TYPES for name in NAMES], (xp.CLUSTER, WILDCARD))

CLUSTERS = "xdstp://x/envoy.config.cluster.v3.Cluster"  # XTP-3: and the same with names that are in collections
GLOB, OTHER = f"{CLUSTERS}/g/*", f"{CLUSTERS}/h/*"
MEMBERS = (f"{CLUSTERS}/g/a", f"{CLUSTERS}/g/b", f"{CLUSTERS}/h/c")

STEPS = 30
RUNS = 40


class RelayModel:
    """What is drawn comes from `random`, so that a run is its seed."""

    names: tuple[str, ...] = NAMES
    types: tuple[str, ...] = TYPES
    watched: tuple[tuple[str, str], ...] = WATCHED

    def __init__(self, random: Random, *, delta: bool, linger: float) -> None:
        self.random = random
        self.clock = Clock()
        self.delta = delta
        self.linger = linger
        self.origin = Site(self.clock, Store())
        self.relay = self.make_relay()
        self.relay.line.open()
        self.clients: list[ModelClient] = []
        self.marks = 0
        self.indexes = 0  # names of which it was checked what the relay keeps
        self.made: dict[bytes, Constraint] = {}  # contents, and whom they are for

    def make_relay(self) -> RelaySite:
        return RelaySite(self.clock, self.origin, delta=self.delta, linger=self.linger)

    # -- clients

    def connect(self) -> None:
        if len(self.clients) < 4:
            delta, located, node = self.is_delta(), self.maybe(), self.random.choice(PARAMS)
            self.clients.append(ModelClient(self.clock, self.relay, delta=delta, located=located, node=node))

    def subscribe(self) -> None:
        if self.clients:
            what, params = self.random.choice(self.watched), self.random.choice(PARAMS)
            watcher = self.random.choice(self.clients).watch(*what, params)
            watcher.may_go.update(self.names)  # it has been told nothing yet

    def unsubscribe(self) -> None:
        if watchers := self.watchers():
            watcher = self.random.choice(watchers)
            watcher.client.leave(watcher)

    def disconnect(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            client.line.cut()
            if self.maybe():
                self.clients.remove(client)
            else:
                client.line.open()

    # -- the server

    def change(self) -> None:
        changeset = {}
        for _ in range(self.random.randint(1, 2)):
            type_url, name = self.random.choice(self.types), self.random.choice(self.names)
            made = []
            for when in self.random.choice(FAMILIES):
                self.marks += 1
                constraint = xp.parse(when).constraint
                made.append(variant_of(MAKE[type_url](name, str(self.marks)), constraint=constraint))
                self.made[made[-1].body] = constraint
            changeset[type_url, name] = tuple(made)
        self.origin.store.apply(changeset)
        for each in self.watchers():
            each.may_go.update(set(self.names) - self.expected(each).keys())

    def go_down(self) -> None:
        self.relay.line.cut()

    def come_up(self) -> None:
        self.relay.line.open()
        self.quiet()

    # -- time, and messages on their way

    def linger_is_over(self) -> None:
        self.quiet()
        self.clock.now += LINGER + 1
        self.quiet()
        self.check_subscriptions()

    def nudge(self) -> None:
        """Some of what is on its way arrives."""
        line = self.relay.line
        ways: list[Callable[[], object]] = [line.ask, line.answer, lambda: line.read(1), self.relay.tend]
        ways += [client.line.talk for client in self.clients]
        for _ in range(self.random.randrange(7)):
            self.random.choice(ways)()
            self.look()

    def is_delta(self) -> bool:
        """How a client asks."""
        return self.maybe()

    def maybe(self) -> bool:
        return self.random.random() < 0.5

    def step(self) -> None:
        often = (self.subscribe, self.subscribe, self.change, self.change, self.nudge)
        seldom = (self.connect, self.unsubscribe, self.disconnect, self.go_down, self.come_up, self.linger_is_over)
        self.random.choice((*often, *often, *seldom))()
        if self.maybe():
            self.quiet()

    @property
    def parts(self) -> tuple[UpstreamSubscriptions, Planner]:
        """What the relay keeps of names. A mistake in it shows to clients after further mistakes only, if at all."""
        return self.relay.relaying._subscriptions, self.relay.relaying._planner  # noqa: SLF001 # see above

    def check_indexes(self) -> None:
        """What the relay keeps of a name is what a look at all of the name finds."""
        subscriptions, planner = self.parts
        pin = self.relay.relaying._feed.pin  # noqa: SLF001 # as `parts`
        for subject, kept in subscriptions.indexes.items():
            known, asked = planner.known.get(subject, NOTHING), subscriptions.of(subject)
            said = listen(subscriptions.answers(subject), known, pin)
            holds = {params: each.holds for params, each in asked.items()}
            found = finish(FindingIndex.of(known, said, asked))
            assert holds == {params: each.holds for params, each in asked.items()}
            assert found is not None, subject
            assert (kept.findings, kept.pending) == (found.findings, found.pending)
            assert {form: {*each} for form, each in kept.holders.items()} == {
                form: {*each} for form, each in found.holders.items()
            }
            assert [*kept.findings] == [*found.findings]
            self.indexes += 1

    def quiet(self) -> None:
        """Let all talk until nobody has anything to say."""
        idle = turns = 0
        while idle < 3:  # what a wildcard lacks may be on its way for a while (SETTLED); then removals wait (ORD-2)
            idle = 0 if self.talk() else idle + 1
            self.clock.now += 6.0 * idle
            turns += 1
            assert turns < TALKATIVE, "they never stop"
        if self.relay.line.call is not None:
            self.check_indexes()
            for each in self.watchers():
                has = {name: shown for name, shown in each.has.items() if shown is not None}
                assert has == self.expected(each), f"{each.key} of {each.params}"
                each.may_go = set(self.names) - has.keys()
            if not self.linger:
                self.check_subscriptions()

    def talk(self) -> bool:
        busy = self.relay.line.talk()
        self.relay.tend()
        for client in self.clients:
            busy |= client.line.talk()
            self.look()
        return busy

    # -- what must hold

    def watchers(self) -> list[Watcher]:
        return [watcher for client in self.clients for watcher in client.watchers]

    def look(self) -> None:
        for each in self.watchers():
            each.settle()
            assert each.lost <= each.may_go, f"{each.lost - each.may_go} never went away for {each.key}"
            each.lost.clear()
            for has in each.has.values():
                assert has is None or matches(self.made[has[0]], each.params), f"not for {each.params}"

    def expected(self, each: Watcher) -> dict[str, Shown]:
        name = each.key[0]
        table = self.origin.store.table(each.type_url)
        names = [one for one in self.names if name in (one, *wildcards(one))]
        found = {one: table.select(one, each.params) for one in names}
        return {one: shown(each.key, variant) for one, variant in found.items() if variant is not None}

    def check_subscriptions(self) -> None:
        """PRX-14: at most one for each answer that somebody needs, and one for each wildcard."""
        if self.relay.line.call is None:
            return
        answers = set()
        for each in self.watchers():
            known = self.origin.store.table(each.type_url).get(each.key[0])
            found = known.select(each.params) if known is not None else None
            if is_wild(each.key[0]):
                answers.add((each.type_url, each.key[0], each.params))
            elif found is not None:
                answers.add((each.type_url, found.name, canonical(found.constraint)))
            else:
                negative = known.negative(each.params) if known is not None else None
                answers.add((each.type_url, each.key[0], negative))
        sessions = self.relay.line.call.connected.stream.sessions.values()
        asked = [(session.table.spec.url, key) for session in sessions for key in session.subscriptions]
        assert len(asked) <= len(answers), f"{asked} for {answers}"

    def end(self) -> None:
        """Nothing is left of those who left."""
        self.come_up()
        for client in self.clients:
            client.line.cut()
        self.clients.clear()
        self.quiet()
        self.clock.now += LINGER + 1
        self.quiet()
        relaying, (subscriptions, planner) = self.relay.relaying, self.parts
        left = [relaying._audiences, relaying._marked, subscriptions._sharing]  # noqa: SLF001 # as `parts`
        left += [planner.known, subscriptions, subscriptions.indexes, *subscriptions.timers()]
        assert not any(left), left
        assert not self.relay.supplier.sinks
        assert not self.relay.line.subscriber.entries()
        assert not any(len(table) or table.knowledge.listed for table in self.relay.store.tables())


class CollectionModel(RelayModel):
    """With xdstp names and globs, which are delta only (XTP-8)."""

    names = MEMBERS
    types = (xp.CLUSTER,)
    watched = tuple((xp.CLUSTER, name) for name in (*MEMBERS, WILDCARD, GLOB, GLOB, OTHER))

    def is_delta(self) -> bool:
        return True


@pytest.mark.parametrize("linger", [0.0, LINGER], ids=["at-once", "lingering"])
@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
@pytest.mark.parametrize("block", range(4))
def test_clients_see_the_same_with_and_without_a_relay(delta: bool, linger: float, block: int) -> None:
    # PRX-1, PRX-4, PRX-5, PRX-7, PRX-9, PRX-10, PRX-11, PRX-12, PRX-14, PRX-15
    run(lambda seed: RelayModel(Random(seed), delta=delta, linger=linger), block)


@pytest.mark.parametrize("linger", [0.0, LINGER], ids=["at-once", "lingering"])
@pytest.mark.parametrize("block", range(2))
def test_clients_see_the_same_collections_with_and_without_a_relay(linger: float, block: int) -> None:
    # XTP-1, XTP-3, XTP-7, PRX-5, PRX-10, PRX-14, DYN-41
    run(lambda seed: CollectionModel(Random(seed), delta=True, linger=linger), block)


def run(make: Callable[[int], RelayModel], block: int) -> None:
    indexes = 0
    for seed in range(block * RUNS, (block + 1) * RUNS):
        model = make(seed)
        try:
            for _ in range(STEPS):
                model.step()
            model.end()
            indexes += model.indexes
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    assert indexes, "it was never looked at what is kept"


def test_a_deletion_is_passed_on_at_once_to_those_who_were_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # PRX-5: whoever held the variant upstream has nothing now, and need not ask
    model = RelayModel(Random(0), delta=True, linger=0.0)
    client = ModelClient(model.clock, model.relay, delta=True, located=True, node=PARAMS[0])
    model.clients.append(client)
    watcher = client.watch(xp.CLUSTER, "a", PARAMS[1])
    made = variant_of(MAKE[xp.CLUSTER]("a", "1"), constraint=xp.parse("env=prod").constraint)
    model.made[made.body] = made.constraint
    model.origin.store.apply({(xp.CLUSTER, "a"): (made,)})
    model.quiet()
    assert watcher.has["a"] is not None
    again: list[object] = []
    monkeypatch.setattr(model.relay.supplier, "ask_again", again.append)
    model.origin.store.apply({(xp.CLUSTER, "a"): ()})
    watcher.may_go.add("a")
    model.quiet()
    assert (watcher.has["a"], again) == (None, [])


def test_a_removal_for_a_wildcard_says_nothing_about_other_params() -> None:
    # PRX-31, DYN-11: a server corrects for whom there is nothing to those who asked for the name, not to a wildcard
    model = RelayModel(Random(0), delta=True, linger=0.0)
    client = ModelClient(model.clock, model.relay, delta=True, located=True, node=PARAMS[0])
    model.clients.append(client)
    client.watch(xp.CLUSTER, WILDCARD, PARAMS[5]).may_go.update(model.names)  # env=test, v=1
    client.watch(xp.CLUSTER, "b", PARAMS[2]).may_go.update(model.names)  # env=test
    put(model, "b", "v=1")
    model.quiet()
    put(model, "b")
    model.quiet()
    watcher = client.watch(xp.CLUSTER, "b", PARAMS[4])  # env=prod
    watcher.may_go.update(model.names)
    model.quiet()
    put(model, "b", "env=prod")
    model.quiet()
    assert watcher.has["b"] is not None


def put(model: RelayModel, name: str, *when: str) -> None:
    """Replace all variants of a cluster."""
    made = [variant_of(MAKE[xp.CLUSTER](name, each), constraint=xp.parse(each).constraint) for each in when]
    model.made.update((each.body, each.constraint) for each in made)
    model.origin.store.apply({(xp.CLUSTER, name): tuple(made)})
    for each in model.watchers():
        each.may_go.update(set(model.names) - model.expected(each).keys())
