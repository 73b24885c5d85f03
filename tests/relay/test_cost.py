"""What something costs a relay follows what happened, and not what is there already. Work is counted here."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import cluster, endpoint, quiet, timeless
from tests.client.vhosts import vhost
from tests.relay.rig import Raw, Station, held, pair
from tests.relay.test_guard_types import custom, want_all
from tests.support.work import counted
from xdsprism.core.model import cached
from xdsprism.core.model.steps import EVERY
from xdsprism.core.model.types import make_variant
from xdsprism.core.relay.fairness import EVICTED
from xdsprism.core.relay.planning import LOOKS, Planner
from xdsprism.core.relay.subscribers import Subscribers
from xdsprism.core.relay.upstream_subscriptions import SOME, UpstreamSubscriptions
from xdsprism.core.watch.apply_response import Reading
from xdsprism.relay.work import Work

READING = (
    "core/watch/watched_type.py",
    "core/watch/host_holders.py",
    "core/watch/apply_response.py",
    "core/watch/response_matching.py",
    "core/watch/host_answers.py",
    "core/watch/negative_answers.py",
    "core/watch/resource_cache.py",
    "core/watch/entry.py",
    "core/watch/entry_index.py",
    "core/model/constraint_index.py",
)
PLANNING = (
    "core/relay/relaying.py",
    "core/relay/subscribers.py",
    "core/relay/planning.py",
    "core/relay/upstream_subscriptions.py",
    "core/relay/upstream_subscription.py",
    "core/relay/names_to_examine.py",
    "core/relay/finding_index.py",
    "core/relay/findings.py",
    "core/model/cached.py",
    "core/relay/audience.py",
    "core/relay/params_choice.py",
    "core/model/constraint_index.py",
    "core/model/constraints.py",
    "core/session/interest.py",
    "core/session/fast_path.py",
    "core/session/collecting.py",
    "core/model/knowledge.py",
    "core/model/listing.py",
    "core/model/lookup.py",
    "core/model/table.py",
    "server/hub.py",
)
SESSION = (
    "core/serve/delta.py",
    "core/model/constraint_index.py",
    "core/model/constraints.py",
    "core/session/session.py",
    "core/session/collecting.py",
    "core/session/in_flight.py",
)


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
        hosts = {f"main/h{each}.example.com" for each in range(20)}
        assert Counter(alias for each in changed for alias in each.aliases) == Counter(hosts)
        origin.delete(xp.VIRTUAL_HOST, "main/wild")
        removed = await settled(client)
        assert [name for response in removed for name in response.removed_resources] == ["main/wild"]


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


@timeless
async def test_params_of_one_name_cost_the_same_however_many_there_are() -> None:
    # PRX-5: each has a variant of its own, and each client comes by itself
    many = 300
    async with pair(linger=5.0) as (origin, relay):
        with origin.store.transaction() as tx:
            for each in range(many):
                tx.put(endpoint("a", f"m{each}"), when=f"pod=p{each}")
        clients = [(await relay.raw()).of(pod=f"p{each}") for each in range(many)]
        came: dict[int, int] = {}
        for number, client in enumerate(clients):
            with counted(*PLANNING) as calls:
                await client.want(xp.ENDPOINT, "a")
                (response,) = await settled(client)
            came[number] = calls.total()
            assert len(response.resources) == 1
        changed: dict[int, int] = {}
        for number in (30, many - 1):
            with counted(
                "core/relay/relaying.py",
                "core/relay/subscribers.py",
                "core/relay/planning.py",
                "core/relay/upstream_subscriptions.py",
                "core/relay/upstream_subscription.py",
                "core/relay/finding_index.py",
                "core/relay/findings.py",
                "core/session/fast_path.py",
            ) as calls:
                origin.put(endpoint("a", "new"), when=f"pod=p{number}")
                assert len(await settled(clients[number])) == 1
            changed[number] = calls.total()
        left: dict[int, int] = {}
        for number in (30, many - 1):
            with counted(
                "core/relay/relaying.py",
                "core/relay/subscribers.py",
                "core/relay/planning.py",
                "core/relay/upstream_subscriptions.py",
                "core/relay/upstream_subscription.py",
                "core/relay/finding_index.py",
                "core/relay/findings.py",
                "core/session/fast_path.py",
            ) as calls:
                clients[number].close()
                await quiet(10)
            left[number] = calls.total()
        assert len(origin.asked(xp.ENDPOINT)) == many - 2
        assert came[many - 1] <= 1.1 * came[30]
        assert changed[many - 1] <= 1.1 * changed[30]
        assert left[many - 1] <= 1.1 * left[30]


async def leaving(number: int) -> int:
    """What it is that a client leaves which has so many params of one name, each with a variant of its own."""
    async with pair(linger=5.0) as (origin, relay):
        with origin.store.transaction() as tx:
            for each in range(number):
                tx.put(endpoint("a"), when=f"pod=p{each}")
        client = await relay.raw()
        locators = [pb.ResourceLocator(name="a", dynamic_parameters={"pod": f"p{each}"}) for each in range(number)]
        await client.send(type_url=xp.ENDPOINT, resource_locators_subscribe=locators)
        await settled(client)
        with counted(*PLANNING) as calls:
            client.close()
            await quiet(10)
        assert origin.asked(xp.ENDPOINT) == []
        return calls.total()


@timeless
async def test_a_client_with_many_params_of_one_name_leaves_at_the_cost_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # PRX-9: the marked params are not copied in each step, and their classes are remembered as long as their findings
    monkeypatch.setattr(cached, "REMEMBERED", 8 * EVERY)
    assert await leaving(12 * EVERY) <= 4.1 * await leaving(3 * EVERY)


async def denied(number: int) -> int:
    """What it is to tell one client of so many params of one name that there is nothing for them."""
    async with pair() as (origin, relay):
        origin.put(endpoint("a"), when="pod=other")
        client = await relay.raw()
        locators = [pb.ResourceLocator(name="a", dynamic_parameters={"pod": f"p{each}"}) for each in range(number)]
        with counted(
            "core/session/collecting.py", "core/model/cached.py", "core/session/session.py", "core/model/types.py"
        ) as calls:
            await client.send(type_url=xp.ENDPOINT, resource_locators_subscribe=locators)
            await settled(client)
        return calls.total()


@timeless
async def test_negative_answers_for_many_params_cost_as_much_as_each() -> None:
    # PRX-31, DYN-11
    assert await denied(400) <= 4.4 * await denied(100)


MOST = {  # in one step
    "arrived": EVERY,
    "taken": EVERY,
    "planned": LOOKS,
    "asked": 2 * LOOKS,
    "ended": 2 * SOME,
    "gave way": EVICTED,
    "looked for clients": 2 * EVERY,
    "counted": 4 * EVERY,
}


def steps(relay: Station, patch: pytest.MonkeyPatch) -> list[Counter[str]]:
    """What each step of the relay's long work does, from now on.

    It counts resources of a response that arrive, those that somebody takes, names that are planned, upstream
    subscriptions that are made, end or give way or whose clients are looked for, and subscriptions that come or go.
    """
    sizes: list[Counter[str]] = [Counter()]

    def note(owner: Any, function: str, what: str, size: Any = lambda *_: 1) -> None:
        own = getattr(owner, function)

        def noted(*arguments: Any) -> Any:
            sizes[-1][what] += size(*arguments)
            return own(*arguments)

        patch.setattr(owner, function, noted)

    note(Reading, "_arrive", "arrived")
    note(Reading, "_accept", "taken")
    note(Planner, "look_at", "planned")
    note(UpstreamSubscriptions, "_add", "asked")
    note(UpstreamSubscriptions, "release", "ended")
    note(UpstreamSubscriptions, "give_way", "gave way")
    note(relay.hub.interest, "wanting", "looked for clients")
    note(Subscribers, "_count_some", "counted", lambda _, some: len(some))
    stepped = Work._step  # noqa: SLF001 # what is done in one step is what clients wait for, and they see no steps

    def step(work: Work, task: Any) -> bool:
        sizes.append(Counter())
        return stepped(work, task)

    patch.setattr(Work, "_step", step)  # see above
    return sizes


def largest(sizes: list[Counter[str]]) -> dict[str, int]:
    return {what: max(each[what] for each in sizes) for what in MOST}


@timeless
async def test_a_large_response_is_taken_in_by_small_steps_and_given_away_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # SRV-19, PRX-2: others are served meanwhile, and nobody sees half of it
    names = [f"c{number}" for number in range(1_500)]
    async with pair() as (origin, relay):
        origin.put(*(cluster(name, "old") for name in names))
        client, other = await relay.raw(), await relay.raw()
        await client.want(xp.CLUSTER, "*")
        await settled(client)
        sizes = steps(relay, monkeypatch)
        origin.put(*(cluster(name, "new") for name in names))
        await other.want(xp.CLUSTER, "c7")
        assert [len(response.resources) for response in await settled(client)] == [1_500]
        assert {Cluster.FromString(body).alt_stat_name for body in held((await settled(other))[-1]).values()} == {"new"}
        done = sum(sizes, Counter())
        assert min(done["arrived"], done["taken"], done["planned"]) >= 1_500
        assert all(size <= MOST[what] for what, size in largest(sizes).items()), largest(sizes)


@timeless
async def test_a_client_with_many_names_leaves_by_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # PRX-9
    async with pair(linger=5.0) as (origin, relay):
        origin.put(*(endpoint(f"c{number}") for number in range(600)))
        client = await relay.raw()
        await client.want(xp.ENDPOINT, *(f"c{number}" for number in range(600)))
        await settled(client)
        sizes = steps(relay, monkeypatch)
        client.close()
        await quiet(10)
        assert origin.asked(xp.ENDPOINT) == []
        done = sum(sizes, Counter())
        assert min(done["planned"], done["counted"]) >= 600
        assert all(size <= MOST[what] for what, size in largest(sizes).items()), largest(sizes)


@timeless
async def test_many_params_of_one_name_are_asked_for_by_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # PRX-5, SRV-19: all of a name is looked at, and others are served meanwhile
    many = 600
    async with pair(linger=5.0) as (origin, relay):
        with origin.store.transaction() as tx:
            for each in range(many):
                tx.put(endpoint("a", f"m{each}"), when=f"pod=p{each}")
        sizes = steps(relay, monkeypatch)
        client = await relay.raw()
        locators = [pb.ResourceLocator(name="a", dynamic_parameters={"pod": f"p{each}"}) for each in range(many)]
        await client.send(type_url=xp.ENDPOINT, resource_locators_subscribe=locators)
        came = sum(len(response.resources) for response in await settled(client))
        assert came >= many
        assert sum(sizes, Counter())["asked"] >= many
        assert all(size <= MOST[what] for what, size in largest(sizes).items()), largest(sizes)


@timeless
async def test_a_type_with_many_subscriptions_gives_way_and_is_asked_for_again_by_small_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # PRX-35, SRV-19: whoever else is there is served meanwhile
    many = 600
    monkeypatch.setattr("xdsprism.core.relay.spread.STREAMS", 1)
    monkeypatch.setattr("xdsprism.core.relay.spread.TYPES_PER_STREAM", 2)
    async with pair(linger=1.0) as (origin, relay):
        few, large, other = types = custom(3, "Type")
        names = [f"n{number}" for number in range(many)]
        origin.store.apply(
            {(each, name): (make_variant(each, name, b"1"),) for each in types for name in ["a", *names]}
        )
        greedy = await want_all(relay, [few], delta=True, whose="greedy")
        await greedy.want(large, *names)
        await settled(greedy)
        assert len(origin.asked(large)) == many
        sizes = steps(relay, monkeypatch)
        modest = await want_all(relay, [other], delta=True, whose="modest")
        assert [each.type_url for each in await settled(modest)] == [other]
        assert (len(origin.asked(large)), len(origin.asked(other))) == (0, 1)
        told = {error.resource_name.name for each in await settled(greedy) for error in each.resource_errors}
        assert told == {*names}
        done = sum(sizes, Counter())
        assert (done["gave way"], done["planned"] >= many) == (many, True)
        modest.close()
        await quiet(10)
        assert (len(origin.asked(large)), len(origin.asked(other))) == (many, 0)
        assert sum(sizes, Counter())["ended"] >= many
        assert all(size <= MOST[what] for what, size in largest(sizes).items()), largest(sizes)


async def refused(number: int) -> int:
    """What it is to refuse so many names of a type for which there is no room."""
    async with pair() as (_, relay):
        full, other = custom(2, "Type")
        first = await want_all(relay, [full], delta=True, whose="first")
        await settled(first)
        second = await want_all(relay, [other], delta=True, whose="second")
        with counted(
            "core/relay/fairness.py", "core/relay/budgets.py", "core/relay/shares.py", "server/hub.py"
        ) as calls:
            await second.want(other, *(f"n{each}" for each in range(number)))
            told = [error for each in await settled(second) for error in each.resource_errors]
        assert len(told) == number + 1
        return calls.total()


@timeless
async def test_refusals_of_many_names_cost_as_much_as_each(monkeypatch: pytest.MonkeyPatch) -> None:
    # PRX-35
    monkeypatch.setattr("xdsprism.core.relay.spread.STREAMS", 1)
    monkeypatch.setattr("xdsprism.core.relay.spread.TYPES_PER_STREAM", 1)
    assert await refused(400) <= 4.4 * await refused(100)


async def overtaking(number: int) -> int:
    """What it is to find what a client would replace, of so many params of one name that come one half later."""
    async with pair() as (origin, relay):
        with origin.store.transaction() as tx:
            for each in range(number):
                tx.put(endpoint("a"), when=f"pod=p{each}")
        client = await relay.raw()
        locators = [pb.ResourceLocator(name="a", dynamic_parameters={"pod": f"p{each}"}) for each in range(number)]
        await client.send(type_url=xp.ENDPOINT, resource_locators_subscribe=locators[: number // 2])
        await settled(client)
        with counted("core/model/constraints.py") as calls:
            await client.send(type_url=xp.ENDPOINT, resource_locators_subscribe=locators[number // 2 :])
            await settled(client)
        return calls.total()


@timeless
async def test_more_params_of_one_name_are_not_compared_with_each_that_the_client_has() -> None:
    # DYN-45, PRX-24
    assert await overtaking(400) <= 4.4 * await overtaking(100)
