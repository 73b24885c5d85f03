"""Providers in a server: real calls, real streams; and with a clock that jumps, all that takes time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest
import uvloop
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

import xdsprism as xp
from tests.client.rig import Follower, bootstrap, both, cluster, server, timeless
from tests.wire.rig import DELTA, SOTW, Stream, names_in, until
from xdsprism.admin.read_model import explain, resources
from xdsprism.core.model.facts import Consulted, Fact
from xdsprism.core.model.types import Params
from xdsprism.core.provide.providing import Providing
from xdsprism.messages.validation import Validate
from xdsprism.observe.metrics import Metrics
from xdsprism.observe.quota import PEER
from xdsprism.testing import HubTransport

OWN = "type.googleapis.com/my.own.Thing"


@asynccontextmanager
async def served(store: xp.Store, **settings: object) -> AsyncIterator[xp.Client]:
    """A server without a network, and a client of it; for loops whose clock jumps, too."""
    serving = xp.Server(store, settings=xp.Settings(**settings))
    way = HubTransport(serving.hub)
    try:
        async with xp.Client(bootstrap(), connect=way.connect) as client:
            yield client
    finally:
        await serving.stop()


async def mark_of(client: xp.Client, name: str, **params: str) -> str:
    found = await client.get(xp.CLUSTER, name, params=params, timeout=60)
    return found.alt_stat_name


async def error_of(client: xp.Client, name: str = "a", **params: str) -> str:
    with pytest.raises(xp.WatchError) as caught:
        await mark_of(client, name, **params)
    assert caught.value.status == "UNAVAILABLE"
    return str(caught.value)


def said(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the server wrote; clients write too, where a test before this one wanted to know."""
    return [each for each in caplog.records if each.name == "xdsprism.server"]


@timeless
@pytest.mark.parametrize(("validate", "is_taken"), [("envoy", False), ("warn", True), ("off", True)])
async def test_provider_results_are_validated_by_the_mode_of_the_store(
    validate: Validate, is_taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = xp.Store(validate=validate)

    @store.provider(xp.CLUSTER, keys=["env"])
    async def make(name: str, params: Params) -> Cluster:
        return Cluster(name=name, connect_timeout={"seconds": -1})

    serving = xp.Server(store)
    way = HubTransport(serving.hub)
    async with xp.Client(bootstrap(), connect=way.connect, validators={xp.CLUSTER: lambda _: ()}) as client:
        if is_taken:
            assert (await client.get(xp.CLUSTER, "a", params={"env": "x"}, timeout=60)).name == "a"
        else:
            assert "connect_timeout: envoy.config.cluster.v3.Cluster 'a': must be" in await error_of(client, env="x")
    await serving.stop()
    told = [each for each in caplog.records if each.name == "xdsprism.store"]
    assert len(told) == (1 if validate == "warn" else 0)


# DYN-33, DYN-60
@both
async def test_provider_serves_clients_over_grpc(delta: bool) -> None:
    store = xp.Store()
    asked = []

    @store.provider(xp.CLUSTER, keys=["env"])
    async def make(name: str, params: xp.Params) -> Cluster | None:
        asked.append(name)
        await asyncio.sleep(0)
        return cluster(name, "gold" if params["env"] == "prod" else "basic") if name != "nobody" else None

    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(xp.Server(store, listen="127.0.0.1:0"))
        client = await stack.enter_async_context(xp.Client(bootstrap(server(running.address)), delta=delta))
        marks = [await mark_of(client, "a", env=env, pod=env) for env in ("prod", "test", "qa")]
        assert marks == ["gold", "basic", "basic"]
        assert asked == ["a", "a"]
        update = await anext(client.watch(xp.CLUSTER, "a", params={"env": "dev"}))
        assert str(update.constraint) == "env!=prod"
        with pytest.raises(xp.WatchError, match="NOT_FOUND"):
            await mark_of(client, "nobody", env="prod")


@pytest.mark.parametrize("path", [DELTA, SOTW], ids=["delta", "sotw"])
async def test_clients_that_know_nothing_of_params_get_what_is_made_for_their_metadata(path: str):
    # VHD-21: the general form of clusters on demand
    store = xp.Store()

    @store.provider(xp.CLUSTER, keys=["env"])
    async def make(name: str, params: xp.Params) -> Cluster:
        return cluster(name, str(params.get("env")))

    async with xp.Server(store, listen="127.0.0.1:0") as running, Stream(running.address, path) as stream:
        await stream.subscribe(xp.CLUSTER, ["a"])
        response = await stream.read()
        assert b"None" in response.resources[0].SerializeToString()


async def test_changes_are_pushed_when_the_program_says_that_there_are_some():
    store = xp.Store()
    rows = {"a": "1"}

    @store.provider(xp.CLUSTER)
    async def make(name: str, _params: xp.Params) -> Cluster | None:
        return cluster(name, rows[name]) if name in rows else None

    async with xp.Server(store, listen="127.0.0.1:0") as running, Stream(running.address) as stream:
        await stream.subscribe(xp.CLUSTER, ["a", "b"])
        assert names_in(await stream.read()) == ["a"]
        rows["b"] = "2"
        store.invalidate(xp.CLUSTER, "b")
        assert names_in(await stream.read()) == ["b"]
        rows.clear()
        store.invalidate("cds")
        assert sorted((await stream.read()).removed_resources) == ["a", "b"]


async def test_transaction_does_not_see_what_was_made():
    store = xp.Store()

    @store.provider(xp.CLUSTER)
    async def make(name: str, _params: xp.Params) -> Cluster:
        return cluster(name, "made")

    async with xp.Server(store, listen="127.0.0.1:0") as running, Stream(running.address) as stream:
        await stream.subscribe(xp.CLUSTER, ["a"])
        assert names_in(await stream.read()) == ["a"]
        with pytest.raises(xp.UsageError, match="no variant for"), store.transaction() as tx:
            tx.delete(xp.CLUSTER, "a", when="true")
        with store.transaction() as tx:
            tx.put(cluster("a", "written"), when="not env exists")
        assert b"written" in (await stream.read()).resources[0].SerializeToString()
        assert len(store.table(xp.CLUSTER).named("a").variants) == 1
        with store.transaction() as tx:
            tx.delete(xp.CLUSTER, "a")
        assert b"made" in (await stream.read()).resources[0].SerializeToString()


# -- time


@timeless
async def test_call_that_takes_too_long_is_an_error_and_is_made_again():
    store = xp.Store()
    seconds = iter([100, 100, 1])

    @store.provider(xp.CLUSTER, timeout=3)
    async def slow(name: str, _params: xp.Params) -> Cluster:
        await asyncio.sleep(next(seconds))
        return cluster(name, "at last")

    async with served(store) as client:
        begun = asyncio.get_running_loop().time()
        text = await error_of(client, x="1")
        assert text == "UNAVAILABLE: provider slow failed: no answer within 3 seconds"
        assert asyncio.get_running_loop().time() - begun == pytest.approx(3, abs=0.1)
        watching = client.watch(xp.CLUSTER, "a", params={"x": "1"})
        updates = [await anext(watching), await anext(watching)]
        assert [update.resource.alt_stat_name for update in updates if update.resource] == ["at last"]


@timeless
async def test_results_are_made_again_when_their_time_is_over():
    store = xp.Store()
    numbers = iter(range(100))

    @store.provider(xp.CLUSTER, ttl=timedelta(seconds=10))
    async def make(name: str, _params: xp.Params) -> Cluster | xp.Provided:
        made = cluster(name, str(next(numbers)))
        return made if name == "a" else xp.Provided(made, ttl=100)

    async with served(store) as client:
        begun = asyncio.get_running_loop().time()
        for name, due in (("a", 10.0), ("b", 100.0)):
            watching = client.watch(xp.CLUSTER, name)
            first = await anext(watching)
            before = asyncio.get_running_loop().time()
            second = await anext(watching)
            assert first.resource != second.resource
            assert asyncio.get_running_loop().time() - before == pytest.approx(due, abs=0.1)
            watching.close()
        assert asyncio.get_running_loop().time() - begun == pytest.approx(110, abs=1)


@timeless
async def test_an_absence_can_have_a_ttl_as_well():
    store = xp.Store()
    answers = iter([xp.Provided(None, ttl=timedelta(seconds=5)), cluster("a")])

    @store.provider(xp.CLUSTER)
    async def make(_name: str, _params: xp.Params) -> object:
        return next(answers)

    async with served(store) as client:
        watching = client.watch(xp.CLUSTER, "a", params={"x": "1"})
        assert (await anext(watching)).error.status == "NOT_FOUND"
        assert (await anext(watching)).resource == cluster("a")


# -- what goes wrong


async def boom(_name: str, _params: xp.Params) -> object:
    raise ValueError("no such table")


async def other_type(name: str, _params: xp.Params) -> object:
    return ClusterLoadAssignment(cluster_name=name)


async def other_name(_name: str, _params: xp.Params) -> object:
    return cluster("b")


async def other_name_inside(_name: str, _params: xp.Params) -> object:
    wrapped = Any()
    wrapped.Pack(cluster("b"))
    return wrapped


async def broken(_name: str, _params: xp.Params) -> object:
    return Any(type_url=xp.CLUSTER, value=b"\xff")


async def refused(name: str, _params: xp.Params) -> object:
    return Cluster(name=name, lb_policy=99)


async def no_message(_name: str, _params: xp.Params) -> object:
    return "a"


async def curious(name: str, params: xp.Params) -> object:
    return cluster(name, str(params["zone"]))


async def furtive(name: str, params: xp.Params) -> object:
    try:
        return cluster(name, str(params["zone"]))
    except xp.UsageError:
        return cluster(name)


async def demanding(name: str, params: xp.Params) -> object:
    return cluster(name, str(params["env"]))


async def cancelled(_name: str, _params: xp.Params) -> object:
    raise asyncio.CancelledError


async def impatient(_name: str, _params: xp.Params) -> object:
    raise TimeoutError("the database took too long")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (boom, "ValueError: no such table"),
        (other_type, "it must return a envoy.config.cluster.v3.Cluster, and returned a envoy.config.endpoint.v3"),
        (other_name, "the resource for 'a' must have this name, not 'b'"),
        (other_name_inside, "the resource for 'a' must have this name, not 'b'"),
        (broken, "the bytes can't be decoded as envoy.config.cluster.v3.Cluster"),
        (refused, "lb_policy"),
        (no_message, "a message or None, not str"),
        (curious, "provider curious reads the parameter 'zone', which is not one of its keys (declared: env)"),
        (furtive, "provider furtive reads the parameter 'zone', which is not one of its keys (declared: env)"),
        (demanding, "KeyError"),
        (cancelled, "CancelledError"),
        (impatient, "TimeoutError: the database took too long"),
    ],
)
@timeless
async def test_provider_errors_are_sent_with_their_reason(
    function: object, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    # ERR-1
    store = xp.Store()
    store.provider(xp.CLUSTER, keys=["env"])(function)
    with caplog.at_level(logging.INFO, "xdsprism.server"):
        async with served(store) as client:
            assert text in await error_of(client, zone="1")
            await asyncio.sleep(20)
    (record,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert record.getMessage().startswith(f"provider {function.__name__} failed for 'a': ")
    assert text in record.getMessage()
    assert bool(record.exc_info) == (function in (boom, demanding, cancelled, impatient))


@timeless
async def test_that_it_works_again_is_in_the_log_too(caplog: pytest.LogCaptureFixture) -> None:
    store = xp.Store()
    answers = iter([RuntimeError("down"), None])

    @store.provider(xp.CLUSTER)
    async def make(name: str, _params: xp.Params) -> object:
        answer = next(answers)
        if answer is not None:
            raise answer
        return cluster(name)

    with caplog.at_level(logging.INFO, "xdsprism.server"):
        async with served(store) as client:
            assert (await anext(client.watch(xp.CLUSTER, "a", params={}))).resource == cluster("a")
    assert [each.getMessage() for each in said(caplog)] == [
        "provider make failed for 'a': RuntimeError: down",
        "provider make works again for 'a'",
    ]


@timeless
async def test_a_provider_that_fails_for_every_name_leaves_few_lines_and_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # OPS-15: third parties choose the names, as Host headers
    store = xp.Store()

    @store.provider(xp.CLUSTER)
    async def make(name: str, _params: xp.Params) -> object:
        raise RuntimeError(name)

    with caplog.at_level(logging.INFO, "xdsprism.server"):
        async with served(store) as client:
            names = [f"host-{number}" for number in range(300)]
            follower = Follower(client, xp.CLUSTER, *names, params={})
            await asyncio.sleep(300)
            assert {update.name for update in follower.seen()} == {*names}
    failed = [each for each in said(caplog) if " failed for " in each.getMessage()]
    counted = [int(each.getMessage().split()[0]) for each in said(caplog) if "more lines about" in each.getMessage()]
    assert len(said(caplog)) <= PEER.burst + 5
    assert len(failed) + sum(counted) == 300


@timeless
async def test_long_errors_are_cut_before_they_are_sent() -> None:
    store = xp.Store()

    @store.provider(xp.CLUSTER)
    async def make(_name: str, _params: xp.Params) -> object:
        raise RuntimeError("x" * 10_000)

    async with served(store) as client:
        assert len(await error_of(client, x="1")) < 1000


@timeless
async def test_provider_that_contradicts_itself_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    # DYN-45
    store = xp.Store()
    numbers = iter(range(100))

    @store.provider(xp.CLUSTER, keys=["env"])
    async def moody(name: str, params: xp.Params) -> object:
        number = next(numbers)
        return cluster(name, str(params["env"]) if number != 1 else "all")

    async with served(store) as client:
        for env in "abcd":
            Follower(client, xp.CLUSTER, "a", params={"env": env})
            await asyncio.sleep(1)
    (record,) = said(caplog)
    assert "two variants for the same params: `true` is used" in record.getMessage()


# -- registering


def test_provider_has_to_be_an_async_function():
    store = xp.Store()
    with pytest.raises(xp.UsageError, match="provider <lambda> must be an async function"):
        store.provider(xp.CLUSTER)(lambda name, params: None)
    with pytest.raises(xp.UsageError, match=r"as in keys=\['env'\]"):
        store.provider(xp.CLUSTER, keys="env")(boom)
    with pytest.raises(xp.UsageError, match="unknown resource type 'clutser'"):
        store.provider("clutser")(boom)
    assert store.provider(xp.CLUSTER)(boom) is boom


def test_provider_may_be_anything_that_is_called_like_one():
    class Maker:
        async def __call__(self, name: str, params: xp.Params) -> None:
            return None

    store = xp.Store()
    store.provider("cds")(Maker())
    store.provider("eds")(partial(boom))


async def test_provider_can_not_be_added_to_a_running_server():
    store = xp.Store()
    async with xp.Server(store, listen="127.0.0.1:0"):
        with pytest.raises(xp.UsageError, match="before the server"):
            store.provider(xp.CLUSTER)(boom)
    store.provider(xp.CLUSTER)(boom)


# -- any message


async def test_message_may_come_in_an_any_and_be_of_any_type():
    store = xp.Store()

    @store.provider(xp.CLUSTER)
    async def wrapped(name: str, _params: xp.Params) -> Any:
        made = Any()
        made.Pack(cluster(name, "wrapped"))
        return made

    @store.provider(OWN)
    async def own(name: str, _params: xp.Params) -> Any:
        return Any(type_url=OWN, value=name.encode())

    async with xp.Server(store, listen="127.0.0.1:0") as running, Stream(running.address) as stream:
        await stream.subscribe(OWN, ["mine"])
        (resource,) = (await stream.read()).resources
        assert (resource.name, resource.resource.value) == ("mine", b"mine")
        await stream.subscribe(xp.CLUSTER, ["a"])
        assert names_in(await stream.read()) == ["a"]


# VHD-3, VHD-4
async def test_virtual_host_may_have_any_name_in_its_route_configuration():
    store = xp.Store()

    @store.provider(xp.VIRTUAL_HOST)
    async def host(name: str, _params: xp.Params) -> VirtualHost | None:
        config, _, domain = name.rpartition("/")
        if domain == "stray.example":
            config = "other"
        return VirtualHost(name=f"{config}/tenant-7", domains=[domain]) if "." in domain else None

    async with xp.Server(store, listen="127.0.0.1:0") as running, Stream(running.address) as stream:
        await stream.subscribe(xp.VIRTUAL_HOST, ["rc/Shop.example"])
        (resource,) = (await stream.read()).resources
        assert resource.name == "rc/tenant-7"
        assert "rc/Shop.example" in resource.aliases
        await stream.subscribe(xp.VIRTUAL_HOST, ["rc/nobody"])
        (resource,) = (await stream.read()).resources
        assert (resource.name, [*resource.aliases]) == ("rc/nobody", ["rc/nobody"])
        assert not resource.HasField("resource")
        await stream.subscribe(xp.VIRTUAL_HOST, ["rc/stray.example"])
        (resource,) = (await stream.read()).resources  # VHD-19
        assert (resource.name, resource.HasField("resource")) == ("rc/stray.example", False)


# VHD-19
async def test_host_that_takes_too_long_is_unresolved_and_pushed_when_it_is_there():
    store = xp.Store()
    ready = asyncio.Event()

    @store.provider(xp.VIRTUAL_HOST, timeout=0.05)
    async def host(name: str, _params: xp.Params) -> VirtualHost:
        await ready.wait()
        return VirtualHost(name=name, domains=["a"])

    async with xp.Server(store, listen="127.0.0.1:0") as running, Stream(running.address) as stream:
        await stream.subscribe(xp.VIRTUAL_HOST, ["rc/a"])
        (resource,) = (await stream.read()).resources
        assert not resource.HasField("resource")
        ready.set()
        (resource,) = (await stream.read()).resources
        assert (resource.name, resource.HasField("resource")) == ("rc/a", True)


# VHD-6
async def test_virtual_host_that_is_written_down_comes_first_by_whichever_domain():
    store = xp.Store()

    @store.provider(xp.VIRTUAL_HOST)
    async def host(name: str, _params: xp.Params) -> VirtualHost:
        return VirtualHost(name=name, domains=[name.rpartition("/")[2]])

    def write(*written: Message, gone: str = "") -> None:
        with store.transaction() as tx:
            for each in written:
                tx.put(each)
            if gone:
                tx.delete(xp.VIRTUAL_HOST, gone)

    strings = ["rc/a.example", "rc/b.other"]
    async with xp.Server(store, listen="127.0.0.1:0") as running, Stream(running.address) as stream:
        await stream.subscribe(xp.VIRTUAL_HOST, strings)
        assert sorted(names_in(await stream.read())) == sorted(strings)
        write(VirtualHost(name="rc/wild", domains=["*.example"]))
        response = await stream.read()
        assert (names_in(response), [*response.removed_resources]) == (["rc/wild"], ["rc/a.example"])
        write(RouteConfiguration(name="rc", ignore_port_in_host_matching=True))
        await stream.subscribe(xp.VIRTUAL_HOST, ["rc/a.example:80"])
        assert names_in(await stream.read()) == ["rc/wild"]
        write(RouteConfiguration(name="rc"))
        assert names_in(await stream.read()) == ["rc/a.example:80"]
        write(gone="rc/wild")
        response = await stream.read()
        assert (names_in(response), [*response.removed_resources]) == (["rc/a.example"], ["rc/wild"])


# -- the end


async def test_calls_end_with_the_server_and_another_one_makes_them_again():
    store = xp.Store()
    begun, ended = [], []

    @store.provider(xp.CLUSTER)
    async def make(name: str, _params: xp.Params) -> Cluster:
        begun.append(name)
        try:
            if len(begun) == 1:
                await asyncio.Event().wait()
        finally:
            ended.append(name)
        return cluster(name)

    first, second = (xp.Server(store, listen="127.0.0.1:0") for _ in range(2))
    await first.start()
    async with Stream(first.address) as one:
        await one.subscribe(xp.CLUSTER, ["a"])
        await until(lambda: begun == ["a"])  # by the first: either may make it, and the second is not there yet
        await second.start()
        async with Stream(second.address) as two:
            await two.subscribe(xp.CLUSTER, ["a"])
            await until(lambda: store.providing._topics[xp.CLUSTER, "a"].wanted[Params()] == 2)  # noqa: SLF001 # the second question makes no call: nothing else shows that it is there
            assert begun == ["a"]
            await first.stop()
            assert ended[:1] == ["a"]
            assert names_in(await two.read()) == ["a"]
    await second.stop()
    assert begun == ended == ["a", "a"]
    assert store.providing.awake == []


# -- watching it


# OPS-11
@timeless
async def test_calls_are_counted_and_shown():
    store = xp.Store()

    @store.provider(xp.CLUSTER, keys=["env"])
    async def make(name: str, params: xp.Params) -> Cluster | None:
        await asyncio.sleep(0.5)
        if name == "bad":
            raise ValueError("bad")
        return cluster(name) if params["env"] == "prod" else None

    serving = xp.Server(store)
    metrics = Metrics(store)
    facts: list[Fact] = []
    serving.hub.readers += [metrics, facts.extend]
    async with xp.Client(bootstrap(), connect=HubTransport(serving.hub).connect) as client:
        await mark_of(client, "a", env="prod")
        with pytest.raises(xp.WatchError):
            await mark_of(client, "a", env="test")
        await error_of(client, "bad", env="test")
    await asyncio.sleep(0)
    consulted = [fact for fact in facts if isinstance(fact, Consulted)]
    assert [(fact.name, fact.provider, fact.result) for fact in consulted] == [
        ("a", "provider make", "found"),
        ("a", "provider make", "none"),
        ("bad", "provider make", "failed"),
    ]
    counted = {
        result: metrics.registry.get_sample_value("xdsprism_provider_calls_total", {"type": "cds", "result": result})
        for result in ("found", "none", "failed")
    }
    assert counted == {"found": 1, "none": 1, "failed": 1}
    assert metrics.registry.get_sample_value("xdsprism_provider_seconds_sum", {"type": "cds"}) == pytest.approx(1.5)
    (row,) = (row for row in resources(store).rows if row["name"] == "a")
    assert [(each["origin"], each["constraint"]) for each in row["variants"]] == [("provider make", "env=prod")]
    told = explain(store.table(xp.CLUSTER), "a", {"env": "test"})
    assert (told["variant"], told["absent"]) == (None, "env!=prod")
    assert told["others"][0]["fails"] == "env=prod"
    await serving.stop()


@timeless
async def test_how_much_is_kept_is_a_setting():
    store = xp.Store()

    @store.provider(xp.CLUSTER)
    async def make(name: str, _params: xp.Params) -> Cluster:
        return cluster(name)

    async with served(store, idle_results=3) as client:
        for number in range(10):
            await mark_of(client, f"c{number}")
        assert len(store.table(xp.CLUSTER)) <= 4


def test_a_call_that_is_due_at_once_keeps_no_turn_from_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # OPS-10: of a timer that is due at once uvloop returns a handle that does not say so
    async def run() -> None:
        store = xp.Store()

        @store.provider(xp.CLUSTER)
        async def anything(name: str, params: Params) -> Cluster:  # as providers have it
            return cluster(name)

        loop = asyncio.get_running_loop()
        went_wrong: list[object] = []
        loop.set_exception_handler(lambda _, context: went_wrong.append(context))
        serving = xp.Server(store)
        hub = serving.hub
        for wait in (0.0, 60.0):
            due = loop.time() + wait
            monkeypatch.setattr(Providing, "deadline", lambda _, due=due: due)
            hub.turn()
            hub.turn()
            await asyncio.sleep(0.01)
        await serving.stop()
        assert not went_wrong

    uvloop.run(run())
