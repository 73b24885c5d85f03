"""Variants that come, are replaced and are removed, at a client with parameters (TP2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from envoy.service.discovery.v3.discovery_pb2 import ResourceName

import xdsprism as xp
from tests.client.rig import accept, both, cluster, endpoint, follow, listener, quiet, status, talk, timeless
from tests.client.wrapping import error, is_ack, is_nack, reply, resource_name, wrap
from xdsprism.core.model.facts import Ambiguous

PROD, TEST = {"env": "prod"}, {"env": "test"}
PROD_V1 = {"env": "prod", "version": "v1"}


def variant(name: str, mark: str, when: str) -> Any:
    return wrap(cluster(name, mark), when=when, version=mark)


def marks(updates: Sequence[xp.Update]) -> list[str]:
    """What the contents say, or what kind of error it is."""
    return [each.resource.alt_stat_name if each.resource else " ".join(status(each)) for each in updates]


def ambiguities(client: xp.Client) -> list[Ambiguous]:
    found: list[Ambiguous] = []
    client.readers.append(lambda facts: found.extend(fact for fact in facts if isinstance(fact, Ambiguous)))
    return found


# -- replacement and withdrawal


@pytest.mark.parametrize("trusted", [False, True], ids=["keeps", "drops"])
@both
@timeless
async def test_a_replaced_variant_is_one_update(delta: bool, trusted: bool) -> None:
    # DYN-58
    async with talk(delta=delta, fail_on_data_errors=trusted) as (client, peer):
        watcher, found = follow(client, xp.CLUSTER, "a", params=PROD_V1), ambiguities(client)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "old", "env=prod"))
        gone = [resource_name("a", "env=prod")] if delta else []
        new = variant("a", "new", "env=prod and version=v1")
        assert is_ack(await reply(stream, xp.CLUSTER, new, nonce="n2", version="2", withdrawn=gone), "n2")
        await quiet()
        seen = watcher.seen()
        assert marks(seen) == ["old", "new"]
        assert seen[1].constraint == xp.parse("env=prod and version=v1")
        assert found == []


@both
@timeless
async def test_several_watchers_see_one_variant_replaced_by_several_as_one_update_each(delta: bool) -> None:
    # DYN-58, DYN-60
    async with talk(delta=delta, fail_on_data_errors=True) as (client, peer):
        watchers = [follow(client, xp.CLUSTER, "a", params=params) for params in (PROD, TEST)]
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "all", "true"))
        gone = [resource_name("a", "true")] if delta else []
        several = [variant("a", env, f"env={env}") for env in ("prod", "test")]
        assert is_ack(await reply(stream, xp.CLUSTER, *several, nonce="n2", version="2", withdrawn=gone), "n2")
        await quiet()
        assert [marks(watcher.seen()) for watcher in watchers] == [["all", "prod"], ["all", "test"]]


@timeless
async def test_a_withdrawal_touches_only_the_variant_with_equal_constraints() -> None:
    # DYN-59
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        prod, test = (follow(client, xp.CLUSTER, "a", params=params) for params in (PROD, TEST))
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "prod", "env=prod"), variant("a", "test", "env=test"))
        await reply(stream, xp.CLUSTER, nonce="n2", withdrawn=[resource_name("a", "env=test")])
        await quiet()
        assert (marks(prod.seen()), marks(test.seen())) == (["prod"], ["test", "error NOT_FOUND"])


@timeless
async def test_a_withdrawal_of_something_wider_or_narrower_than_what_is_held_changes_nothing() -> None:
    # DYN-59
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=PROD_V1)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "held", "env=prod"))
        for number, when in enumerate(["true", "env=prod and version=v1", "env in (prod, test)"]):
            answer = await reply(stream, xp.CLUSTER, nonce=f"m{number}", withdrawn=[resource_name("a", when)])
            assert is_ack(answer, f"m{number}")
        await quiet()
        assert marks(watcher.seen()) == ["held"]


@timeless
async def test_a_withdrawal_may_write_the_constraints_in_another_form() -> None:
    # DYN-59
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=PROD_V1)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "held", "(version=v2 or version=v1) and env=prod"))
        other = "env=prod and not not (version=v1 or version=v2) and env=prod"
        await reply(stream, xp.CLUSTER, nonce="n2", withdrawn=[resource_name("a", other)])
        await quiet()
        assert marks(watcher.seen()) == ["held", "error NOT_FOUND"]


@both
@timeless
async def test_constraints_in_another_form_are_no_update(delta: bool) -> None:
    # CLI-19, DYN-58
    async with talk(delta=delta) as (client, peer):
        watcher, found = follow(client, xp.CLUSTER, "a", params=PROD_V1), ambiguities(client)
        stream, _ = await accept(peer)
        for nonce, when in (("n1", "env=prod and version=v1"), ("n2", "not not version=v1 and env=prod")):
            assert is_ack(await reply(stream, xp.CLUSTER, variant("a", "same", when), nonce=nonce), nonce)
        await quiet()
        assert (marks(watcher.seen()), found) == (["same"], [])


@timeless
async def test_a_plain_removal_does_not_affect_locators() -> None:
    # DYN-59
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        plain, located = follow(client, xp.CLUSTER, "a"), follow(client, xp.CLUSTER, "a", params=PROD)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster("a", "plain")), variant("a", "located", "true"))
        await reply(stream, xp.CLUSTER, nonce="n2", removed=["a"])
        await quiet()
        assert (marks(plain.seen()), marks(located.seen())) == (["plain", "error NOT_FOUND"], ["located"])


# -- nothing for these parameters


@pytest.mark.parametrize("pins", ["env=prod and not version exists", "env=prod"])
@both
@timeless
async def test_no_variant_for_these_parameters_is_known_at_once(delta: bool, pins: str) -> None:
    # DYN-59, DYN-60: in delta by a removal, in SotW by an error; and later there may be one
    async with talk(delta=delta) as (client, peer):
        prod, test = (follow(client, xp.CLUSTER, "a", params=params) for params in (PROD, TEST))
        stream, _ = await accept(peer)
        absent: Any = {"withdrawn": [resource_name("a", pins)]} if delta else {"errors": [error("a", 5, "none", pins)]}
        assert is_ack(await reply(stream, xp.CLUSTER, **absent), "n1")
        await quiet()
        missing = ["error NOT_FOUND"]
        assert (marks(prod.seen()), marks(test.seen())) == (missing, [])
        await reply(stream, xp.CLUSTER, variant("a", "new", "env=prod"), nonce="n2", version="2")
        await quiet()
        assert marks(prod.seen()) == ["new"]


@pytest.mark.parametrize("own", [True, False], ids=["xdsprism", "stranger"])
@both
@timeless
async def test_without_constraints_it_is_for_all_only_where_the_server_means_that(delta: bool, own: bool) -> None:
    # PRX-31, DYN-11: of two who wait, nobody can tell whom another server has answered
    async with talk(delta=delta) as (client, peer):
        prod, test = (follow(client, xp.ENDPOINT, "a", params=params) for params in (PROD, TEST))
        stream, _ = await accept(peer)
        absent: Any = {"withdrawn": [ResourceName(name="a")]} if delta else {"errors": [error("a", 5, "none")]}
        await reply(stream, xp.ENDPOINT, **absent, server="xdsprism" if own else "")
        await quiet(0.1)
        missing = ["error NOT_FOUND"]
        assert (marks(prod.seen()), marks(test.seen())) == ((missing, missing) if own else ([], []))
        await quiet(5.0)
        assert (marks(prod.seen()), marks(test.seen())) == (([], []) if own else (missing, missing))


@pytest.mark.parametrize("way", ["names", "removed", "errors"])
@timeless
async def test_a_removal_without_constraints_takes_no_variant_away(way: str) -> None:
    # PRX-31, DYN-59
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        prod = follow(client, xp.CLUSTER, "a", params=PROD)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "1", "env=prod"))
        test = follow(client, xp.CLUSTER, "a", params=TEST)
        await stream.request()
        absent: dict[str, Any] = {
            "names": {"withdrawn": [ResourceName(name="a")]},
            "removed": {"removed": ["a"]},
            "errors": {"errors": [error("a", 5, "none")]},
        }[way]
        await reply(stream, xp.CLUSTER, nonce="n2", **absent)
        await quiet(5.0)
        assert (marks(prod.seen()), marks(test.seen())) == (["1"], ["error NOT_FOUND"])


@pytest.mark.parametrize("wild", [False, True], ids=["name", "wildcard"])
@timeless
async def test_after_a_reconnect_a_negative_answer_is_about_what_is_held(wild: bool) -> None:
    # DYN-59: the server of the new stream does not know the constraints of what the old one sent
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.LISTENER, *([] if wild else ["a"]), params=PROD)
        stream, _ = await accept(peer)
        await reply(stream, xp.LISTENER, wrap(listener("a"), when="env in (prod, test)", version="v"))
        stream.end()
        stream, request = await accept(peer)
        assert dict(request.initial_resource_versions) == {"a": "v"}
        await reply(stream, xp.LISTENER, nonce="m1", withdrawn=[resource_name("a", "env=prod")])
        await quiet()
        assert [status(update) for update in watcher.seen()] == [("resource", "a"), ("error", "NOT_FOUND")]


@timeless
async def test_after_a_reconnect_a_variant_of_other_constraints_is_no_ambiguity() -> None:
    # DYN-45, DYN-58
    async with talk(delta=True) as (client, peer):
        watcher, found = follow(client, xp.CLUSTER, "a", params=PROD), ambiguities(client)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "old", "env in (prod, test)"))
        stream.end()
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "new", "env=prod"), nonce="m1")
        await quiet()
        assert (marks(watcher.seen()), found) == (["old", "new"], [])


# -- several at once


@both
@timeless
async def test_the_last_of_two_overlapping_variants_wins_and_both_are_logged_once(delta: bool) -> None:
    # DYN-45
    async with talk(delta=delta) as (client, peer):
        watcher, found = follow(client, xp.CLUSTER, "a", params=PROD_V1), ambiguities(client)
        stream, _ = await accept(peer)
        one, other = variant("a", "one", "env=prod"), variant("a", "other", "version=v1")
        assert is_ack(await reply(stream, xp.CLUSTER, one, other), "n1")
        await quiet()
        assert marks(watcher.seen()) == ["other"]
        assert found == [Ambiguous(xp.CLUSTER, "a", "version=v1", "env=prod", first=True)]
        del found[:]
        await reply(stream, xp.CLUSTER, other, one, nonce="n2", version="2")
        await quiet()
        assert marks(watcher.seen()) == ["one"]
        assert found
        assert not any(fact.first or fact.kept or fact.other for fact in found)


@both
@timeless
async def test_overlapping_variants_sent_again_are_no_update(delta: bool) -> None:
    # DYN-45, CLI-19
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=PROD_V1)
        stream, _ = await accept(peer)
        overlapping = variant("a", "one", "env=prod"), variant("a", "other", "version=v1")
        for nonce in ("n1", "n2"):
            await reply(stream, xp.CLUSTER, *overlapping, nonce=nonce)
        await quiet()
        assert marks(watcher.seen()) == ["other"]


@timeless
async def test_a_delta_variant_that_overlaps_a_held_one_is_reported() -> None:
    # DYN-45: and withdrawing the one that lost changes nothing
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher, found = follow(client, xp.CLUSTER, "a", params=PROD_V1), ambiguities(client)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "one", "env=prod"))
        await reply(stream, xp.CLUSTER, variant("a", "other", "version=v1"), nonce="n2")
        assert [fact.first for fact in found] == [True]
        await reply(stream, xp.CLUSTER, nonce="n3", withdrawn=[resource_name("a", "env=prod")])
        await quiet()
        assert marks(watcher.seen()) == ["one", "other"]


# -- constraints that do not match what was asked with


@both
@timeless
async def test_a_leaf_takes_a_variant_whose_constraints_do_not_match(delta: bool) -> None:
    # DYN-56: a server may choose by params that it knows better
    async with talk(delta=delta) as (client, peer):
        watcher, found = follow(client, xp.CLUSTER, "a", params=TEST), ambiguities(client)
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, xp.CLUSTER, variant("a", "1", "env=prod")), "n1")
        gone = [resource_name("a", "env=prod")] if delta else []
        await reply(stream, xp.CLUSTER, variant("a", "2", "env=prod and x=1"), nonce="n2", withdrawn=gone)
        await quiet()
        assert (marks(watcher.seen()), found) == (["1", "2"], [])


@both
@timeless
async def test_with_verify_constraints_such_a_variant_is_refused(delta: bool) -> None:
    # DYN-56, NAK-21
    async with talk(delta=delta, verify_constraints=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=TEST)
        stream, _ = await accept(peer)
        nack = await reply(stream, xp.CLUSTER, variant("a", "1", "env=prod"))
        assert is_nack(nack, "n1")
        assert "a: its constraints (env=prod) do not match the params that were sent" in nack.error_detail.message
        await quiet(100)
        assert marks(watcher.seen()) == ["error INVALID_ARGUMENT"]
        assert is_ack(await reply(stream, xp.CLUSTER, variant("a", "2", "env=test"), nonce="n2"), "n2")
        await quiet()
        assert marks(watcher.seen()) == ["2"]


@timeless
async def test_a_variant_that_fails_verification_is_there_and_so_nothing_is_deleted() -> None:
    # DYN-56, NAK-27
    async with talk(verify_constraints=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=TEST)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "1", "env=test"))
        assert is_nack(await reply(stream, xp.CLUSTER, variant("a", "2", "env=prod"), nonce="n2"), "n2")
        await quiet()
        assert marks(watcher.seen()) == ["1", "ambient INVALID_ARGUMENT"]


@both
@timeless
async def test_verification_skips_unrequested_names(delta: bool) -> None:
    # DYN-56
    async with talk(delta=delta, verify_constraints=True) as (client, peer):
        follow(client, xp.CLUSTER, "a", params=TEST), follow(client, xp.CLUSTER, "p")
        stream, _ = await accept(peer)
        strangers = variant("b", "1", "env=prod"), variant("p", "1", "env=prod")
        assert is_ack(await reply(stream, xp.CLUSTER, *strangers), "n1")


@both
@timeless
async def test_a_response_to_an_ended_watch_is_not_given_to_another(delta: bool) -> None:
    # DYN-60, DYN-59
    async with talk(delta=delta) as (client, peer):
        prod, test = (follow(client, xp.ENDPOINT, "a", params=params) for params in (PROD, TEST))
        stream, _ = await accept(peer)
        both_of_them = [wrap(endpoint("a", env), when=f"env={env}", version=env) for env in ("prod", "test")]
        await reply(stream, xp.ENDPOINT, *both_of_them)
        await test.close()
        await stream.request()
        late = wrap(endpoint("a", "late"), when="env=test")
        assert is_ack(await reply(stream, xp.ENDPOINT, late, nonce="n2", version="2"), "n2")
        await quiet()
        assert [list(update.resource.named_endpoints) for update in prod.seen()] == [["prod"]]


@pytest.mark.parametrize("order", [("prod", "test"), ("test", "prod")])
@timeless
async def test_a_full_response_made_for_two_gives_the_one_that_stayed_its_own(order: tuple[str, ...]) -> None:
    # DYN-60, DYN-59
    async with talk() as (client, peer):
        prod, test = (follow(client, xp.CLUSTER, "a", params=params) for params in (PROD, TEST))
        found = ambiguities(client)
        stream, _ = await accept(peer)
        await test.close()
        await stream.request()
        await reply(stream, xp.CLUSTER, *[variant("a", env, f"env={env}") for env in order])
        await quiet()
        assert (marks(prod.seen()), found) == (["prod"], [])


@both
@timeless
async def test_a_response_to_an_ended_locator_is_not_given_to_a_plain_name(delta: bool) -> None:
    # DYN-60, DYN-59
    async with talk(delta=delta, fail_on_data_errors=True) as (client, peer):
        plain, located = follow(client, xp.ENDPOINT, "a"), follow(client, xp.ENDPOINT, "a", params=PROD)
        stream, _ = await accept(peer)
        await reply(stream, xp.ENDPOINT, wrap(endpoint("a", "plain")), wrap(endpoint("a", "located"), when="env=prod"))
        await located.close()
        await stream.request()
        await reply(stream, xp.ENDPOINT, wrap(endpoint("a", "late"), when="env=prod"), nonce="n2")
        if delta:
            await reply(stream, xp.ENDPOINT, nonce="n3", withdrawn=[resource_name("a", "env=prod")])
        await quiet()
        assert [list(update.resource.named_endpoints) for update in plain.seen()] == [["plain"]]


@both
@timeless
async def test_a_response_to_an_ended_plain_name_is_not_given_to_a_locator(delta: bool) -> None:
    # DYN-60, DYN-59
    async with talk(delta=delta, fail_on_data_errors=True) as (client, peer):
        plain, located = follow(client, xp.ENDPOINT, "a"), follow(client, xp.ENDPOINT, "a", params=PROD)
        stream, _ = await accept(peer)
        await reply(stream, xp.ENDPOINT, wrap(endpoint("a", "plain")), wrap(endpoint("a", "located"), when="env=prod"))
        await plain.close()
        await stream.request()
        await reply(stream, xp.ENDPOINT, wrap(endpoint("a", "late")), nonce="n2")
        if delta:
            await reply(stream, xp.ENDPOINT, nonce="n3", removed=["a"])
        await quiet()
        assert [list(update.resource.named_endpoints) for update in located.seen()] == [["located"]]


@timeless
async def test_a_variant_without_constraints_may_be_removed_by_name_alone() -> None:
    # DYN-59: only for what has constraints does TP2 ask for more
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=PROD)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "all", "true"))
        await reply(stream, xp.CLUSTER, nonce="n2", removed=["a"])
        await quiet()
        assert marks(watcher.seen()) == ["all", "error NOT_FOUND"]


@timeless
async def test_after_a_reconnect_a_removal_for_a_wildcard_is_not_about_a_locator() -> None:
    # DYN-59: both were named by initial_resource_versions, which know names only
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        follow(client, xp.CLUSTER)
        watcher = follow(client, xp.CLUSTER, "a", params=PROD)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "1", "env=prod"))
        stream.end()
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, nonce="m1", removed=["a"])
        await quiet()
        assert marks(watcher.seen()) == ["1"]


@pytest.mark.parametrize("params", [None, PROD], ids=["plain", "located"])
@both
@timeless
async def test_a_wildcard_has_what_is_held_by_name_already(delta: bool, params: dict[str, str] | None) -> None:
    # DYN-60: a delta server need not send again what the client has
    async with talk(delta=delta) as (client, peer):
        named = follow(client, xp.CLUSTER, "a", params=params)
        other = follow(client, xp.CLUSTER, "a", params=TEST)
        stream, _ = await accept(peer)
        mine = wrap(cluster("a", "1")) if params is None else variant("a", "1", "env=prod")
        await reply(stream, xp.CLUSTER, mine, variant("a", "2", "env=test"))
        wild = follow(client, xp.CLUSTER, params=params)
        await stream.request()
        await quiet()
        assert [marks(each.seen()) for each in (named, other, wild)] == [["1"], ["2"], ["1"]]


@timeless
async def test_a_variant_that_matches_may_be_replaced_by_one_that_does_not() -> None:
    # DYN-56, DYN-58
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=TEST)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "1", "env=test"))
        gone = [resource_name("a", "env=test")]
        await reply(stream, xp.CLUSTER, variant("a", "2", "zone=1"), nonce="n2", withdrawn=gone)
        await quiet()
        assert marks(watcher.seen()) == ["1", "2"]


@pytest.mark.parametrize(("held", "expected"), [("env=prod", ["1", "2"]), ("env=test", ["1"])])
@timeless
async def test_a_variant_that_does_not_match_replaces_without_a_removal_only_one_that_does_not_either(
    held: str, expected: list[str]
) -> None:
    # DYN-56: beside one that matches, it was on its way to a subscription that is gone
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=TEST)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, variant("a", "1", held))
        await reply(stream, xp.CLUSTER, variant("a", "2", "zone=1"), nonce="n2")
        await quiet()
        assert marks(watcher.seen()) == expected


@both
@timeless
async def test_an_invalid_variant_concerns_the_params_that_its_constraints_match(delta: bool) -> None:
    # NAK-15, DYN-59
    async with talk(delta=delta, validators={xp.CLUSTER: lambda _: ["bad"]}) as (client, peer):
        plain = follow(client, xp.CLUSTER, "a")
        prod, test = (follow(client, xp.CLUSTER, "a", params=params) for params in (PROD, TEST))
        stream, _ = await accept(peer)
        assert is_nack(await reply(stream, xp.CLUSTER, variant("a", "1", "env=prod")), "n1")
        await quiet()
        assert [marks(each.seen()) for each in (plain, prod, test)] == [[], ["error INVALID_ARGUMENT"], []]
