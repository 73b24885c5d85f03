"""Invalid responses: which resources are used, which are rejected, and which watchers are told (gRFC A46)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from envoy.api.v2.cluster_pb2 import Cluster as ClusterV2
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.service.discovery.v3.discovery_pb2 import Resource
from google.protobuf.any_pb2 import Any as AnyMessage

import xdsprism as xp
from tests.client.rig import accept, both, cluster, endpoint, follow, names, quiet, silent, status, talk, timeless
from tests.client.wrapping import is_ack, is_nack, pack, reply, wrap
from xdsprism.testing import PeerStream

GARBAGE = b"\x0a\xff"  # a field that is longer than all there is


def bad(name: str) -> Cluster:
    """`validate.rules` want a connect_timeout greater than 0."""
    made = Cluster(name=name)
    made.connect_timeout.SetInParent()
    return made


def bad_endpoint(name: str) -> ClusterLoadAssignment:
    made = ClusterLoadAssignment(cluster_name=name)
    made.policy.overprovisioning_factor.value = 0
    return made


def form(stream: PeerStream, message: Any) -> Any:
    """As a server of either protocol would send it."""
    return wrap(message) if stream.is_delta else message


async def send(stream: PeerStream, *messages: Any, nonce: str = "n1", version: str = "1", url: str = xp.CLUSTER) -> Any:
    return await reply(stream, url, *[form(stream, each) for each in messages], nonce=nonce, version=version)


# -- the good and the bad


@both
@timeless
async def test_the_good_resources_of_a_response_with_a_bad_one_are_used(delta: bool) -> None:
    # NAK-14, NAK-15, NAK-23
    async with talk(delta=delta) as (client, peer):
        good, wrong = follow(client, xp.CLUSTER, "a"), follow(client, xp.CLUSTER, "b")
        stream, _ = await accept(peer)
        assert is_nack(await send(stream, bad("b"), cluster("a", "new")), "n1")
        assert await silent(stream)
        assert [update.resource for update in good.seen()] == [cluster("a", "new")]
        (told,) = wrong.seen()
        assert status(told) == ("error", "INVALID_ARGUMENT")
        assert "connect_timeout" in str(told.error)


@both
@timeless
async def test_a_bad_resource_in_plain_form_is_no_fault_of_a_variant_of_the_name(delta: bool) -> None:
    # NAK-14, DYN-59
    async with talk(delta=delta) as (client, peer):
        plain, prod = (follow(client, xp.ENDPOINT, "a", params=params) for params in (None, {"env": "prod"}))
        stream, _ = await accept(peer)
        held = wrap(endpoint("a", "plain")), wrap(endpoint("a", "prod"), when="env=prod")
        await reply(stream, xp.ENDPOINT, *held)
        assert [list(map(status, each.seen())) for each in (plain, prod)] == [[("resource", "a")]] * 2
        assert is_nack(await reply(stream, xp.ENDPOINT, wrap(bad_endpoint("a"), version="2"), nonce="n2"), "n2")
        assert list(map(status, plain.seen())) == [("ambient", "INVALID_ARGUMENT")]
        assert prod.seen() == []


@both
@timeless
async def test_a_nacked_resource_leaves_the_last_good_value_in_use(delta: bool) -> None:
    # NAK-15
    async with talk(delta=delta) as (client, peer):
        first = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await send(stream, cluster("a", "good"))
        assert is_nack(await send(stream, bad("a"), nonce="n2", version="2"), "n2")
        late = follow(client, xp.CLUSTER, "a")
        await quiet()
        for watcher in (first, late):
            value, ambient = watcher.seen()
            assert value.resource == cluster("a", "good")
            assert status(ambient) == ("ambient", "INVALID_ARGUMENT")
        assert not stream.pending()


@timeless
async def test_a_sotw_nack_has_the_nonce_the_last_good_version_and_every_name() -> None:
    # NAK-16
    async with talk() as (client, peer):
        follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        first = await send(stream, bad("a"), nonce="n1", version="1")
        assert (first.response_nonce, first.version_info, names(first)) == ("n1", "", ["a", "b"])
        await send(stream, cluster("a"), nonce="n2", version="2")
        again = await send(stream, bad("a"), nonce="n3", version="3")
        assert (again.response_nonce, again.version_info, names(again)) == ("n3", "2", ["a", "b"])
        assert again.type_url == xp.CLUSTER
        assert again.HasField("error_detail")


@timeless
async def test_a_delta_nack_is_a_nonce_and_an_error() -> None:
    # NAK-16, NAK-24
    async with talk(delta=True) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        nack = await send(stream, bad("a"))
        assert {field.name for field, _ in nack.ListFields()} == {"type_url", "response_nonce", "error_detail"}


@both
@timeless
async def test_a_nack_names_the_fault_of_each_resource(delta: bool) -> None:
    # NAK-17
    def odd(message: Cluster) -> Iterator[str]:
        if message.alt_stat_name:
            yield f"{message.alt_stat_name} is not a word"
            yield "nor a number"

    async with talk(delta=delta, validators={xp.CLUSTER: odd}) as (client, peer):
        follow(client, xp.CLUSTER, "a", "b", "c")
        stream, _ = await accept(peer)
        nack = await send(stream, cluster("a", "qux"), cluster("b"), cluster("c", "zap"))
        text = nack.error_detail.message
        assert nack.error_detail.code == 3
        assert "a: qux is not a word; nor a number" in text
        assert "c: zap is not a word; nor a number" in text
        assert "b:" not in text


@both
@timeless
async def test_a_resource_that_can_not_be_decoded_does_not_stop_the_others(delta: bool) -> None:
    # NAK-18
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        garbage: Any = AnyMessage(type_url=xp.CLUSTER, value=GARBAGE)
        if delta:
            garbage = Resource(resource=garbage, version="1")
        nack = await reply(stream, xp.CLUSTER, form(stream, cluster("a")), garbage, form(stream, cluster("b")))
        assert is_nack(nack, "n1")
        assert "decode" in nack.error_detail.message
        await quiet()
        assert [update.name for update in watcher.seen()] == ["a", "b"]


@timeless
async def test_a_broken_wrapper_does_not_stop_the_others() -> None:
    # NAK-18
    async with talk() as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        broken = AnyMessage(type_url=pack(Resource()).type_url, value=GARBAGE)
        assert is_nack(await reply(stream, xp.CLUSTER, broken, Resource(), cluster("a")), "n1")
        assert (await watcher.next()).resource == cluster("a")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (cluster("a", "1"), cluster("a", "2")),
        (cluster("a", "1"), cluster("a", "1")),
        (cluster("a", "1"), wrap(cluster("a", "2"))),
        (wrap(cluster("a", "1")), wrap(cluster("a", "2"))),
        (cluster("a"), bad("a")),
        (bad("a"), wrap(cluster("a"))),
        (wrap(cluster("a"), when="x=1 and y=1"), wrap(cluster("a"), when="y=1 and not not x=1")),
    ],
    ids=["bare", "equal", "mixed", "wrapped", "good and bad", "bad and good", "constraints in two forms"],
)
@timeless
async def test_two_resources_of_one_name_are_both_rejected(one: Any, other: Any) -> None:
    # NAK-19
    async with talk() as (client, peer):
        watcher, rest = follow(client, xp.CLUSTER, "a"), follow(client, xp.CLUSTER, "b")
        stream, _ = await accept(peer)
        nack = await reply(stream, xp.CLUSTER, one, cluster("b"), other)
        assert is_nack(nack, "n1")
        assert "a: it is in the response twice" in nack.error_detail.message
        await quiet()
        assert [status(update) for update in watcher.seen()] == [("error", "INVALID_ARGUMENT")]
        assert (await rest.next()).resource == cluster("b")


@timeless
async def test_two_delta_resources_of_one_name_are_both_rejected() -> None:
    # NAK-19
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        assert is_nack(await send(stream, cluster("a", "1"), cluster("b"), cluster("a", "2")), "n1")
        await quiet()
        assert sorted(map(status, watcher.seen())) == [("error", "INVALID_ARGUMENT"), ("resource", "b")]


@both
@timeless
async def test_after_a_nack_an_unchanged_good_response_is_acked_and_reported(delta: bool) -> None:
    # NAK-20
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await send(stream, cluster("a"), nonce="n1", version="1")
        await send(stream, bad("a"), nonce="n2", version="2")
        ack = await send(stream, cluster("a"), nonce="n3", version="3")
        assert is_ack(ack, "n3")
        assert delta or ack.version_info == "3"
        await quiet()
        seen = watcher.seen()
        assert list(map(status, seen)) == [("resource", "a"), ("ambient", "INVALID_ARGUMENT"), ("resource", "a")]
        assert seen[2].version == "3" if not delta else seen[2].resource == seen[0].resource


@both
@timeless
async def test_an_outage_between_does_not_hide_that_a_refused_resource_is_good_again(delta: bool) -> None:
    # NAK-20
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await send(stream, cluster("a"))
        await send(stream, bad("a"), nonce="n2", version="2")
        peer.refuse()
        stream.end()
        stream, _ = await accept(peer)
        assert is_ack(await send(stream, cluster("a"), nonce="m1"), "m1")
        await quiet()
        kinds = [("resource", "a"), ("ambient", "INVALID_ARGUMENT"), ("ambient", "UNAVAILABLE"), ("resource", "a")]
        assert list(map(status, watcher.seen())) == kinds


@both
@timeless
async def test_an_invalid_resource_is_there_so_its_timer_stops(delta: bool) -> None:
    # NAK-21
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await send(stream, bad("a"))
        assert client.subscriber.deadline() is None
        await quiet(100)
        assert list(map(status, watcher.seen())) == [("error", "INVALID_ARGUMENT")]


@both
@timeless
async def test_a_type_that_was_never_asked_for_is_ignored(delta: bool) -> None:
    # NAK-22
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        stream.respond(xp.ENDPOINT, bad_endpoint("a"), nonce="e1")
        stream.respond(xp.ENDPOINT, endpoint("a"), nonce="e2")
        assert await silent(stream)
        assert watcher.seen() == []
        assert is_ack(await send(stream, cluster("a")), "n1")


@both
@timeless
async def test_each_response_is_answered_once(delta: bool) -> None:
    # NAK-23
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a"), follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        await stream.request()
        contents = [(), (cluster("a"),), (cluster("a"),), (bad("a"),), (bad("a"),), (cluster("unasked"),)]
        for number, messages in enumerate(contents):
            stream.respond(xp.CLUSTER, *messages, nonce=f"c{number}", version=str(number))
            stream.respond(xp.ENDPOINT, nonce=f"e{number}", version=str(number))
        await quiet(600)  # what is said over and over is answered at leisure
        answers = stream.pending()
        for kind, url in (("c", xp.CLUSTER), ("e", xp.ENDPOINT)):
            nonces = [answer.response_nonce for answer in answers if answer.type_url == url]
            assert nonces == [f"{kind}{number}" for number in range(len(contents))]
        refused = [answer.response_nonce for answer in answers if answer.HasField("error_detail")]
        assert refused == ["c3", "c4"]


@timeless
async def test_a_refused_version_is_never_named_as_held() -> None:
    # NAK-24
    async with talk(delta=True) as (client, peer):
        follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster("a"), version="good"), wrap(bad("b"), version="worse"))
        await reply(stream, xp.CLUSTER, wrap(bad("a"), version="bad"), nonce="n2")
        stream.end()
        _, request = await accept(peer)
        assert dict(request.initial_resource_versions) == {"a": "good"}


@both
@timeless
async def test_a_resource_of_another_type_is_refused(delta: bool) -> None:
    # NAK-25
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        odd: Any = wrap(endpoint("a"))
        for item in (odd,) if delta else (odd, endpoint("a")):
            nack = await reply(stream, xp.CLUSTER, item)
            assert is_nack(nack, "n1")
            assert "envoy.config.endpoint.v3.ClusterLoadAssignment, not a " in nack.error_detail.message


@both
@timeless
async def test_the_twin_of_another_version_is_the_same_type(delta: bool) -> None:
    # NAK-25
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        twin = ClusterV2(name="a")
        assert is_ack(await reply(stream, xp.CLUSTER, wrap(twin) if delta else twin), "n1")
        assert (await watcher.next()).resource == cluster("a")


@timeless
async def test_a_resource_that_a_response_both_has_and_removes_is_rejected() -> None:
    # NAK-26
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await send(stream, cluster("a", "old"), cluster("b"))
        nack = await reply(stream, xp.CLUSTER, wrap(cluster("a", "new")), nonce="n2", removed=["a", "b"])
        assert is_nack(nack, "n2")
        assert "a: the response both has it and removes it" in nack.error_detail.message
        await quiet()
        told = [(*status(update), update.name) for update in watcher.seen()][2:]
        assert told == [("ambient", "INVALID_ARGUMENT", "a"), ("error", "NOT_FOUND", "b")]


# -- what a full response lacks


@pytest.mark.parametrize("wild", [False, True], ids=["names", "wildcard"])
@timeless
async def test_invalid_is_not_deleted_but_absent_is(wild: bool) -> None:
    # NAK-27
    async with talk(fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, *([] if wild else ["a", "b", "c"]))
        stream, _ = await accept(peer)
        await send(stream, cluster("a"), cluster("b"), cluster("c"))
        assert is_nack(await send(stream, cluster("a"), bad("b"), nonce="n2", version="2"), "n2")
        await quiet()
        told = [(*status(update), update.name) for update in watcher.seen()][3:]
        assert told == [("ambient", "INVALID_ARGUMENT", "b"), ("error", "NOT_FOUND", "c")]


NAMELESS: list[Any] = [
    AnyMessage(type_url=xp.CLUSTER, value=GARBAGE),
    AnyMessage(type_url=pack(Resource()).type_url, value=GARBAGE),
    Resource(),
    Cluster(),
    endpoint("c"),
]


@pytest.mark.parametrize("unknown", NAMELESS, ids=["garbage", "broken wrapper", "empty", "nameless", "other type"])
@timeless
async def test_nothing_counts_as_deleted_while_an_entry_has_no_name(unknown: Any) -> None:
    # NAK-27
    async with talk(fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await send(stream, cluster("a", "1"), cluster("b"))
        assert is_nack(await reply(stream, xp.CLUSTER, cluster("a", "2"), unknown, nonce="n2", version="2"), "n2")
        await quiet()
        assert [update.resource for update in watcher.seen()[2:]] == [cluster("a", "2")]
        await send(stream, cluster("a", "2"), nonce="n3", version="3")
        (gone,) = [await watcher.next()]
        assert (gone.name, status(gone)) == ("b", ("error", "NOT_FOUND"))


@timeless
async def test_a_wildcard_forgets_an_invalid_resource_that_went_away() -> None:
    # NAK-27
    async with talk() as (client, peer):
        first = follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        await send(stream, cluster("a"), bad("b"))
        await send(stream, cluster("a"), nonce="n2", version="2")
        await quiet()
        told = [(*status(update), update.name) for update in first.seen()]
        assert told[1:] == [("error", "INVALID_ARGUMENT", "b"), ("error", "NOT_FOUND", "b")]
        late = follow(client, xp.CLUSTER)
        await quiet()
        assert [status(update) for update in late.seen()] == [("resource", "a")]


# -- validators


def yields(_message: Cluster) -> Iterator[str]:
    yield "first reason"
    yield "second reason"


def lists(_message: Cluster) -> list[str]:
    return ["first reason", "second reason"]


def raises(_message: Cluster) -> list[str]:
    raise ValueError("first reason; second reason")


def raises_late(_message: Cluster) -> Iterator[str]:
    yield "not seen"
    raise xp.UsageError("first reason; second reason")


def says(_message: Cluster) -> str:
    return "first reason; second reason"


@pytest.mark.parametrize("validator", [yields, lists, raises, raises_late, says])
@both
@timeless
async def test_a_validator_says_what_is_wrong(delta: bool, validator: Callable[[Any], Any]) -> None:
    # NAK-14, NAK-17
    async with talk(delta=delta, validators={xp.CLUSTER: validator}) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        nack = await send(stream, cluster("a"))
        assert "a: first reason; second reason" in nack.error_detail.message
        assert status(await watcher.next()) == ("error", "INVALID_ARGUMENT")


@both
@timeless
async def test_a_validator_with_a_slip_refuses_and_the_stream_goes_on(delta: bool) -> None:
    # NAK-14, NAK-18
    def slips(message: Cluster) -> list[str]:
        return [] if message.name == "b" else [{}[message.name]]

    async with talk(delta=delta, validators={xp.CLUSTER: slips}) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "b")
        stream, _ = await accept(peer)
        nack = await send(stream, cluster("a"), cluster("b"))
        assert "a: its validator failed: KeyError('a')" in nack.error_detail.message
        assert (await watcher.next()).resource == cluster("b")
        assert peer.opened == 1


@timeless
async def test_a_validator_is_there_in_place_of_the_rules() -> None:
    # NAK-14
    async with talk(validators={xp.CLUSTER: lambda _: ()}) as (client, peer):
        follow(client, xp.CLUSTER, "a"), follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        await stream.request()
        assert is_ack(await send(stream, bad("a")), "n1")
        assert is_nack(await send(stream, bad_endpoint("a"), url=xp.ENDPOINT), "n1")


# -- what is told, and in which form it may come


@both
@timeless
async def test_unchanged_contents_cause_no_second_update(delta: bool) -> None:
    # CLI-19
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        for number, mark in enumerate(["x", "x", "x", "y", "y"]):
            await reply(stream, xp.CLUSTER, wrap(cluster("a", mark), version=str(number)), nonce=str(number))
        await quiet()
        assert [update.resource.alt_stat_name for update in watcher.seen()] == ["x", "y"]


@timeless
async def test_wrapped_and_bare_resources_are_one_to_a_sotw_client() -> None:
    # CLI-21, CLI-19
    async with talk() as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, xp.CLUSTER, cluster("a"), wrap(cluster("b"))), "n1")
        await quiet()
        assert [update.resource for update in watcher.seen()] == [cluster("a"), cluster("b")]
        assert is_ack(await reply(stream, xp.CLUSTER, wrap(cluster("a")), cluster("b"), nonce="n2", version="2"), "n2")
        await quiet()
        assert watcher.seen() == []
