"""The findings that a relay makes from the answers to its subscriptions for one name."""

from __future__ import annotations

from xdsprism.core.model.cached import NOTHING
from xdsprism.core.model.constraints import TRUE
from xdsprism.core.model.events import Key
from xdsprism.core.model.types import CLUSTER, Params
from xdsprism.core.relay.findings import listen
from xdsprism.core.relay.upstream_subscription import UpstreamAnswer, UpstreamSubscription
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Entry, Event
from xdsprism.core.watch.subscriber import Subscriber
from xdsprism.core.watch.upstream import Upstream
from xdsprism.errors import WatchError

P, Q = Params({"a": "1"}), Params({"a": "2"})


def failed(params: Params, event: Event, status: str) -> Entry:
    """A subscription whose resource is gone, from a server that names the constraints of an absence."""
    entry = Entry(CLUSTER, Key("foo", params), Authority("", ()), [])
    entry.sent_by = Upstream("server", Subscriber().cache, delta=True)
    entry.sent_by.pins_absence = True
    entry.fail(WatchError(status, "told"), event, 1.0, drop=True)
    return entry


def answer(params: Params, event: Event, status: str, *, wild: bool = False) -> UpstreamAnswer:
    """What a subscription says by that."""
    subscription = UpstreamSubscription((CLUSTER, "foo"), params)
    subscription.entry = failed(params, event, status)
    return UpstreamAnswer(subscription, subscription.entry, wild=wild, wanted=True)


def test_an_absence_told_to_a_wildcard_is_not_requested_again_by_name() -> None:
    # PRX-31: the wildcard and the failed subscription by name have the same params
    absent, error = (Event.REMOVED, "NOT_FOUND"), (Event.ERROR, "INTERNAL")
    answers = [
        answer(P, *error),
        answer(P, *absent, wild=True),
        answer(Q, *absent),
    ]
    said = listen(answers, NOTHING, lambda _: None)
    assert [each.params for each in said.doubtful] == [Q]
    (kept,) = said.findings.values()
    assert (kept.variant, kept.only) == (None, P)
    assert kept.constraint != TRUE
