"""Decode the requests of clients, for a server.

Most requests are ACKs, and equal bytes mean equal requests, so the decoder remembers short ones. The node is decoded
once for each stream (SRV-25), since Envoy's has 60 kB. Long requests are decoded in steps. Of each list only
`Limits.request_names` items are read, and `Request.unread` counts the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any as AnyType

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import DecodeError

from ...errors import PeerError
from ..model.concealment import without_secrets
from ..model.events import DeltaRequest, Key, Rejection, Request, SotwRequest, plain_keys
from ..model.limits import Limits
from ..model.node_params import node_of
from ..model.steps import Steps
from ..model.truncation import TEXT_BYTES, bounded
from ..model.type_versions import as_v3
from ..model.types import Params
from .pieces import Piece
from .salvage import SalvagedRequest, parsed
from .trimming import LARGE, Inside, discovery_request
from .wire import cut, fields_of, read_varint, split_fields

# Field numbers of discovery.proto.
SOTW_NODE, DELTA_NODE = 2, 1

DEFAULT = Limits()

KNOWN, KNOWN_BYTES = 1_024, 4_096  # number of requests to remember, and the length of the longest

# By protocol (True: delta): encoded request -> request, for requests that any client may send.
Known = dict[bool, dict[bytes, Request]]


class Decoder:
    """Decodes the requests of one stream, and its node only once (SRV-25)."""

    __slots__ = (
        "_delta",
        "_known",
        "_limits",
        "_name",
        "_node_params",
        "alike",
    )

    def __init__(
        self,
        *,
        delta: bool,
        limits: Limits = DEFAULT,
        known: Known | None = None,
        node_params: Collection[str] | None = None,
    ) -> None:
        """Set up a stream's decoder.

        `known`: requests decoded before, shared by streams, since most requests are ACKs and alike. `node_params`: the
        metadata that the settings name (node_params.py).
        """
        self._delta = delta
        self._limits = limits
        self._node_params = node_params
        self._known = known[delta] if known is not None else {}
        self.alike: dict[bytes, Request] = {}  # decoded requests that the stream may use from its second message on
        self._name: bytes | None = None  # the encoded id of the node

    def decode(self, message: bytes) -> Request:
        """Return the request. Raise PeerError if the bytes are no request at all."""
        number = DELTA_NODE if self._delta else SOTW_NODE
        node, rest = cut(message, number)
        # The node is in the first message of a stream. A later one is cut off unread; only its id is compared (SRV-7).
        first = self._name is None
        # Without the node, the first requests of many clients are the same bytes.
        known = self._known.get(rest) if type(message) is not Piece else None
        request, name = known, None
        if request is None:
            request, name = self._without_node(rest, first=first, continues=type(message) is Piece)
        if node:
            name = _name_in(node)
        if not first:
            return replace(request, other_node=True) if name is not None and name != self._name else request
        if node:
            own, _ = self._parsed(node if request.node is None else message)
            request = request.with_node(node_of(own.node, self._node_params))
        self._name, self.alike = name or b"", self._known
        return request

    def _without_node(self, message: bytes, *, first: bool, continues: bool) -> tuple[Request, bytes | None]:
        """Decode a request whose node is cut off, and remember it: any client may send these bytes and mean the same.

        The node is still there if it is not where serialisers put it. Of a first request it counts; its encoded id is
        returned, too.
        """
        proto, odd = self._parsed(message)
        most = self._limits.request_names
        has_node = proto.HasField("node")
        node = node_of(proto.node, self._node_params) if first and has_node else None
        request = Request(
            proto.type_url,
            _delta_request(proto, most, odd) if self._delta else _sotw_request(proto, most, odd),
            node,
            unread=_unread(proto, _DELTA_LISTS if self._delta else _SOTW_LISTS, most) if len(message) > most else 0,
            is_v2=as_v3(proto.type_url) != proto.type_url,
            continues=continues,
            is_plain=odd is None and (_is_plain(proto) if self._delta else not proto.HasField("error_detail")),
        )
        if not (has_node or continues) and len(message) <= KNOWN_BYTES:
            # Start over when full: the requests in use come back at once.
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[message] = request
        return request, _name_in(_first(message, DELTA_NODE if self._delta else SOTW_NODE)) if has_node else None

    def _parsed(self, message: bytes) -> tuple[AnyType, SalvagedRequest | None]:
        """Return the message, and the names cut out of it because they are not UTF-8 (VHD-26)."""
        form = pb.DeltaDiscoveryRequest if self._delta else pb.DiscoveryRequest
        try:
            return parsed(form, message, delta=self._delta)
        except DecodeError as error:
            raise PeerError("INVALID_ARGUMENT", f"not a discovery request: {error}") from error

    def _trimming(self) -> Inside:
        return discovery_request(delta=self._delta, limits=self._limits, names=self._node_params)

    def decoding(self, message: bytes) -> Steps[Request]:
        """Do what `decode` does, in steps: first all fields but the lists, then some kilobytes of a list at a time.

        A field that would take long to parse is trimmed before (trimming.py).
        """
        kind = pb.DeltaDiscoveryRequest if self._delta else pb.DiscoveryRequest
        fields = kind.DESCRIPTOR.fields_by_name
        numbers = {fields[name].number for name in (_DELTA_LISTS if self._delta else _SOTW_LISTS)}
        parted = yield from split_fields(message, numbers)
        if parted is None:
            return self.decode(message)  # raises PeerError: it is no protobuf message
        rest, lists = parted
        trim = self._trimming() if len(message) > LARGE else None
        if trim is not None:
            rest = yield from trim(rest)
        request = self.decode(rest)
        bodies: list[AnyType] = []
        unread = 0
        is_plain = request.is_plain and not (self._delta and lists)
        # Each list has its own limit, across its pieces.
        for number in sorted(lists):
            left = self._limits.request_names
            for piece in lists[number]:
                if trim is not None and len(piece) > LARGE:
                    piece = yield from trim(piece)  # noqa: PLW2901
                proto, odd = self._parsed(piece)
                is_plain = is_plain and odd is None
                bodies.append(_delta_request(proto, left, odd) if self._delta else _sotw_request(proto, left, odd))
                count = len(getattr(proto, kind.DESCRIPTOR.fields_by_number[number].name))
                # Names past the limit are counted, and not read.
                unread += max(0, count - left)
                left = max(0, left - count)
                yield
        whole = yield from request.body.with_lists(bodies)
        continues = type(message) is Piece
        return replace(request, body=whole, unread=unread, is_plain=is_plain, continues=continues)


_SOTW_LISTS = ("resource_names", "resource_locators")
_DELTA_LISTS = (
    "resource_names_subscribe",
    "resource_names_unsubscribe",
    "resource_locators_subscribe",
    "resource_locators_unsubscribe",
    "initial_resource_versions",
)


def _is_plain(proto: AnyType) -> bool:
    """Whether a delta request neither rejects anything nor changes subscriptions: an ACK, or an empty one."""
    return not (proto.HasField("error_detail") or any(getattr(proto, field) for field in _DELTA_LISTS))


def _unread(proto: AnyType, fields: Iterable[str], most: int) -> int:
    """Return the number of names past the limit, which are not read: two bytes on the wire may take fifty in memory."""
    return sum([max(0, len(getattr(proto, field)) - most) for field in fields])


def _sotw_request(proto: AnyType, most: int, odd: SalvagedRequest | None) -> SotwRequest:
    """Return the body of a SotW request, with at most `most` names and as many locators."""
    wanted = _keys(proto.resource_names, proto.resource_locators, most) + (odd.subscribe if odd is not None else ())
    version = bounded(proto.version_info, TEXT_BYTES, distinct=True)  # kept for the life of the stream
    return SotwRequest(wanted, version, proto.response_nonce, _rejection(proto))


def _delta_request(proto: AnyType, most: int, odd: SalvagedRequest | None) -> DeltaRequest:
    """Return the body of a delta request, with at most `most` items of each list."""
    subscribe = _keys(proto.resource_names_subscribe, proto.resource_locators_subscribe, most)
    unsubscribe = _keys(proto.resource_names_unsubscribe, proto.resource_locators_unsubscribe, most)
    return DeltaRequest(
        subscribe + (odd.subscribe[:most] if odd is not None else ()),
        unsubscribe,  # a name that is not UTF-8 never was subscribed
        _versions(proto.initial_resource_versions, most),
        proto.response_nonce,
        _rejection(proto),
    )


def _versions(versions: Mapping[str, str], most: int) -> dict[str, str]:
    """Return the first `most` items of `initial_resource_versions`."""
    return dict(versions if len(versions) <= most else islice(versions.items(), most))


def _keys(names: Iterable[str], locators: Iterable[AnyType], most: int) -> tuple[Key, ...]:
    """Return names and locators as keys; a request may have both (DYN-14)."""
    return (
        *plain_keys(islice(names, most)),
        *(Key(locator.name, Params(locator.dynamic_parameters)) for locator in islice(locators, most)),
    )


def _rejection(proto: AnyType) -> Rejection | None:
    """Return the error of a NACK; None for an ACK."""
    if not proto.HasField("error_detail"):
        return None
    text = without_secrets(bounded(proto.error_detail.message, TEXT_BYTES))  # OPS-14: it is logged, shown, passed on
    return Rejection(proto.error_detail.code, bounded(text, TEXT_BYTES))


def _first(message: bytes, number: int) -> bytes:
    """Return the first field of this number, wherever it is."""
    for found, start, _, end in fields_of(message):
        if found == number:
            return message[start:end]
    return b""


def _name_in(node: bytes) -> bytes:
    """Return the encoded id of a node, without decoding the rest: SRV-7 needs no more, and Envoy's node has 60 kB."""
    if not node:
        return b""
    # Skip the tag, one byte, and the length.
    _, start = read_varint(node, 1)
    return cut(node[start : start + 4096], 1)[0]
