"""Node metadata that does not fit into a locator concerns the client that has it, and nobody else."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.client.rig import both, endpoint, follow, quiet, timeless
from tests.relay.rig import Origin, marks, pair, station
from xdsprism.core.model.limits import Limits, Refusal
from xdsprism.core.model.types import Params
from xdsprism.core.watch.query_params import question_params
from xdsprism.testing import ScriptedPeer

PROD, TEST = {"env": "prod"}, {"env": "test"}
MANY = {f"key{number}": "x" for number in range(70)}
LARGE = {f"key{number}": "x" * 4096 for number in range(20)}  # 80 KiB in all


def varied(origin: Origin) -> None:
    origin.vary(prod=endpoint("a", "prod"), test=endpoint("a", "test"))


@pytest.mark.parametrize("metadata", [MANY, {"blob": "x" * 1025}], ids=["71 strings", "a value of 1,025 bytes"])
@both
@timeless
async def test_a_client_with_much_metadata_is_served_and_so_are_the_others(
    delta: bool, metadata: dict[str, str]
) -> None:
    # PRX-35, DYN-46
    async with pair(delta=delta) as (origin, relay):
        varied(origin)
        async with relay.client(metadata={**PROD, **metadata}) as rich, relay.client(metadata=TEST) as poor:
            first = follow(rich, xp.ENDPOINT, "a")
            assert await marks(first) == [("a", "prod")]
            second = follow(poor, xp.ENDPOINT, "a")
            assert await marks(second) == [("a", "test")]
            await quiet(60)
            origin.vary(prod=endpoint("a", "prod2"), test=endpoint("a", "test2"))
            assert await marks(first) == [("a", "prod2")]
            assert await marks(second) == [("a", "test2")]
            assert len(origin.wire.ends) == 1


@pytest.mark.parametrize(
    "metadata",
    [{"blob": "x" * 9000}, {"k" * 300: "x"}, {"blob": "x" * 100_000, "clob": "ü" * 5000}],
    ids=["long value", "long key", "several"],
)
@timeless
async def test_a_key_or_value_that_no_locator_can_have_is_left_out_of_the_question(metadata: dict[str, str]) -> None:
    # PRX-35
    async with pair() as (origin, relay):
        varied(origin)
        async with relay.client(metadata={**PROD, **metadata}) as client:
            assert await marks(follow(client, xp.ENDPOINT, "a")) == [("a", "prod")]
            assert [dict(params or {}) for _, params in origin.asked(xp.ENDPOINT)] == [PROD]
            assert len(origin.wire.ends) == 1


@timeless
async def test_metadata_that_is_too_much_in_all_is_not_asked_and_only_that_client_is_told_so() -> None:
    # PRX-35: those who read errors hear why, the others that there is nothing
    async with pair(settings=xp.Settings(resource_errors="all")) as (origin, relay):
        varied(origin)
        async with relay.client(metadata={**PROD, **LARGE}) as large, relay.client(metadata=PROD) as small:
            watched = follow(large, xp.ENDPOINT, "a")
            await quiet()
            (update,) = watched.seen()
            assert update.error is not None
            assert update.error.status == "INVALID_ARGUMENT"
            assert "the node's metadata can't be sent upstream" in update.error.message
            assert "--node-params" in update.error.message
            assert origin.asked(xp.ENDPOINT) == []
            assert await marks(follow(small, xp.ENDPOINT, "a")) == [("a", "prod")]
    async with pair() as (origin, relay):
        varied(origin)
        raw = (await relay.raw()).of(**PROD, **LARGE)
        await raw.want(xp.ENDPOINT, "a")
        (response,) = await raw.rest()
        assert [*response.removed_resources] == ["a"]
        raw.close()


@timeless
async def test_where_variants_are_known_the_keys_that_they_mention_are_asked() -> None:
    # PRX-35, DYN-46
    async with pair() as (origin, relay):
        varied(origin)
        async with relay.client(metadata=TEST) as first, relay.client(metadata={**PROD, **LARGE}) as large:
            assert await marks(follow(first, xp.ENDPOINT, "a")) == [("a", "test")]
            assert await marks(follow(large, xp.ENDPOINT, "a")) == [("a", "prod")]
            asked = sorted(str(dict(params or {})) for _, params in origin.asked(xp.ENDPOINT))
            assert asked == sorted(map(str, (PROD, TEST)))


@timeless
async def test_a_wildcard_with_too_much_metadata_is_empty_and_others_get_theirs() -> None:
    # PRX-35
    async with pair() as (origin, relay):
        varied(origin)
        raw = (await relay.raw()).of(**PROD, **LARGE)
        await raw.want(xp.CLUSTER)
        (response,) = await raw.rest()
        assert not response.resources
        async with relay.client(metadata=PROD) as client:
            assert await marks(follow(client, xp.ENDPOINT, "a")) == [("a", "prod")]
        raw.close()


def test_metadata_within_the_limits_is_sent_unchanged() -> None:
    # PRX-35
    limits = Limits()
    whole = Params({**PROD, **MANY})
    assert question_params(whole, ("env",), limits) is whole
    assert question_params(Params({**PROD, **LARGE}), ("env",), limits) == Params(PROD)
    assert isinstance(question_params(Params(LARGE), (), limits), Refusal)
    assert isinstance(question_params(Params({str(number): "" for number in range(1025)}), (), limits), Refusal)


@both
@timeless
async def test_a_server_refusal_for_one_client_does_not_affect_others(delta: bool) -> None:
    # PRX-35, DYN-46: a server with narrower limits than the relay, which answers without constraints
    origin = Origin(limits=Limits(params=10))
    varied(origin)
    async with (
        station(origin.wire.connect, delta=delta) as relay,
        relay.client(metadata={**PROD, **MANY}) as rich,
        relay.client(metadata=PROD) as poor,
    ):
        first = follow(rich, xp.ENDPOINT, "a")
        await quiet()
        second = follow(poor, xp.ENDPOINT, "a")
        assert await marks(second) == [("a", "prod")]
        await quiet(30)
        assert [name for name, mark in await marks(first) if mark not in ("prod", "NOT_FOUND")] == []
        assert len(origin.wire.ends) == 1
        late = follow(poor, xp.ENDPOINT, "a", params=TEST)
        assert await marks(late) == [("a", "test")]


@pytest.mark.parametrize("form", ["names", "auto"])
@timeless
async def test_a_server_that_is_asked_by_names_is_sent_no_metadata_so_none_is_too_much(form: str) -> None:
    # PRX-35, PRX-32
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form=form) as relay, relay.client(metadata={**PROD, **LARGE}) as large:
        async with relay.client() as small:
            watched = follow(small, xp.ENDPOINT, "a")
            stream = await peer.accept()
            await quiet()
            stream.respond(xp.ENDPOINT, endpoint("a", "1"))
            await quiet(10)
            assert await marks(watched) == [("a", "1")]
        late = follow(large, xp.ENDPOINT, "b")
        await quiet()
        stream.respond(xp.ENDPOINT, endpoint("b", "1"), nonce="n2")
        assert await marks(late) == [("b", "1")]
