"""Encode the requests of a client, and decode the responses of a server.

The messages of xDS v2 and v3 have the same bytes on the wire (gRFC A30). Only the names of methods and types differ,
and one field of the node. So everything is written and read as v3.

Requests are joined from encoded fields, without a protobuf object: a SotW request may list very many names, and the
list is encoded only when it changes. A response is decoded resource by resource into one of four values:

    Resource in the response                                          value
    ----------------------------------------------------------------  ----------------------------------------------
    valid contents                                                    Arrival
    no contents, but a name and a TTL                                 Heartbeat (TTL-4)
    in delta: no contents and no TTL; has aliases or is a virtual     Unresolved (VHD-7)
    host
    anything else                                                     InvalidResource, leads to a NACK (NAK-18)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any as AnyType

from envoy.config.core.v3.base_pb2 import Node as NodeProto
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from ...errors import PeerError, UsageError
from ..model.constraints import TRUE, Constraint
from ..model.events import SEND_ALL_CLUSTERS, Absence, DeltaRequest, Key, Rejection, ResourceError, SotwRequest
from ..model.responses import Arrival, Heartbeat, InvalidResource, Response, Unresolved
from ..model.steps import EVERY, Steps, finish, pieces
from ..model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ..model.type_versions import RESOURCE, as_v2, as_v3
from ..model.types import PREFIX, VIRTUAL_HOST, TypeUrl, Variant
from ..model.xdstp import spelled as _name  # XTP-1: an xdstp name has one spelling in here
from .constraints import constraint_from_proto
from .resources import domains_of
from .response_salvage import salvaged_response
from .wire import join_field

USER_AGENT = "xdsprism"

LONG = 16 * EVERY  # keys to encode in one step

# A95: the client can take the endpoints of a locality from an LbEndpointCollection.
LISTS_OF_ENDPOINTS = "xds.endpoint.supports_lb_endpoint_collection"

# The `client_features` of this client. One of them has two spellings in the field (TTL-1).
FEATURES = (
    "envoy.lb.does_not_support_overprovisioning",
    SEND_ALL_CLUSTERS,
    "xds.config.resource-in-sotw",
    "xds.config.supports-resource-in-sotw",
    "xds.config.supports-resource-ttl",
    LISTS_OF_ENDPOINTS,
)

# The path of the ADS method: version and "Stream" (SotW) or "Delta".
_ADS = "/envoy.service.discovery.{}.AggregatedDiscoveryService/{}AggregatedResources"


def ads_path(*, v3: bool, delta: bool) -> str:
    """Return the path of the ADS method for a version and protocol (VER-5, VER-6)."""
    return _ADS.format("v3" if v3 else "v2", "Delta" if delta else "Stream")


def node_bytes(node: bytes, release: str, *, v3: bool, features: Iterable[str] = FEATURES) -> bytes:
    """Return the encoded node: that of the bootstrap, with user agent and client features (CLI-1)."""
    proto = NodeProto.FromString(node)
    proto.user_agent_name = USER_AGENT
    proto.user_agent_version = release
    # The bootstrap may list some of the features already.
    proto.client_features.extend(feature for feature in features if feature not in proto.client_features)
    encoded: bytes = proto.SerializeToString(deterministic=True)
    if not v3:  # A30: build_version is a field of v2 only, and v3's message has no place for it
        encoded += join_field(5, f"{USER_AGENT} {release}".encode())
    return encoded


class RequestEncoder:
    """Encodes the requests of one stream: the first one has the node (CLI-1), an unchanged list is encoded once."""

    def __init__(self, node: bytes, *, delta: bool, v3: bool) -> None:
        self._node = node
        self._delta = delta
        self._v3 = v3
        self._listed: dict[TypeUrl, tuple[tuple[Key, ...], bytes]] = {}

    def encode(self, type_url: TypeUrl, request: SotwRequest | DeltaRequest) -> bytes:
        """Return the bytes of a request."""
        return finish(self.encoding(type_url, request))

    def encoding(self, type_url: TypeUrl, request: SotwRequest | DeltaRequest) -> Steps[bytes]:
        """Do what `encode` does, in steps."""
        node, self._node = self._node, b""
        url = (type_url if self._v3 else as_v2(type_url)).encode()
        # The numbers are those of DiscoveryRequest, and below of DeltaDiscoveryRequest.
        if isinstance(request, SotwRequest):
            return b"".join(
                [
                    _text(1, request.version),
                    join_field(2, node) if node else b"",
                    join_field(4, url),
                    _text(5, request.nonce),
                    _error(6, request.error),
                    (yield from self._names(type_url, request.wanted)),
                ]
            )
        return b"".join(
            [
                join_field(1, node) if node else b"",
                join_field(2, url),
                (yield from self._keys(request.subscribe, 3, 8)),
                (yield from self._keys(request.unsubscribe, 4, 9)),
                (yield from self._versions(request.initial_versions)),
                _text(6, request.nonce),
                _error(7, request.error),
            ]
        )

    def _names(self, type_url: TypeUrl, wanted: tuple[Key, ...]) -> Steps[bytes]:
        """Return the encoded names and locators of a SotW request; the same tuple is encoded once only."""
        # `SotwRequestBuilder` passes the same tuple until the subscriptions change.
        known = self._listed.get(type_url)
        if known is None or known[0] is not wanted:
            known = self._listed[type_url] = wanted, (yield from self._keys(wanted, 3, 7))
        return known[1]

    def _keys(self, keys: tuple[Key, ...], name: int, locator: int) -> Steps[bytes]:
        """Encode names and locators into the fields with these numbers."""
        parts: list[bytes] = []
        for piece in pieces(keys, LONG):
            parts += [
                join_field(name, each.encode()) if params is None else join_field(locator, _locator(each, params))
                for each, params in piece
            ]
            if len(piece) == LONG:
                yield
        return b"".join(parts)

    def _versions(self, versions: Mapping[str, str]) -> Steps[bytes]:
        """Encode `initial_resource_versions`."""
        parts: list[bytes] = []
        for piece in pieces(versions.items(), LONG):
            parts += [_pair(5, name, version) for name, version in piece]
            if len(piece) == LONG:
                yield
        return b"".join(parts)


def _locator(name: str, params: Mapping[str, str]) -> bytes:
    """Encode a ResourceLocator."""
    return _text(1, name) + b"".join(_pair(2, key, value) for key, value in params.items())


def _pair(number: int, key: str, value: str) -> bytes:
    """Encode one item of a map of strings."""
    return join_field(number, join_field(1, key.encode()) + join_field(2, value.encode()))


def _text(number: int, text: str) -> bytes:
    """Encode a string field; nothing if the string is empty."""
    return join_field(number, text.encode()) if text else b""


def _error(number: int, error: Rejection | None) -> bytes:
    """Encode the `error_detail` of a NACK; nothing for an ACK."""
    if error is None:
        return b""
    return join_field(number, Status(code=error.code, message=error.message).SerializeToString())


# -- responses in


@dataclass(slots=True, eq=False)
class Checked:
    """The result of a check of a resource's contents: a message and its name, or the faults.

    `message` is None if its type is not known here, or if it can't be decoded.
    """

    message: AnyType
    name: str
    faults: tuple[str, ...] = ()


# The possible results of decoding one resource.
Read = Arrival | Heartbeat | Unresolved | InvalidResource

# Decodes and checks the contents of a resource.
Check = Callable[[TypeUrl, bytes], Checked]


class ResponseDecoder:
    """Decodes the responses of one stream. An invalid resource never stops the others (NAK-18)."""

    def __init__(
        self,
        check: Check,
        *,
        delta: bool,
        locators: bool = True,
        asks: Callable[[TypeUrl], bool] = lambda _: True,
        dress: Callable[[Variant, object], Variant] = lambda variant, _: variant,
    ) -> None:
        self._check = check
        self._delta = delta
        self._locators = locators  # DYN-54: whether to read resource_name
        self._dress = dress  # lets a relay add to a variant before it passes it on
        self._asks = asks  # NAK-22: the contents of a response of an unrequested type are not even decoded

    def decode(self, message: bytes) -> Response:
        """Return the response. Raise PeerError if the bytes are no response at all."""
        return finish(self.decoding(message))

    def decoding(self, message: bytes) -> Steps[Response]:
        """Do what `decode` does, in steps."""
        proto, flaws = _parsed(pb.DeltaDiscoveryResponse if self._delta else pb.DiscoveryResponse, message)
        if self._delta:
            return (yield from self._delta_response(proto, flaws))
        return (yield from self._sotw_response(proto, flaws))

    def _sotw_response(self, proto: AnyType, flaws: list[InvalidResource]) -> Steps[Response]:
        """Decode a DiscoveryResponse."""
        url = as_v3(proto.type_url)
        if not self._asks(url):
            return Response(url, proto.version_info, proto.nonce)
        read: list[Read] = [*flaws]
        for piece in pieces(proto.resources):
            read += [self._item(url, item, proto.version_info) for item in piece]
            if len(piece) == EVERY:
                yield
        return _response(url, proto.version_info, proto, read, (), ())

    def _delta_response(self, proto: AnyType, flaws: list[InvalidResource]) -> Steps[Response]:
        """Decode a DeltaDiscoveryResponse.

        A removal whose constraints can't be read is an invalid resource, and removes nothing (PRX-37).
        """
        url = as_v3(proto.type_url)
        if not self._asks(url):
            return Response(url, proto.system_version_info, proto.nonce)
        read: list[Read] = [*flaws]
        for piece in pieces(proto.resources):
            read += [self._resource(url, resource, resource.version) for resource in piece]
            if len(piece) == EVERY:
                yield
        removed = tuple(_name(name) for name in proto.removed_resources)
        withdrawn: list[Absence] = []
        # Removals of variants, by name and constraints (DYN-59).
        for gone in proto.removed_resource_names if self._locators else ():
            try:
                withdrawn.append(Absence(_name(gone.name), constraint_from_proto(gone.dynamic_parameter_constraints)))
            except UsageError as error:
                read.append(_unidentified(gone.name, f"its removal can't be read: {error}"))
        return _response(url, proto.system_version_info, proto, read, removed, tuple(withdrawn))

    def _item(self, url: TypeUrl, item: AnyType, version: str) -> Read:
        """Decode an item of a SotW response, which is bare or wrapped in a Resource (CLI-21)."""
        # Bare contents, unless the item is a Resource and the type itself is another one.
        if as_v3(item.type_url) != RESOURCE or url == RESOURCE:
            return self._contents(url, item, version)
        try:
            resource = pb.Resource.FromString(item.value)
        except DecodeError as error:
            # Without a name, so a full state deletes nothing (NAK-27).
            return InvalidResource("", None, f"a Resource that can't be decoded: {error}", version)
        return self._resource(url, resource, resource.version or version)

    def _resource(self, url: TypeUrl, resource: AnyType, version: str) -> Read:
        """Decode a Resource: name, constraints and TTL, and then its contents."""
        name, constraint = _name(resource.name), None
        if self._locators and resource.HasField("resource_name"):
            # Only one of the two fields may be set.
            if name:  # DYN-55
                return InvalidResource(name, None, "it has both name and resource_name", version)
            name = _name(resource.resource_name.name)
            try:
                constraint = constraint_from_proto(resource.resource_name.dynamic_parameter_constraints)
            except UsageError as error:
                # PRX-37: it is unknown which variant this is, so it must not replace one.
                return _unidentified(name, f"its constraints can't be read: {error}", version)
        ttl = resource.ttl.ToMicroseconds() / 1e6 if resource.HasField("ttl") else None
        if not resource.HasField("resource"):
            return self._empty(url, resource, name, constraint, ttl, version)
        return self._contents(url, resource.resource, version, name, constraint, ttl, resource)

    def _empty(
        self,
        url: TypeUrl,
        resource: AnyType,
        name: str,
        constraint: Constraint | None,
        ttl: float | None,
        version: str,
    ) -> Heartbeat | Unresolved | InvalidResource:
        """Decode a Resource without contents."""
        # The same version is still valid, for this long.
        if name and ttl is not None:
            return Heartbeat(name, constraint, ttl)
        aliases = tuple(map(_name, resource.aliases))
        # The host that the client asked for is among the aliases; of a virtual host the name is enough.
        if self._delta and (aliases or (name and url == VIRTUAL_HOST)):  # VHD-7
            return Unresolved(name, constraint, version, aliases)
        if not name:
            return InvalidResource("", None, "a Resource with neither name nor contents", version)
        return InvalidResource(name, constraint, "it has no contents", version)

    def _contents(
        self,
        url: TypeUrl,
        item: AnyType,
        version: str,
        name: str = "",
        constraint: Constraint | None = None,
        ttl: float | None = None,
        resource: AnyType = None,
    ) -> Arrival | InvalidResource:
        """Decode and check the contents of a resource."""
        body = item.value
        aliases, extras = _extras(url, resource) if resource is not None else ((), b"")
        if as_v3(item.type_url) != url:  # NAK-25
            what = bounded(item.type_url, NAME_BYTES) or "resource without a type"
            return InvalidResource(name, constraint, f"it is a {what}, not a {url}", version, aliases)
        checked = self._check(url, body)
        # The name inside; it serves for bare contents in SotW, which have no other.
        inner = checked.name if checked.name == name else _name(checked.name)
        # By the name outside, if there is one: the watchers of that name hear the faults.
        if checked.faults:
            return InvalidResource(
                name or inner, constraint, bounded("; ".join(checked.faults), TEXT_BYTES), version, aliases
            )
        # A bare resource of a type without a name field, or with an empty name.
        if not (name or inner):
            return InvalidResource("", constraint, f"a {url.removeprefix(PREFIX)} without a name", version)
        variant = Variant(
            url, name or inner, TRUE if constraint is None else constraint, body, version, 0, aliases, extras, ttl=ttl
        )
        if url == VIRTUAL_HOST and checked.message is not None:
            # The client needs them to tell which hosts it can serve (match_rank.py).
            variant.domains = domains_of(checked.message)
        # The decoded message is dropped. To keep ten thousand of them costs more than to decode each again when it is
        # used.
        return Arrival(self._dress(variant, checked.message), constraint is not None, ttl)


def _parsed(form: AnyType, message: bytes) -> tuple[AnyType, list[InvalidResource]]:
    """Return the response, and what had to be cut out of it. Raise PeerError if the bytes are no response at all."""
    try:
        return form.FromString(message), []
    except DecodeError as error:
        try:
            proto, unreadable = salvaged_response(message, delta=form is pb.DeltaDiscoveryResponse)
        except DecodeError:
            raise PeerError("INTERNAL", f"not a discovery response: {error}") from error
        # NAK-27: without a name, so that a full state deletes nothing.
        return proto, [
            _unidentified(name, reason) if name else InvalidResource("", None, reason) for name, reason in unreadable
        ]


def _response(
    url: TypeUrl,
    version: str,
    proto: AnyType,
    read: Iterable[Read],
    removed: tuple[str, ...],
    withdrawn: tuple[Absence, ...],
) -> Response:
    """Sort the decoded resources, and add the resource errors."""
    errors = [*map(_error_of, proto.resource_errors)]
    # An error that can't be read makes the response a NACK.
    read = [*read, *(item for item in errors if isinstance(item, InvalidResource))]
    flaws = [item for item in read if isinstance(item, InvalidResource)]
    return Response(
        url,
        version,
        proto.nonce,
        tuple(item for item in read if isinstance(item, Arrival)),
        tuple(item for item in read if isinstance(item, Heartbeat)),
        tuple(flaws),
        removed,
        withdrawn,
        tuple(item for item in errors if isinstance(item, ResourceError)),
        tuple(item for item in read if isinstance(item, Unresolved)),
        bounded(proto.control_plane.identifier, NAME_BYTES),
    )


def _extras(url: TypeUrl, resource: AnyType) -> tuple[tuple[str, ...], bytes]:
    """Return the aliases, and the further fields of a Resource, encoded, for a relay to pass on.

    The aliases of a virtual host are not among the further fields: they are the strings by which this client asked
    (VHD-4), and the next client asks by others.
    """
    aliases = tuple(map(_name, resource.aliases))
    # Aliases of other types are properties of the resource, and a relay passes them on.
    own = url != VIRTUAL_HOST and bool(aliases)
    if not own and not resource.HasField("cache_control") and not resource.HasField("metadata"):
        return aliases, b""
    rest = pb.Resource()
    rest.CopyFrom(resource)
    for field in ("resource", "name", "resource_name", "version", "ttl", *(() if own else ("aliases",))):
        rest.ClearField(field)
    return aliases, rest.SerializeToString(deterministic=True)


def _error_of(error: AnyType) -> ResourceError | InvalidResource:
    """Decode a resource error (TP3); one with unreadable constraints must not deny all variants (PRX-37)."""
    about = error.resource_name
    try:
        constraint = constraint_from_proto(about.dynamic_parameter_constraints)
    except UsageError as wrong:
        return _unidentified(about.name, f"the constraints of its error can't be read: {wrong}")
    detail = error.error_detail
    text = bounded(detail.message, TEXT_BYTES)  # the text is stored, passed on by a relay, shown and logged
    return ResourceError(Absence(_name(about.name), constraint), detail.code, text)


def _unidentified(name: str, reason: str, version: str = "") -> InvalidResource:
    """Return an invalid resource whose constraints can't be read (PRX-37).

    It may be any variant that was asked for by a locator, so it neither replaces nor removes one.
    """
    return InvalidResource(_name(name), TRUE, reason, version, is_identified=False)
