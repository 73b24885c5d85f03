"""`Server`: puts a store, a hub, a transport and an admin port together, and starts and stops them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .argument_types import expect_named
from .core.model.demand import Demand
from .core.model.facts import Drained
from .core.model.settings import ENGINE, Engine, Settings
from .core.model.store import Store
from .core.policy.policy import Policy
from .core.provide.providing import Providing
from .errors import UsageError, XdsError
from .http2.facts import Fact as ConnectionFact
from .http2.limits import Limits, Times
from .server.addresses import is_loopback
from .server.arguments import check_addresses, check_parts, check_values
from .server.calls import Method
from .server.certificate_renewal import CertificateRenewal
from .server.client_status import status_methods
from .server.connection_limits import ConnectionLimits
from .server.engine_grpcio import GrpcioEngine
from .server.engine_h2 import H2Engine
from .server.health import Health, reflection_methods
from .server.hub import Hub
from .server.methods import V2, V3, discovery_methods, load_methods
from .server.providers import Providers
from .server.slicing import Slices
from .server.tls import Material, Tls

if TYPE_CHECKING:
    from .admin.access import Access
    from .admin.operations import Operations
    from .server.rest import RestPort
    from .sources.following import Following

log = logging.getLogger("xdsprism.server")

RECEIVE_BYTES = 64 * 1024 * 1024  # SRV-24: after a reconnect a client may list everything that it has
GRACE = 5.0  # seconds that streams have to end when the server stops


class Server:
    """An xDS management server on a store.

        async with xdsprism.Server(store, listen="127.0.0.1:0", admin="127.0.0.1:0") as server:
            print(server.address, server.admin_address)

    listen              HOST:PORT of the gRPC port; it serves v3 and v2 of the API (gRFC A30)
    v2                  False: v3 only
    rest                HOST:PORT of a REST port, which serves fetches in JSON; None: no such port
    engine              the gRPC transport: `h2`, our own, or `grpcio`
    max_connection_age  seconds until a connection is drained, a tenth more or less; None: never
    tls                 secures both ports
    admin               HOST:PORT of the admin port, with pages, metrics and log lines; None: there is none of these
    access              who may use the admin port, and its certificate
    policy              which client may have what (sources/policy_file.py); None: everybody may have everything
    csds                False: do not say which clients there are, and how far each is (docs/csds.md)

    The store belongs to the server's event loop: change it only from there.
    """

    def __init__(  # noqa: PLR0913 # each is one option
        self,
        store: Store,
        listen: str = "127.0.0.1:18000",
        *,
        settings: Settings | None = None,
        receive_bytes: int = RECEIVE_BYTES,
        v2: bool = True,
        rest: str | None = None,
        engine: Engine = ENGINE,
        max_connection_age: float | None = None,
        tls: Tls | None = None,
        policy: Policy | None = None,
        admin: str | None = None,
        access: Access | None = None,
        demand: Demand | None = None,
        csds: bool = True,
    ) -> None:
        check_addresses(listen, rest, admin)
        check_parts(store, settings, tls, policy)
        if access is not None:
            from .admin.access import Access  # noqa: PLC0415 # starlette loads only if needed

            expect_named("access", access, Access)
        check_values(engine, max_connection_age, receive_bytes)
        self.store = store
        self.engine = engine
        self.tls = tls
        self.address = ""  # HOST:PORT, once started
        self.rest_address = ""
        self._listen = listen
        self._rest_listen = rest
        self._rest: RestPort | None = None
        self._settings = settings or Settings()
        self._receive_bytes = receive_bytes
        self._age = max_connection_age
        self._demand = demand  # told of subscriptions, where the store is a relay's cache
        self._policy = policy
        self._admin = admin
        self._access = access
        self._operations: Operations | None = None  # if there is an admin port
        self._unready: str | None = "it is starting"
        self._hub: Hub | None = None
        self._providers: Providers | None = None
        self._engine: GrpcioEngine | H2Engine | None = None
        self._renewal: CertificateRenewal | None = None
        if tls is not None:
            ports = ("xds", "rest") if rest is not None else ("xds",)
            self._renewal = CertificateRenewal(tls, self._secure, self._report, ports=ports)
        self._renewing: asyncio.Task[None] | None = None
        self._secured: list[Callable[[Material], None]] = []  # each puts new certificates into use
        self.connection_readers: list[Callable[[Sequence[ConnectionFact]], None]] = []  # get facts about connections
        v3 = V3 if csds else replace(V3, statuses="")
        self._apis = (V2, v3) if v2 else (v3,)
        self._services = tuple(name for api in self._apis for name in api.names)
        self._health = Health(self._services)
        self._has_stopped = False  # or is about to
        self._can_answer = True  # what gRPC health says while the server runs
        self._is_running = False
        self._has_warned = False  # of tokens in plain text

    @property
    def hub(self) -> Hub:
        """The hub, which knows all streams and their facts. Made at the first use, inside the event loop."""
        if self._hub is None:
            loop = asyncio.get_running_loop()
            demand = self._demand or self.store.demand
            slices = Slices(loop.call_soon, later=loop.call_at)
            self._hub = Hub(self.store, self._settings, loop.time, loop.call_soon, demand, slices, self._policy)
            self._providers = Providers(demand, self._hub) if isinstance(demand, Providing) else None
        return self._hub

    @property
    def has_rest(self) -> bool:
        return self._rest_listen is not None

    @property
    def admin_address(self) -> str:
        """HOST:PORT of the admin port, once started; empty if there is none."""
        return self._operations.address if self._operations is not None else ""

    async def start(self) -> None:
        """Listen and serve. Only once: a stopped server has released its store."""
        if self._engine is not None:
            raise UsageError("a server starts once: make another")
        versions = [(*discovery_methods(self.hub, api), *load_methods(self.hub, api)) for api in self._apis]
        statuses = status_methods(self.hub) if any(api.statuses for api in self._apis) else ()
        services = [*self._health.methods(), *reflection_methods(self._services)]
        methods = [*chain.from_iterable(versions), *statuses, *services]
        try:
            self._open_admin()
            tls = self._renewal.load() if self._renewal is not None else None
            self._engine = self._make_engine(methods, tls)
            self._open_rest(tls)
            self.address = await self._engine.start(self._listen)
        except XdsError:
            await self._close()
            raise
        self._warn_of_plain_tokens()
        if self._renewal is not None:
            self._renewing = asyncio.get_running_loop().create_task(self._renewal.run(), name="xdsprism certificates")
        self._unready = None
        self._is_running = True
        self.tell_health(can_answer=self._can_answer)

    def tell_health(self, *, can_answer: bool, asked: Callable[[], None] | None = None) -> None:
        """Have gRPC health say SERVING, once the server runs, if it can answer: a relay first has to reach a server.

        `asked` is called when somebody asks for the health, and the server does not serve.
        """
        self._can_answer = can_answer
        self._health.asked = asked if asked is not None else self._health.asked
        self._health.set(serving=self._is_running and can_answer)

    def _open_admin(self) -> None:
        """Open the admin port, if there is one: first, so that it shows that the server is starting."""
        if self._admin is not None:
            from .admin.http import View  # noqa: PLC0415 # starlette, uvicorn and prometheus-client load only if needed
            from .admin.operations import Operations  # noqa: PLC0415

            files = self._followed()
            self._operations = Operations(self, self._admin, self._access, files=files is not None)
            metrics = self._operations.metrics
            loads = self._operations.show_files(files) if files is not None else None
            confirm = files.confirm if files is not None else None
            self._operations.open(View(self.hub, metrics, loads, lambda: self._unready, confirm=confirm))

    def _followed(self) -> Following | None:
        """Return the files that the store follows, if it is a program's and follows some."""
        from .sources.memory import Store as ProgramStore  # noqa: PLC0415 # for programs only

        return self.store.following if isinstance(self.store, ProgramStore) else None

    def enforce(self, policy: Policy | None) -> None:
        """Put another policy into force, also on streams that are open.

        What a client may not have any more is removed from it, and what it may have now is sent.
        """
        self._policy = policy
        if self._hub is not None:
            self._hub.enforce(policy)
        self._warn_of_plain_tokens()

    def _warn_of_plain_tokens(self) -> None:
        """Warn, once, if tokens may come over a network in plain text: whoever reads one may use it."""
        if self._renewal is not None or self._policy is None or self._policy.tokens is None or self._has_warned:
            return
        ports = [each for each in (self.address, self.rest_address) if each and not is_loopback(each)]
        if ports:
            self._has_warned = True
            text = "bearer tokens come in plain text to %s, and whoever reads one can use it: serve TLS (--tls-cert)"
            log.warning(text, " and ".join(ports))

    def renew(self) -> None:
        """Read the files with certificates and tokens now, without waiting for an event (SIGHUP)."""
        if self._renewal is not None:
            self._renewal.check_now()
        if self._operations is not None:
            self._operations.renew()

    async def stop(self, grace: float = GRACE) -> None:
        """Drain all streams for up to `grace` seconds, then stop. Idempotent, and allowed before the start."""
        self._is_running = False
        self.tell_health(can_answer=self._can_answer)
        self._unready = "the server is shutting down"
        if self._rest is not None:
            self._rest.drain()
        if self._engine is not None:
            await self._drain(self._engine, grace)
        await self._close()

    async def _drain(self, engine: GrpcioEngine | H2Engine, grace: float) -> None:
        """Let all streams end, and tell when that begins and when it is done."""
        hub, is_first = self.hub, not self._has_stopped
        self._has_stopped = True
        began = hub.clock()
        if is_first:
            hub.tell(Drained("started", sum(1 for _ in hub.streams())))
        await engine.stop(grace)
        if is_first:
            hub.tell(Drained("ended", seconds=hub.clock() - began))

    def _make_engine(self, methods: Sequence[Method], tls: Material | None) -> GrpcioEngine | H2Engine:
        """Make the transport, and register it for certificates."""
        if self.engine == "h2":
            h2 = H2Engine(
                methods,
                receive_bytes=self._receive_bytes,
                limits=self._connection_limits(),
                times=self._times(),
                tls=tls.h2 if tls else None,
            )
            h2.readers = self.connection_readers
            self._secured.append(lambda tls: h2.secure(tls.h2))
            return h2
        grpcio = GrpcioEngine(
            methods,
            receive_bytes=self._receive_bytes,
            limits=self._connection_limits(),
            times=self._times(),
            age=self._age,
            tls=tls,
        )
        grpcio.readers = self.connection_readers
        self._secured.append(grpcio.secure)
        return grpcio

    def _connection_limits(self) -> Limits:
        """Return the limits of the transport, as far as they can be set."""
        limits = self._settings.limits
        return Limits(
            connections=limits.connections,
            address_connections=limits.address_connections,
            handshakes=limits.handshakes,
            address_handshakes=limits.address_handshakes,
        )

    def _times(self) -> Times:
        """Return the times of a connection, as far as they can be set."""
        limits = self._settings.limits
        times = Times(
            preface=limits.preface, first_request=limits.first_request, idle_connection=limits.idle_connection
        )
        return replace(times, age=self._age) if self._age is not None else times

    def _open_rest(self, tls: Material | None) -> None:
        """Open the REST port, if there is one, and register it for certificates."""
        if self._rest_listen is not None:
            from .server.rest import RestPort  # noqa: PLC0415 # starlette and uvicorn load only if needed

            if isinstance(self._engine, H2Engine):
                connection_limits = self._engine.connection_limits
            else:
                connection_limits = ConnectionLimits(self._connection_limits(), self.hub.clock)
            http = tls.http if tls else None
            self._rest = RestPort(
                self.hub, self._apis, self._rest_listen, http, connection_limits=connection_limits, report=self._report
            )
            self.rest_address = self._rest.address
            secure = self._rest.secure
            self._secured.append(lambda tls: secure(tls.http))

    def _secure(self, tls: Material) -> None:
        for secure in self._secured:
            secure(tls)

    def _report(self, facts: Sequence[ConnectionFact]) -> None:
        for reader in self.connection_readers:
            reader(facts)

    async def _close(self) -> None:
        """Stop everything but the transport."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self._rest is not None:
            await self._rest.stop()
        if self._providers is not None:
            await self._providers.stop()
        if self._hub is not None:
            self._hub.close()
        if self._operations is not None:
            operations, self._operations = self._operations, None
            await operations.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
