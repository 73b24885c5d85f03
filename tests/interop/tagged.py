"""Clusters told by a tag, one of them very large; and what streams and the server say of them."""

from __future__ import annotations

from typing import Any

from envoy.config.cluster.v3.cluster_pb2 import Cluster

from tests.support.control_plane import ControlPlane
from tests.support.resources import Document, static_cluster
from tests.support.streams import Ads, Channel, bodies
from xdsprism import CLUSTER

BIG = 20_000_000  # bytes


def tagged(name: str, tag: str) -> Document:
    return static_cluster(name, "127.0.0.1", 1) | {"alt_stat_name": tag}


def big() -> Document:
    """More than windows and sockets hold: whoever writes it waits for a reader."""
    return tagged("big", "x" * BIG)


def tags(response: Any) -> list[str]:
    return [Cluster.FromString(body).alt_stat_name for body in bodies(response)]


def hears(stream: Ads, tag: str) -> None:
    """The stream is told of a cluster with this tag, sooner or later: files take a moment to be read."""
    while tags(stream.answer()) != [tag]:
        pass


def in_the_middle_of_a_large_response(channel: Channel, node: str, deadline: float | None = None) -> Ads:
    """A stream whose client does not read. SotW, since a delta response is never that large."""
    stream = channel.discovery(node, delta=False, held=True, deadline=deadline)
    stream.ask(CLUSTER, "big")
    return stream


def states(server: ControlPlane, node: str) -> set[str]:
    return {each["state"] for client in server.clients(node) for each in client["types"]}


def peers(server: ControlPlane, node: str) -> int:
    """The number of connections that the streams of a node are on."""
    return len({client["peer"] for client in server.clients(node)})
