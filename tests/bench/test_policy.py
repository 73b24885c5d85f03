"""The cost of a policy, and a small crowd with one."""

from __future__ import annotations

import pytest

from bench.policy import NO_POLICY, POLICIES, Crowd, Gauges, crowd_of, crowded, given_by, ratios, rules, serving, told
from bench.programs import OWN_GENERATOR
from bench.rounds import NotDelivered, Round
from xdsprism.core.policy.identity import parse_identity
from xdsprism.sources.policy_file import parse_policy


@pytest.mark.parametrize("names", POLICIES.values())
def test_the_last_of_all_rules_is_for_the_clients_of_the_load(names: str):
    made = parse_policy(rules(names, 1_000), "p.yaml")
    assert len(made.rules) == 1_000
    assert made.warnings() == []
    grant = made.grant(parse_identity("anonymous"), "n7")
    assert grant.rule.startswith("rule 1000,")
    assert grant.denies("x", "r000001") is None


def test_each_client_that_reads_has_each_change_and_nothing_is_left():
    with serving():
        outcome = crowded(Crowd(30, seconds=1, storms=1, storm=10, cycles=50, rest=0.1), OWN_GENERATOR)
    assert [phase.what for phase in outcome.phases] == [
        "20 clients that read and 10 that never do connect",
        f"{len(outcome.times)} changes, one every 0.5 s",
        "1 storms of 10 clients at once",
        "all of them leave",
        "50 clients come, get all resources and leave",
        "nobody is there",
    ]
    assert outcome.times
    assert (outcome.amid.streams, outcome.amid.subscriptions, outcome.amid.connections) == (30, 300, 30)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told(outcome).splitlines()]
    assert [line[1:4] for line in lines if line[:1] == ["after"]] == [["0", "0", "0"]]


def test_without_options_the_crowd_is_the_whole_one():
    assert crowd_of(given_by([])) == Crowd()
    assert crowd_of(given_by(["--streams", "30", "--cycles", "50"])) == Crowd(30, cycles=50)


def test_what_is_left_gives_no_figures():
    with pytest.raises(NotDelivered, match="everybody has left, and there are"):
        Gauges(0, 1, 0, 1.0).check_left()


def test_ratios_are_paired():
    plain = [Round(1.0, 1.0, 100, 100), Round(2.0, 1.0, 100, 100), Round(9.0, 1.0, 100, 100)]
    dearer = [Round(1.1, 1.0, 100, 100), Round(2.2, 1.0, 100, 100), Round(9.9, 1.0, 100, 100)]
    text = ratios({"a thing, µs/message": {NO_POLICY: plain, **dict.fromkeys(POLICIES, dearer)}})
    assert text.splitlines()[-1].split("|")[3].strip() == "1.100"
