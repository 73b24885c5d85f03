"""Virtual hosts on demand, which clients request by strings that are not their names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from envoy.service.discovery.v3.discovery_pb2 import Resource

import xdsprism as xp
from tests.client.rig import (
    accept,
    bootstrap,
    both,
    clock,
    cluster,
    endpoint,
    follow,
    names,
    quiet,
    server,
    silent,
    status,
    talk,
    timeless,
    within,
)
from tests.client.vhosts import known, told, void
from tests.client.wrapping import error, is_ack, is_nack, locators, reply, resource_name, wrap

VHDS = xp.VIRTUAL_HOST
A, B = "rc/a.test", "rc/b.test"
NAMED = ["by both", "under another name", "by the name alone", "by an alias alone"]


# -- contents, and whom they are for


@pytest.mark.parametrize(
    "answer",
    [known(A), known(A, A), known("rc/shop", A), known("rc/shop", "rc/other.test", A)],
    ids=["name", "both", "alias", "one of the aliases"],
)
@timeless
async def test_contents_answer_subscriptions_by_name_and_by_alias(answer: Resource) -> None:
    # VHD-3, VHD-22
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A)
        stream, request = await accept(peer)
        assert names(request) == [A]
        assert is_ack(await reply(stream, VHDS, answer), "n1")
        (update,) = watcher.seen()
        assert told(update) == (A, answer.name)
        assert update.variant is not None
        assert (update.variant.name, update.variant.aliases) == (answer.name, tuple(answer.aliases))
        await quiet(100)
        assert watcher.seen() == []  # no timer is left


@timeless
async def test_one_resource_answers_all_strings_among_its_names() -> None:
    # VHD-5
    async with talk(delta=True) as (client, peer):
        watcher, other = follow(client, VHDS, A, B, "rc/shop"), follow(client, VHDS, "rc/c.test")
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A, B))
        assert sorted(map(told, watcher.seen())) == [(A, "rc/shop"), (B, "rc/shop"), ("rc/shop", "rc/shop")]
        await reply(stream, VHDS, known("rc/shop", A, B, mark="2", version="2"), nonce="n2")
        assert [told(update)[1] for update in watcher.seen()] == ["rc/shop=2"] * 3
        assert other.seen() == []


@timeless
async def test_another_alias_of_a_held_virtual_host_is_no_update_for_others() -> None:
    # VHD-5, CLI-19: or a thousand hosts of one virtual host would tell each other a million times
    async with talk(delta=True) as (client, peer):
        first = follow(client, VHDS, A)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A))
        second = follow(client, VHDS, B)
        assert names(await stream.request()) == [B]
        await reply(stream, VHDS, known("rc/shop", A, B), nonce="n2")
        assert [told(update) for update in first.seen()] == [(A, "rc/shop")]
        assert [told(update) for update in second.seen()] == [(B, "rc/shop")]
        (entry,) = (entry for entry in client.subscriber.entries() if entry.name == A)
        assert entry.variant is not None
        assert entry.variant.aliases == (A, B)  # as they are now


@pytest.mark.parametrize("order", [1, -1], ids=["name first", "alias first"])
@timeless
async def test_an_alias_says_which_virtual_host_is_meant_and_elsewhere_the_name_does(order: int) -> None:
    # VHD-3, VHD-6, DLT-20: one that is called like a host need not be the one that serves it
    async with talk(delta=True) as (client, peer):
        watcher, other = follow(client, VHDS, A), follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await stream.request()
        await reply(stream, VHDS, *[known(A), known("rc/shop", A)][::order])
        assert [told(update) for update in watcher.seen()] == [(A, "rc/shop")]
        aliased = wrap(cluster("b"))
        aliased.aliases.append("a")
        await reply(stream, xp.CLUSTER, *[wrap(cluster("a")), aliased][::order], nonce="c1")
        assert [update.resource.name for update in other.seen()] == ["a"]


@timeless
async def test_a_virtual_host_named_like_a_host_does_not_replace_the_one_that_serves_it() -> None:
    # VHD-6: until that serves it no more
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A, serves=("a.test",)))
        await reply(stream, VHDS, known(A, B, serves=("*.test", "b.test")), nonce="n2")
        assert [told(update) for update in watcher.seen()] == [(A, "rc/shop"), (B, A)]
        await reply(stream, VHDS, known(A, B, serves=("*.test", "b.test"), mark="2"), removed=["rc/shop"], nonce="n3")
        assert sorted(map(told, watcher.seen())) == [(A, f"{A}=2"), (B, f"{A}=2")]


@timeless
async def test_the_same_copy_after_an_error_ends_the_error_for_a_host() -> None:
    # VHD-5, ERR-9: also where the copy before the error was no news to the host any more
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A)
        stream, _ = await accept(peer)
        for nonce, aliases in (("n1", [A]), ("n2", [])):
            await reply(stream, VHDS, known("rc/shop", *aliases), nonce=nonce)
        assert [told(update) for update in watcher.seen()] == [(A, "rc/shop")]
        await reply(stream, VHDS, nonce="n3", errors=[error(A, 14)])
        assert [told(update) for update in watcher.seen()] == [(A, "ambient UNAVAILABLE")]
        await reply(stream, VHDS, known("rc/shop"), nonce="n4")
        assert [told(update) for update in watcher.seen()] == [(A, "rc/shop")]


@timeless
async def test_an_update_without_aliases_is_for_all_holders() -> None:
    # VHD-9: some servers name the aliases in the first answer only, as Envoy allows
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A, B))
        watcher.seen()
        await reply(stream, VHDS, known("rc/shop", mark="2", version="2"), nonce="n2")
        assert [told(update) for update in watcher.seen()] == [(A, "rc/shop=2"), (B, "rc/shop=2")]
        await reply(stream, VHDS, known("rc/shop", mark="3", version="3"), void(A, A), nonce="n3")
        assert [told(update) for update in watcher.seen()] == [(B, "rc/shop=3"), (A, "ambient NOT_FOUND")]


@timeless
async def test_an_invalid_virtual_host_is_reported_for_every_string() -> None:
    # NAK-14, NAK-15, NAK-17, VHD-5: and those with it are used
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A, B, "rc/c.test")
        stream, _ = await accept(peer)
        bad = known("rc/shop", A, B)
        bad.resource.value = b"\x0a\x07rc/shop"  # without domains
        nack = await reply(stream, VHDS, bad, known("rc/more", "rc/c.test"))
        assert is_nack(nack, "n1")
        assert "rc/shop: domains: " in nack.error_detail.message
        error = "error INVALID_ARGUMENT"
        assert sorted(map(told, watcher.seen())) == [(A, error), (B, error), ("rc/c.test", "rc/more")]
        assert is_nack(await reply(stream, VHDS, known("rc/x", A), known("rc/x", B), nonce="n2"), "n2")  # NAK-19
        assert sorted(map(told, watcher.seen())) == [(A, error), (B, error)]
        await reply(stream, VHDS, known("rc/shop", A, B), nonce="n3")
        assert sorted(map(told, watcher.seen())) == [(A, "rc/shop"), (B, "rc/shop")]


@timeless
async def test_locators_ask_for_virtual_hosts_too() -> None:
    # VHD-18: each is given its variant, by an alias as by a name
    async with talk(delta=True) as (client, peer):
        prod, test = (follow(client, VHDS, A, params={"env": env}) for env in ("prod", "test"))
        stream, request = await accept(peer)
        assert locators(request) == [(A, {"env": "prod"}), (A, {"env": "test"})]
        variants = [known("rc/shop", A, mark=env, when=f"env={env}") for env in ("prod", "test")]
        assert is_ack(await reply(stream, VHDS, *variants), "n1")
        assert [told(update) for update in prod.seen()] == [(A, "rc/shop=prod")]
        assert [told(update) for update in test.seen()] == [(A, "rc/shop=test")]
        await reply(stream, VHDS, withdrawn=[resource_name("rc/shop", "env=prod")], nonce="n2")
        assert [status(update) for update in prod.seen()] == [("ambient", "NOT_FOUND")]
        assert test.seen() == []


# -- nobody has it


@pytest.mark.parametrize("answer", [void(A, A), void("rc/zz", A), void(A), void("", A)], ids=NAMED)
@timeless
async def test_a_resource_without_contents_says_that_there_is_none(answer: Resource) -> None:
    # VHD-7: at once, and without a NACK
    async with talk(delta=True) as (client, peer):
        watcher, other = follow(client, VHDS, A), follow(client, VHDS, B)
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, VHDS, answer), "n1")
        (update,) = watcher.seen()
        assert status(update) == ("error", "NOT_FOUND")
        assert str(update.error) == f"NOT_FOUND: {A!r} does not exist on one:1, which reports it as unresolved"
        assert other.seen() == []
        late = follow(client, VHDS, A)
        await quiet()
        assert [status(update) for update in late.seen()] == [("error", "NOT_FOUND")]
        assert await silent(stream)


@timeless
async def test_several_may_be_unresolved_under_one_name() -> None:
    # VHD-7
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, VHDS, void("rc/_", A), void("rc/_", B)), "n1")
        assert [told(update) for update in watcher.seen()] == [(A, "error NOT_FOUND"), (B, "error NOT_FOUND")]


@timeless
async def test_an_unresolved_host_gets_its_virtual_host_when_it_appears() -> None:
    # VHD-8, VHD-7
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, A)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, void(A, A))
        await quiet(100)
        await reply(stream, VHDS, known("rc/shop", A), nonce="n2")
        await reply(stream, VHDS, void(A, A, version="absent.2"), nonce="n3")
        await reply(stream, VHDS, known("rc/shop", A), nonce="n4")
        found, gone = (A, "rc/shop"), (A, "error NOT_FOUND")
        assert [told(update) for update in watcher.seen()] == [gone, found, gone, found]


@timeless
async def test_contents_in_the_same_response_win_over_unresolved() -> None:
    # VHD-7
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, VHDS, void("rc/zz", A, B), known("rc/shop", A)), "n1")
        assert [told(update) for update in watcher.seen()] == [(A, "rc/shop"), (B, "error NOT_FOUND")]


@timeless
async def test_unresolved_in_the_version_that_is_held_is_a_sign_of_life() -> None:
    # TTL-2, VHD-7: as Envoy takes it; in another version it is none
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known(A, version="5"))
        assert is_ack(await reply(stream, VHDS, void(A, A, version="5"), nonce="n2"), "n2")
        assert [told(update) for update in watcher.seen()] == [(A, A)]
        await reply(stream, VHDS, void(A, A, version="6"), nonce="n3")
        assert [told(update) for update in watcher.seen()] == [(A, "ambient NOT_FOUND")]


@timeless
async def test_a_heartbeat_reaches_subscriptions_by_alias() -> None:
    # TTL-4, VHD-3: and tells those who still wait nothing
    async with talk(delta=True) as (client, peer):
        watcher, other = follow(client, VHDS, A), follow(client, VHDS, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A, ttl=10))
        beat = known("rc/shop", A, B, ttl=10)
        beat.ClearField("resource")
        for number in range(1, 3):
            await quiet(5)
            assert is_ack(await reply(stream, VHDS, beat, nonce=f"h{number}"), f"h{number}")
        assert other.seen() == []
        await quiet(9)
        assert [told(update) for update in watcher.seen()] == [(A, "rc/shop")]
        assert told(await watcher.next()) == (A, "error NOT_FOUND")
        assert clock() == 20


@timeless
async def test_an_unresolved_answer_is_for_subscriptions_of_its_form() -> None:
    # VHD-7, VHD-18, DYN-55
    async with talk(delta=True) as (client, peer):
        plain = follow(client, VHDS, A)
        prod, test = (follow(client, VHDS, A, params={"env": env}) for env in ("prod", "test"))
        stream, _ = await accept(peer)
        await reply(stream, VHDS, void(A, A))
        nobody = Resource(resource_name=resource_name(A, "env=prod"), aliases=[A], version="absent.1")
        assert (len(plain.seen()), prod.seen(), test.seen()) == (1, [], [])
        await reply(stream, VHDS, nobody, nonce="n2")
        assert [status(update) for update in prod.seen()] == [("error", "NOT_FOUND")]
        assert (plain.seen(), test.seen()) == ([], [])


@pytest.mark.parametrize("params", [None, {"env": "prod"}], ids=["plain", "located"])
@timeless
async def test_a_server_without_dynamic_parameters_answers_locators_by_a_name(params: Any) -> None:
    # VHD-7, DYN-55
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A, params=params)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, void(A, A))
        assert [status(update) for update in watcher.seen()] == [("error", "NOT_FOUND")]


@pytest.mark.parametrize(("type_url", "body"), [(xp.ENDPOINT, endpoint("x")), (xp.CLUSTER, cluster("x"))])
@timeless
async def test_any_type_may_be_unresolved_by_an_alias(type_url: str, body: Any) -> None:
    # VHD-7: but without one, a resource that has no contents is no good, as ever (NAK-14)
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, type_url, "a")
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, type_url, void("x", "a")), "n1")
        assert [status(update) for update in watcher.seen()] == [("error", "NOT_FOUND")]
        assert is_nack(await reply(stream, type_url, void("a"), nonce="n2"), "n2")
        other = wrap(body)
        other.aliases.append("a")
        assert is_ack(await reply(stream, type_url, other, nonce="n3"), "n3")
        assert [status(update) for update in watcher.seen()][-1] == ("resource", "a")


@timeless
async def test_an_error_may_take_the_place_of_an_answer() -> None:
    # ERR-8: by the string, or by the name of what is held
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", B), errors=[error(A, 14, "not now")])
        assert [told(update) for update in watcher.seen()] == [(B, "rc/shop"), (A, "error UNAVAILABLE")]
        await reply(stream, VHDS, errors=[error("rc/shop", 14, "not now")], nonce="n2")
        assert [told(update) for update in watcher.seen()] == [(B, "ambient UNAVAILABLE")]


# -- removals and moves


@timeless
async def test_a_removal_by_its_name_takes_it_from_every_string() -> None:
    # VHD-10
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, A, B, "rc/c.test")
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A, B), known("rc/more", "rc/c.test"))
        watcher.seen()
        assert is_ack(await reply(stream, VHDS, removed=["rc/shop"], nonce="n2"), "n2")
        assert [told(update) for update in watcher.seen()] == [(A, "error NOT_FOUND"), (B, "error NOT_FOUND")]
        await reply(stream, VHDS, known("rc/shop", B), nonce="n3")
        assert [told(update) for update in watcher.seen()] == [(B, "rc/shop")]


@timeless
async def test_an_alias_among_removals_removes_nothing() -> None:
    # VHD-10: it may be the name of another virtual host, which this string was before
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A))
        watcher.seen()
        assert is_ack(await reply(stream, VHDS, removed=[A, B, "rc/_"], nonce="n2"), "n2")
        assert [told(update) for update in watcher.seen()] == [(B, "error NOT_FOUND")]  # nothing was there: DLT-4


@pytest.mark.parametrize("aliased", [True, False], ids=["others left", "none left"])
@pytest.mark.parametrize("order", [1, -1], ids=["old first", "new first"])
@timeless
async def test_a_string_that_moves_is_one_update(aliased: bool, order: int) -> None:
    # VHD-12: Y with the alias, X without it
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x", A, B))
        watcher.seen()
        moved = [known("rc/x", *([B] if aliased else []), mark="2", version="2"), known("rc/y", A)]
        assert is_ack(await reply(stream, VHDS, *moved[::order], nonce="n2"), "n2")
        assert sorted(map(told, watcher.seen())) == [(A, "rc/y"), (B, "rc/x=2")]
        await reply(stream, VHDS, removed=["rc/x"], nonce="n3")
        assert [told(update) for update in watcher.seen()] == [(B, "error NOT_FOUND")]
        await reply(stream, VHDS, removed=["rc/y"], nonce="n4")
        assert [told(update) for update in watcher.seen()] == [(A, "error NOT_FOUND")]


@timeless
async def test_a_string_that_moves_away_from_what_is_removed_is_one_update() -> None:
    # VHD-12, DYN-58
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x", A, B))
        watcher.seen()
        await reply(stream, VHDS, known("rc/y", A), removed=["rc/x"], nonce="n2")
        assert [told(update) for update in watcher.seen()] == [(A, "rc/y"), (B, "error NOT_FOUND")]


@pytest.mark.parametrize("aliases", [(B,), ()], ids=["others left", "none left"])
@pytest.mark.parametrize(
    ("serves", "outcome"),
    [
        (("b.test",), "error NOT_FOUND"),
        (("b.*", "*.a.test", "aa.test"), "error NOT_FOUND"),
        (("a.test",), "rc/x=2"),
        (("A.Test",), "rc/x=2"),
        (("*.test",), "rc/x=2"),
        (("a.*",), "rc/x=2"),
        (("*",), "rc/x=2"),
    ],
    ids=str,
)
@timeless
async def test_domains_tell_whether_a_string_that_is_no_alias_any_more_is_still_served(
    serves: tuple[str, ...], outcome: str, aliases: tuple[str, ...]
) -> None:
    # VHD-12, VHD-6: what has taken its place would be in the same response
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, A)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x", A, B))
        watcher.seen()
        assert is_ack(await reply(stream, VHDS, known("rc/x", *aliases, serves=serves, mark="2"), nonce="n2"), "n2")
        assert [told(update) for update in watcher.seen()] == [(A, outcome)]
        assert await silent(stream)
        await reply(stream, VHDS, known("rc/x", A, mark="3"), nonce="n3")
        assert [told(update) for update in watcher.seen()] == [(A, "rc/x=3")]


@timeless
async def test_an_unresolved_host_is_missing_for_all_params_that_its_constraints_match() -> None:
    # VHD-7, DYN-59
    async with talk(delta=True) as (client, peer):
        params = {"env": "prod"}, {"env": "prod", "x": "y"}, {"env": "test"}
        watchers = [follow(client, VHDS, A, params=each) for each in params]
        stream, _ = await accept(peer)
        nothing = Resource(resource_name=resource_name(A, "env=prod"), version="absent.1")
        await reply(stream, VHDS, nothing)
        await quiet()
        missing = (A, "error NOT_FOUND")
        assert [[told(update) for update in each.seen()] for each in watchers] == [[missing], [missing], []]


@timeless
async def test_a_host_is_asked_for_again_where_its_port_decides_whether_it_is_still_served() -> None:
    # VHD-6, VHD-14: whether that counts is up to the route configuration
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, "rc/a.test:80")
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x", "rc/a.test:80"))
        await reply(stream, VHDS, known("rc/x", A, serves=("a.test",), mark="2"), nonce="n2")
        left, again = await stream.request(), await stream.request()
        assert (list(left.resource_names_unsubscribe), names(again)) == (["rc/a.test:80"], ["rc/a.test:80"])
        assert len(watcher.seen()) == 1  # what it has is good until there is an answer
        await reply(stream, VHDS, void("rc/a.test:80"), nonce="n3")
        assert [told(update) for update in watcher.seen()] == [("rc/a.test:80", "error NOT_FOUND")]


@timeless
async def test_the_same_contents_under_another_name_go_with_that_name() -> None:
    # VHD-10, VHD-12
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, A)
        stream, _ = await accept(peer)
        one, other = known("rc/x", A), known("rc/x", A)
        other.name = "rc/y"
        await reply(stream, VHDS, one)
        await reply(stream, VHDS, other, removed=["rc/x"], nonce="n2")
        assert [update.variant and update.variant.name for update in watcher.seen()] == ["rc/x", "rc/y"]
        await reply(stream, VHDS, removed=["rc/x"], nonce="n3")
        assert watcher.seen() == []
        await reply(stream, VHDS, removed=["rc/y"], nonce="n4")
        assert [told(update) for update in watcher.seen()] == [(A, "error NOT_FOUND")]


@timeless
async def test_unsubscribing_is_by_the_string() -> None:
    # VHD-11
    async with talk(delta=True) as (client, peer):
        first, second = follow(client, VHDS, A), follow(client, VHDS, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A, B))
        await first.close()
        request = await stream.request()
        assert (list(request.resource_names_unsubscribe), names(request)) == ([A], [])
        second.seen()
        await reply(stream, VHDS, known("rc/shop", B, mark="2"), nonce="n2")
        assert [told(update) for update in second.seen()] == [(B, "rc/shop=2")]


# -- another stream


@timeless
async def test_a_new_stream_names_what_is_held_by_its_own_name_and_asks_for_all_strings_again() -> None:
    # VHD-10, VHD-12, CLI-6: by its version it would not be sent, and which strings it serves now would not be said
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A, B, "rc/nobody.test")
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A, B, version="7"), void("rc/nobody.test", "rc/nobody.test"))
        stream.end()
        stream, request = await accept(peer)
        assert names(request) == [A, B, "rc/nobody.test"]
        assert dict(request.initial_resource_versions) == {"rc/shop": ""}
        watcher.seen()
        await quiet(100)
        assert watcher.seen() == []  # what was unresolved still is, though nothing was said of it again
        await reply(stream, VHDS, void("rc/nobody.test", "rc/nobody.test", version="absent.2"))
        assert watcher.seen() == []


@pytest.mark.parametrize(
    "news",
    [
        {"removed": ["rc/x"]},
        {"resources": [known("rc/x", serves=("b.test",), mark="2")]},
        {"resources": [known("rc/x", mark="2")]},
        {"resources": [known(A, serves=("b.test",))]},
    ],
    ids=["removed", "lost", "changed", "called like it"],
)
@timeless
async def test_on_a_new_stream_a_string_without_an_own_answer_is_requested_again(news: dict[str, Any]) -> None:
    # VHD-3, VHD-14: it is owed an answer, and something else may serve it by now
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, A, "rc/c.test")
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x", A, serves=("a.test",)), known("rc/y", "rc/c.test", serves=("*",)))
        watcher.seen()
        stream.end()
        stream, request = await accept(peer)
        assert dict(request.initial_resource_versions) == {"rc/x": "", "rc/y": ""}
        assert is_ack(await reply(stream, VHDS, *news.get("resources", ()), removed=news.get("removed", ())), "n1")
        left, again = await stream.request(), await stream.request()
        assert (list(left.resource_names_unsubscribe), names(again)) == ([A], [A])
        await quiet()
        assert watcher.seen() == []  # nobody hears that something is gone before that is certain
        await reply(stream, VHDS, known("rc/y", A, "rc/c.test", serves=("*",)), nonce="n2")
        assert [told(update) for update in watcher.seen()] == [(A, "rc/y")]
        await reply(stream, VHDS, removed=["rc/y"], nonce="n3")
        assert sorted(map(told, watcher.seen())) == [(A, "error NOT_FOUND"), ("rc/c.test", "error NOT_FOUND")]
        assert await silent(stream)


@timeless
async def test_on_a_new_stream_a_removal_of_the_string_itself_is_one() -> None:
    # VHD-18, DYN-59: as locators are answered; PRX-31: with constraints, or it might be about somebody else
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS, A, params={"env": "prod"})
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x", A, when="env=prod"))
        stream.end()
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, VHDS, withdrawn=[resource_name(A, "env=prod")]), "n1")
        assert [told(update) for update in watcher.seen()] == [(A, "rc/x"), (A, "error NOT_FOUND")]
        assert await silent(stream)


@timeless
async def test_a_removal_in_one_form_does_not_affect_the_other() -> None:
    # VHD-12, VHD-18, DESIGN 6.1: though whoever it was for has moved on in the same response
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        plain, located = follow(client, VHDS, A), follow(client, VHDS, B, params={"env": "prod"})
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x", A), known("rc/x", B, when="true"))
        plain.seen(), located.seen()
        await reply(stream, VHDS, known("rc/y", A), removed=["rc/x"], nonce="n2")
        assert ([told(update) for update in plain.seen()], located.seen()) == ([(A, "rc/y")], [])
        gone = [resource_name("rc/x", "true")]
        await reply(stream, VHDS, known("rc/y", B, when="true"), withdrawn=gone, nonce="n3")
        assert ([told(update) for update in located.seen()], plain.seen()) == ([(B, "rc/y")], [])


@timeless
async def test_the_variant_for_the_params_says_which_virtual_host_serves() -> None:
    # VHD-12, DYN-59: another variant of the virtual host lacks the host, which says nothing about this client
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A, params={"env": "prod"})
        stream, _ = await accept(peer)
        host = A.partition("/")[2]
        await reply(stream, VHDS, known("rc/shop", A, serves=(host,), when="env=prod"))
        watcher.seen()
        named = known(A, serves=("other.test",), when="env=prod")
        of_test = known("rc/shop", serves=("elsewhere.test",), when="env=test", version="2")
        of_prod = known("rc/shop", serves=(host,), when="env=prod", mark="new", version="2")
        await reply(stream, VHDS, named, of_test, of_prod, nonce="n2")
        assert [told(update) for update in watcher.seen()] == [(A, "rc/shop=new")]


@timeless
async def test_a_resource_sent_by_name_earlier_is_not_removed_by_constraints() -> None:
    # VHD-12, VHD-18: whoever that is for has moved on in the same response
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        plain, located = follow(client, VHDS, "rc/x"), follow(client, VHDS, B, params={"env": "prod"})
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x"), known("rc/x", B, when="true"))
        stream.end()
        stream, _ = await accept(peer)
        gone = [resource_name("rc/x", "true")]
        await reply(stream, VHDS, known("rc/x", B, when="true", mark="2"), nonce="n1")
        await reply(stream, VHDS, known("rc/y", B, when="true"), withdrawn=gone, nonce="n2")
        assert [told(update) for update in located.seen()] == [(B, "rc/x"), (B, "rc/x=2"), (B, "rc/y")]
        assert [told(update) for update in plain.seen()] == [("rc/x", "rc/x")]


@timeless
async def test_a_virtual_host_asked_for_by_its_own_name_is_not_sent_again() -> None:
    # CLI-6: unless a host is asked for too that it may serve
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, "rc/x", "other/x")
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x", A), known("other/x"))
        waiting = follow(client, VHDS, B)
        await stream.request()
        stream.end()
        stream, request = await accept(peer)
        assert dict(request.initial_resource_versions) == {"rc/x": "", "other/x": "1"}
        await reply(stream, VHDS, known("rc/x", A, B))
        assert [told(update) for update in waiting.seen()] == [(B, "rc/x")]
        assert len(watcher.seen()) == 2


@both
@timeless
async def test_an_alias_that_still_waits_is_answered_although_the_resource_is_held(delta: bool) -> None:
    # DLT-20, CLI-6
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "x", "y")
        stream, _ = await accept(peer)
        aliased = wrap(endpoint("x"))
        aliased.aliases.append("a")
        await reply(stream, xp.ENDPOINT, aliased, wrap(endpoint("y")))
        waiting = follow(client, xp.ENDPOINT, "a")
        await stream.request()
        stream.end()
        stream, request = await accept(peer)
        assert not delta or dict(request.initial_resource_versions) == {"x": "", "y": "1"}
        await reply(stream, xp.ENDPOINT, aliased)
        assert [status(update) for update in waiting.seen()] == [("resource", "a")]
        assert len(watcher.seen()) == 2


@timeless
async def test_silence_is_not_unresolved_before_15_seconds_are_over() -> None:
    # CLI-11
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, VHDS, A)
        await accept(peer)
        update = await watcher.next()
        assert (clock(), status(update)) == (15, ("error", "NOT_FOUND"))
        assert "has not answered in 15 s" in str(update.error)


async def test_a_virtual_host_on_disk_is_found_by_every_host_that_it_serves(tmp_path: Path) -> None:
    # VHD-5, VHD-12: also after one of them has moved away
    file = tmp_path / "cache"
    async with talk(delta=True, cache=file) as (client, peer):
        watcher = follow(client, VHDS, A, B, "rc/c.test")
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/x", A, B, "rc/c.test"))
        await reply(stream, VHDS, known("rc/x", B, "rc/c.test", mark="2"), known("rc/y", A), nonce="n2")
        assert [(await watcher.next()).name for _ in range(6)].count(A) == 2
    async with talk(delta=True, cache=file) as (client, peer):
        peer.go_down()
        watcher = follow(client, VHDS, A, B, "rc/c.test", "rc/d.test")
        found = [await within(10, watcher.next()) for _ in range(7)]
        assert sorted(told(update) for update in found if update.ambient_error is None) == [
            (A, "rc/y"),
            (B, "rc/x=2"),
            ("rc/c.test", "rc/x=2"),
            ("rc/d.test", "error UNAVAILABLE"),
        ]


# -- the wildcard: the base set


@timeless
async def test_a_wildcard_has_what_comes_without_being_asked_for() -> None:
    # VHD-13: and a removal of what there never was, by which Envoy is let go on, is nothing
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, VHDS)
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, VHDS, known("rc/base", "rc/base.test"), removed=["other/_"]), "n1")
        assert [told(update) for update in watcher.seen()] == [("rc/base", "rc/base")]
        assert is_ack(await reply(stream, VHDS, void(B, B), nonce="n2"), "n2")
        assert watcher.seen() == []
        await reply(stream, VHDS, removed=["rc/base"], nonce="n3")
        assert [told(update) for update in watcher.seen()] == [("rc/base", "error NOT_FOUND")]


@timeless
async def test_a_wildcard_goes_by_names_also_of_what_was_asked_for_by_an_alias() -> None:
    # DLT-20, CLI-18
    async with talk(delta=True) as (client, peer):
        by_host = follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A, B))
        everything = follow(client, VHDS)
        await quiet()
        assert [told(update) for update in everything.seen()] == [("rc/shop", "rc/shop")]
        await stream.request()
        await reply(stream, VHDS, known("rc/shop", A, B, mark="2", version="2"), nonce="n2")
        assert [told(update) for update in everything.seen()] == [("rc/shop", "rc/shop=2")]
        assert len(by_host.seen()) == 4


@timeless
async def test_a_list_is_of_the_base_set() -> None:
    # VHD-13
    async with talk(delta=True) as (client, peer):
        listing = asyncio.ensure_future(client.list(VHDS, timeout=5))
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/base"), known("rc/more"))
        (end,) = names(await stream.request())
        await reply(stream, VHDS, void(end, end), nonce="n2")
        assert [update.name for update in await listing] == ["rc/base", "rc/more"]


# -- asking on demand


@pytest.mark.parametrize("answer", [known("rc/shop", A), known(A)], ids=["alias", "name"])
@timeless
async def test_a_virtual_host_is_requested_by_its_host_and_the_subscription_ends_with_it(answer: Resource) -> None:
    # VHD-22, VHD-2
    async with talk(delta=True) as (client, peer):
        asked = asyncio.ensure_future(client.request_vhost("rc", "A.Test"))
        stream, request = await accept(peer)
        assert names(request) == [A]
        stream.respond(VHDS, answer)
        update = await asked
        assert told(update) == (A, answer.name)
        requests = [await stream.request(), await stream.request()]
        assert [list(request.resource_names_unsubscribe) for request in requests if not request.response_nonce] == [[A]]


@pytest.mark.parametrize(
    ("route_config", "host", "name"),
    [
        ("rc", "B1.test:8080", "rc/b1.test:8080"),
        ("rc", "[::1]:80", "rc/[::1]:80"),
        ("team/rc", "dot.test.", "team/rc/dot.test."),
    ],
)
@timeless
async def test_the_port_is_kept_and_a_route_configuration_may_have_slashes(
    route_config: str, host: str, name: str
) -> None:
    # VHD-2, VHD-22
    async with talk(delta=True) as (client, peer):
        asked = asyncio.ensure_future(client.request_vhost(route_config, host, params={"env": "prod"}))
        stream, request = await accept(peer)
        assert locators(request) == [(name, {"env": "prod"})]
        stream.respond(VHDS, known("x/y", name, when="env=prod"))
        assert (await asked).resource.name == "x/y"


@timeless
async def test_a_request_reports_at_once_that_a_host_is_unresolved() -> None:
    # VHD-22, VHD-7
    async with talk(delta=True) as (client, peer):
        asked = asyncio.ensure_future(client.request_vhost("rc", "a.test"))
        stream, _ = await accept(peer)
        stream.respond(VHDS, void("rc/zz", A))
        update = await asked
        assert (clock(), told(update)) == (0, (A, "error NOT_FOUND"))
        assert "unresolved" in str(update.error)


@pytest.mark.parametrize(("options", "seconds"), [({}, 15), ({"timeout": 2.5}, 2.5)])
@timeless
async def test_a_request_without_an_answer_times_out(options: dict[str, float], seconds: float) -> None:
    # VHD-22
    async with talk(delta=True) as (client, peer):
        asked = asyncio.ensure_future(client.request_vhost("rc", "a.test", **options))
        stream, _ = await accept(peer)
        stream.respond(VHDS, known("rc/shop", B), void(B, B))  # of others: no answer
        update = await asked
        assert clock() == seconds
        assert str(update.error) == f"DEADLINE_EXCEEDED: {A!r}: no answer within {seconds:g} s"
        assert update.resource is None


@timeless
async def test_a_request_of_what_is_watched_already_is_answered_without_the_server() -> None:
    # VHD-22, CLI-18
    async with talk(delta=True) as (client, peer):
        follow(client, VHDS, A, B)
        stream, _ = await accept(peer)
        await reply(stream, VHDS, known("rc/shop", A), void(B, B))
        assert told(await client.request_vhost("rc", "a.test")) == (A, "rc/shop")
        assert told(await client.request_vhost("rc", "b.test")) == (B, "error NOT_FOUND")
        assert await silent(stream)


@timeless
async def test_a_request_fails_with_the_server_or_with_the_client() -> None:
    # VHD-22
    async with talk(delta=True) as (client, peer):
        peer.go_down()
        assert told(await client.request_vhost("rc", "a.test")) == (A, "error UNAVAILABLE")
    async with talk(delta=True) as (client, peer):
        asked = asyncio.ensure_future(client.request_vhost("rc", "b.test"))
        await accept(peer)
        await client.close()
        assert told(await asked) == (B, "error CANCELLED")


@pytest.mark.parametrize(("route_config", "host"), [("", "a.test"), ("rc", ""), ("rc", "a/b")])
@timeless
async def test_a_string_that_is_no_host_is_not_asked_for(route_config: str, host: str) -> None:
    # VHD-2
    async with talk(delta=True) as (client, peer):
        with pytest.raises(xp.UsageError, match="needs a route configuration and a host"):
            await client.request_vhost(route_config, host)
        assert peer.opened == 0


@pytest.mark.parametrize("type_url", [VHDS, "type.googleapis.com/envoy.api.v2.route.VirtualHost"])
@timeless
async def test_without_delta_there_are_no_virtual_hosts(type_url: str) -> None:
    # VHD-1
    async with talk() as (client, peer):
        with pytest.raises(xp.UsageError, match="delta=True"):
            await anext(client.watch(type_url, A))
        with pytest.raises(xp.UsageError, match="delta=True"):
            await client.request_vhost("rc", "a.test")
        with pytest.raises(xp.UsageError, match="delta=True"):
            await client.list(type_url)
        assert peer.opened == 0


@timeless
async def test_v2_calls_it_by_its_own_name() -> None:
    # VHD-17
    async with talk(bootstrap(server(v3=False)), delta=True) as (client, peer):
        asked = asyncio.ensure_future(client.request_vhost("rc", "a.test"))
        stream, request = await accept(peer)
        assert (request.type_url, names(request)) == ("type.googleapis.com/envoy.api.v2.route.VirtualHost", [A])
        stream.respond(request.type_url, void(A, A))
        assert told(await asked) == (A, "error NOT_FOUND")


# -- clusters on demand


@timeless
async def test_an_unknown_cluster_is_reported_at_once_and_given_when_it_appears() -> None:
    # VHD-21
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "dynamic")
        stream, request = await accept(peer)
        assert names(request) == ["dynamic"]
        assert is_ack(await reply(stream, xp.CLUSTER, removed=["dynamic"]), "n1")
        assert (clock(), [status(update) for update in watcher.seen()]) == (0, [("error", "NOT_FOUND")])
        await quiet(100)
        assert is_ack(await reply(stream, xp.CLUSTER, wrap(cluster("dynamic")), nonce="n2"), "n2")
        assert [status(update) for update in watcher.seen()] == [("resource", "dynamic")]


@both
@timeless
async def test_other_types_have_aliases_too(delta: bool) -> None:
    # DLT-20: and where one of these changes, that is news, for they are the resource's own
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        one, more = wrap(endpoint("x")), wrap(endpoint("x"))
        one.aliases.append("a")
        more.aliases.extend(["a", "b"])
        await reply(stream, xp.ENDPOINT, one)
        await reply(stream, xp.ENDPOINT, more, nonce="n2")
        assert [update.variant and update.variant.aliases for update in watcher.seen()] == [("a",), ("a", "b")]
