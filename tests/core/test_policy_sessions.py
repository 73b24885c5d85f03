"""What sessions do under a policy: names, types, params and wildcards, in both protocols; when the policy changes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from tests.core.support import Bench, Peer, play
from xdsprism.core.model.events import DeltaRequest, Node, Request
from xdsprism.core.model.facts import Denied
from xdsprism.core.model.settings import Limits, Settings
from xdsprism.core.model.steps import finish
from xdsprism.core.model.type_names import resolve_type
from xdsprism.core.model.types import CLUSTER, SECRET, Params
from xdsprism.core.policy.globs import NameGlobs
from xdsprism.core.policy.grant import Grant, ParamRule
from xdsprism.core.policy.policy import DENIED
from xdsprism.core.serve.stream import Stream
from xdsprism.core.session.interest import Interest

QUIET = Settings(resource_errors="none")


def only(*patterns: str, word: str = "*", params: Mapping[str, ParamRule] | None = None) -> Grant:
    """A grant of these names."""
    type_url = resolve_type(word) if word != "*" else word
    return Grant("a rule", names={type_url: NameGlobs(patterns)}, params=params)


def claims(**params: ParamRule) -> Grant:
    """A grant of all names."""
    return Grant("a rule", params=params)


def under(grant: Grant) -> partial[Stream]:
    """Streams of one grant."""
    return partial(Stream, grant_of=lambda _: grant)


# -- names


def test_a_name_that_is_not_allowed_is_denied_by_itself_and_the_stream_goes_on():
    # OPS-2
    play(
        """
        store cds a=1 b=1
        > cds +a +b +c
        < cds a=1 -b -c !b[]=PERMISSION_DENIED !c[]=PERMISSION_DENIED

        > cds ack
        store cds b=2 c=1

        store cds a=2
        < cds a=2
        """,
        kind=under(only("a")),
    )


def test_in_sotw_a_denied_name_is_missing_and_an_error():
    play(
        """
        store cds a=1 b=1; eds a=1 b=1
        > cds a b
        < cds a=1 !b[]=PERMISSION_DENIED

        > eds a b
        < eds a=1 !b[]=PERMISSION_DENIED

        > ack
        store cds b=2; eds b=2
        """,
        mode="sotw",
        kind=under(only("a")),
    )


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_clients_that_are_told_no_errors_find_a_denied_name_missing(mode: str):
    said = {"delta": "< cds a=1 -b", "sotw": "< cds a=1"}[mode]
    asked = {"delta": "> cds +a +b", "sotw": "> cds a b"}[mode]
    play(f"store cds a=1 b=1\n{asked}\n{said}", mode=mode, settings=QUIET, kind=under(only("a")))


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_wildcard_leaves_out_what_is_not_allowed(mode: str):
    # OPS-2
    removal = {"delta": "< cds -a2", "sotw": "< cds a1=2"}[mode]
    both = {"delta": "a1=2", "sotw": "a1=2 a2=1"}[mode]
    play(
        f"""
        store cds a1=1 a2=1 b=1
        > cds
        < cds a1=1 a2=1

        > cds ack
        store cds b=2 c=1

        store cds a1=2 b=3
        < cds {both}

        > cds ack
        store cds -a2 -b
        {removal}
        """,
        mode=mode,
        kind=under(only("a*")),
    )


def test_a_glob_collection_leaves_out_what_is_not_allowed():
    one, two = "xdstp://x/envoy.config.cluster.v3.Cluster/s/one", "xdstp://x/envoy.config.cluster.v3.Cluster/s/two"
    bench = Bench(kind=under(only("*/one")))
    bench.put(f"cds {one}=1 {two}=1")
    peer = bench.delta()
    peer.ask("cds +xdstp://x/envoy.config.cluster.v3.Cluster/s/*")
    assert peer.hears() == [f"cds {one}=1"]


def test_a_resource_that_is_not_allowed_does_not_answer_by_an_alias():
    play(
        """
        store cds b(a)=1
        > cds +a
        < cds -a
        """,
        kind=under(only("a*")),
    )


def test_a_type_that_is_not_allowed_is_denied_by_name_and_empty_as_a_wildcard():
    play(
        """
        store cds a=1; lds l=1; sds s=1
        > cds
        > lds
        > sds +s
        < cds a=1
        < sds -s !s[]=PERMISSION_DENIED
        < lds nothing
        """,
        kind=under(Grant("a rule", frozenset({CLUSTER}))),
    )


def test_secrets_are_not_allowed_unless_the_rule_says_so():
    play("store sds s=1\n> sds +s\n< sds -s !s[]=PERMISSION_DENIED", kind=under(Grant("a rule")))
    play("store sds s=1\n> sds +s\n< sds s=1", kind=under(Grant("a rule", frozenset({SECRET}))))


def test_a_client_that_no_rule_is_for_gets_nothing_and_its_stream_stays():
    bench = play(
        """
        store cds a=1
        > cds +a +*
        < cds -a !a[]=PERMISSION_DENIED

        store cds b=1
        """,
        kind=under(DENIED),
    )
    assert {fact.kind for fact in bench.said(Denied)} == {"client"}


# -- virtual hosts


def test_of_virtual_hosts_the_host_and_what_serves_it_must_be_allowed():
    play(
        """
        store rds main<on_demand>=1; vhds main/shop<shop.x>=1 main/bank<bank.x>=1 main/any<*.x>=1
        > vhds +main/shop.x +main/bank.x
        < vhds main/shop(main/shop.x)=1 ?main/bank.x !main/bank.x[]=PERMISSION_DENIED
        """,
        kind=under(only("main/shop*", word="vhds")),
    )


def test_a_host_is_served_by_what_the_client_may_have_of_those_that_serve_it():
    play(
        """
        store rds main<on_demand>=1; vhds main/bank<bank.x>=1 main/any<*.x>=1
        > vhds +main/bank.x +main/shop.x
        < vhds main/any(main/bank.x,main/shop.x)=1
        """,
        kind=under(only("main/any", "main/*.x", word="vhds")),
    )


def test_the_base_set_and_its_empty_answers_name_no_route_configuration_that_is_not_allowed():
    names = {resolve_type("vhds"): NameGlobs(["one/*"]), "*": NameGlobs(["one"])}
    play(
        """
        store rds one<on_demand>=1 two<on_demand>=1; vhds two/a<a.x>^=1
        > vhds
        < vhds -one/_
        """,
        kind=under(Grant("a rule", names=names)),
    )


# -- params


def test_a_pinned_param_decides_for_plain_clients_whatever_they_say():
    # DYN-44
    script = """
        store rds main[env=prod]=p main[env=test]=t main[env!=prod and env!=test]=n
        > rds +main
        < rds main=p
        """
    play(script, kind=under(claims(env=ParamRule(pin="prod"))))
    play(script, node={"env": "prod"}, kind=under(claims(env=ParamRule(pin="prod"))))


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_claim_in_node_metadata_that_is_not_allowed_is_denied(mode: str):
    # DYN-44
    asked, said = {"delta": ("+main", "-main "), "sotw": ("main", "")}[mode]
    play(
        f"""
        store rds main[env=prod]=p main[env=test]=t; cds a=1
        > rds {asked}
        < rds {said}!main[]=PERMISSION_DENIED

        > cds *
        < cds nothing
        """
        if mode == "sotw"
        else f"store rds main[env=prod]=p main[env=test]=t\n> rds {asked}\n< rds {said}!main[]=PERMISSION_DENIED",
        mode=mode,
        node={"env": "test"},
        kind=under(claims(env=ParamRule(pin="prod"))),
    )


@pytest.mark.parametrize(("env", "demanded"), [("prod", ["*"]), ("test", [])])
def test_nothing_is_fetched_for_a_wildcard_whose_claim_is_denied(env: str, demanded: list[str]):
    # DYN-44
    wanted: list[str] = []

    class Fetching:
        caches = False

        def want(self, type_url: str, name: str, params: Params, stream: int = 0) -> None:
            wanted.append(name)

        def unwant(self, type_url: str, name: str, params: Params) -> None:
            wanted.remove(name)

        def forgot(self, type_url: str, name: str, params: Params) -> None:
            raise AssertionError(name)

    bench = Bench(kind=under(claims(env=ParamRule(pin="prod"))))
    bench.interest = Interest(Fetching())
    bench.put("cds a[env=prod]=1")
    peer = bench.delta(env=env)
    peer.ask("cds +*")
    peer.poll()
    assert wanted == demanded
    peer.ask("cds -*")
    assert wanted == []


def test_a_key_of_the_metadata_that_the_rule_does_not_list_counts_as_absent():
    play(
        """
        store rds main[env=prod]=p main[env!=prod and env!=test]=n
        > rds +main
        < rds main=n
        """,
        node={"env": "prod"},
        kind=under(claims()),
    )


def test_a_locator_may_say_what_is_allowed_and_is_denied_otherwise():
    # DYN-44
    play(
        """
        store rds main[env=prod]=p main[env=test]=t
        > rds +main{env=prod} +main{env=test}
        < rds main[env=prod]=p -main[env=test] !main[env=test]=PERMISSION_DENIED
        """,
        kind=under(claims(env=ParamRule(allow=frozenset({"prod"})))),
    )


def test_a_key_of_a_locator_that_the_rule_does_not_list_is_denied_where_variants_mention_it_and_ignored_elsewhere():
    play(
        """
        store rds main[env=prod]=p main[env=test]=t; rds other=o
        > rds +main{env=test} +other{env=test}
        < rds other[]=o -main[env=test] !main[env=test]=PERMISSION_DENIED

        > rds ack
        store rds main=1
        < rds main[]=1
        """,
        kind=under(claims()),
    )


def test_no_variant_that_the_client_may_not_claim_is_named_in_a_negative_answer():
    bench = Bench(kind=under(claims(env=ParamRule(allow=frozenset({"prod"})))))
    bench.put("rds main[env=secret and tier=gold]=p")
    peer = bench.delta()
    peer.ask("rds +main{env=test}")
    (send,) = peer.poll()
    assert "tier" not in str(send)
    assert "secret" not in str(send)


# -- what is shared


def test_streams_of_one_grant_share_their_responses_and_those_of_all_names_share_with_everybody():
    grants = {"one": only("a*"), "two": only("a*"), "all": claims()}
    bench = Bench(kind=partial(Stream, grant_of=lambda node: grants.get(node.metadata["who"])))
    bench.put("cds a1=1 b1=1")
    peers = {who: bench.delta(who=who) for who in ("one", "two", "all", "none")}
    for peer in peers.values():
        peer.ask("cds")
    sends = {who: peer.poll()[0] for who, peer in peers.items()}
    assert sends["one"] is sends["two"]
    assert sends["all"] is sends["none"]
    assert sends["one"].names == ("a1",)


def test_a_part_is_dropped_with_its_last_stream():
    bench = Bench(kind=under(only("a*")))
    bench.put("cds a1=1")
    peer = bench.delta()
    peer.ask("cds")
    peer.poll()
    part = peer.session("cds").table
    assert part is not bench.store.table(CLUSTER)
    peer.close()
    assert bench.store.allowed(CLUSTER, NameGlobs(["a*"])) is not part
    assert bench.left_behind() == {}


def test_a_large_transaction_reaches_a_part():
    bench = Bench(kind=under(only("a*")))
    peer = bench.sotw()
    peer.ask("cds *")
    peer.poll()
    bench.put("cds " + " ".join(f"a{number}=1 b{number}=1" for number in range(800)))
    peer.ask("cds ack")
    (send,) = peer.poll()
    assert sorted(send.names) == sorted(f"a{number}" for number in range(800))


# -- a policy that changes


class Changing:
    """A bench whose policy changes."""

    def __init__(self, grant: Grant | None, settings: Settings | None = None) -> None:
        self.grant = grant
        self.bench = Bench(settings or Settings(), kind=partial(Stream, grant_of=self.grant_of))

    def grant_of(self, _: Node) -> Grant | None:
        return self.grant

    def change(self, peer: Peer, grant: Grant | None) -> bool:
        self.grant = grant
        return peer.stream.regrant()


@pytest.mark.parametrize("first", [None, claims()])
def test_what_is_no_longer_allowed_is_withdrawn_and_what_is_now_allowed_is_sent(first: Grant | None):
    world = Changing(first)
    world.bench.put("eds a=1 b=1 c=1")
    peer = world.bench.delta()
    peer.ask("eds +a +b")
    assert peer.hears() == ["eds a=1 b=1"]
    peer.ask("ack")
    assert world.change(peer, only("a", "c"))
    assert peer.hears() == ["eds -b"]
    peer.ask("ack")
    world.bench.put("eds b=2")
    assert peer.hears() == []
    world.change(peer, only("b"))
    assert peer.hears() == ["eds -a b=2"]
    peer.ask("ack")
    world.change(peer, first)
    assert peer.hears() == ["eds a=1"]


@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_wildcard_takes_another_policy_also_while_it_is_behind(mode: str):
    world = Changing(only("a*"))
    world.bench.put("cds a1=1 a2=1 b1=1 b2=1")
    peer = world.bench.delta() if mode == "delta" else world.bench.sotw()
    peer.ask("cds" if mode == "delta" else "cds *")
    assert peer.hears() == ["cds a1=1 a2=1"]
    peer.ask("ack")
    world.bench.put("cds a1=2 -a2 a3=3 b1=2")  # the client was not sent this when the policy changes
    world.change(peer, only("a1", "b*"))
    heard = peer.hears()
    assert heard == (["cds -a2 a1=2 b1=2 b2=1"] if mode == "delta" else ["cds a1=2 b1=2 b2=1"])
    peer.ask("ack")
    world.bench.put("cds b1=3 a3=4")
    assert peer.hears() == (["cds b1=3"] if mode == "delta" else ["cds a1=2 b1=3 b2=1"])


def test_removals_by_a_policy_wait_for_what_refers_to_them():
    # ORD-2: the listener that uses the cluster goes first
    world = Changing(None)
    world.bench.put("cds a=1; lds l=1>cds.a")
    peer = world.bench.delta()
    peer.ask("cds")
    peer.ask("lds")
    assert peer.hears() == ["cds a=1", "lds l=1>cds.a"]
    peer.ask("ack")
    world.change(peer, DENIED)
    assert peer.hears() == ["lds -l"]
    peer.ask("ack")
    world.bench.now += 10
    assert peer.hears() == ["cds -a"]


def test_another_claim_gets_another_variant_on_the_open_stream():
    world = Changing(claims(env=ParamRule(pin="prod")))
    world.bench.put("rds main[env=prod]=p main[env=test]=t")
    peer = world.bench.delta(env="prod")
    peer.ask("rds +main")
    assert peer.hears() == ["rds main=p"]
    peer.ask("ack")
    world.change(peer, claims(env=ParamRule(pin="test")))
    assert peer.hears() == ["rds -main"]  # the client claims prod, which is not allowed any more
    peer.ask("ack")
    world.change(peer, claims())
    assert peer.hears() == []
    world.change(peer, claims(env=ParamRule()))
    assert peer.hears() == ["rds main=p"]


def test_an_equal_grant_of_another_policy_changes_nothing():
    world = Changing(only("a"))
    world.bench.put("cds a=1")
    peer = world.bench.delta()
    peer.ask("cds +a")
    peer.poll()
    assert not world.change(peer, only("a"))
    assert peer.hears() == []


def test_no_nonce_repeats_however_the_policy_changes():
    # SRV-8; `Peer.poll` checks every response
    world = Changing(None)
    world.bench.put("cds a=1 b=1")
    peer = world.bench.delta()
    peer.ask("cds")
    grants = [only("a"), only("b"), None, only("*b"), only("a"), claims(), None, only("b")]
    for number, grant in enumerate(grants * 3):
        peer.poll()
        peer.ask("ack")
        world.change(peer, grant)
        peer.poll()
        world.bench.put(f"cds a={number}.0 b={number}.0")
        peer.poll()
        world.bench.put(f"cds a={number}.1 b={number}.1")
    assert len(peer.heard[CLUSTER]) > len(grants)


def test_denials_are_facts_that_are_counted_by_kind():
    bench = Bench(kind=under(only("a", params={"env": ParamRule(pin="prod")})))
    bench.put("cds a=1")
    peer = bench.delta()
    peer.ask("cds +a{env=x} +b +c")
    peer.poll()
    assert sorted((fact.kind, fact.count, fact.rule) for fact in bench.said(Denied)) == [
        ("name", 2, "a rule"),
        ("param", 1, "a rule"),
    ]
    assert peer.stream.context.budget.denied == {"name": 2, "param": 1}
    assert peer.stream.context.params == Params({"env": "prod"})


def test_a_part_that_no_stream_reads_after_a_change_is_dropped():
    world = Changing(only("a"))
    world.bench.put("cds a=1 b=1")
    peer = world.bench.delta()
    peer.ask("cds")
    peer.poll()
    part = peer.session("cds").table
    world.change(peer, only("b"))
    peer.poll()
    assert world.bench.store.allowed(CLUSTER, NameGlobs(["a"])) is not part
    other = peer.session("cds").table
    peer.close()
    assert (part.sessions, other.sessions) == (0, 0)


def test_two_policies_before_a_poll_are_as_one():
    world = Changing(only("a"))
    world.bench.put("cds a=1 b=1 c=1")
    peer = world.bench.delta()
    peer.ask("cds")
    assert peer.hears() == ["cds a=1"]
    peer.ask("ack")
    world.change(peer, only("b"))
    peer.ask("cds +c")  # a request takes the first one, before the second is there
    world.change(peer, only("c"))
    assert peer.hears() == ["cds -a c=1"]


def test_a_member_that_is_subscribed_by_name_while_the_policy_changes_is_removed_once():
    world = Changing(only("b"))
    world.bench.put("cds b=1")
    peer = world.bench.delta()
    peer.ask("cds")
    assert peer.hears() == ["cds b=1"]
    peer.ask("ack")
    world.change(peer, only("a"))
    peer.ask("cds +b")
    assert peer.hears() == ["cds -b"]
    peer.ask("ack")
    assert peer.hears() == []


def test_a_client_whose_claim_is_denied_hears_of_no_route_configuration():
    play(
        """
        store rds main<on_demand>=1; vhds main/a<a.x>=1
        > vhds
        < vhds nothing
        """,
        node={"env": "test"},
        kind=under(claims(env=ParamRule(pin="prod"))),
    )


def test_denied_names_past_what_is_remembered_are_denied_all_the_same():
    # VHD-25
    names = [f"b{number}" for number in range(6)]
    bench = Bench(Settings(limits=Limits(unresolved=2)), kind=under(only("a")))
    bench.put("cds " + " ".join(f"{name}=1" for name in names))
    peer = bench.delta()
    peer.ask("cds " + " ".join(f"+{name}" for name in names))
    (send,) = peer.poll()
    assert sorted(error.about.name for error in send.errors) == names
    assert {error.code for error in send.errors} == {7}
    assert sorted(send.removed) == names


def test_a_name_that_was_forgotten_while_it_was_denied_is_sent_when_the_policy_allows_it():
    # VHD-25, OPS-2
    world = Changing(only("a*"), Settings(limits=Limits(unresolved=2)))
    peer = world.bench.delta()
    peer.ask("cds " + " ".join(f"+b{number}" for number in range(6)))
    peer.poll()
    peer.ask("cds ack")
    session = peer.session("cds")
    assert len(session.subscriptions) == 2
    world.bench.put("cds b1=1 b5=1 c=1")
    assert peer.hears() == []
    assert len(session.subscriptions) == 2, "what is denied is no reason to remember a name again"
    world.change(peer, only("b*"))
    assert peer.hears() == ["cds b1=1 b5=1"]


@pytest.mark.parametrize("number", [1, 700])
def test_the_version_of_an_absent_host_does_not_tell_how_many_streams_there_were(number: int):
    # VHD-7, OPS-2
    bench = Bench(Settings(epoch="e"))
    for _ in range(number):
        peer = bench.delta()
    bench.put("rds main<on_demand>=1")
    peer.ask("vhds +main/a.x")
    (send,) = peer.poll()
    assert str(number) not in send.absent.partition(send.nonce)[0].split(".")


def test_a_part_of_many_names_is_made_in_steps_and_again_if_the_type_changes_meanwhile():
    bench = Bench(kind=under(only("a*")))
    bench.put("cds " + " ".join(f"a{number}=1 b{number}=1" for number in range(1500)))
    store, names = bench.store, NameGlobs(["a*"])
    request = Request(CLUSTER, DeltaRequest(), Node("n"))
    assert bench.delta().stream.weight(request) == 3000
    steps = store.allowing(CLUSTER, names)
    next(steps)
    bench.put("cds -a1")  # between two steps
    assert not store.has_allowed(CLUSTER, names)
    finish(steps)
    assert store.has_allowed(CLUSTER, names)
    assert len(store.allowed(CLUSTER, names)) == 1499
    assert bench.delta().stream.weight(request) == 0
    bench.put("cds -a2")
    assert len(store.allowed(CLUSTER, names)) == 1498
