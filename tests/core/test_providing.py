"""Resources made on demand: which provider is called, how often, and what clients are sent (DESIGN 5)."""

from __future__ import annotations

from tests.core.making import MadeBench, Source, hears, tier
from xdsprism.core.model.types import CLUSTER, Params

# -- asking


# DYN-33, DYN-18
def test_one_name_has_the_variants_that_the_provider_tells_apart():
    bench = MadeBench(tier, "env")
    one, two = bench.delta(), bench.delta()
    one.ask("cds +a{env=prod,pod=1}")
    two.ask("cds +a{env=test,pod=2} +no{env=test}")
    assert hears(bench, one) == ["cds a[env=prod]=gold"]
    assert hears(bench, two) == ["cds -no[env exists or not env exists] a[env!=prod]=basic"]


def test_a_client_hears_nothing_before_the_provider_has_answered():
    # VHD-19
    bench = MadeBench(tier, "env")
    peers = [bench.delta(), bench.sotw()]
    for peer, wish in zip(peers, ("cds +a", "cds a"), strict=True):
        peer.ask(wish)
    bench.turn()
    assert [peer.hears() for peer in peers] == [[], []]
    assert [hears(bench, peer) for peer in peers] == [["cds a=basic"], ["cds a=basic"]]


def test_clients_of_one_class_cause_one_call():
    bench = MadeBench(tier, "env")
    for pod in range(50):
        bench.delta().ask(f"cds +a{{env=prod,pod={pod}}}")
    bench.run()
    assert bench.made == [("a", {"env": "prod"})]


def test_a_later_client_gets_the_known_answer_without_another_call():
    bench = MadeBench(tier, "env")
    for env in ("test", "qa", "prod"):
        peer = bench.delta()
        peer.ask(f"cds +a{{env={env}}} +no{{env={env}}}")
        assert len(hears(bench, peer)) == 1
    assert bench.made == [("a", {"env": "test"}), ("no", {"env": "test"}), ("a", {"env": "prod"})]


def test_params_that_the_provider_did_not_declare_are_not_given_to_it():
    bench = MadeBench(lambda name, params: ",".join(params), "env", "version")
    peer = bench.delta()
    peer.ask("cds +a{env=x,zone=y}")
    assert hears(bench, peer) == ["cds a[env exists and not version exists]=env"]


# DLT-4
def test_name_that_does_not_exist_is_answered_and_remembered():
    bench = MadeBench(tier, "env")
    one, two = bench.delta(), bench.delta()
    one.ask("cds +none")
    assert hears(bench, one) == ["cds -none"]
    two.ask("cds +none")
    assert hears(bench, two) == ["cds -none"]
    assert len(bench.made) == 1


# WLD-1
def test_wildcard_lists_what_is_written_down_and_does_not_ask():
    bench = MadeBench(tier, "env")
    bench.put("cds static=1")
    one, all_of_them = bench.delta(), bench.delta()
    all_of_them.ask("cds +*")
    assert hears(bench, all_of_them) == ["cds static=1"]
    one.ask("cds +a")
    assert hears(bench, one) == ["cds a=basic"]
    assert hears(bench, all_of_them) == []
    assert bench.made == [("a", {})]


def test_number_of_calls_at_one_time_is_limited():
    bench = MadeBench(tier, "env", at_once=2)
    peer = bench.delta()
    peer.ask("cds " + " ".join(f"+c{number}" for number in range(5)))
    assert len(bench.turn()) == 2
    assert bench.turn() == []
    bench.end(bench.jobs[0])
    assert len(bench.turn()) == 1
    bench.run()
    assert len(bench.made) == 5


def test_a_queued_call_that_no_client_needs_any_more_is_dropped():
    bench = MadeBench(tier, "env", at_once=1)
    peer = bench.delta()
    peer.ask("cds +a +b +c{env=test} +c{env=qa}")
    bench.turn()
    peer.ask("cds -b")
    bench.run()
    assert bench.made == [("a", {}), ("c", {"env": "test"})]
    assert bench.store.named(CLUSTER, "b") is None


# -- what changes


def test_invalidating_asks_again_and_clients_keep_what_they_have_meanwhile():
    source = Source("1")
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a{}")
    assert hears(bench, peer) == ["cds a[]=1"]
    source.answer = "2"
    bench.providing.invalidate(CLUSTER, "a")
    bench.turn()
    assert peer.hears() == []
    assert hears(bench, peer) == ["cds a[]=2"]
    assert len(bench.made) == 2


def test_invalidating_what_says_the_same_again_tells_nobody():
    for answer in ("1", None):
        bench = MadeBench(Source(answer))
        peer = bench.delta()
        peer.ask("cds +a")
        assert len(hears(bench, peer)) == 1
        bench.providing.invalidate(CLUSTER, "a")
        assert hears(bench, peer) == []
        assert len(bench.made) == 2


def test_invalidating_a_type_is_about_all_that_was_made():
    source = Source()
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a +b")
    hears(bench, peer)
    source.answer = "2"
    bench.providing.invalidate(CLUSTER)
    assert hears(bench, peer) == ["cds a=2 b=2"]


def test_a_resource_that_a_provider_makes_or_drops_later_is_sent_or_removed():
    source = Source(None)
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a{}")
    assert hears(bench, peer) == ["cds -a[]"]
    source.answer = "1"
    bench.providing.invalidate(CLUSTER, "a")
    assert hears(bench, peer) == ["cds a[]=1"]
    source.answer = None
    bench.providing.invalidate(CLUSTER, "a")
    assert hears(bench, peer) == ["cds -a[]"]


# DYN-24, DYN-35
def test_other_variants_replace_the_old_ones_in_one_response():
    bench = MadeBench(lambda name, params: "all", "env")
    peer = bench.delta()
    peer.ask("cds +a{env=prod}")
    assert hears(bench, peer) == ["cds a[env exists or not env exists]=all"]
    bench.make = tier
    bench.providing.invalidate(CLUSTER, "a")
    assert hears(bench, peer) == ["cds -a[env exists or not env exists] a[env=prod]=gold"]


def test_answer_to_a_question_from_before_the_invalidation_does_not_stand():
    source = Source("old")
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a{}")
    (job,) = bench.turn()
    bench.providing.invalidate(CLUSTER, "a")
    assert bench.turn() == []  # one at a time
    bench.end(job)
    bench.turn()
    assert peer.hears() == ["cds a[]=old"]  # better than nothing
    source.answer = "new"
    assert hears(bench, peer) == ["cds a[]=new"]


def test_absence_from_before_the_invalidation_is_not_told():
    source = Source(None)
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a{}")
    (job,) = bench.turn()
    bench.providing.invalidate(CLUSTER, "a")
    bench.end(job)
    source.answer = "1"
    bench.turn()
    assert peer.hears() == []
    assert hears(bench, peer) == ["cds a[]=1"]


def test_result_is_good_for_its_time():
    source = Source("1")
    bench = MadeBench(source, ttl=10.0)
    peer = bench.delta()
    peer.ask("cds +a +b")
    assert hears(bench, peer) == ["cds a=1 b=1"]
    assert bench.providing.deadline() == bench.now + 10
    source.answer = "2"
    bench.wait(9)
    assert peer.hears() == []
    peer.ask("cds -b")
    bench.wait(1)
    assert peer.hears() == ["cds a=2"]
    assert bench.store.named(CLUSTER, "b") is None
    assert bench.made == [("a", {}), ("b", {}), ("a", {})]


def test_absence_is_good_for_its_time_too():
    source = Source(None)
    bench = MadeBench(source, ttl=10.0)
    peer = bench.delta()
    peer.ask("cds +a")
    assert hears(bench, peer) == ["cds -a"]
    source.answer = "1"
    bench.wait(10)
    assert peer.hears() == ["cds a=1"]


def test_time_of_one_variant_is_not_that_of_the_others():
    bench = MadeBench(tier, "env", ttl=10.0)
    one, two = bench.delta(), bench.delta()
    one.ask("cds +a{env=prod}")
    bench.run()
    bench.wait(5)
    two.ask("cds +a{env=test}")
    bench.run()
    bench.made.clear()
    bench.wait(5)
    assert bench.made == [("a", {"env": "prod"})]
    bench.wait(5)
    assert bench.made == [("a", {"env": "prod"}), ("a", {"env": "test"})]


def test_time_of_what_is_not_kept_any_more_passes_unnoticed():
    bench = MadeBench(tier, "env", ttl=10.0, idle=0)
    peer = bench.delta()
    peer.ask("cds +a")
    hears(bench, peer)
    peer.close()
    bench.run()
    assert len(bench.store.table(CLUSTER)) == 0
    bench.wait(10)
    assert len(bench.made) == 1


# -- what is written down


def test_a_resource_in_the_store_comes_before_the_provider():
    bench = MadeBench(tier, "env")
    bench.put("cds a=static")
    peer = bench.delta()
    peer.ask("cds +a")
    assert hears(bench, peer) == ["cds a=static"]
    assert bench.made == []


def test_a_resource_put_over_a_made_one_replaces_it_until_it_is_removed():
    source = Source("1")
    bench = MadeBench(source)
    peer = bench.delta()
    peer.ask("cds +a{}")
    assert hears(bench, peer) == ["cds a[]=1"]
    bench.put("cds a=static")
    assert hears(bench, peer) == ["cds a[]=static"]
    source.answer = "2"
    bench.put("cds -a")
    assert hears(bench, peer) == ["cds a[]=2"]
    assert len(bench.made) == 2


def test_writing_down_what_was_made_already_is_a_change_all_the_same():
    bench = MadeBench(Source("1"))
    peer = bench.delta()
    peer.ask("cds +a{}")
    assert hears(bench, peer) == ["cds a[]=1"]
    assert bench.put("cds a=1").changes
    assert hears(bench, peer) == []  # but not to the client
    assert not bench.store.named(CLUSTER, "a").made


def test_alias_that_is_written_down_comes_first():
    bench = MadeBench(Source("made"))
    peer = bench.delta()
    peer.ask("cds +x")
    assert hears(bench, peer) == ["cds x=made"]
    bench.put("cds a(x)=static")
    assert hears(bench, peer) == ["cds -x a(x)=static"]
    assert bench.store.named(CLUSTER, "x") is None


def test_deleting_what_only_a_provider_has_changes_nothing():
    bench = MadeBench(Source("1"))
    peer = bench.delta()
    peer.ask("cds +a")
    hears(bench, peer)
    assert bench.put("cds -a").changes == ()
    assert hears(bench, peer) == []


def test_answer_that_comes_after_something_was_written_down_is_not_used():
    bench = MadeBench(Source("made"))
    peer = bench.delta()
    peer.ask("cds +a")
    bench.turn()
    bench.put("cds a=static")
    assert hears(bench, peer) == ["cds a=static"]
    assert bench.store.table(CLUSTER).select("a", Params()).body == b"static"
