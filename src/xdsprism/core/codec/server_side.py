"""Make variants of messages, decode the requests of clients, and encode the responses of a server.

Variants in: `variant_of` checks name, type and TTL of a message, and finds what the store has to know about it: its
references, the domains of a virtual host, how a route configuration routes.

Requests in: most requests are ACKs, and equal bytes mean equal requests, so the decoder remembers short ones. The node
is decoded once for each stream (SRV-25), since Envoy's has 60 kB. Long requests are decoded in steps. Of each list only
`Limits.request_names` items are read, and `Request.unread` counts the rest.

Responses out: a response is joined from pieces that were encoded once, without a protobuf object (DESIGN 9). Each
variant keeps one frame for each form in which it is sent. A whole response is kept until the end of the turn, so that
all streams that need the same response get the same bytes:

    form              field `resources` of the response holds
    ----------------  --------------------------------------------------------------------------------
    delta             Resource {name, version, contents, ttl}
    delta-located     Resource {resource_name with constraints, version, contents, ttl} (DYN-2)
    delta-beat        Resource {name, version, ttl}: a heartbeat (TTL-2); delta-located-beat alike
    sotw              the bare contents
    sotw-ttl          the same, wrapped in a Resource if the variant has a TTL (TTL-1)
    sotw-located      Resource {resource_name, version, contents}; sotw-located-ttl: and ttl

An encoder for clients of v2 converts contents and type URLs, and keeps frames of its own (VER-3, VER-4).

Constraints have a module of their own (constraints.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from typing import Any as AnyType

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status

from ...errors import PeerError, UsageError
from ..model.constraints import FALSE, TRUE, Constraint
from ..model.events import (
    Absence,
    DeltaRequest,
    EncodedResponse,
    Key,
    Rejection,
    Request,
    ResourceError,
    Send,
    SotwRequest,
)
from ..model.limits import Limits
from ..model.node_params import node_of
from ..model.steps import EVERY, Steps, pieces
from ..model.truncation import TEXT_BYTES, bounded
from ..model.type_versions import RESOURCE, as_v2, as_v3, wrapper_of
from ..model.types import (
    LISTENER,
    PREFIX,
    ROUTE,
    VIRTUAL_HOST,
    Origin,
    Params,
    Routing,
    TypeUrl,
    Variant,
    make_variant,
)
from ..model.xdstp import own_name, spelled
from .constraints import constraint_to_proto
from .pieces import Piece
from .references import references_of, unpacked
from .salvage import Salvaged, parsed
from .trimming import LARGE, Inside, discovery_request
from .wire import cut, join_field, read_varint, split_fields

# Field numbers of discovery.proto.
SOTW_NODE, DELTA_NODE = 2, 1

DEFAULT = Limits()

KNOWN, KNOWN_BYTES = 1_024, 4_096  # number of requests to remember, and the length of the longest

SOME = 16  # aliases of a virtual host in one piece, above which encoding pauses

SHARED_BYTES = 64 * 1024 * 1024  # bytes of whole responses to keep within one turn

# Seconds. Two heartbeats go out in each TTL, and google.protobuf.Duration ends at 10,000 years.
MIN_TTL, MAX_TTL = 0.1, 315_576_000_000.0


# -- resources in


def variant_of(  # noqa: PLR0913 # all that makes a variant
    message: Message,
    *,
    name: str | None = None,
    constraint: Constraint = TRUE,
    aliases: Iterable[str] = (),
    extras: bytes = b"",
    origin: Origin | None = None,
    ttl: float | None = None,
    base: Constraint | None = None,
    written: Constraint | None = None,
) -> Variant:
    """Make a variant of a message. Raise UsageError if name, type or TTL are invalid.

    `extras`: further fields of discovery.Resource, encoded. `ttl`: in seconds. `written`: the constraint as its author
    wrote it, to show to people (DYN-34). `base`: of a virtual host, the params of the clients that get it unasked
    (VHD-13).
    """
    opaque = isinstance(message, Any)
    type_url = message.type_url if isinstance(message, Any) else PREFIX + message.DESCRIPTOR.full_name
    if as_v3(type_url) != type_url:  # the store only knows v3 names
        raise UsageError(f"{type_url} is of xDS v2: give it as {as_v3(type_url)}, and clients of v2 get it in v2")
    inner = None if opaque else name_of(message)
    # S14: Envoy adds by one name and removes by the other.
    if name is not None and inner and spelled(name) != spelled(inner):
        raise UsageError(f"the resource is called {name!r} outside and {inner!r} inside: both must be the same")
    name = name or inner
    if not name:
        raise UsageError(f"{type_url.rpartition('/')[2]} has no name: give it one")
    if type_url == VIRTUAL_HOST and not all(name.rpartition("/")):  # VHD-2
        raise UsageError(f"a virtual host is called <route configuration>/<virtual host>, not {name!r}")
    aliases = tuple(aliases)
    if type_url != VIRTUAL_HOST:
        name, aliases = own_name(name, type_url), tuple(own_name(alias, type_url) for alias in aliases)
    # The author's aliases are equal for all clients, so they are part of the frame.
    if aliases:
        extras = pb.Resource(aliases=aliases).SerializeToString() + extras
    # The canonical spelling of an xdstp name differs from the one inside.
    if inner and inner != name and type_url == LISTENER:
        message = _renamed(message, name)
    body = message.value if isinstance(message, Any) else message.SerializeToString(deterministic=True)
    # An Any stays packed: its domains and routing are not read.
    known = inner is not None
    host = type_url == VIRTUAL_HOST
    return make_variant(
        type_url,
        name,
        body,
        constraint,
        aliases=aliases,
        extras=extras,
        origin=origin,
        references=references_of(type_url, _unpacked(message)),
        ttl=check_ttl(ttl),
        # A virtual host is on demand unless its author says otherwise.
        base=(base if base is not None else FALSE) if host else None,
        domains=domains_of(message) if host and known else (),
        routing=routing_of(message) if type_url == ROUTE and known else None,
        written=written,
    )


def _unpacked(message: Message) -> Message | None:
    """Return the message in an Any, if the program knows its type and can read it."""
    try:
        return unpacked(message) if isinstance(message, Any) else message
    except DecodeError:
        return None


def check_ttl(ttl: float | None) -> float | None:
    """Return the TTL to the microsecond, so that every reader finds the same. Raise UsageError if out of range."""
    if ttl is not None and not MIN_TTL <= ttl <= MAX_TTL:
        raise UsageError(f"a ttl of {ttl} seconds: it must be {MIN_TTL} or more, as a heartbeat goes out twice in it")
    return round(float(ttl), 6) if ttl is not None else None


def name_of(message: Message) -> str | None:
    """Return the name by which clients subscribe to a message: `name`, or `cluster_name` of a ClusterLoadAssignment."""
    field = _name_field(message.DESCRIPTOR)
    return str(getattr(message, field)) if field is not None else None


def _renamed(message: Message, name: str) -> Message:
    """Return a listener with the canonical spelling of its name inside, too (XTP-1).

    Envoy removes a listener by the outer name, and compares it letter by letter with the inner one. Other resources
    keep their spelling: other messages refer to them, and Envoy compares references with it (X5).
    """
    renamed = type(message)()
    renamed.CopyFrom(message)
    setattr(renamed, _name_field(message.DESCRIPTOR) or "name", name)
    return renamed


@cache
def _name_field(descriptor: AnyType) -> str | None:
    """Return which field of a message type has the name."""
    fields = descriptor.fields_by_name
    named = (field for field in ("name", "cluster_name") if field in fields)
    return next((field for field in named if fields[field].cpp_type == fields[field].CPPTYPE_STRING), None)


def domains_of(host: AnyType) -> tuple[str, ...]:
    """Return the domains of a virtual host in lower case, in which hosts are compared (VHD-6)."""
    return tuple(domain.lower() for domain in host.domains)


def routing_of(route: AnyType) -> Routing:
    """Return how a route configuration finds virtual hosts: by VHDS or not, with ports or without."""
    return _ROUTINGS[route.HasField("vhds"), route.ignore_port_in_host_matching]


_ROUTINGS = {(one, other): Routing(one, other) for one in (False, True) for other in (False, True)}


# -- requests in


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
        self.alike: Mapping[bytes, Request] = {}  # decoded requests that the stream may use from its second message on
        self._name: bytes | None = None  # the encoded id of the node

    def decode(self, message: bytes) -> Request:
        """Return the request. Raise PeerError if the bytes are no request at all."""
        number = DELTA_NODE if self._delta else SOTW_NODE
        node, rest = cut(message, number)
        name = _name_in(node)
        # The node is in the first message of a stream. A later one is cut off unread; only its id is compared (SRV-7).
        first = self._name is None
        proto, odd = self._parsed(message if first else rest)
        most = self._limits.request_names
        if first:
            self._name = name
            self.alike = self._known
        request = Request(
            proto.type_url,
            _delta_request(proto, most, odd) if self._delta else _sotw_request(proto, most, odd),
            node_of(proto.node, self._node_params) if first and proto.HasField("node") else None,
            bool(node) and name != self._name,
            unread=_unread(proto, _DELTA_LISTS if self._delta else _SOTW_LISTS, most) if len(message) > most else 0,
            is_v2=as_v3(proto.type_url) != proto.type_url,
            continues=type(message) is Piece,
            is_plain=odd is None and (_is_plain(proto) if self._delta else not proto.HasField("error_detail")),
        )
        # Any client may send the same bytes, with the same meaning.
        is_anybodys = not (first or node or request.continues)
        if is_anybodys and len(message) <= KNOWN_BYTES:
            # Start over when full: the requests in use come back at once.
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[message] = request
        return request

    def _parsed(self, message: bytes) -> tuple[AnyType, Salvaged | None]:
        """Return the message, and names that had to be cut out of it because they are not UTF-8 (VHD-26)."""
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


def _sotw_request(proto: AnyType, most: int, odd: Salvaged | None) -> SotwRequest:
    """Return the body of a SotW request, with at most `most` names and as many locators."""
    wanted = _keys(proto.resource_names, proto.resource_locators, most) + (odd.subscribe if odd is not None else ())
    version = bounded(proto.version_info, TEXT_BYTES, distinct=True)  # kept for the life of the stream
    return SotwRequest(wanted, version, proto.response_nonce, _rejection(proto))


def _delta_request(proto: AnyType, most: int, odd: Salvaged | None) -> DeltaRequest:
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
        *((name, None) for name in islice(names, most)),
        *((locator.name, Params(locator.dynamic_parameters)) for locator in islice(locators, most)),
    )


def _rejection(proto: AnyType) -> Rejection | None:
    """Return the error of a NACK; None for an ACK."""
    if not proto.HasField("error_detail"):
        return None
    return Rejection(proto.error_detail.code, bounded(proto.error_detail.message, TEXT_BYTES))


def _name_in(node: bytes) -> bytes:
    """Return the encoded id of a node, without decoding the rest: SRV-7 needs no more, and Envoy's node has 60 kB."""
    if not node:
        return b""
    # Skip the tag, one byte, and the length.
    _, start = read_varint(node, 1)
    return cut(node[start : start + 4096], 1)[0]


# -- responses out


# Converts contents of a v3 type to v2 (VER-4).
ToV2 = Callable[[TypeUrl, bytes], bytes]


class Encoder:
    """Encodes the responses of all sessions, each equal one once; in v3, or with `to_v2` in v2 (VER-3)."""

    def __init__(self, identifier: str, to_v2: ToV2 | None = None) -> None:
        self.is_v2 = to_v2 is not None
        self._to_v2 = to_v2
        self._control_plane = {
            True: join_field(7, join_field(1, identifier.encode())),
            False: join_field(6, join_field(1, identifier.encode())),
        }
        self._equal: dict[Send, Send] = {}  # the first of all equal responses in this turn, which has the bytes
        self._kept: list[Send] = []  # the responses that have bytes of this encoder
        self.held = 0  # how many bytes that are

    def encode(self, send: Send) -> bytes:
        """Return the bytes of a response."""
        return self.encoded(send).body

    def encoded(self, send: Send) -> EncodedResponse:
        """Return the bytes of a response, in the object that all streams with an equal response share."""
        found = send.encoded.get(self)
        if found is None:
            # Most equal responses are one object. Another stream may also have made an equal one in this turn.
            first = self._equal.setdefault(send, send)
            found = first.encoded.get(self) or self._keep(first, b"".join(self._fields(first)))
        return found

    def _keep(self, send: Send, body: bytes) -> EncodedResponse:
        """Put the bytes of a response onto it, until `forget`."""
        # Start over, to bound the memory that one turn takes.
        if self.held + len(body) > SHARED_BYTES:
            self.forget()
        found = send.encoded[self] = EncodedResponse(body)
        self._kept.append(send)
        self.held += len(body)
        return found

    def encoding(self, send: Send) -> Steps[EncodedResponse]:
        """Do what `encoded` does, in steps. Most of the time goes into frames, which the variants keep."""
        found = send.encoded.get(self)
        if found is not None:
            return found
        joined: list[bytes] = []
        parts: list[bytes] = []
        for part in self._fields(send):
            parts.append(part)
            if not part or len(parts) == EVERY:
                joined.append(b"".join(parts))  # so that the last join has few large pieces
                parts.clear()
                yield
        return self._keep(send, b"".join((*joined, *parts)))

    def forget(self) -> None:
        """Drop the bytes of all responses at the end of a turn: later ones will differ."""
        for send in self._kept:
            send.encoded.pop(self, None)
        self._kept.clear()
        self._equal.clear()
        self.held = 0

    def _fields(self, send: Send) -> Iterator[bytes]:
        """Yield the encoded fields of a response; an empty one marks a pause before a field that takes long."""
        return chain.from_iterable(self._delta(send) if send.delta else self._sotw(send))

    def _delta(self, send: Send) -> Iterable[Iterable[bytes]]:
        """Return the groups of fields of a DeltaDiscoveryResponse."""
        # The numbers are those of DeltaDiscoveryResponse. `send.aliases` lists first those of plain, then those of
        # located ones.
        plain, located, beats, located_beats = send.plain, send.located, send.beats, send.located_beats
        return (
            (join_field(1, send.version.encode()),),
            self._named(plain, "delta", send.aliases[: len(plain)]) if plain else (),
            self._named(located, "delta-located", send.aliases[len(plain) :]) if located else (),
            (join_field(2, _unresolved(name, send.absent)) for name in send.unresolved) if send.unresolved else (),
            self.frames(beats, "delta-beat") if beats else (),
            self.frames(located_beats, "delta-located-beat") if located_beats else (),
            (join_field(4, self._url(send.type_url)), join_field(5, send.nonce.encode())),
            (join_field(6, name.encode()) for name in send.removed) if send.removed else (),
            (self._control_plane[True],),
            (join_field(8, _resource_name(absence)) for absence in send.withdrawn) if send.withdrawn else (),
            (join_field(9, _resource_error(error)) for error in send.errors) if send.errors else (),
        )

    def _sotw(self, send: Send) -> Iterable[Iterable[bytes]]:
        """Return the groups of fields of a DiscoveryResponse."""
        return (
            (join_field(1, send.version.encode()),),
            # The numbers are those of DiscoveryResponse.
            *[self.frames(variants, form) for variants, form in sotw_forms(send) if variants],
            (join_field(4, self._url(send.type_url)), join_field(5, send.nonce.encode())),
            (self._control_plane[False],),
            (join_field(7, _resource_error(error)) for error in send.errors) if send.errors else (),
        )

    def _url(self, type_url: TypeUrl) -> bytes:
        """Return the encoded type URL, in the version of this encoder."""
        return (type_url if self._to_v2 is None else as_v2(type_url)).encode()

    def frames(self, variants: Iterable[Variant], form: str) -> Iterator[bytes]:
        """Yield each variant as an encoded `resources` field; encode only those without a kept frame of this form."""
        key = form if self._to_v2 is None else f"v2-{form}"
        return (variant.frames.get(key) or self._frame(variant, form, key) for variant in variants)

    def _named(self, variants: tuple[Variant, ...], form: str, aliases: tuple[tuple[str, ...], ...]) -> Iterator[bytes]:
        """Yield the frames of variants, some with further aliases for this client (VHD-4)."""
        # Fast path: no virtual host with aliases of this client's own.
        if not any(aliases):
            return self.frames(variants, form)
        fields = (
            self._aliased(variant, form, further) if further else self.frames((variant,), form)
            for variant, further in zip(variants, aliases, strict=True)
        )
        return chain.from_iterable(fields)

    def _aliased(self, variant: Variant, form: str, further: tuple[str, ...]) -> Iterator[bytes]:
        """Yield the frame of a virtual host with further aliases, after pauses if these are many. It is not kept."""
        said = variant if self._to_v2 is None else _in_v2(variant, self._to_v2)
        parts = [_FORMS[form](said)]
        for piece in pieces(further):
            parts += [join_field(4, alias.encode()) for alias in piece]
            if len(piece) > SOME:
                yield b""
        yield join_field(2, b"".join(parts))

    def _frame(self, variant: Variant, form: str, key: str) -> bytes:
        """Encode a frame, and keep it with the variant."""
        said = variant if self._to_v2 is None else _in_v2(variant, self._to_v2)
        frame = join_field(2, _FORMS[form](said))
        if variant.base != FALSE:  # not of virtual hosts on demand: a million of them may be sent once each
            variant.frames = {**variant.frames, key: frame}
        return frame


def sotw_forms(send: Send) -> Iterator[tuple[tuple[Variant, ...], str]]:
    """Yield the variants of a SotW response with their forms."""
    yield send.plain, "sotw-ttl" if send.ttl else "sotw"
    yield send.located, "sotw-located-ttl" if send.ttl else "sotw-located"
    yield send.beats, "sotw-ttl"  # TTL-2: heartbeats repeat the contents, because Envoy ignores a TTL without them
    yield send.located_beats, "sotw-located-ttl"


def _in_v2(variant: Variant, to_v2: ToV2) -> Variant:
    """Return a copy of the variant in v2, to encode it. The version stays, since the contents mean the same."""
    extras = to_v2(RESOURCE, variant.extras) if variant.extras else b""
    body = to_v2(variant.type_url, variant.body)
    return replace(variant, type_url=as_v2(variant.type_url), body=body, extras=extras, ttl=None)  # v2 has no TTL


def _any(variant: Variant) -> bytes:
    """Encode the contents as google.protobuf.Any."""
    return join_field(1, variant.type_url.encode()) + join_field(2, variant.body)


# The numbers below are those of discovery.Resource: 1 version, 2 contents, 3 name, 4 aliases, 6 ttl, 8 resource_name.
def _plain(variant: Variant) -> bytes:
    """Encode a Resource with its name."""
    name = join_field(3, variant.name.encode())
    return join_field(1, variant.version.encode()) + join_field(2, _any(variant)) + name + variant.extras


def _located(variant: Variant) -> bytes:
    """Encode a Resource with resource_name in place of name (DYN-2), with or without constraints (DESIGN 6.1)."""
    return join_field(1, variant.version.encode()) + join_field(2, _any(variant)) + variant.extras + _locator(variant)


def _unresolved(name: str, version: str) -> bytes:
    """Encode the answer for a host that no virtual host serves; Envoy looks for its request in the aliases (VHD-7)."""
    return join_field(1, version.encode()) + join_field(3, name.encode()) + join_field(4, name.encode())


def _locator(variant: Variant) -> bytes:
    """Encode the resource_name field of a Resource."""
    return join_field(8, _resource_name(Absence(variant.name, variant.constraint)))


def _timed(variant: Variant, resource: bytes) -> bytes:
    """Append the TTL to an encoded Resource, if the variant has one."""
    if variant.ttl is None:
        return resource
    seconds, micros = divmod(round(variant.ttl * 1e6), 1_000_000)
    return resource + join_field(6, Duration(seconds=seconds, nanos=micros * 1000).SerializeToString())


def _beat(variant: Variant, name: bytes) -> bytes:
    """Encode a heartbeat: name, version and TTL, without contents (TTL-2)."""
    return _timed(variant, join_field(1, variant.version.encode()) + name)


def _wrapped(variant: Variant, resource: bytes) -> bytes:
    """Encode a Resource as google.protobuf.Any, for SotW."""
    return join_field(1, wrapper_of(variant.type_url).encode()) + join_field(2, resource)


def _bare(variant: Variant) -> bytes:
    """Encode the contents for SotW; a list collection (`<T>Collection`, TP1) has no name but in a wrapper (XTP-10)."""
    return _any(variant) if not variant.type_url.endswith("Collection") else _wrapped(variant, _plain(variant))


def _bare_or_timed(variant: Variant) -> bytes:
    """Encode the contents for SotW, wrapped only if there is a TTL (TTL-1)."""
    return _bare(variant) if variant.ttl is None else _wrapped(variant, _timed(variant, _plain(variant)))


_FORMS: dict[str, Callable[[Variant], bytes]] = {
    "delta": lambda variant: _timed(variant, _plain(variant)),
    "delta-located": lambda variant: _timed(variant, _located(variant)),
    "delta-beat": lambda variant: _beat(variant, join_field(3, variant.name.encode())),
    "delta-located-beat": lambda variant: _beat(variant, _locator(variant)),
    "sotw": _bare,
    "sotw-ttl": _bare_or_timed,
    "sotw-located": lambda variant: _wrapped(variant, _located(variant)),
    "sotw-located-ttl": lambda variant: _wrapped(variant, _timed(variant, _located(variant))),
}


def _resource_name(absence: Absence) -> bytes:
    """Encode a ResourceName; without constraints if they are true."""
    name = join_field(1, absence.name.encode())
    # No constraints on the wire means true (DYN-9).
    if absence.constraint == TRUE:
        return name
    return name + join_field(2, constraint_to_proto(absence.constraint).SerializeToString(deterministic=True))


def _resource_error(error: ResourceError) -> bytes:
    """Encode a resource error (TP3)."""
    status = Status(code=error.code, message=error.message)
    return join_field(1, _resource_name(error.about)) + join_field(2, status.SerializeToString())
