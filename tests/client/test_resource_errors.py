"""Errors that a server sends in place of resources (TP3, gRFC A88)."""

from __future__ import annotations

from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import (
    BOOT,
    accept,
    bootstrap,
    both,
    cluster,
    endpoint,
    follow,
    quiet,
    server,
    status,
    talk,
    timeless,
)
from tests.client.wrapping import error, is_ack, reply, wrap
from tests.relay.rig import marks
from tests.relay.stranger import Stranger, variant

NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE, INTERNAL, UNKNOWN = 5, 7, 14, 13, 2
DATA_ERRORS = [(NOT_FOUND, "NOT_FOUND"), (PERMISSION_DENIED, "PERMISSION_DENIED")]
OTHERS = [
    (UNAVAILABLE, "UNAVAILABLE"),
    (INTERNAL, "INTERNAL"),
    (UNKNOWN, "UNKNOWN"),
    (8, "RESOURCE_EXHAUSTED"),
    (16, "UNAUTHENTICATED"),
    (17, "UNKNOWN"),
    (0, "UNKNOWN"),
    (-1, "UNKNOWN"),
    (-1000, "UNKNOWN"),
]
FAR = xp.CLUSTER.rpartition("/")[2]


@pytest.mark.parametrize(("code", "word"), [*DATA_ERRORS, *OTHERS])
@both
@timeless
async def test_an_error_is_an_answer_so_the_timer_stops(delta: bool, code: int, word: str) -> None:
    # ERR-8, ERR-9: without a cached value it is an error
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, xp.CLUSTER, errors=[error("a", code, "for a reason")]), "n1")
        assert client.subscriber.deadline() is None
        await quiet(100)
        (told,) = watcher.seen()
        assert status(told) == ("error", word)
        assert "for a reason" in str(told.error)


@timeless
async def test_an_error_without_a_text_says_whom_it_is_about() -> None:
    # ERR-8
    async with talk() as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, errors=[error("a", INTERNAL)])
        assert "'a'" in str((await watcher.next()).error)


@pytest.mark.parametrize(("code", "word"), OTHERS)
@pytest.mark.parametrize("trusted", [False, True])
@both
@timeless
async def test_a_passing_error_keeps_the_cached_value(delta: bool, trusted: bool, code: int, word: str) -> None:
    # ERR-9
    async with talk(delta=delta, fail_on_data_errors=trusted) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        stream.respond(xp.ENDPOINT, endpoint("a"))
        await stream.request()
        await reply(stream, xp.ENDPOINT, nonce="n2", errors=[error("a", code)])
        await quiet()
        assert list(map(status, watcher.seen())) == [("resource", "a"), ("ambient", word)]


@pytest.mark.parametrize("full", [False, True], ids=["endpoints", "clusters"])
@pytest.mark.parametrize(("code", "word"), DATA_ERRORS)
@pytest.mark.parametrize("trusted", [False, True])
@both
@timeless
async def test_a_data_error_drops_the_cached_value_only_where_that_is_wanted(
    delta: bool, trusted: bool, code: int, word: str, full: bool
) -> None:
    # ERR-10: and it is told once, also where the response lacks the resource or removes it
    url, made = (xp.CLUSTER, cluster("a")) if full else (xp.ENDPOINT, endpoint("a"))
    async with talk(delta=delta, fail_on_data_errors=trusted) as (client, peer):
        watcher = follow(client, url, "a")
        stream, _ = await accept(peer)
        stream.respond(url, made)
        await stream.request()
        removed = ["a"] if delta else []
        await reply(stream, url, nonce="n2", version="2", errors=[error("a", code, "why")], removed=removed)
        late = follow(client, url, "a")
        await quiet()
        told = ("error" if trusted else "ambient", word)
        assert list(map(status, watcher.seen())) == [("resource", "a"), told]
        assert list(map(status, late.seen())) == [told] if trusted else [("resource", "a"), told]


@timeless
async def test_the_server_feature_says_whether_data_errors_count() -> None:
    # ERR-10
    trusted = bootstrap(server("one:1", "fail_on_data_errors"))
    for source, kind in ((BOOT, "ambient"), (trusted, "error")):
        async with talk(source) as (client, peer):
            watcher = follow(client, xp.CLUSTER, "a")
            stream, _ = await accept(peer)
            await reply(stream, xp.CLUSTER, cluster("a"))
            await reply(stream, xp.CLUSTER, nonce="n2", errors=[error("a", PERMISSION_DENIED)])
            await quiet()
            assert status(watcher.seen()[-1]) == (kind, "PERMISSION_DENIED")


@both
@timeless
async def test_an_error_is_cached_for_later_watchers(delta: bool) -> None:
    # ERR-11
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster("b")), errors=[error("a", NOT_FOUND, "gone")])
        await reply(stream, xp.CLUSTER, wrap(cluster("b", "new")), nonce="n2", version="2")
        late = follow(client, xp.CLUSTER, "a")
        await quiet()
        assert list(map(status, late.seen())) == [("error", "NOT_FOUND")]
        assert not stream.pending()


@both
@timeless
async def test_the_same_error_is_reported_once_and_another_one_replaces_it(delta: bool) -> None:
    # ERR-11
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        for nonce, code in enumerate([NOT_FOUND, NOT_FOUND, PERMISSION_DENIED]):
            await reply(stream, xp.CLUSTER, nonce=str(nonce), errors=[error("a", code)])
        late = follow(client, xp.CLUSTER, "a")
        await quiet()
        assert list(map(status, watcher.seen())) == [("error", "NOT_FOUND"), ("error", "PERMISSION_DENIED")]
        assert list(map(status, late.seen())) == [("error", "PERMISSION_DENIED")]


@pytest.mark.parametrize("code", [NOT_FOUND, UNAVAILABLE])
@both
@timeless
async def test_a_resource_ends_an_error_even_if_it_is_what_it_was_before(delta: bool, code: int) -> None:
    # ERR-11, NAK-20
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        for nonce in ("1", "2"):
            await reply(stream, xp.CLUSTER, errors=[error("a", code, "why")], nonce=f"e{nonce}", version=nonce)
            await reply(stream, xp.CLUSTER, wrap(cluster("a")), nonce=f"r{nonce}", version=nonce)
        late = follow(client, xp.CLUSTER, "a")
        await quiet()
        assert [status(update)[0] for update in watcher.seen()] == ["error", "resource", "ambient", "resource"]
        assert list(map(status, late.seen())) == [("resource", "a")]


@both
@timeless
async def test_an_outage_does_not_make_an_error_forgotten(delta: bool) -> None:
    # ERR-11
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, errors=[error("a", PERMISSION_DENIED, "not yours")])
        peer.refuse()
        stream.end()
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster("b")), nonce="m1")
        late = follow(client, xp.CLUSTER, "a")
        await quiet()
        about_a = [status(update)[1] for update in watcher.seen() if update.name == "a"]
        assert about_a == ["PERMISSION_DENIED", "UNAVAILABLE", "PERMISSION_DENIED"]
        assert list(map(status, late.seen())) == [("error", "PERMISSION_DENIED")]


@pytest.mark.parametrize("trusted", [False, True])
@timeless
async def test_a_full_state_that_does_not_repeat_an_error_deletes_nothing(trusted: bool) -> None:
    # ERR-3, ERR-9, ERR-11: a relay says once that it can't know of `a`, and goes on to send what it knows of others
    async with talk(delta=False, fail_on_data_errors=trusted) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, cluster("a"), cluster("b"))
        await reply(stream, xp.CLUSTER, cluster("b"), nonce="n2", errors=[error("a", UNAVAILABLE)])
        await reply(stream, xp.CLUSTER, cluster("b", "new"), nonce="n3")
        await quiet(100)
        about_a = [status(update) for update in watcher.seen() if update.name == "a"]
        assert about_a == [("resource", "a"), ("ambient", "UNAVAILABLE")]
        stream.end()
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, cluster("b", "new"), nonce="m1")  # here it has no error: it is gone
        await quiet()
        assert [status(update)[1] for update in watcher.seen() if update.name == "a"] == ["NOT_FOUND"]


@timeless
async def test_a_client_that_got_an_error_claims_no_version_of_the_resource() -> None:
    # CLI-6, ERR-9: one set of params has the variant, another has only an error: a version would say that both have it
    async with talk(delta=True) as (client, peer):
        first = follow(client, xp.ENDPOINT, "a", params={"env": "prod"})
        stream, _ = await accept(peer)
        server = Stranger(stream)
        server.says(variant("1", "env=prod"))
        assert await marks(first) == [("a", "1")]
        second = follow(client, xp.ENDPOINT, "a", params={"env": "prod", "v": "2"})
        await quiet()
        server.fails("a")
        assert await marks(second) == [("a", "UNAVAILABLE")]
        stream.end()
        _, request = await accept(peer)
        assert dict(request.initial_resource_versions) == {"a": ""}


@timeless
async def test_a_client_that_lacks_a_resource_because_of_an_error_names_no_current_version() -> None:
    # CLI-5, ERR-9: a server that believes the version would not send what the client still lacks
    async with talk(delta=False) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a", "b")
        stream, _ = await accept(peer)
        await reply(stream, xp.ENDPOINT, endpoint("a"), errors=[error("b", UNAVAILABLE)])
        await quiet()
        assert [*map(status, watcher.seen())] == [("resource", "a"), ("error", "UNAVAILABLE")]
        stream.end()
        _, request = await accept(peer)
        assert request.version_info == ""


@both
@timeless
async def test_a_resource_that_comes_with_an_error_of_its_own_counts_as_there(delta: bool) -> None:
    # ERR-9: no server should (ERR-2)
    async with talk(delta=delta, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, xp.CLUSTER, wrap(cluster("a")), errors=[error("a", NOT_FOUND)]), "n1")
        await quiet(100)
        assert list(map(status, watcher.seen())) == [("resource", "a")]


@both
@timeless
async def test_an_error_with_constraints_concerns_the_params_that_they_match(delta: bool) -> None:
    # ERR-9, DYN-59
    async with talk(delta=delta) as (client, peer):
        plain = follow(client, xp.CLUSTER, "a")
        prod, test = (follow(client, xp.CLUSTER, "a", params={"env": env}) for env in ("prod", "test"))
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, errors=[error("a", PERMISSION_DENIED, "no", "env=prod")])
        await quiet()
        assert list(map(status, prod.seen())) == [("error", "PERMISSION_DENIED")]
        assert test.seen() == []
        assert plain.seen() == []


@both
@timeless
async def test_an_error_without_constraints_is_about_the_plain_name_where_a_variant_is_held(delta: bool) -> None:
    # ERR-6, ERR-9: it does not say whether it means the variant, too
    async with talk(delta=delta) as (client, peer):
        plain, prod = (follow(client, xp.ENDPOINT, "a", params=params) for params in (None, {"env": "prod"}))
        stream, _ = await accept(peer)
        held = wrap(endpoint("a", "plain")), wrap(endpoint("a", "prod"), when="env=prod")
        await reply(stream, xp.ENDPOINT, *held)
        assert [list(map(status, each.seen())) for each in (plain, prod)] == [[("resource", "a")]] * 2
        await reply(stream, xp.ENDPOINT, nonce="n2", errors=[error("a", UNAVAILABLE)])
        await quiet()
        assert [list(map(status, each.seen())) for each in (plain, prod)] == [[("ambient", "UNAVAILABLE")], []]


@both
@timeless
async def test_an_error_about_an_unrequested_name_is_acked(delta: bool) -> None:
    # ERR-8
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, xp.CLUSTER, errors=[error("b", NOT_FOUND), error("", INTERNAL)]), "n1")
        await quiet()
        assert watcher.seen() == []


@pytest.mark.parametrize("trusted", [False, True])
@both
@timeless
async def test_an_error_about_a_glob_is_for_all_of_it(delta: bool, trusted: bool) -> None:
    # ERR-10
    glob = f"xdstp:///{FAR}/things/*"
    member = glob.replace("*", "a")
    authorities: dict[str, Any] = {"": {}}
    async with talk(bootstrap(authorities=authorities), delta=delta, fail_on_data_errors=trusted) as (client, peer):
        watcher = follow(client, xp.CLUSTER, glob)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster(member)))
        await reply(stream, xp.CLUSTER, nonce="n2", errors=[error(glob, PERMISSION_DENIED)])
        late = follow(client, xp.CLUSTER, glob)
        await quiet()
        kind = "error" if trusted else "ambient"
        assert (kind, "PERMISSION_DENIED") in [status(update) for update in watcher.seen() if update.name == glob]
        kept = [update.name for update in late.seen() if update.resource is not None]
        assert kept == ([] if trusted else [member])
