"""Dynamic parameters: which variant, in which form, and what happens when variants change (C7)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench, play, variant
from xdsprism.core.model.events import DeltaRequest, Key
from xdsprism.core.model.settings import Limits, Settings
from xdsprism.core.model.types import CLUSTER, ROUTE
from xdsprism.errors import ConfigError

PLUS = {"delta": "+", "sotw": ""}
MODES = pytest.mark.parametrize("mode", ["delta", "sotw"])


def selected(variants: str, *params: str) -> list[str]:
    """What a locator with each of these params gets, `-` for nothing."""
    found = []
    for text in params:
        bench = Bench()
        bench.put(f"rds {variants}")
        peer = bench.delta()
        peer.ask(f"rds +a{{{text}}}")
        (send,) = peer.poll()
        found += [v.body.decode() for v in send.located] or ["-"]
    return found


# -- matching


@MODES
def test_a_locator_gets_the_variant_whose_constraints_match_its_params(mode: str):
    # DYN-1, DYN-2, DYN-3
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t
        > rds {PLUS[mode]}main{{env=prod}}
        b> rds {PLUS[mode]}main{{env=test}}
        < rds main[env=prod]=p
        b< rds main[env=test]=t
        """,
        mode=mode,
    )


def test_an_unconstrained_variant_is_for_everybody():
    # DYN-4
    assert selected("a=1", "", "env=prod", "env=test,version=v1") == ["1", "1", "1"]


def test_params_that_are_not_mentioned_do_not_matter():
    # DYN-5
    assert selected("a[env=prod]=1", "env=prod", "env=prod,version=v1,zone=z", "version=v1") == ["1", "1", "-"]


def test_absent_keys():
    # DYN-6
    assert selected("a[env=prod]=1", "", "version=v1") == ["-", "-"]
    assert selected("a[env exists]=1", "", "env=x") == ["-", "1"]
    assert selected("a[not env exists]=1", "", "env=x") == ["1", "-"]
    assert selected("a[env!=prod]=1", "", "env=test", "env=prod") == ["1", "1", "-"]


def test_values_are_compared_byte_by_byte_and_the_empty_one_exists():
    # DYN-7
    assert selected("a[env=prod]=1", "env=Prod", "env=PROD", "env=prod") == ["-", "-", "1"]
    assert selected("a[env exists]=1", "env=") == ["1"]
    assert selected('a[env=""]=1', "env=", "") == ["1", "-"]


def test_and_or_and_not_can_be_nested():
    # DYN-8
    when = "not (env=prod and (version=v1 or not zone exists))"
    given = ["env=prod,version=v1", "env=prod", "env=prod,zone=z", "env=test"]
    assert selected(f"a[{when}]=1", *given) == ["-", "-", "1", "1"]


@MODES
def test_a_variant_that_does_not_match_yet_is_remembered(mode: str):
    # DYN-10
    said = {"delta": "< rds -main[env=qa]", "sotw": "< rds !main[env=qa]=NOT_FOUND"}[mode]
    play(
        f"""
        store rds main[env=prod]=p
        > rds {PLUS[mode]}main{{env=qa}}
        {said}

        > rds ack

        store rds main[env=prod]=p main[env=qa]=q
        < rds main[env=qa]=q
        """,
        mode=mode,
    )


def test_nothing_for_these_params_is_said_with_constraints_that_pin_each_mentioned_key():
    # DYN-11
    play(
        """
        store rds main[env=prod and version=v1]=1
        > rds +main{env=qa,zone=z} +main{version=v1}
        < rds -main[env=qa and not version exists] -main[not env exists and version=v1]

        > rds +main{} +nope{env=qa}
        < rds -main[not env exists and not version exists] -nope[]
        """
    )
    play(
        """
        store rds main[env=prod]=1
        > rds main{env=qa} nope{env=qa}
        < rds !main[env=qa]=NOT_FOUND !nope[]=NOT_FOUND
        """,
        mode="sotw",
    )
    play(
        """
        store rds main[env=prod]=1
        > rds +main +nope
        < rds -main -nope
        """,
        node={"env": "qa"},
    )


def test_a_negative_answer_is_corrected_when_it_would_cover_somebody_who_has_a_variant():
    # DYN-11: it can be cached, so it must not outlive what it says
    play(
        """
        store rds main[env=prod]=1
        > rds +main{env=qa,version=v1}
        < rds -main[env=qa]

        > rds ack

        store rds main[env=prod]=2

        store rds main[env=qa and version=v2]=1
        < rds -main[env=qa and version=v1]
        """
    )


@MODES
def test_a_plain_name_has_the_params_of_the_node_and_is_answered_in_plain_form(mode: str):
    # DYN-12, DYN-43
    play(
        f"""
        store rds main[env=prod]=p main[env!=prod]=t
        > rds {PLUS[mode]}main
        b> rds {PLUS[mode]}main
        < rds main=p
        b< rds main=t
        """,
        mode=mode,
        nodes={"": {"env": "prod", "zone": "z"}, "b": {}},
    )


@MODES
def test_the_params_of_a_locator_win_over_those_of_the_node(mode: str):
    # DYN-43
    play(
        f"""
        store rds main[env=prod]=p main[env!=prod]=t
        > rds {PLUS[mode]}main{{env=test}}
        < rds main[env!=prod]=t

        b> rds {PLUS[mode]}main{{zone=z}}
        b< rds main[env!=prod]=t
        """,
        mode=mode,
        node={"env": "prod"},
    )


@pytest.mark.parametrize(("keys", "expected"), [(None, "p"), (["env"], "p"), (["zone"], "t"), ([], "t")])
def test_which_keys_of_the_node_count_can_be_chosen(keys: list[str] | None, expected: str):
    # DYN-12
    bench = Bench(Settings(node_params=keys))
    bench.put("rds main[env=prod]=p main[env!=prod]=t")
    peer = bench.delta(env="prod")
    peer.ask("rds +main")
    assert peer.hears() == [f"rds main={expected}"]


@MODES
def test_a_locator_without_params_matches_like_a_plain_name_and_is_answered_as_a_locator(mode: str):
    # DYN-13
    play(
        f"""
        store rds main[env=prod]=p main[env!=prod]=t
        > rds {PLUS[mode]}main{{}}
        b> rds {PLUS[mode]}main{{}}
        < rds main[env=prod]=p
        b< rds main[env!=prod]=t
        """,
        mode=mode,
        nodes={"": {"env": "prod"}, "b": {}},
    )


@MODES
def test_names_and_locators_may_be_mixed(mode: str):
    # DYN-14, DYN-15
    play(
        f"""
        store rds a=1 main[env=prod]=p main[env!=prod]=t
        > rds {PLUS[mode]}a {PLUS[mode]}main{{env=test}}
        < rds a=1 main[env!=prod]=t
        """,
        mode=mode,
        node={"env": "prod"},
    )


@MODES
def test_a_name_wanted_in_both_forms_is_answered_in_two_responses(mode: str):
    # DYN-15
    play(
        f"""
        store rds main[env=prod]=p main[env!=prod]=t
        > rds {PLUS[mode]}main {PLUS[mode]}main{{env=prod}} {PLUS[mode]}main{{env=test}}
        < rds main=p
        < rds main[env=prod]=p main[env!=prod]=t
        """,
        mode=mode,
        node={"env": "prod"},
    )


def test_an_absence_in_one_form_and_a_resource_in_the_other_go_out_apart():
    # DYN-15, DLT-19
    play(
        """
        store rds main[env=prod]=p
        > rds +main +main{env=prod} +nope +nope{}
        < rds -main -nope
        < rds main[env=prod]=p -nope[]
        """,
        node={"env": "test"},
    )


def test_a_full_state_holds_both_forms():
    # DYN-15, DYN-23
    play(
        """
        store cds main[env=prod]=p main[env!=prod]=t
        > cds main main{env=prod} main{env=test}
        < cds main=p main[env=prod]=p main[env!=prod]=t
        """,
        mode="sotw",
        node={"env": "prod"},
    )


@MODES
def test_two_locators_of_one_name_get_their_two_variants(mode: str):
    # DYN-16
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t
        > rds {PLUS[mode]}main{{env=prod}} {PLUS[mode]}main{{env=test}}
        < rds main[env=prod]=p main[env=test]=t
        """,
        mode=mode,
    )


@pytest.mark.parametrize("word", ["rds", "cds"])
@MODES
def test_two_locators_that_select_the_same_variant_get_it_once(mode: str, word: str):
    # DYN-17, SRV-19
    play(
        f"""
        store {word} main[env in (prod, test)]=1
        > {word} {PLUS[mode]}main{{env=prod}} {PLUS[mode]}main{{env=test}}
        < {word} main[env in (prod, test)]=1

        > {word} ack
        store {word} main[env in (prod, test)]=2
        < {word} main[env in (prod, test)]=2
        """,
        mode=mode,
    )


@MODES
def test_a_change_is_pushed_to_those_it_is_for(mode: str):
    # DYN-18
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t
        > rds {PLUS[mode]}main{{env=prod}}
        b> rds {PLUS[mode]}main{{env=test}}
        c> rds {PLUS[mode]}main
        < rds main[env=prod]=p
        b< rds main[env=test]=t
        c< rds main=t

        store rds main[env=prod]=p main[env=test]=t2
        b< rds main[env=test]=t2
        c< rds main=t2
        """,
        mode=mode,
        nodes={"c": {"env": "test"}},
    )


def test_unsubscribing_a_locator_leaves_the_others_of_that_name():
    # DYN-19
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main +main{env=prod} +main{env=test}
        < rds main=p
        < rds main[env=prod]=p main[env=test]=t

        > rds ack -main{env=prod}

        store rds main[env=prod]=p2 main[env=test]=t2
        < rds main=p2
        < rds main[env=test]=t2

        > rds ack -main

        store rds main[env=prod]=p3 main[env=test]=t3
        < rds main[env=test]=t3

        > rds ack -main{env=test,zone=z}

        store rds main[env=prod]=p4 main[env=test]=t4
        < rds main[env=test]=t4
        """,
        node={"env": "prod"},
    )


def test_the_locators_of_a_sotw_request_are_all_that_is_wanted():
    # DYN-20
    play(
        """
        store cds main[env=prod]=p main[env=test]=t; rds main[env=prod]=p main[env=test]=t
        > cds main{env=prod} main{env=test}
        > rds main{env=prod} main{env=test}
        < cds main[env=prod]=p main[env=test]=t
        < rds main[env=prod]=p main[env=test]=t

        > cds ack main{env=prod}
        > rds ack main{env=prod}

        store cds main[env=prod]=p main[env=test]=t2; rds main[env=prod]=p main[env=test]=t2

        store cds main[env=prod]=p2 main[env=test]=t2; rds main[env=prod]=p2 main[env=test]=t2
        < cds main[env=prod]=p2
        < rds main[env=prod]=p2

        > cds ack none
        > rds ack none

        store cds main=1 other=1; rds main=1
        """,
        mode="sotw",
    )


def test_other_params_bring_the_other_variant_in_one_response():
    # DYN-21
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{env=prod}
        < rds main[env=prod]=p

        > rds ack +main{env=test} -main{env=prod}
        < rds main[env=test]=t
        """
    )
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds main{env=prod}
        < rds main[env=prod]=p

        > rds ack main{env=test}
        < rds main[env=test]=t
        """,
        mode="sotw",
    )


def test_subscribing_the_same_locator_again_sends_again():
    # DYN-22
    play(
        """
        store rds main[env=prod]=p
        > rds +main{env=prod,zone=z}
        < rds main[env=prod]=p

        > rds ack +main{zone=z,env=prod}
        < rds main[env=prod]=p
        """
    )


def test_a_full_state_holds_one_variant_for_every_locator_that_has_a_match():
    # DYN-23
    play(
        """
        store cds a[env=prod]=p a[env=test]=t b=1
        > cds a{env=prod} a{env=test} a{env=qa} b{}
        < cds a[env=prod]=p a[env=test]=t b[]=1 !a[env=qa]=NOT_FOUND

        > cds ack
        store cds a[env=prod]=p
        < cds a[env=prod]=p b[]=1 !a[env=test]=NOT_FOUND
        """,
        mode="sotw",
    )


# -- replacing and removing


def test_one_variant_replaced_by_several_is_one_response():
    # DYN-24, DYN-25
    play(
        """
        store rds main[env=prod]=1
        > rds +main{env=prod,version=v1} +main{env=prod,version=v2}
        < rds main[env=prod]=1

        > rds ack
        store rds main[env=prod and version=v1]=1 main[env=prod and version=v2]=2
        < rds main[env=prod and version=v1]=1 main[env=prod and version=v2]=2 -main[env=prod]
        """
    )


def test_several_variants_replaced_by_one_are_one_response():
    # DYN-24, DYN-25
    play(
        """
        store rds main[env=prod and version=v1]=1 main[env=prod and version=v2]=2
        > rds +main{env=prod,version=v1} +main{env=prod,version=v2}
        < rds main[env=prod and version=v1]=1 main[env=prod and version=v2]=2

        > rds ack
        store rds main[env=prod]=1
        < rds main[env=prod]=1 -main[env=prod and version=v1] -main[env=prod and version=v2]
        """
    )


def test_a_replacement_for_some_that_is_a_removal_for_others_is_said_once():
    # DYN-24, DYN-29
    play(
        """
        store cds a=1; rds r=1
        > cds +a{env=prod} +a{env=test} +*{env=qa}
        > rds +r
        < cds a[]=1
        < rds r=1

        > ack
        store cds a[env=prod]=2; rds r=2
        < cds a[env=prod]=2 -a[]
        < rds r=2

        > ack
        """
    )


def test_a_removal_repeats_the_constraints_as_they_were_sent():
    # DYN-25, DYN-26
    play(
        """
        store rds a[version=v1 and not env!=prod]=1 b=1 c=1
        > rds +a{env=prod,version=v1} +b{env=prod} +c
        < rds a[version=v1 and not env!=prod]=1 b[]=1 c=1

        > rds ack
        store rds -a -b -c
        < rds -a[version=v1 and not env!=prod] -b[] -c
        """
    )


@MODES
def test_a_plain_client_sees_a_replacement_as_an_update(mode: str):
    # DYN-27
    play(
        f"""
        store rds main[env=prod]=1; cds main[env=prod]=1
        > rds {PLUS[mode]}main
        > cds
        < cds main=1
        < rds main=1

        > ack
        store rds main[env=prod and version=v1]=2 main[env=prod and version!=v1]=3; cds main=2
        < cds main=2
        < rds main=3
        """,
        mode=mode,
        node={"env": "prod"},
    )


@pytest.mark.parametrize("word", ["rds", "cds"])
def test_a_sotw_client_sees_a_replacement_as_one_response_with_the_new_variant(word: str):
    # DYN-28
    play(
        f"""
        store {word} main[env=prod]=1
        > {word} main{{env=prod,version=v1}}
        < {word} main[env=prod]=1

        > {word} ack
        store {word} main[env=prod and version=v1]=2
        < {word} main[env=prod and version=v1]=2
        """,
        mode="sotw",
    )


def test_a_replacement_that_leaves_no_match_only_removes_and_one_that_newly_matches_only_adds():
    # DYN-29
    play(
        """
        store rds main[env=prod]=1
        > rds +main{env=prod}
        b> rds +main{env=test}
        < rds main[env=prod]=1
        b< rds -main[env=test]

        > rds ack
        b> rds ack
        store rds main[env=test]=1
        < rds -main[env=prod]
        b< rds main[env=test]=1
        """
    )


def test_the_same_contents_with_other_constraints_are_a_replacement():
    # DYN-30, DYN-31
    play(
        """
        store rds main[env=prod]=1
        > rds +main{env=prod}
        < rds main[env=prod]=1

        > rds ack
        store rds main[env exists]=1
        < rds main[env exists]=1 -main[env=prod]
        """
    )
    assert variant("rds", "a[env=prod]=1").version != variant("rds", "a[env=test]=1").version


def test_constraints_that_differ_only_in_form_keep_the_form_that_was_sent():
    # DYN-30
    play(
        """
        store rds main[env=prod and version=v1]=1
        > rds +main{env=prod,version=v1}
        < rds main[env=prod and version=v1]=1

        > rds ack
        store rds main[version=v1 and not not env=prod]=1

        store rds -main
        < rds -main[env=prod and version=v1]
        """
    )


def test_a_nack_parks_the_rejected_variant_and_nothing_of_anybody_else():
    # DYN-32
    play(
        """
        store rds main[env=prod]=bad main[env=test]=1
        > rds +main{env=prod}
        b> rds +main{env=test}
        < rds main[env=prod]=bad
        b< rds main[env=test]=1

        > rds nack
        b> rds ack

        store rds main[env=prod]=bad main[env=test]=2
        b< rds main[env=test]=2
        """
    )


# -- ingest


@pytest.mark.parametrize(
    "variants",
    [
        "a[env=prod]=1 a[env=test]=2",
        "a[env=prod and not version exists]=1 a[env=prod and version=v1]=2",
        (
            "a[env=prod and version=v1]=1 a[env=prod and version!=v1]=2 "
            "a[env!=prod and version=v1]=3 a[env!=prod and version!=v1]=4"
        ),
    ],
)
def test_disjoint_variants_are_taken(variants: str):
    # DYN-35
    assert len(Bench().put(f"rds {variants}").changes) == 1


@pytest.mark.parametrize(
    "variants",
    [
        "a[env in (prod, test)]=1 a[env in (qa, test)]=2",
        "a[env!=prod]=1 a[env=test]=2",
        "a=1 a[env=prod]=2",
        "a[env exists]=1 a[env=prod]=2",
        "a[env=prod]=1 a[env=prod and version=v1]=2",
        "a[env=prod]=1 a[version=v1]=2",
    ],
)
def test_overlapping_variants_and_different_keys_are_refused_and_the_old_ones_stay(variants: str):
    # DYN-33, DYN-34, DYN-36
    bench = Bench()
    bench.put("rds a=0")
    peer = bench.delta()
    peer.ask("rds +a{env=test}")
    assert peer.hears() == ["rds a[]=0"]
    with pytest.raises(ConfigError):
        bench.put(f"rds {variants}; cds b=1")
    assert peer.hears() == []
    assert not len(bench.store.table(CLUSTER))


def test_the_refusal_names_both_variants_and_a_witness():
    # DYN-37
    with pytest.raises(ConfigError) as caught:
        Bench().put("rds main[env in (prod, test)]=1 main[env in (qa, test)]=2")
    (problem,) = caught.value.problems
    for part in ("'main'", "env=test", "env in (prod, test)", "env in (qa, test)"):
        assert part in problem.message


def test_a_swap_that_would_overlap_midway_is_taken_as_a_whole():
    # DYN-38
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{env=prod}
        < rds main[env=prod]=p

        > rds ack
        store rds main[env=test]=p main[env=prod]=t
        < rds main[env=prod]=t
        """
    )


def test_versions_that_a_client_names_are_compared_with_those_of_its_variants():
    # DYN-40
    play(
        """
        store rds a[env=prod]=p a[env=test]=t b[env=prod]=2
        > rds +a{env=prod} +b{env=prod} have a[env=prod]=p b[env=prod]=1
        < rds b[env=prod]=2

        > rds ack
        store rds a[env=prod and version=v1]=1
        < rds -a[env=prod]
        """
    )


def test_a_wildcard_with_params_gives_each_member_in_its_variant():
    # DYN-41
    play(
        """
        store cds a[env=prod]=p a[env=test]=t b=1 c[env=test]=t
        > cds +*{env=prod}
        < cds a[env=prod]=p b[]=1

        > cds ack
        store cds a[env=prod]=p a[env=test]=t2

        store cds c[env=prod]=p
        < cds c[env=prod]=p

        store cds a[env exists]=1 -b
        < cds a[env exists]=1 -a[env=prod] -b[]
        """
    )
    play(
        """
        store cds a[env=prod]=p a[env=test]=t b=1 c[env=test]=t
        > cds *{env=prod}
        < cds a[env=prod]=p b[]=1
        """,
        mode="sotw",
    )


def test_context_params_are_part_of_the_name():
    # DYN-42
    bench = Bench()
    name = "xdstp://authority/envoy.config.route.v3.RouteConfiguration/main?env=prod"
    plain = variant("rds", "a=1")
    bench.store.apply({(ROUTE, name): (type(plain)(ROUTE, name, plain.constraint, b"1", "v", 1),)})
    peer = bench.delta()
    peer.receive(
        ROUTE, DeltaRequest((Key("xdstp://authority/envoy.config.route.v3.RouteConfiguration/main"), Key(name)))
    )
    (send,) = peer.poll()
    assert [v.name for v in send.plain] == [name]
    assert len(send.removed) == 1


# -- limits


def test_limits_are_no_matter_of_what_is_not_wanted_any_more():
    # DYN-46
    bench = Bench(Settings(limits=Limits(subscriptions=2, locators=2)))
    peer = bench.delta()
    for number in range(10):
        peer.ask(f"cds +a{number}{{}} +b{number}")
        peer.ask(f"cds -a{number}{{}} -b{number}")
