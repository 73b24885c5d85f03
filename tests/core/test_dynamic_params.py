"""Dynamic parameters: which variant a subscription gets, and in which form (C7, Matching and delivery)."""

from __future__ import annotations

import pytest
from envoy.config.core.v3.base_pb2 import Node as NodeProto
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.core.support import Bench, play
from xdsprism.core.codec import Decoder
from xdsprism.core.constraints import FALSE, TRUE, All, AnyOf, Constraint, Eq, Exists, Not
from xdsprism.core.events import DeltaRequest, SotwRequest
from xdsprism.core.expr import parse
from xdsprism.core.settings import Settings
from xdsprism.core.types import NO_PARAMS, ROUTE, Params, make_variant

PROD = {"env": "prod"}


def answer(constraint: Constraint, params: dict[str, str], *, delta: bool) -> str:
    """What a locator with these params is told of a resource with this one variant: `yes` or `no`."""
    bench = Bench()
    bench.store.apply({(ROUTE, "main"): (make_variant(ROUTE, "main", b"yes", constraint),)})
    peer = bench.delta() if delta else bench.sotw()
    key = "main", Params(params)
    peer.receive(ROUTE, DeltaRequest((key,)) if delta else SotwRequest((key,)))
    (send,) = peer.poll()
    assert (send.plain, send.removed) == ((), ())
    denied = [absence.name for absence in send.withdrawn] + [error.about.name for error in send.errors]
    assert [variant.name for variant in send.located] + denied == ["main"]
    return "no" if denied else "yes"


# -- matching


def test_a_locator_brings_the_variant_that_its_params_match():
    # DYN-1
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{env=prod}
        < rds main[env=prod]=p

        b> rds +main{env=test}
        b< rds main[env=test]=t
        """
    )


def test_a_sotw_locator_brings_the_variant_that_its_params_match():
    # DYN-1
    play(
        """
        store rds main[env=prod]=p main[env=test]=t; cds main[env=prod]=p main[env=test]=t
        > rds main{env=prod}
        > cds main{env=test}
        < cds main[env=test]=t
        < rds main[env=prod]=p
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize(
    "text", ["env=prod", "zone=a and env=prod", "not (not env=prod)", "env in (prod, test) or not env exists"]
)
def test_constraints_are_sent_as_they_were_configured(text, delta):
    # DYN-2, DYN-3
    bench = Bench()
    bench.put(f"rds main[{text}]=p")
    peer = bench.delta() if delta else bench.sotw()
    peer.ask(f"rds {'+' if delta else ''}main{{env=prod,zone=a}}")
    (send,) = peer.poll()
    assert (send.plain, [variant.constraint for variant in send.located]) == ((), [parse(text)])


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("params", [{}, {"env": "prod"}, {"env": "", "zone": "a"}])
def test_a_single_unconstrained_variant_matches_everybody(params, delta):
    # DYN-4
    assert answer(TRUE, params, delta=delta) == "yes"


@pytest.mark.parametrize("delta", [True, False])
def test_params_that_no_constraint_mentions_do_not_prevent_a_match(delta):
    # DYN-5
    assert answer(Eq("env", "prod"), {"env": "prod", "version": "v1", "zone": ""}, delta=delta) == "yes"


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize(
    ("constraint", "params", "told"),
    [
        (Eq("env", "prod"), {}, "no"),
        (Eq("env", ""), {}, "no"),
        (Exists("env"), {"zone": "a"}, "no"),
        (Not(Exists("env")), {"zone": "a"}, "yes"),
        (Not(Eq("env", "prod")), {}, "yes"),
        (Not(Eq("env", "prod")), {"env": "test"}, "yes"),
        (Not(Eq("env", "prod")), {"env": "prod"}, "no"),
    ],
)
def test_what_an_absent_key_matches(constraint, params, told, delta):
    # DYN-6
    assert answer(constraint, params, delta=delta) == told


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize(
    ("constraint", "value", "told"),
    [
        (Exists("env"), "prod", "yes"),
        (Exists("env"), "", "yes"),
        (Not(Exists("env")), "", "no"),
        (Eq("env", ""), "", "yes"),
        (Eq("env", "prod"), "Prod", "no"),
        (Eq("env", "prod"), "prod ", "no"),
        (Eq("env", "\u00e9"), "e\u0301", "no"),
    ],
)
def test_values_match_exactly_and_exists_takes_any(constraint, value, told, delta):
    # DYN-7
    assert answer(constraint, {"env": value}, delta=delta) == told


@pytest.mark.parametrize("delta", [True, False])
def test_constraints_nest_as_deep_as_the_limits_allow(delta):
    # DYN-8
    deep: Constraint = Eq("env", "prod")
    for level in range(30):
        deep = Not(deep) if level % 3 else AnyOf((All((deep, Exists("env"))), FALSE))
    assert answer(Not(Not(deep)), PROD, delta=delta) == answer(deep, PROD, delta=delta)
    assert answer(Not(deep), PROD, delta=delta) != answer(deep, PROD, delta=delta)


@pytest.mark.parametrize("delta", [True, False])
def test_an_empty_and_matches_everybody_and_an_empty_or_nobody(delta):
    # DYN-9
    assert answer(All(()), {}, delta=delta) == "yes"
    assert answer(AnyOf(()), PROD, delta=delta) == "no"
    assert answer(Not(AnyOf(())), PROD, delta=delta) == "yes"


# -- no match


def test_a_locator_that_nothing_matches_is_told_for_whom_and_served_later():
    # DYN-10, DYN-11
    play(
        """
        store rds main[env=prod and version=v1]=p
        > rds +main{env=qa,zone=a} +other{env=qa}
        < rds -main[env=qa and not version exists] -other[]

        > rds ack
        store rds main[env=prod and version=v1]=p2

        store rds main[env=prod and version=v1]=p2 main[env=qa and not version exists]=q
        < rds main[env=qa and not version exists]=q

        > rds ack
        store rds other=1
        < rds other[]=1
        """
    )


def test_a_sotw_locator_that_nothing_matches_is_told_by_an_error_and_served_later():
    # DYN-10, DYN-11
    play(
        """
        store rds main[env=prod and version=v1]=p; cds main[env=prod]=p
        > rds main{env=qa,zone=a} other{env=qa}
        > cds main{}
        < cds !main[not env exists]=NOT_FOUND
        < rds !main[env=qa and not version exists]=NOT_FOUND !other[]=NOT_FOUND

        > ack
        store rds main[env=prod and version=v1]=p2

        store rds main[env=prod and version=v1]=p2 main[env=qa and not version exists]=q
        < rds main[env=qa and not version exists]=q

        > ack
        store cds main=1; rds other=1
        < cds main[]=1
        < rds other[]=1
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_negative_answer_never_goes_on_covering_clients_that_get_a_variant(mode):
    # DYN-11: `nothing for anybody` must be taken back when there is something for somebody
    ask, gone = ("+main", "-main[]") if mode == "delta" else ("main", "!main[]=NOT_FOUND")
    narrower = gone.replace("[]", "[env=qa]")
    play(
        f"""
        > rds {ask}{{env=qa}}
        < rds {gone}

        > rds ack
        store rds main[env=prod]=p
        < rds {narrower}

        > rds ack
        store rds main[env=prod]=p2
        """,
        mode=mode,
    )


def test_a_plain_name_that_nothing_matches_is_removed_in_delta_and_quiet_in_sotw():
    # DYN-10, DYN-11
    play(
        """
        store rds main[env=prod]=p
        > rds +main
        < rds -main

        s> rds main

        store rds main[env=prod]=p main[env=qa]=q
        < rds main=q
        s< rds main=q
        """,
        modes={"s": "sotw"},
        node={"env": "qa"},
    )


# -- plain names and locators


def test_a_plain_name_gets_the_variant_of_its_node_in_plain_form():
    # DYN-12
    play(
        """
        store rds main[env=prod]=p main[env!=prod]=t
        > rds +main
        < rds main=p

        s> rds main
        s< rds main=p

        t> rds main
        t< rds main=t
        """,
        modes={"s": "sotw", "t": "sotw"},
        node=PROD,
        nodes={"t": {"env": "test"}},
    )


@pytest.mark.parametrize(("keys", "body"), [(None, "both"), (["env", "zone"], "both"), (["env"], "prod"), ([], "none")])
@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_the_keys_of_node_metadata_that_count_can_be_chosen(mode, keys, body):
    # DYN-12
    play(
        f"""
        store rds main[env=prod and zone=a]=both main[env=prod and zone!=a]=prod main[env!=prod and zone!=a]=none
        > rds {"+" if mode == "delta" else ""}main
        < rds main={body}
        """,
        mode=mode,
        node={"env": "prod", "zone": "a"},
        settings=Settings(node_params=keys),
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_locator_without_params_matches_as_a_plain_name_does_but_has_its_own_form(mode):
    # DYN-13
    sign = "+" if mode == "delta" else ""
    play(
        f"""
        store rds main[env=prod]=p main[env!=prod]=none
        > rds {sign}main{{}}
        < rds main[env!=prod]=none

        b> rds {sign}main
        b< rds main=none
        """,
        mode=mode,
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_node_metadata_does_not_add_to_the_params_of_a_locator(mode):
    # DYN-43: explicit locators win
    sign = "+" if mode == "delta" else ""
    play(
        f"""
        store rds main[env=prod and zone=a]=both main[env=prod and zone!=a]=prod main[env!=prod and zone!=a]=none
        > rds {sign}main{{env=prod}} {sign}main{{}}
        < rds main[env=prod and zone!=a]=prod main[env!=prod and zone!=a]=none

        b> rds {sign}main
        b< rds main=both
        """,
        mode=mode,
        node={"env": "prod", "zone": "a"},
    )


@pytest.mark.parametrize("delta", [True, False])
def test_the_dynamic_parameters_of_a_node_do_not_choose_a_variant_but_its_metadata_does(delta):
    # DYN-43: Node.dynamic_parameters is TP1's context
    node = NodeProto(id="envoy-1")
    node.dynamic_parameters[ROUTE].params["env"] = "prod"
    node.metadata["env"] = "test"
    node.metadata["number"] = 7
    names = {"resource_names_subscribe": ["main"]} if delta else {"resource_names": ["main"]}
    proto = (pb.DeltaDiscoveryRequest if delta else pb.DiscoveryRequest)(node=node, type_url=ROUTE, **names)
    request = Decoder(delta=delta).decode(proto.SerializeToString())
    bench = Bench()
    bench.put("rds main[env=prod]=p main[env=test]=t")
    peer = bench.connect(request.node, delta=delta)
    peer.receive(request.type_url, request.body)
    assert peer.hears() == ["rds main=t"]


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_names_and_locators_may_be_mixed_in_one_request(mode):
    # DYN-14
    sign = "+" if mode == "delta" else ""
    play(
        f"""
        store rds a=1 main[env=prod]=p
        > rds {sign}a {sign}main{{env=prod}}
        < rds a=1 main[env=prod]=p

        > rds ack
        store rds a=2 main[env=prod]=p2
        < rds a=2 main[env=prod]=p2
        """,
        mode=mode,
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_one_name_in_both_forms_is_answered_in_both_by_two_responses(mode):
    # DYN-15
    sign = "+" if mode == "delta" else ""
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t a=1
        > rds {sign}main {sign}main{{env=test}} {sign}a
        < rds main=p a=1
        < rds main[env=test]=t

        > rds ack
        store rds main[env=prod]=p2 main[env=test]=t
        < rds main=p2

        > rds ack
        store rds main=1
        < rds main=1
        < rds main[]=1{" -main[env=test]" if mode == "delta" else ""}
        """,
        mode=mode,
        node=PROD,
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_one_name_in_both_forms_is_answered_by_two_responses_also_where_one_of_them_is_a_no(mode):
    # DYN-15, ERR-2
    sign, no = ("+", "-main[env=qa]") if mode == "delta" else ("", "!main[env=qa]=NOT_FOUND")
    play(
        f"""
        store rds main[env=prod]=p
        > rds {sign}main {sign}main{{env=qa}}
        < rds main=p
        < rds {no}
        """,
        mode=mode,
        node=PROD,
    )


@pytest.mark.parametrize("word", ["cds", "lds"])
def test_one_name_in_both_forms_is_in_one_response_where_that_is_the_full_state(word):
    # DYN-15
    play(
        f"""
        store {word} main[env=prod]=p main[env=test]=t
        > {word} main main{{env=test}}
        < {word} main=p main[env=test]=t

        > {word} ack
        store {word} main[env=prod]=p2 main[env=test]=t
        < {word} main=p2 main[env=test]=t
        """,
        mode="sotw",
        node=PROD,
    )


# -- scope and interplay


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_wildcard_locator_brings_the_matching_variant_of_each_name(mode):
    # DYN-41
    sign = "+" if mode == "delta" else ""
    play(
        f"""
        store rds a[env=prod]=p a[env=test]=t b=1 c[env=test]=t
        > rds {sign}*{{env=prod}}
        < rds a[env=prod]=p b[]=1

        > rds ack
        store rds c[env=test]=t2

        store rds a[env=prod]=p2 a[env=test]=t c[env=prod]=p
        < rds a[env=prod]=p2 c[env=prod]=p
        """,
        mode=mode,
    )


def test_members_leave_a_wildcard_locator_by_their_constraints():
    # DYN-41, DYN-25
    play(
        """
        store cds a[env=prod]=p b=1 c=1
        > cds +*{env=prod}
        < cds a[env=prod]=p b[]=1 c[]=1

        > cds ack
        store cds a[env=test]=t -b c[env=prod]=p
        < cds c[env=prod]=p -a[env=prod] -b[] -c[]
        """
    )


def test_a_sotw_wildcard_locator_gets_the_full_state_of_its_params():
    # DYN-41, DYN-23
    play(
        """
        store cds a[env=prod]=p a[env=test]=t b=1 c[env=test]=t
        > cds *{env=prod} *{env=test}
        < cds a[env=prod]=p a[env=test]=t b[]=1 c[env=test]=t

        > cds *{env=prod} ack

        store cds b=2
        < cds a[env=prod]=p b[]=2

        > cds ack
        store cds a[env=test]=t -b
        < cds nothing
        """,
        mode="sotw",
    )


@pytest.mark.parametrize("delta", [True, False])
def test_context_parameters_are_part_of_the_name_and_dynamic_ones_are_not(delta):
    # DYN-42
    plain = "xdstp://authority/envoy.config.route.v3.RouteConfiguration/main"
    prod = f"{plain}?env=prod"
    bench = Bench()
    bench.store.apply({(ROUTE, name): (make_variant(ROUTE, name, name[-4:].encode()),) for name in (plain, prod)})
    peer = bench.delta() if delta else bench.sotw()
    keys = ((plain, Params(PROD)), (prod, NO_PARAMS), (f"{plain}?env=test", Params(PROD)))
    peer.receive(ROUTE, DeltaRequest(keys) if delta else SotwRequest(keys))
    (send,) = peer.poll()
    assert [(variant.name, variant.body) for variant in send.located] == [(plain, b"main"), (prod, b"prod")]
    denied = [*send.withdrawn, *(error.about for error in send.errors)]
    assert [absence.name for absence in denied] == [f"{plain}?env=test"]
