"""How often a client may ask on one stream: which requests count, and when the next one is read (OPS-4)."""

from __future__ import annotations

import pytest

from tests.core.support import Bench
from xdsprism.core.model.facts import LimitReached
from xdsprism.core.model.limits import AT_ONCE, Limits
from xdsprism.core.model.pace import PAUSE, count_request, rate_of
from xdsprism.core.model.settings import Settings
from xdsprism.token_bucket import Rate, TokenBucket

FEW = Settings(limits=Limits(requests=1))


def test_so_many_requests_at_once_and_then_each_is_paid_for() -> None:
    # OPS-4
    bucket = TokenBucket(rate_of(2), 100.0)
    assert [count_request(bucket, 100.0) for _ in range(2 * AT_ONCE)] == [None] * 2 * AT_ONCE
    assert count_request(bucket, 100.0) == 100.5
    assert count_request(bucket, 100.0) == 101.0  # two are to be paid for
    assert count_request(bucket, 102.0) is None
    assert count_request(bucket, 110.0) is None


def test_a_pause_is_never_so_short_that_to_wake_costs_more_than_the_request() -> None:
    # OPS-4
    bucket = TokenBucket(rate_of(1_000), 0.0)
    while (after := count_request(bucket, 0.0)) is None:
        pass
    assert after == PAUSE
    allowed = 0
    while count_request(bucket, PAUSE) is None:
        allowed += 1
    assert allowed == pytest.approx(1_000 * PAUSE, abs=2)


def test_a_debt_is_paid_back_with_time() -> None:
    bucket = TokenBucket(Rate(1, 4.0), 0.0)
    assert bucket.owe(0.0) == 0.0
    assert bucket.owe(0.0) == 0.25
    assert bucket.owe(0.0) == 0.5
    assert not bucket.spend(0.5)
    assert bucket.wait(0.5) == 0.25
    assert bucket.spend(0.75)
    assert bucket.wait(9.0) == 0.0


@pytest.mark.parametrize("form", ["delta", "sotw"])
def test_subscriptions_count_and_the_stream_pauses(form: str) -> None:
    # OPS-4
    bench = Bench(settings=FEW)
    peer = bench.delta() if form == "delta" else bench.sotw()
    for number in range(AT_ONCE):
        peer.ask(f"cds {'+' if form == 'delta' else ''}name-{number}")
    assert peer.stream.read_after is None
    peer.ask(f"cds {'+' if form == 'delta' else ''}more")
    assert peer.stream.read_after == bench.now + 1.0
    assert peer.stream.context.budget.limited == {"requests": 1}
    (fact,) = [fact for fact in bench.facts if isinstance(fact, LimitReached)]
    assert (fact.limit, fact.stream) == ("requests", peer.stream.number)
    assert fact.reason == "more than 1 requests a second that answer no response"


@pytest.mark.parametrize("answer", ["ack", "nack"])
@pytest.mark.parametrize("form", ["delta", "sotw"])
@pytest.mark.parametrize("others", ["", "; rds r=1"], ids=["settled", "unsettled"])
def test_answers_to_responses_do_not_count_however_many_there_are(form: str, answer: str, others: str) -> None:
    # OPS-4: a busy fleet's ACKs are never held back
    bench = Bench(settings=FEW)
    bench.put(f"cds a=1{others}")
    peer = bench.delta() if form == "delta" else bench.sotw()
    plus = "+" if form == "delta" else ""
    peer.ask(f"cds {plus}a")
    peer.ask(f"rds {plus}r")
    peer.poll()
    for number in range(50):
        bench.put(f"cds a={number}; rds r={number}")
        assert peer.poll()
        peer.ask(f"cds {answer}")
        peer.ask(f"rds {answer}")
    assert peer.stream.context.budget.limited is None


@pytest.mark.parametrize("nonce", ["@0", "@?", "@1"])
def test_a_nonce_that_answers_nothing_counts(nonce: str) -> None:
    # OPS-4: or a client could go on for ever with the nonce of one response
    bench = Bench(settings=FEW)
    bench.put("cds a=1")
    peer = bench.sotw()
    peer.ask("cds a")
    peer.poll()
    peer.ask("cds ack")
    for _ in range(AT_ONCE):
        peer.ask(f"cds a {nonce}")
    assert peer.stream.context.budget.limited == {"requests": 1}


def test_an_ack_that_asks_for_more_counts() -> None:
    # OPS-4: or a client could ask as often as the server answers
    bench = Bench(settings=FEW)
    for form in ("delta", "sotw"):
        peer = bench.delta() if form == "delta" else bench.sotw()
        for number in range(AT_ONCE + 1):
            bench.put(f"cds name-{number}=1")
            peer.ask(f"cds {'+' if form == 'delta' else ''}name-{number} {'ack' if number else ''}")
            peer.poll()
        assert peer.stream.context.budget.limited == {"requests": 1}, form
