"""Two tenants of one server, or of a relay in front of it, without asyncio: what each is sent, byte for byte.

A world has tenant A, and tenant B or not: its resources, its streams, its requests. Tenant A does the same in both. All
names of B, and the contents of its resources, have a word in them that nothing else has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf import json_format

import xdsprism as xp
from tests.client.rig import MAKE
from tests.relay.model import Clock, RelaySite, Site
from tests.relay.test_restart_model import CacheFile
from tests.support.rest_application import ROUNDS, RestApplication
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import TypeUrl
from xdsprism.core.policy.identity import parse_identity
from xdsprism.core.policy.policy import Policy
from xdsprism.errors import PeerError
from xdsprism.messages.protos import find_message
from xdsprism.server.calls import Peer
from xdsprism.server.fetch import open_fetch
from xdsprism.server.xds_call import XdsCall
from xdsprism.sources.policy_file import parse_policy

BRAND = "zebra"  # in every name and in all contents of B
IDENTITIES = {"a": "spiffe://example.com/a", "b": "spiffe://example.com/b"}
CLUSTERS = "xdstp://x/envoy.config.cluster.v3.Cluster"

# -- what a policy lets them have. The names of A begin with `a`, and it has a part of the collection `mixed`.

OWN = f'names: {{"*": [a*, "{CLUSTERS}/a/*", "{CLUSTERS}/mixed/a*"], vhds: [a-main/a*, "a-main/*.test", "zz/*"]}}'
FREE = "params: {env: {allow: [prod, test]}, v: any}"
RULES_OF_A = (
    f"{{identity: {IDENTITIES['a']}, {OWN}, {FREE}}}",
    f'{{identity: {IDENTITIES["a"]}, names: {{"*": [a1*, "{CLUSTERS}/mixed/a*"]}}, {FREE}}}',
    f"{{identity: {IDENTITIES['a']}, {OWN}, params: {{env: {{pin: prod}}}}}}",
    f"{{identity: {IDENTITIES['a']}, {OWN}, {FREE}, types: [cds, lds]}}",
    f"{{identity: {IDENTITIES['a']}, {OWN}, {FREE}, node: 'a-1'}}",
    "",
)
RULES_OF_B = (
    f'{{identity: {IDENTITIES["b"]}, names: {{"*": ["*{BRAND}*"]}}, params: any}}',
    f"{{identity: {IDENTITIES['b']}, params: any}}",  # an operator, who may have everything
    "",
)


def policy(a: int, b: int) -> Policy:
    rules = [rule for rule in (RULES_OF_A[a], RULES_OF_B[b]) if rule]
    return parse_policy("rules: [" + ", ".join(rules) + "]", "policy.yaml")


# -- their resources

FAMILIES: tuple[tuple[str, ...], ...] = ((), ("true",), ("env=prod",), ("env=prod", "env!=prod"), ("v=1", "v!=1"))
RESOURCES: Mapping[str, Sequence[tuple[TypeUrl, str]]] = {
    "a": (
        (xp.CLUSTER, "a1"),
        (xp.CLUSTER, "a2"),
        (xp.CLUSTER, f"{CLUSTERS}/a/1"),
        (xp.CLUSTER, f"{CLUSTERS}/mixed/a1"),
        (xp.ENDPOINT, "a1"),
        (xp.LISTENER, "a1"),
        (xp.ROUTE, "a-main"),
        (xp.VIRTUAL_HOST, "a-main/a-shop"),
    ),
    "b": (
        (xp.CLUSTER, f"{BRAND}1"),
        (xp.CLUSTER, f"{BRAND}2"),
        (xp.CLUSTER, f"{CLUSTERS}/{BRAND}/1"),
        (xp.CLUSTER, f"{CLUSTERS}/mixed/{BRAND}1"),
        (xp.ENDPOINT, f"{BRAND}1"),
        (xp.LISTENER, f"{BRAND}1"),
        (xp.ROUTE, f"{BRAND}-main"),
        (xp.VIRTUAL_HOST, f"{BRAND}-main/{BRAND}-shop"),
        (xp.VIRTUAL_HOST, f"a-main/{BRAND}-shop"),  # in a route configuration of A
    ),
}
ASKED: Mapping[TypeUrl, Sequence[str]] = {
    xp.CLUSTER: (
        "a1",
        "a2",
        "a-alias",
        "a-stolen",
        f"{BRAND}1",
        "*",
        f"{CLUSTERS}/a/1",
        f"{CLUSTERS}/a/stolen",
        f"{CLUSTERS}/a/*",
        f"{CLUSTERS}/mixed/*",
        f"{CLUSTERS}/mixed/{BRAND}1",
        f"{CLUSTERS}/{BRAND}/*",
    ),
    xp.ENDPOINT: ("a1", "a-alias", "a-stolen", f"{BRAND}1"),
    xp.LISTENER: ("a1", "a-alias", "a-stolen", f"{BRAND}1", "*"),
    xp.ROUTE: ("a-main", "a-stolen", f"{BRAND}-main"),
    xp.VIRTUAL_HOST: (
        "a-main/shop.test",
        "a-main/a-stolen",
        "a-main/b.test",
        "a-main/deep.wild.test",
        "zz/b.test",
        f"a-main/{BRAND}-shop",
        f"{BRAND}-main/shop.test",
        "*",
    ),
}
# Strings that A may ask for: some are other names of resources of its own, some of resources of B.
ALIASES = {
    "a1": ("a-alias",),
    f"{BRAND}1": ("a-stolen",),
    f"{BRAND}-main": ("a-stolen",),
    f"{CLUSTERS}/{BRAND}/1": (f"{CLUSTERS}/a/stolen",),
    f"a-main/{BRAND}-shop": ("a-main/a-stolen",),
}
TAGS: Sequence[Mapping[str, str] | None] = (None, None, {}, {"env": "prod"}, {"env": "test"}, {"env": "x"}, {"v": "1"})


def message(type_url: TypeUrl, name: str, mark: str) -> Any:
    mark = f"{BRAND}-{mark}" if BRAND in name else mark
    if type_url == xp.ROUTE:
        made = RouteConfiguration(name=name, internal_only_headers=[mark])
        made.vhds.config_source.ads.SetInParent()
        return made
    if type_url == xp.VIRTUAL_HOST:
        is_foreign = BRAND in name.rpartition("/")[2] and name.startswith("a")
        host = VirtualHost(name=name, domains=["b.test", "*.wild.test"] if is_foreign else ["shop.test"])
        host.virtual_clusters.add(name=mark)
        return host
    return MAKE[type_url](name, mark)


# -- who asks


@dataclass
class Caller:
    """A client by hand. It holds what it was sent, so that it can name the versions when it comes back."""

    world: World
    who: str
    delta: bool
    metadata: Mapping[str, str]
    node: str
    call: XdsCall | None = None
    wanted: dict[TypeUrl, dict[tuple[str, Any], None]] = field(default_factory=dict)
    unanswered: dict[TypeUrl, list[Any]] = field(default_factory=dict)
    versions: dict[TypeUrl, dict[str, str]] = field(default_factory=dict)
    asked: set[TypeUrl] = field(default_factory=set)  # on this stream
    heard: list[bytes] = field(default_factory=list)
    # What it has: contents by type, name and constraints; the latter are None for a plain name.
    has: dict[tuple[TypeUrl, str, bytes | None], bytes] = field(default_factory=dict)
    # Since they were last taken: what is wrong with a name, and for which params there is nothing by it.
    errors: set[tuple[TypeUrl, str, bytes]] = field(default_factory=set)
    absences: set[tuple[TypeUrl, str, bytes | None]] = field(default_factory=set)
    is_first: bool = True

    def open(self) -> None:
        if self.call is None:
            if not self.delta:
                self.has.clear()
            peer = Peer("wire", proved=parse_identity(IDENTITIES[self.who]))
            self.call = self.world.front.hub.open("tenants", peer, delta=self.delta, only_type=None)
            self.is_first = True
            self.asked.clear()
            self.unanswered.clear()
            for type_url in list(self.wanted):
                self.send(type_url, list(self.wanted[type_url]), [])

    def cut(self) -> None:
        if self.call is not None:
            self.call.close()
            self.call = None

    def ask(self, type_url: TypeUrl, name: str, tag: Mapping[str, str] | None, *, want: bool) -> None:
        key = name, tuple(tag.items()) if tag is not None else None
        wanted = self.wanted.setdefault(type_url, {})
        if want == (key in wanted) and not want:
            return
        if want:
            wanted[key] = None
        else:
            del wanted[key]
        if self.call is not None:
            self.send(type_url, [key] if want else [], [] if want else [key])

    def send(self, type_url: TypeUrl, more: Sequence[tuple[str, Any]], less: Sequence[tuple[str, Any]]) -> None:
        """One request: in delta with what is new, in SotW with everything."""
        request: Any = pb.DeltaDiscoveryRequest() if self.delta else pb.DiscoveryRequest()
        request.type_url = type_url
        if self.is_first:
            self.is_first = False
            request.node.id = self.node
            request.node.metadata.update(dict(self.metadata))
        if isinstance(request, pb.DeltaDiscoveryRequest):
            for keys, names, locators in (
                (more, request.resource_names_subscribe, request.resource_locators_subscribe),
                (less, request.resource_names_unsubscribe, request.resource_locators_unsubscribe),
            ):
                _list(keys, names, locators)
            if type_url not in self.asked:
                request.initial_resource_versions.update(self.versions.get(type_url, {}))
        else:
            _list([*self.wanted.get(type_url, {})], request.resource_names, request.resource_locators)
            if type_url in self.unanswered:
                request.response_nonce = self.unanswered.pop(type_url)[-1].nonce
        self.asked.add(type_url)
        self._receive(request)

    def answer(self, *, good: bool) -> None:
        """ACK or NACK all responses."""
        unanswered, self.unanswered = self.unanswered, {}
        for type_url, responses in unanswered.items():
            for response in responses if self.delta else responses[-1:]:
                request: Any = pb.DeltaDiscoveryRequest() if self.delta else pb.DiscoveryRequest()
                request.type_url, request.response_nonce = type_url, response.nonce
                if not good:
                    request.error_detail.message = "no"
                if isinstance(request, pb.DiscoveryRequest):
                    request.version_info = response.version_info if good else ""
                    _list([*self.wanted.get(type_url, {})], request.resource_names, request.resource_locators)
                self._receive(request)

    def _receive(self, request: Any) -> None:
        if self.call is not None:
            try:
                self.call.receive(request.SerializeToString())
            except PeerError:  # what the RPC says is of no interest here
                self.cut()

    def read(self) -> bool:
        """Take what there is. Return whether there was something."""
        if self.call is None:
            return False
        came = [bytes(body) for body in self.call.poll()]
        for body in came:
            self.heard.append(body)
            kind = pb.DeltaDiscoveryResponse if self.delta else pb.DiscoveryResponse
            response = kind.FromString(body)
            self.unanswered.setdefault(response.type_url, []).append(response)
            self._note(response)
            if isinstance(response, pb.DeltaDiscoveryResponse):
                held = self.versions.setdefault(response.type_url, {})
                held.update({each.name: each.version for each in response.resources if each.name})
                for name in response.removed_resources:
                    held.pop(name, None)
        return bool(came)

    def _note(self, response: Any) -> None:
        """Take what a response says, as a client would."""
        type_url = response.type_url
        if isinstance(response, pb.DiscoveryResponse) and type_url in (xp.CLUSTER, xp.LISTENER):
            for key in [key for key in self.has if key[0] == type_url]:  # a full state
                del self.has[key]
        made = [each if isinstance(each, pb.Resource) else _unwrapped(each) for each in response.resources]
        found = {(type_url, *_about(each)): each.resource.value for each in made}
        assert len(found) == len(made), f"a resource is twice in a response: {[*found]}"  # Envoy refuses all of it
        self.has |= found
        for name in getattr(response, "removed_resources", ()):
            self.has.pop((type_url, name, None), None)
            self.absences.add((type_url, name, None))
        for absent in getattr(response, "removed_resource_names", ()):
            when = absent.dynamic_parameter_constraints.SerializeToString(deterministic=True)
            self.has.pop((type_url, absent.name, when), None)
            self.absences.add((type_url, absent.name, when))
        self.errors |= {
            (type_url, each.resource_name.name, each.SerializeToString(deterministic=True))
            for each in response.resource_errors
        }


def _unwrapped(each: Any) -> pb.Resource:
    """A resource of a SotW response: wrapped if it was subscribed by a locator."""
    if each.type_url.endswith("discovery.v3.Resource"):
        return pb.Resource.FromString(each.value)
    kind = find_message(each.type_url.rpartition("/")[2])
    message = kind.FromString(each.value)
    return pb.Resource(name=getattr(message, "name", "") or message.cluster_name, resource=each)


def _about(each: pb.Resource) -> tuple[str, bytes | None]:
    if not each.HasField("resource_name"):
        return each.name, None
    constraints = each.resource_name.dynamic_parameter_constraints
    return each.resource_name.name, constraints.SerializeToString(deterministic=True)


def _list(keys: Sequence[tuple[str, Any]], names: Any, locators: Any) -> None:
    for name, tag in keys:
        if tag is None:
            names.append(name)
        else:
            locators.add(name=name, dynamic_parameters=dict(tag))


# -- where they meet


class World:
    """A server with a policy, or a relay with a policy in front of a server without."""

    def __init__(self, *, both: bool, relay: str | None = None, limits: xp.Limits | None = None) -> None:
        """`relay`: how it asks, `delta` or `sotw`; None: there is none."""
        self.both = both
        self.clock = Clock()
        told = Settings(resource_errors="all", epoch="e", limits=limits or xp.Limits())
        self.policy = policy(0, 0)
        self.origin = Site(self.clock, Store(), settings=told)
        self.relay: RelaySite | None = None
        self._told = told
        self._mode = relay
        if relay is not None:
            self.file = CacheFile(self)
            self.relay = self.make_relay()
            self.relay.line.open()
        self.front.hub.enforce(self.policy)
        self.callers: dict[tuple[str, int], Caller] = {}
        self.marks = 0
        self.rest: tuple[Site, RestApplication] | None = None
        self.fetched: dict[tuple[str, bytes], str] = {}  # the version that came of each question over REST

    @property
    def front(self) -> Site:
        return self.relay or self.origin

    def make_relay(self) -> RelaySite:
        is_delta, cache = self._mode == "delta", self.file.open()
        return RelaySite(self.clock, self.origin, delta=is_delta, linger=30.0, cache=cache, settings=self._told)

    # -- what happens

    def connect(self, who: str, slot: int, *, delta: bool, metadata: Mapping[str, str]) -> None:
        if who == "b" and not self.both:
            return
        if (who, slot) not in self.callers:
            self.callers[who, slot] = Caller(self, who, delta, metadata, f"{who}-{slot}")
        self.callers[who, slot].open()

    def disconnect(self, who: str, slot: int, *, forget: bool) -> None:
        caller = self.callers.get((who, slot))
        if caller is not None:
            caller.cut()
            if forget:
                del self.callers[who, slot]

    def change(self, changes: Sequence[tuple[str, int, int]]) -> None:
        """One transaction: of each tenant some resources, each with another family of variants."""
        self.marks += 1
        changeset: dict[tuple[TypeUrl, str], Any] = {}
        for who, which, family in changes:
            if who == "b" and not self.both:
                continue
            type_url, name = RESOURCES[who][which % len(RESOURCES[who])]
            aliases = ALIASES.get(name, ())
            changeset[type_url, name] = tuple(
                variant_of(
                    message(type_url, name, f"{self.marks}.{number}"),
                    constraint=xp.parse(when).constraint,
                    name=name,
                    aliases=aliases,
                )
                for number, when in enumerate(FAMILIES[family])
            )
        if changeset:
            self.origin.store.apply(changeset)

    def enforce(self, a: int, b: int) -> None:
        self.policy = policy(a, b)
        self.front.hub.enforce(self.policy)

    def fetch(self, request: pb.DiscoveryRequest, who: str) -> bytes | None:
        """A fetch, and its answer."""
        if who == "b" and not self.both:
            return None
        peer = Peer("wire", proved=parse_identity(IDENTITIES[who]))
        call = open_fetch(self.front.hub, "fetch", peer, request.type_url, v2=False)
        call.receive(request.SerializeToString())
        answer: list[bytes] = []
        try:
            for _ in range(20):
                answer += [bytes(body) for body in call.poll()]
                if answer:
                    break
                self.settle()
        except PeerError as error:
            answer = [str(error).encode()]
        call.close()
        return answer[0] if answer else None

    def post(self, request: pb.DiscoveryRequest, who: str) -> tuple[int, bytes]:
        """The same over REST: status and body. Whoever has asked alike before names the version that came then."""
        if self.rest is None or self.rest[0] is not self.front:
            self.close()
            self.rest = self.front, RestApplication(self.front.hub, self.clock)
        key = who, request.SerializeToString(deterministic=True)
        body = json_format.MessageToDict(request) | {"version_info": self.fetched.get(key, "")}
        if who == "b" and not self.both:
            for _ in range(ROUNDS):
                self.settle()
                self.clock.now += 1.0
            return 0, b""
        status, _, answer = self.rest[1].post(request.type_url, json.dumps(body).encode(), IDENTITIES[who], self.settle)
        if status == 200:
            self.fetched[key] = json.loads(answer)["version_info"]
        return status, answer

    def close(self) -> None:
        for caller in self.callers.values():
            caller.cut()
        if self.rest is not None:
            self.rest[1].close()

    def outage(self, *, down: bool) -> None:
        if self.relay is not None:
            (self.relay.line.cut if down else self.relay.line.open)()

    def restart(self, *, down: bool) -> None:
        """Another process takes the place of the relay, with the cache file of the one before it."""
        if self.relay is None:
            return
        self.file.write()
        self.relay.line.cut()
        for caller in self.callers.values():
            caller.cut()
        self.relay = self.make_relay()
        (self.relay.line.fail if down else self.relay.line.open)()
        self.relay.hub.enforce(self.policy)
        for caller in self.callers.values():
            caller.open()

    # -- until all are quiet

    def settle(self) -> None:
        for pause in (0.0, 1.0, 3.0) if self.relay is not None else (0.0,):
            self.clock.now += pause
            for _ in range(100):
                if not self._talk():
                    break
            else:
                raise AssertionError("they never stop")

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.settle()

    def _talk(self) -> bool:
        busy = False
        if self.relay is not None:
            busy = self.relay.line.talk()
            self.relay.tend()
        self.origin.turn()
        for caller in self.callers.values():
            busy |= caller.read()
        return busy

    # -- what A was sent

    def take(self) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {}
        for (who, slot), caller in self.callers.items():
            heard, caller.heard = caller.heard, []
            if who == "a" and heard:
                found[slot] = heard
        return found
