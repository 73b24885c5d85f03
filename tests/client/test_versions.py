"""xDS v2 and v3 (gRFC A30): the version for each server, in requests and in responses."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest
from envoy.api.v2.core.base_pb2 import Node as NodeV2
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryResponse, DiscoveryResponse, Resource

import xdsprism as xp
from tests.client.rig import (
    MAKE,
    accept,
    bootstrap,
    both,
    cluster,
    endpoint,
    exchange,
    follow,
    names,
    quiet,
    server,
    status,
    talk,
    talk_to_several,
    timeless,
)
from xdsprism.core.model.type_versions import RESOURCE, as_v2
from xdsprism.release import __version__

V2 = bootstrap(server(v3=False))
V3 = bootstrap(server())
TRANSPORTS = pytest.mark.parametrize("v3", [False, True], ids=["v2", "v3"])

BUILD_VERSION = 5


def path(version: str, delta: bool) -> str:
    method = "DeltaAggregatedResources" if delta else "StreamAggregatedResources"
    return f"/envoy.service.discovery.{version}.AggregatedDiscoveryService/{method}"


def node_fields(request: Any) -> dict[int, bytes]:
    """The fields of the node by number, as v2 knows them; each is short enough for a length of one byte."""
    raw, found = request.node.SerializeToString(), {}
    while raw:
        assert raw[0] & 7 == 2
        length = raw[1]
        found[raw[0] >> 3], raw = raw[2 : 2 + length], raw[2 + length :]
    return found


# -- what is sent


@both
@timeless
async def test_a_server_without_the_feature_gets_v2(delta):  # VER-5
    async with talk(V2, delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        follow(client, xp.ENDPOINT, "e")
        stream, first = await accept(peer)
        second = await stream.request()
        assert stream.path == path("v2", delta)
        assert [first.type_url, second.type_url] == [as_v2(xp.CLUSTER), as_v2(xp.ENDPOINT)]
        assert first.type_url == "type.googleapis.com/envoy.api.v2.Cluster"
        assert node_fields(first)[BUILD_VERSION] == f"xdsprism {__version__}".encode()
        node = NodeV2.FromString(first.node.SerializeToString())
        assert (node.id, node.cluster, node.build_version) == ("x", "y", f"xdsprism {__version__}")


@both
@timeless
async def test_a_server_with_the_feature_gets_v3(delta):  # VER-6
    async with talk(V3, delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, first = await accept(peer)
        assert stream.path == path("v3", delta)
        assert first.type_url == xp.CLUSTER
        assert BUILD_VERSION not in node_fields(first)


@TRANSPORTS
@timeless
async def test_unknown_features_of_any_type_are_ignored(v3):  # VER-7
    odd = server(v3=v3)
    odd["server_features"] = [None, 7, True, 1.5, {"xds_v3": True}, ["xds_v3"], "xds_v4", "", *odd["server_features"]]
    async with talk(bootstrap(odd)) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        assert stream.path == path("v3" if v3 else "v2", delta=False)


@both
@timeless
async def test_each_server_gets_the_version_that_it_knows(delta):  # VER-8
    source = bootstrap(server("new:1"), server("old:2", v3=False))
    async with talk_to_several(source, delta=delta, chance=lambda: 0.5) as (client, peers):
        peers["new:1"].refuse()
        watcher = follow(client, xp.CLUSTER, "a")
        old, request = await accept(peers["old:2"])
        assert (old.path, request.type_url) == (path("v2", delta), as_v2(xp.CLUSTER))
        assert BUILD_VERSION in node_fields(request)
        await exchange(old, as_v2(xp.CLUSTER), cluster("a", "old"))
        new, request = await accept(peers["new:1"])
        assert (new.path, request.type_url) == (path("v3", delta), xp.CLUSTER)
        assert BUILD_VERSION not in node_fields(request)
        await exchange(new, xp.CLUSTER, cluster("a", "new"))
        assert [(await watcher.next()).resource.alt_stat_name for _ in range(2)] == ["old", "new"]


@pytest.mark.parametrize("value", ["false", "true", None])
def test_an_environment_variable_hides_v3(monkeypatch, value):  # VER-12
    name = "GRPC_XDS_EXPERIMENTAL_V3_SUPPORT"
    monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv(name, value)

    @timeless
    async def main():
        async with talk(V3) as (client, peer):
            follow(client, xp.CLUSTER, "a")
            stream, _ = await accept(peer)
            assert stream.path == path("v2" if value == "false" else "v3", delta=False)

    main()


@both
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("chosen", ["v2", "v3", "auto"])
@timeless
async def test_the_program_may_choose_for_all_servers(delta, listed, chosen):  # VER-12
    expected = ("v3" if listed else "v2") if chosen == "auto" else chosen
    async with talk(bootstrap(server(v3=listed)), delta=delta, transport=chosen) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, request = await accept(peer)
        assert stream.path == path(expected, delta)
        assert (BUILD_VERSION in node_fields(request)) == (expected == "v2")


def test_another_choice_is_the_callers_error():  # VER-12
    with pytest.raises(xp.UsageError, match="v4"):
        xp.Client(V3, transport="v4")


@TRANSPORTS
@timeless
async def test_load_is_reported_in_the_version_of_the_server(v3):  # VER-10
    async with talk(V3 if v3 else V2) as (client, peer):
        client.loads()
        stream = await peer.accept()
        version = "v3" if v3 else "v2"
        assert stream.path == f"/envoy.service.load_stats.{version}.LoadReportingService/StreamLoadStats"


# -- locators


@both
@timeless
async def test_locators_are_not_sent_on_v2(delta):  # VER-13
    async with talk(bootstrap(server(v3=False), dynamic_parameters={"env": "prod"}), delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, request = await accept(peer)
        locators = request.resource_locators_subscribe if delta else request.resource_locators
        assert (names(request), list(locators)) == (["a"], [])
        await exchange(stream, as_v2(xp.CLUSTER), cluster("a"))
        assert status(await watcher.next()) == ("resource", "a")


@both
@timeless
async def test_two_params_of_one_name_are_one_name_on_v2(delta):  # VER-13
    async with talk(V2, delta=delta) as (client, peer):
        first = follow(client, xp.CLUSTER, "a", params={"env": "prod"})
        second = follow(client, xp.CLUSTER, "a", params={"env": "test"})
        stream, request = await accept(peer)
        assert names(request) == ["a"]
        await exchange(stream, as_v2(xp.CLUSTER), cluster("a"))
        assert status(await first.next()) == status(await second.next()) == ("resource", "a")
        await first.close()
        await quiet()
        for request in stream.pending():  # the other one still wants it
            assert not delta or list(request.resource_names_unsubscribe) == []
            assert delta or names(request) == ["a"]
        await exchange(stream, as_v2(xp.CLUSTER), cluster("a", "new"), version="2", nonce="n2")
        assert (await second.next()).resource == cluster("a", "new")
        await second.close()
        request = await stream.request()
        assert list(request.resource_names_unsubscribe) == ["a"] if delta else names(request) == []


# -- what is taken


def response(stream: Any, outer: str, inner: str, wrapper: str, *messages: Any, version: str = "1") -> None:
    """A response with any type URL at each level; no wrapper: bare resources, which are a thing of SotW."""
    made: Any = DeltaDiscoveryResponse() if stream.is_delta else DiscoveryResponse(version_info=version)
    made.type_url, made.nonce = outer, version
    for message in messages:
        resource = Resource(name=message.name, version=version)
        resource.resource.type_url, resource.resource.value = inner, message.SerializeToString()
        item = resource if stream.is_delta or wrapper else None
        if stream.is_delta:
            made.resources.append(item)
        elif item is not None:
            made.resources.add(type_url=wrapper, value=item.SerializeToString())
        else:
            made.resources.add(type_url=inner, value=message.SerializeToString())
    stream.send(made)


@both
@TRANSPORTS
@pytest.mark.parametrize("type_url", [xp.LISTENER, xp.ROUTE, xp.CLUSTER], ids=["lds", "rds", "cds"])
@timeless
async def test_type_urls_of_either_version_reach_the_same_watcher(delta, v3, type_url):  # VER-9
    make, own = MAKE[type_url], type_url if v3 else as_v2(type_url)
    urls = (type_url, as_v2(type_url))
    wrappers = [""] if delta else ["", RESOURCE, as_v2(RESOURCE)]
    async with talk(V3 if v3 else V2, delta=delta) as (client, peer):
        watcher = follow(client, type_url, "a")
        stream, _ = await accept(peer)
        for number, (outer, inner, wrapper) in enumerate(product(urls, urls, wrappers)):
            mark = str(number)
            response(stream, outer, inner, wrapper, make("a", mark), version=mark)
            ack = await stream.request()
            assert (ack.type_url, ack.response_nonce, ack.HasField("error_detail")) == (own, mark, False)
            update = await watcher.next()
            assert (update.resource, update.type_url) == (make("a", mark), type_url)


@both
@TRANSPORTS
@timeless
async def test_a_refusal_keeps_to_the_version_of_the_stream(delta, v3):  # VER-9
    own, other = (xp.CLUSTER, as_v2(xp.CLUSTER)) if v3 else (as_v2(xp.CLUSTER), xp.CLUSTER)
    async with talk(V3 if v3 else V2, delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        response(stream, other, xp.ENDPOINT, "", cluster("a"))
        nack = await stream.request()
        assert (nack.type_url, nack.HasField("error_detail")) == (own, True)


@TRANSPORTS
@timeless
async def test_a_watch_by_the_v2_name_of_a_type_is_the_same_watch(v3):  # VER-9
    async with talk(V3 if v3 else V2) as (client, peer):
        watcher = follow(client, as_v2(xp.CLUSTER), "a")
        stream, request = await accept(peer)
        assert request.type_url == (xp.CLUSTER if v3 else as_v2(xp.CLUSTER))
        await exchange(stream, request.type_url, cluster("a"))
        assert (await watcher.next()).type_url == xp.CLUSTER


@both
@TRANSPORTS
@timeless
async def test_a_type_without_a_twin_goes_by_its_only_name(delta, v3):  # VER-9
    url = xp.EXTENSION_CONFIG
    async with talk(V3 if v3 else V2, delta=delta) as (client, peer):
        follow(client, url, "x")
        _, request = await accept(peer)
        assert request.type_url == url


# -- old and new


@both
@timeless
async def test_a_server_of_v2_from_beginning_to_end(delta):  # VER-5, VER-9, CLI-5, CLI-6, CLI-16
    """Everything in the names of v2, over two streams."""
    cds, eds = as_v2(xp.CLUSTER), as_v2(xp.ENDPOINT)
    async with talk(V2, delta=delta, fail_on_data_errors=True) as (client, peer):
        clusters, endpoints = follow(client, xp.CLUSTER), follow(client, xp.ENDPOINT, "a")
        stream, request = await accept(peer)
        assert (request.type_url, names(request)) == (cds, [])
        assert names(await stream.request()) == ["a"]
        ack = await exchange(stream, cds, cluster("a"), cluster("b"), version="1", nonce="c1")
        assert (ack.type_url, ack.response_nonce) == (cds, "c1")
        assert (await exchange(stream, eds, endpoint("a"), version="5", nonce="e1")).type_url == eds
        assert {(await clusters.next()).name for _ in range(2)} == {"a", "b"}
        assert (await endpoints.next()).resource == endpoint("a")
        stream.end()
        again, first = await accept(peer)
        requests = {each.type_url: each for each in (first, await again.request())}
        assert (again.path, BUILD_VERSION in node_fields(first)) == (path("v2", delta), True)
        if delta:
            assert dict(requests[cds].initial_resource_versions) == {"a": "1", "b": "1"}
        else:
            assert (requests[cds].version_info, requests[eds].version_info) == ("1", "5")
        await exchange(again, cds, cluster("a", "new"), version="2", nonce="c2", removed=["b"])
        assert {(update.name, status(update)[0]) for update in [await clusters.next(), await clusters.next()]} == {
            ("a", "resource"),
            ("b", "error"),
        }


@timeless
async def test_a_client_of_two_servers_gives_one_watcher_what_either_says():  # VER-8, VER-9
    authorities = {"old": {"xds_servers": [server("old:2", v3=False)]}}
    async with talk_to_several(bootstrap(server("new:1"), authorities=authorities)) as (client, peers):
        name = "xdstp://old/envoy.config.cluster.v3.Cluster/a"
        watcher = follow(client, xp.CLUSTER, "a", name)
        new, old = await asyncio.gather(peers["new:1"].accept(), peers["old:2"].accept())
        new.respond(xp.CLUSTER, cluster("a"))
        old.respond(as_v2(xp.CLUSTER), cluster(name))
        assert {(await watcher.next()).name for _ in range(2)} == {"a", name}


@both
@timeless
async def test_on_v2_an_answer_is_for_all_watches_of_its_name(delta):  # VER-13
    async with talk(V2, delta=delta, fail_on_data_errors=True) as (client, peer):
        watchers = [
            follow(client, xp.CLUSTER, "a", params=params) for params in (None, {"env": "prod"}, {"env": "test"})
        ]
        stream, request = await accept(peer)
        assert names(request) == ["a"]
        await exchange(stream, as_v2(xp.CLUSTER), cluster("a"), nonce="n1")
        assert [(await watcher.next()).resource for watcher in watchers] == [cluster("a")] * 3
        await exchange(stream, as_v2(xp.CLUSTER), nonce="n2", version="2", removed=["a"])
        assert [status(await watcher.next())[0] for watcher in watchers] == ["error"] * 3
