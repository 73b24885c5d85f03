"""One HTTP request, without a client library in between that would retry or hide a status."""

from __future__ import annotations

import http.client
import random
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

_TIMEOUT = 5.0
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)


def get(host: str, port: int, path: str, method: str = "GET") -> Answer:
    """Fetch a page over a connection of its own; raises OSError where there is no server or no sense in its answer."""
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return Answer(response.status, response.read().decode(errors="replace"))
    except http.client.HTTPException as error:
        raise ConnectionError(repr(error)) from error
    finally:
        connection.close()


def post(
    address: str, path: str, body: bytes, headers: Mapping[str, str] | None = None, *, method: str = "POST"
) -> Answer:
    """Send a body, as JSON unless the headers say otherwise; the answer may take its time."""
    connection = http.client.HTTPConnection(*split(address), timeout=_PATIENCE)
    try:
        connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, response.read().decode(), headers)
    finally:
        connection.close()


class Traffic:
    """Requests without a pause, one after the other on one connection, while the block runs.

    `answers` are the bodies of good answers, and `HTTP <status>` of others.
    """

    def __init__(self, host: str, port: int, path: str) -> None:
        self.answers: list[str] = []
        self._path = path
        self._connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.is_set():
            self._connection.request("GET", self._path)
            response = self._connection.getresponse()
            body = response.read().decode()
            self.answers.append(body if response.status == 200 else f"HTTP {response.status}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        self._thread.join()
        self._connection.close()


def split(address: str) -> tuple[str, int]:
    """`127.0.0.1:80` as host and port."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def free_port() -> int:
    """A port that nobody listens on, for programs that can't be asked which one they took.

    Not one that the kernel gives away by itself: between here and its use, it would to whoever connects.
    """
    while True:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
