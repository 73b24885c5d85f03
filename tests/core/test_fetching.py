"""A fetch: one request and one response, at once or after a wait for a change."""

from __future__ import annotations

import pytest

from tests.core.making import MadeBench
from tests.core.support import Bench, shown
from xdsprism.core.model.events import Key, Node, Rejection, Request, Send, SotwRequest
from xdsprism.core.model.facts import Facts, Joined, Nacked, Requested, Sent, Suppressed
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.types import CLUSTER, SECRET, Params, TypeUrl
from xdsprism.core.serve.fetching import ANSWER, NOTHING, UNCHANGED, Fetch, Patience, Unchanged
from xdsprism.core.serve.stream import Stream
from xdsprism.errors import PeerError

A: Key = Key("a")
B: Key = Key("b")


class Asker:
    """Somebody with one question."""

    def __init__(self, bench: Bench, type_url: TypeUrl = SECRET, **metadata: str) -> None:
        self.bench = bench
        facts = Facts()
        stream = Stream(1, bench.store, bench.interest, bench.settings, facts, delta=False, only_type=type_url)
        self.stream = stream
        self.fetch = Fetch(stream, facts, type_url)
        self._node = Node("me", metadata=Params(metadata))

    def ask(
        self,
        *wanted: Key,
        version: str = "",
        refused: str = "",
        hold: float | None = 30.0,
        answer: float = ANSWER,
    ) -> Send | Unchanged | None:
        error = Rejection(3, "bad") if refused else None
        request = Request("", SotwRequest(wanted, version, refused, error), self._node)
        now = self.bench.now
        patience = Patience(now + hold, now + answer) if hold is not None else None
        self.fetch.receive(request, now, patience)
        return self.poll()

    def poll(self) -> Send | Unchanged | None:
        return self.fetch.poll(self.bench.now)

    def state(self, type_url: TypeUrl) -> str:
        return self.stream.sessions[type_url].progress.state

    def told(self) -> list[str]:
        return [type(fact).__name__ for fact in self.fetch.reported_facts]


def said(answer: Send | Unchanged | None) -> str:
    assert isinstance(answer, Send)
    return shown(answer)


def version_of(bench: Bench, *wanted: Key, type_url: TypeUrl = SECRET) -> str:
    answer = Asker(bench, type_url).ask(*wanted, hold=None)
    assert isinstance(answer, Send)
    return answer.version


# RST-1
def test_a_question_is_answered_at_once_with_all_that_was_asked_for():
    bench = Bench()
    bench.put("sds a=1 b=1 c=1")
    asker = Asker(bench)
    answer = asker.ask(A, B)
    assert said(answer) == "sds a=1 b=1"
    assert isinstance(answer, Send)
    assert answer.nonce == answer.version
    assert asker.told() == ["Joined", "Requested", "Sent"]


# RST-2
def test_a_fetch_with_the_newest_version_waits_for_a_change_and_gets_all_names():
    bench = Bench()
    bench.put("sds a=1 b=1")
    asker = Asker(bench)
    assert asker.ask(A, B, version=version_of(bench, A, B)) is None
    assert asker.fetch.is_held
    assert asker.state(SECRET) == "SYNCED"
    assert asker.fetch.deadline() == bench.now + 30
    bench.put("sds c=1")
    assert asker.poll() is None
    bench.put("sds b=2")
    assert said(asker.poll()) == "sds a=1 b=2"
    assert asker.told() == ["Joined", "Requested", "Sent"]


# RST-2: in a stream of this type nobody would be told of that (SOT-7)
def test_a_fetch_that_waits_is_answered_when_a_resource_is_gone():
    bench = Bench()
    bench.put("sds a=1 b=1")
    asker = Asker(bench)
    assert asker.ask(A, B, version=version_of(bench, A, B)) is None
    bench.put("sds -b")
    assert said(asker.poll()) == "sds a=1"


# RST-2
def test_a_fetch_that_waits_in_vain_is_answered_as_unchanged():
    bench = Bench()
    bench.put("cds a=1 b=1")
    asker = Asker(bench, CLUSTER)
    assert asker.ask(version=version_of(bench, type_url=CLUSTER)) is None
    bench.now += 29.9
    assert asker.poll() is None
    bench.now += 0.1
    assert asker.poll() is UNCHANGED
    assert asker.fetch.reported_facts[-1] == Suppressed(1, CLUSTER, 2)
    assert "Sent" not in asker.told()


def test_without_patience_the_answer_is_whole_whatever_the_client_has():
    bench = Bench()
    bench.put("cds a=1")
    version = version_of(bench, type_url=CLUSTER)
    assert said(Asker(bench, CLUSTER).ask(version=version, hold=None)) == "cds a=1"


# RST-4, NAK-3
def test_a_version_that_a_fetch_nacks_is_not_sent_again_until_it_changes():
    bench = Bench()
    bench.put("cds a=1")
    good = version_of(bench, type_url=CLUSTER)
    bench.put("cds a=2")
    bad = version_of(bench, type_url=CLUSTER)
    asker = Asker(bench, CLUSTER)
    assert asker.ask(version=good, refused=bad) is None
    assert Nacked(1, CLUSTER, bad, bad, Rejection(3, "bad")) in asker.fetch.reported_facts
    assert asker.state(CLUSTER) == "NACKED"
    bench.put("cds a=3")
    assert said(asker.poll()) == "cds a=3"


# RST-4: it is the nonce of what was refused that says what it was
def test_a_fetch_that_nacks_an_older_version_is_answered_at_once():
    bench = Bench()
    bench.put("cds a=1")
    assert said(Asker(bench, CLUSTER).ask(version="old", refused="older")) == "cds a=1"


def test_a_fetch_of_an_absent_name_is_answered_empty_and_the_next_one_waits():
    bench = Bench()
    answer = Asker(bench).ask(A)
    assert answer == Send(SECRET, delta=False, nonce=NOTHING, version=NOTHING)
    asker = Asker(bench)
    assert asker.ask(A, version=NOTHING) is None
    bench.put("sds a=1")
    assert said(asker.poll()) == "sds a=1"


# DYN-15
def test_one_answer_can_not_have_a_name_in_both_forms():
    bench = Bench()
    bench.put("sds a=1")
    with pytest.raises(PeerError, match="both as a plain name and as a locator") as caught:
        Asker(bench).ask(A, Key("a", Params()))
    assert caught.value.status == "INVALID_ARGUMENT"


# RST-4
def test_locators_are_answered_with_constraints_and_with_what_there_is_not():
    bench = Bench()
    bench.put("sds a[env=prod]=1")
    answer = Asker(bench).ask(Key("a", Params({"env": "prod"})), Key("b", Params({"env": "test"})))
    assert said(answer) == "sds !b[]=NOT_FOUND a[env=prod]=1"


def test_a_fetch_does_nothing_before_its_request_and_hurrying_it_ends_its_wait():
    bench = Bench()
    bench.put("cds a=1")
    asker = Asker(bench, CLUSTER)
    assert (asker.poll(), asker.fetch.deadline(), asker.fetch.is_asked) == (None, None, False)
    assert asker.ask(version=version_of(bench, type_url=CLUSTER)) is None
    asker.fetch.hurry(bench.now)
    assert asker.poll() is UNCHANGED


# -- what is not known at once (a relay, a provider)


def made(name: str, _: object) -> str | None:
    return "1" if name == "a" else None


# PRX-11
def test_a_fetch_waits_for_an_answer_that_is_not_known_yet():
    bench = MadeBench(made, type_url=SECRET)
    asker = Asker(bench)
    assert asker.ask(A) is None
    assert not asker.fetch.is_held
    bench.run()
    assert said(asker.poll()) == "sds a=1"


# PRX-11: a wildcard lists what was written, and a provider is asked for no name of it
def test_a_fetch_of_everything_does_not_wait_for_a_provider():
    bench = MadeBench(made, type_url=SECRET)
    bench.put("sds b=1")
    assert said(Asker(bench).ask(Key("*"))) == "sds b=1"


# XTP-8, XTP-9: no provider or server is asked for it, so there is nothing to wait for
@pytest.mark.parametrize("name", ["xdstp://x/%zz", "xdstp://x/envoy.config.cluster.v3.Cluster/a"])
def test_a_name_that_nothing_can_have_is_answered_at_once(name: str):
    asker = Asker(MadeBench(made, type_url=SECRET))
    assert said(asker.ask(Key(name))) == f"sds !{name}[]=INVALID_ARGUMENT"


# PRX-11
def test_a_fetch_waits_until_all_of_its_names_are_known():
    bench = MadeBench(made, type_url=SECRET)
    first = Asker(bench)
    first.ask(A)
    bench.run()
    asker = Asker(bench)
    assert asker.ask(A, B) is None
    bench.run()
    assert said(asker.poll()) == "sds a=1"


# PRX-11
def test_after_a_while_a_part_is_better_than_nothing():
    bench = MadeBench(made, type_url=SECRET)
    first = Asker(bench)
    first.ask(A)
    bench.run()
    asker = Asker(bench)
    assert asker.ask(A, B) is None
    bench.now += ANSWER
    assert said(asker.poll()) == "sds a=1"


# PRX-11: an empty answer would read as if there were nothing
def test_a_fetch_of_a_name_that_stays_unknown_is_unavailable():
    bench = MadeBench(made, type_url=SECRET)
    asker = Asker(bench)
    assert asker.ask(A, answer=2.0) is None
    assert asker.fetch.deadline() == bench.now + 2
    bench.now += 2.0
    with pytest.raises(PeerError, match="not known yet") as caught:
        asker.poll()
    assert caught.value.status == "UNAVAILABLE"


# PRX-11
def test_a_fetch_with_a_version_that_is_not_known_any_more_is_unchanged():
    bench = MadeBench(made, type_url=SECRET)
    first = Asker(bench)
    first.ask(A)
    bench.run()
    known = first.poll()
    assert isinstance(known, Send)
    asker = Asker(bench)
    assert asker.ask(A, version=known.version) is None
    bench.store.table(SECRET)._sets.clear()  # noqa: SLF001 # as a cache that has to ask for each client anew
    assert asker.poll() is None
    assert not asker.fetch.is_held
    assert asker.fetch.deadline() == bench.now + 30
    bench.now += 30
    assert asker.poll() is UNCHANGED


def test_only_what_was_said_counts_as_said():
    bench = Bench()
    bench.put("sds a=1")
    asker = Asker(bench)
    asker.ask(A, version=version_of(bench, A))
    for body in (2, 3):
        bench.put(f"sds a={body}")
    asker.poll()
    counted = [type(fact) for fact in asker.fetch.reported_facts]
    assert [counted.count(kind) for kind in (Joined, Requested, Sent)] == [1, 1, 1]


# DYN-48, PRX-11: what is not known yet is waited for with the params that the subscription has
def test_a_question_without_params_waits_for_what_the_defaults_get():
    settings = Settings(default_params={None: Params({"env": "prod"})})
    bench = MadeBench(lambda _, params: "gold" if params["env"] == "prod" else None, "env", settings=settings)
    asker = Asker(bench, CLUSTER)
    assert asker.ask(A) is None
    bench.run()
    assert said(asker.poll()) == "cds a=gold"
