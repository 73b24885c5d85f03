"""The reverse index: which sessions a change wakes, and which it does not touch."""

from __future__ import annotations

from tests.core.support import Bench, changeset
from xdsprism.core.model.steps import Steps
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import CLUSTER, ROUTE, VIRTUAL_HOST, Change
from xdsprism.core.session.interest import Interest


class Listener:
    """A session that only remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def notify(self, name: str) -> None:
        self.told.append(name)

    def rerouted(self, config: str) -> Steps[None]:
        self.told.append(f"routes {config}")
        yield


def changes(*texts: str) -> tuple[Change, ...]:
    """Of the last of these transactions."""
    store = Store()
    for text in texts:
        applied = store.apply(changeset(text))
    return applied.changes


def test_only_sessions_that_subscribed_to_a_changed_name_are_notified():
    # DLT-7
    interest = Interest()
    one, both, other = Listener(), Listener(), Listener()
    interest.add(one, CLUSTER, "a")
    interest.add(both, CLUSTER, "a")
    interest.add(both, CLUSTER, "b")
    interest.add(other, CLUSTER, "c")
    interest.add(other, ROUTE, "a")
    woken = interest.notify(changes("cds a=1 b=1"))
    assert list(woken) == [one, both]
    assert (one.told, both.told, other.told) == (["a"], ["a", "b"], [])


def test_wildcards_are_woken_once_for_their_type_without_being_told_each_name():
    interest = Interest()
    clusters, routes = Listener(), Listener()
    interest.add_wild(clusters, CLUSTER)
    interest.add_wild(routes, ROUTE)
    woken = interest.notify(changes("cds a=1 b=1"))
    assert list(woken) == [clusters]
    assert (clusters.told, routes.told) == ([], [])


def test_a_session_with_a_wildcard_and_a_name_is_notified_once_with_the_name():
    # WLD-7
    interest = Interest()
    session = Listener()
    interest.add_wild(session, CLUSTER)
    interest.add(session, CLUSTER, "a")
    assert list(interest.notify(changes("cds a=1 b=1"))) == [session]
    assert session.told == ["a"]


def test_a_change_reaches_who_asked_by_an_alias_old_or_new():
    # DLT-20
    interest = Interest()
    by_name, by_old, by_new, twice = Listener(), Listener(), Listener(), Listener()
    interest.add(by_name, CLUSTER, "a")
    interest.add(by_old, CLUSTER, "x")
    interest.add(by_new, CLUSTER, "y")
    interest.add(twice, CLUSTER, "a")
    interest.add(twice, CLUSTER, "y")
    interest.notify(changes("cds a(x)=1", "cds a(y)=1"))
    told = [session.told for session in (by_name, by_old, by_new, twice)]
    assert told == [["a"], ["x"], ["y"], ["a", "y"]]  # each by what it asked for


def test_a_changed_route_configuration_is_told_to_those_who_asked_for_its_hosts():
    # VHD-16
    interest = Interest()
    inside, outside = Listener(), Listener()
    interest.add(inside, VIRTUAL_HOST, "main/a.test")
    interest.add(outside, VIRTUAL_HOST, "other/a.test")
    assert list(interest.notify(changes("rds main=1", "rds main=2"))) == [inside]
    assert (inside.told, outside.told) == (["routes main"], [])


def test_a_session_that_unsubscribed_is_not_notified():
    interest = Interest()
    stays, leaves = Listener(), Listener()
    for session in (stays, leaves):
        interest.add(session, CLUSTER, "a")
        interest.add_wild(session, CLUSTER)
    interest.remove(leaves, CLUSTER, "a")
    interest.remove_wild(leaves, CLUSTER)
    assert list(interest.notify(changes("cds a=1"))) == [stays]
    assert leaves.told == []


def test_removing_what_was_never_added_is_ignored():
    # DLT-8
    interest = Interest()
    session, stranger = Listener(), Listener()
    interest.add(session, CLUSTER, "a")
    interest.add_wild(session, CLUSTER)
    interest.remove(stranger, CLUSTER, "a")
    interest.remove(session, CLUSTER, "b")
    interest.remove(session, ROUTE, "a")
    interest.remove_wild(stranger, CLUSTER)
    interest.remove_wild(session, ROUTE)
    assert interest.subscribers(CLUSTER, "a") == 2
    assert list(interest.notify(changes("cds a=1"))) == [session]


def test_subscribers_are_those_of_the_name_and_of_the_wildcard():
    interest = Interest()
    interest.add(Listener(), CLUSTER, "a")
    interest.add(Listener(), CLUSTER, "a")
    interest.add(Listener(), CLUSTER, "b")
    interest.add_wild(Listener(), CLUSTER)
    names = [(CLUSTER, "a"), (CLUSTER, "b"), (CLUSTER, "c"), (ROUTE, "a")]
    assert [interest.subscribers(*name) for name in names] == [3, 2, 1, 0]


def test_streams_that_close_leave_nothing_behind():
    # DESIGN 8: memory follows who is connected
    bench = Bench()
    bench.put("cds a(x)=1; rds main=1")
    peers = [bench.delta(), bench.sotw(), bench.delta()]
    for peer, sign in zip(peers, ("+", "", "+"), strict=True):
        peer.ask(f"cds {sign}a {sign}x {sign}* {sign}b{{env=prod}}")
        peer.ask(f"rds {sign}main{{env=prod}} {sign}*{{env=prod}}")
        peer.poll()
    bench.put("cds a(x)=2")
    for peer in peers:
        peer.close()
    assert bench.left_behind() == {}
    assert [table.sessions for table in bench.store.tables()] == [0, 0]
    bench.put("cds a=3 b=1; rds main=2")
    assert [peer.hears() for peer in peers] == [[], [], []]


def test_a_name_that_is_wanted_in_two_forms_is_wanted_until_both_are_gone():
    # DYN-19
    bench = Bench()
    bench.put("cds a=1")
    peer = bench.delta()
    peer.ask("cds +a +a{env=prod}")
    peer.poll()
    assert bench.interest.subscribers(CLUSTER, "a") == 1
    peer.ask("cds -a")
    assert bench.interest.subscribers(CLUSTER, "a") == 1
    peer.ask("cds -a{env=prod}")
    assert bench.interest.subscribers(CLUSTER, "a") == 0


def test_the_cost_of_a_change_is_that_of_the_affected():
    # DESIGN 9
    bench = Bench()
    bench.put("eds " + " ".join(f"n{number}=1" for number in range(50)))
    peers = [bench.delta() for _ in range(50)]
    for number, peer in enumerate(peers):
        peer.ask(f"eds +n{number}")
        peer.poll()
    applied = bench.put("eds n7=2")
    assert list(bench.interest.notify(applied.changes)) == [peers[7].session("eds")]
    assert [peer.session("eds").is_pending for peer in peers] == [number == 7 for number in range(50)]
