"""What `python -m bench chaos` does to a relay, a server and their Envoys while others use them.

Each attack is one burst, bounded in number and time, and only ever against 127.0.0.1. It does not matter to an attacker
whether somebody is there, or how it is answered: what counts is what the others see.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.support.web import split

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINT = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
SECONDS = 3.0  # that a burst may take, beside what it takes to say it
_UNIQUE = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Target:
    """Where to strike. `size` is 1 for the numbers that are told here, and less for smaller bursts."""

    listeners: Sequence[int]  # ports of Envoys
    relay: str  # its address
    admin: Callable[[], Sequence[str]]  # admin ports that are there now
    config: Path  # the server's files
    size: float = 1.0

    def count(self, number: int) -> int:
        return max(1, int(number * self.size))


Strike = Callable[[Target, random.Random], None]


# -- by users of an Envoy


def long_hosts(target: Target, chance: random.Random) -> None:
    """Host headers around and far above the longest name of a resource."""
    port = chance.choice(target.listeners)
    for length in (4_080, 4_092, 4_097, 30_000, 55_000):
        host = b"x%d-" % next(_UNIQUE)
        _request(port, b"Host: " + host.ljust(length, b"x"))


def made_up_hosts(target: Target, chance: random.Random) -> None:
    """200 hosts that never existed."""
    port = chance.choice(target.listeners)
    for _ in range(target.count(200)):
        _request(port, b"Host: made-up-%d.example" % next(_UNIQUE))


def long_made_up_hosts(target: Target, chance: random.Random) -> None:
    """100 of 4,085 characters each: what an Envoy then repeats at each reconnect."""
    port = chance.choice(target.listeners)
    for _ in range(target.count(100)):
        _request(port, b"Host: " + (b"y%d-" % next(_UNIQUE)).ljust(4_085, b"y"))


def odd_hosts(target: Target, chance: random.Random) -> None:
    """Bytes that are no host."""
    port = chance.choice(target.listeners)
    for host in (b"\xe9.example", b"*", b"a/b", b"..", b"%00.example", b"xdstp://a/b", b"[::1]:80", b"a b", b"-" * 300):
        _request(port, b"Host: " + host)


def odd_clusters(target: Target, chance: random.Random) -> None:
    """Names of clusters by a header: not UTF-8, too long, in another's form. Never `*`, by which Envoy 1.40 dies."""
    port = chance.choice(target.listeners)
    unique = b"%d" % next(_UNIQUE)
    names = (
        b"\xe9" + unique,
        b"a\xff\xfe" + unique,
        b"z" * 4_097 + unique,
        b"xdstp://a/b" + unique,
        b"main/x" + unique,
    )
    for name in names:
        _request(port, b"Host: chosen.example\r\ncluster: " + name)


def made_up_clusters(target: Target, chance: random.Random) -> None:
    """200 names of clusters that never existed."""
    port = chance.choice(target.listeners)
    for _ in range(target.count(200)):
        _request(port, b"Host: chosen.example\r\ncluster: made-up-%d" % next(_UNIQUE))


def cluster_scan(target: Target, chance: random.Random) -> None:
    """As many made-up names of clusters as an Envoy asks for in 22 s, up to 200,000, over 400 connections."""
    names = (f"scanned-{number}" for number in itertools.islice(_UNIQUE, target.count(200_000)))
    scan_clusters(chance.choice(target.listeners), names, target.count(400), 22 * target.size)


# -- by clients of the relay


def large_metadata(target: Target, chance: random.Random) -> None:
    """Metadata that no locator has room for: a long string, many keys, a long key."""
    much = chance.choice(
        [
            {"long": "v" * 1_500},
            {f"key-{number}": "v" for number in range(70)},
            {"k" * 300: "v"},
            {f"{number}" * 40: "v" * 9_000 for number in range(100)},
        ]
    )
    node = _node(**much)
    _talk(target.relay, [_ask(CLUSTER, ["*", "c0", "chosen-0"], node), _ask(ENDPOINT, ["e0", "rpc-a"])])


def many_names(target: Target, _chance: random.Random) -> None:
    """Two clients with 60,000 names each."""
    count = target.count(60_000)
    for _ in range(2):
        start = next(_UNIQUE) * 1_000_000
        names = [f"name-{start + number}" for number in range(count)]
        _talk(target.relay, [_ask(ENDPOINT, names, _node())])


def many_types(target: Target, _chance: random.Random) -> None:
    """Two clients with 120 types each that nobody knows."""
    for _ in range(2):
        start = next(_UNIQUE) * 1_000
        urls = [f"type.googleapis.com/made.up.T{start + number}" for number in range(120)]
        _talk(target.relay, [_ask(url, ["a"], _node()) for url in urls])


def long_node_ids(target: Target, _chance: random.Random) -> None:
    """A node id of 6,500 bytes, 50 times."""
    for _ in range(target.count(50)):
        node = _node()
        node.id = node.id.ljust(6_500, "i")
        _talk(target.relay, [_ask(CLUSTER, ["c0"], node)], seconds=0.2)


def long_nacks(target: Target, chance: random.Random) -> None:
    """Whatever comes is refused, 50 times, with 10 kB of reasons, and once with 1 MB."""
    lengths = [1_000_000, *[10_000] * target.count(50)]
    answers = iter(lengths)

    def refuse(response: pb.DeltaDiscoveryResponse) -> pb.DeltaDiscoveryRequest | None:
        length = next(answers, None)
        if length is None:
            return None
        again = [f"c{chance.randrange(6)}", f"chosen-{chance.randrange(4)}"]
        request = _ask(response.type_url, again)
        request.resource_names_unsubscribe.extend(again)
        request.response_nonce = response.nonce
        request.error_detail.code, request.error_detail.message = 3, "n" * length
        return request

    _talk(target.relay, [_ask(CLUSTER, ["*", "c0", "chosen-0"], _node(env="prod"))], refuse)


def made_up_params(target: Target, _chance: random.Random) -> None:
    """500 locators of one name, each with params of its own."""
    request = _ask(CLUSTER, [], _node())
    for _ in range(target.count(500)):
        locator = request.resource_locators_subscribe.add(name="c0")
        locator.dynamic_parameters.update({"env": f"made-up-{next(_UNIQUE)}", "mode": "none"})
    _talk(target.relay, [request])


def many_context_params(target: Target, _chance: random.Random) -> None:
    """200 xdstp names with 400 context params each."""
    names = []
    for _ in range(target.count(200)):
        params = "&".join(f"k{number}={next(_UNIQUE)}" for number in range(400))
        names.append(f"xdstp://a/envoy.config.cluster.v3.Cluster/{next(_UNIQUE)}?{params}")
    _talk(target.relay, [_ask(CLUSTER, names, _node())])


def no_requests(target: Target, chance: random.Random) -> None:
    """Bytes that are no message, and messages without a type."""
    for body in (chance.randbytes(200), b"", b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f"):
        _talk(target.relay, [body], seconds=0.5)


def compressed_names(target: Target, _chance: random.Random) -> None:
    """One name of 10 MB that is a few kB of gzip."""
    _talk(target.relay, [_ask(CLUSTER, ["a" * target.count(10_000_000)], _node())], compression=grpc.Compression.Gzip)


def broken_http2(target: Target, chance: random.Random) -> None:
    """Sockets of the xDS port that say nothing, or nothing that is HTTP/2."""
    openings = (b"", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\n\r\n", chance.randbytes(500))
    _hold([target.relay], openings, target.count(40))


# -- by whoever reaches the admin port


def half_requests(target: Target, _chance: random.Random) -> None:
    """100 connections that begin a request and never end it, or say nothing at all."""
    _hold(target.admin(), (b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: a\r\n"), target.count(100))


def foreign_pages(target: Target, _chance: random.Random) -> None:
    """Requests as a web page makes them whose name was bound to this address: read everything, forget a resource."""
    for address in target.admin():
        for line in (b"GET /api/resources", b"DELETE /api/resources?type=cds&name=chosen-0", b"GET /metrics"):
            _request(split(address)[1], b"Host: attacker.example", line)


# -- by whoever writes files


def odd_files(target: Target, _chance: random.Random) -> None:
    """A file whose name is not UTF-8, as an editor leaves one for a moment."""
    path = os.path.join(os.fsencode(target.config), b".\xe9%d.yaml.swp" % next(_UNIQUE))  # noqa: PTH118 - of bytes
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(b"b0VIM")
    time.sleep(0.5)
    os.unlink(path)  # noqa: PTH108


ATTACKS: dict[str, Strike] = {
    strike.__name__.replace("_", "-"): strike
    for strike in (
        *(long_hosts, made_up_hosts, long_made_up_hosts, odd_hosts, odd_clusters, made_up_clusters, cluster_scan),
        *(large_metadata, many_names, many_types, long_node_ids, long_nacks, made_up_params, many_context_params),
        *(no_requests, compressed_names, broken_http2, half_requests, foreign_pages, odd_files),
    )
}


# -- how it is said


def _request(port: int, headers: bytes, line: bytes = b"GET /") -> None:
    """One request as bytes, and a moment for its answer."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5) as connection:
        connection.sendall(line + b" HTTP/1.1\r\n" + headers + b"\r\nConnection: close\r\n\r\n")
        connection.recv(4_096)


def scan_clusters(port: int, names: Iterator[str], connections: int, seconds: float) -> Counter[bytes]:
    """Requests for clusters by these names, each of which waits until Envoy knows whether there is one.

    Returns how many had which status, when all are answered or the time is over.
    """
    statuses: Counter[bytes] = Counter()

    async def share() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for name in names:
                writer.write(f"GET / HTTP/1.1\r\nHost: chosen.example\r\ncluster: {name}\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                statuses[head.split()[1]] += 1
        finally:
            writer.close()

    async def scan() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # Of one that breaks, the others have the rest.
                await asyncio.gather(*(share() for _ in range(connections)), return_exceptions=True)

    asyncio.run(scan())
    return statuses


def _hold(addresses: Sequence[str], openings: Sequence[bytes], count: int) -> None:
    """Many connections, of which none says more than its opening."""
    if not addresses:
        return
    with ExitStack() as stack:
        for number in range(count):
            with suppress(OSError):
                place = split(addresses[number % len(addresses)])
                connection = stack.enter_context(socket.create_connection(place, timeout=1))
                connection.sendall(openings[number % len(openings)])
        time.sleep(SECONDS)


def _node(**metadata: str) -> Node:
    node = Node(id=f"stranger-{next(_UNIQUE)}")
    node.metadata.update(metadata)
    return node


def _ask(type_url: str, names: Sequence[str], node: Node | None = None) -> pb.DeltaDiscoveryRequest:
    return pb.DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names, node=node)


def _ack(response: pb.DeltaDiscoveryResponse) -> pb.DeltaDiscoveryRequest:
    return pb.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)


def _talk(
    address: str,
    requests: Sequence[pb.DeltaDiscoveryRequest | bytes],
    answer: Callable[[pb.DeltaDiscoveryResponse], pb.DeltaDiscoveryRequest | None] = _ack,
    *,
    seconds: float = SECONDS,
    compression: grpc.Compression = grpc.Compression.NoCompression,
) -> None:
    """One delta ADS stream that says this, then answers what comes until the time is over."""
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    for request in requests:
        outbox.put(request if isinstance(request, bytes) else request.SerializeToString())

    def sent() -> Iterator[bytes]:
        while (body := outbox.get()) is not None:
            yield body

    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with suppress(grpc.RpcError), grpc.insecure_channel(address, options=options, compression=compression) as channel:
        try:
            for body in channel.stream_stream(ADS)(sent(), timeout=seconds):
                reply = answer(pb.DeltaDiscoveryResponse.FromString(body))
                if reply is not None:
                    outbox.put(reply.SerializeToString())
        finally:
            outbox.put(None)
