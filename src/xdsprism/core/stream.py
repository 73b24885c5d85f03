"""One stream: who is at the other end, its sessions by type, and the order between them.

The four verbs: `receive` a request, be told of changes (through the sessions' `notify`), `poll` for what to send, and
`deadline` for when to poll again although nothing happened. A shell is a loop around them.

Order (DESIGN 6.9): what is added or changed goes out by rank, clusters first. What only goes away follows in the
opposite order, and waits until the types that may refer to it have moved on: sent and ACKed, or a timeout (ORD-2).
If one of them was NACKed, its client still uses what it had, so the removal waits for better news (ORD-4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import PeerError
from .delta import DeltaSession
from .events import DeltaRequest, Key, Node, Request, Send, SotwRequest
from .facts import Facts, Joined, OtherNode, Requested
from .interest import Interest
from .settings import Settings
from .sotw import SotwSession
from .store import Store
from .twins import as_v2
from .types import CLUSTER, ENDPOINT, NO_PARAMS, ROUTE, VIRTUAL_HOST, TypeUrl, Variant

AnySession = SotwSession | DeltaSession


@dataclass(slots=True)
class Hold:
    """Removals of one type that came up together and wait: until when, and for which responses of which sessions."""

    keys: list[Key]
    until: float | None  # None: it is past
    awaited: dict[AnySession, tuple[int, int]]  # the first and the last of them
    patient: bool  # what the client has from an earlier stream: who refers to it may not have been heard of yet


class Stream:
    """The protocol side of one xDS stream, aggregated or of a single type."""

    __slots__ = (
        "_changed",
        "_facts",
        "_holds",
        "_interest",
        "_settings",
        "_settled",
        "_store",
        "delta",
        "node",
        "number",
        "only_type",
        "params",
        "sessions",
    )

    def __init__(
        self,
        number: int,
        store: Store,
        interest: Interest,
        settings: Settings,
        facts: Facts,
        *,
        delta: bool,
        only_type: TypeUrl | None = None,
    ) -> None:
        self.number = number
        self.delta = delta
        self.only_type = only_type
        self.node: Node | None = None
        self.params = NO_PARAMS
        self.sessions: dict[TypeUrl, AnySession] = {}  # in the order of their ranks
        self._store = store
        self._interest = interest
        self._settings = settings
        self._facts = facts
        self._holds: dict[TypeUrl, list[Hold]] = {}
        self._settled = False  # nothing is under way: all sessions are at rest, and no removal waits
        self._changed: AnySession | None = None  # the one session that has news

    def receive(self, request: Request, now: float) -> bool:
        """Take one request in; whether there may be something to say now. Raises PeerError if it can't go on."""
        session = self.sessions.get(request.type_url) if self._settled and request.is_plain else None
        known = session is not None and session.v2 == request.v2 and not request.other_node
        if known and session.accept(request.body, now):  # type: ignore[union-attr,arg-type] # of the stream's own kind
            return False
        self._take(request, now)
        return True

    def _take(self, request: Request, now: float) -> None:
        self._settled = False
        self._identify(request)
        type_url = self._type_of(request)
        self._facts.append(Requested(self.number, type_url))
        session = self._session(type_url)
        session.v2 = request.v2
        session.takes_ttl = not request.v2 and (self.delta or (self.node or Node()).takes_ttl)  # TTL-1
        legacy = self._settings.means_wildcard(self.node or Node())
        if isinstance(session, SotwSession) and isinstance(request.body, SotwRequest):
            session.receive(request.body, now, legacy_wildcard=legacy)
        elif isinstance(session, DeltaSession) and isinstance(request.body, DeltaRequest):
            session.receive(request.body, now, legacy_wildcard=legacy)
        self._check_size()

    def stir(self, session: AnySession | None) -> None:
        """What this session wants changed; None: something did. The next poll is short if it is about one session."""
        if session is None or (self._changed is not None and self._changed is not session):
            self._settled = False
        self._changed = session

    def poll(self, now: float) -> list[Send]:
        changed, self._changed = self._changed, None
        if changed is not None and self._settled:
            sends = changed.push(now)
            if sends is not None:
                warms = sends and changed.table.spec.url == CLUSTER and self._passes_on(changed)
                return sends + self._look(now) if warms else sends
        return self._look(now)

    def _look(self, now: float) -> list[Send]:
        """At everything."""
        sends: list[Send] = []
        for session in self.sessions.values():
            session.tick(now)
        alone = sum(session.pending for session in self.sessions.values()) == 1
        for type_url, session in self.sessions.items():
            if not session.pending:
                continue
            sends += session.poll(now, together=alone and not self._referrers(session))
            if type_url == CLUSTER:
                self._warm(session.news)
            elif type_url == ROUTE:
                self._revisit(session.news)
        for type_url, session in reversed(self.sessions.items()):
            keys = self._removable(type_url, session, now)
            if keys:
                sends += session.settle(now, keys)
        for session in self.sessions.values():
            sends += session.beat(now)
        self._settled = not self._holds and all(session.at_rest for session in self.sessions.values())
        return sends

    def _passes_on(self, session: AnySession) -> bool:
        """Whether it gives another session something to say. Hosts on demand there are none, or all is not settled."""
        endpoints = self.sessions.get(ENDPOINT)
        if endpoints is None:
            return False
        self._warm(session.news)
        return endpoints.pending

    def deadline(self) -> float | None:
        if self._settled:
            return None
        times = [hold.until for holds in self._holds.values() for hold in holds]
        times += [session.next_beat for session in self.sessions.values()]
        times += [session.paced_until for session in self.sessions.values() if isinstance(session, DeltaSession)]
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        for type_url, session in self.sessions.items():
            session.close()
            self._store.discard(type_url)
        self.sessions = {}
        self._holds = {}
        self._changed = None

    # -- who and what

    def _identify(self, request: Request) -> None:
        """SRV-6, SRV-7: the first message says who it is, or it is anonymous; the others change nothing."""
        if self.node is None:
            self.node = request.node or Node()
            self.params = self._settings.params_of(self.node)
            self._facts.append(Joined(self.number, self.node))
        elif request.other_node:
            self._facts.append(OtherNode(self.number))

    def _type_of(self, request: Request) -> TypeUrl:
        if self.only_type is None:
            if not request.type_url:  # SRV-4
                raise PeerError("INVALID_ARGUMENT", "type_url is empty: an aggregated stream needs one in each request")
            return request.type_url
        if request.type_url not in ("", self.only_type):  # SRV-3
            own, asked = (as_v2(url) if request.v2 else url for url in (self.only_type, request.type_url))
            raise PeerError("INVALID_ARGUMENT", f"this service serves {own}, not {asked}: use its own service or ADS")
        return self.only_type

    def _session(self, type_url: TypeUrl) -> AnySession:
        session = self.sessions.get(type_url)
        if session is None:
            if len(self.sessions) >= self._settings.limits.types:
                raise PeerError("RESOURCE_EXHAUSTED", f"more than {self._settings.limits.types} types on one stream")
            kind = DeltaSession if self.delta else SotwSession
            table = self._store.table(type_url)
            session = kind(table, self._interest, self._settings, self.params, self.number, self._facts)
            if isinstance(session, DeltaSession):
                session.configs, session.is_alone = self._configs, self.only_type is not None
            self.sessions[type_url] = session
            ordered = sorted(self.sessions.items(), key=lambda item: (item[1].table.spec.rank, item[0]))
            self.sessions = dict(ordered)
        return session

    def _check_size(self) -> None:
        """DYN-46. Counted when the request was taken in: what it repeats is no more than there was."""
        limits = self._settings.limits
        if sum([session.count for session in self.sessions.values()]) <= min(limits.subscriptions, limits.locators):
            return
        names = sum(session.count for session in self.sessions.values() if not session.table.spec.on_demand)
        hosts = sum(session.count for session in self.sessions.values()) - names
        locators = sum(session.locators for session in self.sessions.values() if not session.table.spec.on_demand)
        if names > limits.subscriptions or locators > limits.locators:
            message = f"more than {limits.subscriptions} names ({limits.locators} locators) on one stream"
            raise PeerError("INVALID_ARGUMENT", message)
        if hosts > limits.hosts:
            raise PeerError("INVALID_ARGUMENT", f"more than {limits.hosts} virtual hosts on one stream")

    # -- order

    def _referrers(self, session: AnySession) -> list[AnySession]:
        found = (self.sessions.get(type_url) for type_url in session.table.spec.referrers)
        return [referrer for referrer in found if referrer is not None]

    def _removable(self, type_url: TypeUrl, session: AnySession, now: float) -> list[Key]:
        """Of what is leaving: what need not wait any more."""
        if not session.leaving:
            self._holds.pop(type_url, None)
            return []
        holds = self._holds.pop(type_url, [])
        known = {key for hold in holds for key in hold.keys}
        fresh = [key for key in session.leaving if key not in known]
        free: list[Key] = []
        for hold in [*holds, self._hold(session, fresh, now)] if fresh else holds:
            hold.keys = [key for key in hold.keys if key in session.leaving]  # the others came back, or went unwanted
            if hold.until is not None and now >= hold.until:
                hold.until = None
            waits = hold.patient and hold.until is not None
            if waits:
                hold.awaited = {**self._unanswered(session), **hold.awaited}  # of those that are there by now
            if not waits and all(self._moved_on(referrer, hold) for referrer in hold.awaited):
                free += hold.keys
            elif hold.keys:
                self._holds.setdefault(type_url, []).append(hold)
        return free

    def _hold(self, session: AnySession, keys: list[Key], now: float) -> Hold:
        foreign = any(session.leaving[key].is_remnant for key in keys)
        patient = foreign and self.only_type is None and bool(session.table.spec.referrers)
        return Hold(keys, now + self._settings.ack_timeout, self._unanswered(session), patient)

    def _unanswered(self, session: AnySession) -> dict[AnySession, tuple[int, int]]:
        found = ((referrer, referrer.progress) for referrer in self._referrers(session))
        return {referrer: (state.acked + 1, state.sent) for referrer, state in found if state.sent > state.acked}

    def _moved_on(self, referrer: AnySession, hold: Hold) -> bool:
        first, last = hold.awaited[referrer]
        progress = referrer.progress
        if progress.nack is not None and progress.nacked >= first:
            return False  # ORD-4
        if any(parked.number >= first for parked in progress.rejected.values()):
            return False
        return max(progress.acked, progress.nacked) >= last or hold.until is None  # a NACK that no longer matters

    def _warm(self, clusters: Iterable[Variant]) -> None:
        """ORD-11: a changed cluster warms until its endpoints come again, and delta Envoy does not ask (S11)."""
        endpoints = self.sessions.get(ENDPOINT)
        if endpoints is not None:
            for cluster in clusters:
                if cluster.warms is not None:
                    endpoints.resend(cluster.warms)

    # -- virtual hosts on demand

    def _revisit(self, routes: Iterable[Variant]) -> None:
        hosts = self.sessions.get(VIRTUAL_HOST)
        configs = {route.name: None for route in routes if route.is_on_demand}
        if isinstance(hosts, DeltaSession) and configs:
            hosts.revisit(configs)

    def _configs(self) -> list[str]:
        """VHD-13: the route configurations that this client knows; if it gets these elsewhere, all that there are."""
        routes = self.sessions.get(ROUTE)
        if routes is not None:
            return [route.name for route in routes.holdings() if route.is_on_demand]
        table = self._store.table(ROUTE)
        known = (each.select(self.params) for _, each in table)
        own = [route.name for route in known if route is not None and route.is_on_demand]
        return own + [name for name in self._store.table(VIRTUAL_HOST).configs() if table.named(name) is None]
