"""A change that concerns very many requested hosts is notified in steps, to the same clients as at once."""

from __future__ import annotations

from collections import deque

from xdsprism.core.model.asked_hosts import RUN, AskedHosts
from xdsprism.core.model.events import DeltaRequest, Key, Node, Request, Send
from xdsprism.core.model.facts import Facts
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.steps import EVERY, Steps, finish
from xdsprism.core.model.store import Applied, Store
from xdsprism.core.model.types import ROUTE, VIRTUAL_HOST, Routing, make_variant
from xdsprism.core.serve.stream import Stream
from xdsprism.core.session.interest import Interest

from .support import changeset

COUNT = 2 * RUN + 100
HOSTS = [f"rc/h{number}.x.test" for number in range(COUNT)]


class Listener:
    """A session that counts what it is told."""

    stream = 1

    def __init__(self) -> None:
        self.told: list[str] = []

    def notify(self, name: str) -> None:
        self.told.append(name)

    def rerouted(self, config: str) -> Steps[None]:
        self.told.append(f"routes {config}")
        yield


def told_in_steps(interest: Interest, listener: Listener, applied: Applied) -> tuple[list[str], int]:
    """What the listener is told, and the most of it in one step."""
    most, seen = 0, 0
    for _ in interest.notifying(deque(applied.changes)):
        most, seen = max(most, len(listener.told) - seen), len(listener.told)
    return listener.told, max(most, len(listener.told) - seen)


def asking(names: list[str]) -> tuple[Interest, Listener]:
    interest, listener = Interest(), Listener()
    for name in names:
        interest.add(listener, VIRTUAL_HOST, name)  # type: ignore[arg-type] # as much of a session as is needed
    return interest, listener


def test_a_wildcard_domain_that_moves_is_told_of_few_hosts_in_a_step() -> None:
    # OPS-10, VHD-12
    interest, listener = asking([*HOSTS, "rc/other.test", "elsewhere/h1.x.test"])
    applied = Store().apply(changeset("vhds rc/v<*.x.test>=1"))
    assert interest.weight(applied.changes) == COUNT + 1
    told, most = told_in_steps(interest, listener, applied)
    assert sorted(told) == sorted(HOSTS)
    assert most <= EVERY


def test_a_virtual_host_that_serves_the_same_hosts_has_no_weight() -> None:
    # VHD-12
    interest, _ = asking(HOSTS)
    store = Store()
    store.apply(changeset("vhds rc/v<*.x.test>=1"))
    assert interest.weight(store.apply(changeset("vhds rc/v<*.x.test>=2")).changes) == 0
    assert interest.weight(store.apply(changeset("cds rc=1")).changes) == 0


def test_a_route_configuration_that_reads_hosts_otherwise_is_told_of_few_in_a_step() -> None:
    # OPS-10, VHD-6
    interest, listener = asking(HOSTS)
    routing = Routing(True, True)
    applied = Store().apply({(ROUTE, "rc"): (make_variant(ROUTE, "rc", b"1", routing=routing),)})
    assert interest.weight(applied.changes) == COUNT
    told, most = told_in_steps(interest, listener, applied)
    assert sorted(told) == sorted([*HOSTS, "routes rc"])
    assert most <= EVERY + 1


def test_hosts_are_found_by_either_end_whenever_they_were_asked_for() -> None:
    # VHD-6
    asked = AskedHosts()
    store = Store()
    suffix = store.apply(changeset("vhds rc/v<*.x.test>=1")).changes[0]
    prefix = store.apply(changeset("vhds rc/w<h1*>=1")).changes[0]
    there: set[str] = set()
    for start in range(0, COUNT, RUN // 2):
        for name in HOSTS[start : start + RUN // 2]:
            asked.add(name)
            there.add(name)
        for name in HOSTS[start : start + 50]:
            asked.remove(name)
            there.remove(name)
        assert {*asked.concerned(suffix)} == there
        assert {*asked.concerned(prefix)} == {name for name in there if name.startswith("rc/h1") and name != "rc/h1"}


def test_hosts_that_come_and_go_in_order_do_not_pile_up() -> None:
    # VHD-25
    asked = AskedHosts()
    change = Store().apply(changeset("vhds rc/v<*.x.test>=1")).changes[0]
    asked.add("rc/kept.x.test")
    for turn in range(40):
        scan = [f"rc/scan{turn}-{number}.x.test" for number in range(RUN // 2)]
        for name in scan:
            asked.add(name)
        finish(asked.sorting(change))
        for name in scan:
            asked.remove(name)
    asked_of = asked._configs["rc"]  # noqa: SLF001 # leftovers cost memory, and alter no answer
    sides = asked_of._forwards, asked_of._backwards  # noqa: SLF001 # as above
    assert all(sum(map(len, side._runs)) <= 4 * RUN for side in sides)  # noqa: SLF001 # as above
    assert [*asked.concerned(change)] == ["rc/kept.x.test"]


def test_the_hosts_of_a_changed_route_configuration_are_marked_in_steps() -> None:
    # OPS-10, VHD-16
    store, interest = Store(), Interest()
    store.apply(changeset("vhds rc/v<*.x.test>=1; rds rc<on_demand>=1"))
    stream = Stream(1, store, interest, Settings(), Facts(), delta=True)
    stream.receive(Request(ROUTE, DeltaRequest(subscribe=(Key("rc"),)), Node("n")), 0.0)
    stream.receive(Request(VIRTUAL_HOST, DeltaRequest(subscribe=tuple(Key(name) for name in HOSTS)), None), 0.0)
    assert sum(send.count for send in stream.poll(0.0)) == 2
    session = stream.sessions[VIRTUAL_HOST]

    def notify(applied: Applied) -> None:
        for _ in interest.notify(applied.changes):
            stream.stir(None)

    store.listeners.append(notify)
    store.apply(changeset("rds rc<on_demand>=2"))
    sends: list[Send] = []
    steps, most, before = stream.polling(0.0), 0, len(session.due.dirty)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            sends = done.value
            break
        most, before = max(most, len(session.due.dirty) - before), len(session.due.dirty)
    assert most <= EVERY
    assert [send.type_url for send in sends] == [ROUTE, VIRTUAL_HOST]
    assert sum(map(len, sends[1].aliases)) == COUNT
