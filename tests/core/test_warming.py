"""What a changed cluster takes with it (C11)."""

from __future__ import annotations

import pytest
from envoy.config.cluster.v3 import cluster_pb2

from tests.core.modes import both, connect
from tests.core.support import Bench, play
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.model.types import CLUSTER, ENDPOINT


@both
@pytest.mark.parametrize("wish", ["+*", "+c +d"])
def test_a_changed_cluster_takes_its_endpoints_with_it(mode: str, wish: str):
    # ORD-11, S10: without being asked, and without an ACK of the cluster
    play(
        f"""
        store cds c=1 d=1; eds c=1 d=1
        > cds {wish}
        > eds +c +d
        < cds c=1 d=1
        < eds c=1 d=1

        store cds c=2
        < cds c=2 SAME
        < eds c=1

        > ack
        store cds c=3; eds d=2
        < cds c=3 SAME
        < eds c=1 d=2

        > ack
        """.replace("SAME", "d=1" if mode == "sotw" else ""),
        mode=mode,
    )


@both
def test_a_changed_cluster_takes_endpoints_with_it_that_a_wildcard_brought(mode: str):
    # ORD-11
    play(
        """
        store cds c=1; eds c=1 d=1
        > cds +*
        > eds +*
        < cds c=1
        < eds c=1 d=1

        > ack
        store cds c=2
        < cds c=2
        < eds c=1
        """,
        mode=mode,
    )


@both
def test_changed_endpoints_go_once_with_their_changed_cluster(mode: str):
    # ORD-11, ORD-1
    play(
        """
        store cds c=1; eds c=1
        > cds +*
        > eds +c
        < cds c=1
        < eds c=1

        > ack
        store cds c=2; eds c=2
        < cds c=2
        < eds c=2

        > ack
        """,
        mode=mode,
    )


@both
def test_endpoints_are_those_that_the_cluster_names_and_only_of_clusters_that_have_any(mode: str):
    # ORD-11
    bench = Bench()
    peer = connect(bench, mode)
    peer.ask("cds +*")
    peer.ask("eds +service +plain +c")
    bench.put("eds service=1 plain=1 c=1")
    peer.poll()
    peer.ask("ack")
    eds = cluster_pb2.Cluster(name="c", type=cluster_pb2.Cluster.EDS)
    eds.eds_cluster_config.service_name = "service"
    static = cluster_pb2.Cluster(name="plain", type=cluster_pb2.Cluster.STATIC)
    bench.store.apply({(CLUSTER, message.name): (variant_of(message),) for message in (eds, static)})
    cds, endpoints = peer.poll()
    assert (cds.type_url, cds.names) == (CLUSTER, ("c", "plain"))
    assert (endpoints.type_url, endpoints.names) == (ENDPOINT, ("service",))


@both
def test_a_changed_cluster_takes_nothing_to_who_did_not_ask_for_endpoints(mode: str):
    # ORD-11, SRV-21, SRV-23
    play(
        """
        store cds c=1; eds c=1 d=1
        a> cds +*
        b> eds +c
        c> cds +*
        c> eds +d
        a< cds c=1
        b< eds c=1
        c< cds c=1
        c< eds d=1

        a> ack
        b> ack
        c> ack
        store cds c=2
        a< cds c=2
        c< cds c=2
        """,
        mode=mode,
    )


@both
def test_endpoints_in_locator_form_go_with_their_cluster_too(mode: str):
    # ORD-11, DESIGN 6.14
    play(
        """
        store cds c=1; eds c[env=prod]=p c[env=test]=t
        > cds +c
        > eds +c{env=prod} +c{env=qa}
        < cds c=1
        < eds c[env=prod]=p MISSING

        > ack
        store cds c=2
        < cds c=2
        < eds c[env=prod]=p
        """.replace("MISSING", "-c[env=qa]" if mode == "delta" else "!c[env=qa]=NOT_FOUND"),
        mode=mode,
    )


def test_sotw_an_endpoint_request_that_says_nothing_new_after_a_cluster_change_is_answered():
    # ORD-5, S11: the answer is on its way already; what matters is that it is there, once
    play(
        """
        store cds c=1; eds c=1
        > cds
        > eds c
        < cds c=1
        < eds c=1

        > ack
        store cds c=2
        > eds c
        < cds c=2
        < eds c=1

        > eds c ack@1

        > ack
        """,
        mode="sotw",
    )


def test_sotw_an_endpoint_request_repeated_on_a_stream_of_its_own_is_answered():
    # ORD-5, S11: Envoy repeats names and the nonce that it ACKed already; its new cluster warms until it is answered
    bench = Bench()
    bench.put("cds c=1; eds c=1")
    clusters = bench.sotw(only_type=CLUSTER)
    clusters.ask("cds")
    clusters.poll()
    clusters.ask("cds ack")
    endpoints = bench.sotw(only_type=ENDPOINT)
    endpoints.ask("eds c")
    endpoints.poll()
    endpoints.ask("eds ack")
    assert endpoints.hears() == []
    bench.put("cds c=2")
    assert clusters.hears() == ["cds c=2"]
    assert endpoints.hears() == []
    endpoints.ask("eds c")
    assert endpoints.hears() == ["eds c=1"]
    endpoints.ask("eds ack")
    assert endpoints.hears() == []


@both
def test_a_changed_listener_takes_no_routes_with_it(mode: str):
    # ORD-6
    play(
        """
        store lds l=1; rds r=1
        > lds +*
        > rds +r
        < lds l=1
        < rds r=1

        > ack
        store lds l=2
        < lds l=2

        > ack
        """,
        mode=mode,
    )


@both
def test_a_cluster_without_endpoints_holds_nothing_back(mode: str):
    # ORD-7
    play(
        """
        store cds c=1 d=1; eds d=1; lds l=1; rds r=1
        > cds +*
        > eds +c +d
        > lds +*
        > rds +r
        < cds c=1 d=1
        < eds d=1 MISSING
        < lds l=1
        < rds r=1

        store eds d=2; rds r=2
        < eds d=2
        < rds r=2

        > ack
        store eds c=1
        < eds c=1
        """.replace("MISSING", "-c" if mode == "delta" else ""),
        mode=mode,
    )


def test_sotw_a_cluster_that_was_removed_and_is_back_gets_its_endpoints():
    # ORD-8
    play(
        """
        store cds c=1; eds c=1
        > cds
        > eds c
        < cds c=1
        < eds c=1

        > ack
        store cds -c
        < cds nothing

        > cds ack
        > eds none

        store cds c=1
        < cds c=1

        > eds c
        < eds c=1

        > ack
        """,
        mode="sotw",
    )


def test_delta_a_cluster_that_was_removed_and_is_back_gets_its_endpoints():
    # ORD-8
    play(
        """
        store cds c=1; eds c=1
        > cds +*
        > eds +c
        < cds c=1
        < eds c=1

        > ack
        store cds -c
        < cds -c

        > cds ack
        > eds -c

        store cds c=1
        < cds c=1

        > cds ack
        > eds +c
        < eds c=1
        """
    )


@both
def test_a_cluster_that_is_back_while_its_endpoints_are_still_subscribed_brings_them(mode: str):
    # ORD-8, ORD-11
    play(
        """
        store cds c=1; eds c=1
        > cds +*
        > eds +c
        < cds c=1
        < eds c=1

        > ack
        store cds -c
        < cds GONE

        > ack
        store cds c=1
        < cds c=1
        < eds c=1
        """.replace("GONE", "-c" if mode == "delta" else "nothing"),
        mode=mode,
    )


def test_delta_a_cluster_that_is_sent_again_after_a_nack_brings_its_endpoints():
    # ORD-11, NAK-29
    play(
        """
        store cds b=bad c=1; eds c=1
        > eds +c
        < eds c=1

        > eds ack
        > cds +*
        < cds b=bad c=1
        < eds c=1

        > eds ack
        > cds nack
        < cds b=bad
        < cds c=1
        < eds c=1
        """
    )
