"""What responses mean to `get` and `watch`, without a network."""

from __future__ import annotations

from envoy.service.discovery.v3 import discovery_pb2 as pb

from xdsprism import CLUSTER, ENDPOINT
from xdsprism.client.follow import END_OF_LIST, Follower
from xdsprism.client.raw import Missing, Query, Received, Update
from xdsprism.core.constraints import Eq


def _received(name: str, body: bytes = b"", **more: object) -> Received:
    return Received(CLUSTER, name, body, **more)  # type: ignore[arg-type]


def _update(*resources: Received, removed: tuple[str, ...] = (), errors: tuple[Missing, ...] = ()) -> Update:
    return Update("v", "n", resources, tuple(Missing(name) for name in removed), errors)


def _follower(*names: str, delta: bool = True, type_url: str = CLUSTER) -> Follower:
    return Follower(Query(type_url, names, None, delta))


def _kinds(follower: Follower, update: Update) -> list[tuple[str, str]]:
    return [(change.kind, change.name) for change in follower.take(update)]


def test_names_are_complete_when_each_is_there_or_said_to_be_missing():
    follower = _follower("a", "b", "c")
    follower.take(_update(_received("a")))
    assert (follower.complete, follower.unanswered) == (False, ["b", "c"])
    follower.take(_update(removed=("b",)))
    follower.take(_update(errors=(Missing("c", "forbidden"),)))
    assert follower.complete
    assert follower.missing == {"b": "", "c": "forbidden"}


# DLT-20
def test_an_alias_answers_for_its_resource():
    follower = _follower("other")
    follower.take(_update(_received("a", extras=pb.Resource(aliases=["other"]))))
    assert follower.complete


def test_a_delta_list_is_complete_when_the_server_answers_for_nobodys_name():
    follower = _follower()
    follower.take(_update(_received("a")))
    assert follower.subscribe_next() == (END_OF_LIST,)
    follower.take(_update(_received("b")))
    assert (follower.complete, follower.subscribe_next()) == (False, ())
    assert _kinds(follower, _update(removed=(END_OF_LIST,))) == []
    assert follower.complete
    assert list(follower.held) == ["a", "b"]


def test_a_sotw_list_is_complete_at_once():
    follower = _follower(delta=False)
    assert not follower.began
    follower.take(_update())
    assert (follower.complete, follower.began, follower.subscribe_next()) == (True, True, ())


def test_changes_are_told_once_and_by_kind():
    follower = _follower()
    assert _kinds(follower, _update(_received("a", b"1"), _received("b"))) == [("added", "a"), ("added", "b")]
    assert _kinds(follower, _update(_received("a", b"1"))) == []  # sent again, and the same
    assert _kinds(follower, _update(_received("a", b"2"))) == [("changed", "a")]
    assert _kinds(follower, _update(removed=("a", "never"))) == [("removed", "a")]


# DYN-24
def test_the_old_variant_that_leaves_with_the_new_one_is_no_removal():
    follower = _follower("a")
    follower.take(_update(_received("a", b"1", constraint=Eq("env", "prod"))))
    replaced = _update(_received("a", b"1", constraint=Eq("env", "test")), removed=("a",))
    assert _kinds(follower, replaced) == [("changed", "a")]


# SOT-6
def test_what_a_full_sotw_response_leaves_out_is_gone_or_missing():
    follower = _follower("a", "nope", delta=False)
    assert _kinds(follower, _update(_received("a"))) == [("added", "a"), ("missing", "nope")]
    assert _kinds(follower, _update()) == [("removed", "a")]
    assert _kinds(follower, _update(_received("nope"))) == [("added", "nope")]


# SOT-7
def test_what_a_partial_sotw_response_leaves_out_stays():
    follower = _follower("a", "b", delta=False, type_url=ENDPOINT)
    follower.take(_update(_received("a"), _received("b")))
    assert _kinds(follower, _update(_received("a", b"2"))) == [("changed", "a")]
    assert list(follower.held) == ["a", "b"]
