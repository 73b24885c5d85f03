"""A control plane that knows nothing of dynamic parameters, behind `xdsprism relay --group-by`.

It is on go-control-plane, with a snapshot for each `env` of nodes. Real Envoys and gRPC clients of two groups stand
behind one relay.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import xdsprism as xp
from tests.support import grpcio_caller
from tests.support.backends import GrpcBackend, HttpBackend
from tests.support.relay_process import RelayedLab, RelayProcess
from tests.support.waiting import becomes

# The first test builds the control plane, and a first build fetches its packages.
pytestmark = pytest.mark.timeout(600)

GRPC = [sys.executable, Path(grpcio_caller.__file__)]
ENVS = ("prod", "test")


@pytest.fixture(params=["--delta", "--sotw"])
def relayed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RelayedLab]:
    with RelayedLab(tmp_path, "--group-by", "env", request.param) as lab:
        yield lab
        for name, log in lab.logs().items():
            print(f"end of {name}:\n{log}")


def bootstrap(relay: RelayProcess, **metadata: str) -> dict[str, Any]:
    server = {"server_uri": f"127.0.0.1:{relay.port}", "channel_creds": [{"type": "insecure"}]}
    node = {"id": "client", "metadata": metadata}
    return {"xds_servers": [{**server, "server_features": ["xds_v3"]}], "node": node}


def says(env: str, *commands: str) -> list[str]:
    return [f"in {env} {command}" for command in commands]


def world(env: str, web: HttpBackend, rpc: GrpcBackend) -> list[str]:
    """What Envoys and gRPC clients of an env find under the same names as those of the other."""
    return says(
        env,
        *("cluster web 1", f"endpoint web {web.port}", "route web web", "gateway web"),
        *("cluster rpc 1", f"endpoint rpc {rpc.port}", "route svc rpc", "service svc"),
    )


# PRX-7, PRX-10, PRX-15, PRX-20, PRX-21
@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_envoys_and_grpc_clients_of_two_groups_each_get_their_own(relayed: RelayedLab, mode: str):
    webs = {env: relayed.http_backend(f"web-{env}") for env in (*ENVS, "next")}
    rpcs = {env: relayed.grpc_backend(f"rpc-{env}") for env in (*ENVS, "next")}
    plane = relayed.foreign("go-control-plane")
    plane.publish(*(line for env in ENVS for line in world(env, webs[env], rpcs[env])))
    envoys = {env: relayed.envoy(plane, mode, {"env": env, "host": f"envoy-{env}"}) for env in ENVS}
    callers = {env: relayed.caller(GRPC, plane, {"env": env, "host": f"grpc-{env}"}) for env in ENVS}
    for env in ENVS:
        becomes(lambda env=env: envoys[env].get("/"), f"web-{env}")
        callers[env].reaches(f"rpc-{env}")

    # An update of one group is for that one only: other endpoints, then another cluster.
    plane.publish(*says("prod", f"endpoint web {webs['next'].port}", f"endpoint rpc {rpcs['next'].port}"))
    becomes(lambda: envoys["prod"].get("/"), "web-next")
    callers["prod"].reaches("rpc-next")
    plane.publish(*says("prod", "cluster other 1", f"endpoint other {webs['prod'].port}", "route web other"))
    becomes(lambda: envoys["prod"].get("/"), "web-prod")

    # A removal too.
    gone = ("service svc", "gateway web", "cluster web", "endpoint web")
    plane.publish(*says("prod", *(f"delete {each}" for each in gone)))
    callers["prod"].fails("Say")
    becomes(envoys["prod"].listeners, {})
    becomes(lambda: sorted(envoys["prod"].clusters()), ["other", "rpc"])
    assert envoys["test"].get("/") == "web-test"
    assert set(callers["test"].replies()) <= {"rpc-test", None}
    assert callers["test"].replies()[-1] == "rpc-test"

    plane.publish(*says("prod", "service svc", "gateway web"))
    callers["prod"].reaches("rpc-next")
    becomes(lambda: envoys["prod"].get("/"), "web-prod")
    rejected = [value for envoy in envoys.values() for value in envoy.stats("update_rejected").values()]
    assert not any(rejected)


async def steps(watches: list[Any]) -> list[xp.Update]:
    """The next update of each. All at once, as a client reads on when all that were told have taken theirs."""
    async with asyncio.timeout(20):
        return await asyncio.gather(*map(anext, watches))


# PRX-3, PRX-5, PRX-20
@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
async def test_a_group_gets_a_variant_pinned_to_its_values(relayed: RelayedLab, delta: bool):
    plane = relayed.foreign("go-control-plane")
    plane.publish(*says("prod", "cluster shop 5", "cluster cart 6"), *says("test", "cluster shop 4"))
    relay = relayed.relay(plane)
    plain = xp.Client(bootstrap(relay, env="prod"), delta=delta, fail_on_data_errors=True)
    located = xp.Client(bootstrap(relay), delta=delta, fail_on_data_errors=True)
    async with plain, located:
        prod = plain.watch(xp.CLUSTER, "shop"), located.watch(xp.CLUSTER, "shop", params={"env": "prod", "host": "h1"})
        watches = [*prod, located.watch(xp.CLUSTER, "shop", params={"env": "test"})]
        firsts = await steps(watches)
        assert [update.resource.connect_timeout.seconds for update in firsts] == [5, 5, 4]
        assert [str(update.constraint) for update in firsts[1:]] == ["env=prod", "env=test"]
        assert {update.name for update in await plain.list(xp.CLUSTER, timeout=10)} == {"shop", "cart"}
        plane.publish(*says("prod", "cluster shop 7"), *says("test", "cluster shop 8"))
        assert [update.resource.connect_timeout.seconds for update in await steps(watches)] == [7, 7, 8]
        plane.publish(*says("prod", "delete cluster shop"), *says("test", "delete cluster shop"))
        assert [update.error.status for update in await steps(watches)] == ["NOT_FOUND"] * 3
        plane.publish(*says("prod", "cluster shop 9"))
        assert [update.resource.connect_timeout.seconds for update in await steps(watches[:2])] == [9, 9]
        for watch in watches:
            watch.close()


# PRX-9, PRX-20
@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
async def test_subscriptions_by_name_go_on_when_the_wildcard_ends(tmp_path: Path, relayed: RelayedLab, delta: bool):
    plane = relayed.foreign("go-control-plane")
    plane.publish("cluster shop 5")
    relay = RelayProcess(tmp_path, plane.port, *relayed.options, "--linger", "0.5")
    try:
        async with xp.Client(bootstrap(relay), delta=delta, fail_on_data_errors=True) as client:
            assert [update.name for update in await client.list(xp.CLUSTER, timeout=10)] == ["shop"]
            watch = client.watch(xp.CLUSTER, "shop")
            (first,) = await steps([watch])
            assert first.resource.connect_timeout.seconds == 5
            await asyncio.sleep(1.5)  # longer than the wildcard lingers
            plane.publish("cluster shop 6")
            (update,) = await steps([watch])
            assert update.resource.connect_timeout.seconds == 6
            plane.publish("delete cluster shop")
            (update,) = await steps([watch])
            assert update.error.status == "NOT_FOUND"
            watch.close()
    finally:
        relay.close()
