"""The wrappers of a server: names with constraints, TTLs, errors, removals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryResponse,
    DiscoveryResponse,
    Resource,
    ResourceError,
    ResourceName,
)
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

import xdsprism as xp
from xdsprism.core.codec.resources import name_of
from xdsprism.testing import PeerStream


def resource_name(name: str, when: str) -> ResourceName:
    """TP2: a name and the constraints, written as an expression."""
    return ResourceName(name=name, dynamic_parameter_constraints=xp.parse(when).to_proto())


def pack(message: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def wrap(
    message: Message,
    *,
    name: str | None = None,
    when: str | None = None,
    version: str = "1",
    ttl: float | None = None,
) -> Resource:
    """A Resource around a message: under its plain name (or `name`), or under a name with constraints."""
    made = beat(name or name_of(message) or "", ttl, when=when, version=version)
    made.resource.CopyFrom(pack(message))
    return made


def beat(name: str, ttl: float | None, *, when: str | None = None, version: str = "1") -> Resource:
    """A Resource without contents: with a time to live it is a heartbeat."""
    made = Resource(version=version)
    if when is None:
        made.name = name
    else:
        made.resource_name.CopyFrom(resource_name(name, when))
    if ttl is not None:
        made.ttl.FromNanoseconds(int(ttl * 1e9))
    return made


def error(name: str, code: int, message: str = "", when: str = "true") -> ResourceError:
    made = ResourceError(resource_name=resource_name(name, when))
    made.error_detail.code, made.error_detail.message = code, message
    return made


async def reply(
    stream: PeerStream,
    type_url: str,
    *resources: Message,
    nonce: str = "n1",
    version: str = "1",
    errors: Iterable[ResourceError] = (),
    removed: Iterable[str] = (),
    withdrawn: Iterable[ResourceName] = (),
    server: str = "",
) -> Any:
    """Send a response; the request by which the client answers it.

    Resources are wrapped ones, and in SotW also messages as they are, or whatever else is to be in there as an Any.
    """
    response: Any
    if stream.is_delta:
        response = DeltaDiscoveryResponse(system_version_info=version, resources=resources)  # type: ignore[arg-type]
        response.removed_resources.extend(removed)
        response.removed_resource_names.extend(withdrawn)
    else:
        packed = [each if isinstance(each, AnyMessage) else pack(each) for each in resources]
        response = DiscoveryResponse(version_info=version, resources=packed)
    response.type_url, response.nonce = type_url, nonce
    response.control_plane.identifier = server
    response.resource_errors.extend(errors)
    stream.send(response)
    return await stream.request()


def locators(request: Any) -> list[tuple[str, dict[str, str]]]:
    """What a request asks for by locators, in either protocol."""
    sotw = hasattr(request, "resource_locators")
    listed = request.resource_locators if sotw else request.resource_locators_subscribe
    return [(each.name, dict(each.dynamic_parameters)) for each in listed]


def is_ack(request: Any, nonce: str) -> bool:
    return request.response_nonce == nonce and not request.HasField("error_detail")


def is_nack(request: Any, nonce: str) -> bool:
    return request.response_nonce == nonce and request.error_detail.code == 3
