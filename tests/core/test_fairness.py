"""Subscriptions, types and groups at once: whoever wants no more than its share of each is always served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from random import Random
from typing import Any

import pytest

from tests.support.carrying import Carrying
from xdsprism.core.model.events import Key
from xdsprism.core.model.facts import Fact, ShareExceeded
from xdsprism.core.model.limits import Client, Scarce
from xdsprism.core.model.steps import Steps, finish
from xdsprism.core.model.types import ENDPOINT, Params
from xdsprism.core.relay.fairness import Competitors, Fairness
from xdsprism.core.relay.upstream_subscription import UpstreamSubscription
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Entry
from xdsprism.core.watch.query_params import is_crowded

Question = tuple[tuple[str, str], Params]  # what is asked: a name of a type, with params

SERVERS: Any = (object(),)
GREEDY, MODEST = ("10.0.0.1", "greedy"), ("10.0.0.2", "modest")


def question(type_url: str, name: str = "a", env: str | None = None) -> Question:
    return (type_url, name), Params({"env": env} if env is not None else {})


class World:
    """A feed with so much room, and clients that want something of it."""

    def __init__(self, subscriptions: int = 100, types: int = 100, groups: int = 100) -> None:
        self.rooms = {Scarce.SUBSCRIPTIONS: subscriptions, Scarce.TYPES: types, Scarce.GROUPS: groups}
        self.held: dict[Entry, Question] = {}
        self.asked: dict[Question, UpstreamSubscription] = {}
        self.wants: dict[Client, dict[Question, None]] = {}
        self._numbers: dict[int, Client] = {}
        self.facts: list[Fact] = []
        self.spare: list[Entry] = []  # what takes room though no client needs it
        competitors = Competitors(self._numbers.get, self._wanting, self._group, self._let_go)
        self.fairness = Fairness(self, competitors, self._give_way, self.facts)

    def _wanting(self, subscription: UpstreamSubscription) -> Iterator[Client]:
        return self._who_wants((subscription.subject, subscription.params))

    def _who_wants(self, question: Question) -> Iterator[Client]:
        return (client for client, wanted in self.wants.items() if question in wanted)

    def _group(self, params: Params) -> Hashable:
        return params.get("env")

    def _let_go(self) -> Steps[bool]:
        yield
        gone = [self.held.pop(entry) for entry in self.spare]
        self.spare.clear()
        return bool(gone)

    def used(self) -> dict[Scarce, int]:
        questions = [*self.held.values()]
        pools = Counter(self._group(params) for _, params in questions)
        return {
            Scarce.SUBSCRIPTIONS: max(pools.values(), default=0),
            Scarce.TYPES: len({type_url for (type_url, _), _ in questions if type_url != ENDPOINT}),
            Scarce.GROUPS: len({*pools} - {None}),
        }

    # -- UpstreamFeed

    def subscribe(self, type_url: str, name: str, params: Params) -> Carrying | Scarce:
        entry = Entry(type_url, Key(name, params), Authority("", SERVERS), [])
        self.held[entry] = (type_url, name), params
        for kind in (Scarce.GROUPS, Scarce.TYPES, Scarce.SUBSCRIPTIONS):
            if self.used()[kind] > self.rooms[kind]:
                del self.held[entry]
                return kind
        return Carrying(entry, self.held.pop)

    def pin(self, _: Entry) -> None: ...

    # -- what a relay does

    def _give_way(self, subscription: UpstreamSubscription, refused: Entry) -> None:
        self._end(subscription)
        subscription.entry, subscription.carrier = refused, None

    def ask(self, question: Question) -> None:
        made = self.asked[question] = UpstreamSubscription(*question)
        finish(self.fairness.subscribe(made, question[1]))

    def _end(self, subscription: UpstreamSubscription) -> None:
        self.fairness.leave(subscription)
        if subscription.carrier is not None:
            subscription.carrier.end()

    def want(self, client: Client, question: Question) -> None:
        self._numbers[len(self._numbers)] = client
        self.wants.setdefault(client, {})[question] = None
        self.fairness.note_wanted(*question, len(self._numbers) - 1, self.asked.get(question))
        if question not in self.asked:
            self.ask(question)
        self.flush()

    def unwant(self, client: Client, question: Question, *, lingers: bool = False) -> None:
        del self.wants[client][question]
        self.fairness.note_unwanted(self.asked[question])
        lingers = lingers and not is_crowded(self.asked[question].entry)
        if not lingers and not any(self._who_wants(question)):
            self._end(self.asked.pop(question))
        self.flush()

    def flush(self) -> None:
        asked: Counter[Question] = Counter()
        while again := self.fairness.again(3):
            for each in again:
                question = each.subject, each.params
                if self.asked.get(question) is each:
                    self._end(self.asked.pop(question))
                    asked[question] += 1
                    assert asked[question] == 1  # so it comes to rest
                    self.ask(question)
        self.fairness.end_turn()

    def lacks(self, client: Client) -> list[Question]:
        return [each for each in self.wants.get(client, ()) if is_crowded(self.asked[each].entry)]


KINDS = {
    Scarce.SUBSCRIPTIONS: lambda whose, number: question(ENDPOINT, f"{whose}{number}"),
    Scarce.TYPES: lambda whose, number: question(f"acme.{whose}{number}"),
    Scarce.GROUPS: lambda whose, number: question(ENDPOINT, env=f"{whose}{number}"),
}


@pytest.mark.parametrize("kind", [*Scarce], ids=lambda kind: kind.value)
def test_the_client_with_the_most_gives_way_with_what_it_got_last_and_that_is_a_fact(kind: Scarce) -> None:
    # PRX-35
    world = World(**{kind.value: 6})
    for number in range(8):
        world.want(GREEDY, KINDS[kind]("mine", number))
    assert world.facts == [ShareExceeded(kind, GREEDY, gave_way=False, count=1)] * 2  # one each turn
    world.facts.clear()
    for number in range(2):
        world.want(MODEST, KINDS[kind]("other", number))
    assert world.lacks(MODEST) == []
    assert world.lacks(GREEDY) == [KINDS[kind]("mine", number) for number in (4, 5, 6, 7)]
    assert world.facts == [ShareExceeded(kind, GREEDY, gave_way=True, count=1)] * 2
    assert world.fairness.room(kind) == (6, 4, 2)


def test_a_type_is_free_when_none_of_its_names_is_asked_and_then_what_waits_has_it() -> None:
    # PRX-35
    world = World(types=1)
    for name in ("a", "b"):
        world.want(GREEDY, question("acme.One", name))
    for name in ("a", "b"):
        world.want(GREEDY, question("acme.Two", name))
    world.unwant(GREEDY, question("acme.One", "a"))
    assert len(world.lacks(GREEDY)) == 2
    world.unwant(GREEDY, question("acme.One", "b"))
    assert world.lacks(GREEDY) == []


def test_a_waiting_subscription_is_sent_when_its_type_gets_a_stream() -> None:
    # PRX-35
    world = World(types=2)
    for number in range(3):
        world.want(GREEDY, question(f"acme.Type{number}"))
    assert world.lacks(GREEDY) == [question("acme.Type2")]
    world.want(MODEST, question("acme.Type2", "b"))
    assert world.lacks(MODEST) == []
    assert world.lacks(GREEDY) == [question("acme.Type1")]


def test_a_subscription_that_gave_way_in_vain_gets_its_room_back() -> None:
    # PRX-35: there is room for its type then, and none for its subscription
    world = World(subscriptions=4, types=3)
    for number in range(3):
        world.want(GREEDY, question(f"acme.Type{number}", env="g"))
    world.want(("10.0.0.3", "x"), question(ENDPOINT, "a"))
    for number in range(4):
        world.want(MODEST, question(ENDPOINT, f"mine{number}", env="m"))
    world.want(MODEST, question("acme.New", env="m"))
    assert world.lacks(MODEST) == [question("acme.New", env="m")]
    assert world.lacks(GREEDY) == []


def test_if_there_is_no_room_after_one_subscription_gave_way_no_other_has_to() -> None:
    # PRX-35: a server may take fewer than it did
    world = World(subscriptions=6)
    for number in range(6):
        world.want(GREEDY, question(ENDPOINT, f"mine{number}"))
    world.rooms[Scarce.SUBSCRIPTIONS] = 2
    world.want(MODEST, question(ENDPOINT, "other"))
    assert len(world.lacks(MODEST)) == 1
    assert len(world.held) == 5


def test_subscriptions_past_a_share_are_one_fact_each_turn() -> None:
    # PRX-35, OPS-15: a client can ask for very much at once
    world = World(subscriptions=5)
    world.wants[GREEDY] = {question(ENDPOINT, f"n{number}"): None for number in range(50)}
    for each in world.wants[GREEDY]:
        world.ask(each)
    world.fairness.end_turn()
    assert world.facts == [ShareExceeded(Scarce.SUBSCRIPTIONS, GREEDY, gave_way=False, count=45)]


def test_a_subscription_that_no_client_needs_gives_way_first() -> None:
    # PRX-35
    world = World(subscriptions=3)
    for number in range(2):
        world.want(GREEDY, question(ENDPOINT, f"mine{number}"))
    taken = world.subscribe(ENDPOINT, "spare", Params({}))
    assert isinstance(taken, Carrying)
    world.spare.append(taken.entry)
    world.want(MODEST, question(ENDPOINT, "other"))
    assert (world.lacks(GREEDY), world.lacks(MODEST), world.facts) == ([], [], [])


@pytest.mark.parametrize("seed", range(30))
def test_modest_clients_always_have_their_share_of_everything(seed: int) -> None:
    # PRX-35
    random = Random(seed)
    rooms = {"subscriptions": 12, "types": 6, "groups": 6}
    world = World(**rooms)
    clients = [(f"10.0.0.{number}", "node") for number in range(3)]
    greedy = random.choice(clients)

    def any_question(client: Client) -> Question:
        """A modest one has two types, two groups, and no more than three names of each of these."""
        many = client == greedy
        types = [ENDPOINT, *(f"acme.{client[0]}-{number}" for number in range(20 if many else 2))]
        groups = [f"{client[0]}-{number}" for number in range(20 if many else 2)]
        return question(random.choice(types), f"n{random.randrange(40 if many else 1)}", random.choice(groups))

    for _ in range(200):
        client = random.choice(clients)
        wanted = world.wants.setdefault(client, {})
        if wanted and random.random() < 0.3:
            world.unwant(client, random.choice([*wanted]), lingers=random.random() < 0.5)
        else:
            world.want(client, any_question(client))
        assert all(world.used()[kind] <= rooms[kind.value] for kind in Scarce)
        assert [world.lacks(each) for each in clients if each != greedy] == [[], []]
        for each, made in world.asked.items():
            assert is_crowded(made.entry) != (made.entry in world.held), each
            assert made.has_room == (made.entry in world.held)
        assert world.fairness.room(Scarce.SUBSCRIPTIONS).taken == len(world.held)
        assert world.fairness.room(Scarce.TYPES).taken == world.used()[Scarce.TYPES]
        assert world.fairness.room(Scarce.GROUPS).taken == world.used()[Scarce.GROUPS]
