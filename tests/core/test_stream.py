"""Streams: types, nodes, and what is in a response (C1, as far as it needs no network)."""

from __future__ import annotations

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.core.modes import both, connect, wanting
from tests.core.support import Bench, Thorough, play
from xdsprism.core.codec.server_responses import RESOURCE, Encoder
from xdsprism.core.model.events import Key, Node, Request
from xdsprism.core.model.facts import Acked, Joined, Nacked, OtherNode
from xdsprism.core.model.types import CLUSTER, LISTENER, ROUTE, Params
from xdsprism.errors import PeerError

WIDGET = "type.googleapis.com/acme.Widget"


# -- types


@both
def test_a_service_of_one_type_takes_an_empty_type_url_for_its_own(mode: str):
    # SRV-3
    bench = Bench(kind=Thorough)
    bench.put("cds a=1")
    peer = connect(bench, mode, CLUSTER)
    peer.receive("", wanting(mode, Key("a")))
    (send,) = peer.poll()
    assert (send.type_url, send.names) == (CLUSTER, ("a",))
    peer.receive(CLUSTER, wanting(mode, Key("a"), nonce=send.nonce))
    assert len(bench.said(Acked)) == 1


@both
def test_a_service_of_one_type_refuses_another(mode: str):
    # SRV-3
    peer = connect(Bench(), mode, CLUSTER)
    with pytest.raises(PeerError, match=r"not type\.googleapis\.com/envoy\.config\.listener") as caught:
        peer.receive(LISTENER, wanting(mode))
    assert caught.value.status == "INVALID_ARGUMENT"


@both
def test_an_aggregated_stream_needs_a_type_url_in_every_request(mode: str):
    # SRV-4
    bench = Bench()
    peer = connect(bench, mode)
    peer.receive(CLUSTER, wanting(mode, Key("a")))
    with pytest.raises(PeerError, match="type_url is empty") as caught:
        peer.receive("", wanting(mode, Key("a")))
    assert caught.value.status == "INVALID_ARGUMENT"
    with pytest.raises(PeerError, match="type_url is empty"):
        connect(bench, mode).receive("", wanting(mode))


def test_delta_names_of_an_unknown_type_are_answered_as_removed_and_other_types_go_on():
    # SRV-5
    play(
        """
        store cds a=1
        > acme.Widget +x +y
        > cds +a
        < cds a=1
        < acme.Widget -x -y

        > ack
        store cds a=2
        < cds a=2

        store acme.Widget x=1
        < acme.Widget x=1
        """
    )


def test_sotw_an_unknown_type_is_quiet_and_other_types_go_on():
    # SRV-5
    play(
        """
        store cds a=1
        > acme.Widget x y
        > cds a
        < cds a=1

        > ack
        store cds a=2
        < cds a=2

        store acme.Widget x=1
        < acme.Widget x=1
        """,
        mode="sotw",
    )


@both
def test_a_type_that_only_clients_name_is_forgotten_with_them(mode: str):
    # SRV-5, OPS-7
    bench = Bench()
    peer = connect(bench, mode)
    peer.receive(WIDGET, wanting(mode, Key("x")))
    peer.receive(CLUSTER, wanting(mode, Key("*")))
    peer.poll()
    assert bench.interest.subscribers(WIDGET, "x") == 1
    peer.close()
    assert bench.store.tables() == []
    assert bench.interest.subscribers(WIDGET, "x") == 0
    assert bench.interest.subscribers(CLUSTER, "x") == 0
    bench.put("cds a=1")
    assert peer.hears() == []


@both
@pytest.mark.parametrize("word", ["cds", "eds", "acme.Widget"])
def test_a_response_has_the_type_that_was_asked_for_inside_and_out(mode: str, word: str):
    # SRV-18, SRV-20
    bench = Bench()
    bench.put(f"{word} a=1 b=1")
    peer = connect(bench, mode)
    peer.ask(f"{word} +a +b{{}}")
    (send,) = peer.poll()
    data = Encoder("me").encode(send)
    if mode == "delta":
        delta = pb.DeltaDiscoveryResponse.FromString(data)
        resources = list(delta.resources)
    else:
        sotw = pb.DiscoveryResponse.FromString(data)
        bare, wrapped = sotw.resources
        assert wrapped.type_url == RESOURCE
        resources = [pb.Resource(resource=bare), pb.Resource.FromString(wrapped.value)]
    response = delta if mode == "delta" else sotw
    assert response.type_url == send.type_url
    assert [resource.resource.type_url for resource in resources] == [send.type_url] * 2
    assert (response.nonce, response.control_plane.identifier) == (send.nonce, "me")


@both
def test_a_type_that_the_client_did_not_ask_for_is_never_sent(mode: str):
    # SRV-23, S4
    play(
        """
        store cds a=1
        > cds +*
        < cds a=1

        > ack
        store cds a=2; eds a=1; lds a=1; rds a=1; vhds a=1; sds a=1; acme.Widget a=1
        < cds a=2

        > ack
        store eds a=2; lds -a
        """,
        mode=mode,
    )


# -- nodes


@both
def test_the_node_of_the_first_message_counts_for_all_later_ones(mode: str):
    # SRV-6
    bench = play(
        """
        store cds a[env=prod]=p a[env=test]=t; rds r[env=prod]=p r[env=test]=t
        > cds +a
        < cds a=p

        > cds ack
        > rds +r
        < rds r=p

        > ack
        store cds a[env=prod]=p2 a[env=test]=t2
        < cds a=p2
        """,
        mode=mode,
        node={"env": "prod"},
    )
    assert bench.said(Joined) == [Joined(1, Node("envoy-1", metadata=Params({"env": "prod"})))]


@both
def test_another_node_later_is_ignored_and_counted(mode: str):
    # SRV-7
    bench = Bench()
    bench.put("cds a[env=prod]=p a[env=test]=t; rds r[env=prod]=p r[env=test]=t")
    peer = connect(bench, mode, env="prod")
    peer.ask("cds +a")
    assert peer.hears() == ["cds a=p"]
    other = Node("somebody", metadata=Params({"env": "test"}))
    peer.stream.receive(Request(ROUTE, wanting(mode, Key("r")), other, other_node=True), bench.now)
    assert peer.hears() == ["rds r=p"]
    assert bench.said(OtherNode) == [OtherNode(1)]
    assert peer.stream.node is not None
    assert peer.stream.node.id == "envoy-1"
    assert len(bench.said(Joined)) == 1


@both
def test_a_client_without_a_node_is_served_as_one_without_params(mode: str):
    # SRV-7
    bench = Bench()
    bench.put("cds a[env=prod]=p b=1 c[not env exists]=c")
    peer = bench.connect(None, delta=mode == "delta")
    peer.ask("cds +*")
    assert peer.hears() == ["cds b=1 c=c"]
    named = Request(ROUTE, wanting(mode), Node("late", metadata=Params({"env": "prod"})), other_node=True)
    peer.stream.receive(named, bench.now)
    assert peer.stream.node == Node()
    assert bench.said(OtherNode) == [OtherNode(1)]


@both
def test_two_streams_of_one_node_are_independent(mode: str):
    # SRV-22
    bench = play(
        """
        store cds a=1 b=1
        a> cds +a
        b> cds +b
        a< cds a=1
        b< cds b=1

        a> cds nack
        b> cds ack

        store cds b=2
        b< cds b=2

        b> cds ack
        store cds a=2
        a< cds a=2

        a> cds ack
        """,
        mode=mode,
        kind=Thorough,
    )
    verdicts = [(fact.stream, type(fact)) for fact in bench.facts if isinstance(fact, Acked | Nacked)]
    assert [kind for stream, kind in verdicts if stream == 1] == [Nacked, Acked]
    assert [kind for stream, kind in verdicts if stream == 2] == [Acked, Acked]


@both
def test_one_stream_that_ends_leaves_the_other_of_its_node_alone(mode: str):
    # SRV-22
    bench = Bench()
    bench.put("cds a=1")
    one, other = connect(bench, mode), connect(bench, mode)
    for peer in (one, other):
        peer.ask("cds +a")
        assert peer.hears() == ["cds a=1"]
    one.close()
    bench.put("cds a=2")
    assert other.hears() == ["cds a=2"]
    assert one.hears() == []


# -- what is in a response


@both
@pytest.mark.parametrize(
    ("wish", "heard"),
    [
        ("+a +a", "a(x)=1"),
        ("+a +*", "a(x)=1"),
        ("+x +a", "a(x)=1"),
        ("+a{} +a{}", "a(x)[]=1"),
        ("+a{env=prod} +a{env=test}", "a(x)[]=1"),
        ("+x{} +a{env=test} +*{}", "a(x)[]=1"),
    ],
)
def test_a_resource_that_several_subscriptions_select_is_in_a_response_once(mode: str, wish: str, heard: str):
    # SRV-19, DYN-17
    play(
        f"""
        store rds a(x)=1
        > rds {wish}
        < rds {heard}

        > rds ack
        store rds a(x)=2
        < rds {heard.replace("=1", "=2")}
        """,
        mode=mode,
    )


@both
def test_a_named_subscription_brings_exactly_what_was_named(mode: str):
    # SRV-21
    play(
        """
        store cds a=1 ab=1 b=1 p[env=prod]=1; rds a=1 b=1
        > cds +a +p
        > rds +b
        < cds a=1 GONE
        < rds b=1

        > ack
        store cds a=2 ab=2 b=2 p[env=prod]=2; rds a=2 b=2
        < cds a=2
        < rds b=2
        """.replace("GONE", "-p" if mode == "delta" else ""),
        mode=mode,
    )
