"""A request that brings a stream to its limits is looked at in steps too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xdsprism.core.model.events import DeltaRequest, Key, Node, Request, SotwRequest
from xdsprism.core.model.facts import Facts
from xdsprism.core.model.limits import Counted, Refusal, StreamBudget
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.steps import EVERY
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import ENDPOINT
from xdsprism.core.serve.stream import Stream
from xdsprism.core.session.interest import Interest

COUNT = 20 * EVERY


@pytest.mark.parametrize("delta", [True, False], ids=["delta", "sotw"])
def test_the_limit_on_subscriptions_is_checked_for_few_names_in_each_step(
    delta: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # OPS-10, DYN-46
    refused = 0
    refusal = StreamBudget.refusal

    def counted(budget: StreamBudget, kind: Counted) -> Refusal:
        nonlocal refused
        refused += 1
        return refusal(budget, kind)

    monkeypatch.setattr(StreamBudget, "refusal", counted)
    settings = Settings()
    settings = replace(settings, limits=replace(settings.limits, subscriptions=1))
    stream = Stream(1, Store(), Interest(), settings, Facts(), delta=delta)
    keys: tuple[Key, ...] = tuple(Key(f"n{number}") for number in range(COUNT))
    body = DeltaRequest(keys) if delta else SotwRequest(keys)
    most = 0
    for _ in stream.receiving(Request(ENDPOINT, body, Node("n")), 0.0):
        most, refused = max(most, refused), 0
    assert 0 < most <= EVERY
    assert stream.count == 1
