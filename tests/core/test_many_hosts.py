"""Virtual hosts by the million: the memory of each, and that no operation visits all of them. Work is counted here."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator, Mapping

import pytest
from coverage import Coverage
from envoy.config.route.v3.route_components_pb2 import VirtualHost

from tests.core.support import Bench, Peer, changeset
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.codec.server_responses import Encoder
from xdsprism.core.model.constraints import TRUE, Constraint
from xdsprism.core.model.events import DeltaRequest, Key, Node, Send
from xdsprism.core.model.host_lookup import HostLookup
from xdsprism.core.model.listing import Listing
from xdsprism.core.model.settings import Limits, Settings
from xdsprism.core.model.store import Applied, Store
from xdsprism.core.model.types import NO_PARAMS, VIRTUAL_HOST, Params, Variant
from xdsprism.core.provide.provider import Provider
from xdsprism.core.provide.providing import Providing
from xdsprism.core.session.interest import Interested

MANY = 2_000


class Unwalked(dict[str, object]):
    """Things are looked up in it. Whoever goes through it fails."""

    def _walk(self) -> Iterator[str]:
        raise AssertionError("somebody went through all of them")

    __iter__ = keys = values = items = _walk  # type: ignore[assignment]


def hosts(numbers: range, edition: int = 1) -> str:
    return "vhds " + " ".join(f"rc/h{number}<h{number}.test>={edition}" for number in numbers)


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.put(f"rds rc<on_demand>=1; {hosts(range(MANY))} rc/all<all.test>^=1")
    table = made.store.table(VIRTUAL_HOST)
    lookup = table.lookup
    assert isinstance(lookup, HostLookup)
    table._sets = lookup._sets = Unwalked(table._sets)  # noqa: SLF001 # a stand-in that fails if somebody goes through all of them
    lookup._exact = {"rc": Unwalked(lookup._exact["rc"])}  # noqa: SLF001 # as above
    return made


def asking(bench: Bench, *strings: str) -> Peer:
    peer = bench.connect(Node("envoy"), delta=True)
    peer.receive(VIRTUAL_HOST, DeltaRequest(subscribe=tuple(Key(string) for string in strings)))
    return peer


# -- who is concerned


def test_neither_a_subscription_nor_a_change_goes_through_all_hosts(bench: Bench):
    # VHD-9, VHD-13
    named, wild, absent = asking(bench, "rc/h7.test"), bench.delta(), asking(bench, "rc/new.test")
    wild.receive(VIRTUAL_HOST, DeltaRequest())
    assert named.hears() == ["vhds rc/h7(rc/h7.test)=1"]
    assert wild.hears() == ["vhds rc/all(rc/all.test)=1"]
    assert absent.hears() == ["vhds ?rc/new.test"]
    bench.put("vhds rc/h7<h7.test>=2 rc/all<all.test>^=2 rc/n<new.test>=1 -rc/h8")
    assert named.hears() == ["vhds rc/h7(rc/h7.test)=2"]
    assert wild.hears() == ["vhds rc/all(rc/all.test)=2"]
    assert absent.hears() == ["vhds rc/n(rc/new.test)=1"]
    table = bench.store.table(VIRTUAL_HOST)
    assert (len(table), table.variants) == (MANY + 1, MANY + 1)


def test_a_change_wakes_nobody_but_those_who_have_the_host(bench: Bench):
    # VHD-9
    peers = [asking(bench, f"rc/h{number}.test") for number in range(100)]
    assert all(peer.hears() for peer in peers)
    woken: list[Interested] = []

    def notify(applied: Applied) -> None:
        woken.extend(bench.interest.notify(applied.changes))

    bench.notify = notify  # type: ignore[method-assign]
    bench.put("vhds rc/h50<h50.test>=2 rc/h500<h500.test>=2")
    assert woken == [peers[50].session("vhds")]


def test_a_change_that_no_wildcard_sees_leaves_what_was_made_for_wildcards(bench: Bench):
    table = bench.store.table(VIRTUAL_HOST)
    before = table.everything.snapshot(NO_PARAMS)
    bench.put("vhds rc/h7<h7.test>=2")
    assert table.everything.snapshot(NO_PARAMS) is before
    bench.put("vhds rc/all<all.test>^=2")
    assert table.everything.snapshot(NO_PARAMS) is not before


def test_route_configurations_that_change_together_are_looked_at_together(monkeypatch: pytest.MonkeyPatch):
    # VHD-16
    looks: list[Params] = []
    look = Listing.snapshot

    def counted(listing: Listing, params: Params) -> object:
        looks.append(params)
        return look(listing, params)

    monkeypatch.setattr(Listing, "snapshot", counted)

    def looked(routes: int) -> int:
        bench = Bench()
        names = [f"rc{number}" for number in range(routes)]
        bench.put(f"vhds {' '.join(f'{name}/all<all.test>^=1' for name in names[::2])}")
        bench.put(f"rds {' '.join(f'{name}<on_demand>=1' for name in names)}")
        peer = bench.delta()
        peer.ask(f"rds {' '.join(f'+{name}' for name in names)}")
        peer.ask("vhds")
        peer.poll()
        peer.ask("ack")
        looks.clear()
        bench.put(f"rds {' '.join(f'{name}<on_demand>=2' for name in names)}")
        base = [f"{name}/all(rc{number}/all.test)=1" for number, name in enumerate(names) if not number % 2]
        others = [f"-{name}/_" for name in names[1::2]]
        assert peer.hears()[1:] == [f"vhds {' '.join(sorted(base + others))}"]
        return len(looks)

    assert looked(40) == looked(4)


def test_a_virtual_host_that_is_written_down_concerns_the_provider_where_it_serves(monkeypatch: pytest.MonkeyPatch):
    # VHD-19
    async def make(name: str, params: Params) -> object:
        raise AssertionError(name, params)

    store = Store()
    providing = Providing(store)
    providing.add(Provider(VIRTUAL_HOST, make))
    for number in range(100):
        providing.want(VIRTUAL_HOST, f"rc/H{number}.test", NO_PARAMS)
    providing.turn(0.0)
    touched: list[str] = []
    # What a change costs: one name too many would be looked at in vain, and answered as before.
    monkeypatch.setattr(Providing, "_touch", lambda _, subject: touched.append(subject[1]))
    store.apply(changeset("vhds rc/x<h7.test>=1 rc/y<*.elsewhere>=1 other/z<*>=1 rc/h8.test=1"))
    assert touched == ["rc/h7.test", "rc/h8.test"]
    touched.clear()
    store.apply(changeset("vhds rc/x<h7.test>=2"))
    assert touched == []  # it serves whom it served
    store.apply(changeset("vhds rc/y<*9.test>=2"))
    assert sorted(touched) == sorted(f"rc/h{number}.test" for number in range(9, 100, 10))


# -- what is kept


def test_hosts_that_were_asked_for_and_forgotten_leave_nothing_behind():
    # VHD-25
    bench = Bench(Settings(limits=Limits(unresolved=10)))
    bench.put("vhds rc/w<*.w.test>=1")
    peer = asking(bench, "rc/kept.test")
    for number in range(500):
        peer.receive(VIRTUAL_HOST, DeltaRequest(subscribe=(Key(f"rc/scan{number}.test"),)))
        peer.poll()
        peer.ask("ack")
    asked = bench.interest._hosts._configs["rc"]  # noqa: SLF001 # leftovers cost memory, and alter no answer
    assert len(asked) == len(asked._new) == 10  # noqa: SLF001 # as above
    assert len(peer.session("vhds").subscriptions) == len([*peer.session("vhds").subscriptions]) == 10


def virtual_host(number: int, base: Constraint | None = None) -> Variant:
    message = VirtualHost(name=f"rc/h{number:07}", domains=[f"h{number:07}.example.com"])
    route = message.routes.add()
    route.match.prefix = "/"
    route.route.cluster = "service"
    return variant_of(message, base=base)


@pytest.mark.skipif(Coverage.current() is not None, reason="what coverage notes of lines would be weighed, too")
def test_a_virtual_host_in_the_store_weighs_less_than_three_quarters_of_a_kilobyte():
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        store = Store()
        for number in range(MANY):
            variant = virtual_host(number)
            store.apply({(VIRTUAL_HOST, variant.name): (variant,)})
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / MANY
    finally:
        tracemalloc.stop()
    assert each < 740  # and with what the allocator adds, 1.2 kB are far
    assert len(store.table(VIRTUAL_HOST)) == MANY


def sent(variant: Variant) -> Mapping[object, bytes]:
    send = Send(VIRTUAL_HOST, True, "1", "1", (variant,), aliases=((),))
    first = Encoder("here").encode(send)
    assert Encoder("here").encode(send) == first
    return variant.frames


def test_a_virtual_host_sent_on_demand_is_not_kept_encoded():
    assert sent(virtual_host(1)) == {}
    assert len(sent(virtual_host(1, base=TRUE))) == 1
