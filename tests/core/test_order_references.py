"""Removals wait for what their referrers still need, in whichever order a client asks and answers (C11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations

import pytest

from tests.core.modes import both, connect
from tests.core.support import Bench, Peer, play
from xdsprism.core.model.events import Node
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.types import CLUSTER, LISTENER

ENVOY = ["cds +*", "lds +*"]


def start(mode: str, store: str, asks: Sequence[str], *, timeout: float = 5) -> Peer:
    """A client that has all it asked for, and said so. What its listeners were before needs no time to drain."""
    bench = Bench(Settings(ack_timeout=timeout, drain_time=0))
    bench.put(store)
    peer = connect(bench, mode)
    for ask in asks:
        peer.ask(ask)
        peer.poll()
        peer.ask("ack")
    peer.poll()
    return peer


def loses(peer: Peer, name: str = "old") -> bool:
    """Whether what is said now takes the cluster away."""
    return any(name in send.removed if send.delta else name not in send.names for send in told(peer))


def told(peer: Peer) -> list:
    return [send for send in peer.poll() if send.type_url == CLUSTER]


def orders(steps: Iterable[str]) -> list[tuple[str, ...]]:
    """All in which a client answers what it has asked for before."""
    asked = [order for order in permutations(steps) if order.index("rds +r") < order.index("rds ack")]
    assert len(asked) == 12
    return asked


# -- a listener moves to another route configuration


MOVES = {
    "inline": ("lds l=1>cds.old", "cds other=1"),
    "rds": ("lds l=1>rds.was; rds was=1>cds.old", "rds -was"),
    "rds, which stays": ("lds l=1>rds.was; rds was=1>cds.old", "rds was=2>cds.new"),
}


@both
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("order", orders(["cds ack", "lds ack", "rds +r", "rds ack"]), ids=" ".join)
def test_a_cluster_goes_when_the_new_route_configuration_has_been_asked_for_sent_and_acked(
    mode: str, move: str, order: tuple[str, ...]
):
    # ORD-2, ORD-3
    before, after = MOVES[move]
    held = "was " if "rds" in before else ""
    peer = start(mode, f"cds old=1; {before}", [*ENVOY, *(["rds +was"] if held else [])])
    peer.bench.put(f"cds -old new=1; lds l=2>rds.r; rds r=1>cds.new; {after}")
    assert not loses(peer)
    if "rds" in after:
        peer.ask("rds ack")
    answered: set[str] = set()
    for step in order:
        peer.ask(f"rds {held}r" if step == "rds +r" and mode == "sotw" else step)
        answered.add(step)
        gone = loses(peer)
        if "rds ack" in answered and "rds" in after and mode == "delta":
            peer.ask("rds ack")  # of the removal of what was there before
            gone = gone or loses(peer)
        assert gone == ({"lds ack", "rds ack"} <= answered and step in ("lds ack", "rds ack"))
    assert peer.stream.deadline() is None
    if mode == "sotw":
        assert "old" not in peer.heard[CLUSTER][-1].names


@both
def test_also_when_the_cluster_goes_in_a_later_change(mode: str):
    # ORD-2: the listener is acked, and nothing is under way
    peer = start(mode, "cds old=1 new=1; lds l=1>cds.old", ENVOY)
    peer.bench.put("lds l=2>rds.r; rds r=1>cds.new")
    assert peer.hears() == ["lds l=2>rds.r"]
    peer.ask("ack")
    peer.bench.put("cds -old")
    assert peer.hears() == []
    peer.ask("rds +r")
    assert peer.hears() == ["rds r=1>cds.new"]
    peer.ask("rds ack")
    assert loses(peer)


@both
def test_a_removal_waits_for_the_routes_that_a_client_lacks_of_an_unchanged_listener(mode: str):
    # ORD-2: nobody knows what the client goes on with
    peer = start(mode, "cds old=1 a=1; lds l=1>rds.r; rds r=1>cds.a", ENVOY)
    peer.bench.put("cds -old")
    assert peer.hears() == []
    peer.ask("rds +r")
    assert peer.hears() == ["rds r=1>cds.a"]
    peer.ask("ack")
    assert loses(peer)


def test_routes_that_come_by_name_are_followed_beside_a_wildcard_that_lists_none_of_them():
    # ORD-2
    store = "cds old=1 a=1; lds l=1>rds.r; rds r[env!=test]=1>cds.a"
    peer = start("delta", store, [*ENVOY, "rds +*{env=test}"])
    peer.bench.put("cds -old")
    assert peer.hears() == []
    peer.ask("rds +r")
    assert peer.hears() == ["rds r=1>cds.a"]
    peer.ask("ack")
    assert peer.hears() == ["cds -old"]


@both
def test_scopes_and_then_their_route_configuration_are_waited_for(mode: str):
    # ORD-2
    peer = start(mode, "cds old=1; lds l=1>cds.old", ENVOY)
    peer.bench.put("cds -old new=1; lds l=2>srds.*; srds s=1>rds.r; rds r=1>cds.new")
    assert not loses(peer)
    for step in ("ack", "srds +*", "srds ack", "rds +r"):
        peer.ask(step)
        assert not loses(peer)
    peer.ask("rds ack")
    assert loses(peer)


@both
def test_scopes_stay_until_the_listener_left_them(mode: str):
    # ORD-2
    peer = start(mode, "lds l=1>srds.*; srds s=1>rds.r t=1; rds r=1", ["lds +*", "srds +*", "rds +r"])
    peer.bench.put("lds l=2>rds.r; srds -s")
    assert peer.hears() == ["lds l=2>rds.r"]
    peer.ask("lds ack")
    assert peer.hears() == ["srds -s" if mode == "delta" else "srds t=1"]


@both
def test_a_filter_that_the_new_listener_needs_is_waited_for(mode: str):
    # ORD-2: Envoy goes on with the old listener until the configuration of the filter is there
    peer = start(mode, "cds old=1; lds l=1>cds.old", ENVOY)
    peer.bench.put("cds -old new=1; lds l=2>cds.new>ecds.f; ecds f=1")
    assert not loses(peer)
    peer.ask("ack")
    assert not loses(peer)
    peer.ask("ecds +f")
    assert not loses(peer)
    peer.ask("ecds ack")
    assert loses(peer)


def test_one_after_the_other_listener_route_configuration_and_cluster_go():
    # ORD-2, ORD-3
    play(
        """
        store cds c=1; lds l=1>rds.r; rds r=1>cds.c
        > cds +*
        > lds +*
        > rds +r
        < cds c=1
        < lds l=1>rds.r
        < rds r=1>cds.c

        > ack
        store cds -c; lds -l; rds -r
        < lds -l

        > lds ack
        < rds -r

        > rds ack
        < cds -c
        """,
        settings=Settings(drain_time=0),
    )


def test_a_cluster_waits_for_removals_of_routes_that_wait_themselves():
    # ORD-2, ORD-3: one step after the other, whatever each of them refers to
    peer = start("delta", "cds old=1 a=1; lds l=1>rds.r; rds r=1>cds.a", [*ENVOY, "rds +r"])
    peer.bench.put("cds -old; rds -r")
    assert peer.hears() == []
    peer.bench.put("lds l=2>cds.a")
    assert peer.hears() == ["lds l=2>cds.a"]
    peer.ask("lds ack")
    assert peer.hears() == ["rds -r"]
    peer.ask("rds ack")
    assert peer.hears() == ["cds -old"]


def test_a_cluster_does_not_wait_for_what_only_leaving_routes_refer_to():
    # ORD-2, ORD-3: a client by name has not asked for it so far, and has no reason to
    store = "cds old=1 other=1; lds l=1>rds.r; rds r=1>cds.old>cds.other"
    peer = start("delta", store, ["cds +old", "lds +l", "rds +r"])
    peer.bench.put("cds -old; rds -r; lds l=2")
    assert peer.hears() == ["lds l=2"]
    peer.ask("lds ack")
    assert peer.hears() == ["rds -r"]
    peer.ask("rds ack")
    assert peer.hears() == ["cds -old"]


# -- clusters that are named by others


@both
def test_a_cluster_goes_after_the_aggregate_that_left_it(mode: str):
    # ORD-2, ORD-3
    peer = start(mode, "cds all=1>cds.old>cds.a old=1 a=1; lds l=1>cds.all", ENVOY)
    peer.bench.put("cds -old all=2>cds.a")
    assert peer.hears() == ["cds all=2>cds.a" if mode == "delta" else "cds a=1 all=2>cds.a old=1"]
    peer.ask("cds ack")
    assert peer.hears() == ["cds -old" if mode == "delta" else "cds a=1 all=2>cds.a"]


@both
def test_an_aggregate_goes_before_its_parts(mode: str):
    # ORD-2
    peer = start(mode, "cds all=1>cds.old old=1 a=1", ENVOY[:1])
    peer.bench.put("cds -old -all")
    assert peer.hears() == ["cds -all" if mode == "delta" else "cds a=1 old=1"]
    peer.ask("cds ack")
    assert peer.hears() == ["cds -old" if mode == "delta" else "cds a=1"]


@pytest.mark.parametrize(
    ("mode", "referrer"),
    [("delta", "vhds"), *((mode, referrer) for mode in ("delta", "sotw") for referrer in ("lds", "rds", "srds"))],
)
def test_a_cluster_that_is_still_referred_to_goes_when_a_later_change_ends_that(mode: str, referrer: str):
    # ORD-2: whoever writes may write the two in either order; virtual hosts come in delta only
    peer = start(mode, f"cds old=1 a=1; {referrer} r=1>cds.old", ["cds +*", f"{referrer} +r"])
    peer.bench.put("cds -old")
    assert peer.hears() == []
    peer.bench.now += 4
    peer.bench.put(f"{referrer} r=2>cds.a")
    assert peer.hears() == [f"{referrer} r=2>cds.a"]
    peer.bench.now += 4
    peer.ask("ack")
    assert loses(peer)


@both
def test_a_cluster_that_stays_referred_to_goes_after_the_timeout(mode: str):
    # ORD-2: then it is meant
    peer = start(mode, "cds old=1 a=1; lds l=1>cds.old", ENVOY)
    peer.bench.put("cds -old")
    assert peer.hears() == []
    assert peer.stream.deadline() == peer.bench.now + 5
    peer.bench.now += 5
    assert loses(peer)
    assert peer.stream.deadline() is None


@both
def test_a_cluster_that_only_the_variant_of_another_client_refers_to_goes_at_once(mode: str):
    # ORD-2, DYN-28
    bench = Bench()
    bench.put("cds old=1 a=1; rds r[env=prod]=1>cds.old r[env=test]=1>cds.a")
    peer = connect(bench, mode, env="test")
    peer.ask("cds +*")
    peer.ask("rds +r")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -old")
    assert loses(peer)


# -- NACKs


@both
def test_a_nack_of_the_new_listener_holds_the_removal_until_a_good_one_is_in_use(mode: str):
    # ORD-4
    peer = start(mode, "cds old=1; lds l=1>cds.old", ENVOY)
    peer.bench.put("cds -old new=1; lds l=bad>rds.r; rds r=1>cds.new")
    assert not loses(peer)
    peer.ask("cds ack")
    peer.ask("lds nack")
    for _ in range(10):
        peer.bench.now += 5
        assert peer.hears() == []
    peer.bench.put("lds l=2>rds.r")
    assert not loses(peer)
    peer.ask("lds ack")
    assert not loses(peer)
    peer.ask("rds +r")
    assert not loses(peer)
    peer.ask("rds ack")
    assert loses(peer)


@both
def test_a_nack_of_the_new_routes_holds_the_removal_past_any_timeout(mode: str):
    # ORD-4
    peer = start(mode, "cds old=1; lds l=1>cds.old", ENVOY)
    peer.bench.put("cds -old new=1; lds l=2>rds.r; rds r=bad>cds.new")
    for step in ("ack", "rds +r"):
        assert not loses(peer)
        peer.ask(step)
    assert not loses(peer)
    peer.ask("rds nack")
    for _ in range(10):
        peer.bench.now += 5
        assert peer.hears() == []
    assert peer.stream.deadline() is None
    peer.bench.put("rds r=2>cds.new")
    assert not loses(peer)
    peer.ask("rds ack")
    assert loses(peer)


def test_a_listener_that_was_nacked_before_holds_a_later_removal():
    # ORD-4: the client still has the listener that it had, whatever it has accepted since
    peer = start("delta", "cds old=1; lds l=1>cds.old m=1", ENVOY)
    peer.bench.put("lds l=bad>cds.new; cds new=1")
    peer.poll()
    peer.ask("lds nack")
    peer.ask("cds ack")
    peer.bench.put("lds m=2")
    peer.poll()
    peer.ask("lds ack")
    peer.bench.put("cds -old")
    peer.bench.now += 60
    assert peer.hears() == []
    peer.bench.put("lds l=2>cds.new")
    peer.poll()
    peer.ask("lds ack")
    assert loses(peer)


# -- bounds


@both
def test_a_client_that_never_asks_holds_no_removal_for_longer_than_the_timeout(mode: str):
    # ORD-2
    peer = start(mode, "cds old=1; lds l=1>cds.old", ENVOY)
    peer.bench.put("cds -old new=1; lds l=2>rds.r; rds r=1>cds.new")
    assert not loses(peer)
    peer.ask("ack")
    assert not loses(peer)
    peer.bench.now += 4.5
    assert not loses(peer)
    peer.bench.now += 0.5
    assert loses(peer)
    assert peer.stream.deadline() is None


@both
def test_each_step_of_the_client_gives_it_the_timeout_again_but_not_for_ever(mode: str):
    # ORD-2
    steps = [f"r{number}" for number in range(12)]
    store = "; ".join(f"srds s{number}=1>rds.r{number}" for number in range(12))
    peer = start(mode, f"cds old=1; lds l=1>cds.old; {store}", [*ENVOY, "srds +*"])
    peer.bench.put("cds -old; lds l=2>srds.*; " + "; ".join(f"rds {name}=1" for name in steps))
    assert not loses(peer)
    peer.ask("ack")
    waited = 0
    for number in range(12):
        peer.bench.now += 4
        if loses(peer):
            break
        waited += 4
        peer.ask("rds " + " ".join(f"+{name}" for name in steps[: number + 1]))
        peer.poll()
        peer.ask("rds ack")
    assert 4 * 8 <= waited < 5 * 8


@both
def test_a_listener_that_gets_its_routes_elsewhere_holds_nothing(mode: str):
    # ORD-2: a reference to another source is none (test_references.py)
    peer = start(mode, "cds old=1 a=1; lds l=1>cds.old", ENVOY)
    peer.bench.put("cds -old; lds l=2")
    assert not loses(peer)
    peer.ask("lds ack")
    assert loses(peer)


@both
def test_a_stream_of_clusters_alone_waits_for_nobody(mode: str):
    # ORD-10
    bench = Bench()
    bench.put("cds old=1 a=1; lds l=1>cds.old")
    clusters, listeners = connect(bench, mode, CLUSTER), connect(bench, mode, LISTENER)
    clusters.ask("cds +*")
    listeners.ask("lds +*")
    for peer in (clusters, listeners):
        peer.poll()
        peer.ask("ack")
    bench.put("cds -old; lds l=2>rds.r; rds r=1>cds.a")
    assert loses(clusters)


# -- clients that ask for everything by name, as gRPC does


def grpc(store: str) -> Peer:
    bench = Bench(Settings(ack_timeout=5))
    bench.put(store)
    peer = bench.connect(Node("grpc", user_agent="grpc-c++"), delta=False)
    for ask in ("lds l", "rds was", "cds old", "eds old"):
        peer.ask(ask)
        peer.poll()
        peer.ask("ack")
    return peer


STORE = "cds old=1 new=1; eds old=1 new=1; lds l=1>rds.was; rds was=1>cds.old"


@pytest.mark.parametrize("change", ["lds l=2>rds.r; rds -was r=1>cds.new", "rds was=2>cds.new"])
@pytest.mark.parametrize("acks", ["at once", "late"])
def test_a_client_that_asks_by_name_keeps_its_cluster_until_it_has_all_of_the_new_ones(change: str, acks: str):
    # ORD-2
    peer = grpc(STORE)
    peer.bench.put(f"cds -old; eds -old; {change}")
    assert not loses(peer)
    steps = ["ack", "rds r", "ack", "cds old new", "ack", "eds old new", "ack"]
    if "lds" not in change:
        del steps[1:3]
    for step in steps:
        peer.bench.now += 4 if acks == "late" else 0
        peer.ask(step)
        assert not loses(peer)
    assert set(peer.heard[CLUSTER][-1].names) == {"old", "new"}
    peer.ask("cds new")
    peer.bench.now += 60
    assert told(peer) == [], "it has unsubscribed, and need not be told"
    assert peer.stream.deadline() is None


@pytest.mark.parametrize("steps", [[], ["ack"], ["ack", "rds r"], ["ack", "rds r", "ack", "cds old new", "ack"]])
def test_a_client_that_asks_by_name_and_stops_is_waited_for_no_longer_than_the_timeout(steps: list[str]):
    # ORD-2
    peer = grpc(STORE)
    peer.bench.put("cds -old; lds l=2>rds.r; rds -was r=1>cds.new")
    assert not loses(peer)
    for step in steps:
        peer.ask(step)
        assert not loses(peer)
    peer.bench.now += 4
    assert not loses(peer)
    peer.bench.now += 1
    assert loses(peer)
    assert peer.stream.deadline() is None


def test_a_cluster_that_is_still_subscribed_and_named_by_accepted_routes_stays_while_the_new_ones_are_nacked():
    # ORD-4
    peer = grpc(STORE)
    peer.bench.put("cds -old; lds l=2>rds.r; rds r=bad>cds.new")
    for step in ("ack", "rds was r", "rds nack"):
        assert not loses(peer)
        peer.ask(step)
    for _ in range(10):
        peer.bench.now += 5
        assert not loses(peer)


# -- configurations of filters


def test_the_configuration_of_a_filter_goes_when_the_listener_has_left_it():
    # ORD-12
    play(
        """
        store lds l=1>ecds.f; ecds f=1
        > lds +*
        > ecds +f
        < lds l=1>ecds.f
        < ecds f=1

        > ack
        store ecds -f; lds l=2
        < lds l=2

        > lds ack
        < ecds -f
        """,
        settings=Settings(drain_time=0),
    )


@pytest.mark.parametrize("referrer", ["lds", "rds", "vhds"])
def test_the_configuration_of_a_filter_stays_as_long_as_something_refers_to_it(referrer: str):
    # ORD-12: Envoy answers 5xx without it
    peer = start("delta", f"{referrer} x=1>ecds.f; ecds f=1 g=1", [f"{referrer} +x", "ecds +f +g"])
    peer.bench.put("ecds -f -g")
    assert peer.hears() == ["ecds -g"]
    for _ in range(10):
        peer.bench.now += 5
        assert peer.hears() == []
    assert peer.stream.deadline() is None
    peer.bench.put(f"{referrer} x=2")
    assert peer.hears() == [f"{referrer} x=2"]
    peer.ask("ack")
    assert peer.hears() == ["ecds -f"]


def test_the_configuration_of_a_filter_goes_with_its_listener():
    # ORD-12
    peer = start("delta", "lds l=1>ecds.f; ecds f=1", ["lds +*", "ecds +f"])
    peer.bench.put("lds -l; ecds -f")
    assert peer.hears() == ["lds -l"]
    peer.ask("lds ack")
    assert peer.hears() == ["ecds -f"]
