"""The store: transactions that are taken whole or not at all, and what they tell (C7, Validation at ingest)."""

from __future__ import annotations

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryResponse

from tests.core.support import changeset, variant
from xdsprism.core.codec.constraints import constraint_from_proto
from xdsprism.core.codec.server_responses import Encoder
from xdsprism.core.model.constraints import TRUE, Eq
from xdsprism.core.model.events import Send
from xdsprism.core.model.expr import parse, show
from xdsprism.core.model.store import Applied, Store
from xdsprism.core.model.types import (
    CLUSTER,
    ENDPOINT,
    NO_PARAMS,
    ROUTE,
    Origin,
    Params,
    Routing,
    Variant,
    make_variant,
)
from xdsprism.core.model.views import digest_of
from xdsprism.errors import ConfigError

PROD = Params({"env": "prod"})
TEST = Params({"env": "test"})

# TP2's own example: one route for env=prod, another for version=v1.
TP2_TABLE = (
    "rds main[env=prod and version=v1]=1 main[env=prod and version!=v1]=2 "
    "main[env!=prod and version=v1]=3 main[env!=prod and version!=v1]=4"
)


def filled(*texts: str) -> Store:
    store = Store()
    for text in texts:
        store.apply(changeset(text))
    return store


def content(store: Store) -> dict[str, list[tuple[str, str, bytes]]]:
    return {
        table.spec.label: sorted((v.name, str(v.constraint), v.body) for _, known in table for v in known.variants)
        for table in store.tables()
        if len(table)
    }


def refused(store: Store, text: str) -> list[str]:
    """The problems of a transaction that must not be taken, and must not leave a trace."""
    told: list[Applied] = []
    store.listeners.append(told.append)
    before = content(store), store.revision
    with pytest.raises(ConfigError) as caught:
        store.apply(changeset(text))
    store.listeners.remove(told.append)
    assert (content(store), store.revision) == before
    assert told == []
    return [problem.message for problem in caught.value.problems]


def at(text: str, line: int, word: str = "rds") -> Variant:
    """A variant that is written at this line of main.yaml."""
    made = variant(word, text)
    made.origin = Origin("main.yaml", line)
    return made


# -- what is accepted


@pytest.mark.parametrize(
    "text",
    [
        "rds main[env=prod]=p main[env=test]=t",
        "rds main[env=prod and not version exists]=old main[env=prod and version=v1]=v1",
        TP2_TABLE,
        "rds main[env in (prod, test)]=1 main[env=qa]=2",
    ],
)
def test_disjoint_variants_are_accepted(text):
    # DYN-35
    store = filled(text)
    assert store.revision == 1
    assert store.table(ROUTE).variants == len(changeset(text)[ROUTE, "main"])


def test_tp2s_table_gives_each_client_its_variant():
    # DYN-35
    table = filled(TP2_TABLE).table(ROUTE)
    params = [{"env": env, "version": v} for env in ("prod", "test") for v in ("v1", "v2")]
    assert [table.select("main", Params(p)).body for p in params] == [b"1", b"2", b"3", b"4"]
    assert table.select("main", NO_PARAMS).body == b"4"


def test_only_the_final_state_of_a_transaction_has_to_be_disjoint():
    # DYN-38: with any of the old variants beside them the new ones would overlap
    store = filled("rds main[env=prod]=p main[env=test]=t")
    store.apply(changeset("rds main[env in (prod, test)]=1 main[env=qa]=2"))
    assert store.table(ROUTE).select("main", TEST).body == b"1"
    store.apply(changeset("rds main=1"))
    store.apply(changeset("rds main[env=test]=p main[env=prod]=t"))
    assert store.table(ROUTE).select("main", TEST).body == b"p"


# -- what is refused


@pytest.mark.parametrize(
    ("text", "witness"),
    [
        ("rds main[env in (prod, test)]=1 main[env in (qa, test)]=2", "both match env=test"),
        ("rds main[not env=prod]=1 main[env=test]=2", "both match env=test"),
        ("rds main[env exists]=1 main[env=prod]=2", "both match env=prod"),
        ("rds main=1 main[env=prod]=2", "both match env=prod"),
        ("rds main=1 main=2", "both match every client"),
        ("rds main[env=prod]=1 main[env=prod]=1", "both match env=prod"),
    ],
)
def test_an_overlap_is_refused_and_what_was_there_stays(text, witness):
    # DYN-33, DYN-36, DYN-37
    store = filled("rds main[env=prod]=p", "cds a=1")
    (message,) = refused(store, text)
    assert message.startswith("envoy.config.route.v3.RouteConfiguration 'main': ")
    assert witness in message
    assert store.table(ROUTE).select("main", PROD).body == b"p"


def test_variants_that_mention_different_keys_and_overlap_are_refused():
    # DYN-34, DYN-37
    store = filled("rds main[env=prod]=p")
    (message,) = refused(store, "rds main[env=prod]=1 main[version=v1]=2")
    assert "'main': both match env=prod and version=v1: `env=prod` and `version=v1`" in message


# -- variants that mention different keys


def constraints(store: Store, name: str = "main") -> dict[str, str]:
    """What clients are told of each variant, by contents."""
    return {each.body.decode(): show(each.constraint) for each in store.table(ROUTE).get(name).variants}


def versions(store: Store) -> dict[str, str]:
    return {each.body.decode(): each.version for each in store.table(ROUTE).get("main").variants}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "rds main[env=prod]=1 main[version=v1 and env=test]=2",
            {"1": "env=prod and (version exists or not version exists)", "2": "version=v1 and env=test"},
        ),
        (
            "rds main[env=prod]=1 main[env!=prod and (version=v1 or version!=v1)]=2",
            {
                "1": "env=prod and (version exists or not version exists)",
                "2": "env!=prod and (version=v1 or version!=v1)",
            },
        ),
        (
            "rds main[env=prod and version=v1]=1 main[env=prod and version=v2]=2 main[env=test]=3",
            {
                "1": "env=prod and version=v1",
                "2": "env=prod and version=v2",
                "3": "env=test and (version exists or not version exists)",
            },
        ),
    ],
)
def test_a_key_that_only_some_variants_mention_is_added_to_the_others(text, told):
    # DYN-34
    store = filled("rds main[env=prod]=p", text)
    assert constraints(store) == told
    for each in store.table(ROUTE).get("main").variants:
        assert show(each.shown) in text


def test_padding_comes_and_goes_with_the_variant_that_needs_it():
    # DYN-34, DYN-31
    store = filled("rds main[env=prod]=p main[env=test]=t")
    before = versions(store)
    store.apply(changeset("rds main[env=prod and version=v1]=p main[env=test]=t"))
    assert versions(store)["t"] != before["t"]
    store.apply(changeset("rds main[env=prod]=p main[env=test]=t"))
    assert constraints(store) == {"p": "env=prod", "t": "env=test"}
    assert versions(store) == before
    store.apply(changeset("rds main[env=prod and version=v1]=p main[env=test]=t"))
    store.apply({(ROUTE, "main"): store.table(ROUTE).get("main").variants[1:]})  # as a transaction has it
    assert constraints(store) == {"t": "env=test"}
    assert versions(store)["t"] == before["t"]


def test_pages_show_the_current_origin_of_an_unchanged_variant():
    # DYN-30, DYN-34
    store = filled("rds main[env=prod and version=v1]=p main[env=test]=t")
    revision = store.revision
    by_hand = "env=test and (version exists or not version exists)"
    written = make_variant(ROUTE, "main", b"t", parse(by_hand), routing=Routing(), written=parse(by_hand))
    store.apply({(ROUTE, "main"): (variant("rds", "main[env=prod and version=v1]=p"), written)})
    assert store.revision == revision
    assert show(store.table(ROUTE).select("main", TEST).shown) == by_hand


def test_a_padded_variant_stays_the_object_that_was_sent_while_nothing_about_it_changes():
    # DYN-30, DYN-34
    store = filled("rds main[env=prod and version=v1]=1 main[env=test]=t")
    test = store.table(ROUTE).select("main", TEST)
    store.apply(changeset("rds main[env=test]=t main[env=prod and version=v1]=2 main[env=prod and version=v2]=3"))
    assert store.table(ROUTE).select("main", TEST) is test
    revision = store.revision
    store.apply(changeset("rds main[env=test]=t main[env=prod and version=v1]=2 main[env=prod and version=v2]=3"))
    assert store.revision == revision


def test_versions_are_the_same_in_whatever_order_variants_were_put():
    # DYN-34, DESIGN 6.6: two replicas that come from different states
    text = "main[env=prod and version=v1]=1", "main[env=test]=2", "main[zone=a and env=qa]=3"
    one = filled(f"rds {text[1]}", f"rds {text[0]} {text[1]}", f"rds {' '.join(text)}")
    other = filled(f"rds {text[2]} {text[0]}", f"rds {' '.join(text[::-1])}")
    assert versions(one) == versions(other)


def test_a_padding_that_is_too_large_is_refused_and_says_where():
    # DYN-8, DYN-34
    deep = "not " * 30 + "(a=1 or b=1)"
    with pytest.raises(ConfigError, match=r"main.yaml:3: .*mentions what other variants do \(c\)"):
        Store().apply({(ROUTE, "main"): (at(f"main[{deep}]=1", 3), at("main[a!=1 and b!=1 and c=1]=2", 9))})


def test_a_refusal_says_where_both_variants_are_written_and_what_matches_both():
    # DYN-37
    with pytest.raises(ConfigError) as caught:
        Store().apply({(ROUTE, "main"): (at("main[env in (prod, test)]=1", 14), at("main[env in (qa, test)]=2", 31))})
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == ("main.yaml", 14)
    assert problem.message == (
        "envoy.config.route.v3.RouteConfiguration 'main': both match env=test: "
        "`env in (prod, test)` and `env in (qa, test)` (the other is at main.yaml:31)"
    )


def test_a_refusal_says_nothing_of_the_place_of_a_variant_that_no_file_has():
    # DYN-37
    with pytest.raises(ConfigError) as caught:
        Store().apply({(ROUTE, "main"): (at("main[env=prod]=1", 14), variant("rds", "main[env exists]=2"))})
    (problem,) = caught.value.problems
    assert (problem.line, problem.message) == (
        14,
        "envoy.config.route.v3.RouteConfiguration 'main': both match env=prod: `env=prod` and `env exists`",
    )


def test_a_refusal_says_where_a_variant_that_is_already_served_is_written_now():
    # DYN-37
    store = Store()
    store.apply({(ROUTE, "main"): (at("main[env=prod]=1", 14),)})
    with pytest.raises(ConfigError) as caught:
        store.apply({(ROUTE, "main"): (at("main[env=prod]=1", 20), at("main[env exists]=2", 31))})
    (problem,) = caught.value.problems
    assert (problem.line, "(the other is at main.yaml:31)" in problem.message) == (20, True)
    assert store.table(ROUTE).select("main", PROD).origin == Origin("main.yaml", 14)


def test_a_transaction_is_taken_whole_or_not_at_all_and_every_problem_is_named():
    # DYN-33
    store = filled("cds a=1 b=1; rds main=1")
    problems = refused(store, "cds a=2 -b c=1; rds main=1 main[env=prod]=2; eds x=1 x=2; lds l[env=prod]=1 l[zone=a]=2")
    assert [message.split(":")[0] for message in problems] == [
        "envoy.config.route.v3.RouteConfiguration 'main'",
        "envoy.config.endpoint.v3.ClusterLoadAssignment 'x'",
        "envoy.config.listener.v3.Listener 'l'",
    ]
    assert content(store) == content(filled("cds a=1 b=1; rds main=1"))


def test_a_refused_transaction_of_a_new_type_leaves_no_table_behind():
    # DYN-33
    store = Store()
    refused(store, "rds main=1 main=2; cds a=1")
    assert store.tables() == []


def test_after_a_refusal_the_next_transaction_is_taken():
    # DYN-33
    store = filled("rds main[env=prod]=p")
    refused(store, "rds main[env=prod]=1 main[env exists]=2")
    applied = store.apply(changeset("rds main[env=prod]=1 main[env!=prod]=2"))
    assert (applied.revision, store.table(ROUTE).select("main", TEST).body) == (2, b"2")


# -- identity and versions


def test_an_unchanged_variant_stays_the_same_object():
    # DYN-30
    store = filled("rds main[env=prod]=p main[env=test]=t")
    table = store.table(ROUTE)
    prod, test = table.select("main", PROD), table.select("main", TEST)
    store.apply(changeset("rds main[not (not env=prod)]=p main[env=test]=t2"))
    assert table.select("main", PROD) is prod
    assert table.select("main", PROD).constraint == Eq("env", "prod")
    assert table.select("main", TEST) is not test


def test_a_variant_that_takes_the_form_of_its_forerunner_is_not_encoded_as_the_one_it_was_made_of():
    # DYN-25, DYN-30: once put back after a deletion it is sent in its own form
    store = filled("rds main[env=prod and zone=a]=1")
    made = variant("rds", "main[zone=a and env=prod]=2")
    params = Params({"env": "prod", "zone": "a"})
    for change, form in (((made,), "env=prod and zone=a"), ((), None), ((made,), "zone=a and env=prod")):
        store.apply({(ROUTE, "main"): change})
        kept = store.table(ROUTE).select("main", params)
        if kept is not None:
            response = Encoder("here").encode(Send(ROUTE, True, "n", "v", located=(kept,)))
            (resource,) = DeltaDiscoveryResponse.FromString(response).resources
            sent = constraint_from_proto(resource.resource_name.dynamic_parameter_constraints)
            assert (sent, kept.constraint) == (parse(form), parse(form))


@pytest.mark.parametrize(
    "text",
    [
        "rds main[env=prod and zone=a]=p main[env=test and zone=a]=t",
        "rds main[env=test and zone=a]=t main[env=prod and zone=a]=p",
        "rds main[zone=a and env=prod]=p main[zone=a and not (not env=test)]=t",
        "rds -other; cds -a",
        "",
    ],
)
def test_a_transaction_that_changes_nothing_makes_no_revision_and_tells_nobody(text):
    # DYN-30
    store = filled("rds main[env=prod and zone=a]=p main[env=test and zone=a]=t")
    told: list[Applied] = []
    store.listeners.append(told.append)
    assert store.apply(changeset(text)) == Applied(1, ())
    assert (store.revision, store.table(ROUTE).revision, told) == (1, 1, [])


def test_deleting_what_never_was_makes_no_table():
    store = Store()
    assert store.apply(changeset("rds -main")) == Applied(0, ())
    assert store.tables() == []


def test_where_a_variant_is_written_moves_along_without_a_revision():
    store = Store()
    store.apply({(ROUTE, "main"): (at("main=1", 3),)})
    store.apply({(ROUTE, "main"): (at("main=1", 7),)})
    assert (store.revision, store.table(ROUTE).select("main", NO_PARAMS).origin) == (1, Origin("main.yaml", 7))


def test_same_contents_with_other_constraints_are_another_variant():
    # DYN-30, DYN-31
    store = filled("rds main[env=prod]=1 main[env=test]=1")
    table = store.table(ROUTE)
    assert table.select("main", PROD).version != table.select("main", TEST).version
    before = table.select("main", PROD)
    applied = store.apply(changeset("rds main[env in (prod, test)]=1"))
    assert len(applied.changes) == 1
    assert table.select("main", PROD).version != before.version


def test_a_version_is_the_same_in_every_process_and_release():
    # DYN-31, SRV-12: a change of these makes every client load everything again on an upgrade
    assert variant("rds", "main=1").version == "429bde523874fdb6"
    assert variant("rds", "main[env=prod and not version exists]=1").version == "0736a944bcecd257"


def test_everything_that_a_client_sees_is_in_the_version():
    # DYN-31
    parts = [
        make_variant(ROUTE, "main", b"body"),
        make_variant(CLUSTER, "main", b"body"),
        make_variant(ROUTE, "mainb", b"ody"),
        make_variant(ROUTE, "main", b"bod"),
        make_variant(ROUTE, "main", b"bod", extras=b"y"),
        make_variant(ROUTE, "main", b"body", extras=b"y"),
        make_variant(ROUTE, "main", b"body", parse("env=prod")),
        make_variant(ROUTE, "main", b"body", parse("env=prod or not env exists")),
        make_variant(ROUTE, "main", b"body", parse("not env=prod")),
    ]
    assert len({part.version for part in parts}) == len(parts)
    assert all(int(part.version, 16) == part.digest for part in parts)


def test_where_it_is_written_and_how_its_constraints_are_is_not_in_the_version():
    # DYN-30, SRV-12
    made = [
        make_variant(ROUTE, "main", b"body", parse("env=prod and zone=a")),
        make_variant(ROUTE, "main", b"body", parse("zone=a and (env=prod and env=prod)"), origin=Origin("x.yaml", 3)),
        make_variant(ROUTE, "main", b"body", parse("not (not (zone=a and env=prod))"), references=((CLUSTER, "main"),)),
    ]
    assert len({one.version for one in made}) == 1


def test_versions_and_digests_do_not_depend_on_history():
    # SRV-12, DYN-31
    straight = filled("cds a[env=prod]=p a[env=test]=t b=1 c=1")
    winding = filled(
        "cds c=0 z=1",
        "cds a=1 b=0",
        "cds b=1 a[env=test]=t a[env=prod]=0 -c",
        "cds c=1 -z a[env=test]=t a[not (not env=prod)]=p",
    )
    for params in (PROD, TEST, NO_PARAMS):
        one, other = (store.table(CLUSTER).everything.snapshot(params) for store in (straight, winding))
        assert [(v.name, v.version) for v in one.variants] == [(v.name, v.version) for v in other.variants]
        assert one.digest == other.digest == digest_of(reversed(one.variants))
    assert (
        straight.table(CLUSTER).everything.snapshot(PROD).digest
        != straight.table(CLUSTER).everything.snapshot(TEST).digest
    )


# -- aliases


@pytest.mark.parametrize("text", ["cds b(x)=1", "cds b(y, x)=1 a(x)=1", "cds a(x)=2 b(x)=1", "cds b(x)=1 a(x)=2"])
def test_an_alias_belongs_to_one_resource(text):
    # DLT-20
    store = filled("cds a(x)=1 b=1")
    (message,) = refused(store, text)
    assert "alias 'x'" in message
    assert "'a'" in message
    assert "'b'" in message


def test_an_alias_is_refused_where_it_is_written():
    # DLT-20
    with pytest.raises(ConfigError) as caught:
        Store().apply({(CLUSTER, "a"): (at("a(x)=1", 1, "cds"),), (CLUSTER, "b"): (at("b(x)=1", 9, "cds"),)})
    assert [(problem.file, problem.line) for problem in caught.value.problems] == [("main.yaml", 9)]


@pytest.mark.parametrize("text", ["cds a=1 b(x)=1", "cds b(x)=1 a=1", "cds b(x)=1 -a", "cds -a b(x)=1"])
def test_an_alias_may_move_within_a_transaction(text):
    # DLT-20, DYN-38
    store = filled("cds a(x)=1 b=1")
    store.apply(changeset(text))
    table = store.table(CLUSTER)
    assert (table.owner("x"), table.select("x", NO_PARAMS).name) == ("b", "b")


def test_an_alias_of_another_type_is_another_alias():
    # DLT-20
    store = filled("cds a(x)=1; eds b(x)=1")
    assert [store.table(url).select("x", NO_PARAMS).name for url in (CLUSTER, ENDPOINT)] == ["a", "b"]


def test_an_alias_leads_to_the_variants_and_a_name_wins_over_it():
    # DLT-20
    store = filled("cds a(x)[env=prod]=p", "cds a(x)=1")
    table = store.table(CLUSTER)
    assert table.get("x") is table.get("a")
    store.apply(changeset("cds x=2"))
    assert table.select("x", NO_PARAMS).body == b"2"
    store.apply(changeset("cds -x"))
    assert table.select("x", NO_PARAMS).body == b"1"
    store.apply(changeset("cds -a"))
    assert (table.get("x"), table.owner("x")) == (None, None)


def test_writing_to_a_name_does_not_touch_the_resource_that_has_it_as_an_alias():
    # DLT-20
    store = filled("cds a(x)=1")
    (change,) = store.apply(changeset("cds x=1")).changes
    assert (change.name, change.before) == ("x", None)
    assert store.apply(changeset("cds -y")) == Applied(2, ())
    (change,) = store.apply(changeset("cds -x")).changes
    assert store.table(CLUSTER).select("a", NO_PARAMS).body == b"1"


# -- what is told


def test_listeners_are_told_once_for_each_transaction():
    told: list[Applied] = []
    store = filled("cds b=1")
    store.listeners.append(told.append)
    applied = store.apply(changeset("cds a=1 -b; rds main[env=prod]=p main[env=test]=t; eds -x"))
    assert told == [applied]
    assert applied.revision == store.revision == 2
    assert [(change.revision, change.type_url, change.name) for change in applied.changes] == [
        (2, CLUSTER, "a"),
        (2, CLUSTER, "b"),
        (2, ROUTE, "main"),
    ]
    came, went, varied = applied.changes
    assert (came.before, came.after) == (None, store.table(CLUSTER).get("a"))
    assert (went.before.variants[0].body, went.after) == (b"1", None)
    assert [one.body for one in varied.after.variants] == [b"p", b"t"]


def test_listeners_see_the_state_after_the_transaction():
    seen: list[tuple[int, int]] = []
    store = Store()
    store.listeners.append(lambda applied: seen.append((len(store.table(CLUSTER)), len(store.table(ROUTE)))))
    store.apply(changeset("cds a=1 b=1; rds main=1"))
    assert seen == [(2, 1)]


def test_a_change_names_every_string_that_a_client_may_have_asked_for():
    # DLT-20
    store = filled("cds a(x, y)=1")
    (change,) = store.apply(changeset("cds a(y, z)=1")).changes
    assert change.names[0] == "a"
    assert sorted(change.names) == ["a", "x", "y", "z"]


def test_a_table_is_at_the_revision_of_its_own_last_change():
    store = filled("cds a=1", "rds main=1", "rds main=2")
    assert [(table.spec.label, table.revision) for table in store.tables()] == [("cds", 1), ("rds", 3)]


def test_tables_come_in_the_order_of_delivery():
    store = filled("rtds r=1; rds r=1; lds l=1; eds e=1; cds c=1; type.example.Thing t=1")
    labels = [table.spec.label for table in store.tables()]
    assert labels == ["cds", "eds", "lds", "rds", "rtds", "type.example.Thing"]


def test_a_table_that_a_client_made_is_forgotten_unless_it_is_in_use():
    store = filled("cds a=1")
    store.table(ROUTE)
    store.table(ENDPOINT).sessions += 1
    for type_url in (CLUSTER, ROUTE, ENDPOINT, "never.heard/Of"):
        store.discard(type_url)
    assert [table.spec.label for table in store.tables()] == ["cds", "eds"]
    assert store.table(CLUSTER).select("a", NO_PARAMS).constraint == TRUE
