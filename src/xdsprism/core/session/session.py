"""Put together what serves one resource type on one stream.

A session is made of parts. Each of them decides one thing, and is known to those below it in this table:

| part            | file                                  | decides                                                  |
|-----------------|---------------------------------------|----------------------------------------------------------|
| `context`       | context.py                            | nothing: the table, the settings and the node's params   |
| `due`           | due.py                                | nothing: what the next poll has to look at               |
| `subscriptions` | subscriptions.py                      | which subscriptions there are                            |
| `holdings`      | holdings.py                           | in which state each resource is at the client            |
| `view`          | client_view.py                        | what the client has, by all its subscriptions together   |
| `availability`  | availability.py                       | whether the store can answer a subscription yet          |
| `admission`     | admission.py                          | which subscriptions are past a limit                     |
| `in_flight`     | in_flight.py                          | nonces, and which responses wait for an ACK or NACK      |
| `rejections`    | rejections.py                         | which resources the client rejected                      |
| `isolation`     | isolation.py                          | what goes out again, alone, after a NACK                 |
| `ttl`           | ttl.py                                | which resources need a heartbeat                         |
| `verdicts`      | verdicts.py                           | what an ACK or a NACK means                              |
| `rules`         | type_rules.py, virtual_hosts.py       | what is different about this type                        |
| `lifecycle`     | lifecycle.py                          | what happens when a subscription begins or ends          |
| `delivery`      | delivery.py                           | how the client is told of a variant, a removal, an error |
| `collector`     | collecting.py, wildcard_members.py    | which resources, removals and errors are due             |
| `requests`      | sotw_requests.py, delta_requests.py   | how a request is read                                    |
| `responses`     | sotw_responses.py, delta_responses.py | how what is due becomes responses                        |

fast_path.py has functions over these parts, for a session that has nothing pending but one change.

Methods that return `Steps` are generators. They yield after every `EVERY` items, so that the server can serve other
streams in between (core/model/steps.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..model.events import Key, Send
from ..model.steps import Steps
from ..model.table import Table
from ..model.types import Change, Params, Variant
from .admission import Admission
from .client_state import ClientState
from .collecting import Collector
from .context import SessionContext, StreamContext
from .delivery import Delivery
from .delta_requests import DeltaRequests
from .delta_responses import DeltaResponses
from .in_flight import InFlight
from .isolation import Isolation
from .lifecycle import Lifecycle
from .rejections import Rejections
from .sotw_requests import SotwRequests
from .sotw_responses import SotwResponses
from .subscription import NameSubscription
from .ttl import Ttl
from .verdicts import Verdicts
from .virtual_hosts import rules_of


class Session:
    """One resource type on one stream. `configs`: returns the route configurations that use VHDS."""

    __deletable__ = ("requests", "responses")  # compiled, no other attributes can be deleted
    __slots__ = (
        "admission",
        "availability",
        "collector",
        "context",
        "delivery",
        "due",
        "holdings",
        "in_flight",
        "isolation",
        "lifecycle",
        "news",
        "progress",
        "rejections",
        "requests",
        "responses",
        "rules",
        "stream",
        "subscriptions",
        "table",
        "ttl",
        "v2",
        "verdicts",
        "view",
    )

    def __init__(self, table: Table, stream: StreamContext, configs: Callable[[], Iterable[str]] = tuple) -> None:
        table.sessions += 1
        self.table = table
        self.stream = stream.number
        self.v2 = False  # the last request was of xDS v2
        self.news: tuple[Variant, ...] = ()  # the variants that the last poll found new or changed (ORD-11)
        self.context = context = SessionContext(self, table, stream)
        client = ClientState(context)
        self.due = client.due
        self.subscriptions = client.subscriptions
        self.holdings = client.holdings
        self.view = client.view
        self.availability = client.availability
        self.admission = Admission(context, client.subscriptions)
        self.in_flight = in_flight = InFlight(table.spec.label)
        self.progress = in_flight.progress
        self.rejections = rejections = Rejections()
        self.isolation = isolation = Isolation()
        self.ttl = ttl = Ttl(context, client, in_flight.progress, rejections)
        self.verdicts = verdicts = Verdicts(context, client.view, in_flight, rejections, ttl)
        self.rules = rules = rules_of(context, client, in_flight, configs, is_alone=not stream.is_aggregated)
        self.lifecycle = lifecycle = Lifecycle(context, client, isolation, verdicts, ttl, rules)
        self.delivery = delivery = Delivery(context, client, verdicts, ttl, rules)
        self.collector = Collector(context, client, verdicts, delivery, lifecycle, rules)
        self.requests: SotwRequests | DeltaRequests
        self.responses: SotwResponses | DeltaResponses
        if stream.delta:
            self.requests, self.responses = DeltaRequests(self), DeltaResponses(self)
        else:
            self.requests = sotw = SotwRequests(self)
            self.responses = SotwResponses(self, sotw)

    # -- something changed (interest.py)

    def notify(self, name: str) -> None:
        """Mark the subscriptions to a changed name as dirty.

        `Interest` calls this. Wildcards need no call: they compare their cursor with the listing.
        """
        subscriptions, dirty = self.subscriptions, self.due.dirty
        wants = subscriptions.names.get(name)
        if wants is not None:
            for want in wants.values():
                dirty[want] = None
        if subscriptions.aliased:
            dirty.update(subscriptions.aliased.get(name, {}))

    def touch(self, want: NameSubscription) -> None:
        """What this subscription is about changed."""
        self.due.dirty[want] = None

    def rerouted(self, config: str) -> Steps[None]:
        """Note that the route configuration of subscribed virtual hosts changed."""
        return self.rules.rerouted(config)

    def resubscribe(self, change: Change) -> bool:
        """Subscribe again to dropped names that this change may create (VHD-25). Return whether there are any."""
        return self.lifecycle.resubscribe(change)

    def has_forgotten(self, name: str) -> bool:
        """Whether the client still waits for this name although the session dropped its subscription (VHD-25)."""
        return self.lifecycle.has_forgotten(name)

    def params_of_forgotten(self, name: str) -> Params | None:
        """Return with which params to ask for a name that the session has forgotten; None: the policy denies it."""
        return self.lifecycle.params_of_forgotten(name)

    def wants(self, name: str, params: Params) -> bool:
        """Whether the client has a subscription to this name, or this wildcard, with these params."""
        return self.subscriptions.wants(name, params)

    def is_judging(self, names: Iterable[str]) -> bool:
        """Whether a change of one of these names is unsent, in flight, or to be resent alone after a NACK."""
        if self.in_flight or (self.context.delta and self.isolation.has_resources):
            return True
        subscriptions, dirty = self.subscriptions, self.due.dirty
        if any(wild.started and wild.is_behind for wild in subscriptions.all_wildcards()):
            return True
        by_name, aliased = subscriptions.names, subscriptions.aliased
        return any(
            want in dirty for name in names for want in (*by_name.get(name, {}).values(), *aliased.get(name, ()))
        )

    # -- what there is to do

    @property
    def is_pending(self) -> bool:
        """Whether the next poll has something to look at."""
        return self.responses.is_pending

    @property
    def backlog(self) -> int:
        """Return about how many subscriptions and resources the next poll looks at."""
        found = len(self.due)
        if self.admission.refusals is not None:
            found += len(self.admission.refusals)
        for wild in self.subscriptions.all_wildcards():
            # A wildcard may have to look at each of its members.
            if wild.is_behind or not wild.started or wild.again:
                found += len(wild.listing.names)
        return found

    @property
    def paced_until(self) -> float | None:
        """Return until when the session sends nothing to a client that is slow to ACK; None: it does not wait."""
        return self.rules.paced_until if self.is_pending else None

    @property
    def leaving(self) -> dict[Key, Variant]:
        """Return the variants that the client holds and should not hold any more: their removals wait (ORD-2)."""
        return self.holdings.leaving

    @property
    def count(self) -> int:
        """Return how many subscriptions there are."""
        return len(self.subscriptions)

    # -- time, and the end

    def beat(self, now: float) -> list[Send]:
        """Return the heartbeats that `Ttl.tick` found due."""
        if not self.ttl:
            return []
        due = self.ttl.take_due(self.context.settings.response_bytes)
        return [self.verdicts.sent(self.responses.heartbeat(plain, located), now) for plain, located in due]

    def regrant(self, table: Table, stream: StreamContext) -> Steps[None]:
        """Go on under another policy, in steps: look at every subscription again.

        `table`: what the client may have of the type now.
        """
        before, self.table = self.table, table
        self.context.regrant(table, stream)
        if table is not before:
            table.sessions += 1
            before.sessions -= 1
            self.in_flight.change_table(table)
        yield from self.lifecycle.regrant(before)

    def closing(self) -> Steps[None]:
        """Drop all subscriptions, in steps, and leave the table and the index."""
        yield from self.lifecycle.closing()
        self.table.sessions -= 1
        # These know the session: without this the cycle would wait for the garbage collector.
        del self.requests, self.responses
        self.context.close()
