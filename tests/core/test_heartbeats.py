"""TTLs: which clients get them, and the heartbeats that extend them."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Bench, Peer
from xdsprism.core.codec.server_responses import Encoder
from xdsprism.core.model.constraints import TRUE
from xdsprism.core.model.events import TTL, DeltaRequest, Key, Node, Request, Send, SotwRequest
from xdsprism.core.model.expr import parse
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.type_names import resolve_type
from xdsprism.core.model.types import CLUSTER, ENDPOINT, RUNTIME, SECRET, Variant, make_variant
from xdsprism.core.session.batch import Slot
from xdsprism.core.session.heartbeat import GRACE, Heartbeats, TimedResource
from xdsprism.timer_heap import STALE

FEATURES = frozenset({"xds.config.resource-in-sotw", TTL})
both = pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
SLOT: Slot = (False, "a", TRUE)


def connect(bench: Bench, *, delta: bool, features: frozenset[str] = FEATURES) -> Peer:
    return bench.connect(Node("envoy-1", features=features), delta=delta)


def put(bench: Bench, word: str, name: str, body: str, ttl: float | None = 10, *, when: str = "") -> None:
    url = resolve_type(word)
    made = make_variant(url, name, body.encode(), parse(when) if when else TRUE, ttl=ttl)
    bench.store.apply({(url, name): (made,)})


def ask(peer: Peer, word: str, *names: str) -> None:
    peer.ask(" ".join([word, *(f"+{name}" for name in names)] if peer.stream.delta else [word, *names]))


def told(peer: Peer) -> list[str]:
    """What a poll said: `a=1/10` with a time to live, `a~10` for a heartbeat."""
    return [_told(send) for send in peer.poll()]


def _told(send: Send) -> str:
    brought = [
        f"{one.name}={one.body.decode()}" + (f"/{one.ttl:g}" if one.ttl and (send.delta or send.ttl) else "")
        for one in (*send.plain, *send.located)
    ]
    beaten = [f"{one.name}~{one.ttl:g}" for one in (*send.beats, *send.located_beats)]
    return " ".join([*brought, *beaten, *(f"-{name}" for name in send.removed)])


def at(peer: Peer, moment: float) -> list[str]:
    peer.bench.now = 100 + moment
    return told(peer)


def served(word: str = "eds", *, delta: bool, ttl: float | None = 10) -> Peer:
    """A client that has accepted `a` at the moment 0."""
    bench = Bench()
    put(bench, word, "a", "1", ttl)
    peer = connect(bench, delta=delta)
    ask(peer, word, "a")
    peer.poll()
    peer.ask("ack")
    assert told(peer) == []
    return peer


# -- who is told


@pytest.mark.parametrize("spelling", ["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw"])
def test_a_sotw_client_that_announces_both_features_is_told(spelling: str):
    # TTL-1
    bench = Bench()
    put(bench, "eds", "a", "1")
    peer = connect(bench, delta=False, features=frozenset({spelling, TTL}))
    ask(peer, "eds", "a")
    assert told(peer) == ["a=1/10"]


@pytest.mark.parametrize("word", ["eds", "cds"])
@pytest.mark.parametrize("features", [(), (TTL,), ("xds.config.resource-in-sotw",)])
def test_a_sotw_client_that_lacks_a_feature_gets_the_bare_resource_and_no_heartbeat(features: tuple[str, ...], word):
    # TTL-1
    bench = Bench()
    put(bench, word, "a", "1")
    peer = connect(bench, delta=False, features=frozenset(features))
    ask(peer, word, "a")
    assert told(peer) == ["a=1"]
    peer.ask("ack")
    assert peer.stream.deadline() is None
    assert at(peer, 1000) == []


def test_a_delta_client_needs_no_feature():
    # TTL-1: a delta response has the wrapper anyway, and Envoy honours what it says
    bench = Bench()
    put(bench, "eds", "a", "1")
    peer = connect(bench, delta=True, features=frozenset())
    ask(peer, "eds", "a")
    assert told(peer) == ["a=1/10"]


@both
def test_a_client_that_asks_in_v2_is_told_nothing(delta: bool):
    # TTL-1: v2 has no times to live, and takes a heartbeat for a resource without contents
    bench = Bench()
    put(bench, "eds", "a", "1")
    peer = connect(bench, delta=delta)
    body = DeltaRequest((Key("a"),)) if delta else SotwRequest((Key("a"),))
    peer.stream.receive(Request(ENDPOINT, body, Node(features=FEATURES), v2=True), 100)
    (send,) = peer.poll()
    answer = DeltaRequest(nonce=send.nonce) if delta else SotwRequest((Key("a"),), send.version, send.nonce)
    peer.stream.receive(Request(ENDPOINT, answer, v2=True), 100)
    assert peer.stream.deadline() is None


# -- heartbeats


@both
def test_a_heartbeat_goes_out_at_half_the_time_and_then_again_and_again(delta: bool):
    # TTL-2
    peer = served(delta=delta)
    for beat in range(1, 6):
        assert peer.stream.deadline() == 100 + 5 * beat
        assert at(peer, 5 * beat - 0.01) == []
        assert at(peer, 5 * beat) == ["a~10"]
        peer.ask("ack")
        assert told(peer) == []


@both
def test_a_heartbeat_names_the_version_that_the_client_has(delta: bool):
    # TTL-2: Envoy tells it by the version, of the resource in delta and of the response in SotW
    peer = served(delta=delta)
    (first,) = peer.heard[ENDPOINT]
    peer.bench.now += 5
    (beat,) = peer.poll()
    assert beat.beats == first.plain
    assert (beat.version == first.version) or delta


def test_delta_an_older_ack_that_comes_late_does_not_change_what_is_kept_alive():
    # TTL-2, NAK-28
    bench = Bench()
    put(bench, "eds", "a", "1")
    peer = connect(bench, delta=True)
    ask(peer, "eds", "a")
    assert told(peer) == ["a=1/10"]
    put(bench, "eds", "a", "2")
    assert told(peer) == ["a=2/10"]
    peer.ask("eds ack@2")
    peer.ask("eds ack@1")
    assert at(peer, 5) == ["a~10"]
    assert peer.heard[ENDPOINT][-1].beats == peer.heard[ENDPOINT][1].plain


def test_a_sotw_heartbeat_names_what_the_client_accepted_also_where_it_has_left_a_name():
    # TTL-2: without a, what it has would have another version, which it was never told
    bench = Bench()
    put(bench, "eds", "a", "1", None)
    put(bench, "eds", "b", "1")
    peer = connect(bench, delta=False)
    ask(peer, "eds", "a", "b")
    (first,) = peer.poll()
    peer.ask("ack")
    peer.ask("eds b")
    assert at(peer, 5) == ["b~10"]
    assert peer.heard[ENDPOINT][-1].version == first.version


@both
def test_an_unanswered_resource_has_no_heartbeats(delta: bool):
    # TTL-2
    bench = Bench()
    put(bench, "eds", "a", "1")
    peer = connect(bench, delta=delta)
    ask(peer, "eds", "a")
    assert told(peer) == ["a=1/10"]
    assert at(peer, 9) == []
    peer.ask("ack")
    assert told(peer) == ["a~10"]


@both
def test_a_rejected_resource_has_no_heartbeats(delta: bool):
    # TTL-2, NAK-3
    bench = Bench()
    put(bench, "eds", "a", "1")
    peer = connect(bench, delta=delta)
    ask(peer, "eds", "a")
    peer.poll()
    peer.ask("eds nack")
    assert [at(peer, moment) for moment in (0, 5, 10, 100)] == [[]] * 4
    assert peer.stream.deadline() is None


@both
def test_heartbeats_that_are_not_answered_do_not_pile_up(delta: bool):
    # TTL-2
    peer = served(delta=delta)
    assert at(peer, 5) == ["a~10"]
    assert [at(peer, moment) for moment in (10, 50, 500)] == [[]] * 3
    assert peer.stream.deadline() is None


@both
def test_an_answer_after_the_time_is_over_brings_the_whole_resource(delta: bool):
    # TTL-2: a client that has dropped it can do nothing with a heartbeat
    peer = served(delta=delta)
    assert at(peer, 5) == ["a~10"]
    peer.bench.now = 115
    peer.ask("ack")
    assert told(peer) == ["a=1/10"]
    peer.ask("ack")
    assert at(peer, 20) == ["a~10"]


@both
def test_heartbeats_due_at_nearly_one_time_share_a_response(delta: bool):
    # TTL-2
    bench = Bench()
    peer = connect(bench, delta=delta)
    for number, name in enumerate("abc"):
        put(bench, "eds", name, "1")
        bench.now = 100 + 0.4 * number
        ask(peer, "eds", *"abc"[: number + 1]) if not delta else ask(peer, "eds", name)
        peer.poll()
        peer.ask("ack")
    assert at(peer, 5) == ["a~10 b~10 c~10"]
    peer.ask("ack")
    assert at(peer, 9.9) == []
    assert at(peer, 10) == ["a~10 b~10 c~10"]


@pytest.mark.parametrize("form", ["{}", "{}{{env=prod}}"], ids=["plain", "located"])
@pytest.mark.parametrize(("delta", "limit"), [(True, 3 * 260), (False, 3 * 135)])
def test_a_heartbeat_response_keeps_to_the_size_of_a_response(delta: bool, limit: int, form: str):
    # DLT-21
    bench = Bench(Settings(response_bytes=limit))
    peer = connect(bench, delta=delta)
    names = [f"n{number}" for number in range(9)]
    for name in names:
        put(bench, "eds", name, "1")
    ask(peer, "eds", *map(form.format, names))
    peer.poll()
    peer.ask("ack")
    said = at(peer, 5)
    assert len(said) == 3
    assert " ".join(said).split() == [f"{name}~10" for name in names]


@both
def test_a_variant_by_locator_has_its_own_heartbeat(delta: bool):
    # TTL-2, DYN-15: apart from the plain form of the same name
    bench = Bench()
    put(bench, "eds", "a", "1", when="env=prod or not env exists")
    peer = connect(bench, delta=delta)
    ask(peer, "eds", "a", "a{env=prod}")
    peer.poll()
    peer.ask("ack")
    peer.bench.now += 5
    assert [(len(send.beats), len(send.located_beats)) for send in peer.poll()] == [(1, 0), (0, 1)]


@both
def test_a_wildcard_s_members_have_heartbeats(delta: bool):
    # TTL-2
    bench = Bench()
    put(bench, "sds", "a", "1")
    put(bench, "sds", "b", "1", None)
    peer = connect(bench, delta=delta)
    ask(peer, "sds", "*")
    peer.poll()
    peer.ask("ack")
    assert at(peer, 5) == ["a~10"]


# -- full state


@pytest.mark.parametrize("word", ["lds", "cds"])
def test_sotw_full_state_has_no_heartbeats_and_is_sent_again_as_a_whole(word: str):
    # TTL-2: Envoy takes any response of these types for all that there is
    bench = Bench()
    put(bench, word, "a", "1", 20)
    put(bench, word, "b", "1", 10)
    put(bench, word, "c", "1", None)
    peer = connect(bench, delta=False)
    ask(peer, word, "*")
    assert told(peer) == ["a=1/20 b=1/10 c=1"]
    peer.ask("ack")
    for beat in range(1, 4):
        assert at(peer, 5 * beat) == ["a=1/20 b=1/10 c=1"]
        peer.ask("ack")
    put(bench, word, "b", "1", None)
    assert told(peer) == ["a=1/20 b=1 c=1"]
    peer.ask("ack")
    assert peer.stream.deadline() == 125
    put(bench, word, "a", "1", None)
    assert told(peer) == ["a=1 b=1 c=1"]
    peer.ask("ack")
    assert peer.stream.deadline() is None


def test_sotw_full_state_that_was_rejected_is_not_repeated():
    # NAK-3
    peer = served("cds", delta=False)
    put(peer.bench, "cds", "a", "2")
    assert told(peer) == ["a=2/10"]
    peer.ask("cds nack")
    assert [at(peer, moment) for moment in (5, 10, 100)] == [[]] * 3


def test_delta_clusters_have_heartbeats():
    # TTL-2
    assert at(served("cds", delta=True), 5) == ["a~10"]


# -- changes


@both
@pytest.mark.parametrize(("ttl", "said", "due"), [(4, "a=1/4", 102), (20, "a=1/20", 110), (None, "a=1", None)])
def test_another_time_to_live_is_sent_and_counts_from_then(delta: bool, ttl: float | None, said: str, due: float):
    # TTL-3
    peer = served(delta=delta)
    put(peer.bench, "eds", "a", "1", ttl)
    assert told(peer) == [said]
    peer.ask("ack")
    assert told(peer) == []
    assert peer.stream.deadline() == due


@both
def test_a_first_time_to_live_is_sent(delta: bool):
    # TTL-3
    peer = served(delta=delta, ttl=None)
    put(peer.bench, "eds", "a", "1", 10)
    assert told(peer) == ["a=1/10"]
    peer.ask("ack")
    assert at(peer, 5) == ["a~10"]


def test_the_version_covers_the_time_to_live_and_nothing_else_moved():
    # TTL-3, DYN-31
    versions = [make_variant(ENDPOINT, "a", b"1", ttl=ttl).version for ttl in (None, 1.0, 2.0, 1.0)]
    assert len(set(versions)) == 3
    assert versions[1] == versions[3]
    assert versions[0] == make_variant(ENDPOINT, "a", b"1").version


@both
def test_news_takes_the_place_of_a_heartbeat(delta: bool):
    # TTL-2
    peer = served(delta=delta)
    put(peer.bench, "eds", "a", "2")
    assert at(peer, 5) == ["a=2/10"]
    assert at(peer, 9) == []  # which of the two it has, nobody knows
    peer.ask("ack")
    assert at(peer, 10) == ["a~10"]


@both
def test_a_client_that_rejects_the_news_keeps_what_it_has_alive(delta: bool):
    # TTL-2, NAK-3: a bad update must not turn into an outage
    peer = served(delta=delta)
    (first,) = peer.heard[ENDPOINT]
    put(peer.bench, "eds", "a", "2")
    assert told(peer) == ["a=2/10"]
    peer.ask("eds nack")
    for beat in range(1, 4):
        assert at(peer, 5 * beat) == ["a~10"]
        assert peer.heard[ENDPOINT][-1].beats == first.plain
        peer.ask("ack")
        assert told(peer) == []
        assert peer.session("eds").progress.state == "NACKED"
    put(peer.bench, "eds", "a", "3")
    assert told(peer) == ["a=3/10"]
    peer.ask("ack")
    peer.bench.now += 5
    assert told(peer) == ["a~10"]
    assert peer.heard[ENDPOINT][-1].beats[0].body == b"3"


def test_delta_several_that_were_rejected_are_kept_alive_once_each_was_judged():
    # TTL-2, NAK-29
    bench = Bench()
    put(bench, "eds", "a", "1")
    put(bench, "eds", "b", "1")
    peer = connect(bench, delta=True)
    ask(peer, "eds", "a", "b")
    peer.poll()
    peer.ask("ack")
    put(bench, "eds", "a", "2")
    put(bench, "eds", "b", "2")
    peer.poll()
    peer.ask("eds nack")
    assert told(peer) == ["a=2/10", "b=2/10"]
    peer.ask("eds ack@3")
    peer.ask("eds nack@4")
    assert at(peer, 5) == ["a~10 b~10"]
    assert [one.body for one in peer.heard[ENDPOINT][-1].beats] == [b"2", b"1"]


def test_delta_what_was_rejected_and_waits_to_be_sent_alone_has_no_heartbeat():
    # TTL-2, NAK-29: Envoy may have taken the new one, or kept the old
    bench = Bench()
    names = [f"n{number}" for number in range(100)]
    for name in names:
        put(bench, "eds", name, "1")
    peer = connect(bench, delta=True)
    ask(peer, "eds", *names)
    peer.poll()
    peer.ask("ack")
    for name in names:
        put(bench, "eds", name, "2")
    peer.poll()
    peer.ask("eds nack")
    said = at(peer, 6)
    assert 0 < len(said) < 100
    assert all(line.endswith("=2/10") for line in said)
    beaten: list[str] = []
    while peer.unanswered[ENDPOINT]:
        newest = peer.unanswered[ENDPOINT][-1]
        beaten += [f"{one.name}={one.body.decode()}" for one in newest.beats]
        verdict = "ack" if newest.is_heartbeat else "nack"
        peer.ask(f"eds {verdict}@{peer.heard[ENDPOINT].index(newest) + 1}")
        peer.poll()
    assert sorted(beaten) == sorted(f"{name}=1" for name in names)


@both
def test_a_rejected_heartbeat_is_not_repeated(delta: bool):
    # NAK-3
    peer = served(delta=delta)
    assert at(peer, 5) == ["a~10"]
    peer.ask("eds nack")
    assert [at(peer, moment) for moment in (5, 10, 100)] == [[]] * 3
    assert peer.session("eds").progress.state == "NACKED"


def test_delta_a_heartbeat_that_is_rejected_after_newer_contents_were_accepted_ends_nothing():
    # TTL-2, NAK-3: the rejection is about what the client does not have any more
    peer = served(delta=True)
    assert at(peer, 5) == ["a~10"]
    put(peer.bench, "eds", "a", "2")
    assert told(peer) == ["a=2/10"]
    peer.ask("eds ack@3")
    peer.ask("eds nack@2")
    assert at(peer, 10) == ["a~10"]


@both
def test_heartbeats_stop_when_the_resource_goes(delta: bool):
    # TTL-2
    peer = served(delta=delta)
    peer.bench.put("eds -a")
    assert told(peer) == (["-a"] if delta else [])
    assert peer.stream.deadline() is None
    assert at(peer, 100) == []


@both
def test_heartbeats_stop_when_nobody_wants_the_resource(delta: bool):
    # TTL-2
    peer = served(delta=delta)
    peer.ask("eds -a" if delta else "eds none")
    assert peer.stream.deadline() is None
    assert at(peer, 100) == []


def test_a_cluster_whose_removal_waits_is_kept_alive():
    # TTL-2, ORD-2: a NACKed route still points to it
    bench = Bench()
    put(bench, "cds", "a", "1", 4)
    bench.put("rds r=1")
    peer = connect(bench, delta=True)
    ask(peer, "cds", "*")
    ask(peer, "rds", "r")
    peer.poll()
    peer.ask("ack")
    assert told(peer) == []
    bench.put("cds -a; rds r=2")
    assert told(peer) == ["r=2"]
    peer.ask("rds nack")
    assert at(peer, 2) == ["a~4"]


def test_a_returning_delta_client_is_sent_what_has_a_time_to_live():
    # TTL-2: how long it is still good at the client, nobody knows
    bench = Bench()
    put(bench, "sds", "a", "1")
    put(bench, "sds", "b", "1", None)
    for names in (("*",), ("a", "b")):
        peer = connect(bench, delta=True)
        wanted = tuple(Key(name) for name in names)
        have = {name: bench.store.table(SECRET).named(name).variants[0].version for name in "ab"}
        peer.receive(SECRET, DeltaRequest(wanted, initial_versions=have))
        assert told(peer) == ["a=1/10"]


def test_a_returning_sotw_client_is_sent_what_has_a_time_to_live():
    # TTL-2, SOT-12
    bench = Bench()
    put(bench, "cds", "a", "1")
    version = ""
    for _ in range(2):
        peer = connect(bench, delta=False)
        peer.receive(CLUSTER, SotwRequest(version=version))
        (send,) = peer.poll()
        version = send.version


# -- SotW, where a response overtakes another


def test_a_sotw_response_that_was_overtaken_counts_as_seen():
    # TTL-2: Envoy never answers it
    peer = served(delta=False)
    put(peer.bench, "eds", "a", "2")
    peer.poll()
    put(peer.bench, "eds", "b", "1")
    peer.ask("eds a b")
    peer.bench.now = 101
    peer.poll()
    peer.ask(f"eds ack@{len(peer.heard[ENDPOINT])}")
    assert at(peer, 6) == ["a~10 b~10"]


def test_a_client_that_never_answers_leaves_nothing_behind():
    # TTL-2
    bench = Bench()
    peer = connect(bench, delta=True)
    for number in range(200):
        put(bench, "eds", f"n{number}", "1")
        ask(peer, "eds", f"n{number}")
        peer.poll()
        peer.ask(f"eds -n{number}")
        peer.poll()
    assert not peer.session("eds").ttl


# -- the schedule


def test_only_what_is_due_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    # TTL-2: a thousand resources whose time has not come cost nothing
    bench = Bench()
    peer = connect(bench, delta=True)
    for number in range(1000):
        put(bench, "eds", f"n{number}", "1", 1000)
    put(bench, "eds", "a", "1")
    ask(peer, "eds", "a", *(f"n{number}" for number in range(1000)))
    peer.poll()
    peer.ask("ack")
    peer.poll()
    looked: list[Slot] = []
    take = Heartbeats.take

    def counted(beats: Heartbeats, now: float) -> list[TimedResource]:
        found = take(beats, now)
        looked.extend(life.slot for life in found)
        return found

    monkeypatch.setattr(Heartbeats, "take", counted)
    for beat in range(1, 11):
        assert at(peer, 5 * beat) == ["a~10"]
        peer.ask("ack")
    assert looked == [SLOT] * 10


def test_updates_before_a_heartbeat_do_not_pile_up_timers():
    # TTL-2
    beats = Heartbeats()
    for number in range(1, 10_000):
        slot = SLOT if number > 1 else (False, "the next that is due", TRUE)
        beats.sent(slot, number)
        beats.accepted(slot, make_variant(RUNTIME, slot[1], b"", ttl=1e5), number, float(number))
    assert beats._timers.entries <= STALE + 4  # noqa: SLF001 # timers that pile up cost memory, and nobody sees them


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["send", "ack", "nack", "lose", "forget", "wait"])),
        max_size=60,
    )
)
def test_nothing_is_given_back_early_or_while_it_is_in_flight(steps: list[tuple[str, str]]):
    # TTL-2
    beats, now, number = Heartbeats(), 0.0, 0
    flying: dict[str, list[int]] = {name: [] for name in "abc"}
    variants = {name: make_variant(RUNTIME, name, b"", ttl=10.0) for name in "abc"}
    for name, step in steps:
        slot: Slot = (False, name, TRUE)
        if step == "send":
            number += 1
            beats.sent(slot, number)
            flying[name].append(number)
        elif step == "wait":
            now += 1
            for life in beats.take(now):
                assert not flying[life.slot[1]]
                assert now >= life.told_at + (0.5 - GRACE) * 10
                number += 1
                beats.sent(life.slot, number)
                flying[life.slot[1]].append(number)
        elif step == "forget":
            beats.forget(slot)
            flying[name] = []
        elif flying[name]:
            judged = flying[name].pop(0)
            if step == "ack":
                beats.accepted(slot, variants[name], judged, now)
            else:
                beats.rejected(slot, judged, lost=step == "lose")
        assert beats.deadline is None or beats.deadline >= 5
    for name in [name for name in "abc" if flying[name]]:
        assert (False, name, TRUE) in beats


# -- on the wire


def timed(*, when: str = "true") -> Variant:
    return make_variant(ENDPOINT, "a", b"1", parse(when), ttl=2.5)


def in_delta(**fields: tuple[Variant, ...]) -> pb.Resource:
    (found,) = pb.DeltaDiscoveryResponse.FromString(
        Encoder("").encode(Send(ENDPOINT, True, "1", "1", **fields))
    ).resources
    return found


def in_sotw(*, ttl: bool = False, **fields: tuple[Variant, ...]) -> Any:
    encoded = Encoder("").encode(Send(ENDPOINT, False, "1", "1", ttl=ttl, **fields))
    (found,) = pb.DiscoveryResponse.FromString(encoded).resources
    return found


def unwrapped(item: Any) -> pb.Resource:
    resource = pb.Resource()
    assert item.Unpack(resource)
    return resource


def test_a_resource_is_sent_with_its_time_to_live():
    # TTL-1, TTL-2
    plain, located = in_delta(plain=(timed(),)), in_delta(located=(timed(when="env=prod"),))
    assert plain == unwrapped(in_sotw(plain=(timed(),), ttl=True))
    assert located == unwrapped(in_sotw(located=(timed(when="env=prod"),), ttl=True))
    for each in (plain, located):
        assert each.ttl.ToTimedelta().total_seconds() == 2.5
        assert each.resource.value == b"1"
    assert (plain.name, located.resource_name.name) == ("a", "a")


def test_a_sotw_client_without_the_features_gets_neither_wrapper_nor_time():
    # TTL-1: a locator's resource is wrapped in any case, but without the time
    bare = in_sotw(plain=(timed(),))
    assert (bare.type_url, bare.value) == (ENDPOINT, b"1")
    assert not unwrapped(in_sotw(located=(timed(when="env=prod"),))).HasField("ttl")


def test_a_resource_without_a_ttl_is_not_wrapped():
    # TTL-1, TTL-3
    bare = in_sotw(plain=(make_variant(ENDPOINT, "a", b"1"),), ttl=True)
    assert (bare.type_url, bare.value) == (ENDPOINT, b"1")


@pytest.mark.parametrize("located", [False, True])
def test_a_delta_heartbeat_has_name_version_and_time_and_no_contents(located: bool):
    # TTL-2
    variant = timed(when="env=prod")
    fields = {"located_beats" if located else "beats": (variant,)}
    beat = in_delta(**fields)
    assert (beat.name or beat.resource_name.name, beat.version) == ("a", variant.version)
    assert beat.HasField("resource_name") == located
    assert beat.ttl.ToTimedelta().total_seconds() == 2.5
    assert not beat.HasField("resource")


def test_a_sotw_heartbeat_has_contents():
    # TTL-2: without, Envoy lets the time run out
    assert in_sotw(beats=(timed(),)) == in_sotw(plain=(timed(),), ttl=True)
    located = timed(when="env=prod")
    assert in_sotw(located_beats=(located,)) == in_sotw(located=(located,), ttl=True)


def test_v2_has_no_times_to_live():
    # TTL-1
    encoded = Encoder("", lambda _, body: body).encode(Send(ENDPOINT, True, "1", "1", (timed(),)))
    assert not pb.DeltaDiscoveryResponse.FromString(encoded).resources[0].HasField("ttl")
