"""Delta responses past the size limit (C4)."""

from __future__ import annotations

from tests.core.support import Bench, Peer, shown, variant
from xdsprism.core.model.facts import Oversize
from xdsprism.core.model.settings import Settings

LIMIT = 600


def small(**fields: str) -> Bench:
    return Bench(Settings(response_bytes=LIMIT, **fields))  # type: ignore[arg-type]


def everything(peer: Peer) -> list[str]:
    return sorted(token for send in peer.poll() for token in shown(send).split()[1:])


def test_a_response_past_the_limit_is_split_into_whole_responses():
    # DLT-21
    bench = small()
    names = [f"n{number}" for number in range(20)]
    bench.put("cds " + " ".join(f"{name}=1" for name in names))
    peer = bench.delta()
    peer.ask("cds +*")
    sends = peer.poll()
    assert len(sends) > 1
    assert len({send.nonce for send in sends}) == len(sends)
    assert sorted(v.name for send in sends for v in send.plain) == sorted(names)
    assert all(sum(v.size for v in send.plain) <= LIMIT for send in sends)


def test_each_part_is_answered_by_itself():
    # DLT-21, NAK-29
    bench = small()
    bench.put("cds a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1")
    peer = bench.delta()
    peer.ask("cds +*")
    parts = peer.hears()
    assert len(parts) == 2
    peer.ask("cds ack@1")
    peer.ask("cds nack@2")
    again = peer.hears()
    assert len(again) == len(parts[1].split()) - 1
    assert sorted(token for line in again for token in line.split()[1:]) == parts[1].split()[1:]


def test_a_resource_past_the_limit_is_an_error_and_the_rest_arrives():
    # DLT-22, ERR-2
    bench = small()
    bench.put(f"cds a=1 huge={'x' * LIMIT} z=1")
    peer = bench.delta()
    peer.ask("cds +a +huge +z")
    assert everything(peer) == ["!huge[]=RESOURCE_EXHAUSTED", "a=1", "z=1"]
    (fact,) = bench.said(Oversize)
    assert fact.name == "huge"


def test_removals_past_the_limit_are_all_said():
    # DLT-21
    bench = small()
    peer = bench.delta()
    names = [f"a-long-name-{number:04}" for number in range(400)]
    peer.ask("cds " + " ".join(f"+{name}" for name in names))
    sends = peer.poll()
    assert [name for send in sends for name in send.removed] == names
    assert all(sum(map(len, send.removed)) <= LIMIT for send in sends)


def test_negative_answers_and_errors_past_the_limit_are_all_said():
    # DLT-21, ERR-1
    bench = small(resource_errors="all")
    peer = bench.delta()
    names = [f"n{number}" for number in range(40)]
    peer.ask("cds " + " ".join(f"+{name}{{env=prod}}" for name in names))
    sends = peer.poll()
    assert len(sends) > 1
    assert [gone.name for send in sends for gone in send.withdrawn] == names
    assert [error.about.name for send in sends for error in send.errors] == names


def test_a_variant_and_what_it_replaces_stay_together():
    # DLT-21, DYN-24
    bench = small()
    names = [f"n{number}" for number in range(10)]
    bench.put("cds " + " ".join(f"{name}[env=prod]=1" for name in names))
    peer = bench.delta()
    peer.ask("cds +*{env=prod,v=1}")
    peer.poll()
    bench.put("cds " + " ".join(f"{name}[env=prod and v=1]=2" for name in names))
    sends = peer.poll()
    assert len(sends) > 1
    for send in sends:
        assert [v.name for v in send.located] == [gone.name for gone in send.withdrawn]


def test_two_variants_of_a_name_that_are_too_large_together_go_one_by_one():
    # DLT-21, DLT-22
    bench = small()
    bench.put("cds a[env in (prod, test)]=1")
    peer = bench.delta()
    peer.ask("cds +a{env=prod} +a{env=test}")
    assert everything(peer) == ["(prod,", "a[env", "in", "test)]=1"]
    half = "x" * (LIMIT // 2)
    assert variant("cds", f"a={half}").size < LIMIT
    bench.put(f"cds a[env=prod]={half}p a[env=test]={half}t")
    first, second = peer.poll()
    assert [len(send.located) for send in (first, second)] == [1, 1]
    assert len(first.withdrawn) == 1
    assert not second.withdrawn


def test_the_parts_of_a_split_response_keep_the_two_forms_of_a_name_apart():
    # DLT-21, DYN-15
    bench = small()
    names = [f"n{number}" for number in range(10)]
    bench.put("cds " + " ".join(f"{name}=1" for name in names))
    peer = bench.delta()
    peer.ask("cds +* +*{env=prod}")
    sends = peer.poll()  # the bench looks at each of them
    assert sum(len(send.plain) for send in sends) == sum(len(send.located) for send in sends) == 10
