"""A client that holds a resource reconnects, gets an error for it, and then its removal.

A relay does so that was restarted while its own server was down: it reports the outage, and when the server is back,
that there is no such resource. What the client holds from before must not keep it from believing that.
"""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.client.rig import follow, quiet, talk, timeless
from tests.relay.rig import marks
from tests.relay.stranger import Stranger, variant

PROD = {"env": "prod"}

identifiers = pytest.mark.parametrize("identifier", ["xdsprism", "xdsprism-relay", "stranger"])
ways = pytest.mark.parametrize(
    ("delta", "way"),
    [(True, "names"), (True, "removed"), (True, "errors"), (False, "errors")],
    ids=["removed_resource_names", "removed_resources", "resource_errors", "sotw-resource_errors"],
)


@identifiers
@ways
@timeless
async def test_a_resource_that_is_gone_after_an_outage_is_dropped(identifier: str, delta: bool, way: str) -> None:
    # PRX-11, PRX-12, PRX-31
    async with talk(delta=delta, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a", params=PROD)
        server = Stranger(await peer.accept(), identifier)
        await quiet()
        server.says(variant("1", "env=prod"))
        assert await marks(watcher) == [("a", "1")]
        server.stream.end()
        server = Stranger(await peer.accept(), identifier)
        await quiet()
        server.fails("a")
        assert await marks(watcher) == [("a", "(UNAVAILABLE)")]
        server.says(absent="a", way=way)
        await quiet()
        if server.asked():  # it may ask once more, to be sure that it is meant
            server.says(absent="a", way=way)
        await quiet(5.0)
        assert (await marks(watcher))[-1:] == [("a", "NOT_FOUND")]


@identifiers
@timeless
async def test_a_resource_that_a_full_state_lacks_after_an_outage_is_dropped(identifier: str) -> None:
    # ERR-11, PRX-12: the outage excuses that it is left out, and another error ends that
    async with talk(delta=False, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=PROD)
        server = Stranger(await peer.accept(), identifier, xp.CLUSTER)
        await quiet()
        server.says(variant("1", "env=prod", xp.CLUSTER))
        assert await marks(watcher) == [("a", "1")]
        server.stream.end()
        server = Stranger(await peer.accept(), identifier, xp.CLUSTER)
        await quiet()
        server.fails("a")
        server.says()
        assert await marks(watcher) == [("a", "(UNAVAILABLE)")]
        server.says(absent="a", way="errors")
        assert await marks(watcher) == [("a", "NOT_FOUND")]


@identifiers
@pytest.mark.parametrize("way", ["names", "removed", "errors"])
@timeless
async def test_a_resource_that_is_gone_after_it_was_rejected_is_dropped(identifier: str, way: str) -> None:
    # NAK-15, PRX-31
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a", params=PROD)
        server = Stranger(await peer.accept(), identifier)
        await quiet()
        server.says(variant("1", "env=prod"))
        assert await marks(watcher) == [("a", "1")]
        server.stream.end()
        server = Stranger(await peer.accept(), identifier)
        await quiet()
        bad = variant("2", "env=prod")
        bad.resource.value = b"\xff"
        server.says(bad)
        assert await marks(watcher) == [("a", "(INVALID_ARGUMENT)")]
        server.stream.pending()
        server.says(absent="a", way=way)
        await quiet()
        if server.asked():
            server.says(absent="a", way=way)
        await quiet(5.0)
        assert (await marks(watcher))[-1:] == [("a", "NOT_FOUND")]


@timeless
async def test_a_wildcard_that_is_asked_again_loses_no_removal() -> None:
    # PRX-12, DLT-14, DLT-16: what the client has of a wildcard, a server is told at the beginning of a stream only
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "*", params=PROD)
        server = Stranger(await peer.accept(), "xdsprism-relay", xp.CLUSTER)
        await quiet()
        server.says(variant("1", "env=prod", xp.CLUSTER), variant("2", "env=prod", xp.CLUSTER, name="b"))
        assert await marks(watcher) == [("a", "1"), ("b", "2")]
        server.stream.end()
        server = Stranger(await peer.accept(), "xdsprism-relay", xp.CLUSTER)
        await quiet()
        server.says(absent="a")  # as some other subscription may have been told: the client asks what there is now
        server = Stranger(await peer.accept(), "xdsprism-relay", xp.CLUSTER)
        request = await server.stream.request()
        assert dict(request.initial_resource_versions) == {"a": "", "b": ""}
        server.says(absent="b", when="env=prod")
        await quiet(5.0)
        assert sorted(await marks(watcher)) == [("a", "NOT_FOUND"), ("b", "NOT_FOUND")]


@timeless
async def test_a_wildcard_that_is_left_while_a_member_is_in_doubt_takes_its_timers_along(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # CLI-12: a timer of something that nobody watches must not end, since what it is about is not there any more
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "*", params=PROD)
        server = Stranger(await peer.accept(), "xdsprism-relay", xp.CLUSTER)
        await quiet()
        server.says(variant("1", "env=prod", xp.CLUSTER))
        assert await marks(watcher) == [("a", "1")]
        server.stream.end()
        server = Stranger(await peer.accept(), "xdsprism-relay", xp.CLUSTER)
        await quiet()
        server.says(absent="a")  # the client asks what there is now, and waits for a moment
        await peer.accept()
        await quiet(0.5)
        await watcher.close()
        await quiet(5.0)
    assert not caplog.records
