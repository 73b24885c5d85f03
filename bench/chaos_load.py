"""The load of `python -m bench chaos`: requests that a user may expect to succeed, whatever dies behind the Envoys.

A request for what an Envoy has is answered although the relay or the server is dead. One for a virtual host that
exists, and that nobody asked for yet, waits until both are there again. Requests of attackers are no part of it.
"""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from bench.chaos_site import CHOSEN, COLD, HOSTS, Fleet, Proxy
from tests.support.callers import Caller

PATIENCE = 90.0  # seconds that an answer may take: a wait for a server that is dead, on a busy machine
PAUSE = 0.03  # seconds between two requests to one Envoy
COLD_PAUSE = 0.7
Request = tuple[str, dict[str, str]]  # the host, and further headers


class Tally:
    """What was counted, by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin = time.monotonic()
        self.requests: dict[str, int] = {}
        self.failures: list[str] = []
        self.removals: list[str] = []
        self.stale: list[str] = []

    def request(self, kind: str, failure: str | None) -> None:
        with self._lock:
            self.requests[kind] = self.requests.get(kind, 0) + 1
            if failure is not None:
                self.failures.append(f"{self._now()} {failure}")

    def removal(self, what: str) -> None:
        with self._lock:
            self.removals.append(f"{self._now()} {what}")

    def _now(self) -> str:
        return f"{time.monotonic() - self._begin:6.1f} s"


def ask(
    port: int, request: Request, connection: http.client.HTTPConnection | None = None, *, within: float = PATIENCE
) -> str:
    """The body of a good answer, else the status, else why there is none. Without a connection, on one of its own."""
    used = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=within)
    try:
        used.request("GET", "/", headers={"Host": request[0], **request[1]})
        response = used.getresponse()
        body = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        used.close()
        return f"no answer: {error!r}"
    if connection is None:
        used.close()
    return body if response.status == 200 else f"HTTP {response.status} {body[:200]}"


def warm() -> list[Request]:
    """Requests for what every Envoy has, once it was asked for."""
    hosts: list[Request] = [(f"h{number}.example", {}) for number in range(HOSTS)]
    chosen: list[Request] = [("chosen.example", {"cluster": f"chosen-{number}"}) for number in range(CHOSEN)]
    return [each for group in itertools.zip_longest(hosts, chosen) for each in (("steady.example", {}), *group) if each]


class Load:
    """Threads that send requests until `stop`."""

    def __init__(self, fleet: Fleet, tally: Tally) -> None:
        self._fleet = fleet
        self._tally = tally
        self._end = threading.Event()
        self._begun: dict[str, int] = {}
        self._threads = [
            threading.Thread(target=work, args=(proxy,), name=f"{work.__name__} {proxy.name}", daemon=True)
            for proxy in fleet.proxies
            for work in (self._steady, self._cold, self._watch)
        ]

    def prepare(self) -> None:
        """Wait until every Envoy and gRPC client has what the load asks for."""
        for proxy in self._fleet.proxies:
            for request in warm():
                _until_good(partial(ask, proxy.port, request))
        for name, caller in self._fleet.callers.items():
            for method in ("Say", "Other", "More"):
                _until_good(partial(_reply, caller, method))
            self._begun[name] = len(caller.outcomes)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        for name, caller in self._fleet.callers.items():
            for outcome in caller.outcomes[self._begun[name] :]:
                failure = None if outcome.reply else f"{name}: {outcome.method}: {outcome.error}"
                self._tally.request("gRPC", failure)

    def _steady(self, proxy: Proxy) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE)
        for request in itertools.cycle(warm()):
            if self._end.wait(PAUSE):
                break
            self._judge("HTTP", proxy, request, ask(proxy.port, request, connection))
        connection.close()

    def _cold(self, proxy: Proxy) -> None:
        for number in range(COLD):
            if self._end.wait(COLD_PAUSE):
                break
            request: Request = (f"cold{number}.example", {})
            self._judge("HTTP, a new host", proxy, request, ask(proxy.port, request))

    def _judge(self, kind: str, proxy: Proxy, request: Request, answer: str) -> None:
        self._tally.request(kind, f"{proxy.name}: {request}: {answer}" if _is_failure(answer) else None)

    def _watch(self, proxy: Proxy) -> None:
        """What is never removed stays: what Envoy itself lists, whether a request needs it now or not."""
        lasting = {f"chosen-{number}" for number in range(CHOSEN)}
        if not proxy.on_demand:
            lasting |= {"rpc-a", "rpc-b"}
        missing: set[str] = set()
        while not self._end.wait(1.0):
            with suppress(OSError, ValueError):  # of its admin port, when the machine is busy
                before, missing = missing, _missing(proxy, lasting)
                for name in sorted(missing - before):
                    self._tally.removal(f"{proxy.name} has lost {name}")


def _missing(proxy: Proxy, lasting: set[str]) -> set[str]:
    clusters = proxy.envoy.clusters().keys() | proxy.envoy.clusters("dynamic_warming_clusters").keys()
    return {f"cluster {name}" for name in lasting - clusters} | {
        f"listener {name}" for name in {"web"} - proxy.envoy.listeners().keys()
    }


def _reply(caller: Caller, method: str) -> str:
    """Who answered the newest call, else why nobody did."""
    outcome = caller.outcome(method)
    return (outcome and outcome.reply) or f"no answer: {outcome}"


def _is_failure(answer: str) -> bool:
    return answer.startswith(("HTTP ", "no answer"))


def _until_good(look: Callable[[], str]) -> None:
    ends = time.monotonic() + PATIENCE
    while _is_failure(seen := look()):
        if time.monotonic() > ends:
            raise TimeoutError(f"the load can't begin: {seen}")
        time.sleep(0.1)
