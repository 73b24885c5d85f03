"""What is counted of a policy's cost: the same messages with a policy and without."""

from __future__ import annotations

import pytest

from bench.policy import POLICIES
from bench.policy_work import NAMES, STREAMS, WARM, work


@pytest.mark.parametrize("policy", ["", *POLICIES])
@pytest.mark.parametrize("asked", NAMES)
def test_each_stream_is_sent_each_change_whatever_the_policy(asked: str, policy: str) -> None:
    assert work(asked, policy, 3) == STREAMS * (WARM + 3)
