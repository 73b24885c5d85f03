"""One raw ADS stream: asks for one type, hands over what comes, ACKs what it is told to. No cache and no retries.

Enough to try a server by hand, and to see exactly what it says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import DecodeError

from ..core.codec import constraint_from_proto
from ..core.constraints import Constraint
from ..core.events import WILDCARD
from ..core.twins import RESOURCE
from ..core.types import TypeUrl
from ..errors import PeerError, UsageError, XdsError

_SERVICE = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
_OPTIONS = (("grpc.max_receive_message_length", -1),)

# grpc.aio puts this in place of the status that the server gave, where a write meets the end of a stream (grpc#36066).
_OVERWRITTEN = "Internal error from Core"

# The name inside a resource: a SotW response to a plain subscription says it nowhere else.
NameOf = Callable[[TypeUrl, bytes], str]


@dataclass(frozen=True, slots=True)
class Query:
    """What to ask for. No names: everything. Params, even none of them: as locators (TP2); None: as plain names."""

    type_url: TypeUrl
    names: tuple[str, ...]
    params: Mapping[str, str] | None
    delta: bool


@dataclass(frozen=True, slots=True)
class Received:
    """A resource as it came."""

    type_url: TypeUrl
    name: str
    body: bytes
    version: str = ""
    constraint: Constraint | None = None  # None: it came by its plain name
    extras: Any = None  # a discovery.Resource with what else was said of it: aliases, cache_control ...


@dataclass(frozen=True, slots=True)
class Missing:
    """A resource that is not there, and what was said about it."""

    name: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """One response."""

    version: str
    nonce: str
    resources: tuple[Received, ...]
    removed: tuple[Missing, ...]
    errors: tuple[Missing, ...]


class RawStream:
    """Use as `async with`, then `receive` and `acknowledge` in turn. A broken stream is a PeerError with its status."""

    def __init__(self, server: str, query: Query, name_of: NameOf) -> None:
        self._server = server
        self._query = query
        self._name_of = name_of
        self._channel = grpc.aio.insecure_channel(server, options=_OPTIONS)
        self._call: Any = None

    async def __aenter__(self) -> Self:
        method = "DeltaAggregatedResources" if self._query.delta else "StreamAggregatedResources"
        self._call = self._channel.stream_stream(_SERVICE + method)()
        request = _delta_ask(self._query) if self._query.delta else _sotw_ask(self._query)
        request.node.id = "xdsprism"
        request.node.user_agent_name = "xdsprism"
        await self._write(request)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()
        await self._channel.close()

    async def receive(self) -> Update:
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._broken(error) from error
        if message is grpc.aio.EOF:
            raise await self._ended()
        try:
            return (_delta_update if self._query.delta else self._sotw_update)(message)
        except DecodeError as error:
            raise PeerError("INTERNAL", f"{self._server} sent no discovery response: {error}") from error

    async def acknowledge(self, update: Update, subscribe: Sequence[str] = ()) -> None:
        """ACK a response. Delta: and subscribe to more plain names in the same request."""
        if self._query.delta:
            request = pb.DeltaDiscoveryRequest(type_url=self._query.type_url, resource_names_subscribe=subscribe)
        else:
            request = _sotw_ask(self._query)
            request.version_info = update.version
        request.response_nonce = update.nonce
        await self._write(request)

    async def _write(self, request: Any) -> None:
        try:
            await self._call.write(request.SerializeToString())
        except asyncio.InvalidStateError:
            raise await self._ended() from None
        except grpc.aio.AioRpcError as error:
            if error.details() == _OVERWRITTEN:
                raise XdsError(f"{self._server} ended the stream") from error
            raise self._broken(error) from error

    async def _ended(self) -> XdsError:
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return XdsError(f"{self._server} ended the stream")
        return PeerError(code.name, f"{self._server}: {await self._call.details()}")

    def _broken(self, error: Any) -> PeerError:
        return PeerError(error.code().name, f"{self._server}: {error.details()}")

    def _sotw_update(self, message: bytes) -> Update:
        proto = pb.DiscoveryResponse.FromString(message)
        resources = tuple(self._unwrapped(item) for item in proto.resources)
        return Update(proto.version_info, proto.nonce, resources, (), tuple(_errors(proto)))

    def _unwrapped(self, item: Any) -> Received:
        if item.type_url == RESOURCE:
            return _received(pb.Resource.FromString(item.value))
        return Received(item.type_url, self._name_of(item.type_url, item.value), item.value)


def _sotw_ask(query: Query) -> Any:
    request = pb.DiscoveryRequest(type_url=query.type_url)
    _list(query, request.resource_names, request.resource_locators)
    return request


def _delta_ask(query: Query) -> Any:
    request = pb.DeltaDiscoveryRequest(type_url=query.type_url)
    _list(query, request.resource_names_subscribe, request.resource_locators_subscribe)
    return request


def _list(query: Query, names: Any, locators: Any) -> None:
    for name in query.names or (WILDCARD,):
        if query.params is None:
            names.append(name)
        else:
            locators.add(name=name, dynamic_parameters=query.params)


def _delta_update(message: bytes) -> Update:
    proto = pb.DeltaDiscoveryResponse.FromString(message)
    removed = (*proto.removed_resources, *(gone.name for gone in proto.removed_resource_names))
    resources = tuple(_received(resource) for resource in proto.resources)
    gone = tuple(Missing(name) for name in dict.fromkeys(removed))
    return Update(proto.system_version_info, proto.nonce, resources, gone, tuple(_errors(proto)))


def _received(resource: Any) -> Received:
    located = resource.HasField("resource_name")
    known = Received(
        resource.resource.type_url,
        resource.resource_name.name if located else resource.name,
        resource.resource.value,
        resource.version,
        _constraint(resource.resource_name) if located else None,
        resource,
    )
    for field in ("resource", "name", "resource_name", "version"):
        resource.ClearField(field)
    return known


def _constraint(name: Any) -> Constraint:
    try:
        return constraint_from_proto(name.dynamic_parameter_constraints)
    except UsageError as error:
        raise PeerError("INTERNAL", f"the constraints of {name.name!r} are no constraints: {error}") from error


def _errors(proto: Any) -> Iterator[Missing]:
    errors: Iterable[Any] = proto.resource_errors
    for error in errors:
        yield Missing(error.resource_name.name, error.error_detail.message)
