"""The end of a server, and the next one in its place."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from tests.wire.rig import DELTA, SOTW, Stream, assignment, cluster, heap, names_in, put, sessions, until
from xdsprism import CLUSTER, ENDPOINT, LISTENER, Server, Store, UsageError

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

PATHS = pytest.mark.parametrize("path", [DELTA, SOTW], ids=["delta", "sotw"])


def configured() -> Store:
    """What two replicas would read from the same files, each for itself."""
    store = Store()
    put(store, cluster("a", "1"), cluster("b", "2"), assignment("a"))
    with store.transaction() as tx:
        tx.put(cluster("shop", "prod"), when="env=prod and not version exists")
        tx.put(cluster("shop", "else"), when="not env=prod or version exists")
    return store


@PATHS
async def test_a_server_that_stops_ends_streams_cleanly(store: Store, path: str) -> None:
    # OPS-9
    server = Server(store, "127.0.0.1:0")
    await server.start()
    async with Stream(server.address, path) as busy, Stream(server.address, path) as silent:
        await busy.ask(LISTENER, [])
        await until(lambda: len(server.hub.connected()) == 2)
        await server.stop()
        for stream in (busy, silent):
            assert (await stream.status())[0] is grpc.StatusCode.OK
    assert server.hub.connected() == []
    assert store.listeners == []


async def test_a_connection_that_is_old_is_drained_and_its_client_comes_back(store: Store) -> None:
    async with Server(store, "127.0.0.1:0", max_connection_age=0.5) as server:
        for _ in range(2):
            async with Stream(server.address) as stream:
                await stream.ask(CLUSTER, ["a"])
                assert (await stream.status())[0] in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
                await until(lambda: server.hub.connected() == [])


async def test_changes_before_the_stop_are_delivered(store: Store) -> None:
    server = Server(store, "127.0.0.1:0")
    await server.start()
    async with Stream(server.address) as stream:
        await stream.ask(CLUSTER, ["a"])
        put(store, cluster("a", "last"))
        await server.stop()
        assert names_in(await stream.read()) == ["a"]
        assert (await stream.status())[0] is grpc.StatusCode.OK


async def test_changes_during_a_write_are_delivered_before_the_stop(store: Store) -> None:
    put(store, *heap())
    server = Server(store, "127.0.0.1:0")
    await server.start()
    async with Stream(server.address, SOTW) as stream:
        await stream.send(type_url=CLUSTER)
        await until(lambda: any(session.progress.sent for session in sessions(server)))
        put(store, cluster("a", "last"))
        stopping = asyncio.create_task(server.stop(grace=60))
        assert len((await stream.read()).resources) == 5
        assert len((await stream.read()).resources) == 6
        assert (await stream.outcome())[0] is grpc.StatusCode.OK
        await stopping


@PATHS
async def test_requests_during_a_write_are_answered_before_the_stream_ends(server: Server, path: str) -> None:
    """As by a program that sends all its requests, closes its side, and then reads."""
    put(server.store, *heap())
    put(server.store, assignment("a"))
    async with Stream(server.address, path) as stream:
        await stream.send(type_url=CLUSTER)
        await until(lambda: any(session.progress.sent for session in sessions(server)))
        await stream.subscribe(ENDPOINT, ["a"])
        await stream.half_close()
        await until(lambda: all(found.stream.sessions.get(ENDPOINT) for found in server.hub.connected()))
        seen = [await stream.read() for _ in range(6 if path == DELTA else 2)]
        assert [response.type_url for response in seen] == [CLUSTER] * (len(seen) - 1) + [ENDPOINT]
        assert (await stream.outcome())[0] is grpc.StatusCode.OK


async def test_a_client_that_does_not_read_delays_the_stop_by_the_grace_and_no_more(store: Store) -> None:
    # OPS-6
    put(store, *heap())
    server = Server(store, "127.0.0.1:0")
    await server.start()
    async with Stream(server.address) as stuck:
        await stuck.send(type_url=CLUSTER)
        await until(lambda: any(session.progress.sent for session in sessions(server)))
        await asyncio.wait_for(server.stop(grace=0.1), 10)
        assert server.hub.connected() == []


async def test_a_stream_that_opens_while_the_server_stops_does_not_delay_it(store: Store) -> None:
    server = Server(store, "127.0.0.1:0")
    await server.start()
    async with Stream(server.address) as anchor:
        await anchor.ask(CLUSTER, ["a"])
        late = [anchor.beside() for _ in range(50)]
        for stream in late:
            await stream.__aenter__()
        await asyncio.wait_for(server.stop(grace=60), 20)
    assert server.hub.connected() == []


async def test_a_server_may_be_stopped_twice_or_without_a_start(store: Store) -> None:
    await Server(store, "127.0.0.1:0").stop()
    async with Server(store, "127.0.0.1:0") as server:
        await server.stop()
    assert store.listeners == []


async def test_a_server_that_cannot_listen_leaves_nothing_on_the_store(store: Store) -> None:
    async with Server(store, "127.0.0.1:0") as first:
        with pytest.raises(UsageError, match="can't listen"):
            await Server(store, first.address).start()
        assert len(store.listeners) == 1


async def test_a_server_that_was_stopped_does_not_start_again(store: Store) -> None:
    """It would serve and never hear of a change."""
    server = Server(store, "127.0.0.1:0")
    await server.start()
    await server.stop()
    with pytest.raises(UsageError, match="once"):
        await server.start()


# -- replicas


@PATHS
async def test_two_servers_with_the_same_input_send_the_same_versions(path: str) -> None:
    # OPS-12, SRV-12
    versions = []
    for _ in range(2):
        async with Server(configured(), "127.0.0.1:0") as server, Stream(server.address, path) as stream:
            answer = await stream.ask(CLUSTER, ["*"], node={"id": "me", "metadata": {"env": "prod"}})
        bodies = [getattr(resource, "resource", resource).value for resource in answer.resources]
        said = [answer.version_info] if path == SOTW else [resource.version for resource in answer.resources]
        versions.append((said, bodies))
    assert versions[0] == versions[1]


async def test_a_client_that_moves_to_another_server_gets_only_what_it_lacks(store: Store) -> None:
    # OPS-12, DLT-13, DLT-14
    first = Server(configured(), "127.0.0.1:0")
    await first.start()
    async with Stream(first.address) as stream:
        answer = await stream.ask(CLUSTER, ["*"])
        have = {resource.name: resource.version for resource in answer.resources}
        await first.stop()
        assert (await stream.status())[0] is grpc.StatusCode.OK
    second = Server(configured(), first.address)  # the same port
    async with second, Stream(second.address) as stream:
        assert second.address == first.address
        await stream.send(type_url=CLUSTER, resource_names_subscribe=["*"], initial_resource_versions=have)
        assert await stream.is_quiet(ENDPOINT, "nothing")
        put(second.store, cluster("b", "3"))
        assert names_in(await stream.read()) == ["b"]


async def test_a_client_that_moves_on_with_names_gets_nothing_new(store: Store) -> None:
    # OPS-12, DLT-13
    async with Server(configured(), "127.0.0.1:0") as first, Stream(first.address) as stream:
        answer = await stream.ask(CLUSTER, ["a", "b", "shop"])
        have = {resource.name: resource.version for resource in answer.resources}
    async with Server(configured(), "127.0.0.1:0") as second, Stream(second.address) as stream:
        await stream.send(type_url=CLUSTER, resource_names_subscribe=["a", "b", "shop"], initial_resource_versions=have)
        assert await stream.is_quiet(ENDPOINT, "nothing")


async def test_a_sotw_client_that_moves_on_with_its_version_gets_nothing_new(store: Store) -> None:
    # OPS-12, SOT-12
    async with Server(configured(), "127.0.0.1:0") as first, Stream(first.address, SOTW) as stream:
        version = (await stream.ask(CLUSTER, [])).version_info
    async with Server(configured(), "127.0.0.1:0") as second, Stream(second.address, SOTW) as stream:
        await stream.send(type_url=CLUSTER, version_info=version)
        answer = await stream.ask(LISTENER, [])  # answered in order, so that there was no answer to the first
        assert answer.type_url == LISTENER
