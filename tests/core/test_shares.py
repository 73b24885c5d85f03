"""A greedy client and modest ones, as a model: whoever wants no more than its share is always served."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random

import pytest

from xdsprism.core.model.limits import Client
from xdsprism.core.model.steps import Steps, finish
from xdsprism.core.relay.shares import Ranking, Shares

ROOM = 12


class Named:
    """A thing that has a name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_room = False
        self.owner: Client | None = None


class Model:
    """So many subscriptions, and who wants which."""

    def __init__(self, room: int = ROOM) -> None:
        self.wants: dict[Client, dict[str, None]] = {}
        self.served: dict[str, Named] = {}
        self.gave_way: list[tuple[str, set[Client]]] = []
        self._room = room
        self._shares: Shares[Named] = Shares(self._find_wanting)

    def _find_wanting(self, thing: Named) -> Steps[list[Client]]:
        yield
        return [*self.wanting(thing.name)]

    def wanting(self, name: str) -> Iterator[Client]:
        return (client for client, names in self.wants.items() if name in names)

    def want(self, client: Client, name: str) -> None:
        self.wants.setdefault(client, {})[name] = None
        if name in self.served:
            return
        asker: Client | None = client
        if len(self.served) == self._room:
            newcomers = [*self.wanting(name)]
            loser = finish(self._shares.gives_way(newcomers))
            asker = self._shares.with_least(newcomers)
            if loser is None:
                return
            self.gave_way.append((loser.name, {*self.wanting(loser.name)}))
            self._drop(loser.name)
        thing = self.served[name] = Named(name)
        self._shares.take(thing, asker)

    def unwant(self, client: Client, name: str, *, lingers: bool) -> None:
        self.wants[client].pop(name)
        if name in self.served:
            self._shares.note_unwanted(self.served[name])
            if not lingers and not any(self.wanting(name)):
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._shares.leave(self.served.pop(name))

    def lacks(self, client: Client) -> set[str]:
        return {*self.wants.get(client, ())} - self.served.keys()


GREEDY, MODEST = ("10.0.0.1", "greedy"), [(f"10.0.1.{number}", "modest") for number in range(3)]


@pytest.mark.parametrize("order", [*permutations(range(4))])
@pytest.mark.parametrize("turns", [1, 3])
def test_a_modest_client_is_served_in_any_order_of_arrival(order: tuple[int, ...], turns: int) -> None:
    # PRX-35: all at once, or in turns
    model = Model()
    names = {client: [f"{client}-{number}" for number in range(3)] for client in MODEST}
    names[GREEDY] = [f"mine-{number}" for number in range(100)]
    clients = [[*MODEST, GREEDY][each] for each in order]
    for turn in range(turns):
        for client in clients:
            for name in names[client][turn::turns]:
                model.want(client, name)
    assert [model.lacks(client) for client in MODEST] == [set()] * 3
    assert len(model.served) == ROOM
    assert all(wanting <= {GREEDY} for _, wanting in model.gave_way)  # nobody lost anything to another


def test_the_client_with_the_most_loses_what_it_got_last() -> None:
    # PRX-35
    model = Model()
    for number in range(ROOM):
        model.want(GREEDY, f"mine-{number}")
    for number in range(3):
        model.want(MODEST[0], f"other-{number}")
    assert [name for name, _ in model.gave_way] == ["mine-11", "mine-10", "mine-9"]


def test_a_name_that_several_clients_want_does_not_give_way() -> None:
    # PRX-35
    model = Model()
    for number in range(ROOM):
        model.want(GREEDY, f"name-{number}")
    model.want(MODEST[0], "name-11")
    model.want(MODEST[1], "name-10")
    model.want(MODEST[2], "new")
    assert [name for name, _ in model.gave_way] == ["name-9"]


def test_two_who_are_greedy_together_do_not_protect_each_other() -> None:
    # PRX-35
    model = Model()
    for number in range(ROOM):
        model.want(GREEDY, f"name-{number}")
        model.want(("10.0.0.2", "greedy too"), f"name-{number}")
    for client in MODEST:
        for number in range(2):
            model.want(client, f"{client}-{number}")
    assert [model.lacks(client) for client in MODEST] == [set()] * 3


def test_all_clients_of_one_address_have_the_share_of_one() -> None:
    # PRX-35
    model = Model()
    for number in range(100):
        model.want(("10.0.0.1", f"made up {number}"), f"mine-{number}")
    for client in MODEST:
        for number in range(3):
            model.want(client, f"{client}-{number}")
    assert [model.lacks(client) for client in MODEST] == [set()] * 3


def test_clients_of_one_address_are_served_alike() -> None:
    # PRX-35: all are behind one proxy
    model = Model()
    for number in range(100):
        model.want(("10.0.0.1", "greedy"), f"mine-{number}")
    for client in ("one", "two"):
        for number in range(4):
            model.want(("10.0.0.1", client), f"{client}-{number}")
    assert not model.lacks(("10.0.0.1", "one"))
    assert not model.lacks(("10.0.0.1", "two"))


def test_a_client_with_as_much_as_the_others_is_refused_more() -> None:
    # PRX-35: nothing goes to and fro between equals
    model = Model()
    for client in MODEST:
        for number in range(4):
            model.want(client, f"{client}-{number}")
    for client in MODEST:
        model.want(client, f"{client}-more")
    assert model.gave_way == []
    assert [len(model.lacks(client)) for client in MODEST] == [1, 1, 1]


def test_a_lingering_name_gives_way_first() -> None:
    # PRX-35, PRX-9
    model = Model()
    for number in range(ROOM):
        model.want(GREEDY, f"mine-{number}")
    model.unwant(GREEDY, "mine-3", lingers=True)
    model.want(GREEDY, "more")
    assert [name for name, _ in model.gave_way] == ["mine-3"]


def test_names_marked_to_go_last_give_way_when_their_client_has_no_others() -> None:
    # PRX-35
    def wanting(_: Named) -> Steps[list[Client]]:
        yield
        return [GREEDY]

    shares: Shares[Named] = Shares(wanting, lambda thing: thing.name.isupper())
    things = [Named(name) for name in ("mine-1", "mine-2", "mine-3", "MINE-4")]
    for thing in things:
        shares.take(thing, GREEDY)
    gone = []
    for _ in range(2):
        loser = finish(shares.gives_way([MODEST[0]]))
        assert loser is not None
        gone.append(loser.name)
        shares.leave(loser)
    assert gone == ["mine-3", "mine-2"]
    assert things[3].owner == GREEDY


@pytest.mark.parametrize("seed", range(100))
def test_clients_within_their_share_always_have_what_they_want(seed: int) -> None:
    # PRX-35: the clients share names, come back, leave names and let them linger
    random = Random(seed)
    model = Model()
    clients = [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")]  # three addresses have 4 each; of "a", two clients 2
    shares = dict(zip(clients, (2, 2, 4, 4), strict=True))
    greedy = random.choice(clients)
    for _ in range(300):
        client = random.choice(clients)
        names = model.wants.setdefault(client, {})
        most = 40 if client == greedy else shares[client]
        if len(names) == most or (names and random.random() < 0.3):
            model.unwant(client, random.choice([*names]), lingers=random.random() < 0.5)
        else:
            model.want(client, f"name-{random.randrange(60)}")
        assert len(model.served) <= ROOM
        for each in clients:
            assert each == greedy or not model.lacks(each), (each, greedy)


def test_a_ranking_knows_the_greatest_whatever_steps_it_takes() -> None:
    # PRX-35
    random = Random(1)
    ranking: Ranking[int] = Ranking()
    numbers = dict.fromkeys(range(5), 0)
    assert ranking.top is None
    for _ in range(2000):
        thing = random.randrange(5)
        by = 1 if not numbers[thing] else random.choice((1, -1))
        numbers[thing] += by
        ranking.step(thing, by)
        top = ranking.top
        most = max(numbers.values())
        assert (numbers[top] if top is not None else 0) == most
        assert [ranking[each] for each in range(5)] == [*numbers.values()]
