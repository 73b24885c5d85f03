"""One stream: who is at the other end, its sessions by type, and the order between them.

The four verbs: `receive` a request, be told of changes (through the sessions' `notify`), `poll` for what to send, and
`deadline` for when to poll again although nothing happened. A shell is a loop around them.

Order (DESIGN 6.9): what is added or changed goes out by rank, clusters first. What only goes away follows in the
opposite order, and waits until the client needs it no more (removals.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import PeerError
from ..model.events import DeltaRequest, Node, Request, Send, SotwRequest
from ..model.facts import Facts, Joined, OtherNode, Requested, Sent
from ..model.limits import Refusal, SubscriptionBudget
from ..model.settings import Settings
from ..model.steps import Steps, finish
from ..model.store import Store
from ..model.type_versions import as_v2, as_v3
from ..model.types import CLUSTER, ENDPOINT, NO_PARAMS, ROUTE, VIRTUAL_HOST, Params, TypeUrl, Variant
from .delta import DeltaSession
from .interest import Interest
from .refusals import RefusedTypes, note_refused
from .removals import AnySession, Removals
from .sotw import SotwSession
from .virtual_host_session import VirtualHostSession

MAX_SHOWN = 256  # characters of what a client sent that go into a status


class Stream:
    """The protocol side of one xDS stream, aggregated or of a single type."""

    __slots__ = (
        "_changed",
        "_facts",
        "_interest",
        "_refused_types",
        "_removals",
        "_settings",
        "_settled",
        "_store",
        "_working",
        "delta",
        "node",
        "number",
        "only_type",
        "params",
        "room",
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
        self.params = NO_PARAMS  # by the node
        self.sessions: dict[TypeUrl, AnySession] = {}  # in the order of their ranks
        self.room = SubscriptionBudget(
            settings.limits
        )  # how many subscriptions there are, and how many were refused (DYN-46)
        self._refused_types: RefusedTypes | None = None  # answers about types that there is no session for
        self._store = store
        self._interest = interest
        self._settings = settings
        self._facts = facts
        self._removals = Removals(settings, aggregated=only_type is None)
        self._settled = False  # nothing is under way: all sessions are at rest, and no removal waits
        self._changed: AnySession | None = None  # the one session that has news
        self._working = False  # `receiving` or `polling` is under way

    def plain_params(self, name: str) -> Params:
        """What a subscription to `name` has that sends no params (DESIGN 6.2)."""
        return self._settings.plain_params(self.params, name)

    def receive(self, request: Request, now: float) -> bool:
        """Take one request in; whether there may be something to say now. Raises PeerError if it can't go on."""
        if self._is_accepted(request, now):
            return False
        finish(self._take(request, now))
        return True

    def weight(self, request: Request) -> int:
        """About how many resources `receive` has to look at for this request.

        SOT-12: who wants everything and names a version gets nothing, if that is the version of all that there is.
        """
        body, type_url = request.body, as_v3(request.type_url) or self.only_type or ""
        if not isinstance(body, SotwRequest) or not body.version or body.wanted or type_url in self.sessions:
            return 0
        return self._store.size(type_url)

    def receiving(self, request: Request, now: float) -> Steps[None]:
        """What `receive` does, in steps. Until it is done there is no other request to take in, and no poll."""
        if not self._is_accepted(request, now):
            self._working = True
            yield from self._take(request, now)
            self._working = False

    def _is_accepted(self, request: Request, now: float) -> bool:
        """Whether it is an ACK and nothing else, of a session at rest."""
        session = self.sessions.get(request.type_url) if self._settled and request.is_plain else None
        known = session is not None and session.v2 == request.v2 and not request.other_node
        return known and session.accept(request.body, now)  # type: ignore[union-attr,arg-type] # of the stream's own kind

    def _take(self, request: Request, now: float) -> Steps[None]:
        self._settled = False
        self._identify(request)
        type_url = self._type_of(request)
        self._facts.append(Requested(self.number, type_url))
        if request.unread:
            refusal = Refusal("request_names", f"a request has more than {self._settings.limits.request_names} names")
            note_refused(type_url, {refusal: request.unread}, self.room, self.number, self._facts)
        session = self._session(type_url)
        if session is None:
            self._refuse_type(type_url, request.body)
            return
        session.v2 = request.v2
        session.ttl.is_read = not request.v2 and (self.delta or (self.node or Node()).takes_ttl)  # TTL-1
        legacy = self._settings.means_wildcard(self.node or Node())
        if isinstance(session, SotwSession) and isinstance(request.body, SotwRequest):
            yield from session.receive(request.body, now, legacy_wildcard=legacy)
        elif isinstance(session, DeltaSession) and isinstance(request.body, DeltaRequest):
            yield from session.receive(request.body, now, legacy_wildcard=legacy, continues=request.continues)

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

    def polling(self, now: float) -> Steps[list[Send]]:
        """What `poll` does, in steps. Until it is done there is no request to take in, and no other poll."""
        self._changed = None
        self._working = True
        for session in [*self.sessions.values()]:
            yield from session.foresee()
        sends = yield from self._looking(now)
        self._working = False
        return sends

    @property
    def backlog(self) -> int:
        """About how much the next poll looks at; nothing, where that is one change for all (core.serve.fast_path)."""
        if self._settled:
            return 0
        found = 0
        for session in self.sessions.values():
            found += session.backlog
        return found

    @property
    def count(self) -> int:
        """Of subscriptions."""
        return sum([session.count for session in self.sessions.values()])

    def _look(self, now: float) -> list[Send]:
        return finish(self._looking(now))

    def _looking(self, now: float) -> Steps[list[Send]]:
        """Look at everything."""
        sends = self._answer_refused_types() if self._refused_types is not None else []
        for session in self.sessions.values():
            session.tick(now)
        alone = sum([session.pending for session in self.sessions.values()]) == 1
        for type_url, session in self.sessions.items():
            if not session.pending:
                continue
            sends += yield from session.poll(now, together=alone and not self._removals.referrers(session))
            if type_url == CLUSTER:
                self._warm(session.news)
            elif type_url == ROUTE:
                yield from self._revisit(session.news)
        for type_url, session in reversed(self.sessions.items()):
            keys = self._removals.due(type_url, session, now)
            if keys:
                sends += session.settle(now, keys)
        for session in self.sessions.values():
            sends += session.beat(now)
        self._settled = not self._removals and all(session.at_rest for session in self.sessions.values())
        return sends

    def _passes_on(self, session: AnySession) -> bool:
        """Whether it gives another session something to say. Hosts on demand there are none, or all is not settled."""
        endpoints = self.sessions.get(ENDPOINT)
        if endpoints is None:
            return False
        self._warm(session.news)
        return endpoints.pending

    def deadline(self) -> float | None:
        if self._settled or self._working:
            return None
        times = [*self._removals.deadlines()]
        times += [session.ttl.deadline for session in self.sessions.values()]
        times += [session.paced_until for session in self.sessions.values() if isinstance(session, DeltaSession)]
        return min((time for time in times if time is not None), default=None)

    @property
    def is_answered(self) -> bool:
        """Whether the client has said of all that it was sent what it thinks of it."""
        return all(session.progress.is_answered for session in self.sessions.values())

    def close(self) -> None:
        finish(self.closing())

    def closing(self) -> Steps[None]:
        """Let go of all that the stream holds, in steps. The stream itself has nothing from the first of them on."""
        sessions, self.sessions = self.sessions, {}
        self._refused_types = None
        self._removals.clear()
        self._changed = None
        self._working = False
        for type_url, session in sessions.items():
            yield from session.close()
            self._store.discard(type_url)

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
            own, asked = (as_v2(url) if request.v2 else url for url in (self.only_type, request.type_url[:MAX_SHOWN]))
            raise PeerError("INVALID_ARGUMENT", f"this service serves {own}, not {asked}: use its own service or ADS")
        return self.only_type

    def _session(self, type_url: TypeUrl) -> AnySession | None:
        """None: there is none for this type, and no room for one (DYN-46)."""
        session = self.sessions.get(type_url)
        if session is None:
            if self._refusal_of(type_url) is not None:
                return None
            table = self._store.table(type_url)
            kind = SotwSession if not self.delta else VirtualHostSession if table.spec.on_demand else DeltaSession
            session = kind(table, self._interest, self._settings, self.params, self.number, self._facts, self.room)
            if isinstance(session, VirtualHostSession):
                session.configs, session.is_alone = self._configs, self.only_type is not None
            self.sessions[type_url] = session
            ordered = sorted(self.sessions.items(), key=lambda item: (item[1].table.spec.rank, item[0]))
            self.sessions = self._removals.sessions = dict(ordered)
        return session

    def _refusal_of(self, type_url: TypeUrl) -> Refusal | None:
        """Why there can't be a session for a type that is new on this stream; for the type of a service there can."""
        limits = self._settings.limits
        if self.only_type is not None:
            return None
        if len(self.sessions) >= limits.types:
            return Refusal("types", f"there are {limits.types} resource types on this stream, which is the most")
        return limits.refuses(type_url, "", None)

    def _refuse_type(self, type_url: TypeUrl, body: SotwRequest | DeltaRequest) -> None:
        """DYN-46: answer without a session, and keep nothing. In SotW stay quiet, as of an unknown type (SRV-5)."""
        refusal = self._refusal_of(type_url)
        keys = body.subscribe if isinstance(body, DeltaRequest) else body.wanted
        if refusal is not None and keys:
            note_refused(type_url, {refusal: len(keys)}, self.room, self.number, self._facts)
            if self.delta:
                self._refused_types = self._refused_types or RefusedTypes(self.number, self._settings)
                self._refused_types.add(self._store.spec(type_url), keys, refusal)

    def _answer_refused_types(self) -> list[Send]:
        sends = self._refused_types.take() if self._refused_types is not None else []
        self._facts += [Sent(self.number, each.type_url, each.nonce, 0, len(each.removed)) for each in sends]
        return sends

    # -- order

    def _warm(self, clusters: Iterable[Variant]) -> None:
        """ORD-11: a changed cluster warms until its endpoints come again, and delta Envoy does not ask (S11)."""
        endpoints = self.sessions.get(ENDPOINT)
        if endpoints is not None:
            for cluster in clusters:
                if cluster.warms is not None:
                    endpoints.resend(cluster.warms)

    # -- virtual hosts on demand

    def _revisit(self, routes: Iterable[Variant]) -> Steps[None]:
        hosts = self.sessions.get(VIRTUAL_HOST)
        configs = {route.name: None for route in routes if route.is_on_demand}
        if isinstance(hosts, VirtualHostSession) and configs:
            yield from hosts.revisit(configs)

    def _configs(self) -> list[str]:
        """VHD-13: the route configurations that this client may know; if it gets these elsewhere, all that there are.

        VHD-27: it may have others from its own static configuration, and use virtual hosts that are here under these.
        """
        hosts, routes = self._store.table(VIRTUAL_HOST), self.sessions.get(ROUTE)
        if routes is not None:
            sent = {route.name: route.is_on_demand for route in routes.holdings()}
            return [name for name, on_demand in sent.items() if on_demand] + [
                name for name in hosts.configs() if name not in sent
            ]
        table = self._store.table(ROUTE)
        known = (each.select(self.plain_params(name)) for name, each in table)
        own = [route.name for route in known if route is not None and route.is_on_demand]
        return own + [name for name in hosts.configs() if table.named(name) is None]
