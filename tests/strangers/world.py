"""A stranger's server, the relay under test, and its clients: driven by a script, judged by the stranger's history.

A script is a list of steps, each with a number that its choices are drawn from, so that a failure can be cut down by
leaving steps out. When all are quiet each client has what the stranger has for its params (PRX-1). And on the way each
sees the stranger's states in their order: some may be skipped, none comes back, none is invented (PRX-31, PRX-38).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.relay.model import Clock, Line, RelaySite
from tests.strangers.shapes import Shape, family, region, split, text, to_proto
from tests.strangers.upstream import FULL_STATE, Habits, Stranger, Subject, everywhere
from xdsprism.core.model.events import WILDCARD, Key
from xdsprism.core.model.facts import Rejected
from xdsprism.core.model.types import NO_PARAMS, Params
from xdsprism.core.relay.relaying import LINGER
from xdsprism.core.watch.entry import Watch
from xdsprism.errors import STATUS

SUBJECTS: tuple[Subject, ...] = tuple((type_url, name) for type_url in (xp.CLUSTER, xp.ENDPOINT) for name in "ab")
PARAMS = tuple(
    Params(each)
    for each in (
        {},
        {"env": "prod"},
        {"env": "prod", "x": "1"},
        {"env": "test"},
        {"env": "qa"},
        {"env": "prod", "v": "1"},
        {"env": "prod", "v": "2"},
        {"env": "test", "v": "1"},
        {"v": "1"},
        {"x": "1"},
    )
)
MOMENT = 0.001  # seconds between two messages
TALKATIVE = 300  # turns after which nobody can have anything new to say
PATIENCE = (3.0, 3.0, 16.0, 16.0, LINGER + 1, 3.0, 3.0)  # seconds that pass while nobody says a word

Step = tuple[str, int]

_KINDS: dict[tuple[str, bool], Any] = {
    ("asks", True): pb.DeltaDiscoveryRequest,
    ("asks", False): pb.DiscoveryRequest,
    ("is told", True): pb.DeltaDiscoveryResponse,
    ("is told", False): pb.DiscoveryResponse,
}


class Broken(AssertionError):
    """Somebody was told what is not so."""


class Watcher:
    """One subscription of one client, and how far in the stranger's history it has come, by name."""

    def __init__(self, world: World, client: Client, type_url: str, key: Key) -> None:
        self.world = world
        self.client = client
        self.type_url = type_url
        self.key = key
        self.params: Params = client.node if key[1] is None else key[1]
        self.watch = Watch(lambda: None)
        self.has: dict[str, str | None] = {}
        self.seen: dict[str, float] = {}

    def __str__(self) -> str:
        kind = self.type_url.rpartition(".")[2]
        form = "by locator" if self.key[1] is not None else "plain"
        return f"{self.client} {kind} {self.key[0]} {shown(self.params)} {form}"

    @property
    def subjects(self) -> list[Subject]:
        return [each for each in self.world.subjects if each[0] == self.type_url and self.key[0] in (each[1], WILDCARD)]

    def look(self) -> None:
        while (notice := self.watch.take()) is not None:
            if notice.error is None and notice.variant is not None:
                self._see(notice.name, self.world.stranger.marks[self.type_url, notice.variant.body])
            elif not notice.ambient and notice.error is not None and notice.error.status == "NOT_FOUND":
                self._see(notice.name, None)

    def _see(self, name: str, value: str | None) -> None:
        self.world.note(f"    {self} has {name}: {value or 'gone'}")
        subject = self.type_url, name
        past = self.world.stranger.past(subject)
        since = self.seen.get(name, self.world.floor.get(subject, 0))
        found = past.earliest(value, self.params, since)
        if found is None and past.earliest(value, self.params, 0) is None:
            raise Broken(f"{self}: {name} was never {value or 'gone'} for these params")
        if found is None:
            now = past.value(past.now, self.params)
            raise Broken(f"{self}: {name} is {value or 'gone'} again; it has been {now or 'gone'}")
        self.seen[name] = found
        self.has[name] = value


class Client:
    def __init__(self, world: World, number: int, *, delta: bool, located: bool, node: Params) -> None:
        self.world = world
        self.number = number
        self.located = located
        self.params = node if located and not delta else None  # TP2: a leaf sends the same with all subscriptions
        self.node = NO_PARAMS if located else node
        self.line = Line(world.clock, world.relay, delta=delta, node=self.node, patient=True)
        self.line.open()
        self.watchers: list[Watcher] = []
        self.rejoined: dict[Subject, int] = {}  # which state the stranger was in when its newest stream began

    def __str__(self) -> str:
        return f"client {self.number} ({'delta' if self.line.delta else 'sotw'})"

    def watch(self, type_url: str, name: str, params: Params) -> Watcher:
        params = params if self.params is None else self.params
        made = Watcher(self.world, self, type_url, Key(name, params if self.located else None))
        self.watchers.append(made)
        self.line.subscriber.watch(made.watch, self.line.authority, type_url, made.key)
        made.look()
        return made

    def leave(self, watcher: Watcher) -> None:
        self.watchers.remove(watcher)
        self.line.subscriber.unwatch(watcher.watch)

    def talk(self) -> bool:
        busy = self.line.ask()
        self._note("asks", [*self.line.requests])
        busy = self.line.answer() or busy
        self._note("is told", [*self.line.responses])
        while self.line.read(1):
            busy = True
            self._look()
        self._look()
        return busy

    def _note(self, verb: str, messages: list[bytes]) -> None:
        if self.world.is_noted:
            for each in messages:
                self.world.note(f"      {self} {verb}: {read(_KINDS[verb, self.line.delta].FromString(each))}")

    def _look(self) -> None:
        for each in self.watchers:
            each.look()
        facts = self.line.subscriber.facts
        for fact in facts:
            if isinstance(fact, Rejected):
                raise Broken(f"{self} rejects what the relay sends: {fact}")
        facts.clear()


class World:
    def __init__(
        self,
        habits: Habits,
        seed: int = 0,
        *,
        subjects: tuple[Subject, ...] = SUBJECTS,
        linger: float = LINGER,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self.subjects = subjects
        self.watched = [
            *subjects,
            *((url, WILDCARD) for url in {url: None for url, _ in subjects} if url in FULL_STATE),
        ]
        self.clock = Clock()
        self.stranger = Stranger(habits, Random(f"stranger {seed}"))
        self.relay = RelaySite(self.clock, self.stranger, delta=habits.delta, linger=linger)  # type: ignore[arg-type]
        upstream = self.relay.line.upstream  # as FeedClient has it (PRX-11, PRX-34)
        upstream.timer_is_transient = upstream.full_state_decides = True
        self.relay.line.open()
        self.clients: list[Client] = []
        self.floor: dict[Subject, float] = {}  # nobody can be given anything older
        self.note = note or (lambda _: None)
        self.is_noted = note is not None
        self._numbers = 0
        self._noted: dict[int, int] = {}
        for subject in subjects:
            self.stranger.past(subject)

    def run(self, script: list[Step]) -> None:
        for kind, number in script:
            self.note(f"-- {kind}")
            getattr(self, f"step_{kind}")(Random(number))
        self.come_up()
        self.quiet()

    # -- steps: clients

    def step_connect(self, random: Random) -> None:
        self.connect(delta=random.random() < 0.5, located=random.random() < 0.6, node=random.choice(PARAMS))

    def connect(self, *, delta: bool, located: bool = True, node: Params = NO_PARAMS) -> Client:
        self._numbers += 1
        made = Client(self, self._numbers, delta=delta, located=located, node=node)
        self.clients.append(made)
        return made

    def step_subscribe(self, random: Random) -> None:
        what, params = random.choice(self.watched), random.choice(PARAMS)
        if not self.clients or (len(self.clients) < 4 and random.random() < 0.4):
            self.step_connect(random)
        watcher = random.choice(self.clients).watch(*what, params)
        self.note(f"   {watcher}")

    def step_unsubscribe(self, random: Random) -> None:
        if watchers := self.watchers():
            watcher = random.choice(watchers)
            self.note(f"   {watcher}")
            watcher.client.leave(watcher)

    def step_disconnect(self, random: Random) -> None:
        if self.clients:
            client = random.choice(self.clients)
            client.line.cut()
            if random.random() < 0.5:
                self.note(f"   {client} is gone")
                self.clients.remove(client)
            else:
                self.note(f"   {client} has a new stream")
                client.line.open()
                client.rejoined = {subject: self.stranger.past(subject).now for subject in self.subjects}

    # -- steps: the stranger

    def step_change(self, random: Random) -> None:
        """One or two resources get other variants; at once, as far as anybody can see."""
        for _ in range(random.choice((1, 1, 2))):
            subject = random.choice(self.subjects)
            self.put(subject, self._changed(subject, random))

    def put(self, subject: Subject, offers: Any) -> None:
        self.stranger.put(subject, offers)
        listed = ", ".join(f"{say(each.shape)} -> {each.mark}" for each in self.stranger.offers(*subject))
        self.note(f"   upstream: {subject[0].rpartition('.')[2]} {subject[1]}: {listed or 'nothing'}")

    def _changed(self, subject: Subject, random: Random) -> list[Any]:
        server, offers = self.stranger, [*self.stranger.offers(*subject)]
        kind = random.choice(("new", "new", "new", "touch", "drop", "split", "merge", "label", "move", "none"))
        if kind == "none":
            return []
        if not offers or kind == "new":
            return [server.offer(subject, shape) for shape in family(random)]
        chosen = random.choice(offers)
        rest = [each for each in offers if each is not chosen]
        match kind:
            case "touch":
                return [*rest, server.offer(subject, chosen.shape)]
            case "drop":
                return [each for each in rest if random.random() < 0.5]
            case "split":
                parts = split(chosen.shape, random)
                return [*rest, *(server.offer(subject, each) for each in parts)]
            case "merge":
                return [server.offer(subject, everywhere(offers))]
            case "label":  # the version changes, the contents do not
                return [*rest, server.offer(subject, chosen.shape, chosen.mark)]
        assert kind == "move"  # the same contents for others
        taken = region(everywhere(rest))
        free: list[Shape] = [shape for shape in family(random) if not region(shape) & taken]
        return [*rest, *(server.offer(subject, shape, chosen.mark) for shape in free[:1])]

    def step_again(self, random: Random) -> None:
        """The stranger sends what its client has."""
        talks = [talk for stream in self.stranger.streams for talk in stream.talks.values()]
        if talks:
            random.choice(talks).again()

    def step_go_down(self, _random: Random) -> None:
        self.relay.line.cut()

    def step_cut(self, _random: Random) -> None:
        """A new stream, at once."""
        self.relay.line.cut()
        self.relay.line.open()

    def step_come_up(self, _random: Random) -> None:
        self.come_up()

    def come_up(self) -> None:
        self.relay.line.open()

    # -- steps: time, and messages on their way

    def step_nudge(self, random: Random) -> None:
        line = self.relay.line
        ways: list[Callable[[], object]] = [line.ask, line.answer, lambda: line.read(1), self.relay.tend]
        ways += [client.talk for client in self.clients]
        for _ in range(random.randrange(8)):
            self._log()
            self.clock.now += MOMENT
            random.choice(ways)()

    def step_settle(self, _random: Random) -> None:
        self.settle()

    def step_quiet(self, _random: Random) -> None:
        self.quiet()

    def settle(self) -> None:
        """Everything that was said arrives; no time passes."""
        turns = 0
        while self._talk():
            turns += 1
            if turns > TALKATIVE:
                raise Broken("they never stop")

    def quiet(self) -> None:
        """Let all talk, and time pass, until nobody has anything to say; then everybody has what is theirs."""
        self.settle()
        for seconds in PATIENCE:
            self.clock.now += seconds
            self.settle()
        if self.relay.line.call is not None:
            self._check()

    def _talk(self) -> bool:
        line = self.relay.line
        busy = any([line.ask(), line.answer()])
        self._log()
        while line.read(1):
            busy = True
            self.clock.now += MOMENT
            self.relay.tend()
            for client in self.clients:
                client.talk()
        self.relay.tend()
        for client in self.clients:
            busy |= client.talk()
        return busy

    # -- what must hold

    def watchers(self) -> list[Watcher]:
        return [watcher for client in self.clients for watcher in client.watchers]

    def _check(self) -> None:
        silent = self.stranger.habits.is_silent
        for each in self.watchers():
            for subject in each.subjects:
                name = subject[1]
                past = self.stranger.past(subject)
                expected = past.value(past.now, each.params)
                has = each.has.get(name)
                if has != expected and not self._was_missed(each, subject, has):
                    raise Broken(f"{each}: has {name}: {has or 'nothing'}, and not {expected or 'nothing'}")
                if expected is None and not silent and each.key[0] != WILDCARD and name not in each.has:
                    raise Broken(f"{each}: is still waiting to be told that there is no {name}")
                if has == expected:
                    each.seen[name] = past.now
        if not silent:
            self.floor = {subject: past.now for subject, past in self.stranger.history.items()}

    def _was_missed(self, watcher: Watcher, subject: Subject, has: str | None) -> bool:
        """Whether a server that says nothing of what is not there has never said that this is gone.

        A direct client would have it still, if it went between two streams; and who comes back to a relay that waits
        for an answer keeps what it has (PRX-11). In SotW, of types that are not full state, silence says so little that
        who shares it would not know either: a relay can't see that it was replaced.
        """
        if has is None or not self.stranger.habits.is_silent:
            return False
        if not self.stranger.habits.delta and subject[0] not in FULL_STATE:
            return True
        past = self.stranger.past(subject)
        last = max(each for each in range(past.now + 1) if past.value(each, watcher.params) == has)
        returned = max(self.stranger.begun.get(subject, 0), watcher.client.rejoined.get(subject, 0) + 1)
        return past.value(past.now, watcher.params) is None and returned > last

    # -- for readers

    def _log(self) -> None:
        if not self.is_noted:
            return
        for stream in self.stranger.streams:
            for kind, message in stream.notes[self._noted.get(id(stream), 0) :]:
                self.note(f"  {'relay asks' if kind == 'request' else 'upstream says'}: {read(message)}")
            self._noted[id(stream)] = len(stream.notes)


_UNTOLD = (
    "control_plane",
    "node",
    "nonce",
    "response_nonce",
    "system_version_info",
    "type_url",
    "version_info",
)


def shown(params: Any) -> str:
    return "{" + ", ".join(f"{key}={value}" for key, value in sorted(params.items())) + "}"


def say(shape: Shape) -> str:
    return text(to_proto(shape)) or "true"


def read(message: Any) -> str:
    """A message on one line."""
    words = [message.type_url.rpartition(".")[2]]
    for descriptor, value in message.ListFields():
        match descriptor.name:
            case (
                "node"
                | "type_url"
                | "control_plane"
                | "system_version_info"
                | "nonce"
                | "response_nonce"
                | "version_info"
            ):
                continue
            case "resources":
                words.append("resources=[" + ", ".join(_resource(each) for each in value) + "]")
            case "removed_resource_names":
                words.append("removed_resource_names=[" + ", ".join(_name(each) for each in value) + "]")
            case "resource_errors":
                listed = (f"{_name(each.resource_name)}: {STATUS[each.error_detail.code]}" for each in value)
                words.append("resource_errors=[" + ", ".join(listed) + "]")
            case name if "locators" in name:
                listed = (f"{each.name}{shown(each.dynamic_parameters)}" for each in value)
                words.append(f"{name}=[" + ", ".join(listed) + "]")
            case name if hasattr(value, "items"):
                words.append(f"{name}={shown(value)}")
            case name:
                words.append(f"{name}={[*value] if not isinstance(value, str) else value}")
    nonce = getattr(message, "nonce", None) or getattr(message, "response_nonce", "")
    return " ".join(words) + (f" #{nonce}" if nonce else "")


def _name(proto: Any) -> str:
    constraints = text(proto.dynamic_parameter_constraints)
    return f"{proto.name}<{constraints}>" if constraints else proto.name


def _resource(item: Any) -> str:
    if hasattr(item, "type_url"):
        if not item.Is(pb.Resource.DESCRIPTOR):
            return f"plain {_mark(item.value)}"
        item = pb.Resource.FromString(item.value)
    name = _name(item.resource_name) if item.HasField("resource_name") else f"plain {item.name}"
    return f"{name}={_mark(item.resource.value)}@{item.version}"


def _mark(body: bytes) -> str:
    at = body.rfind(b"m")
    digits = [chr(each) for each in body[at + 1 :] if chr(each).isdigit()]
    return "m" + "".join(digits)


# -- scripts

_OFTEN = ("subscribe", "subscribe", "change", "change", "nudge")
_SELDOM = ("connect", "unsubscribe", "disconnect", "go_down", "come_up", "cut", "again", "quiet")


def script(random: Random, steps: int = 24) -> list[Step]:
    return list(_steps(random, steps))


def _steps(random: Random, steps: int) -> Iterator[Step]:
    """A crowd first, so that there is something to share; then anything."""
    for kind in ("change", *["subscribe"] * random.randrange(1, 9)):
        yield kind, random.getrandbits(30)
    for _ in range(steps):
        yield random.choice((*_OFTEN, *_OFTEN, *_SELDOM)), random.getrandbits(30)
        if random.random() < 0.5:
            yield random.choice(("settle", "settle", "quiet")), 0


@dataclass(frozen=True)
class Run:
    """All that a run depends on."""

    seed: int
    habits: Habits
    linger: float
    subjects: tuple[Subject, ...]
    steps: tuple[Step, ...]

    def play(self, note: Callable[[str], None] | None = None) -> None:
        World(self.habits, self.seed, subjects=self.subjects, linger=self.linger, note=note).run([*self.steps])

    def failure(self) -> str | None:
        try:
            self.play()
        except Exception as error:  # noqa: BLE001 # whatever goes wrong is what is looked for
            return f"{type(error).__name__}: {error}"
        return None
