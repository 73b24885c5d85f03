"""A subscription past a limit is answered by itself, and all else on the stream goes on (DYN-46, VHD-26)."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from tests.core.modes import BAD, answer, both, connect, wanting
from tests.core.support import Bench, Peer, shown
from xdsprism.core.codec.server_responses import Encoder
from xdsprism.core.model.events import DeltaRequest, Key, Request
from xdsprism.core.model.facts import Forgotten, Suppressed
from xdsprism.core.model.settings import Limits, Settings
from xdsprism.core.model.types import CLUSTER, ENDPOINT, ROUTE, VIRTUAL_HOST, Params

LONG = "x" * 5000
ODD = "\0\n\x7f é\u202e/\U0001f600 *?#%2F\\"
BIG = Params({"k": "v" * 9000})


def limited(errors: str = "locators", **limits: int) -> Bench:
    return Bench(Settings(limits=Limits(**limits), resource_errors=errors))


def ask(peer: Peer, mode: str, type_url: str, *keys: Key) -> None:
    """Subscribe to these: in delta besides all else, in SotW in place of it."""
    peer.wanted[type_url] = keys
    nonce = "" if mode == "delta" or not peer.heard.get(type_url) else peer.heard[type_url][-1].nonce
    peer.receive(type_url, wanting(mode, *keys, nonce=nonce))


def ack(peer: Peer, type_url: str) -> None:
    for send in peer.unanswered.pop(type_url, []):
        answer(peer, send)


def refused(bench: Bench) -> dict[str, int]:
    """How many were refused, by limit."""
    found: dict[str, int] = {}
    for fact in bench.facts:
        if type(fact).__name__ == "SubscriptionsRefused":
            found[fact.limit] = found.get(fact.limit, 0) + fact.count
    return found


# -- names and locators past a limit


@both
def test_a_name_that_is_not_utf8_is_answered_by_itself_in_text_that_is(mode):
    # VHD-26, DYN-46
    bench = Bench()
    bench.put("cds a=1 b=1")
    peer = connect(bench, mode)
    odd = Params({"k": "p\udce9"})
    ask(peer, mode, CLUSTER, Key("a"), Key("caf\udce9"), Key("b", odd))
    if mode == "delta":
        assert peer.hears() == ["cds a=1", "cds !b[]=INVALID_ARGUMENT !caf\\udce9[]=INVALID_ARGUMENT -b[] -caf\\udce9"]
    else:
        assert peer.hears() == ["cds !b[]=INVALID_ARGUMENT !caf\\udce9[]=INVALID_ARGUMENT a=1"]
    for send in peer.heard[CLUSTER]:
        assert Encoder("server").encode(send)
    assert refused(bench) == {"utf8": 2}
    ack(peer, CLUSTER)
    bench.put("cds a=2")
    assert peer.hears() == ["cds a=2"]


def test_a_resource_named_like_an_escaped_name_stays():
    # VHD-26
    bench = Bench()
    bench.put("cds caf\\udce9=1")
    peer = bench.delta()
    peer.ask("cds +caf\\udce9")
    assert peer.hears() == ["cds caf\\udce9=1"]
    ask(peer, "delta", CLUSTER, Key("caf\udce9"))
    assert peer.hears() == ["cds nothing"]


@both
@pytest.mark.parametrize(
    ("params", "limit", "text"),
    [
        ({str(number): "" for number in range(1025)}, "params", "1025 parameters; at most 1024"),
        ({"k" * 257: ""}, "key_bytes", "a key of 257 bytes; at most 256"),
        ({"é" * 129: ""}, "key_bytes", "a key of 258 bytes"),
        ({"k": "v" * 8193}, "value_bytes", "a value of 8193 bytes; at most 8192"),
        ({str(number): "v" * 8191 for number in range(9)}, "params_bytes", "73728 bytes in all; at most 65536"),
    ],
)
def test_a_locator_past_a_limit_is_answered_by_itself_and_the_others_are_served(mode, params, limit, text):
    # DYN-46
    bench = Bench()
    bench.put("cds a=1 b=1")
    peer = connect(bench, mode)
    ask(peer, mode, CLUSTER, Key("a"), Key("b", Params(params)))
    if mode == "delta":
        assert peer.hears() == ["cds a=1", "cds !b[]=INVALID_ARGUMENT -b[]"]
    else:
        assert peer.hears() == ["cds !b[]=INVALID_ARGUMENT a=1"]
    (error,) = peer.heard[CLUSTER][-1].errors
    assert text in error.message
    ack(peer, CLUSTER)
    bench.put("cds a=2 b=2")
    assert peer.hears() == ["cds a=2"]
    assert refused(bench) == {limit: 1}


@both
def test_params_at_the_limits_are_served(mode: str):
    # DYN-46
    bench = Bench()
    bench.put("cds a=1")
    peer = connect(bench, mode)
    ask(peer, mode, CLUSTER, Key("a", Params({f"{number:032}": "v" * 32 for number in range(1024)})))
    assert peer.hears() == ["cds a[]=1"]


@both
@pytest.mark.parametrize("metadata", [{f"k{n}": "v" for n in range(5000)}, {"k": "v" * 1025}, {"k": "v" * 100_000}])
def test_metadata_of_any_size_is_cut_down_to_the_keys_that_variants_mention(mode: str, metadata: dict[str, str]):
    # DYN-46
    bench = Bench()
    bench.put("cds a[env=prod]=p a[env!=prod]=t")
    peer = connect(bench, mode, env="prod", **metadata)
    ask(peer, mode, CLUSTER, Key("a"))
    assert peer.hears() == ["cds a=p"]
    assert refused(bench) == {}


@both
@pytest.mark.parametrize("type_url", [CLUSTER, ENDPOINT])
@pytest.mark.parametrize("name", [LONG, "é" * 3000, ODD * 300, "x" * 1_000_000])
def test_a_name_of_any_length_and_characters_is_absent_by_itself(mode: str, type_url: str, name: str):
    # DYN-46
    bench = Bench()
    word = bench.store.spec(type_url).label
    bench.put(f"{word} a=1")
    peer = connect(bench, mode)
    ask(peer, mode, type_url, Key("a"), Key(name))
    sends = peer.poll()
    assert sum((send.plain for send in sends), ())[0].name == "a"
    assert [error.about.name for send in sends for error in send.errors] == [name]
    assert [gone for send in sends for gone in send.removed] == ([name] if mode == "delta" else [])
    assert all(len(error.message) < 200 for send in sends for error in send.errors)
    ack(peer, type_url)
    assert peer.hears() == []
    bench.put(f"{word} a=2")
    assert peer.hears() == [f"{word} a=2"]


@both
@pytest.mark.parametrize("name", [ODD, "", " ", "*x", "x" * 4096])
def test_a_name_with_any_characters_up_to_the_limit_is_an_ordinary_name_that_nothing_has(mode: str, name: str):
    # VHD-26
    bench = Bench()
    peer = connect(bench, mode)
    ask(peer, mode, CLUSTER, Key(name))
    assert [gone for send in peer.poll() for gone in send.removed] == ([name] if mode == "delta" else [])
    assert refused(bench) == {}


@both
def test_without_errors_a_refused_name_is_absent_and_nothing_else(mode: str):
    # DYN-46, ERR-1
    bench = limited("none")
    bench.put("eds a=1")
    peer = connect(bench, mode)
    ask(peer, mode, ENDPOINT, Key("a"), Key(LONG), Key("b", BIG))
    heard = ["eds a=1", f"eds -b[] -{LONG}"] if mode == "delta" else ["eds a=1"]
    assert sorted(peer.hears()) == sorted(heard)


@both
def test_a_first_request_with_nothing_but_a_refused_name_is_no_wildcard(mode: str):
    # WLD-1, WLD-8
    bench = Bench()
    bench.put("cds a=1")
    peer = connect(bench, mode)
    ask(peer, mode, CLUSTER, Key(LONG))
    assert not any(send.plain for send in peer.poll())
    bench.put("cds a=2")
    assert peer.hears() == []


@both
def test_a_refused_name_beside_a_wildcard_is_answered_with_it(mode: str):
    # DYN-46: where the wildcard alone would be greeted in the short way
    bench = Bench()
    bench.put("cds a=1")
    peer = connect(bench, mode)
    ask(peer, mode, CLUSTER, Key("*"), Key(LONG))
    sends = peer.poll()
    assert [variant.name for send in sends for variant in send.plain] == ["a"]
    assert [error.about.name for send in sends for error in send.errors] == [LONG]


def test_a_list_of_nothing_but_a_refused_name_ends_a_legacy_wildcard():
    # WLD-3
    bench = Bench()
    bench.put("cds a=1")
    peer = bench.sotw()
    peer.ask("cds none")
    assert peer.hears() == ["cds a=1"]
    ask(peer, "sotw", CLUSTER, Key(LONG))
    assert [send.plain for send in peer.poll()] == [()]
    bench.put("cds a=2")
    assert peer.hears() == []


# -- nothing is kept


def held(peer: Peer) -> set[int]:
    """The sizes of all strings that can be reached from a stream, but not from what all streams share."""
    bench = peer.bench
    shared = {id(bench.store), id(bench.interest), id(bench.facts), id(bench.settings)}
    found: set[int] = set()
    seen: set[int] = set()
    todo: list[object] = [peer.stream]
    while todo:
        each = todo.pop()
        if id(each) in seen or id(each) in shared or isinstance(each, type):
            continue
        seen.add(id(each))
        if isinstance(each, str):
            found.add(len(each))
        elif isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            todo += [*each]
        else:
            for kind in type(each).__mro__:
                todo += [getattr(each, slot) for slot in getattr(kind, "__slots__", ()) if hasattr(each, slot)]
            todo += [*getattr(each, "__dict__", {}).values()]
    return found


@pytest.mark.parametrize(
    ("mode", "type_url"),
    [("sotw", CLUSTER), ("sotw", ENDPOINT), ("delta", CLUSTER), ("delta", ENDPOINT), ("delta", VIRTUAL_HOST)],
)
def test_a_refused_subscription_is_not_kept_even_until_the_ack(mode: str, type_url: str):
    # VHD-26
    bench = Bench()
    peer = connect(bench, mode)
    name = "rc/" + "x" * 100_000
    versions = {name: "1"} if mode == "delta" else {}
    body = wanting(mode, Key("a"), Key(name), Key("b", Params({"k": "v" * 90_000})))
    peer.receive(type_url, replace(body, initial_versions=versions) if mode == "delta" else body)
    assert peer.stream.poll(bench.now)
    assert max(held(peer), default=0) < 1000
    assert sys.getsizeof(peer.stream.context.budget.refused) < 1000


def test_a_client_that_asks_and_does_not_read_makes_only_so_much_wait(monkeypatch: pytest.MonkeyPatch):
    # DYN-46
    monkeypatch.setattr("xdsprism.core.session.refusals.PENDING_BYTES", 20_000)
    peer = Bench().delta()
    for number in range(10):
        peer.receive(CLUSTER, DeltaRequest((Key(f"{number}{LONG}"),)))
        peer.receive("acme.A" + "x" * 5000, DeltaRequest((Key(f"{number}{LONG}"),)))
    sends = peer.poll()
    names = [name for send in sends if send.type_url == CLUSTER for name in send.removed]
    assert names == [f"{number}{LONG}" for number in range(7, 10)]
    assert 1 <= sum(send.type_url != CLUSTER for send in sends) <= 2


# -- asked again, and not asked any more


def test_delta_answers_a_refused_name_each_time_and_unsubscribing_it_is_harmless():
    # DLT-3, DYN-46
    bench = limited("none")
    bench.put("cds a=1")
    peer = bench.delta()
    for _ in range(2):
        peer.receive(CLUSTER, DeltaRequest((Key(LONG), Key("b", BIG))))
        assert peer.hears() == [f"cds -b[] -{LONG}"]
        peer.ask("cds ack")
        assert peer.hears() == []
    peer.receive(CLUSTER, DeltaRequest((Key("a"),), (Key(LONG), Key("b", BIG))))
    assert peer.hears() == ["cds a=1"]
    peer.receive(CLUSTER, DeltaRequest((Key(LONG),)))
    peer.receive(CLUSTER, DeltaRequest((), (Key(LONG),)))
    assert peer.hears() == []  # it was gone before it was answered


def test_a_sotw_list_with_refused_names_is_answered_once_and_goes_on_working():
    # DYN-46, ERR-3, SOT-10
    bench = Bench()
    bench.put("eds a=1 b=1")
    peer = bench.sotw()
    bad: tuple[Key, ...] = (Key(LONG), Key("c", BIG))
    ask(peer, "sotw", ENDPOINT, Key("a"), *bad)
    (send,) = peer.poll()
    assert (send.names, len(send.errors)) == (("a",), 2)
    ack(peer, ENDPOINT)
    assert peer.hears() == []
    bench.put("eds a=2")
    assert peer.hears() == ["eds a=2"]
    ack(peer, ENDPOINT)
    ask(peer, "sotw", ENDPOINT, Key("a"), Key("b"), *bad)
    assert peer.hears() == ["eds b=1"]
    ack(peer, ENDPOINT)
    other = Key("y" * 5000)
    ask(peer, "sotw", ENDPOINT, Key("b"), *bad, other)  # only the new one is said
    (send,) = peer.poll()
    assert [error.about.name for error in send.errors] == ["y" * 5000]
    ack(peer, ENDPOINT)
    ask(peer, "sotw", ENDPOINT, Key("b"))
    assert peer.hears() == []
    ask(peer, "sotw", ENDPOINT, Key("b"), other)  # a new subscription
    assert [len(send.errors) for send in peer.poll()] == [1]
    bench.put("eds a=3 b=3")
    assert peer.hears() == ["eds b=3"]


def test_a_sotw_list_repeated_with_an_old_nonce_still_warms_clusters():
    # ORD-5
    bench = Bench()
    bench.put("eds a=1")
    peer = bench.sotw()
    ask(peer, "sotw", ENDPOINT, Key("a"), Key(LONG))
    peer.poll()
    ack(peer, ENDPOINT)
    assert peer.hears() == []
    ask(peer, "sotw", ENDPOINT, Key("a"), Key(LONG))
    assert peer.hears() == ["eds a=1"]


def test_more_refused_names_than_are_remembered_are_not_answered_in_a_loop():
    # DYN-46, ERR-3
    bench = limited(unresolved=2)
    peer = bench.sotw()
    names = tuple(Key(f"{number}{LONG}") for number in range(5))
    ask(peer, "sotw", ENDPOINT, *names)
    assert [len(send.errors) for send in peer.poll()] == [5]
    for _ in range(3):
        ack(peer, ENDPOINT)
        assert peer.hears() == []
        ask(peer, "sotw", ENDPOINT, *names)
        assert peer.hears() == []


# -- one client, one name, two subscriptions


def test_a_refused_subscription_takes_nothing_that_another_gives():
    # DYN-46, ERR-2
    bench = limited(subscriptions=1)  # that is the wildcard's
    bench.put("cds a=1 b[env=prod]=p c=1")
    peer = bench.delta(env="prod")
    peer.ask("cds +* +b{env=prod} +c{}")
    assert "b[env=prod]=p" in " ".join(peer.hears())
    peer.receive(CLUSTER, DeltaRequest((Key("a"), Key("b", BIG), Key("c", BIG))))
    sends = peer.poll()
    assert [(send.removed, send.withdrawn) for send in sends] == [((), ())]
    assert [error.about.name for send in sends for error in send.errors] == ["b"]
    bench.put("cds a=2")
    assert peer.hears() == ["cds a=2"]


# -- how many


@both
@pytest.mark.parametrize("form", ["", "{}"])
def test_subscriptions_past_the_limit_are_refused_whatever_their_types(mode: str, form: str):
    # DYN-46
    bench = limited("none", **({"locators": 3} if form else {"subscriptions": 3}))
    bench.put("cds a=1 b=1; rds a=1; lds a=1")
    peer = connect(bench, mode)
    peer.ask(f"cds +a{form} +b{form}" if mode == "delta" else f"cds a{form} b{form}")
    peer.ask(f"rds +a{form}" if mode == "delta" else f"rds a{form}")
    located = "[]" if form else ""
    assert peer.hears() == [f"cds a{located}=1 b{located}=1", f"rds a{located}=1"]
    peer.ask(f"lds +a{form}" if mode == "delta" else f"lds a{form}")
    assert peer.hears() == ([f"lds -a{located}"] if mode == "delta" else ["lds nothing"])
    assert refused(bench) == {"locators" if form else "subscriptions": 1}
    peer.ask("ack")
    bench.put("cds b=2; rds a=2; lds a=2")
    rest = f"a{located}=1 " if mode == "sotw" else ""  # SOT-4
    assert peer.hears() == [f"cds {rest}b{located}=2", f"rds a{located}=2"]
    peer.ask("ack")
    if mode == "delta":  # asked again when there is room
        peer.ask(f"cds -a{form}")
        peer.ask(f"lds +a{form}")
    else:
        peer.ask(f"cds b{form}")
        peer.ask("lds none")
        peer.ask(f"lds a{form}")
    assert peer.hears()[-1] == f"lds a{located}=2"


@both
def test_subscriptions_at_the_limit_may_be_repeated_and_replaced(mode: str):
    # DYN-46
    bench = limited(locators=2, subscriptions=1)
    bench.put("cds a=1 b=1 c=1 d=1")
    peer = connect(bench, mode)
    plus = "+" if mode == "delta" else ""
    for _ in range(2):
        peer.ask(f"cds {plus}a{{}} {plus}b{{}} {plus}c")
    assert peer.hears() == ["cds a[]=1 b[]=1 c=1"]
    peer.ask("cds -a{} -c +c{} +a" if mode == "delta" else "cds a b{} c{}")
    assert peer.hears() == (["cds a=1 c[]=1"] if mode == "delta" else ["cds a=1 b[]=1 c[]=1"])
    assert refused(bench) == {}
    peer.ask(f"cds {plus}a {plus}b{{}} {plus}c{{}} {plus}d")
    heard = peer.hears()
    assert heard[-1] == (
        "cds !d[]=INVALID_ARGUMENT -d" if mode == "delta" else "cds !d[]=INVALID_ARGUMENT a=1 b[]=1 c[]=1"
    )
    assert refused(bench) == {"subscriptions": 1}


@both
def test_a_glob_at_the_limit_may_be_repeated(mode: str):
    # DYN-46, XTP-3
    bench = limited(subscriptions=1)
    peer = connect(bench, mode)
    glob = ("+" if mode == "delta" else "") + "xdstp://far/envoy.config.cluster.v3.Cluster/*"
    for _ in range(2):
        peer.ask(f"cds {glob}")
        peer.hears()
    assert refused(bench) == {}


def test_a_sotw_list_past_the_limit_keeps_what_it_has_and_is_not_answered_in_a_loop():
    # DYN-46, ERR-3
    bench = limited(subscriptions=2)
    bench.put("rds a=1 b=1 c=1")
    peer = bench.sotw()
    peer.ask("rds b c")
    assert peer.hears() == ["rds b=1 c=1"]
    peer.ask("rds a b c")
    assert peer.hears() == ["rds !a[]=INVALID_ARGUMENT"]
    for _ in range(3):
        peer.ask("rds ack")
        assert peer.hears() == []
    bench.put("rds a=2 b=2")
    assert peer.hears() == ["rds b=2"]
    peer.ask("rds ack")
    peer.ask("rds a b")
    assert peer.hears() == ["rds a=2"]


def test_the_wildcard_needs_no_room():
    # DYN-46
    bench = limited(subscriptions=1)
    bench.put("cds a=1; lds l=1")
    peer = bench.delta()
    peer.ask("eds +a")
    peer.ask("cds")
    peer.ask("lds +*")
    assert peer.hears() == ["cds a=1", "eds -a", "lds l=1"]


def test_virtual_hosts_take_no_room_from_others():
    # VHD-26
    bench = limited(subscriptions=2, hosts=2)
    bench.put("cds a=1; vhds rc/x<*.test>=1")
    peer = bench.delta()
    peer.ask("vhds +rc/a.test +rc/b.test")
    assert peer.hears() == ["vhds rc/x(rc/a.test,rc/b.test)=1"]
    peer.ask("vhds +rc/c.test")
    peer.ask("cds +a")
    assert peer.hears() == ["cds a=1", "vhds ?rc/c.test"]
    assert refused(bench) == {"hosts": 1}


def test_a_wildcard_with_params_past_a_limit_is_answered():
    # DYN-46, WLD-10
    bench = Bench()
    bench.put("cds a=1")
    peer = bench.delta()
    peer.receive(CLUSTER, DeltaRequest((Key("*", BIG),)))
    assert peer.hears() == ["cds !*[]=INVALID_ARGUMENT"]
    bench.put("cds a=2")
    assert peer.hears() == []


# -- types


@both
@pytest.mark.parametrize("further", ["acme.B", "acme." + "x" * 5000])
def test_a_type_past_the_limit_is_answered_by_itself_and_the_stream_goes_on(mode: str, further: str):
    # DYN-46, SRV-5
    bench = limited("none", types=2)
    bench.put("cds a=1")
    peer = connect(bench, mode)
    plus = "+" if mode == "delta" else ""
    peer.ask(f"cds {plus}a")
    if len(further) < 100:
        peer.ask(f"acme.A {plus}a")
    peer.poll()
    for _ in range(2):
        peer.receive("type.googleapis.com/" + further, wanting(mode, Key("x"), Key("y", Params({"k": "v"}))))
        sends = peer.poll()
        if mode == "delta":
            (send,) = sends
            assert send.removed == ("x",)
            assert [absence.name for absence in send.withdrawn] == ["y"]
            assert send.type_url == "type.googleapis.com/" + further
            peer.receive(send.type_url, DeltaRequest(nonce=send.nonce))  # its ACK
        assert mode == "delta" or sends == []
        assert peer.hears() == []
    assert len(peer.stream.sessions) == (2 if len(further) < 100 else 1)
    assert bench.store.spec(CLUSTER).label in [table.spec.label for table in bench.store.tables()]
    assert not any("acme.B" in table.spec.url or "xxx" in table.spec.url for table in bench.store.tables())
    bench.put("cds a=2")
    assert peer.hears() == ["cds a=2"]
    assert refused(bench) == {"types" if len(further) < 100 else "type_url_bytes": 4}


def test_virtual_hosts_past_the_limit_of_types_are_unresolved():
    # VHD-26, VHD-7
    peer = limited(types=1).delta()
    peer.ask("cds +a")
    peer.ask("vhds +rc/a.test")
    assert peer.hears()[0] == "vhds ?rc/a.test"
    versions = {peer.heard[VIRTUAL_HOST][-1].absent}
    peer.ask("vhds +rc/a.test")
    peer.poll()
    versions.add(peer.heard[VIRTUAL_HOST][-1].absent)
    assert len(versions) == 2  # V8


@both
def test_a_service_of_one_type_serves_it_whatever_the_limit_of_types(mode: str):
    # SRV-3
    bench = limited(types=0)
    bench.put("cds a=1")
    peer = connect(bench, mode, CLUSTER)
    peer.ask("cds +a" if mode == "delta" else "cds a")
    assert peer.hears() == ["cds a=1"]


@both
def test_names_that_were_not_even_read_are_counted(mode: str):
    # DYN-46
    bench = Bench()
    peer = connect(bench, mode)
    peer.stream.receive(Request(CLUSTER, wanting(mode, Key("a")), unread=7), bench.now)
    assert refused(bench) == {"request_names": 7}


# -- virtual hosts


@pytest.mark.parametrize("host", [LONG, "é" * 3000, ODD * 300, "x" * 1_000_000, "x:" + "9" * 5000])
def test_a_host_of_any_length_is_unresolved_and_the_others_resolve(host: str):
    # VHD-26, VHD-7
    bench = Bench(Settings(epoch="e"))
    bench.put("vhds rc/x<a.test>=1")
    peer = bench.delta()
    peer.receive(VIRTUAL_HOST, DeltaRequest((Key(f"rc/{host}"),)))
    (send,) = peer.poll()
    assert (send.unresolved, send.errors, send.removed) == ((f"rc/{host}",), (), ())
    assert Encoder("id").encode(send).count(f"rc/{host}".encode()) == 2  # its name and its alias
    first = send.absent
    peer.ask("vhds ack +rc/a.test")
    assert peer.hears() == ["vhds rc/x(rc/a.test)=1"]
    peer.ask("vhds ack")
    peer.receive(VIRTUAL_HOST, DeltaRequest((Key(f"rc/{host}"),)))
    (send,) = peer.poll()
    assert send.absent != first  # V8
    assert peer.session("vhds").count == 1
    bench.put("vhds rc/x<a.test>=2")
    peer.ask("vhds ack")
    assert peer.hears() == ["vhds rc/x(rc/a.test)=2"]
    assert not bench.said(Forgotten)


def test_many_long_hosts_leave_nothing_and_are_answered_when_envoy_keeps_up():
    # VHD-26, VHD-24
    bench = Bench()
    peer = bench.delta()
    answered: set[str] = set()
    for number in range(50):
        peer.receive(VIRTUAL_HOST, DeltaRequest((Key(f"rc/{number}{LONG}"),)))
        answered.update(name for send in peer.poll() for name in send.unresolved)
    while peer.unanswered.get(VIRTUAL_HOST):
        peer.ask("vhds ack")
        answered.update(name for send in peer.poll() for name in send.unresolved)
    assert len(answered) == 50
    assert len(peer.heard[VIRTUAL_HOST]) < 10
    assert peer.session("vhds").count == 0
    assert refused(bench) == {"name_bytes": 50}


def test_a_long_host_by_a_locator_is_withdrawn():
    # VHD-18, DYN-46
    peer = Bench().delta()
    peer.receive(VIRTUAL_HOST, DeltaRequest((Key(f"rc/{LONG}", Params({"env": "prod"})), Key("rc/b", BIG))))
    (send,) = peer.poll()
    assert [absence.name for absence in send.withdrawn] == [f"rc/{LONG}", "rc/b"]
    assert [error.code for error in send.errors] == [3, 3]


def test_a_returning_client_that_names_a_refused_host_gets_no_second_answer():
    # VHD-26, V15: after a restart Envoy asks for all that it ever asked for
    bench = Bench()
    bench.put("rds rc<on_demand>=1; vhds rc/x<a.test>=1")
    peer = bench.delta(VIRTUAL_HOST)
    names = (Key("*"), Key(f"rc/{LONG}"), Key(f"rc/y{LONG}"), Key("rc/a.test"))
    peer.receive(VIRTUAL_HOST, DeltaRequest(names, (), {f"rc/{LONG}": "absent.other.1.2"}))
    sends = peer.poll()
    assert [name for send in sends for name in send.unresolved] == [f"rc/y{LONG}"]
    assert shown(sends[0]) == "vhds -rc/_ rc/x(rc/a.test)=1"
    assert [fact.resources for fact in bench.said(Suppressed)] == [1]


def test_a_rejected_answer_about_refused_names_holds_nothing_up():
    # ORD-4
    bench = Bench()
    bench.put("cds a=1; rds main=1")
    peer = bench.delta()
    peer.ask("cds +a")
    peer.receive(ROUTE, DeltaRequest((Key("main"), Key(LONG))))
    peer.poll()
    sends = peer.heard[ROUTE]
    peer.ask("cds ack")
    answer(peer, sends[0])
    answer(peer, sends[1], BAD)
    peer.unanswered.clear()
    bench.put("rds main=2; cds -a")
    said = peer.hears()
    assert said[0] == "rds main=2"
    peer.ask("rds ack")
    assert peer.hears() == ["cds -a"]
