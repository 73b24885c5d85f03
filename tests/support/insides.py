"""Reads internal state that no response and no page shows.

Tests of bounds and leaks look at it here, so that each private attribute is named once. All else is judged from
outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from xdsprism import Server
from xdsprism.app import Daemon
from xdsprism.client.disk import Disk
from xdsprism.core.model.listing import Listing
from xdsprism.core.model.table import Table
from xdsprism.core.provide.providing import Providing
from xdsprism.core.session.interest import Interest
from xdsprism.http2.rpc import RpcConnection
from xdsprism.server.connection_calls import ConnectionCalls
from xdsprism.server.engine_h2 import H2Engine, SocketConnection
from xdsprism.server.hub import Hub
from xdsprism.server.xds_call import XdsCall

# -- a server


def engine(server: Server) -> H2Engine:
    found = server._engine  # noqa: SLF001 # limits and times of a transport are set by no option of a server
    assert isinstance(found, H2Engine)
    return found


def open_calls(server: Server) -> int:
    assert server._engine is not None  # noqa: SLF001 # either transport: calls that still write have left the hub
    return server._engine.open_calls  # noqa: SLF001 # as above


def connections(of: H2Engine) -> Collection[SocketConnection]:
    return of._connections  # noqa: SLF001 # what it keeps; the metric counts what was accepted and was closed


def calls_of(connection: SocketConnection) -> ConnectionCalls:
    assert connection._calls is not None  # noqa: SLF001 # as below
    return connection._calls  # noqa: SLF001 # a test that breaks one connection has to know it from the others


def calls(hub: Hub) -> Mapping[int, XdsCall]:
    return hub._calls  # noqa: SLF001 # a call that is left behind is heard of by nobody


def kept_of_interest(interest: Interest) -> dict[str, Any]:
    """What it keeps for sessions, which is nothing once they are closed."""
    hosts = interest._hosts._configs  # noqa: SLF001 # nobody is told what is left behind
    kept = {"names": interest._names, "wildcards": interest._wild}  # noqa: SLF001 # as above
    return kept | {"groups": interest._groups, "forgetful": interest._forgetful, "hosts": hosts}  # noqa: SLF001 # as above


def unfinished(rpcs: RpcConnection) -> int:
    """The bytes of messages that have begun, over all calls of a connection."""
    return rpcs._unfinished  # noqa: SLF001 # a wrong count would be noticed after many messages only


# -- the store


def log(listing: Listing) -> list[Any]:
    return listing._log  # noqa: SLF001 # readers are told the same, however long it is


def cursors(listing: Listing) -> Mapping[int, int]:
    return listing._cursors  # noqa: SLF001 # `is_followed` does not say by how many


def globs(table: Table) -> Mapping[str, Any]:
    return table._globs  # noqa: SLF001 # an index that is left behind costs memory, and says nothing


def paths(table: Table) -> Mapping[str, Any]:
    return table._paths  # noqa: SLF001 # an index that is left behind costs memory, and says nothing


def snapshots(listing: Listing) -> dict[Any, Any]:
    return listing._snapshots  # noqa: SLF001 # a cache: what it answers is the same without it


def differences(listing: Listing) -> dict[Any, Any]:
    return listing._differences  # noqa: SLF001 # a cache: what it answers is the same without it


def kept_of_providing(providing: Providing) -> dict[str, Any]:
    """What it keeps of names and of calls of providers."""
    jobs = providing._jobs  # noqa: SLF001 # a call that is forgotten would only be missing under load
    kept = {"open": jobs._open, "running": jobs._running}  # noqa: SLF001 # as above
    kept |= {"topics": providing._topics, "failures": providing._failures}  # noqa: SLF001 # leaks say nothing
    return kept | {"idle": providing._idle}  # noqa: SLF001 # its bound shows in memory only


# -- the client


def database(disk: Disk) -> Any:
    """The connection to SQLite, which tells what it does, and can be made to refuse it."""
    return disk._db  # noqa: SLF001 # no disk breaks when it should


# -- metrics


def daemon_registry(daemon: Daemon) -> CollectorRegistry:
    return daemon._metrics.registry  # noqa: SLF001 # the admin port shows no metric whose labels have no values yet


def families(registry: CollectorRegistry) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The type and the labels of each metric, also of those that have no series yet."""
    found = {}
    for collector in registry._collector_to_names:  # noqa: SLF001 # `collect` does not say which labels there will be
        for family in collector.collect():
            owner = collector if hasattr(collector, "_labelnames") else family
            counted = f"{family.name}_total" if family.type == "counter" else family.name
            found[counted] = family.type, tuple(getattr(owner, "_labelnames", ()))
    return found
