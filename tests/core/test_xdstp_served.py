"""xdstp names as a server has them: one resource for all spellings, glob collections, and names that can't be."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tests.core.modes import both
from tests.core.support import Bench, Peer, changeset, error_about, play
from tests.support import insides
from xdsprism.core.model.events import DeltaRequest, Key, SotwRequest
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.types import CLUSTER, LISTENER, NO_PARAMS, PREFIX, VIRTUAL_HOST, Params
from xdsprism.core.model.variants import VariantSet

BASE = "xdstp://auth/envoy.config.cluster.v3.Cluster"
RDS = "xdstp://auth/envoy.config.route.v3.RouteConfiguration"
ALL = Settings(resource_errors="all")
NONE = Settings(resource_errors="none")
PLUS = {"delta": "+", "sotw": ""}


def act(script: str, **options: object) -> Bench:
    """A transcript in which `~` stands for the authority and the type of clusters, and `^^` for those of routes."""
    return play(script.replace("~", BASE).replace("^^", RDS), **options)  # type: ignore[arg-type]


def heard(peer: Peer) -> list[str]:
    return [line.replace(BASE, "~") for line in peer.hears()]


# -- one resource, many spellings


@both
def test_every_spelling_of_a_name_is_one_subscription(mode: str):
    # XTP-1, XTP-2
    plus = PLUS[mode]
    act(
        f"""
        store rds ^^/main?a=1&b=2=x
        > rds {plus}^^/main?b=2&a=1 {plus}^^/m%61in?a=1&b=2
        < rds ^^/main?a=1&b=2=x

        > rds ack
        store rds ^^/main?a=1&b=2=y
        < rds ^^/main?a=1&b=2=y
        """,
        mode=mode,
    )


def test_a_name_is_unsubscribed_in_any_spelling():
    # XTP-1, DLT-7
    act(
        """
        store rds ^^/main?a=1&b=2=x
        > rds +^^/main?b=2&a=1
        < rds ^^/main?a=1&b=2=x

        > rds ack -^^/main?b=2&a=1
        store rds ^^/main?a=1&b=2=y
        """
    )


def test_a_resource_held_under_another_spelling_is_not_sent_again():
    # XTP-1, DLT-13
    bench = Bench()
    bench.put(f"cds {BASE}/a?x=1&y=2=1")
    (variant,) = bench.store.table(CLUSTER).everything.snapshot(NO_PARAMS).variants
    peer = bench.delta()
    spelling = f"{BASE}/a?y=2&x=1"
    peer.receive(CLUSTER, DeltaRequest((Key(spelling),), initial_versions={spelling: variant.version}))
    assert peer.poll() == []


@both
def test_context_is_part_of_the_name_and_params_are_not(mode: str):
    # DYN-42: the name says which resource, the params which variant of it
    plus = PLUS[mode]
    act(
        f"""
        store rds ^^/r?shard=1[env=prod]=p1 ^^/r?shard=1[env!=prod]=t1 ^^/r?shard=2=2
        > rds {plus}^^/r?shard=1{{env=prod}} {plus}^^/r?shard=2{{env=prod}}
        < rds ^^/r?shard=1[env=prod]=p1 ^^/r?shard=2[]=2

        > rds ack
        store rds ^^/r?shard=1[env=prod]=p1 ^^/r?shard=1[env!=prod]=t2
        """,
        mode=mode,
    )


def test_params_do_not_count_as_context_parameters():
    # DYN-42
    act(
        """
        store rds ^^/r?shard=1=1 ^^/s=2
        > rds +^^/r{shard=1} +^^/s?shard=1{}
        < rds -^^/r[] -^^/s?shard=1[]
        """
    )


# -- glob collections


def test_a_glob_has_the_members_one_step_below():
    # XTP-3
    act(
        """
        store cds ~/foo/a=1 ~/foo/b=1 ~/foo/deep/c=1 ~/food/d=1 ~/e=1 foo/f=1
        > cds +~/foo/*
        < cds ~/foo/a=1 ~/foo/b=1

        > cds ack
        store cds ~/foo/g=1 ~/foo/deep/h=1 ~/foo/a=2
        < cds ~/foo/a=2 ~/foo/g=1

        > cds ack
        store cds -~/foo/a -~/foo/deep/c
        < cds -~/foo/a

        > cds ack
        store cds ~/foo/a=2
        < cds ~/foo/a=2
        """
    )


def test_a_glob_may_be_of_the_names_without_a_path():
    # XTP-3
    act(
        """
        store cds ~/a=1 ~/foo/b=1
        > cds +~/*
        < cds ~/a=1
        """
    )


def test_a_glob_has_the_members_with_exactly_its_context():
    # XTP-4
    act(
        """
        store cds ~/foo/a=1 ~/foo/b?k=v=1 ~/foo/c?k=w=1 ~/foo/d?k=v&l=v=1
        > cds +~/foo/*?k=v
        < cds ~/foo/b?k=v=1

        > cds ack +~/foo/*
        < cds ~/foo/a=1

        > cds ack +~/foo/*?l=v&k=v
        < cds ~/foo/d?k=v&l=v=1
        """
    )


def test_an_authority_and_a_type_are_part_of_a_glob():
    # XTP-3
    other = BASE.replace("auth", "other")
    act(
        f"""
        store cds ~/foo/a=1 {other}/foo/b=1
        > cds +~/foo/*
        < cds ~/foo/a=1

        > cds ack
        store cds {other}/foo/b=2
        """
    )


def test_an_empty_glob_is_among_the_removed():
    # XTP-5, XTP-6
    act(
        """
        > cds +~/foo/*
        < cds -~/foo/*

        > cds ack
        store cds ~/foo/a=1
        < cds ~/foo/a=1

        > cds ack
        store cds -~/foo/a
        < cds -~/foo/a

        > cds ack +~/foo/*
        < cds -~/foo/*
        """
    )


def test_a_glob_that_is_asked_for_again_is_sent_again():
    # XTP-3, DLT-3
    act(
        """
        store cds ~/foo/a=1
        > cds +~/foo/*
        < cds ~/foo/a=1

        > cds ack +~/foo/*
        < cds ~/foo/a=1
        """
    )


def test_globs_and_names_work_together():
    # XTP-7
    act(
        """
        store cds ~/foo/a=1 ~/foo/b=1 ~/bar/c=1 plain=1
        > cds +~/foo/* +~/bar/* +~/foo/a +plain
        < cds ~/foo/a=1 ~/foo/b=1 ~/bar/c=1 plain=1

        > cds ack
        store cds ~/foo/a=2 ~/bar/d=1 -plain
        < cds ~/foo/a=2 ~/bar/d=1 -plain
        """
    )


def test_unsubscribing_from_a_member_resends_it_for_the_glob():
    # XTP-7, WLD-6
    act(
        """
        store cds ~/foo/a=1
        > cds +~/foo/* +~/foo/a +~/foo/b +~/bar/c
        < cds ~/foo/a=1 -~/foo/b -~/bar/c

        > cds ack -~/foo/a -~/foo/b -~/bar/c
        < cds ~/foo/a=1 -~/foo/b
        """
    )


def test_a_name_survives_its_glob_and_the_glob_the_name():
    # XTP-7, WLD-7
    act(
        """
        store cds ~/foo/a=1 ~/foo/b=1
        > cds +~/foo/* +~/foo/a
        < cds ~/foo/a=1 ~/foo/b=1

        > cds ack -~/foo/*
        store cds ~/foo/a=2 ~/foo/b=2
        < cds ~/foo/a=2
        """
    )


def test_a_name_takes_over_from_its_glob_what_that_still_owes():
    # XTP-7
    act(
        """
        store cds ~/foo/a=1
        > cds +~/foo/*
        < cds ~/foo/a=1

        > cds ack +~/foo/a -~/foo/*
        store cds -~/foo/a
        < cds -~/foo/a
        """
    )


def test_a_member_of_a_wildcard_and_a_glob_is_sent_once():
    # XTP-7, DLT-19
    act(
        """
        store cds ~/foo/a=1 b=1
        > cds +* +~/foo/*
        < cds ~/foo/a=1 b=1

        > cds ack
        store cds ~/foo/a=2 b=2
        < cds ~/foo/a=2 b=2

        > cds ack
        store cds -~/foo/a
        < cds -~/foo/a

        > cds ack -~/foo/*
        store cds ~/foo/a=3
        < cds ~/foo/a=3

        > cds ack -* +~/foo/*
        < cds ~/foo/a=3

        > cds ack
        store cds b=3
        """
    )


def test_an_unsubscribed_glob_sends_nothing_more():
    # XTP-3, WLD-9
    bench = act(
        """
        store cds ~/foo/a=1
        > cds +~/foo/* +~/bar/*
        < cds ~/foo/a=1 -~/bar/*

        > cds ack -~/foo/* -~/bar/*
        store cds ~/foo/a=2 ~/foo/b=1 ~/bar/c=1
        """
    )
    assert not insides.globs(bench.store.table(CLUSTER))


def test_each_member_of_a_glob_comes_in_the_variant_for_the_params():
    # XTP-3, DYN-41
    act(
        """
        store cds ~/foo/a[env=prod]=p ~/foo/a[env=test]=t ~/foo/b[env=test]=t ~/foo/c=1
        > cds +~/foo/*{env=prod}
        < cds ~/foo/a[env=prod]=p ~/foo/c[]=1

        > cds ack
        store cds ~/foo/a[env=prod]=p ~/foo/a[env=test]=t2

        store cds ~/foo/b[env=prod]=p
        < cds ~/foo/b[env=prod]=p

        > cds ack
        store cds -~/foo/c
        < cds -~/foo/c[]
        """
    )


def test_params_of_the_node_count_for_plain_globs():
    # XTP-3, DYN-12
    act(
        """
        store cds ~/foo/a[env=prod]=p ~/foo/a[env=test]=t ~/foo/b[env=test]=t
        p> cds +~/foo/*
        p< cds ~/foo/a=p

        t> cds +~/foo/*
        t< cds ~/foo/a=t ~/foo/b=t

        store cds -~/foo/a
        p< cds -~/foo/a
        t< cds -~/foo/a
        """,
        nodes={"p": {"env": "prod"}, "t": {"env": "test"}},
    )


def test_an_empty_glob_is_removed_with_the_constraints_of_those_for_whom_it_is_empty():
    # XTP-5, DYN-11
    act(
        """
        store cds ~/foo/a[env=prod]=p
        > cds +~/foo/*{env=test,zone=z}
        < cds -~/foo/*[env=test]

        > cds ack
        store cds ~/foo/a[env exists]=1
        < cds ~/foo/a[env exists]=1
        """
    )


def test_no_response_says_both_that_a_glob_is_empty_and_what_is_in_it():
    # XTP-6
    act(
        """
        store cds ~/foo/a[env=prod]=p
        > cds +~/foo/*{env=prod} +~/foo/*{env=test} +~/foo/*
        < cds ~/foo/a[env=prod]=p
        < cds -~/foo/*
        < cds -~/foo/*[env=test]
        """
    )


def test_after_a_reconnect_only_what_differs_is_sent():
    # XTP-3, DLT-13, DLT-14
    act(
        """
        store cds ~/foo/a=1 ~/foo/b=2 ~/bar/d=1
        > cds +~/foo/* have ~/foo/a=1 ~/foo/b=1 ~/foo/gone=1 ~/bar/gone=1
        < cds ~/foo/b=2

        wait 6
        < cds -~/foo/gone
        """
    )


def test_after_a_reconnect_a_glob_that_became_empty_says_so():
    # XTP-5, DLT-14
    act(
        """
        > cds +~/foo/* have ~/foo/gone=1
        < cds -~/foo/*

        wait 6
        < cds -~/foo/gone
        """
    )


def test_a_rejected_member_does_not_hold_back_the_others():
    # XTP-3, NAK-29
    act(
        """
        store cds ~/foo/a=1 ~/foo/b=1
        > cds +~/foo/*
        < cds ~/foo/a=1 ~/foo/b=1

        > cds nack
        < cds ~/foo/a=1
        < cds ~/foo/b=1

        > cds ack
        store cds ~/foo/a=2
        < cds ~/foo/a=2
        """
    )


@pytest.mark.parametrize("form", ["", "{}"])
def test_an_empty_glob_that_was_rejected_along_with_others_is_said_alone(form: str):
    # XTP-5, NAK-29
    brackets = "[]" if form else ""
    act(
        f"""
        store cds a=1
        > cds +~/foo/*{form} +a{form}
        < cds a{brackets}=1 -~/foo/*{brackets}

        > cds nack
        < cds a{brackets}=1
        < cds -~/foo/*{brackets}

        > cds ack
        """
    )
    act(
        f"""
        store cds a=1
        > cds +~/foo/*{form} +a{form}
        < cds a{brackets}=1 -~/foo/*{brackets}

        > cds nack
        store cds ~/foo/b=1
        < cds ~/foo/b{brackets}=1
        < cds a{brackets}=1
        """
    )


def test_an_empty_glob_that_was_rejected_by_itself_is_not_repeated():
    # XTP-5, NAK-3
    act(
        """
        > cds +~/foo/*
        < cds -~/foo/*

        > cds nack

        store cds ~/foo/b=1
        < cds ~/foo/b=1
        """
    )


def test_a_removed_member_waits_for_those_who_may_use_it():
    # XTP-3, ORD-2
    act(
        """
        store cds ~/foo/a=1 ~/foo/b=1; rds r=1
        > cds +~/foo/*
        > rds +r
        < cds ~/foo/a=1 ~/foo/b=1
        < rds r=1

        > ack
        store cds -~/foo/a; rds r=2
        < rds r=2

        > rds ack
        < cds -~/foo/a
        """
    )


def test_a_wildcard_still_owes_the_removal_of_what_a_glob_had_too():
    # XTP-7, ORD-2
    act(
        """
        store cds ~/foo/a=1; rds r=1
        > cds +* +~/foo/*
        > rds +r
        < cds ~/foo/a=1
        < rds r=1

        > ack
        store cds -~/foo/a; rds r=2
        < rds r=2

        > cds -~/foo/*

        > rds ack
        < cds -~/foo/a
        """
    )


# -- names that nothing can have


def kind(error: str) -> str:
    return f"!{error}[]=INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "bad",
    [
        "xdstp:auth/T/a",
        "xdstp://auth",
        f"{BASE}",
        f"{BASE}/",
        f"{BASE}/a%zz",
        f"{BASE}/a?%zz=1",
        f"{RDS}/a",
        f"{RDS}/foo/*",
        f"{RDS}Collection/foo",
    ],
)
@pytest.mark.parametrize("settings", [Settings(), ALL, NONE], ids=["default", "all", "none"])
@both
def test_a_name_that_nothing_can_have_is_an_error_of_its_own(mode: str, bad: str, settings: Settings):
    # XTP-9, ERR-6, ERR-2
    plus, gone = PLUS[mode], f"-{bad}" if mode == "delta" else ""
    error = kind(bad) if settings is not NONE else ""
    play(
        f"""
        store cds a=1
        > cds {plus}{bad} {plus}a
        < cds a=1 {gone} {error}

        > cds ack
        store cds a=2
        < cds a=2
        """,
        mode=mode,
        settings=settings,
    )


@both
def test_the_error_of_a_bad_name_says_what_is_wrong_with_it(mode: str):
    # XTP-9
    bench = Bench()
    peer = bench.connect(None, delta=mode == "delta")
    keys = (Key(f"{BASE}/a"), Key(f"{BASE}/%zz", Params({"env": "prod"})))
    peer.receive(LISTENER, DeltaRequest(keys) if mode == "delta" else SotwRequest(keys))
    (send,) = peer.poll()
    found = {error_about(error): error.message for error in send.errors}
    assert found[f"{BASE}/a[]"] == (
        f"bad resource name '{BASE}/a': its type is envoy.config.cluster.v3.Cluster, "
        "but this is a envoy.config.listener.v3.Listener"
    )
    assert "'%zz' is not valid percent-encoding" in found[f"{BASE}/%zz[]"]


def test_a_glob_in_state_of_the_world_is_an_unknown_name():
    # XTP-8, ERR-6
    act(
        """
        store cds ~/foo/a=1; rds ^^/foo/r=1
        > cds ~/foo/* ~/foo/a
        < cds ~/foo/a=1 !~/foo/*[]=INVALID_ARGUMENT

        > rds ^^/foo/*
        < rds !^^/foo/*[]=INVALID_ARGUMENT

        > ack
        store cds ~/foo/b=1; rds ^^/foo/s=1
        """,
        mode="sotw",
    )


def test_a_name_of_an_unknown_authority_does_not_exist():
    # XTP-9: whoever else's authority it is
    act(
        """
        > rds +^^/r
        < rds -^^/r !^^/r[]=NOT_FOUND
        """.replace("^^", RDS.replace("auth", "nobody")),
        settings=ALL,
    )


def test_a_bad_name_can_be_unsubscribed():
    # XTP-9, DLT-8
    act(
        """
        > cds +^^/a
        < cds -^^/a !^^/a[]=INVALID_ARGUMENT

        > cds ack -^^/a

        > cds +^^/a
        < cds -^^/a !^^/a[]=INVALID_ARGUMENT
        """
    )


def test_the_name_of_a_virtual_host_begins_with_whatever_its_route_configuration_is_called():
    # VHD-2: an xdstp name, and then a host
    act(
        """
        store vhds ^^/main/shop<shop.example>=1
        > vhds +^^/main/shop.example
        < vhds ^^/main/shop(^^/main/shop.example)=1
        """
    )


# -- list collections


@both
def test_a_list_collection_is_a_resource_like_any_other(mode: str):
    # XTP-10
    url = PREFIX + "envoy.config.listener.v3.ListenerCollection"
    name = "xdstp://auth/envoy.config.listener.v3.ListenerCollection/edge"
    plus = PLUS[mode]
    play(
        f"""
        store {url} {name}=1
        > {url} {plus}{name}
        < {url} {name}=1

        > {url} ack
        store {url} {name}=2
        < {url} {name}=2
        """,
        mode=mode,
    )


# -- what it costs


def test_a_change_outside_a_collection_wakes_nobody_in_it():
    # XTP-3
    bench = Bench()
    bench.put(f"cds {BASE}/foo/a=1 {BASE}/bar/b=1")
    foo, bar = bench.delta(), bench.delta()
    for peer, path in ((foo, "foo"), (bar, "bar")):
        peer.ask(f"cds +{BASE}/{path}/*")
        peer.poll()
    woken = bench.interest.notify(bench.put(f"cds {BASE}/foo/a=2").changes)
    assert list(woken) == [foo.session("cds")]
    assert heard(foo) == ["cds ~/foo/a=2"]
    assert not bar.session("cds").is_pending


class Unlisted(dict[str, VariantSet]):
    def items(self) -> NoReturn:
        pytest.fail("the whole table was looked at")


def test_the_names_outside_a_collection_are_not_looked_at():
    # XTP-3: neither when it is first asked for, nor when something changes
    bench = Bench()
    bench.put("cds " + " ".join(f"{BASE}/other/{number}=1" for number in range(500)) + f" {BASE}/foo/a=1")
    table = bench.store.table(CLUSTER)
    table.everything.names = Unlisted(table.everything.names)
    peer = bench.delta()
    peer.ask(f"cds +{BASE}/foo/*")
    assert heard(peer) == ["cds ~/foo/a=1"]
    bench.put(f"cds {BASE}/foo/b=1 {BASE}/other/1=2")
    assert heard(peer) == ["cds ~/foo/b=1"]
    assert insides.log(table.everything) == [], "nobody follows the whole table"


def test_a_collection_that_nobody_follows_leaves_nothing_behind():
    bench = Bench()
    bench.put(f"cds {BASE}/foo/a=1")
    peer = bench.delta()
    peer.ask(f"cds +{BASE}/foo/* +{BASE}/bar/*")
    peer.poll()
    bench.put(f"cds -{BASE}/foo/a")
    peer.close()
    table = bench.store.table(CLUSTER)
    assert bench.left_behind() == {}
    assert insides.paths(table) == {}
    assert bench.interest.subscribers(CLUSTER, f"{BASE}/foo/a") == 0


def test_virtual_hosts_have_no_collections():
    bench = Bench()
    bench.store.apply(changeset(f"vhds {RDS}/main/shop<shop.example>=1"))
    assert insides.paths(bench.store.table(VIRTUAL_HOST)) == {}
