"""Drive sessions, connections, clients, providers and relays at random, and print a digest of all that ours send.

    python -m tests.support.recorder EXAMPLES SEED

The machines are those of the tests. Two builds that behave alike print the same. Run it with PYTHONHASHSEED set: where
the order of a set of strings shows in the bytes, it is allowed to differ from one process to another.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import hypothesis.core
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.client import test_against_server
from tests.core.support import Peer
from tests.core.test_providing_model import Anything
from tests.core.test_session_state_machine import CrossingSessions, Sessions
from tests.core.test_vhds_model import Hosts
from tests.http2.test_against_h2 import Pair
from tests.strangers import runs
from tests.strangers.streams import DeltaStream, SotwStream
from tests.support.examples import examples
from xdsprism.builds import running
from xdsprism.core.codec.server_responses import Encoder

STEPS = 30
# Not the virtual hosts of a client: what they send differs between two runs of one build.
CLIENTS: tuple[Any, ...] = (test_against_server.ClientAndServer,)
MACHINES: tuple[Any, ...] = (Sessions, CrossingSessions, Hosts, Anything, Pair, *CLIENTS)


class Tape:
    """The bytes that were sent, as a digest."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.messages = 0

    def add(self, data: bytes) -> None:
        self._hash.update(len(data).to_bytes(8, "big") + data)
        self.messages += 1

    def digest(self) -> str:
        return self._hash.hexdigest()


class Taped:
    """An encoder, or a call of the server, whose bytes go on the tape."""

    def __init__(self, own: Any, add: Callable[[bytes], None]) -> None:
        self._own = own
        self._add = add

    def encode(self, *request: object) -> bytes:
        data: bytes = self._own.encode(*request)
        self._add(data)
        return data

    def poll(self) -> list[bytes]:
        answers = [*self._own.poll()]
        for answer in answers:
            self._add(answer)
        return answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def record(run: Callable[[], object]) -> dict[str, object]:
    """Run something, and return what was sent meanwhile: how many messages, and their digest."""
    tape, encoder = Tape(), Encoder("recorder")
    poll, cut = Peer.poll, Pair.cut

    def polled(peer: Peer) -> list[Any]:
        sends = poll(peer)
        for send in sends:
            tape.add(encoder.encode(send))
        return sends

    def carried(pair: Pair, part: bytes) -> Iterator[bytes]:
        tape.add(part)
        return cut(pair, part)

    def asking(request: Any) -> Callable[[bytes], None]:
        # The order of a map, such as the params of a locator, is protobuf's, and differs in each process.
        return lambda message: tape.add(request.FromString(message).SerializeToString(deterministic=True))

    def answering(message: bytes) -> None:
        # A server removes what a client has of `initial_resource_versions` in the order of that map.
        response = DeltaDiscoveryResponse.FromString(message)
        response.removed_resources.sort()
        tape.add(response.SerializeToString(deterministic=True))

    def hearing(receive: Callable[[Any, bytes], None], request: Any) -> Callable[[Any, bytes], None]:
        add = asking(request)

        def received(stream: object, message: bytes) -> None:
            add(message)
            receive(stream, message)

        return received

    def opening(begin: Callable[[Any], None]) -> Callable[[Any], None]:
        def opened(machine: Any) -> None:
            begin(machine)
            delta = getattr(machine, "delta", True)
            machine.encoder = Taped(machine.encoder, asking(DeltaDiscoveryRequest if delta else DiscoveryRequest))
            machine.call = Taped(machine.call, answering if delta else tape.add)

        return opened

    with ExitStack() as stack:
        stack.enter_context(patch.object(Peer, "poll", polled))
        stack.enter_context(patch.object(Pair, "cut", carried))
        for kind, request in ((DeltaStream, DeltaDiscoveryRequest), (SotwStream, DiscoveryRequest)):
            stack.enter_context(patch.object(kind, "receive", hearing(kind.receive, request)))
        for client in CLIENTS:
            stack.enter_context(patch.object(client, "open", opening(client.open)))
        run()
    return {"messages": tape.messages, "digest": tape.digest()}


def machine(kind: Any, count: int) -> Callable[[], None]:
    """Return a run of a state machine, without its shrinking."""
    chosen = settings(
        max_examples=examples(count), stateful_step_count=STEPS, database=None, deadline=None, phases=[Phase.generate]
    )
    return lambda: run_state_machine_as_test(kind, settings=chosen)


def relays(count: int, seed: int) -> None:
    """Run relays in front of a server that nobody here wrote."""
    for each in range(count):
        failure = runs.make(seed + each).failure()
        assert failure is None, failure


def main() -> None:
    count, seed = map(int, sys.argv[1:])
    hypothesis.core.global_force_seed = seed
    played: dict[str, Callable[[], object]] = {
        f"{kind.__module__}.{kind.__qualname__}": machine(kind, count) for kind in MACHINES
    }
    played["relays"] = lambda: relays(count, seed)
    print(json.dumps({"build": running()} | {name: record(run) for name, run in played.items()}))


if __name__ == "__main__":
    main()
