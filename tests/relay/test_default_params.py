"""dynamic_parameters in a relay's bootstrap: what its clients have that send none."""

from __future__ import annotations

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3.discovery_pb2 import Resource

import xdsprism as xp
from tests.client.rig import bootstrap, both, cluster, timeless
from tests.relay.rig import Origin, Station, station
from tests.relay.test_groups import Legacy, _Served
from xdsprism.admin import read_model
from xdsprism.core.model.types import Params

NAME = "xdstp://auth/envoy.config.cluster.v3.Cluster/a"
OTHER = "xdstp://bare/envoy.config.cluster.v3.Cluster/a"
SOURCE = bootstrap(
    dynamic_parameters={"env": "prod", "zone": "z"},
    authorities={"auth": {"dynamic_parameters": {"env": "test"}}, "bare": {}},
)


def filled(*names: str) -> Origin:
    origin = Origin()
    with origin.store.transaction() as tx:
        for name in names:
            for env in ("prod", "test"):
                tx.put(cluster(name, env), when=f"env={env}")
            tx.put(cluster(name, "none"), when="not env exists")
    return origin


async def told(
    relay: Station, name: str, params: dict[str, str] | None = None, *, delta: bool = True, **metadata: str
) -> str:
    """What a client gets: by a locator, or without params by a plain name."""
    client = (await relay.raw(delta=delta)).of(**metadata)
    await client.want(xp.CLUSTER, name, params=params)
    (response,) = await client.rest()
    client.close()
    (resource,) = response.resources
    if delta:
        contents = resource.resource
    else:
        contents = resource if params is None else Resource.FromString(resource.value).resource
    return Cluster.FromString(contents.value).alt_stat_name


@both
@timeless
async def test_they_count_for_clients_that_send_none(delta: bool) -> None:
    # DYN-48
    origin = filled("a")
    async with station(origin.wire.connect, SOURCE) as relay:
        assert await told(relay, "a", delta=delta) == "prod"
        assert origin.asked(xp.CLUSTER) == [("a", Params({"env": "prod", "zone": "z"}))]


@timeless
async def test_each_key_that_the_node_gives_wins_over_its_default() -> None:
    # DYN-12, DYN-48
    origin = filled("a")
    async with station(origin.wire.connect, SOURCE) as relay:
        assert await told(relay, "a", env="test", pod="7") == "test"
        assert origin.asked(xp.CLUSTER) == [("a", Params({"env": "test", "zone": "z", "pod": "7"}))]


@both
@timeless
async def test_a_locator_with_params_is_taken_as_it_is_and_one_without_is_like_a_plain_name(delta: bool) -> None:
    # DYN-13
    origin = filled("a")
    async with station(origin.wire.connect, SOURCE) as relay:
        assert await told(relay, "a", {"zone": "y"}, delta=delta) == "none"
        assert await told(relay, "a", {}, delta=delta) == "prod"


@timeless
async def test_names_of_an_authority_have_its_own_and_inherit_none() -> None:
    # DYN-49
    origin = filled(NAME, OTHER, "a")
    async with station(origin.wire.connect, SOURCE) as relay:
        assert await told(relay, NAME) == "test"
        assert await told(relay, OTHER) == "none"
        assert await told(relay, NAME, env="prod") == "prod"


@pytest.mark.parametrize("names", [None, []])
@timeless
async def test_they_count_whatever_the_node_is_asked_for(names: list[str] | None) -> None:
    # DYN-12: `--node-params none` turns off the node, not the bootstrap
    origin = filled("a")
    async with station(origin.wire.connect, SOURCE, settings=xp.Settings(node_params=names)) as relay:
        assert await told(relay, "a") == "prod"


@timeless
async def test_a_wildcard_has_them_too() -> None:
    # DYN-41, DYN-48
    origin = filled("a", "b")
    async with station(origin.wire.connect, SOURCE) as relay:
        client = await relay.raw()
        await client.want(xp.CLUSTER, "*")
        found = {
            each.name: Cluster.FromString(each.resource.value).alt_stat_name
            for response in await client.rest()
            for each in response.resources
        }
        assert found == {"a": "prod", "b": "prod"}
        client.close()


@timeless
async def test_a_switched_off_feature_has_no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    # DYN-54
    monkeypatch.setenv("GRPC_EXPERIMENTAL_XDS_DYNAMIC_PARAMETERS", "false")
    origin = filled("a")
    async with station(origin.wire.connect, SOURCE) as relay:
        assert await told(relay, "a") == "none"


@timeless
async def test_a_group_is_found_by_them() -> None:
    # PRX-20
    legacy = Legacy()
    async with _Served(legacy), station(legacy.peer.connect, SOURCE, group_by=["env"]) as relay:
        assert await told(relay, "a") == "prod-1"
        assert legacy.asked == [("prod", "a")]


@timeless
async def test_a_name_that_is_none_is_told_so_as_ever() -> None:
    # XTP-12
    origin = filled("a")
    async with station(origin.wire.connect, SOURCE) as relay:
        client = await relay.raw()
        await client.want(xp.CLUSTER, "xdstp:nonsense", "a")
        responses = await client.rest()
        assert [each.name for response in responses for each in response.resources] == ["a"]
        client.close()


@timeless
async def test_the_admin_page_shows_them_as_params_of_the_client() -> None:
    # DYN-47
    origin = filled("a")
    async with station(origin.wire.connect, SOURCE) as relay:
        client = (await relay.raw()).of(zone="y")
        await client.want(xp.CLUSTER, "a")
        await client.want(xp.CLUSTER, "a", params={})
        await client.rest()
        (row,) = read_model.clients(relay.hub.connected(), 0.0, 0.0).rows
        assert row["params"] == {"env": "prod", "zone": "y"}
        assert [each["variant"] for each in row["types"][0]["subscriptions"]["first"]] == ["env=prod", "env=prod"]
        client.close()
