"""Assemble the relay: a server downstream, xDS clients upstream, and a cache between them (DESIGN 7).

The parts, and the way of an update:

    client ── Server, Hub (server/) ── Store (the cache) ── Relaying (core/relay/) ── Feed (feed.py) ── server

1. A session of the hub wants a name: `Relaying.want`. In the next turn the flush subscribes upstream if it must.
2. A response arrives at a client of the feed, which tells `Relaying.note_change` and then `_after_input`.
3. The hub's turn runs the flush (`_flushing`). It publishes the news to the store, and the sessions send them.

Flushes and responses go through one queue (work.py), so that neither sees half of the other. This module makes no
decision about resources; it connects timers, turns and parts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..client.bootstrap import Bootstrap, ServerConfig
from ..client.client import Connect
from ..client.last_good import LastGood
from ..core.model.cache_knowledge import cache_table
from ..core.model.facts import Fact, Lost, Reached
from ..core.model.limits import Client as ClientKey
from ..core.model.limits import Limits
from ..core.model.settings import ENGINE, Engine, Settings, UpstreamForm
from ..core.model.steps import Steps
from ..core.model.store import Store
from ..core.model.type_names import TypeName, resolve_type
from ..core.model.types import Params, TypeUrl
from ..core.policy.policy import Policy
from ..core.relay.fairness import Competitors
from ..core.relay.nack_reports import NackReports
from ..core.relay.relaying import LINGER, Relaying
from ..core.relay.revisiting import Revisits
from ..core.relay.upstream_subscription import Subject, UpstreamSubscription
from ..core.watch.entry import Entry
from ..core.watch.query_params import narrowed
from ..errors import XdsError
from ..messages.validation import Validate, check_mode
from ..observe.lines import log
from ..server.tls import Tls
from ..serving import Server
from .arguments import check_relay, request_form, with_defaults
from .feed import Feed, FeedClient
from .work import Work

if TYPE_CHECKING:
    from ..admin.access import Access
    from ..admin.http import View
    from ..admin.operations import Operations
    from ..observe.metrics import Metrics

T = TypeVar("T")

MAX_STALE = 24 * 3600.0
FAILED = 1.0  # seconds until the next flush after one that failed
AGING = 1.0  # seconds between two looks at the age of all answers, at least


class Relay:
    """A caching xDS proxy.

        async with xdsprism.Relay("bootstrap.json", listen="127.0.0.1:0") as relay:
            print(relay.address)

    bootstrap   the servers, as for a Client. Its dynamic_parameters are defaults for clients that send none: those at
                the top for names that are not xdstp, those of an authority for the names of that authority
    delta       use the incremental protocol where servers have it; False: use state of the world
    upstream_form  how to ask servers: "locators", plain "names", or "auto", as each one turns out to understand. The
                clients all get the same from a server that knows names only
    settings    as for a Server; `Settings(node_params=[...])` names the fields of a client's node that become params
    group_by    params, for servers that know no dynamic parameters: such a server sees one node for each combination
                of values, and its answers are for the clients that have these values
    linger      seconds for which the relay keeps a resource up to date that no client wants any more
    cache       a file with the last known state, to start from while every server is down
    tls         secures the relay's own port, as for a Server; the bootstrap has the servers' credentials
    max_stale   seconds for which new subscribers get a cached resource after the last server was lost (PRX-25)
    validate    what to do with a resource that Envoy would reject: pass it on ("off"), pass it on and log it ("warn"),
                or reject it by a NACK that names it, so that clients keep what they have ("envoy"). A listener with an
                `api_listener` passes
    policy      which client may have what, as for a Server
    csds        False: do not say which clients there are, as for a Server
    admin       HOST:PORT of the admin port, as for a Server, and `access`: who may use it
    report_nacks  report the clients' NACKs to the servers, which then wait up to 5 s for an ACK (PRX-18)
    """

    def __init__(  # noqa: PLR0913 # each is one choice
        self,
        bootstrap: Bootstrap | str | Path | Mapping[str, Any] | None = None,
        listen: str = "127.0.0.1:18000",
        *,
        settings: Settings | None = None,
        delta: bool = True,
        upstream_form: UpstreamForm = "auto",
        group_by: Collection[str] | None = None,
        linger: float = LINGER,
        cache: str | Path | None = None,
        max_stale: float = MAX_STALE,
        report_nacks: bool = False,
        v2: bool = True,
        rest: str | None = None,
        engine: Engine = ENGINE,
        max_connection_age: float | None = None,
        tls: Tls | None = None,
        policy: Policy | None = None,
        csds: bool = True,
        admin: str | None = None,
        access: Access | None = None,
        connect: Connect | None = None,
        validate: Validate = "off",
    ) -> None:
        check_relay(
            linger=linger,
            max_stale=max_stale,
            cache=cache,
            group_by=group_by,
            delta=delta,
            report_nacks=report_nacks,
            v2=v2,
        )
        self._validate = check_mode(validate)
        self.bootstrap = bootstrap if isinstance(bootstrap, Bootstrap) else Bootstrap.load(bootstrap)
        self.store = Store(tables=cache_table)
        form = request_form(upstream_form, group_by, self.bootstrap)
        self.feed = Feed(
            self.bootstrap,
            group_by=group_by,
            form=form,
            on_change=self._on_change,
            after_input=self._after_input,
            make=self._client,
        )
        self._revisits = Revisits(self.feed, self._forgotten, self._question_limits)
        self.relaying = Relaying(
            self.store,
            self.feed,
            listed=self._listed,
            linger=linger,
            reaches=self.feed.reaches,
            silence=self.feed.silence,
            max_stale=max_stale,
            limits=self._question_limits,
            competitors=Competitors(self._client_of, self._wanting, self.feed.pool, self._revisits.give_way),
            forgot=self._revisits.add,
            failed=_log_failed,
        )
        self.server = Server(
            self.store,
            listen,
            settings=with_defaults(settings or Settings(), self.bootstrap),
            v2=v2,
            rest=rest,
            engine=engine,
            max_connection_age=max_connection_age,
            tls=tls,
            policy=policy,
            csds=csds,
            demand=self.relaying,
        )
        self._work = Work(lambda: self.server.hub.slices)
        self._writing_work = Work(lambda: self.server.hub.slices)  # encodes requests to servers
        self._flush_waits = False  # a flush is queued behind other work
        self._reports = NackReports(self._are_judging) if report_nacks else None
        self._delta = delta
        self._connect = connect
        self.readers: list[Callable[[Sequence[Fact]], None]] = [self._note]  # of facts about upstream streams
        self.is_ready = False  # PRX-30: a server was reached once, or an earlier run left something
        self._has_sought = False
        self.server.tell_health(can_answer=False, asked=self._health_asked)
        self.last_good: LastGood | None = None
        self._group_by = group_by
        self._narrow: frozenset[ServerConfig] = frozenset()  # servers that take smaller locators than this relay
        self._cache = cache
        self._max_stale = max_stale
        self._admin = admin
        self._access = access
        self._operations: Operations | None = None  # if there is an admin port
        self._unready: str | None = "it is starting"
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._aging: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The address that the relay listens on."""
        return self.server.address

    @property
    def admin_address(self) -> str:
        """The address of the admin port, once started; empty if there is none."""
        return self._operations.address if self._operations is not None else ""

    def count(self, metrics: Metrics) -> None:
        """Have its cache and its upstream streams counted."""
        from ..admin.cache_model import ClockReading, last_answers, streams  # noqa: PLC0415 # loads only if needed
        from ..observe.metrics import CacheMetrics, ClientMetrics  # noqa: PLC0415

        upstreams, clock = self.feed.upstreams, self.server.hub.clock
        self.server.hub.readers.append(CacheMetrics(metrics))
        counting = ClientMetrics(
            metrics.registry,
            lambda: streams(upstreams()),
            lambda: last_answers(upstreams(), ClockReading(clock(), time.time())),
        )
        self.readers.append(counting)

    def view(self, metrics: Metrics, unready: Callable[[], str | None]) -> View:
        """Return what the admin port shows; `unready` returns why the relay itself is not ready, or None."""
        from ..admin.cache_model import RelayView  # noqa: PLC0415 # loads only if needed
        from ..admin.http import View  # noqa: PLC0415

        shown = RelayView(self.relaying, self.feed.upstreams, self.forget)
        return View(self.server.hub, metrics, None, lambda: unready() or self._not_ready_reason(), shown)

    def _not_ready_reason(self) -> str | None:
        """PRX-30: not ready until an upstream server was connected, or the cache on disk had something."""
        if self.is_ready:
            return None
        lost = next((each.lifecycle.lost for _, each in self.feed.upstreams() if each.lifecycle.lost is not None), None)
        return f"no upstream server was reached yet{f': {lost[1]}' if lost is not None else ''}"

    def enter(self) -> None:
        """Connect the parts and open the disk cache, as `async with` does, but without a port."""
        self.server.hub.chores.append(self._flush)
        if self._reports is not None:
            self.server.hub.readers.append(self._review)
        if self._cache is not None:
            kept = LastGood(str(self._cache), lambda text: log.warning("%s", text), max_stale=self._max_stale)
            self.last_good = kept
            self.feed.wall = lambda: kept.wall()  # noqa: PLW0108 # whichever clock that has by then
            if not kept.is_empty:
                self._become_ready()
            self._writing = asyncio.get_running_loop().create_task(kept.run(), name="xdsprism disk cache")

    def _become_ready(self) -> None:
        """Say from now on that the relay can answer (PRX-30)."""
        if not self.is_ready:
            self.is_ready = True
            self.server.tell_health(can_answer=True)

    def _health_asked(self) -> None:
        """Seek a server, once: whoever waits until the relay is healthy asks it for nothing before."""
        if not self._has_sought and not self.is_ready and self._unready is None:
            self.seek()

    def seek(self) -> None:
        """Find out whether a server can be reached, before a client asks for anything."""
        self._has_sought = True
        self.feed.client(None).seek()

    def enforce(self, policy: Policy | None) -> None:
        """Put another policy into force, also on streams that are open, as `Server.enforce` does.

        What clients may have now, and the relay does not know, it asks for. What nobody may have any more, of what was
        asked for, is dropped after `linger` seconds.
        """
        self.server.enforce(policy)

    def forget(self, type_url: TypeName, name: str) -> bool:
        """Drop the cached answers of a name, and ask again (PRX-28). Return whether there were any.

        No stream ends, and clients keep the resource until the new answer arrives.
        """
        url = resolve_type(type_url)
        if known := self.relaying.remembers(url, name):
            self._work.begin(self._forgetting(url, name))
        return known

    def _forgetting(self, type_url: TypeUrl, name: str) -> Steps[None]:
        """Drop the answers in steps, then let the hub run the flush."""
        yield from self.relaying.forgetting(type_url, name, asyncio.get_running_loop().time())
        self.server.hub.turn()

    async def __aenter__(self) -> Self:
        self.enter()
        try:
            self._open_admin()
            await self.server.start()
        except XdsError:
            await self.stop()
            raise
        self._unready = None
        return self

    def _open_admin(self) -> None:
        if self._admin is not None:
            from ..admin.operations import Operations  # noqa: PLC0415 # loads only if needed

            self._operations = Operations(self.server, self._admin, self._access)
            metrics = self._operations.metrics
            self.count(metrics)
            self._operations.open(self.view(metrics, lambda: self._unready))
            self.seek()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End every stream, downstream and upstream, and close the disk cache."""
        self._unready = "the server is shutting down"
        for timer in (self._timer, self._aging):
            if timer is not None:
                timer.cancel()
        await self.server.stop()
        await self.feed.close()
        if self._operations is not None:
            operations, self._operations = self._operations, None
            await operations.stop()
        if self._writing is not None and self.last_good is not None:
            self._writing.cancel()
            await self.last_good.close()

    def _client(self, bootstrap: Bootstrap, after_input: Callable[[], None], group: Params | None) -> FeedClient:
        """Make the upstream client for a group, with its part of the disk cache."""
        cache = None
        if self.last_good is not None:  # PRX-20: each group has its own part of the cache
            group_word = "" if group is None else repr(sorted(group.items()))
            cache = self.last_good.client_cache(group_word, shared=True)
        delta = None if self._delta else False
        client = FeedClient(
            bootstrap,
            after_input,
            self.feed.dialect,
            self._validate,
            self._work.do,
            self._aside,
            delta=delta,
            connect=self._connect,
            cache=cache,
        )
        client.enter()
        client.readers.append(self._pass_on)
        if self._reports is not None:
            client.subscriber.review = self._reports.came
        return client

    async def _aside(self, steps: Steps[T], /) -> T:
        """Run work that finds or encodes upstream requests.

        While the flush examines a name in steps, this work waits, so that one request contains all new subscriptions of
        the name. Each request gets a response of its own, after which the whole name may have to be examined once more.
        """
        # Queued behind the flush, or in a queue of its own.
        work = self._work if self.relaying.is_planning else self._writing_work
        return await work.do(steps)

    def _pass_on(self, facts: Sequence[Fact]) -> None:
        """Give facts about upstream streams to all readers."""
        for reader in self.readers:
            reader(facts)

    def _question_limits(self, name: str) -> Limits | None:
        """Return the limits of the params that a server is sent for a name; None: it is sent none."""
        if not self.feed.sends_params:
            return None
        limits = self.server.hub.settings.limits
        return narrowed(limits) if self.feed.is_narrow(name) else limits

    def _note(self, facts: Sequence[Fact]) -> None:
        """Act on facts about upstream streams.

        A server was found to take smaller or larger locators: subscribe anew where this matters. A server was reached:
        the relay is ready, and with groups the client that only sought a server may close. A server was reached or
        lost: start to watch the age of answers.
        """
        if self.feed.narrow != self._narrow:
            self._narrow = self.feed.narrow
            self.relaying.reword()
            self.server.hub.turn()
        if any(isinstance(fact, Reached) for fact in facts):
            self._become_ready()
            if self._group_by is not None and None in self.feed.clients:
                self.feed.clients[None].stop_seeking()

        if self._aging is None and any(isinstance(fact, Reached | Lost) for fact in facts):
            self._aging = asyncio.get_running_loop().call_later(AGING, self._age)

    def _age(self) -> None:
        """Look for answers that became too old or current again."""
        self._work.begin(self._look_at_ages())

    def _look_at_ages(self) -> Steps[None]:
        """Look at all ages in steps, and set the timer for the next look."""
        loop = asyncio.get_running_loop()
        try:
            due = yield from self.relaying.mark_too_old(loop.time())
        except Exception:
            self._aging = loop.call_later(AGING, self._age)  # the next look still comes
            raise
        self._aging = loop.call_at(max(due, loop.time() + AGING), self._age) if due is not None else None
        self._after_input()

    def _on_change(self, entry: Entry) -> None:
        """Tell the core that an upstream subscription changed."""
        self.relaying.note_change(entry)

    def _after_input(self) -> None:
        """Schedule a turn of the hub if input from a server needs one."""
        if (self.relaying.is_due and not self._flush_waits) or (
            self._reports is not None and self._reports.due is not None
        ):
            self.server.hub.turn()

    def _review(self, facts: Sequence[Fact]) -> None:
        """Answer held-back responses after a turn in which clients may have sent ACKs or NACKs (PRX-18)."""
        if self._reports is None:
            return
        self._reports(facts)
        self._reports.check(asyncio.get_running_loop().time())
        reported, self._reports.facts[:] = self._reports.facts[:], []
        if reported:
            self._pass_on(reported)

    def _are_judging(self, type_url: TypeUrl, names: Sequence[str]) -> bool:
        """Whether a client has yet to be sent, or to answer, a resource with one of these names.

        Called after a turn, when the sessions know of all that came.
        """
        return any(session.is_judging(names) for session in self.server.hub.interest.concerned(type_url, names))

    def _client_of(self, stream: int) -> ClientKey | None:
        """Return the client that a downstream stream belongs to."""
        return self.server.hub.client(stream)

    def _wanting(self, subscription: UpstreamSubscription) -> Iterator[ClientKey]:
        """Return the clients that want an upstream subscription."""
        hub = self.server.hub
        return filter(None, map(hub.client, hub.interest.wanting(*subscription.subject, subscription.params)))

    def _listed(self, type_url: str, name: str) -> None:
        """Wake the sessions that subscribe to a wildcard."""
        self.server.hub.listed(type_url, name)

    def _flush(self) -> None:
        """Queue a flush in each turn of the hub, unless one waits already.

        It runs after the work that is under way, so that it decides nothing while half of a response is read.
        """
        if not self._flush_waits:
            self._flush_waits = True
            self._work.begin(self._flushing())

    def _flushing(self) -> Steps[None]:
        """Run one flush in steps, pass its facts on, and set the timer for the next one."""
        loop = asyncio.get_running_loop()
        self._flush_waits = False
        retry = loop.time() + FAILED
        try:
            self._revisit(loop.time())
            yield from self.relaying.flushing(loop.time())
        except Exception:  # not GeneratorExit: a relay that stops drops the flush, and has no event loop any more
            self._flushed(retry)
            raise
        self._flushed()

    def _flushed(self, soonest: float = 0.0) -> None:
        """Pass the facts of a flush on, and set the timer for the next one."""
        hub = self.server.hub
        # The hub gives facts to its readers at the end of a turn, so ask for one.
        if self.relaying.facts:
            hub.facts += self.relaying.facts
            self.relaying.facts.clear()
            hub.turn()
        self._set_timer(soonest)

    def _set_timer(self, soonest: float) -> None:
        """Set the timer for the next flush, at `soonest` or later. After one that failed there is always a next one."""
        reports = self._reports.due if self._reports is not None else None
        times = (self.relaying.deadline(), reports, self._revisits.due, soonest or None)
        due = min((time for time in times if time is not None), default=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(max(due, soonest), self.server.hub.turn)

    def _forgotten(self, type_url: TypeUrl, name: str) -> list[Params] | None:
        """Return with which params clients wait for a name that their sessions forgot; None: no client does."""
        return self.server.hub.interest.forgotten(type_url, name)

    def _revisit(self, now: float) -> None:
        """Subscribe to a batch of forgotten names, and keep the existing ones until the next batch (VHD-25)."""
        found, left = self._revisits.poll(now)
        for each in found:
            self.relaying.want(*each)
        for each in left:
            self.relaying.unwant(*each)


def _log_failed(subject: Subject, error: Exception) -> None:
    """Log that the relay could not work out what to do about a name."""
    type_url, name = subject
    log.error("%r (%s): the relay keeps what it has of it, and tries again", name, type_url, exc_info=error)
