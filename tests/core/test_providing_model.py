"""After any sequence of events every client has what the provider would return."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.core.making import MadeBench
from tests.core.support import Peer
from tests.core.trees import KEYS, VALUES, Lenient, Tree, run_tree, trees
from tests.support import insides
from tests.support.examples import examples
from xdsprism.core.model.cached import CachedSet
from xdsprism.core.model.constraints import keys
from xdsprism.core.model.decisions import Decisions
from xdsprism.core.model.types import CLUSTER, Params

NAMES = ("a", "b")
EVERYBODY = [
    Params({key: value for key, value in zip(KEYS, values, strict=True) if value is not None})
    for values in product([None, *VALUES, "other"], repeat=len(KEYS))
]
somebody = st.sampled_from(EVERYBODY)
some_name = st.sampled_from(NAMES)


def said_of(tree: Tree, params: Params) -> bytes | None:
    body = run_tree(tree, Lenient(params))
    return body.encode() if body is not None else None


def wish(name: str, params: Params) -> str:
    return f"{name}{{{','.join(f'{key}={value}' for key, value in params.items())}}}"


def check_disjoint(known: CachedSet) -> None:
    """TP2, Matching Behavior and Best Practices."""
    assert all(keys(each.constraint) == set(KEYS) for each in known.findings)
    decisions = Decisions(KEYS)
    diagrams = [decisions.constraint(each.constraint) for each in known.findings]
    for index, one in enumerate(diagrams):
        assert all(decisions.both(one, other) is False for other in diagrams[:index])


# DYN-33, DYN-34, DYN-38
@given(trees(), st.lists(st.tuples(some_name, somebody), max_size=20))
def test_clients_get_what_the_provider_says_of_them_and_it_is_asked_once_for_each_way(
    tree: Tree, comers: Sequence[tuple[str, Params]]
):
    bench = MadeBench(lambda name, params: run_tree(tree, params), *KEYS)
    for name, params in comers:
        peer = bench.delta()
        peer.ask(f"cds +{wish(name, params)}")
        bench.run()
        (send,) = peer.poll()
        body = said_of(tree, params)
        assert [variant.body for variant in send.located] == ([body] if body is not None else [])
        assert len(send.withdrawn) == (body is None)
    for name in NAMES:
        known = bench.store.named(CLUSTER, name)
        calls = sum(asked == name for asked, _ in bench.made)
        assert calls == (len(known.findings) if isinstance(known, CachedSet) else 0)
        if isinstance(known, CachedSet):
            check_disjoint(known)


class Anything(RuleBasedStateMachine):
    """Clients come and go, the provider's mind changes, things are written down and deleted, calls end and fail."""

    @initialize(tree=trees(), idle=st.integers(0, 3), at_once=st.integers(1, 3))
    def begin(self, tree: Tree, idle: int, at_once: int) -> None:
        self.tree = tree
        self.failing = False
        self.bench = MadeBench(self.say, *KEYS, idle=idle, at_once=at_once)
        self.peers: list[tuple[Peer, str, Params]] = []
        self.written: dict[str, bytes] = {}

    def say(self, _name: str, params: Params) -> str | None:
        if self.failing:
            raise RuntimeError("down")
        return run_tree(self.tree, params)

    @rule(name=some_name, params=somebody)
    def come(self, name: str, params: Params) -> None:
        peer = self.bench.delta()
        peer.ask(f"cds +{wish(name, params)}")
        self.peers.append((peer, name, params))

    @precondition(lambda self: self.peers)
    @rule(which=st.integers(0))
    def leave(self, which: int) -> None:
        self.peers.pop(which % len(self.peers))[0].close()

    @rule(tree=trees())
    def change(self, tree: Tree) -> None:
        self.tree = tree
        self.bench.providing.invalidate(CLUSTER)

    @rule(name=some_name)
    def doubt(self, name: str) -> None:
        self.bench.providing.invalidate(CLUSTER, name)

    @rule(name=some_name, body=st.sampled_from(["w1", "w2"]))
    def write(self, name: str, body: str) -> None:
        self.bench.put(f"cds {name}={body}")
        self.written[name] = body.encode()

    @rule(name=some_name)
    def delete(self, name: str) -> None:
        self.bench.put(f"cds -{name}")
        self.written.pop(name, None)

    @rule()
    def turn(self) -> None:
        self.bench.turn()
        self.listen()

    @precondition(lambda self: self.bench.jobs)
    @rule(which=st.integers(0), failing=st.booleans())
    def end(self, which: int, failing: bool) -> None:
        self.failing = failing
        self.bench.end(self.bench.jobs[which % len(self.bench.jobs)])
        self.failing = False

    @rule()
    def wait(self) -> None:
        self.bench.now += 1.0

    def listen(self) -> None:
        for peer, _, _ in self.peers:
            peer.poll()

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.wait(100)
        self.listen()
        for peer, name, params in self.peers:
            expected = self.written.get(name, said_of(self.tree, params))
            assert [held.body for held in peer.session("cds").view.everything()] == (
                [] if expected is None else [expected]
            )
            assert peer.heard, "everybody has an answer"
        self.check_what_is_left()

    def check_what_is_left(self) -> None:
        providing = self.bench.providing
        kept = insides.kept_of_providing(providing)
        assert len(kept["idle"]) <= providing.idle
        assert not kept["open"]
        assert kept["running"] == {CLUSTER: 0}
        for name, known in self.bench.store.table(CLUSTER):
            assert isinstance(known, CachedSet) == (name not in self.written)
            if isinstance(known, CachedSet):
                check_disjoint(known)
                assert not any(each.stale for each in known.findings)
        for peer, _, _ in self.peers:
            peer.close()
        providing.invalidate(CLUSTER)  # what nobody wants is not asked for again
        self.bench.run()
        kept = insides.kept_of_providing(providing)
        assert not any(kept[what] for what in ("idle", "topics", "failures"))
        assert {name for name, _ in self.bench.store.table(CLUSTER)} == self.written.keys()


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=examples(100), stateful_step_count=30)
