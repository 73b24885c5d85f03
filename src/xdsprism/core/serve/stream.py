"""Hold one xDS stream: its node, its sessions by type, and the order in which types go out.

A server drives a stream by four verbs. `receive` takes a request. `stir` notes that a session has changes. `poll`
returns the responses to send. `deadline` says when to poll again although nothing happened. None of them waits or reads
a clock.

A request goes to the session of its type. The first request for a type creates the session (session.py).

Order (DESIGN 6.9): added and changed resources go out by the rank of their type, clusters first. Removals follow in the
opposite order, and each waits until the client no longer needs the resource (removals.py). Heartbeats go last.

The stream is settled when all its sessions are at rest and no removal waits. Then a change takes the fast path, and so
does an ACK (fast_path.py).
"""

from __future__ import annotations

from ...errors import PeerError
from ...token_bucket import TokenBucket
from ..model.events import DeltaRequest, Node, Request, Send, SotwRequest
from ..model.facts import Facts, Joined, LimitReached, OtherNode, Requested
from ..model.limits import Refusal, StreamBudget
from ..model.pace import count_request, rate_of
from ..model.settings import Settings
from ..model.steps import Steps, finish
from ..model.store import Store
from ..model.type_versions import as_v2, as_v3
from ..model.types import CLUSTER, NO_PARAMS, ROUTE, Params, TypeUrl
from ..session.context import StreamContext
from ..session.delta_requests import DeltaRequests
from ..session.fast_path import is_at_rest, push
from ..session.interest import Interest
from ..session.refusals import RefusedTypes, note_refused, refuses_type
from ..session.session import Session
from ..session.sotw_requests import SotwRequests
from .access import GrantOf, StreamAccess, ungranted
from .follow_ups import follow_up, on_demand_configs, warm
from .removals import Removals

MAX_SHOWN = 256  # characters of a client's type URL that go into a gRPC status


class Stream:
    """The protocol side of one xDS stream, aggregated (ADS) or of a single type."""

    __slots__ = (
        "_access",
        "_bucket",
        "_changed",
        "_refused_types",
        "_removals",
        "_settled",
        "_store",
        "_working",
        "context",
        "delta",
        "node",
        "number",
        "only_type",
        "read_after",
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
        grant_of: GrantOf = ungranted,
    ) -> None:
        """`grant_of`: what a node may have by the policy in force, given who the client proved to be."""
        self.number = number
        self.delta = delta
        self.only_type = only_type
        self.node: Node | None = None
        self.context = StreamContext(
            number,
            interest,
            settings,
            NO_PARAMS,  # the node's, once the first request has named it
            facts,
            StreamBudget(settings.limits),  # counts subscriptions, and refused ones (DYN-46)
            delta,
            only_type is None,
        )
        self.sessions: dict[TypeUrl, Session] = {}  # in the order of their ranks
        self._refused_types: RefusedTypes | None = None  # answers about types that have no session
        self._store = store
        self._removals = Removals(settings, aggregated=only_type is None)
        self._settled = False  # all sessions are at rest and no removal waits
        self._changed: Session | None = None  # the only session that has changes
        self._working = False  # `receiving` or `polling` is in progress
        self._bucket: TokenBucket | None = None  # of its requests; None before the first
        self.read_after: float | None = None  # OPS-4: when to read the next request, once the client asks too often
        self._access = StreamAccess(store, self.context, grant_of)

    def plain_params(self, name: str) -> Params:
        """Return the params of a subscription to `name` that sends none (DESIGN 6.2)."""
        return self.context.settings.plain_params(self.context.params, name)

    def receive(self, request: Request, now: float) -> bool:
        """Take one request. Return whether a poll may have something to send. Raises PeerError, which ends the RPC."""
        if self._is_accepted(request, now):
            return False
        finish(self._take(request, now))
        return True

    def weight(self, request: Request) -> int:
        """Return about how many resources `receive` has to look at for this request.

        SOT-12: a client that wants everything and names a version is sent nothing if it has everything. To compare the
        version, the session computes a snapshot of the table.
        """
        body, type_url = request.body, as_v3(request.type_url) or self.only_type or ""
        first = request.node or Node() if self.node is None else None
        if type_url not in self.sessions and not self._access.has_table(type_url, first):
            return self._store.size(type_url)  # the part of the type that the client may have is made
        if not isinstance(body, SotwRequest) or not body.version or body.wanted or type_url in self.sessions:
            return 0
        return self._store.size(type_url)

    def receiving(self, request: Request, now: float) -> Steps[None]:
        """Do what `receive` does, in steps. Until it is done, the stream must be given no other request and no poll."""
        if not self._is_accepted(request, now):
            self._working = True
            yield from self._take(request, now)
            self._working = False

    def _is_accepted(self, request: Request, now: float) -> bool:
        """Take the request on the fast path if it is nothing but an ACK of a session at rest. Return whether it was."""
        session = self.sessions.get(request.type_url) if self._settled and request.is_plain else None
        known = session is not None and session.v2 == request.v2 and not request.other_node
        return known and session.requests.accept(request.body, now)  # type: ignore[union-attr,arg-type] # same protocol

    def _take(self, request: Request, now: float) -> Steps[None]:
        """Give a request to the session of its type, in steps."""
        self._settled = False
        if self._access.is_changed:
            yield from self._access.taking(self.sessions)
        self._identify(request)
        type_url = self._type_of(request)
        self.context.facts.append(Requested(self.number, type_url))
        self._count(type_url, request, now)
        # DYN-46: the decoder did not read the names past the limit of one request.
        if request.unread:
            refusal = Refusal(
                "request_names", f"a request has more than {self.context.settings.limits.request_names} names"
            )
            note_refused(type_url, {refusal: request.unread}, self.context.budget, self.number, self.context.facts)
        # The first request for a type creates its session.
        if type_url not in self.sessions and not self._access.has_table(type_url, None):
            yield from self._access.preparing(type_url)
        session = self._session(type_url)
        if isinstance(session, Refusal):
            keys = request.body.subscribe if isinstance(request.body, DeltaRequest) else request.body.wanted
            self._refused_types = self._refused_types or RefusedTypes(self.context)
            self._refused_types.refuse(self._store.spec(type_url), keys, session)
            return
        session.v2 = request.v2
        session.ttl.is_read = not request.v2 and (self.delta or (self.node or Node()).takes_ttl)  # TTL-1
        legacy = self.context.settings.means_wildcard(self.node or Node())
        body, requests = request.body, session.requests
        if isinstance(body, SotwRequest) and isinstance(requests, SotwRequests):
            yield from requests.receive(body, now, legacy_wildcard=legacy)
        elif isinstance(body, DeltaRequest) and isinstance(requests, DeltaRequests):
            yield from requests.receive(body, now, legacy_wildcard=legacy, continues=request.continues)

    def _count(self, type_url: TypeUrl, request: Request, now: float) -> None:
        """Count a request, and note when the next one may be read if there are too many (OPS-4).

        What only answers a response does not count: there is one for each response, and no other client may make a
        busy fleet's ACKs wait.
        """
        session, body = self.sessions.get(type_url), request.body
        requests = session.requests if session is not None else None
        if isinstance(body, SotwRequest):
            answers = isinstance(requests, SotwRequests) and requests.is_answer(body)
        else:
            answers = isinstance(requests, DeltaRequests) and requests.is_answer(body)
        if answers:
            return
        limits = self.context.settings.limits
        self._bucket = self._bucket or TokenBucket(rate_of(limits.requests), now)
        after = count_request(self._bucket, now)
        if after is not None:
            self.read_after = after
            self.context.budget.note_limited("requests")
            text = f"more than {limits.requests:,} requests a second that answer no response"
            self.context.facts.append(LimitReached("requests", text, stream=self.number))

    def stir(self, session: Session | None) -> None:
        """Note that this session has changes; None: several may have.

        The next poll takes the fast path if exactly one session has changes.
        """
        if session is None or (self._changed is not None and self._changed is not session):
            self._settled = False
        self._changed = session

    def poll(self, now: float) -> list[Send]:
        """Return the responses that are due: of the one session with changes if the stream is settled, else of all."""
        changed, self._changed = self._changed, None
        # Fast path: only this session has changes, and nothing else on the stream is due.
        if changed is not None and self._settled:
            sends = push(changed, now)
            if sends is not None:
                # ORD-11: a changed cluster may make its endpoints due. Then all sessions are polled. No virtual hosts
                # need a look here: a stream with a VHDS session is never settled.
                warms = sends and changed.table.spec.url == CLUSTER and warm(self.sessions, changed.news)
                return sends + finish(self._looking(now)) if warms else sends
        return finish(self._looking(now))

    def polling(self, now: float) -> Steps[list[Send]]:
        """Do what `poll` does, in steps. Until it is done, the stream must be given no request and no other poll."""
        self._changed = None
        self._working = True
        for session in [*self.sessions.values()]:
            yield from session.collector.foresee()
        sends = yield from self._looking(now)
        self._working = False
        return sends

    @property
    def backlog(self) -> int:
        """Return about how many items the next poll looks at; on the fast path, those that changed by name."""
        if self._settled:
            return len(self._changed.due.dirty) if self._changed is not None else 0
        found = 0
        for session in self.sessions.values():
            found += session.backlog
            if self._access.is_changed:
                found += session.count + len(session.table)
        return found

    @property
    def count(self) -> int:
        """Return the number of subscriptions."""
        return sum([session.count for session in self.sessions.values()])

    def _looking(self, now: float) -> Steps[list[Send]]:
        """Poll every session on the stream, in steps: first what is new, by rank, then removals, then heartbeats."""
        if self._access.is_changed:
            yield from self._access.taking(self.sessions)
        sends = self._refused_types.take() if self._refused_types is not None else []
        for session in self.sessions.values():
            session.ttl.tick(now)
        # If one session alone has something to send and nothing refers to its type, its removals need not wait.
        alone = sum([session.is_pending for session in self.sessions.values()]) == 1
        for session in self.sessions.values():
            if not session.is_pending:
                continue
            sends += yield from session.responses.poll(now, together=alone and not self._removals.referrers(session))
            # Sessions of a higher rank come later in this loop, so what this makes due goes out now.
            yield from follow_up(self.sessions, session)
        # Removals go in the opposite order: listeners before the clusters that they refer to.
        for type_url, session in reversed(self.sessions.items()):
            keys = self._removals.due(type_url, session, now)
            if keys:
                sends += session.responses.removal_responses(now, keys)
        for session in self.sessions.values():
            sends += session.beat(now)
        busy = self._removals or self._access.is_changed
        self._settled = not busy and all(is_at_rest(session) for session in self.sessions.values())
        return sends

    def deadline(self) -> float | None:
        """Return when to poll again although nothing changed: for a removal, a heartbeat, or a paced client."""
        # A settled stream has no removals or TTLs. While work is in progress, its end polls the stream.
        if self._settled or self._working:
            return None
        times = [*self._removals.deadlines()]
        times += [session.ttl.deadline for session in self.sessions.values()]
        times += [session.paced_until for session in self.sessions.values()]
        return min((time for time in times if time is not None), default=None)

    @property
    def is_answered(self) -> bool:
        """Whether the client has ACKed or NACKed every response."""
        return all(session.progress.is_answered for session in self.sessions.values())

    def close(self) -> None:
        """Drop all subscriptions of the stream at once."""
        finish(self.closing())

    def closing(self) -> Steps[None]:
        """Drop all subscriptions of the stream, in steps. The stream has no sessions from the first step on."""
        sessions, self.sessions = self.sessions, {}
        self._refused_types = None
        self._removals.clear()
        self._changed = None
        self._working = False
        # A table that has no resources and no sessions is discarded with its last session.
        for type_url, session in sessions.items():
            yield from session.closing()
            self._store.discard(type_url)

    @property
    def is_regranted(self) -> bool:
        """Whether the policy changed, and the sessions have not taken that yet."""
        return self._access.is_changed

    def regrant(self) -> bool:
        """Find anew what the client may have: the policy changed. Return whether that made a difference.

        If so, the next request or poll has the sessions compare everything.
        """
        if self.node is None or not self._access.find_anew(self.node):
            return False
        self._settled = False
        return True

    # -- who and what

    def _identify(self, request: Request) -> None:
        """Take the node from the first request. Later requests don't change it (SRV-6, SRV-7)."""
        if self.node is None:
            self.node = request.node or Node()
            self._access.identify(self.node)
            self.context.facts.append(Joined(self.number, self.node))
        elif request.other_node:
            self.context.facts.append(OtherNode(self.number))

    def _type_of(self, request: Request) -> TypeUrl:
        """Return the type of a request. Raises PeerError if it is missing on ADS, or not the service's own type."""
        if self.only_type is None:
            if not request.type_url:  # SRV-4
                raise PeerError("INVALID_ARGUMENT", "type_url is empty: an aggregated stream needs one in each request")
            return request.type_url
        if request.type_url not in ("", self.only_type):  # SRV-3
            own, asked = (as_v2(url) if request.v2 else url for url in (self.only_type, request.type_url[:MAX_SHOWN]))
            raise PeerError("INVALID_ARGUMENT", f"this service serves {own}, not {asked}: use its own service or ADS")
        return self.only_type

    def _session(self, type_url: TypeUrl) -> Session | Refusal:
        """Return the session of this type, created if needed, or why a limit does not allow one (DYN-46)."""
        session = self.sessions.get(type_url)
        if session is None:
            refusal = refuses_type(self.context, type_url, len(self.sessions))
            if refusal is not None:
                return refusal
            table = self._access.table(type_url)
            session = Session(table, self.context, self._configs)
            self.sessions[type_url] = session
            # `_looking` goes through the sessions in this order.
            ordered = sorted(self.sessions.items(), key=lambda item: (item[1].table.spec.rank, item[0]))
            self.sessions = self._removals.sessions = dict(ordered)
        return session

    def _configs(self) -> list[str]:
        """Return the route configurations with VHDS that this client may know (VHD-13)."""
        claim = self.context.claim
        if claim is not None and claim.denial is not None:
            return []
        found = on_demand_configs(self.sessions, self._access.table, self.plain_params)
        self._store.discard(ROUTE)  # the client may have no session that reads its part of them
        return found
