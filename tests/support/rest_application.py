"""The REST application of a hub without a port and without real time: a request goes through all of its handler.

A port would take a certificate from the handshake, and hand it over with the request as it is done here.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tests.support.certificates import identity
from xdsprism.server.hub import Hub
from xdsprism.server.methods import V3
from xdsprism.server.rest import Rest, paths

PATHS = {type_url: path for path, type_url, _ in paths([V3])}
ROUNDS = 3


class Clock(Protocol):
    """The time of the hub."""

    now: float


class ModelLoop(asyncio.SelectorEventLoop):
    """An event loop with the time of a clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        super().__init__()

    def time(self) -> float:
        return self._clock.now

    def run_ready(self) -> None:
        """Run until everything waits."""
        for _ in range(50):
            self.run_until_complete(asyncio.sleep(0))


@cache
def certificate(spiffe_id: str) -> str:
    """A certificate of this identity, in PEM, made once."""
    with tempfile.TemporaryDirectory() as folder:
        return identity(Path(folder), "client", [f"URI:{spiffe_id}"])[0].read_text()


class RestApplication:
    """Answers requests in the time of the clock."""

    def __init__(self, hub: Hub, clock: Clock) -> None:
        self._clock = clock
        self._loop = ModelLoop(clock)
        self._rest = Rest(hub, [V3])

    def post(
        self, type_url: str, body: bytes, spiffe_id: str, others: Callable[[], None]
    ) -> tuple[int, Mapping[bytes, bytes], bytes]:
        """Send a request of a client that waits for a second; return status, headers and body of the answer.

        `others`: lets everybody else go on, for as long as they have something to do.
        """
        scope = {
            "type": "http",
            "method": "POST",
            "path": PATHS[type_url],
            "raw_path": PATHS[type_url].encode(),
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"x-envoy-expected-rq-timeout-ms", b"1000")],
            "client": ("127.0.0.1", 40_000),
            "extensions": {"tls": {"client_cert_chain": [certificate(spiffe_id)]}},
        }
        given, answer = [{"type": "http.request", "body": body}], []

        async def receive() -> Any:
            return given.pop() if given else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            answer.append(message)

        task = self._loop.create_task(self._rest.app(scope, receive, send))
        for _ in range(ROUNDS):  # as many for each request, so that all take the same time
            self._loop.run_ready()
            others()
            self._clock.now += 1.0
        self._loop.run_ready()
        task.result()
        return answer[0]["status"], dict(answer[0]["headers"]), b"".join(each.get("body", b"") for each in answer[1:])

    def close(self) -> None:
        self._rest.close()
        self._loop.close()
