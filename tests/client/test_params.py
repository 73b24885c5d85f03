"""Dynamic parameters of a client, from the bootstrap or from a watch (gRFC on TP2)."""

from __future__ import annotations

from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import (
    accept,
    bootstrap,
    both,
    cluster,
    endpoint,
    follow,
    listener,
    names,
    quiet,
    server,
    silent,
    status,
    talk,
    timeless,
)
from tests.client.wrapping import is_ack, locators, reply, resource_name, wrap

PROD, TEST = {"env": "prod"}, {"env": "test"}
VARIABLE = "GRPC_EXPERIMENTAL_XDS_DYNAMIC_PARAMETERS"
OFF = {VARIABLE: "false"}


def xdstp(authority: str, name: str) -> str:
    return f"xdstp://{authority}/envoy.config.cluster.v3.Cluster/{name}"


# -- whose parameters


@both
@timeless
async def test_parameters_at_the_top_level_make_locators_of_plain_names(delta: bool) -> None:
    # DYN-48
    async with talk(bootstrap(dynamic_parameters=PROD), delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        _, request = await accept(peer)
        assert (locators(request), names(request)) == ([("a", PROD)], [])


@both
@timeless
async def test_an_authority_has_its_own_parameters_and_inherits_none(delta: bool) -> None:
    # DYN-49, DYN-51: one stream, and one request that fills both fields
    authorities = {"with": {"dynamic_parameters": {"zone": "1"}}, "without": {}}
    async with talk(bootstrap(dynamic_parameters=PROD, authorities=authorities), delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, xdstp("with", "a"), xdstp("without", "b"), "c")
        stream, request = await accept(peer)
        assert locators(request) == [(xdstp("with", "a"), {"zone": "1"}), ("c", PROD)]
        assert names(request) == [xdstp("without", "b")]
        assert await silent(stream)
        assert peer.opened == 1


@both
@timeless
async def test_all_authorities_without_parameters_are_in_resource_names(delta: bool) -> None:
    # DYN-51, DYN-52
    authorities = {"one": {}, "two": {"dynamic_parameters": {}}, "three": {"dynamic_parameters": PROD}}
    async with talk(bootstrap(authorities=authorities), delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, *[xdstp(each, "a") for each in authorities])
        _, request = await accept(peer)
        assert names(request) == [xdstp("one", "a"), xdstp("two", "a")]
        assert locators(request) == [(xdstp("three", "a"), PROD)]


@pytest.mark.parametrize("fields", [{}, {"dynamic_parameters": {}}], ids=["absent", "empty"])
@both
@timeless
async def test_without_parameters_names_are_plain(delta: bool, fields: dict[str, Any]) -> None:
    # DYN-50
    async with talk(bootstrap(**fields), delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        _, request = await accept(peer)
        assert (locators(request), names(request)) == ([], ["a"])


@both
@timeless
async def test_parameters_are_those_of_the_start(delta: bool) -> None:
    # DYN-53
    params = dict(PROD)
    async with talk(bootstrap(dynamic_parameters=params), delta=delta) as (client, peer):
        params["env"] = "test"
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        stream.respond(xp.CLUSTER)
        stream.end()
        params.clear()
        _, again = await accept(peer)
        assert locators(again) == [("a", PROD)]


@both
@timeless
async def test_a_watcher_gives_parameters_of_its_own_or_none(delta: bool) -> None:
    # DYN-60
    async with talk(bootstrap(dynamic_parameters=PROD), delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a", params=TEST), follow(client, xp.CLUSTER, "b", params={})
        _, request = await accept(peer)
        assert (locators(request), names(request)) == ([("a", TEST)], ["b"])


@pytest.mark.parametrize("value", [1, True, None, ["prod"], {"is": "prod"}])
@pytest.mark.parametrize("where", ["top", "authority"])
def test_a_parameter_that_is_no_string_makes_the_bootstrap_invalid(value: object, where: str) -> None:
    # DYN-57
    wrong = {"dynamic_parameters": {"env": value}}
    with pytest.raises(xp.ConfigError, match=r"dynamic_parameters\.env: expected a string"):
        xp.Bootstrap.load(bootstrap(**wrong) if where == "top" else bootstrap(authorities={"x": wrong}))


# -- switched off


@both
@timeless
async def test_switched_off_no_locators_are_sent(delta: bool) -> None:
    # DYN-54
    source = bootstrap(dynamic_parameters=PROD, authorities={"x": {"dynamic_parameters": PROD}})
    async with talk(xp.Bootstrap.load(source, environ=OFF), delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a", xdstp("x", "b")), follow(client, xp.CLUSTER, "c", params=TEST)
        _, request = await accept(peer)
        assert (locators(request), names(request)) == ([], ["a", xdstp("x", "b"), "c"])


@pytest.mark.parametrize("word", ["false", "FALSE", "0", "no", "No", "off", "OFF", " off "])
@timeless
async def test_every_word_for_no_switches_locators_off(word: str) -> None:
    # DYN-54
    found = xp.Bootstrap.load(bootstrap(dynamic_parameters=PROD), environ={VARIABLE: word})
    async with talk(found) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        _, request = await accept(peer)
        assert (locators(request), names(request)) == ([], ["a"])


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", ""])
@timeless
async def test_anything_else_leaves_them_on(word: str) -> None:
    # DYN-54
    async with talk(xp.Bootstrap.load(bootstrap(dynamic_parameters=PROD), environ={VARIABLE: word})) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        _, request = await accept(peer)
        assert locators(request) == [("a", PROD)]


@both
@timeless
async def test_switched_off_resource_name_is_not_read(delta: bool) -> None:
    # DYN-54: also not that it has both, nor that its constraints are none
    async with talk(xp.Bootstrap.load(bootstrap(), environ=OFF), delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        odd = wrap(cluster("a"), when="env=prod")
        odd.resource_name.dynamic_parameter_constraints.constraint.key = ""
        double = wrap(cluster("b"))
        double.resource_name.CopyFrom(resource_name("other", "true"))
        assert is_ack(await reply(stream, xp.CLUSTER, odd, double), "n1")
        await quiet()
        seen = watcher.seen()
        assert [update.name for update in seen] == ["a", "b"]
        assert [update.constraint for update in seen] == [xp.parse("true")] * 2
        if delta:
            gone = resource_name("a", "true"), odd.resource_name
            assert is_ack(await reply(stream, xp.CLUSTER, nonce="n2", withdrawn=gone), "n2")
            await quiet()
            assert watcher.seen() == []


# -- whom an answer is for


@both
@timeless
async def test_a_resource_goes_by_resource_name_where_it_has_one(delta: bool) -> None:
    # DYN-55: and not by the name inside
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=PROD)
        stream, _ = await accept(peer)
        odd = wrap(cluster("inner"), when="env=prod")
        odd.resource_name.name = "a"
        assert is_ack(await reply(stream, xp.CLUSTER, odd), "n1")
        update = await watcher.next()
        assert (update.name, update.resource.name) == ("a", "inner")
        assert update.constraint == xp.parse("env=prod")


@both
@timeless
async def test_a_resource_with_both_names_is_refused(delta: bool) -> None:
    # DYN-55
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=PROD)
        stream, _ = await accept(peer)
        double = wrap(cluster("a"), when="env=prod")
        double.name = "a"
        nack = await reply(stream, xp.CLUSTER, double)
        assert "a: it has both name and resource_name" in nack.error_detail.message
        assert status(await watcher.next()) == ("error", "INVALID_ARGUMENT")


@pytest.mark.parametrize("fault", ["no key", "neither value nor exists"])
@both
@timeless
async def test_constraints_that_say_nothing_are_refused(delta: bool, fault: str) -> None:
    # DYN-9: and stand for whichever variant was asked for by a locator, but not for one that came all right
    async with talk(delta=delta, fail_on_data_errors=True) as (client, peer):
        plain = follow(client, xp.CLUSTER, "a")
        prod, test = (follow(client, xp.CLUSTER, "a", params=params) for params in (PROD, TEST))
        stream, _ = await accept(peer)
        variants = [wrap(cluster("a", env), when=f"env={env}") for env in ("prod", "test")]
        await reply(stream, xp.CLUSTER, wrap(cluster("a")), *variants)
        await quiet()
        plain.seen(), prod.seen(), test.seen()
        single = variants[1].resource_name.dynamic_parameter_constraints.constraint
        if fault == "no key":
            single.key = ""
        else:
            single.ClearField("value")
        variants[0].resource.value = cluster("a", "newer").SerializeToString()
        nack = await reply(stream, xp.CLUSTER, wrap(cluster("a")), *variants, nonce="n2")
        assert "a: its constraints can't be read" in nack.error_detail.message
        await quiet()
        assert plain.seen() == []
        assert [update.resource for update in prod.seen()] == [cluster("a", "newer")]
        assert list(map(status, test.seen())) == [("ambient", "INVALID_ARGUMENT")]


@timeless
async def test_a_removal_whose_constraints_say_nothing_is_refused() -> None:
    # DYN-9
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=PROD)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster("a"), when="env=prod"))
        broken = resource_name("a", "env=prod")
        broken.dynamic_parameter_constraints.constraint.key = ""
        nack = await reply(stream, xp.CLUSTER, nonce="n2", withdrawn=[broken])
        assert "a: its removal can't be read" in nack.error_detail.message
        await quiet()
        assert list(map(status, watcher.seen())) == [("resource", "a"), ("ambient", "INVALID_ARGUMENT")]


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
@both
@timeless
async def test_a_server_that_knows_no_locators_may_answer_by_name(delta: bool, wrapped: bool) -> None:
    # DYN-55, CLI-21
    async with talk(delta=delta, verify_constraints=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params=PROD)
        stream, _ = await accept(peer)
        resource = wrap(cluster("a")) if wrapped or delta else cluster("a")
        assert is_ack(await reply(stream, xp.CLUSTER, resource), "n1")
        assert (await watcher.next()).resource == cluster("a")
        if delta:
            await reply(stream, xp.CLUSTER, nonce="n2", removed=["a"])
            assert status(await watcher.next()) == ("ambient", "NOT_FOUND")


@both
@timeless
async def test_a_plain_and_a_located_watcher_of_one_name_each_get_their_own_form(delta: bool) -> None:
    # DYN-60
    async with talk(delta=delta, fail_on_data_errors=True) as (client, peer):
        plain, located = follow(client, xp.CLUSTER, "a"), follow(client, xp.CLUSTER, "a", params=PROD)
        stream, request = await accept(peer)
        assert (names(request), locators(request)) == (["a"], [("a", PROD)])
        mine = wrap(cluster("a", "plain"))
        await reply(stream, xp.CLUSTER, mine, wrap(cluster("a", "located"), when="env=prod"))
        await quiet()
        assert [update.resource.alt_stat_name for update in plain.seen()] == ["plain"]
        assert [update.resource.alt_stat_name for update in located.seen()] == ["located"]
        if delta:
            await reply(stream, xp.CLUSTER, nonce="n2", withdrawn=[resource_name("a", "env=prod")])
        else:
            await reply(stream, xp.CLUSTER, mine, nonce="n2")
        await quiet()
        assert list(map(status, located.seen())) == [("error", "NOT_FOUND")]
        assert plain.seen() == []


@both
@timeless
async def test_two_parameter_sets_of_one_name_share_a_stream(delta: bool) -> None:
    # DYN-60, DYN-59
    async with talk(delta=delta) as (client, peer):
        prod, test = follow(client, xp.ENDPOINT, "a", params=PROD), follow(client, xp.ENDPOINT, "a", params=TEST)
        stream, request = await accept(peer)
        assert locators(request) == [("a", PROD), ("a", TEST)]
        both_of_them = [wrap(endpoint("a", env), when=f"env={env}", version=env) for env in ("prod", "test")]
        await reply(stream, xp.ENDPOINT, *both_of_them)
        assert list((await prod.next()).resource.named_endpoints) == ["prod"]
        assert list((await test.next()).resource.named_endpoints) == ["test"]
        await test.close()
        rest = await stream.request()
        if delta:
            gone = [(each.name, dict(each.dynamic_parameters)) for each in rest.resource_locators_unsubscribe]
            assert (gone, locators(rest)) == ([("a", TEST)], [])
        else:
            assert locators(rest) == [("a", PROD)]
        assert peer.opened == 1


@timeless
async def test_versions_of_a_name_of_which_several_variants_are_held_are_not_named() -> None:
    # DYN-40, DYN-60
    async with talk(delta=True) as (client, peer):
        follow(client, xp.CLUSTER, "a", "b", params=PROD), follow(client, xp.CLUSTER, "a", params=TEST)
        stream, _ = await accept(peer)
        held = [wrap(cluster("a", env), when=f"env={env}", version=env) for env in ("prod", "test")]
        await reply(stream, xp.CLUSTER, *held, wrap(cluster("b"), when="env=prod", version="b1"))
        stream.end()
        _, request = await accept(peer)
        assert dict(request.initial_resource_versions) == {"b": "b1"}


# -- wildcards


@both
@timeless
async def test_a_wildcard_with_parameters_is_a_locator(delta: bool) -> None:
    # DYN-48, DYN-60: each takes the members whose constraints match
    async with talk(delta=delta) as (client, peer):
        prod, test = follow(client, xp.LISTENER, params=PROD), follow(client, xp.LISTENER, params=TEST)
        stream, request = await accept(peer)
        assert (names(request), locators(request)) == ([], [("*", PROD), ("*", TEST)])
        variants = [wrap(listener("a", env), when=f"env={env}") for env in ("prod", "test")]
        await reply(stream, xp.LISTENER, *variants, wrap(listener("b"), when="env=prod"))
        await quiet()
        assert [(update.name, update.resource.stat_prefix) for update in prod.seen()] == [("a", "prod"), ("b", "")]
        assert [(update.name, update.resource.stat_prefix) for update in test.seen()] == [("a", "test")]


@both
@timeless
async def test_a_member_of_a_wildcard_is_not_given_to_a_name_with_other_parameters(delta: bool) -> None:
    # DYN-60
    async with talk(delta=delta) as (client, peer):
        named, wild = follow(client, xp.LISTENER, "a", params=PROD), follow(client, xp.LISTENER, params=TEST)
        stream, _ = await accept(peer)
        await reply(stream, xp.LISTENER, wrap(listener("a", "test"), when="env=test"))
        await quiet()
        assert [update.resource.stat_prefix for update in wild.seen()] == ["test"]
        assert named.seen() == []


@both
@timeless
async def test_servers_of_two_authorities_may_be_two(delta: bool) -> None:
    # DYN-49: what one is asked with, the other does not see
    authorities = {"x": {"xds_servers": [server("two:2")], "dynamic_parameters": TEST}}
    async with talk(bootstrap(dynamic_parameters=PROD, authorities=authorities), delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a", xdstp("x", "b"))
        asked = [locators((await accept(peer))[1]) for _ in range(2)]
        assert sorted(asked) == [[("a", PROD)], [(xdstp("x", "b"), TEST)]]
