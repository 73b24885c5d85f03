"""Reports the resources of a client and their states by CSDS (gRFC A40, A71, A88): in a message, or over gRPC."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from envoy.admin.v3.config_dump_shared_pb2 import ClientResourceStatus
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.status.v3 import csds_pb2 as pb
from google.protobuf.timestamp_pb2 import Timestamp

from ..core.codec.client_side import node_bytes
from ..core.model.constraints import canonical
from ..core.watch.entry import Entry, State
from ..errors import UsageError
from ..messages.redaction import redacted_bytes
from ..release import __version__

if TYPE_CHECKING:
    from .client import Client

SERVICE = "envoy.service.status.v3.ClientStatusDiscoveryService"  # VER-11: there is no v2


def client_status(
    client: Client, *, contents: bool = True, scope: str | None = None, wall: Callable[[], float] = time.time
) -> Any:
    """Build a ClientStatusResponse with every watched resource, its state and its last valid contents.

    contents    whether to include the resources themselves, without keys, passwords and tokens (OPS-14)
    scope       the name of this client among those of the program (A71); None: its first server
    """
    config = pb.ClientConfig(
        # A40: the node as the control plane sees it.
        node=Node.FromString(node_bytes(client.bootstrap.node, __version__, v3=True)),
        client_scope=_first_server(client) if scope is None else scope,
    )
    offset = wall() - client.now()
    for entry in _distinct(client.subscriber.entries()):
        _describe(entry, config.generic_xds_configs.add(), offset, contents=contents)
    return pb.ClientStatusResponse(config=[config])


def status_service(client: Client, *, scope: str | None = None) -> Any:
    """Make a CSDS service for the program's own grpc.aio server, which must run in the client's event loop.

    `server.add_generic_rpc_handlers((status_service(client),))`
    """

    async def answer(request: Any, context: Any) -> Any:
        if request.node_matchers:  # CSD-4. A40: node_matchers are for servers, which have many nodes
            text = "node_matchers: this is one client, there is nothing to choose from"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        return client_status(client, contents=not request.exclude_resource_contents, scope=scope)

    async def stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:  # A40: one response for each request, and none when something changes
            yield await answer(request, context)

    coding = {
        "request_deserializer": pb.ClientStatusRequest.FromString,
        "response_serializer": pb.ClientStatusResponse.SerializeToString,
    }
    methods = {
        "StreamClientStatus": grpc.stream_stream_rpc_method_handler(stream, **coding),
        "FetchClientStatus": grpc.unary_unary_rpc_method_handler(answer, **coding),
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)


class StatusServer:
    """A gRPC server that serves only CSDS, in plain text: for 127.0.0.1, or a socket file."""

    def __init__(self, client: Client, scope: str | None) -> None:
        # Without SO_REUSEPORT, so that a port that is in use is an error.
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((status_service(client, scope=scope),))

    async def start(self, listen: str) -> str:
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise UsageError(f"can't serve the status on {listen!r}: {error}") from error
        await self._server.start()
        host, colon, _ = listen.rpartition(":")
        return listen if listen.startswith("unix:") else f"{host}{colon}{port}"

    async def stop(self) -> None:
        await self._server.stop(None)


def _first_server(client: Client) -> str:
    bootstrap = client.bootstrap
    servers = [*bootstrap.servers, *(each for config in bootstrap.authorities.values() for each in config.servers)]
    return servers[0].uri if servers else ""


def _distinct(entries: list[Entry]) -> Iterator[Entry]:
    """DYN-47: yield one entry per variant, even if several subscriptions have it.

    A collection is shown by its members. It is an entry of its own only while it has no list of members.
    """
    seen = set()
    for entry in entries:
        if entry.collection is not None and entry.state is State.ACKED:
            continue
        variant, error = entry.variant, entry.last_error
        held = (canonical(variant.constraint), variant.version, variant.body) if variant is not None else None
        shown = entry.type_url, entry.name, entry.state, held, error and (error.version, error.message)
        if shown not in seen:
            seen.add(shown)
            yield entry


def _describe(entry: Entry, into: Any, offset: float, *, contents: bool) -> None:
    into.type_url, into.name = entry.type_url, entry.name
    into.client_status = ClientResourceStatus.Value(entry.state.name)
    variant, error = entry.variant, entry.last_error
    if variant is not None:
        into.version_info = variant.version
        if entry.sent_by is not None:  # a server, not the disk
            into.last_updated.CopyFrom(_timestamp(entry.updated + offset))
        if contents:  # CSD-2
            into.xds_config.type_url = variant.type_url
            into.xds_config.value = redacted_bytes(variant.type_url, variant.body)
    if error is not None:  # CSD-3: the error beside the contents that are still in use
        into.error_state.details, into.error_state.version_info = error.message, error.version
        into.error_state.last_update_attempt.CopyFrom(_timestamp(error.at + offset))


def _timestamp(seconds: float) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromMicroseconds(int(seconds * 1_000_000))
    return timestamp
