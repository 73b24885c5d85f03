"""The fast path says what the slow path would have said, and costs only those whom a change concerns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.support import Bench, Peer, Thorough, shown
from tests.support.examples import examples
from xdsprism.core.model.events import TTL, Key, Node, Request, Send, SotwRequest
from xdsprism.core.model.facts import Fact, Requested, Sent
from xdsprism.core.model.store import Applied
from xdsprism.core.model.types import CLUSTER, ENDPOINT, ROUTE, make_variant


@pytest.fixture(params=[True, False], ids=["delta", "sotw"])
def delta(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def settled(bench: Bench, delta: bool, wish: str, **metadata: str) -> Peer:
    """A client that got what it asked for, and accepted it."""
    peer = bench.delta(**metadata) if delta else bench.sotw(**metadata)
    peer.ask(wish)
    while peer.poll():
        peer.ask("ack")
    return peer


def went_the_long_way(bench: Bench) -> list[Fact]:
    """The requests and responses with a fact of their own. The fast path only counts them."""
    return [*bench.said(Requested), *bench.said(Sent)]


@pytest.mark.parametrize("wish", ["eds +a", "eds +*"])
def test_one_response_is_made_for_all_who_need_the_same(delta: bool, wish: str) -> None:
    # DESIGN 9
    bench = Bench()
    bench.put("eds a=1 b=1")
    wish = wish if delta else wish.replace("+", "")
    peers = [settled(bench, delta, wish) for _ in range(3)]
    bench.put("eds a=2")
    sends = [peer.stream.poll(bench.now) for peer in peers]
    assert [len(each) for each in sends] == [1, 1, 1]
    assert all(each[0] is sends[0][0] for each in sends)


@pytest.mark.parametrize("wish", ["eds +a", "eds +*", "eds +a +b", "eds +a{env=prod}", "rds +a +b{env=prod}"])
def test_a_change_and_its_ack_take_the_short_way(delta: bool, wish: str) -> None:
    bench = Bench()
    bench.put("eds a=1 b=1; rds a=1 b=1")
    word = wish[:3]
    peer = settled(bench, delta, wish if delta else wish.replace("+", ""))
    bench.facts.clear()
    for edition in (2, 3, 4):
        bench.put(f"{word} a={edition}")
        (send,) = peer.stream.poll(bench.now)
        peer.heard.setdefault(send.type_url, []).append(send)
        peer.unanswered.setdefault(send.type_url, []).append(send)
        peer.ask(f"{word} ack")
        assert "a" in shown(send)
    assert went_the_long_way(bench) == []
    progress = peer.session(word).progress
    assert progress.sent == progress.acked


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("eds -a", id="a removal"),
        pytest.param("eds a[env=prod]=2", id="another variant, by its constraints"),
        pytest.param("eds a(x)=2; rds r=2", id="two types at once"),
    ],
)
def test_other_changes_do_not_take_the_fast_path(change: str) -> None:
    bench = Bench()
    bench.put("eds a=1; rds r=1")
    peer = settled(bench, True, "eds +a{env=prod}", env="prod")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("rds ack")
    peer.poll()
    bench.facts.clear()
    bench.put(change)
    sends = peer.poll()
    assert sends
    assert len(went_the_long_way(bench)) == len(sends)


def test_a_second_response_at_one_revision_has_a_nonce_of_its_own() -> None:
    # SRV-8
    bench = Bench()
    bench.put("eds a=1 b=1")
    peer = settled(bench, True, "eds +a")
    bench.put("eds a=2")
    (first,) = peer.poll()
    peer.ask("eds +b ack")
    (second,) = peer.poll()
    bench.put("eds b=2")
    (third,) = peer.poll()
    assert len({first.nonce, second.nonce, third.nonce}) == 3


def test_a_response_before_a_change_is_notified_does_not_take_its_nonce(
    delta: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SRV-8
    bench = Bench()
    bench.put("eds a=1 b=1")
    peer = settled(bench, delta, "eds +a" if delta else "eds a")
    other = settled(bench, delta, "eds +a" if delta else "eds a")
    told: list[Applied] = []
    tell = bench.notify
    monkeypatch.setattr(bench, "notify", told.append)
    bench.put("eds a=2")
    peer.ask("eds +b" if delta else "eds a b")
    first = peer.poll()
    assert [send.names for send in first] == [("b",)]
    peer.ask("eds ack")
    peer.poll()
    tell(told[0])
    assert other.poll()[0].nonce == first[0].nonce  # to it, it is the first at this revision
    second = peer.poll()
    assert [send.names for send in second] == [("a",)]
    assert first[0].nonce != second[0].nonce


def test_a_changed_cluster_brings_its_endpoints_again_on_the_short_way_too(delta: bool) -> None:
    # ORD-11
    bench = Bench()
    bench.put("cds a=1 b=1; eds a=1 b=1")
    peer = settled(bench, delta, "cds +*" if delta else "cds")
    peer.ask("eds +a +b" if delta else "eds a b")
    while peer.poll():
        peer.ask("ack")
    bench.put("cds a=2")
    sends = peer.poll()
    assert [send.type_url for send in sends] == [CLUSTER, ENDPOINT]
    assert sends[1].names == ("a",)


def test_a_session_that_holds_an_unchanged_variant_is_not_woken(delta: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # DESIGN 6.3, 9
    bench = Bench()
    bench.put("rds main[v=1]=a main[v=2]=b main[v=3]=c")
    wish = "rds +main" if delta else "rds main"
    peers = [settled(bench, delta, wish, v=str(1 + number % 3)) for number in range(9)]
    lacking = settled(bench, delta, wish, v="9")
    woken = [
        session.stream
        for session in bench.interest.notify(bench.put("rds main[v=1]=a main[v=2]=B main[v=3]=c").changes)
    ]
    assert woken == [peer.stream.number for peer in peers if peer.stream.context.params["v"] == "2"] + [
        lacking.stream.number
    ]
    assert [len(peer.poll()) for peer in peers] == [0, 1, 0] * 3
    assert lacking.poll() == []


def test_a_new_variant_is_sent_while_the_removal_of_the_last_one_waits() -> None:
    # ORD-2: what is leaving waits until who may refer to it has moved on; meanwhile there is another one for it
    bench = Bench()
    bench.put("cds a[v=1]=1 a[v=2]=1; rds r=1")
    peer = settled(bench, True, "cds +a", v="1")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("rds ack")
    bench.put("cds a[v=2]=1 a[v=3]=1; rds r=2")
    assert peer.hears() == ["rds r=2"]
    assert peer.session("cds").leaving
    bench.put("cds a[v=1]=2 a[v=2]=1 a[v=3]=1")
    assert peer.hears() == ["cds a=2"]


def test_groups_do_not_outlive_their_members(delta: bool) -> None:
    bench = Bench()
    bench.put("rds main[v=1]=a main[v=2]=b; eds a=1")
    peers = [settled(bench, delta, "rds +main +none" if delta else "rds main none", v=v) for v in "129"]
    settled(bench, delta, "eds +a" if delta else "eds a").close()
    bench.put("rds main[v=1]=A main[v=2]=b")
    for peer in peers:
        peer.poll()
        peer.close()
    assert bench.left_behind() == {}


# -- against the long way

steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(["eds", "rds", "cds"]), st.sampled_from("ab"), st.integers(0, 7)),
        st.tuples(st.just("ask"), st.integers(0, 3), st.sampled_from(["eds", "rds", "cds"]), st.integers(0, 5)),
        st.tuples(st.just("ack"), st.integers(0, 3), st.sampled_from(["ack", "ack", "ack", "nack"]), st.just(0)),
        st.tuples(st.just("poll"), st.integers(0, 3), st.just(""), st.just(0)),
    ),
    max_size=40,
)
SETS = ("={n}", "={n}", "[env=prod]={n}", "[env=prod]=p @[env!=prod]={n}", "(x@)={n}", "[env=prod]={n} @[env!=prod]=q")
WISHES = ("a", "xa", "a b", "*", "a{env=prod}", "a b{env=test}")


class Pair:
    """The same happens to both; what comes out must be the same."""

    def __init__(self) -> None:
        self.benches = (Bench(), Bench(kind=Thorough))
        nodes: tuple[tuple[bool, dict[str, str]], ...] = (
            (True, {"env": "prod"}),
            (True, {"env": "test"}),
            (False, {"env": "prod"}),
            (False, {}),
        )
        self.peers = [
            [bench.delta(**node) if delta else bench.sotw(**node) for delta, node in nodes] for bench in self.benches
        ]
        self.editions = 0

    def put(self, word: str, name: str, form: int) -> None:
        self.editions += 1
        text = f"-{name}" if form == 7 else (name + SETS[form % len(SETS)]).replace("@", name).format(n=self.editions)
        for bench in self.benches:
            bench.put(f"{word} {text}")

    def ask(self, number: int, word: str, wish: int) -> None:
        for peers in self.peers:
            peer = peers[number]
            keys = WISHES[wish].split()
            peer.ask(f"{word} " + (" ".join(f"+{key}" for key in keys) if peer.stream.delta else " ".join(keys)))

    def ack(self, number: int, verdict: str) -> None:
        for peers in self.peers:
            for type_url in [type_url for type_url, sends in peers[number].unanswered.items() if sends]:
                word = {CLUSTER: "cds", ENDPOINT: "eds", ROUTE: "rds"}[type_url]
                peers[number].ask(f"{word} {verdict}")

    def poll(self, number: int) -> None:
        short, long = ([_plain(send) for send in peers[number].poll()] for peers in self.peers)
        assert short == long
        progress = [{url: each.progress for url, each in peers[number].stream.sessions.items()} for peers in self.peers]
        assert progress[0] == progress[1]


def _plain(send: Send) -> tuple[object, ...]:
    """Without what is compared by identity."""
    return shown(send), send.type_url, send.nonce, send.version, send.names, send.ttl


@settings(max_examples=examples(400))
@given(steps)
def test_the_short_way_says_what_the_long_one_does(run: list[tuple[str, int | str, str, int]]) -> None:
    pair = Pair()
    for number in range(4):
        pair.ask(number, "eds", 0)
    for what, first, second, third in run:
        if what == "put":
            pair.put(str(first), second, third)
        elif what == "ask":
            pair.ask(int(first), second, third)
        elif what == "ack":
            pair.ack(int(first), second)
        else:
            pair.poll(int(first))
    for number in range(4):
        pair.poll(number)


def test_several_changes_of_one_transaction_come_in_one_response(delta: bool) -> None:
    # SRV-19
    bench = Bench()
    bench.put("eds a=1 b=1 c=1")
    peer = settled(bench, delta, "eds +a +b +c" if delta else "eds a b c")
    bench.put("eds a=2 b=2")
    assert peer.hears() == ["eds a=2 b=2"]


def test_a_variant_with_other_constraints_takes_the_place_of_the_one_before_it() -> None:
    # DYN-24
    bench = Bench()
    bench.put("rds main[env=prod]=1")
    peer = settled(bench, True, "rds +main{env=prod,v=1}")
    bench.put("rds main[env=prod and v=1]=2")
    assert peer.hears() == ["rds -main[env=prod] main[env=prod and v=1]=2"]


def test_a_client_that_answers_in_the_words_of_v2_is_told_no_time_to_live_from_then_on() -> None:
    # TTL-1
    bench = Bench()
    bench.put("eds a=1")
    features = frozenset({"xds.config.resource-in-sotw", TTL})
    peer = bench.connect(Node("envoy-1", features=features), delta=False)
    peer.ask("eds a")
    peer.poll()
    peer.ask("ack")
    assert peer.poll() == []
    bench.put("eds a=2")
    (send,) = peer.poll()
    body = SotwRequest((Key("a"),), send.version, send.nonce)
    peer.stream.receive(Request(ENDPOINT, body, v2=True, is_plain=True), bench.now)
    bench.store.apply({(ENDPOINT, "a"): (make_variant(ENDPOINT, "a", b"3", ttl=10),)})
    (send,) = peer.poll()
    assert not send.ttl
