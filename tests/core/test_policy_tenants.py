"""Two tenants of one store: nothing that the one does can be seen in what the other is sent.

Each example is played in two worlds. In one of them there is tenant B: its resources, its changes and its streams. In
the other there is not. Tenant A does the same in both. All that A is sent must be the same, down to the nonces.
"""

from __future__ import annotations

import re
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Bench, changeset, shown
from xdsprism.core.model.events import Node, Send
from xdsprism.core.model.type_names import resolve_type
from xdsprism.core.policy.globs import NameGlobs
from xdsprism.core.policy.grant import Grant, ParamRule
from xdsprism.core.serve.stream import Stream

# A's names begin with `a`, B's with `b`. But all aliases begin with `a`: `ab` is one of a resource of B.
NAMES = {"*": NameGlobs(["a*"])}
PARAMS = {"env": ParamRule(allow=frozenset({"prod", "test"}))}
GRANTS = {"a": Grant("a", names=NAMES, params=PARAMS), "b": Grant("b", names={"*": NameGlobs(["b*"])}, params=PARAMS)}

ENTRIES = {
    "cds": ["{t}1={v}", "{t}2={v}", "-{t}1", "-{t}2", "{t}3[env=prod]={v} {t}3[env=test]={v}x", "-{t}3"],
    "eds": ["{t}1={v}", "{t}1(a{t})={v}", "{t}2(a{t}2)[env=prod]={v}", "-{t}1", "-{t}2"],
    "lds": ["{t}1={v}>rds.{t}1", "{t}1={v}>cds.{t}1", "-{t}1"],
    "rds": ["{t}1<on_demand>={v}>cds.{t}1", "{t}1={v}>cds.{t}2", "-{t}1"],
    "vhds": ["{t}1/x<x.example>={v}", "{t}1/y<*.example>^={v}", "-{t}1/x", "-{t}1/y"],
}
ASKED = {
    "cds": ["a1", "a2", "a3{env=prod}", "a3{env=test}", "a3{env=none}", "a3{zone=1}", "b1", "b3{env=prod}", "*"],
    "eds": ["a1", "aa", "ab", "ab{env=test}", "ab2{env=prod}", "ab2{env=none}", "b1"],
    "lds": ["a1", "b1", "*"],
    "rds": ["a1", "b1"],
    "vhds": ["a1/x.example", "a1/z.example", "b1/x.example", "*"],
}
WORDS = st.sampled_from(sorted(ENTRIES))
CHANGES = st.lists(WORDS.flatmap(lambda word: st.tuples(st.just(word), st.sampled_from(ENTRIES[word]))), max_size=3)
ASKING = WORDS.flatmap(
    lambda word: st.tuples(st.just(word), st.lists(st.sampled_from(ASKED[word]), max_size=3, unique=True))
)
STEPS = st.one_of(
    st.tuples(st.just("change"), CHANGES, CHANGES),  # what the transaction has of A, and of B
    st.tuples(st.just("ask"), ASKING, st.sampled_from("+-")),
    st.tuples(st.just("ask b"), ASKING, st.sampled_from("+-")),
    st.tuples(st.just("ack"), st.sampled_from(["ack", "nack"])),
    st.tuples(st.just("wait"), st.sampled_from([1, 6])),
    st.tuples(st.just("regrant"), st.booleans()),
)


def _transaction(own: list[tuple[str, str]], others: list[tuple[str, str]], value: int) -> str:
    named = [(word, text.format(t="a", v=value)) for word, text in own]
    named += [(word, text.format(t="b", v=value)) for word, text in others]
    once = {(word, re.split(r"[=<[(]", text.lstrip("-"))[0]): (word, text) for word, text in named}
    return "; ".join(f"{word} {text}" for word, text in once.values())


def _seen(send: Send) -> tuple[object, ...]:
    """All that the response says."""
    return send.nonce, send.version, send.absent, shown(send), tuple(error.message for error in send.errors)


class World:
    """A store with tenant A, and with B or without."""

    def __init__(self, *, delta: bool, both: bool) -> None:
        self.is_revoked = False
        self.bench = bench = Bench(kind=partial(Stream, grant_of=self.grant_of))
        connect = bench.delta if delta else bench.sotw
        self.peers = {"a": connect(tenant="a", env="prod")}
        if both:
            self.peers["b"] = connect(tenant="b", env="prod")

    def grant_of(self, node: Node) -> Grant:
        who = node.metadata["tenant"]
        return Grant("a", names={"*": NameGlobs(["a1*"])}) if who == "a" and self.is_revoked else GRANTS[who]

    def change(self, own: list[tuple[str, str]], others: list[tuple[str, str]], value: int) -> None:
        text = _transaction(own, others if "b" in self.peers else [], value)
        if changeset(text):
            self.bench.put(text)

    def ask(self, tenant: str, word: str, names: list[str], sign: str) -> None:
        """B asks for its own names as A does for its own."""
        peer = self.peers.get(tenant)
        if peer is not None:
            own = [name.translate(str.maketrans("ab", "ba")) if tenant == "b" else name for name in names]
            listed = [sign + name for name in own] if peer.stream.delta else own or ["none"]
            peer.ask(f"{word} {' '.join(listed)}")

    def answer(self, verdict: str) -> None:
        for peer in self.peers.values():
            for word in ENTRIES:
                if peer.unanswered.get(resolve_type(word)):
                    peer.ask(f"{word} {verdict}")

    def revoke(self, *, revoked: bool) -> None:
        """A may have less, or all again."""
        self.is_revoked = revoked
        self.peers["a"].stream.regrant()

    def poll(self) -> list[tuple[object, ...]]:
        """Return what A is sent."""
        heard = {tenant: peer.poll() for tenant, peer in self.peers.items()}
        return [_seen(send) for send in heard["a"]]


def _play(steps: list[tuple], *, delta: bool, both: bool) -> list[list[tuple[object, ...]]]:
    """Return what A is sent, poll by poll."""
    world = World(delta=delta, both=both)
    seen = []
    for number, (kind, *what) in enumerate(steps):
        if kind == "change":
            world.change(*what, number)
        elif kind in ("ask", "ask b"):
            (word, names), sign = what
            world.ask("a" if kind == "ask" else "b", word, names, sign)
        elif kind == "ack":
            world.answer(what[0])
        elif kind == "wait":
            world.bench.now += what[0]
        else:
            world.revoke(revoked=what[0])
        seen.append(world.poll())
    return seen


@given(st.lists(STEPS, max_size=14), st.booleans())
def test_what_one_tenant_is_sent_does_not_depend_on_the_other(steps: list[tuple], delta: bool):
    # OPS-2, DYN-44
    assert _play(steps, delta=delta, both=True) == _play(steps, delta=delta, both=False)


def test_the_examples_of_this_property_do_send_something():
    steps = [
        ("ask", ("cds", ["*"]), "+"),
        ("ask", ("eds", ["a1", "b1"]), "+"),
        ("change", [("cds", "{t}1={v}"), ("eds", "{t}1={v}")], [("cds", "{t}1={v}"), ("eds", "{t}1={v}")]),
        ("ack", "ack"),
        ("change", [], [("cds", "{t}1={v}")]),
    ]
    heard = _play(steps, delta=True, both=True)
    assert [[each[3] for each in poll] for poll in heard] == [
        ["cds nothing"],
        ["eds !b1[]=PERMISSION_DENIED -a1 -b1"],
        ["cds a1=2", "eds a1=2"],
        [],
        [],
    ]
