"""What something costs a relay follows what happened, and not what is there already. Work is counted here."""

from __future__ import annotations

from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import endpoint, quiet, timeless
from tests.client.vhosts import vhost
from tests.relay.rig import Raw, pair
from tests.support.work import counted

READING = ("core/topic.py", "core/holders.py", "core/reading.py", "core/watching.py", "core/lookup.py")
SESSION = ("core/delta.py", "core/lookup.py", "core/constraints.py", "core/subscription.py", "core/answers.py")


async def settled(client: Raw) -> list[pb.DeltaDiscoveryResponse]:
    """All that came, ACKed."""
    responses: list[pb.DeltaDiscoveryResponse] = await client.rest()
    for response in responses:
        await client.ack(response)
    await quiet()
    return responses


@timeless
async def test_a_host_of_a_wildcard_domain_costs_the_same_however_many_there_are() -> None:
    # PRX-1, VHD-3
    async with pair() as (origin, relay):
        origin.put(vhost("main/wild", "*.example.com"))
        client = await relay.raw()
        work: dict[int, int] = {}
        for number in range(200):
            with counted(*READING) as calls:
                await client.want(xp.VIRTUAL_HOST, f"main/h{number}.example.com")
                await settled(client)
            work[number] = calls.total()
        assert work[199] <= 1.1 * work[20]


@timeless
async def test_hosts_of_a_wildcard_domain_all_hear_of_a_change_once() -> None:
    # VHD-9
    async with pair() as (origin, relay):
        origin.put(vhost("main/wild", "*.example.com", mark="old"))
        client = await relay.raw()
        for number in range(20):
            await client.want(xp.VIRTUAL_HOST, f"main/h{number}.example.com")
            await settled(client)
        origin.put(vhost("main/wild", "*.example.com", mark="new"))
        changed = [each for response in await settled(client) for each in response.resources]
        assert {alias for each in changed for alias in each.aliases} == {
            f"main/h{each}.example.com" for each in range(20)
        }
        origin.delete(xp.VIRTUAL_HOST, "main/wild")
        removed = await settled(client)
        gone = {name for response in removed for name in response.removed_resources}
        gone |= {each.name for response in removed for each in response.resources if not each.HasField("resource")}
        assert gone


async def unsubscribing(number: int) -> int:
    """What it is to let go, in one request, of so many parameter sets of one name, each with a variant of its own."""
    async with pair() as (origin, relay):
        with origin.store.transaction() as tx:
            for each in range(number):
                tx.put(endpoint("a"), when=f"pod=p{each}")
        client = await relay.raw()
        locators = [pb.ResourceLocator(name="a", dynamic_parameters={"pod": f"p{each}"}) for each in range(2 * number)]
        await client.send(type_url=xp.ENDPOINT, resource_locators_subscribe=locators)
        await settled(client)
        with counted(*SESSION) as calls:
            await client.send(type_url=xp.ENDPOINT, resource_locators_unsubscribe=locators[:number])
            await quiet()
        return calls.total()


@timeless
async def test_letting_go_of_many_params_of_one_name_costs_what_each_does() -> None:
    # PRX-31
    assert await unsubscribing(400) <= 4.4 * await unsubscribing(100)
