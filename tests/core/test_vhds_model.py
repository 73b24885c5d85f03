"""Virtual hosts against a model: whatever happens, a client has for each host what a search through all would find."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.core.support import Bench, Peer
from tests.support.examples import examples
from xdsprism.core.model.constraints import FALSE, TRUE, Constraint, matches
from xdsprism.core.model.events import DeltaRequest, Key, Node, Rejection
from xdsprism.core.model.expr import parse
from xdsprism.core.model.types import VIRTUAL_HOST, Params, Variant, make_variant
from xdsprism.errors import ConfigError

LABELS = st.sampled_from(["a", "b", "ab"])
HOSTS = st.one_of(LABELS, st.tuples(LABELS, LABELS).map(".".join), st.tuples(LABELS, LABELS).map("".join))
DOMAINS = st.one_of(HOSTS, HOSTS.map(lambda host: f"*{host}"), HOSTS.map(lambda host: f"{host}*"), st.just("*"))
CONFIGS = st.sampled_from(["r", "r/s"])
NAMES = st.tuples(CONFIGS, st.sampled_from(["x", "y", "a"])).map("/".join)
WHENS = st.sampled_from([None, "env=p", "env!=p", "env=t"])
ENVS = [Params({"env": "p"}), Params({"env": "t"}), Params()]


def serves(domain: str, host: str) -> tuple[int, int] | None:
    """How well a domain matches, the best first; as Envoy's documentation says it."""
    if domain == host:
        return 0, 0
    if domain == "*":
        return 3, 0
    if domain.startswith("*") and host.endswith(domain[1:]) and len(host) > len(domain) - 1:
        return 1, -len(domain)
    if domain.endswith("*") and host.startswith(domain[:-1]) and len(host) > len(domain) - 1:
        return 2, -len(domain)
    return None


class Client:
    """What Envoy keeps: virtual hosts by name, and the strings each was given for."""

    def __init__(self, peer: Peer, params: Params) -> None:
        self.peer = peer
        self.params = params
        self.asked: dict[str, None] = {}
        self.told: set[str] = set()  # strings that were answered, be it with nothing
        self.hosts: dict[str, tuple[Variant, tuple[str, ...]]] = {}

    def take(self) -> None:
        for send in self.peer.poll():
            aliases = send.aliases or ((),) * len(send.plain)
            for variant, further in zip(send.plain, aliases, strict=True):
                held, strings = self.hosts.get(variant.name, (None, ()))
                before = strings if held is not None and held.version == variant.version else ()  # VHD-4: what is new
                self.hosts[variant.name] = variant, (variant.name, *variant.aliases, *further, *before)
                self.told.update(self.hosts[variant.name][1])
            for name in send.removed:
                self.hosts.pop(name, None)
            self.told.update(send.unresolved)
            self.peer.receive(VIRTUAL_HOST, DeltaRequest(nonce=send.nonce))

    def serving(self, string: str) -> list[Variant]:
        return [variant for variant, strings in self.hosts.values() if string in strings]


class Hosts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.variants: dict[str, list[Variant]] = {}
        self.clients = [self.connect(params) for params in ENVS]
        self.count = 0

    def connect(self, params: Params) -> Client:
        client = Client(self.bench.connect(Node("envoy", metadata=params), delta=True), params)
        client.peer.receive(VIRTUAL_HOST, DeltaRequest())
        return client

    @rule(
        name=NAMES,
        forms=st.lists(st.tuples(WHENS, st.lists(DOMAINS, min_size=1, max_size=3, unique=True)), max_size=2),
        base=st.sampled_from([FALSE, FALSE, TRUE, parse("env=p")]),
    )
    def write(self, name: str, forms: list[tuple[str | None, list[str]]], base: Constraint) -> None:
        self.count += 1
        made = [
            make_variant(
                VIRTUAL_HOST,
                name,
                f"{self.count}".encode(),
                parse(when) if when else TRUE,
                domains=tuple(domains),
                base=base,
            )
            for when, domains in forms
        ]
        try:
            self.bench.store.apply({(VIRTUAL_HOST, name): tuple(made)})
        except ConfigError:
            return  # they overlap, or a domain is there twice
        self.variants[name] = made

    @rule(who=st.integers(0, 2), config=CONFIGS, hosts=st.lists(HOSTS, min_size=1, max_size=3, unique=True))
    def ask(self, who: int, config: str, hosts: list[str]) -> None:
        client = self.clients[who]
        strings = [f"{config}/{host}" for host in hosts]
        client.asked.update(dict.fromkeys(strings))
        client.told.difference_update(strings)
        client.peer.receive(VIRTUAL_HOST, DeltaRequest(tuple(Key(string) for string in strings)))

    @rule(who=st.integers(0, 2), index=st.integers(0, 9))
    def leave(self, who: int, index: int) -> None:
        client = self.clients[who]
        if client.asked:
            string = [*client.asked][index % len(client.asked)]
            del client.asked[string]
            client.take()
            client.peer.receive(VIRTUAL_HOST, DeltaRequest(unsubscribe=(Key(string),)))
            self.clean(client)

    def clean(self, client: Client) -> None:
        """What nobody asks for any more, and was not given without asking, the client drops by itself."""
        needed = {wanted.name for string in client.asked if (wanted := self.expected(string, client.params))}
        held = client.hosts.items()
        client.hosts = {name: each for name, each in held if name in needed or self.is_base(client, each)}

    @staticmethod
    def is_base(client: Client, held: tuple[Variant, tuple[str, ...]]) -> bool:
        return held[0].base is not None and matches(held[0].base, client.params)

    @rule(who=st.integers(0, 2))
    def come_back(self, who: int) -> None:
        """On another stream, as Envoy does: everything that it ever asked for, and the versions of what it has."""
        old = self.clients[who]
        old.take()
        old.peer.close()
        new = Client(self.bench.connect(Node("envoy", metadata=old.params), delta=True), old.params)
        new.asked, new.told = old.asked, old.told
        new.hosts = old.hosts
        versions = {name: variant.version for name, (variant, _) in new.hosts.items()}
        wanted = (Key("*"), *(Key(string) for string in new.asked))
        new.peer.receive(VIRTUAL_HOST, DeltaRequest(wanted, initial_versions=versions))
        self.clients[who] = new

    @rule(who=st.integers(0, 2))
    def reject(self, who: int) -> None:
        """A response is lost on the client, who says so; what was good in it comes again."""
        client = self.clients[who]
        for send in client.peer.poll():
            client.peer.receive(VIRTUAL_HOST, DeltaRequest(nonce=send.nonce, error=Rejection(13, "no")))
            if send.count + len(send.unresolved) + bool(send.removed) == 1:  # it is its own proof, and is parked
                self.apply_alone(client, send)

    @staticmethod
    def apply_alone(client: Client, send: object) -> None:
        for variant, further in zip(send.plain, send.aliases or ((),) * len(send.plain), strict=True):
            client.hosts[variant.name] = variant, (variant.name, *variant.aliases, *further)
            client.told.update(client.hosts[variant.name][1])
        for name in send.removed:
            client.hosts.pop(name, None)
        client.told.update(send.unresolved)

    def expected(self, string: str, params: Params) -> Variant | None:
        config, _, host = string.rpartition("/")
        found = []
        for name, variants in self.variants.items():
            for variant in variants:
                if name.rpartition("/")[0] == config and matches(variant.constraint, params):
                    found += [(how, variant) for domain in variant.domains if (how := serves(domain, host))]
                    found += [((0, 1), variant)] if name == string else []  # by its name: after exact domains
        return min(found, key=lambda each: each[0])[1] if found else None

    @invariant()
    def every_client_has_what_a_search_finds(self) -> None:
        for client in self.clients:
            client.take()
            for string in client.asked:
                wanted = self.expected(string, client.params)
                assert wanted is None or wanted in client.serving(string), (string, client.hosts)
                assert string in client.told, f"{string} was never answered"
            for name, (variant, _) in client.hosts.items():
                assert variant in self.variants.get(name, ()), f"{name} is gone, and the client has it"
                assert matches(variant.constraint, client.params)
            base = {
                name
                for name, variants in self.variants.items()
                for variant in variants
                if matches(variant.constraint, client.params) and matches(variant.base or TRUE, client.params)
            }
            assert base <= client.hosts.keys()
            needed = base | {wanted.name for string in client.asked if (wanted := self.expected(string, client.params))}
            assert client.hosts.keys() == needed, "nothing that was not asked for"

    def teardown(self) -> None:
        for client in self.clients:
            client.peer.close()
        assert self.bench.left_behind() == {}


TestHosts = Hosts.TestCase
TestHosts.settings = settings(max_examples=examples(100), stateful_step_count=25, deadline=None)
