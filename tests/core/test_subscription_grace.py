"""How long a relay keeps upstream subscriptions that no client wants any more."""

from __future__ import annotations

import pytest

from xdsprism.core.model.types import NO_PARAMS, VIRTUAL_HOST
from xdsprism.core.relay.timers import SubscriptionGrace
from xdsprism.core.relay.upstream_subscription import UpstreamSubscription


def test_of_many_unwanted_hosts_the_first_stay_for_their_time_and_further_ones_go_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # VHD-25, PRX-27
    monkeypatch.setattr("xdsprism.core.relay.timers.MOST", 2)
    grace = SubscriptionGrace(60.0)
    hosts = [UpstreamSubscription((VIRTUAL_HOST, f"rc/{name}.test"), NO_PARAMS) for name in "abc"]
    assert [grace.lasts(each, 0.0, brief=True) for each in hosts] == [True, True, False]
    assert [grace.lasts(each, 1.0, brief=True) for each in hosts] == [True, True, False]
    assert grace.end(hosts[0])
    assert [grace.lasts(each, 1.0, brief=True) for each in hosts[1:]] == [True, True]
