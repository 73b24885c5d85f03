"""The relay in front of an independent server model, driven at random: clients see the same as without it.

XDSPRISM_STRANGER_RUNS=2000 pytest tests/strangers     more runs than the usual ones
XDSPRISM_STRANGER_SEED=1234 pytest tests/strangers     one run, as its failure names it
"""

from __future__ import annotations

import os

import pytest

from tests.strangers.runs import cut_down, make, story

RUNS = int(os.environ.get("XDSPRISM_STRANGER_RUNS", "200"))
SEED = os.environ.get("XDSPRISM_STRANGER_SEED")
BLOCKS = 8


@pytest.mark.parametrize("block", range(BLOCKS if SEED is None else 1))
def test_clients_behind_the_relay_have_what_any_server_gives_them(block: int) -> None:
    # PRX-1, PRX-4, PRX-5, PRX-6, PRX-7, PRX-10, PRX-12, PRX-15, PRX-31, PRX-34, PRX-38
    seeds = [int(SEED)] if SEED is not None else [*range(block, RUNS, BLOCKS)]
    for seed in seeds:
        run = make(seed)
        if run.failure() is not None:
            pytest.fail(story(cut_down(run)), pytrace=False)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1197, id="the-last-parameter-set-that-held-a-variant-is-unsubscribed"),  # PRX-31
        pytest.param(1554, id="a-variant-that-is-replaced-comes-with-one-that-overlaps-it"),  # DYN-45
        pytest.param(2139, id="the-newest-of-overlapping-variants-comes-last"),  # DYN-45
        pytest.param(1787, id="an-older-variant-comes-for-one-parameter-set-and-matches-another"),  # DYN-45, PRX-38
        pytest.param(3898, id="a-wildcard-has-lost-what-a-name-that-is-unsubscribed-held"),  # PRX-31
    ],
)
def test_a_client_that_asks_with_several_parameter_sets_ends_with_what_each_should_have(seed: int) -> None:
    """As a relay behind the relay does (PRX-24)."""
    failure = make(seed).failure()
    assert failure is None, failure


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1064, id="who-comes-back-shared-what-is-gone"),  # PRX-34
        pytest.param(3178, id="a-full-state-lacks-what-timed-out"),  # PRX-34
        pytest.param(2733, id="a-wildcard-is-asked-for-while-a-new-stream-begins"),  # CLI-5
        pytest.param(3813, id="an-absence-for-more-than-who-asked-outlives-a-stream"),  # PRX-31
        pytest.param(4681, id="a-wildcard-takes-over-what-is-in-doubt"),  # PRX-5
    ],
)
def test_a_server_that_reports_few_removals_leaves_no_client_with_a_removed_resource(seed: int) -> None:
    failure = make(seed).failure()
    assert failure is None, failure
