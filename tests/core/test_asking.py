"""The requests of a client, against a server that follows each request literally."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdsprism.core.model.dialect import RequestForm
from xdsprism.core.model.events import DeltaRequest, Key, Rejection, SotwRequest
from xdsprism.core.model.steps import Steps, finish
from xdsprism.core.model.types import CLUSTER, ENDPOINT, Params, TypeSpec
from xdsprism.core.watch.request_keys import RequestKeys
from xdsprism.core.watch.requests import PORTION, AckOrNack, DeltaRequestBuilder, RequestBuilder, SotwRequestBuilder

ALL: Key = Key("*")
KEYS: tuple[Key, ...] = (ALL, Key("a"), Key("b"), Key("b", Params({"env": "prod"})))
SPECS = (TypeSpec(CLUSTER, wildcard=True), TypeSpec(ENDPOINT))
BAD = Rejection(3, "bad")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["want", "unwant"]), st.sampled_from(KEYS)),
        st.tuples(st.sampled_from(["ack", "nack", "poll"]), st.none()),
    ),
    max_size=30,
)


class Model:
    """What the server believes to be wanted. WLD-1, WLD-5: an empty list is everything until there was a name."""

    def __init__(self, spec: TypeSpec) -> None:
        self._spec = spec
        self._first = True
        self._named = False
        self.wanted: set[Key] = set()

    def hear(self, request: SotwRequest | DeltaRequest) -> set[Key]:
        """The keys that this request makes the server send something for."""
        new = self._sotw(request) if isinstance(request, SotwRequest) else self._delta(request)
        self._first = False
        return new

    def _sotw(self, request: SotwRequest) -> set[Key]:
        self._named = self._named or bool(request.wanted)
        legacy = self._spec.wildcard and not self._named
        before, self.wanted = self.wanted, {ALL} if legacy else {*request.wanted}
        return self.wanted - before

    def _delta(self, request: DeltaRequest) -> set[Key]:
        legacy = self._first and self._spec.wildcard and not request.subscribe
        new = {ALL} if legacy else {*request.subscribe}
        self.wanted = (self.wanted | new) - ({*request.unsubscribe} - new)
        return new


def nothing_held() -> Steps[dict[str, str]]:
    yield from ()
    return {}


def one_held(name: str) -> Steps[dict[str, str]]:
    """In two steps."""
    yield
    return {name: "1"}


def make(spec: TypeSpec, *, delta: bool) -> RequestBuilder:
    return DeltaRequestBuilder(spec, {}, nothing_held) if delta else SotwRequestBuilder(spec, {}, "")


@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
@given(spec=st.sampled_from(SPECS), steps=STEPS)
def test_the_server_always_learns_what_is_wanted_and_sends_what_is_wanted_anew(delta, spec, steps):  # CLI-2, CLI-3
    asking, server = make(spec, delta=delta), Model(spec)
    wanted: set[Key] = set()
    awaited: set[Key] = set()  # wanted since, and the server has to send it, though it may have done so before
    owed: list[AckOrNack] = []
    begun = False
    for number, (step, key) in enumerate([*steps, Key("poll")]):
        if step == "want" and key not in wanted:
            asking.want(key)
            wanted.add(key)
            awaited.add(key)
        elif step == "unwant" and key in wanted:
            asking.unwant(key)
            wanted.discard(key)
            awaited.discard(key)
        elif step in ("ack", "nack") and begun:
            owed.append(AckOrNack(f"n{number}", f"v{number}", BAD if step == "nack" else None))
            asking.answer(owed[-1])
        elif step == "poll":
            asked = asking.poll()
            answered = [each.body.nonce for each in asked if each.body.nonce in {answer.nonce for answer in owed}]
            assert list(dict.fromkeys(answered)) == [answer.nonce for answer in owed]  # NAK-23: one for each
            assert [each.body.error for each in asked if each.body.error] == [each.error for each in owed if each.error]
            owed.clear()
            for each in asked:
                new = server.hear(each.body)
                assert {*each.fresh} <= new
                awaited -= new
                begun = True
            assert awaited == set()
            assert not begun or server.wanted == wanted


@given(spec=st.sampled_from(SPECS), steps=STEPS)
def test_a_server_that_ignores_stale_nonces_sends_what_is_wanted_anew(spec, steps):  # CLI-4, SRV-14
    asking, server = make(spec, delta=False), Model(spec)
    asking.want(KEYS[1])
    server.hear(asking.poll()[0].body)
    wanted, awaited = {KEYS[1]}, set()
    nonce = ""  # the newest that the server has sent
    for number, (step, key) in enumerate([*steps, Key("poll")]):
        if step == "want" and key not in wanted:
            asking.want(key)
            wanted.add(key)
            awaited.add(key)
        elif step == "unwant" and key in wanted:
            asking.unwant(key)
            wanted.discard(key)
            awaited.discard(key)
        elif step in ("ack", "nack"):
            nonce = f"n{number}"
            asking.answer(AckOrNack(nonce, f"v{number}", None if step == "ack" else BAD))
        elif step == "poll":
            for each in asking.poll():
                awaited -= server.hear(each.body) if each.body.nonce == nonce else set()
            assert (awaited, server.wanted) == (set(), wanted)


@given(spec=st.sampled_from(SPECS), steps=STEPS)
def test_every_sotw_request_has_the_newest_nonce_and_the_last_good_version(spec, steps):  # CLI-3, CLI-4
    asking = make(spec, delta=False)
    asking.want(KEYS[1])
    assert [(each.body.nonce, each.body.version) for each in asking.poll()] == [("", "")]
    nonce = version = ""
    for number, (step, key) in enumerate(steps):
        if step in ("ack", "nack"):
            nonce, version = f"n{number}", f"v{number}" if step == "ack" else version
            asking.answer(AckOrNack(nonce, f"v{number}", None if step == "ack" else BAD))
        elif step != "poll":
            getattr(asking, step)(key)
        assert all((each.body.nonce, each.body.version) == (nonce, version) for each in asking.poll())


@given(spec=st.sampled_from(SPECS), steps=STEPS)
def test_a_delta_request_is_an_answer_or_a_change_and_only_the_first_says_what_is_held(spec, steps):  # CLI-3, CLI-6
    asking = DeltaRequestBuilder(spec, {Key("a"): None}, lambda: one_held("a"))
    first, *_ = asking.poll()
    assert (first.body.subscribe, first.body.initial_versions) == ((Key("a"),), {"a": "1"})
    for step, key in steps:
        if step in ("ack", "nack"):
            asking.answer(AckOrNack("n", "v", None if step == "ack" else BAD))
        elif step == "poll":
            for each in asking.poll():
                assert bool(each.body.nonce) != bool(each.body.subscribe or each.body.unsubscribe)
                assert each.body.initial_versions == {}
        else:
            getattr(asking, step)(key)


def test_very_many_names_are_asked_for_in_several_requests() -> None:
    # CLI-6, CLI-11: none of them is long, and the timer of a name starts with the request that has it
    keys: list[Key] = [Key(f"c{number}") for number in range(2 * PORTION + 1)]
    asking = DeltaRequestBuilder(SPECS[1], dict.fromkeys(keys), nothing_held)
    asked = []
    while not asked or asking.is_behind:
        asked += asking.poll()
    assert [len(each.fresh) for each in asked] == [PORTION, PORTION, 1]
    assert [key for each in asked if isinstance(each.body, DeltaRequest) for key in each.body.subscribe] == keys
    for key in keys:
        asking.unwant(key)
    asking.want(Key("new"))
    (first,) = asking.poll()
    assert isinstance(first.body, DeltaRequest)
    assert (first.body.subscribe, len(first.body.unsubscribe)) == ((Key("new"),), PORTION)
    assert asking.is_behind


def test_the_first_request_has_all_names_and_the_versions_that_are_held() -> None:
    # CLI-6, DLT-16: versions count on the first request only, and for what that asks for
    keys: list[Key] = [Key(f"c{number}") for number in range(PORTION + 1)]
    (first,) = DeltaRequestBuilder(SPECS[1], dict.fromkeys(keys), lambda: one_held("c0")).poll()
    assert isinstance(first.body, DeltaRequest)
    assert (len(first.body.subscribe), first.body.initial_versions) == (PORTION + 1, {"c0": "1"})


def test_changes_while_the_first_request_is_made_go_into_the_next() -> None:
    # CLI-6: the first request says what was wanted when it was begun, with the versions of that
    keys: list[Key] = [Key(name) for name in "abc"]
    asking = DeltaRequestBuilder(SPECS[1], dict.fromkeys(keys), lambda: one_held("a"))
    making = asking.polling()
    next(making)
    asking.unwant(Key("b"))
    asking.want(Key("d"))
    (first,) = finish(making)
    assert isinstance(first.body, DeltaRequest)
    assert (first.body.subscribe, first.body.initial_versions) == (tuple(keys), {"a": "1"})
    assert asking.is_behind
    (second,) = asking.poll()
    assert isinstance(second.body, DeltaRequest)
    assert (second.body.subscribe, second.body.unsubscribe) == ((Key("d"),), (Key("b"),))


def nothing_in_two_steps() -> Steps[dict[str, str]]:
    yield
    return {}


def test_few_names_are_in_the_first_request_and_what_changes_meanwhile_is_in_the_next() -> None:
    # CLI-6
    keys: list[Key] = [Key(name) for name in "abc"]
    asking = DeltaRequestBuilder(SPECS[1], dict.fromkeys(keys), nothing_in_two_steps)
    making = asking.polling()
    next(making)
    asking.unwant(Key("b"))
    asking.want(Key("d"))
    (first,), (second,) = finish(making), asking.poll()
    assert first.body == DeltaRequest(tuple(keys))
    assert second.body == DeltaRequest((Key("d"),), (Key("b"),))


def test_a_name_that_is_dropped_before_the_first_request_is_never_asked() -> None:
    # CLI-6
    keys: list[Key] = [Key(f"c{number}") for number in range(PORTION + 2)]
    asking = DeltaRequestBuilder(SPECS[1], dict.fromkeys(keys), nothing_in_two_steps)
    making = asking.polling()
    next(making)
    asking.unwant(keys[0])
    asking.want(Key("new"))
    asked = finish(making)
    while asking.is_behind:
        asked += asking.poll()
    bodies = [each.body for each in asked if isinstance(each.body, DeltaRequest)]
    assert [key for body in bodies for key in body.subscribe] == [*keys[1:], Key("new")]
    assert not any(body.unsubscribe for body in bodies)


def test_many_plain_names_are_one_subscription_each_and_no_locators() -> None:
    # CLI-6
    keys = RequestKeys(RequestForm.LOCATORS)
    keys.want_all(dict.fromkeys([Key("a"), Key("b")]))
    assert not keys.has_locators
    assert keys.unwant(Key("a")) == [Key("a")]
    keys = RequestKeys(RequestForm.LOCATORS)
    keys.want_all(dict.fromkeys([Key("a"), Key("a", Params({"env": "prod"}))]))
    assert keys.has_locators
    assert keys.unwant(Key("a")) == [Key("a")]
