"""Resources of version 2 on a stream of version 3: each client gets the names of the version that it asked in."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.any_pb2 import Any as AnyMessage

import xdsprism as xp
from tests.client.rig import both, quiet, timeless
from tests.relay.rig import station
from xdsprism.core.model.type_versions import as_v2
from xdsprism.core.model.types import PREFIX
from xdsprism.messages.api_versions import to_v2
from xdsprism.testing import PeerStream, ScriptedPeer

OLD = as_v2(xp.LISTENER)
MANAGER, ROUTER = (PREFIX + kind.DESCRIPTOR.full_name for kind in (HttpConnectionManager, Router))
MANAGER_V2 = PREFIX + "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
ROUTER_V2 = PREFIX + "envoy.config.filter.http.router.v2.Router"

# How a server of v3's transport may still write what its operators wrote in v2: type of the response, of the Any.
OUTER = {"all of v2": (OLD, OLD), "v2 in a response of v3": (xp.LISTENER, OLD), "nested only": (xp.LISTENER,) * 2}
outer = pytest.mark.parametrize(("response_url", "any_url"), OUTER.values(), ids=OUTER)


def _listener() -> Listener:
    manager = HttpConnectionManager(stat_prefix="s")
    manager.http_filters.add(name="router").typed_config.Pack(Router())
    made = Listener(name="l")
    made.filter_chains.add().filters.add(name="hcm").typed_config.Pack(manager)
    return made


def _nested(packed: AnyMessage) -> list[str]:
    """The type URLs in a listener, outermost first."""
    made = Listener.FromString(packed.value)
    (config,) = [each.typed_config for chain in made.filter_chains for each in chain.filters]
    (inner,) = [each.typed_config for each in HttpConnectionManager.FromString(config.value).http_filters]
    return [packed.type_url, config.type_url, inner.type_url]


def _respond(stream: PeerStream, response_url: str, any_url: str, metadata: AnyMessage | None = None) -> None:
    body = to_v2(xp.LISTENER, _listener().SerializeToString())
    packed = AnyMessage(type_url=any_url, value=body)
    if stream.is_delta:
        resource = pb.Resource(name="l", version="v7", resource=packed)
        if metadata is not None:
            resource.metadata.typed_filter_metadata["x"].CopyFrom(metadata)
        stream.send(pb.DeltaDiscoveryResponse(type_url=response_url, nonce="n1", resources=[resource]))
    else:
        stream.send(pb.DiscoveryResponse(type_url=response_url, nonce="n1", version_info="v7", resources=[packed]))


def _anys(response: Any) -> list[AnyMessage]:
    delta = isinstance(response, pb.DeltaDiscoveryResponse)
    return [each.resource if delta else each for each in response.resources]


@outer
@both
@timeless
async def test_each_client_gets_outer_and_nested_type_urls_of_its_own_version(
    delta: bool, response_url: str, any_url: str
) -> None:
    # PRX-36
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay:
        new, old = await relay.raw(delta=delta), await relay.raw(delta=delta, v2=True)
        await new.want(xp.LISTENER, "l")
        await old.want(OLD, "l")
        stream = await peer.accept()
        await quiet()
        stream.pending()
        _respond(stream, response_url, any_url)
        (to_new,), (to_old,) = await new.rest(), await old.rest()
        assert (to_new.type_url, to_old.type_url) == (xp.LISTENER, OLD)
        assert [_nested(each) for each in _anys(to_new)] == [[xp.LISTENER, MANAGER, ROUTER]]
        assert [_nested(each) for each in _anys(to_old)] == [[OLD, MANAGER_V2, ROUTER_V2]]
        assert [request.response_nonce for request in stream.pending()] == ["n1"]
        if delta:  # PRX-22: the version is the server's
            assert [each.version for response in (to_new, to_old) for each in response.resources] == ["v7"] * 2
        new.close(), old.close()


@timeless
async def test_fields_beside_the_contents_have_the_clients_version_too() -> None:
    # PRX-36: Resource.metadata has Anys as well
    peer = ScriptedPeer()
    async with station(peer.connect) as relay:
        client = await relay.raw()
        await client.want(xp.LISTENER, "l")
        stream = await peer.accept()
        await quiet()
        stream.pending()
        _respond(stream, xp.LISTENER, xp.LISTENER, AnyMessage(type_url=as_v2(xp.CLUSTER), value=b""))
        (response,) = await client.rest()
        (resource,) = response.resources
        assert resource.metadata.typed_filter_metadata["x"].type_url == PREFIX + Cluster.DESCRIPTOR.full_name
        client.close()
