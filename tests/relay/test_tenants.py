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
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import xdsprism as xp
from tests.relay.tenants import ASKED, BRAND, FAMILIES, RESOURCES, RULES_OF_A, RULES_OF_B, TAGS, World
from tests.support.examples import examples

WHO, SLOTS, YES = st.sampled_from("ab"), st.sampled_from([1, 2]), st.booleans()
TYPES = st.sampled_from(sorted(ASKED))
NAMES = TYPES.flatmap(lambda type_url: st.tuples(st.just(type_url), st.sampled_from(ASKED[type_url])))
NODES = st.sampled_from([{}, {"env": "prod"}, {"env": "test"}, {"env": "x"}, {"v": "1", "zone": "1"}])
FAMILY = st.integers(0, len(FAMILIES) - 1)
STREAM = re.compile(rb"absent\.[0-9a-f]{16}")
CHANGE = st.tuples(WHO, st.integers(0, len(RESOURCES["b"]) - 1), FAMILY)


class Tenants(RuleBasedStateMachine):
    """Of a server."""

    relay: str | None = None
    never_asked: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.worlds = [self.make_world(both=both) for both in (True, False)]

    def make_world(self, *, both: bool) -> World:
        return World(both=both, relay=self.relay, limits=xp.Limits(unresolved=3))

    def do(self, act: Callable[[World], Any]) -> None:
        for world in self.worlds:
            act(world)
            world.settle()
        self.compare()

    def compare(self) -> None:
        seen = [world.take() for world in self.worlds]
        for heard in seen:
            self.look_for_b(heard)
        with_b, without = (self.comparable(*each) for each in zip(self.worlds, seen, strict=True))
        assert with_b == without

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
        self.do(lambda world: world.connect(who, slot, delta=delta, metadata=node))

    @rule(who=WHO, slot=SLOTS, forget=YES)
    def disconnect(self, who: str, slot: int, forget: bool) -> None:
        self.do(lambda world: world.disconnect(who, slot, forget=forget))

    def ask_for(self, who: str, slot: int, name: tuple[str, str], tag: Any, *, want: bool) -> None:
        if name[1] in self.never_asked:
            return

        def act(world: World) -> None:
            if (who, slot) not in world.callers:
                world.connect(who, slot, delta=slot == 1, metadata={"env": "prod"})
            if (who, slot) in world.callers:
                world.callers[who, slot].ask(*name, tag, want=want)

        self.do(act)

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
        self.do(lambda world: [each.answer(good=good) for key, each in world.callers.items() if key == (who, slot)])

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

    @rule(name=NAMES, node=NODES)
    def fetch(self, name: tuple[str, str], node: dict[str, str]) -> None:
        type_url, wanted = name
        if wanted in self.never_asked:
            return
        names = [] if wanted == "*" else [wanted]
        answers = [world.fetch(type_url, names, node) for world in self.worlds]
        self.look_for_b({0: [answer for answer in answers if answer is not None]})
        assert {*answers} == {answers[0]}
        self.compare()

    def teardown(self) -> None:
        for world in self.worlds:
            for caller in world.callers.values():
                caller.cut()


class RelayTenants(Tenants):
    """Of a relay, which asks in delta."""

    relay = "delta"
    # A may ask for these strings, and they are an alias and a host of what B has. The server, which has no policy, says
    # for which params there is nothing by them, so that an absence may show that there is something for others.
    never_asked = ("a-stolen", "a-main/b.test")

    def make_world(self, *, both: bool) -> World:
        # Names that sessions forgot are asked for from time to time by the relay's shell (test_policy.py).
        return World(both=both, relay=self.relay)

    def comparable(self, world: World, heard: dict[int, list[bytes]]) -> Any:
        """What must be equal: what each client has, and of which names it was told that something is wrong."""
        found = {}
        for (who, slot), caller in world.callers.items():
            if who == "a":
                found[slot] = {**caller.has}, {**dict.fromkeys(caller.errors)}
                caller.errors.clear()
        return found


class SotwRelayTenants(RelayTenants):
    relay = "sotw"


class RestartedRelayTenants(RelayTenants):
    """Of a relay whose server goes away, and that is started again from its disk cache, with B all the time."""

    never_asked = ()

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
