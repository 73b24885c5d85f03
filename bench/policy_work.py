"""python -m bench.policy_work: the instructions of a change and its ACK with a policy, beside none.

The times of two equal servers differ by a tenth on a busy machine, and even by the addresses that their memory happens
to have. Instructions do not: valgrind counts those of a hub with 100 streams, for so many changes and for more, and the
difference is what each message takes. No transport is among them, so a ratio is higher here than of a whole server.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from bench.policy import NO_POLICY, POLICIES, rules
from bench.prism import assignment
from bench.programs import COMPILED_PYTHON
from bench.tables import number, table
from xdsprism.core.model.settings import Settings
from xdsprism.server.calls import Peer
from xdsprism.server.hub import Hub
from xdsprism.sources.policy_file import parse_policy

STREAMS, FEW, MORE = 100, 10, 40
NAMES = {"r000000": "a change of a name", "*": "a change in a wildcard"}
RESOURCES, WARM = 100, 5
OLD = 300  # changes before: Python has the numbers up to 256 ready, so the first revisions of a store cost less


def work(asked: str, policy: str, changes: int) -> int:
    """Have all streams take so many changes, and ACK them. Return how many messages they were sent."""
    store, turns = xp.Store(), list[Callable[[], None]]()
    with store.transaction() as tx:
        for index in range(RESOURCES):
            tx.put(assignment(f"r{index:06}", 0, 1_000))
    for version in range(OLD):
        with store.transaction() as tx:
            tx.put(assignment("r000000", version, 1_000))
    hub = Hub(store, Settings(), lambda: 0.0, turns.append)
    if policy:
        hub.enforce(parse_policy(rules(POLICIES[policy]), "policy.yaml"))
    calls = [hub.open("work", Peer(f"ipv4:10.0.0.1:{port}"), delta=True, only_type=None) for port in range(STREAMS)]
    request = pb.DeltaDiscoveryRequest(type_url=xp.ENDPOINT, resource_names_subscribe=[asked])
    request.node.id = "n"
    for call in calls:
        call.receive(request.SerializeToString())
    sent = 0
    for version in range(WARM + changes):
        while turns:
            turns.pop()()
        acks: dict[bytes, bytes] = {}  # all streams are sent the same
        for call in calls:
            for body in [bytes(each) for each in call.poll()]:
                sent += 1
                if body not in acks:
                    nonce = pb.DeltaDiscoveryResponse.FromString(body).nonce
                    ack = pb.DeltaDiscoveryRequest(type_url=xp.ENDPOINT, response_nonce=nonce)
                    acks[body] = ack.SerializeToString()
                call.receive(acks[body])
        with store.transaction() as tx:
            tx.put(assignment("r000000", OLD + version, 1_000))
    return sent


def instructions(python: str, asked: str, policy: str, changes: int) -> int:
    """Count the instructions of `work` in a process of its own."""
    counter = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = [*counter, python, "-m", "bench.policy_work", asked, policy, str(changes)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr
    found = re.search(r"I\s+refs:\s+([\d,]+)", said)
    if found is None:
        raise SystemExit(f"valgrind counted nothing: {said[-500:]}")
    return int(found[1].replace(",", ""))


def each(python: str, asked: str, policy: str) -> float:
    """Return the instructions for one message and its ACK."""
    few, more = (instructions(python, asked, policy, changes) for changes in (FEW, MORE))
    return (more - few) / ((MORE - FEW) * STREAMS)


def run() -> None:
    pythons = {"interpreted": sys.executable}
    if COMPILED_PYTHON.exists():
        pythons["compiled"] = str(COMPILED_PYTHON)
    rows = []
    for build, python in pythons.items():
        for asked, title in NAMES.items():
            plain = each(python, asked, "")
            ratios = [f"{each(python, asked, policy) / plain:.3f}" for policy in POLICIES]
            rows.append([f"{title}, {build}", number(plain), *ratios])
    print(table(["instructions", NO_POLICY, *[f"{policy}: ratio" for policy in POLICIES]], rows))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        run()
