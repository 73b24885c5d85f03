"""Two tenants, by any sequence of what they and their operators can do: the one sees nothing of the other.

Each sequence is played in two worlds (tenants.py). In one there is tenant B, in the other there is not.

- On a server, A is sent the same bytes in both, nonces and versions included.
- Through a relay, A has the same after each step, and was told that something is wrong with the same names. How it got
  there may depend on B: what a wildcard of B brought is in the cache, and need not be asked for when A asks for it. So
  it may be in another response, with another nonce; and for which other params there is nothing, which an absence says,
  may be known or not.
- Through a relay whose server goes away, or that is started again from its disk cache, even what A can be sent may
  depend on that. But nothing of B is ever in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import xdsprism as xp
from tests.relay.tenants import ASKED, BRAND, FAMILIES, RESOURCES, RULES_OF_A, RULES_OF_B, TAGS, World
from tests.support.examples import examples
from tests.support.rest_application import PATHS

WHO, SLOTS, YES = st.sampled_from("ab"), st.sampled_from([1, 2]), st.booleans()
TYPES = st.sampled_from(sorted(ASKED))
NAMES = TYPES.flatmap(lambda type_url: st.tuples(st.just(type_url), st.sampled_from(ASKED[type_url])))
POSTED = NAMES.filter(lambda name: name[0] in PATHS)  # REST has no path for virtual hosts
NODES = st.sampled_from([{}, {"env": "prod"}, {"env": "test"}, {"env": "x"}, {"v": "1", "zone": "1"}])
FAMILY = st.integers(0, len(FAMILIES) - 1)
STREAM = re.compile(rb"absent\.[0-9a-f]{16}")
CHANGE = st.tuples(WHO, st.integers(0, len(RESOURCES["b"]) - 1), FAMILY)


def question(who: str, type_url: str, name: str, tag: Any, node: Mapping[str, str]) -> pb.DiscoveryRequest:
    """A request for one name, as it is sent without a stream."""
    asked = pb.DiscoveryRequest(type_url=type_url)
    asked.node.id = f"{who}-1"
    asked.node.metadata.update(dict(node))
    if tag is not None:
        asked.resource_locators.add(name=name, dynamic_parameters=dict(tag))
    elif name != "*":
        asked.resource_names.append(name)
    return asked


class Tenants(RuleBasedStateMachine):
    """Of a server."""

    relay: str | None = None
    silent: tuple[str, ...] = ()
    knows_globs = True

    def __init__(self) -> None:
        super().__init__()
        self.worlds = [self.make_world(both=both) for both in (True, False)]

    def make_world(self, *, both: bool) -> World:
        return World(both=both, relay=self.relay, limits=xp.Limits(unresolved=3))

    def do(self, act: Callable[[World], Any], who: str = "") -> None:
        """`who`: whose request it is; empty: an operator's."""
        if who in self.silent:
            return
        for world in self.worlds:
            act(world)
            world.settle()
        self.compare()

    def compare(self) -> None:
        seen = [world.take() for world in self.worlds]
        for heard in seen:
            self.look_for_b(heard)
        with_b, without = (self.comparable(*each) for each in zip(self.worlds, seen, strict=True))
        assert with_b == without, (with_b, without)

    def comparable(self, world: World, heard: dict[int, list[bytes]]) -> Any:
        """What must be equal: all bytes, but for a hash of the number of the stream, which is not to be guessed."""
        return {slot: [STREAM.sub(b"absent", body) for body in each] for slot, each in heard.items()}

    def look_for_b(self, heard: dict[int, list[bytes]]) -> None:
        """Nothing of B is in what A is sent, unless A has said it."""
        for slot, bodies in heard.items():
            said = sorted({name for names in ASKED.values() for name in names if BRAND in name}, key=len, reverse=True)
            for body in bodies:
                left = body
                for name in said:
                    left = left.replace(name.encode(), b"")
                assert BRAND.encode() not in left, (slot, body)

    @rule(who=WHO, slot=SLOTS, delta=YES, node=NODES)
    def connect(self, who: str, slot: int, delta: bool, node: dict[str, str]) -> None:
        self.do(lambda world: world.connect(who, slot, delta=delta, metadata=node), who)

    @rule(who=WHO, slot=SLOTS, forget=YES)
    def disconnect(self, who: str, slot: int, forget: bool) -> None:
        self.do(lambda world: world.disconnect(who, slot, forget=forget), who)

    def ask_for(self, who: str, slot: int, name: tuple[str, str], tag: Any, *, want: bool) -> None:
        if name[1].endswith("/*") and not self.knows_globs:
            return

        def act(world: World) -> None:
            if (who, slot) not in world.callers:
                world.connect(who, slot, delta=slot == 1, metadata={"env": "prod"})
            if (who, slot) in world.callers:
                world.callers[who, slot].ask(*name, tag, want=want)

        self.do(act, who)

    @rule(who=WHO, slot=SLOTS, name=NAMES, tag=st.sampled_from(TAGS))
    def ask(self, who: str, slot: int, name: tuple[str, str], tag: Any) -> None:
        self.ask_for(who, slot, name, tag, want=True)

    @rule(who=WHO, slot=SLOTS, name=NAMES, tag=st.sampled_from(TAGS))
    def ask_more(self, who: str, slot: int, name: tuple[str, str], tag: Any) -> None:
        self.ask_for(who, slot, name, tag, want=True)

    @rule(who=WHO, slot=SLOTS, name=NAMES, tag=st.sampled_from(TAGS))
    def leave(self, who: str, slot: int, name: tuple[str, str], tag: Any) -> None:
        self.ask_for(who, slot, name, tag, want=False)

    @rule(who=WHO, slot=SLOTS, good=YES)
    def answer(self, who: str, slot: int, good: bool) -> None:
        self.do(
            lambda world: [each.answer(good=good) for key, each in world.callers.items() if key == (who, slot)], who
        )

    @rule(changes=st.lists(CHANGE, min_size=1, max_size=4))
    def change(self, changes: list[tuple[str, int, int]]) -> None:
        self.do(lambda world: world.change(changes))

    @rule(changes=st.lists(CHANGE, min_size=1, max_size=4))
    def change_more(self, changes: list[tuple[str, int, int]]) -> None:
        self.do(lambda world: world.change(changes))

    @rule(a=st.integers(0, len(RULES_OF_A) - 1), b=st.integers(0, len(RULES_OF_B) - 1))
    def enforce(self, a: int, b: int) -> None:
        self.do(lambda world: world.enforce(a, b))

    @rule(seconds=st.sampled_from([1.0, 6.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.do(lambda world: world.wait(seconds))

    def ask_once(self, way: Callable[[World], Any], who: str) -> None:
        """One question, with its answer, which must be the same."""
        if who in self.silent:
            return
        answers = [way(world) for world in self.worlds]
        if who == "a":
            self.look_for_b({0: [str(answer).encode() for answer in answers]})
            assert all(answer == answers[0] for answer in answers), answers
        self.compare()

    @rule(who=WHO, name=NAMES, tag=st.sampled_from(TAGS), node=NODES)
    def fetch(self, who: str, name: tuple[str, str], tag: Any, node: dict[str, str]) -> None:
        self.ask_once(lambda world: world.fetch(question(who, *name, tag, node), who), who)

    @rule(who=WHO, name=POSTED, tag=st.sampled_from(TAGS), node=NODES)
    def post(self, who: str, name: tuple[str, str], tag: Any, node: dict[str, str]) -> None:
        self.ask_once(lambda world: world.post(question(who, *name, tag, node), who), who)

    def teardown(self) -> None:
        for world in self.worlds:
            world.close()


class RelayTenants(Tenants):
    """Of a relay, which asks in delta."""

    relay = "delta"

    def make_world(self, *, both: bool) -> World:
        # Names that sessions forgot are asked for from time to time by the relay's shell (test_policy.py).
        return World(both=both, relay=self.relay)

    def comparable(self, world: World, heard: dict[int, list[bytes]]) -> Any:
        """What must be equal: what each client has, and what it was told of errors, and of what there is not."""
        found = {}
        for (who, slot), caller in world.callers.items():
            if who == "a":
                found[slot] = {**caller.has}, {*caller.errors}, {*caller.absences}
                caller.errors.clear()
                caller.absences.clear()
        return found


class SotwRelayTenants(RelayTenants):
    """Of a relay whose server can't answer for a glob (XTP-8): its members are what others had it ask for."""

    relay = "sotw"
    knows_globs = False


class SilentNeighbour(Tenants):
    """Of a relay, where B has resources and asks for nothing: then all bytes are equal, as they are of a server."""

    relay = "delta"
    silent = ("b",)

    def make_world(self, *, both: bool) -> World:
        return World(both=both, relay=self.relay)


class SilentNeighbourInSotw(SilentNeighbour):
    relay = "sotw"


class RestartedRelayTenants(RelayTenants):
    """Of a relay whose server goes away, and that is started again from its disk cache, with B all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.worlds = self.worlds[:1]

    def compare(self) -> None:
        for world in self.worlds:
            self.look_for_b(world.take())

    @rule(down=YES)
    def outage(self, down: bool) -> None:
        self.do(lambda world: world.outage(down=down))

    @rule(down=YES)
    def restart(self, down: bool) -> None:
        self.do(lambda world: world.restart(down=down))


def play(machine: type[Tenants], number: int) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(number), stateful_step_count=30))


def test_a_tenant_of_a_server_is_sent_the_same_bytes_without_the_other() -> None:
    # OPS-2, DYN-44
    play(Tenants, 100)


def test_a_tenant_of_a_relay_has_the_same_without_the_other() -> None:
    # OPS-2, DYN-44
    play(RelayTenants, 60)


def test_a_tenant_of_a_relay_that_asks_in_sotw_has_the_same_without_the_other() -> None:
    # OPS-2, DYN-44
    play(SotwRelayTenants, 40)


def test_a_tenant_of_a_relay_is_sent_the_same_bytes_whatever_others_have() -> None:
    # OPS-2, DYN-44
    play(SilentNeighbour, 60)


def test_a_tenant_of_a_relay_that_asks_in_sotw_is_sent_the_same_bytes_whatever_others_have() -> None:
    # OPS-2, DYN-44
    play(SilentNeighbourInSotw, 40)


def test_a_tenant_of_a_relay_that_is_started_again_from_its_disk_is_sent_nothing_of_the_other() -> None:
    # OPS-2, PRX-25
    play(RestartedRelayTenants, 60)


def test_a_poll_that_takes_another_policy_lets_the_relay_ask_for_what_it_allows() -> None:
    # OPS-2: the hub's turn, in which a relay asks its servers, may be over when a slow stream is polled
    world = World(both=False, relay="delta")
    world.enforce(1, 0)
    world.connect("a", 1, delta=True, metadata={})
    caller = world.callers["a", 1]
    caller.ask(xp.CLUSTER, "a2", None, want=True)
    world.settle()
    world.enforce(0, 0)
    world.front.turn()
    assert not world.front.hub.turn_due
    assert not caller.read()
    assert world.front.hub.turn_due


# What the machines find seldom, and what the rule is about, step by step.

THROUGH_A_RELAY = pytest.mark.parametrize("mode", ["delta", "sotw"])
DOWN = pytest.mark.parametrize("delta", [True, False], ids=["delta", "sotw"])


def told(world: World, type_url: str, name: str, tag: Any, changes: list[tuple[str, int, int]], *, delta: bool) -> Any:
    """All that A is sent which subscribes to a name and to `a1`, while resources change, one after the other."""
    world.connect("a", 1, delta=delta, metadata={"env": "prod"})
    for each in (name, "a1"):
        world.callers["a", 1].ask(type_url, each, tag, want=True)
    world.settle()
    for change in changes:
        world.change([change])
        world.settle()
    found = [STREAM.sub(b"absent", body) for body in world.take()[1]]
    world.close()
    return found


@THROUGH_A_RELAY
@DOWN
@pytest.mark.parametrize("tag", [None, {"env": "test"}])
def test_neither_how_often_nor_for_whom_there_is_something_behind_an_alias_is_told(
    mode: str, delta: bool, tag: Any
) -> None:
    # OPS-2: zebra1 comes, changes its variants, goes and comes; in between a1 changes
    changes = [("b", 0, 2), ("a", 0, 1), ("b", 0, 3), ("b", 0, 4), ("a", 0, 3), ("b", 0, 0), ("b", 0, 1), ("a", 0, 1)]
    heard = [
        told(World(both=both, relay=mode), xp.CLUSTER, "a-stolen", tag, changes, delta=delta) for both in (True, False)
    ]
    assert heard[0] == heard[1]
    assert len(heard[0]) > 3
    assert not any(BRAND.encode() in body for body in heard[0])
