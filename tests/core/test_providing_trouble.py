"""Providers that fail, the results that are kept, and which functions may be providers (DESIGN 5)."""

from __future__ import annotations

import pytest

from tests.core.making import MadeBench, Source, hears, never, tier
from xdsprism.core.model.facts import Ambiguous, Consulted
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import CLUSTER, ENDPOINT, VIRTUAL_HOST, Params
from xdsprism.core.provide.provider import Provider, ProviderJob
from xdsprism.core.provide.providing import CEILING, Providing
from xdsprism.errors import UsageError

# -- what goes wrong


# ERR-1
def test_failure_is_told_as_an_error_of_the_resource_and_is_no_absence():
    source = Source()
    source.error = "the database is down"
    bench = MadeBench(source, "env")
    located, plain = bench.delta(env="test"), bench.delta(env="test")
    located.ask("cds +a{env=prod}")
    plain.ask("cds +a")
    bench.run()
    (send,) = located.poll()
    (error,) = send.errors
    assert (error.about.name, error.code) == ("a", 14)
    assert error.message == "provider p failed: the database is down"
    assert not send.withdrawn
    assert plain.poll() == []
    source.error = ""
    bench.wait(1.0)
    assert located.hears() == ["cds a[env exists or not env exists]=1"]
    assert plain.hears() == ["cds a=1"]


# ERR-3
def test_failure_is_told_once_though_something_else_of_the_name_changes():
    def make(_: str, params: Params) -> str:
        if params["env"] == "prod":
            raise RuntimeError("down")
        return "basic"

    bench = MadeBench(make, "env")
    failing, other = bench.delta(), bench.delta()
    failing.ask("cds +a{env=prod}")
    bench.run()
    assert [len(send.errors) for send in failing.poll()] == [1]
    other.ask("cds +a{env=test}")
    assert hears(bench, other) == ["cds a[env!=prod]=basic"]
    assert failing.poll() == []


def test_failure_is_tried_again_ever_more_slowly_as_long_as_somebody_wants_it():
    source = Source()
    source.error = "down"
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a")
    bench.run()
    waits = []
    for _ in range(12):
        due = bench.providing.deadline()
        waits.append(due - bench.now)
        bench.wait(waits[-1])
    assert waits[0] == 1.0
    assert waits == sorted(waits)
    assert waits[-1] == CEILING
    assert len(bench.made) == 13
    peer.ask("cds -a")
    bench.wait(2 * CEILING)
    assert len(bench.made) == 13
    assert bench.providing.deadline() is None


def test_failing_again_keeps_what_clients_have():
    source = Source("1")
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a")
    hears(bench, peer)
    source.error = "down"
    bench.providing.invalidate(CLUSTER, "a")
    assert hears(bench, peer) == []
    assert bench.store.table(CLUSTER).select("a", Params()).body == b"1"
    source.error, source.answer = "", "2"
    bench.wait(1.0)
    assert peer.hears() == ["cds a=2"]


def test_invalidating_tries_at_once_what_failed():
    source = Source()
    source.error = "down"
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a")
    bench.run()
    source.error = ""
    bench.providing.invalidate(CLUSTER, "a")
    assert hears(bench, peer) == ["cds a=1"]


def test_failure_from_before_the_invalidation_does_not_count():
    source = Source()
    source.error = "down"
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a{}")
    (job,) = bench.turn()
    bench.providing.invalidate(CLUSTER, "a")
    bench.end(job)
    source.error = ""
    assert hears(bench, peer) == ["cds a[]=1"]


def test_a_repeated_failure_and_a_repeated_success_are_no_news():
    source = Source()
    source.error = "down"
    bench = MadeBench(source)
    bench.delta().ask("cds +a")
    bench.run()
    bench.wait(2)
    source.error = "on fire"
    bench.wait(4)
    source.error = ""
    bench.wait(8)
    bench.providing.invalidate(CLUSTER, "a")
    bench.run()
    said = [(fact.result, fact.error, fact.news) for fact in bench.said(Consulted)]
    assert said == [
        ("failed", "down", True),
        ("failed", "down", False),
        ("failed", "on fire", True),
        ("found", "", True),
        ("found", "", False),
    ]


def test_call_that_was_cut_off_is_made_again():
    bench = MadeBench(Source())
    peer = bench.delta()
    peer.ask("cds +a")
    (job,) = bench.turn()
    bench.jobs.clear()
    bench.providing.dropped(job)
    assert hears(bench, peer) == ["cds a=1"]


# DYN-45
def test_of_two_answers_of_a_provider_that_overlap_the_later_counts():
    def by_env(_: str, params: Params) -> str:
        return "x" if params["env"] == "x" else "not x"

    def by_pod(_: str, params: Params) -> str:
        return f"pod {params['pod']}"

    def for_all(_: str, params: Params) -> str:
        return "all"

    bench = MadeBench(by_env, "env", "pod")
    one, two = bench.delta(), bench.delta()
    one.ask("cds +a{env=1,pod=1}")
    bench.run()
    bench.make = by_pod
    bench.providing.invalidate(CLUSTER, "a")
    bench.run()
    assert bench.said(Ambiguous) == []  # what was invalidated contradicts nothing
    bench.make = for_all
    two.ask("cds +a{env=2,pod=2}")
    bench.run()
    assert bench.store.table(CLUSTER).select("a", Params({"env": "1", "pod": "1"})).body == b"all"
    (fact,) = bench.said(Ambiguous)
    assert fact.first
    assert fact.other.endswith("pod=1")
    bench.make = by_pod
    bench.providing.invalidate(CLUSTER, "a")
    (first, second) = bench.turn()
    bench.end(first)
    bench.make = for_all
    bench.end(second)
    bench.turn()
    assert [fact.first for fact in bench.said(Ambiguous)] == [True, False]


# -- what is kept


def test_answers_that_no_client_subscribes_to_are_kept_up_to_a_limit():
    bench = MadeBench(tier, "env", idle=2)
    peer = bench.delta()
    for name in ("a", "b", "no", "c"):
        peer.ask(f"cds +{name}")
        hears(bench, peer)
        if name != "b":
            peer.ask(f"cds -{name}")
            bench.run()
    assert [name for name, _ in bench.store.table(CLUSTER)] == ["b", "no", "c"]
    bench.made.clear()
    peer.ask("cds +no +c +a")
    assert hears(bench, peer) == ["cds -no a=basic c=basic"]
    assert bench.made == [("a", {})]


def test_unwanted_variants_of_a_wanted_name_count_towards_the_limit():
    bench = MadeBench(lambda name, params: str(params["pod"]), "pod", idle=3)
    for pod in range(10):
        peer = bench.delta()
        peer.ask(f"cds +a{{pod={pod}}}")
        assert hears(bench, peer) == [f"cds a[pod={pod}]={pod}"]
        if pod:
            peer.close()
    bench.run()
    known = bench.store.named(CLUSTER, "a")
    assert sorted(variant.body for variant in known.variants) == [b"0", b"7", b"8", b"9"]


def test_invalidating_an_unwanted_name_removes_it():
    bench = MadeBench(tier, "env")
    peer = bench.delta()
    peer.ask("cds +a +no")
    hears(bench, peer)
    peer.close()
    bench.run()
    assert len(bench.store.table(CLUSTER)) == 2
    bench.providing.invalidate(CLUSTER)
    bench.run()
    assert len(bench.store.table(CLUSTER)) == 0
    assert bench.made == [("a", {}), ("no", {})]


def test_the_answer_of_a_call_that_ends_after_the_last_client_left_is_kept():
    bench = MadeBench(tier, "env")
    peer = bench.delta()
    peer.ask("cds +a")
    bench.turn()
    peer.close()
    bench.run()
    other = bench.delta()
    other.ask("cds +a")
    assert hears(bench, other) == ["cds a=basic"]
    assert len(bench.made) == 1


# DLT-13
def test_client_that_comes_back_with_what_is_made_again_is_not_sent_it():
    bench = MadeBench(Source("1"))
    same, other = bench.delta(), bench.delta()
    same.ask("cds +a have a=1")
    other.ask("cds +a have a=0")
    assert hears(bench, same) == []
    assert hears(bench, other) == ["cds a=1"]


# -- registering


def test_one_provider_is_enough_for_a_type():
    bench = MadeBench(tier, "env")
    with pytest.raises(UsageError, match="provider q: provider p makes resources of this type; give each type one"):
        bench.providing.add(Provider(CLUSTER, never, (), "provider q"))
    bench.providing.add(Provider(ENDPOINT, never, (), "provider q"))


def test_provider_comes_before_the_server():
    providing = Providing(Store())
    providing.awake.append(lambda: None)
    with pytest.raises(UsageError, match="before the server is made"):
        providing.add(Provider(CLUSTER, never, (), "provider q"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"keys": ("a", "a")}, "distinct names"),
        ({"keys": ("",)}, "names of parameters"),
        ({"timeout": 0}, "seconds"),
        ({"ttl": -1.0}, "seconds"),
        ({"at_once": 0}, "at least 1"),
    ],
)
def test_a_provider_with_unusable_settings_is_refused(options: dict[str, object], text: str):
    with pytest.raises(UsageError, match=text):
        Provider(CLUSTER, never, **options)


def test_invalidating_without_a_provider_is_refused():
    with pytest.raises(UsageError, match="no provider of envoy"):
        Providing(Store()).invalidate(CLUSTER, "a")


def test_type_with_a_provider_stays_one_when_its_table_is_forgotten():
    bench = MadeBench(tier, "env")
    bench.store.discard(CLUSTER)
    assert not bench.store.table(CLUSTER).authoritative
    assert bench.store.table(ENDPOINT).authoritative


@pytest.mark.parametrize(
    ("type_url", "inner", "name"),
    [
        (CLUSTER, None, "rc/a"),
        (CLUSTER, "rc/a", "rc/a"),
        (CLUSTER, "rc/b", "must have this name"),
        (VIRTUAL_HOST, "rc/b", "rc/b"),  # VHD-4
        (VIRTUAL_HOST, "other/a", "must have a name that begins with 'rc/'"),
        (VIRTUAL_HOST, "a", "must have a name that begins with 'rc/'"),
    ],
)
def test_a_made_resource_must_have_the_requested_name(type_url: str, inner: str | None, name: str):
    bench = MadeBench(tier, type_url=type_url)
    job = ProviderJob(bench.provider, "rc/a", Params())
    if name.startswith("rc/"):
        assert bench.providing.name_for(job, inner) == name
    else:
        with pytest.raises(UsageError, match=name):
            bench.providing.name_for(job, inner)


def test_explanation_leaves_out_what_is_out_of_date():
    bench = MadeBench(lambda name, params: "all", "env")
    bench.delta().ask("cds +a{env=prod}")
    bench.run()
    bench.make = tier
    bench.providing.invalidate(CLUSTER, "a")
    bench.delta().ask("cds +a{env=test}")
    jobs = bench.turn()
    bench.end(jobs[0])
    bench.turn()
    known = bench.store.named(CLUSTER, "a")
    assert len(known.variants) == 2
    told = known.explain({"env": "prod"})
    assert (told.chosen.body, told.refused) == (b"gold", ())
    assert known.member({"env": "prod"}) is None


# -- virtual hosts


# VHD-3, VHD-6
def test_host_is_asked_for_in_lower_case_and_found_as_it_was_asked_for():
    bench = MadeBench(Source("1"), type_url=VIRTUAL_HOST)
    peer = bench.delta()
    peer.ask("vhds +rc/Shop.example.com +rc/shop.example.com +rc/shop.example.com:80")
    bench.run()
    assert bench.made == [("rc/shop.example.com", {}), ("rc/shop.example.com:80", {})]
    (send,) = peer.poll()
    assert sorted(variant.name for variant in send.plain) == ["rc/shop.example.com", "rc/shop.example.com:80"]


# VHD-6, VHD-7
def test_an_unknown_host_in_upper_case_is_answered():
    bench = MadeBench(Source(None), type_url=VIRTUAL_HOST)
    peer = bench.delta()
    peer.ask("vhds +rc/Nobody")
    bench.turn()
    assert peer.poll() == []
    bench.run()
    (send,) = peer.poll()
    assert send.unresolved == ("rc/Nobody",)


# VHD-19
def test_host_that_can_not_be_made_is_unresolved_until_it_is():
    source = Source("1")
    source.error = "down"
    bench = MadeBench(source, type_url=VIRTUAL_HOST, settings=Settings())
    peer = bench.delta()
    peer.ask("vhds +rc/a")
    bench.turn()
    assert peer.poll() == []
    bench.run()
    (send,) = peer.poll()
    assert send.unresolved == ("rc/a",)
    source.error = ""
    bench.wait(1)
    assert peer.hears() == ["vhds rc/a=1"]
