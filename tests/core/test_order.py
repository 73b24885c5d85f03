"""Order between types on one stream, for what is added and changed (C11)."""

from __future__ import annotations

from tests.core.modes import both, connect
from tests.core.support import Bench, play
from xdsprism.core.model.types import CLUSTER, ROUTE, TypeSpec

RANKS = {"Early": -1, "Between": 45}


# -- additions and changes


@both
def test_one_transaction_goes_out_by_rank_whatever_the_order_of_subscriptions(mode: str):
    # ORD-1, ORD-9
    bench = Bench()
    peer = connect(bench, mode)
    words = ["acme.Widget", "ecds", "vhds", "rds", "srds", "lds", "sds", "eds", "cds"]
    for word in words:
        peer.ask(f"{word} +a")
    peer.poll()
    peer.ask("ack")
    assert peer.hears() == []
    bench.put("; ".join(f"{word} a=1" for word in words))
    assert peer.hears() == [
        "cds a=1",
        "eds a=1",
        "sds a=1",
        "lds a=1",
        "srds a=1",
        "rds a=1",
        "vhds a=1",
        "acme.Widget a=1",
        "ecds a=1",
    ]


@both
def test_first_answers_are_in_order_too(mode: str):
    # ORD-1
    play(
        """
        store cds a=1; eds a=1; lds a=1; rds a=1; vhds a=1
        > vhds +a
        > lds +*
        > rds +a
        > eds +a
        > cds +*
        < cds a=1
        < eds a=1
        < lds a=1
        < rds a=1
        < vhds a=1
        """,
        mode=mode,
    )


@both
def test_the_rank_of_a_type_can_be_set(mode: str):
    # ORD-9
    early, between = (TypeSpec(f"type.googleapis.com/acme.{name}", rank=rank) for name, rank in RANKS.items())
    bench = Bench(types=(early, between))
    bench.put("rds a=1; cds a=1; acme.Between a=1; acme.Early a=1")
    peer = connect(bench, mode)
    for word in ("cds", "rds", "acme.Between", "acme.Early"):
        peer.ask(f"{word} +a")
    assert peer.hears() == ["acme.Early a=1", "cds a=1", "acme.Between a=1", "rds a=1"]


# -- no order


@both
def test_streams_of_single_types_do_not_wait_for_each_other(mode: str):
    # ORD-10
    bench = Bench()
    bench.put("cds old=1 kept=1; rds r=1")
    open_stream = bench.delta if mode == "delta" else bench.sotw
    clusters, routes = open_stream(only_type=CLUSTER), open_stream(only_type=ROUTE)
    clusters.ask("cds +*")
    routes.ask("rds +r")
    clusters.poll()
    routes.poll()
    bench.put("cds -old; rds r=2")
    assert clusters.hears() == ["cds -old" if mode == "delta" else "cds kept=1"]
    assert clusters.stream.deadline() is None
    assert routes.hears() == ["rds r=2"]
