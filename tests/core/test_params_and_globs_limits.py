"""How many different params, and how many globs, the subscriptions of one stream may have (DYN-46)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench
from xdsprism import Limits
from xdsprism.core.model.facts import SubscriptionsRefused
from xdsprism.core.model.settings import Settings
from xdsprism.core.session.session import Session

BASE = "xdstp://auth/envoy.config.cluster.v3.Cluster"
both = pytest.mark.parametrize("mode", ["delta", "sotw"])


def limited(**limits: int) -> Bench:
    return Bench(Settings(limits=Limits(**limits)))


def refused(bench: Bench) -> dict[str, int]:
    return {fact.limit: fact.count for fact in bench.facts if isinstance(fact, SubscriptionsRefused)}


def counted(session: Session) -> tuple[int, int]:
    """The different params and the globs that the budget of the stream counts."""
    budget = session.context.budget
    return budget.param_sets, budget.globs


@both
def test_locators_share_a_set_of_params_and_one_set_too_many_is_refused_by_itself(mode: str):
    # DYN-46
    bench = limited(param_sets=2)
    bench.put("cds a[env=1]=1 a[env=2]=2 a[env=3]=3 b=1 c=1")
    peer = bench.delta() if mode == "delta" else bench.sotw()
    plus = "+" if mode == "delta" else ""
    peer.ask(f"cds {plus}a{{env=1}} {plus}b{{env=1}} {plus}a{{env=2}} {plus}a{{env=3}} {plus}c {plus}b{{}}")
    heard = " ".join(peer.hears()).split()
    assert {"a[env=1]=1", "a[env=2]=2", "b[]=1", "c=1", "!a[]=INVALID_ARGUMENT"} <= {*heard}
    assert "a[env=3]=3" not in heard
    assert refused(bench) == {"param_sets": 1}
    assert counted(peer.session("cds")) == (2, 0)
    assert peer.stream.context.budget.refused == {"param_sets": 1}


def test_the_answer_says_which_limit_it_is():
    # DYN-46, OPS-3
    bench = limited(param_sets=1)
    bench.put("cds a[env=1]=1 a[env=2]=2")
    peer = bench.delta()
    peer.ask("cds +a{env=1}")
    peer.poll()
    peer.ask("cds +a{env=2}")
    (send,) = peer.poll()
    (error,) = send.errors
    assert error.message == "there are 1 different sets of parameters on this stream, and no more are accepted"
    assert not send.located


@both
def test_a_set_of_params_that_nothing_has_any_more_makes_room(mode: str):
    # DYN-46
    bench = limited(param_sets=1)
    bench.put("cds a[env=1]=1 a[env=2]=2 b=1")
    peer = bench.delta() if mode == "delta" else bench.sotw()
    peer.ask("cds +a{env=1} +b{env=1}" if mode == "delta" else "cds a{env=1} b{env=1}")
    peer.poll()
    # One of the two that have the old params stays, so there is no room; once it goes, there is.
    peer.ask("cds -b{env=1} +a{env=2}" if mode == "delta" else "cds a{env=1} a{env=2}")
    assert refused(bench) == {"param_sets": 1}
    peer.poll()
    peer.ask("cds -a{env=1} +a{env=2}" if mode == "delta" else "cds a{env=2}")
    assert "a[env=2]=2" in peer.hears()[-1]
    assert counted(peer.session("cds")) == (1, 0)


def test_the_sets_of_all_types_on_a_stream_count_together():
    # DYN-46
    bench = limited(param_sets=1)
    bench.put("cds a=1; rds a=1")
    peer = bench.delta()
    peer.ask("cds +a{env=1}")
    peer.ask("rds +a{env=1}")
    peer.ask("rds +a{env=2}")
    assert refused(bench) == {"param_sets": 1}


def test_a_glob_too_many_is_refused_by_itself():
    # DYN-46, ERR-6
    bench = limited(globs=2)
    bench.put(f"cds {BASE}/a/x=1 {BASE}/b/x=1 {BASE}/c/x=1 d=1")
    peer = bench.delta()
    peer.ask(f"cds +{BASE}/a/* +{BASE}/b/* +{BASE}/c/* +d")
    heard = " ".join(peer.hears())
    assert f"{BASE}/a/x=1" in heard
    assert f"{BASE}/b/x=1" in heard
    assert f"{BASE}/c/x=1" not in heard
    assert f"-{BASE}/c/*" in heard
    assert "d=1" in heard
    assert refused(bench) == {"globs": 1}
    peer.ask("ack")
    peer.ask(f"cds -{BASE}/a/* +{BASE}/c/*")
    assert f"{BASE}/c/x=1" in " ".join(peer.hears())


@both
def test_wildcards_with_params_count_and_the_plain_one_needs_no_room(mode: str):
    # DYN-46
    bench = limited(globs=1)
    bench.put("cds a[env=1]=1 a[env=2]=2 a[env=3]=3")
    peer = bench.delta() if mode == "delta" else bench.sotw()
    plus = "+" if mode == "delta" else ""
    peer.ask(f"cds {plus}*{{env=1}} {plus}*{{env=2}} {plus}*")
    assert "a[env=1]=1" in peer.hears()[0]
    assert refused(bench) == {"globs": 1}
    assert counted(peer.session("cds")) == (1, 1)


@both
def test_nothing_is_counted_of_a_stream_that_has_closed_its_subscriptions(mode: str):
    # OPS-7
    bench = limited()
    bench.put("cds a=1")
    peer = bench.delta() if mode == "delta" else bench.sotw()
    plus = "+" if mode == "delta" else ""
    peer.ask(f"cds {plus}a{{env=1}} {plus}*{{env=1}} {plus}a")
    peer.poll()
    session = peer.session("cds")
    assert counted(session) == (1, 1)
    peer.ask("cds -a{env=1} -*{env=1} -a" if mode == "delta" else "cds none")
    assert counted(session) == (0, 0)
