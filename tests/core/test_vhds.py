"""Virtual hosts on demand (C8): who serves a host, what a client hears of it, and what Envoy would wait for in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.support import Bench, changeset, play
from xdsprism.core.model.events import DeltaRequest, Key, Node, Request
from xdsprism.core.model.facts import Forgotten
from xdsprism.core.model.hosts import without_port
from xdsprism.core.model.settings import Limits, Settings
from xdsprism.core.model.steps import finish
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import NO_PARAMS, ROUTE, VIRTUAL_HOST, Params
from xdsprism.errors import ConfigError

# -- who serves a host


def serving(hosts: str, asked: str, routes: str = "", params: Params = NO_PARAMS) -> str | None:
    store = Store()
    store.apply(changeset("; ".join(filter(None, [f"vhds {hosts}", routes]))))
    found = store.table(VIRTUAL_HOST).select(asked, params)
    return found.name if found is not None else None


def test_an_explanation_of_a_host_passes_over_what_comes_later_in_the_order():
    # For these params the virtual host of any host would match, too, but an exact domain comes first
    store = Store()
    store.apply(changeset("vhds rc/one<www.test>[env=prod]=1 rc/rest<*>=1"))
    known = store.table(VIRTUAL_HOST).get("rc/www.test")
    assert known is not None
    prod, test = (known.explain(Params({"env": env})) for env in ("prod", "test"))
    assert (prod.chosen.name if prod.chosen else None, prod.refused) == ("rc/one", ())
    assert [test.chosen.name if test.chosen else None, *(each.name for each, _ in test.refused)] == [
        "rc/rest",
        "rc/one",
    ]


ALL = "rc/exact<www.a.test>=1 rc/long<*.a.test>=1 rc/short<*.test>=1 rc/front<www.*>=1 rc/far<www.a.*>=1 rc/rest<*>=1"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("www.a.test", "exact"),
        ("b.a.test", "long"),
        ("x.y.a.test", "long"),
        ("www.b.test", "short"),  # a wildcard in front counts more than one at the end
        ("www.a.com", "far"),
        ("www.b.com", "front"),
        ("other", "rest"),
        (".test", "rest"),  # a wildcard stands for something
        ("www.", "rest"),
        ("WWW.A.Test", "exact"),
        ("www.a.test:8080", "far"),  # the port counts
    ],
)
def test_a_host_is_looked_up_in_envoys_order(host: str, name: str):
    # VHD-6
    assert serving(ALL, f"rc/{host}") == f"rc/{name}"


def test_a_host_of_another_route_configuration_is_no_match_and_names_may_have_slashes():
    # VHD-2
    assert serving("a/b/x<one.test>=1", "a/b/one.test") == "a/b/x"
    assert serving("a/b/x<one.test>=1", "b/one.test") is None
    assert serving("a/b/x<*>=1", "a/one.test") is None


def test_an_exact_domain_counts_more_than_a_name_and_a_name_more_than_a_wildcard():
    # VHD-3
    assert serving("rc/a<b>=1 rc/b<c>=1 rc/w<*>=1", "rc/b") == "rc/a"
    assert serving("rc/b<c>=1 rc/w<*>=1", "rc/b") == "rc/b"


def test_ports_count_unless_the_route_configuration_ignores_them():
    # VHD-6
    hosts = "rc/bare<one.test>=1 rc/ported<one.test:80>=1"
    assert serving(hosts, "rc/one.test:80") == "rc/ported"
    assert serving(hosts, "rc/one.test:81") is None
    assert serving(hosts, "rc/one.test:80", "rds rc<no_port>=1") == "rc/bare"
    mixed = "rds rc<no_port>[env=a]=1 rc<on_demand>[env!=a]=2"
    assert serving(hosts, "rc/one.test:80", mixed, Params({"env": "a"})) == "rc/bare"
    assert serving(hosts, "rc/one.test:80", mixed, Params({"env": "b"})) == "rc/ported"
    for only, found in (("rc/bare<one.test>=1", ["rc/bare", None]), ("rc/ported<one.test:80>=1", [None, "rc/ported"])):
        assert [serving(only, "rc/one.test:80", mixed, Params({"env": each})) for each in ("a", "b")] == found


def test_an_empty_host_is_served_by_the_domain_that_matches_everything():
    # VHD-6
    play(
        """
        > vhds +rc/
        < vhds ?rc/

        > ack
        store vhds rc/w<*>=1
        < vhds rc/w(rc/)=1
        """
    )


def test_a_plain_subscription_gets_the_variant_of_the_store_whichever_of_its_params_decided():
    # VHD-6, DESIGN 9: only a locator is told for whom else it is, and versions differ with that
    bench = Bench()
    bench.put("rds rc<no_port>[env=a]=1 rc<on_demand>[env!=a]=2; vhds rc/bare<one.test>=1 rc/ported<one.test:80>=1")
    peer = bench.connect(Node("envoy", metadata=Params({"env": "a"})), delta=True)
    peer.receive(VIRTUAL_HOST, DeltaRequest((Key("rc/one.test:80"),)))
    (send,) = peer.poll()
    assert send.plain == bench.store.table(VIRTUAL_HOST).named("rc/bare").variants


def test_ports_are_ignored_also_where_the_table_of_routes_was_gone_for_a_while():
    store = Store()
    store.apply(changeset("vhds rc/bare<one.test>=1"))
    store.table(ROUTE)
    store.discard(ROUTE)
    store.apply(changeset("rds rc<no_port>=1"))
    assert store.table(VIRTUAL_HOST).select("rc/one.test:80", NO_PARAMS) is not None


@pytest.mark.parametrize(
    ("host", "bare"),
    [
        ("a:80", "a"),
        ("a", "a"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("::1", "::1"),
        ("a:b", "a:b"),
        ("a:", "a:"),
    ],
)
def test_a_port_is_cut_off_a_host(host: str, bare: str):
    assert without_port(host) == bare


def test_variants_of_different_virtual_hosts_serve_a_host_for_different_params():
    # VHD-18
    hosts = "rc/prod<shop.test>[env=prod]=1 rc/rest<*.test>=1"
    assert serving(hosts, "rc/shop.test", params=Params({"env": "prod"})) == "rc/prod"
    assert serving(hosts, "rc/shop.test", params=Params({"env": "qa"})) == "rc/rest"


def test_two_virtual_hosts_cannot_serve_one_domain_for_the_same_clients():
    # V12: Envoy would take neither
    store = Store()
    store.apply(changeset("vhds rc/a<a.test,*.b>=1 other/a<a.test>=1"))
    for text in ("rc/b<a.test>=1", "rc/b<*.b>=1", "rc/b<a.test>[env=x]=1", "rc/c<c>=1 rc/d<c>=1"):
        with pytest.raises(ConfigError, match="is also one of"):
            store.apply(changeset(f"vhds {text}"))
    store.apply(changeset("vhds rc/a<a.test>[env=x]=1 rc/b<a.test>[env!=x]=1"))
    store.apply(changeset("vhds rc/a<b.test>=1 rc/b<a.test>=1"))


# -- what a client hears


def test_asking_for_a_host_gets_the_virtual_host_under_the_string_that_was_asked():
    # VHD-3, VHD-4, VHD-20
    play(
        """
        store vhds rc/shop<shop.test,*.shop.test>=1 rc/other<other.test>=1
        > vhds +rc/shop.test
        < vhds rc/shop(rc/shop.test)=1

        > vhds ack +rc/a.shop.test
        < vhds rc/shop(rc/shop.test,rc/a.shop.test)=1

        > vhds ack
        store vhds rc/other<other.test>=2
        """
    )


def test_two_hosts_of_one_virtual_host_are_one_resource():
    # VHD-5, VHD-24
    play(
        """
        store vhds rc/w<*.test>=1
        > vhds +rc/a.test +rc/b.test
        < vhds rc/w(rc/a.test,rc/b.test)=1
        """
    )


def test_a_host_that_is_not_there_is_a_resource_without_contents_and_is_pushed_when_it_comes():
    # VHD-7, VHD-8
    play(
        """
        > vhds +rc/a.test +rc/b.test
        < vhds ?rc/a.test ?rc/b.test

        > vhds ack
        store vhds rc/x<b.test>=1
        < vhds rc/x(rc/b.test)=1

        > vhds ack
        store vhds rc/w<*.test>=1
        < vhds rc/w(rc/a.test)=1
        """
    )


def test_every_answer_that_there_is_nothing_has_a_version_of_its_own():
    # VHD-7, V8
    bench = Bench()
    peer, other = (bench.connect(Node("envoy"), delta=True) for _ in range(2))
    sends = []
    for each in (peer, peer, other):
        each.receive(VIRTUAL_HOST, DeltaRequest(subscribe=(Key("rc/a.test"),)))
        sends += each.poll()
    assert len({send.absent for send in sends}) == 3


def test_a_removed_host_goes_by_the_name_of_its_resource_and_comes_back_by_itself():
    # VHD-10, VHD-8
    play(
        """
        store vhds rc/x<a.test>=1
        > vhds +rc/a.test
        < vhds rc/x(rc/a.test)=1

        > vhds ack
        store vhds -rc/x
        < vhds -rc/x

        > vhds ack
        store vhds rc/y<a.test>=2
        < vhds rc/y(rc/a.test)=2
        """
    )


def test_a_host_falls_back_to_a_wildcard_and_returns():
    # VHD-6, VHD-12
    play(
        """
        store vhds rc/x<a.test>=1 rc/w<*>=1
        > vhds +rc/a.test
        < vhds rc/x(rc/a.test)=1

        > vhds ack
        store vhds -rc/x
        < vhds rc/w(rc/a.test)=1 -rc/x

        > vhds ack
        store vhds rc/x<a.test>=2
        < vhds rc/x(rc/a.test)=2 -rc/w
        """
    )


def test_a_domain_that_moves_updates_both():
    # VHD-12
    play(
        """
        store vhds rc/x<a.test,b.test>=1 rc/y<c.test>=1
        > vhds +rc/a.test +rc/b.test +rc/c.test
        < vhds rc/x(rc/a.test,rc/b.test)=1 rc/y(rc/c.test)=1

        > vhds ack
        store vhds rc/x<a.test>=2 rc/y<c.test,b.test>=2
        < vhds rc/x(rc/a.test)=2 rc/y(rc/c.test,rc/b.test)=2
        """
    )


def test_only_who_has_a_virtual_host_hears_of_its_update():
    # VHD-9
    play(
        """
        store vhds rc/x<a.test>=1 rc/y<b.test>=1
        a> vhds
        a> vhds +rc/a.test
        b> vhds
        b> vhds +rc/b.test
        a< vhds -rc/_ rc/x(rc/a.test)=1
        b< vhds -rc/_ rc/y(rc/b.test)=1

        a> vhds ack
        b> vhds ack
        store vhds rc/x<a.test>=2 rc/z<z.test>=1
        a< vhds rc/x(rc/a.test)=2
        """
    )


def test_asking_again_for_a_held_host_sends_it_again():
    # VHD-14
    play(
        """
        store vhds rc/x<a.test>=1
        > vhds +rc/a.test
        < vhds rc/x(rc/a.test)=1

        > vhds ack +rc/a.test
        < vhds rc/x(rc/a.test)=1
        """
    )


def test_updates_stop_when_the_last_string_for_it_is_gone():
    # VHD-11
    play(
        """
        store vhds rc/x<a.test,b.test>=1
        > vhds +rc/a.test +rc/b.test
        < vhds rc/x(rc/a.test,rc/b.test)=1

        > vhds ack -rc/a.test
        store vhds rc/x<a.test,b.test>=2
        < vhds rc/x(rc/a.test,rc/b.test)=2

        > vhds ack -rc/b.test
        store vhds rc/x<a.test,b.test>=3
        """
    )


def test_a_virtual_host_can_be_unsubscribed_by_its_name():
    # VHD-11
    bench = play(
        """
        store vhds rc/x<a.test,*.test>=1
        > vhds +rc/a.test +rc/b.test
        < vhds rc/x(rc/a.test,rc/b.test)=1

        > vhds ack -rc/x
        store vhds rc/x<a.test,*.test>=2
        """
    )
    assert bench.interest.subscribers(VIRTUAL_HOST, "rc/x") == 0


# -- the base set


def test_an_empty_first_request_gets_the_base_set_and_never_all_hosts():
    # VHD-13
    play(
        """
        store vhds rc/b<b.test>^=1 rc/x<x.test>=1
        > vhds
        < vhds rc/b(rc/b.test)=1

        > vhds ack
        store vhds rc/x<x.test>=2 rc/b<b.test>^=2 rc/c<c.test>^=1
        < vhds rc/b(rc/b.test)=2 rc/c(rc/c.test)=1

        > vhds ack
        store vhds rc/c<c.test>=1
        < vhds -rc/c
        """
    )


def test_route_configurations_without_a_base_host_are_answered_too():
    # VHD-13, V3: an empty response would leave their listeners closed for 15 s
    play(
        """
        store rds one<on_demand>=1 two<on_demand>=1 three=1 four<on_demand>=1; vhds two/b<b.test>^=1
        > rds +one +two +three
        > vhds
        < rds one=1 two=1 three=1
        < vhds two/b(two/b.test)=1 -one/_
        """
    )


def test_on_a_stream_of_its_own_all_route_configurations_are_answered():
    # VHD-13: which of them the client has is said on another stream
    play(
        """
        store rds one<on_demand>=1 three=1; vhds own/x<x.test>=1
        > vhds
        < vhds -one/_ -own/_
        """
    )


def test_on_a_stream_of_its_own_route_configurations_are_those_for_the_defaults():
    # VHD-13, DYN-48
    play(
        """
        store rds one<on_demand>[env=prod]=1 two<on_demand>[env=test]=1
        > vhds
        < vhds -one/_
        """,
        settings=Settings(default_params={None: Params({"env": "prod"})}),
    )


def test_a_route_configuration_that_comes_later_is_answered_without_being_asked_about():
    # VHD-23, V4
    play(
        """
        store rds one<on_demand>=1 two<on_demand>=1 three<on_demand>=1; vhds three/b<b.test>^=1
        > rds +one
        > vhds
        < rds one=1
        < vhds -one/_ three/b(three/b.test)=1

        > rds ack +two +three
        < rds two=1 three=1
        < vhds -two/_ three/b(three/b.test)=1
        """
    )


def test_a_changed_route_configuration_takes_its_hosts_along():
    # VHD-16
    play(
        """
        store rds one<on_demand>=1 two<on_demand>=1; vhds one/x<x.test>=1 two/x<x.test>=1 one/b<b.test>^=1
        > rds +one +two
        > vhds
        > vhds +one/x.test +two/x.test +one/none.test
        < rds one=1 two=1
        < vhds one/b(one/b.test)=1 one/x(one/x.test)=1 two/x(two/x.test)=1 ?one/none.test -two/_

        > ack
        store rds one<on_demand>=2
        < rds one=2
        < vhds one/b(one/b.test)=1 one/x(one/x.test)=1
        """
    )


def test_unsubscribing_from_the_base_set_drops_the_answer_about_it():
    # WLD-9
    bench = Bench()
    bench.put("rds one<on_demand>=1")
    peer = bench.connect(Node("envoy"), delta=True)
    for line in ("rds +one", "vhds +*"):
        peer.ask(line)
    assert peer.hears() == ["rds one=1", "vhds -one/_"]
    finish(peer.session("vhds").rules.revisit({"one"}))
    peer.ask("vhds -*")
    assert not peer.session("vhds").is_pending
    assert peer.hears() == []


def test_on_a_stream_of_its_own_a_changed_route_configuration_takes_its_hosts_along():
    # VHD-16
    bench = Bench()
    bench.put("rds one<on_demand>=1; vhds one/x<x.test>=1 two/x<x.test>=1")
    peer = bench.connect(Node("envoy"), delta=True, only_type=VIRTUAL_HOST)
    peer.receive(VIRTUAL_HOST, DeltaRequest((Key("one/x.test"), Key("two/x.test"))))
    assert peer.hears() == ["vhds one/x(one/x.test)=1 two/x(two/x.test)=1"]
    bench.put("rds one<on_demand>=2")
    assert peer.hears() == ["vhds one/x(one/x.test)=1"]


def test_a_route_configuration_that_begins_to_ignore_ports_changes_what_is_served():
    # VHD-6
    play(
        """
        store rds rc<on_demand>=1; vhds rc/x<x.test>=1
        > vhds +rc/x.test:80
        < vhds ?rc/x.test:80

        > vhds ack
        store rds rc<on_demand,no_port>=2
        < vhds rc/x(rc/x.test,rc/x.test:80)=1
        """
    )


# -- coming back


def test_a_reconnecting_client_is_sent_only_what_changed():
    # DLT-13, V15: versions are by the names of resources, and hosts are asked for again
    play(
        """
        store vhds rc/x<x.test>=1 rc/y<y.test>=2 rc/b<b.test>^=1
        > vhds +* +rc/x.test +rc/y.test +rc/z.test have rc/x<x.test>=1 rc/y<y.test>=1 rc/z<z.test>=1 rc/b<b.test>^=1
        < vhds rc/y(rc/y.test)=2 ?rc/z.test
        < vhds -rc/z
        """
    )


def test_a_reconnecting_client_without_a_wildcard_is_told_which_virtual_hosts_no_host_needs():
    # DLT-14
    play(
        """
        store vhds rc/w<*.test>=1
        > vhds +rc/a.test +rc/b.test have rc/w<*.test>=1 rc/a<a.test>=1
        < vhds -rc/a
        """
    )


def test_what_a_client_brought_is_removed_whichever_part_of_its_first_request_named_it():
    # DLT-14, SRV-24
    bench = Bench()
    bench.put("vhds rc/w<*.test>=1")
    peer = bench.delta()
    peer.receive(VIRTUAL_HOST, DeltaRequest((Key("rc/a.test"),), initial_versions={"rc/a": "1"}))
    rest = DeltaRequest((Key("rc/b.test"),), initial_versions={"rc/b": "1"})
    peer.stream.receive(Request(VIRTUAL_HOST, rest, continues=True), bench.now)
    assert peer.hears() == ["vhds -rc/a -rc/b rc/w(rc/a.test,rc/b.test)=1"]


def test_several_hosts_of_one_variant_are_one_resource_for_locators_too():
    # SRV-19, VHD-5
    play(
        """
        store vhds rc/x<x.test,y.test>[env=prod]=p rc/w<*>=w
        > vhds +rc/x.test{env=qa} +rc/y.test{env=qa}
        < vhds rc/w(rc/x.test,rc/y.test)[not env=prod]=w
        """
    )


def test_a_reconnecting_client_is_not_told_an_absence_again():
    bench = Bench(Settings(epoch="one"))
    peer = bench.connect(Node("envoy"), delta=True)
    wanted = (Key("*"), Key("rc/a.test"))
    peer.receive(VIRTUAL_HOST, DeltaRequest(wanted, initial_versions={"rc/a.test": "absent.zero.7.1.vhds"}))
    assert peer.hears() == []
    bench.put("vhds rc/a<a.test>=1")
    assert peer.hears() == ["vhds rc/a(rc/a.test)=1"]


# -- what goes wrong


def test_after_a_nack_the_virtual_hosts_and_the_unresolved_hosts_are_sent_again():
    # VHD-24, V12, V8
    play(
        """
        store vhds rc/x<x.test>=1 rc/y<y.test>=1
        > vhds +rc/x.test +rc/y.test +rc/z.test
        < vhds rc/x(rc/x.test)=1 rc/y(rc/y.test)=1 ?rc/z.test

        > vhds nack
        < vhds ?rc/z.test
        < vhds rc/x(rc/x.test)=1
        < vhds rc/y(rc/y.test)=1
        """
    )


def test_unknown_hosts_are_all_answered_and_remembered_up_to_a_limit():
    # VHD-25
    limits = replace(Limits(), unresolved=2)
    bench = play(
        """
        store vhds rc/known<known.test>=1
        > vhds +rc/1.test +rc/known.test
        < vhds ?rc/1.test rc/known(rc/known.test)=1

        > vhds +rc/2.test +rc/3.test +rc/4.test
        < vhds ?rc/2.test ?rc/3.test ?rc/4.test

        > vhds ack
        store vhds rc/a<1.test>=1 rc/b<2.test>=1 rc/c<3.test>=1 rc/d<4.test>=1 rc/known<known.test>=2
        < vhds rc/a(rc/1.test)=1 rc/b(rc/2.test)=1 rc/c(rc/3.test)=1 rc/d(rc/4.test)=1 rc/known(rc/known.test)=2
        """,
        settings=Settings(limits=limits),
    )
    assert sum(fact.names for fact in bench.facts if isinstance(fact, Forgotten)) == 2


def test_an_answer_names_the_hosts_that_it_answers_and_an_update_all_of_them():
    # VHD-4, VHD-5, VHD-14
    play(
        """
        store vhds rc/w<*.w.test,w.test>=1
        > vhds +rc/1.w.test +rc/2.w.test
        < vhds rc/w(rc/w.test, rc/1.w.test, rc/2.w.test)=1

        > vhds ack
        > vhds +rc/3.w.test
        < vhds rc/w(rc/w.test, rc/3.w.test)=1

        > vhds ack
        > vhds +rc/1.w.test
        < vhds rc/w(rc/w.test, rc/1.w.test)=1

        > vhds ack
        store vhds rc/w<*.w.test>=2
        < vhds rc/w(rc/1.w.test, rc/2.w.test, rc/3.w.test)=2

        > vhds +rc/4.w.test
        < vhds rc/w(rc/4.w.test)=2

        > vhds nack
        """
    )


def test_forgotten_hosts_are_sent_when_a_virtual_host_serves_them():
    # VHD-25, VHD-8
    play(
        """
        store rds rc<on_demand,no_port>=1
        > vhds +rc/1.test +rc/2.test:80 +rc/3.test +other/4.test +other/5.test
        < vhds ?other/4.test ?other/5.test ?rc/1.test ?rc/2.test:80 ?rc/3.test

        > vhds ack
        store vhds rc/elsewhere<elsewhere.test>=1 never/x<*>=1 rc/a<2.test>=1
        < vhds rc/a(rc/2.test)=1

        > vhds ack
        store vhds rc/b<*.test>=1 rc/a<2.test>=2
        < vhds rc/a(rc/2.test)=2 rc/b=1

        > vhds ack
        store vhds -rc/b
        < vhds -rc/b

        > vhds ack
        store vhds rc/b<1.test>=2
        < vhds rc/b(rc/1.test)=2
        """,
        settings=Settings(limits=replace(Limits(), unresolved=1)),
    )


def test_a_client_that_does_not_keep_up_gets_what_it_asked_meanwhile_in_one_response():
    # VHD-24, V18
    play(
        """
        > vhds +rc/1
        < vhds ?rc/1

        > vhds +rc/2
        < vhds ?rc/2

        > vhds +rc/3
        < vhds ?rc/3

        > vhds +rc/4
        < vhds ?rc/4

        > vhds +rc/5

        > vhds +rc/6

        > vhds ack@1
        < vhds ?rc/5 ?rc/6

        > vhds +rc/7

        wait 0.5
        < vhds ?rc/7
        """
    )


# -- with params


def test_a_virtual_host_has_variants_by_node_metadata_and_by_locators():
    # VHD-18, DYN-11
    play(
        """
        store vhds rc/x<x.test>[env=prod]=p rc/x<x.test>[env=test]=t
        a> vhds +rc/x.test
        b> vhds +rc/x.test
        c> vhds +rc/x.test{env=test} +rc/x.test{env=qa}
        a< vhds rc/x(rc/x.test)=p
        b< vhds ?rc/x.test
        c< vhds rc/x(rc/x.test)[env=test]=t -rc/x.test[env=qa]
        """,
        nodes={"a": {"env": "prod"}, "b": {"env": "qa"}, "c": {}},
    )


def test_an_answer_for_a_locator_says_for_which_params_it_holds():
    # VHD-18; TP2, Caching: who is env=prod must not be given the wildcard's virtual host from a cache
    play(
        """
        store vhds rc/x<x.test>[env=prod]=p rc/w<*>=w
        > vhds +rc/x.test{env=qa} +rc/y.test{env=qa}
        < vhds rc/w(rc/x.test)[not env=prod]=w rc/w(rc/y.test)[]=w
        """
    )


def test_a_closed_stream_of_hosts_leaves_nothing_behind():
    bench = Bench()
    bench.put("vhds rc/w<*.test>=1")
    peer = bench.connect(Node("envoy"), delta=True)
    peer.receive(VIRTUAL_HOST, DeltaRequest(subscribe=(Key("rc/a.test"), Key("rc/b.other"))))
    peer.poll()
    peer.close()
    assert bench.left_behind() == {}
