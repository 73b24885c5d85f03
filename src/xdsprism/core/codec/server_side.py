"""Between protobuf and the core, both ways; constraints are in a file of their own. Nothing else in here touches it.

Outgoing responses are joined from pieces that were encoded once: a variant has one frame per form, kept with it; a
whole response is kept until the next turn, so that every stream which needs the same gets the same bytes (DESIGN 9).
No protobuf object is built on the way out.
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
from ..model.events import Absence, DeltaRequest, Key, Rejection, Request, ResourceError, Send, SotwRequest
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
from .wire import cut, join_field, read_varint, split_fields

# Field numbers of discovery.proto.
SOTW_NODE, DELTA_NODE = 2, 1

DEFAULT = Limits()

KNOWN, KNOWN_BYTES = 1_024, 4_096  # requests that are remembered, and the longest of them

SOME = 16  # aliases of a virtual host, beyond which there is a pause between it and the next

SHARED_BYTES = 64 * 1024 * 1024  # of whole responses kept within one turn

# Seconds. A heartbeat goes out twice in the time to live, and google.protobuf.Duration ends at 10,000 years.
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
    """Make a variant of a message. `extras`: further fields of discovery.Resource, encoded. `ttl`: in seconds.

    `written`: the constraint as its author wrote it, for all who show it to people (DYN-34).
    `base`: of a virtual host, to whom it is given without being asked for (VHD-13).
    """
    opaque = isinstance(message, Any)
    type_url = message.type_url if isinstance(message, Any) else PREFIX + message.DESCRIPTOR.full_name
    if as_v3(type_url) != type_url:  # nobody would find it: all that is kept goes by its name of v3
        raise UsageError(f"{type_url} is of xDS v2: give it as {as_v3(type_url)}, and clients of v2 get it in v2")
    inner = None if opaque else name_of(message)
    if name is not None and inner and spelled(name) != spelled(inner):  # S14: Envoy adds by one, removes by the other
        raise UsageError(f"the resource is called {name!r} outside and {inner!r} inside: both must be the same")
    name = name or inner
    if not name:
        raise UsageError(f"{type_url.rpartition('/')[2]} has no name: give it one")
    if type_url == VIRTUAL_HOST and not all(name.rpartition("/")):  # VHD-2
        raise UsageError(f"a virtual host is called <route configuration>/<virtual host>, not {name!r}")
    aliases = tuple(aliases)
    if type_url != VIRTUAL_HOST:
        name, aliases = own_name(name, type_url), tuple(own_name(alias, type_url) for alias in aliases)
    if aliases:
        extras = pb.Resource(aliases=aliases).SerializeToString() + extras
    if inner and inner != name and type_url == LISTENER:
        message = _renamed(message, name)
    body = message.value if isinstance(message, Any) else message.SerializeToString(deterministic=True)
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
        base=(base if base is not None else FALSE) if host else None,
        domains=domains_of(message) if host and known else (),
        routing=routing_of(message) if type_url == ROUTE and known else None,
        written=written,
    )


def _unpacked(message: Message) -> Message | None:
    """What is in an Any, if this program knows it."""
    try:
        return unpacked(message) if isinstance(message, Any) else message
    except DecodeError:
        return None


def check_ttl(ttl: float | None) -> float | None:
    """Raises UsageError for what can't be a time to live. To the microsecond, so that every reader finds the same."""
    if ttl is not None and not MIN_TTL <= ttl <= MAX_TTL:
        raise UsageError(f"a ttl of {ttl} seconds: it must be {MIN_TTL} or more, as a heartbeat goes out twice in it")
    return round(float(ttl), 6) if ttl is not None else None


def name_of(message: Message) -> str | None:
    """The name by which a message is asked for: `name`, or a ClusterLoadAssignment's `cluster_name`."""
    field = _name_field(message.DESCRIPTOR)
    return str(getattr(message, field)) if field is not None else None


def _renamed(message: Message, name: str) -> Message:
    """XTP-1: the same spelling inside and outside, as Envoy removes a listener by the latter, and compares letters.

    Other resources keep the one that they have: there are references to them, which Envoy compares with that (X5).
    """
    renamed = type(message)()
    renamed.CopyFrom(message)
    setattr(renamed, _name_field(message.DESCRIPTOR) or "name", name)
    return renamed


@cache
def _name_field(descriptor: AnyType) -> str | None:
    fields = descriptor.fields_by_name
    named = (field for field in ("name", "cluster_name") if field in fields)
    return next((field for field in named if fields[field].cpp_type == fields[field].CPPTYPE_STRING), None)


def domains_of(host: AnyType) -> tuple[str, ...]:
    """VHD-6: hosts are compared in lower case."""
    return tuple(domain.lower() for domain in host.domains)


def routing_of(route: AnyType) -> Routing:
    return _ROUTINGS[route.HasField("vhds"), route.ignore_port_in_host_matching]


_ROUTINGS = {(one, other): Routing(one, other) for one in (False, True) for other in (False, True)}


# -- requests in


Known = dict[bool, dict[bytes, Request]]  # by whether it is delta: what messages say that may be any client's


class Decoder:
    """Reads the requests of one stream. It knows the stream's node, so as to read it once only (SRV-25)."""

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
        """`known`: to be shared by streams; most requests are ACKs, and these are alike.

        `node_params`: what the settings name of a node (node_params.py).
        """
        self._delta = delta
        self._limits = limits
        self._node_params = node_params
        self._known = known[delta] if known is not None else {}
        self.alike: Mapping[bytes, Request] = {}  # what the stream may say from its second message on
        self._name: bytes | None = None  # of the node: its id, as it is on the wire

    def decode(self, message: bytes) -> Request:
        """Raises PeerError for what is no request at all."""
        number = DELTA_NODE if self._delta else SOTW_NODE
        node, rest = cut(message, number)
        name = _name_in(node)
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
        is_anybodys = not (first or node or request.continues)  # it says nothing about whose it is
        if is_anybodys and len(message) <= KNOWN_BYTES:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[message] = request
        return request

    def _parsed(self, message: bytes) -> tuple[AnyType, Salvaged | None]:
        """The request, and names that had to be cut out of it, as they are not UTF-8 (VHD-26)."""
        form = pb.DeltaDiscoveryRequest if self._delta else pb.DiscoveryRequest
        try:
            return parsed(form, message, delta=self._delta)
        except DecodeError as error:
            raise PeerError("INVALID_ARGUMENT", f"not a discovery request: {error}") from error

    def decoding(self, message: bytes) -> Steps[Request]:
        """What `decode` does, in steps: all but the lists at once, and of the lists some kilobytes at a time."""
        kind = pb.DeltaDiscoveryRequest if self._delta else pb.DiscoveryRequest
        fields = kind.DESCRIPTOR.fields_by_name
        numbers = {fields[name].number for name in (_DELTA_LISTS if self._delta else _SOTW_LISTS)}
        parted = yield from split_fields(message, numbers)
        if parted is None:
            return self.decode(message)  # it is no message, and says so
        rest, lists = parted
        request = self.decode(rest)
        bodies: list[AnyType] = []
        unread = 0
        is_plain = request.is_plain and not (self._delta and lists)
        for number in sorted(lists):
            left = self._limits.request_names
            for piece in lists[number]:
                proto, odd = self._parsed(piece)
                is_plain = is_plain and odd is None
                bodies.append(_delta_request(proto, left, odd) if self._delta else _sotw_request(proto, left, odd))
                count = len(getattr(proto, kind.DESCRIPTOR.fields_by_number[number].name))
                unread += max(0, count - left)
                left = max(0, left - count)
                yield
        whole = request.body.with_lists(bodies)
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
    return not (proto.HasField("error_detail") or any(getattr(proto, field) for field in _DELTA_LISTS))


def _unread(proto: AnyType, fields: Iterable[str], most: int) -> int:
    """How many names are left unread, past the limit: a name may take two bytes on the wire, and fifty in here."""
    return sum([max(0, len(getattr(proto, field)) - most) for field in fields])


def _sotw_request(proto: AnyType, most: int, odd: Salvaged | None) -> SotwRequest:
    wanted = _keys(proto.resource_names, proto.resource_locators, most) + (odd.subscribe if odd is not None else ())
    version = bounded(proto.version_info, TEXT_BYTES, distinct=True)  # it is kept as long as the stream lives
    return SotwRequest(wanted, version, proto.response_nonce, _rejection(proto))


def _delta_request(proto: AnyType, most: int, odd: Salvaged | None) -> DeltaRequest:
    subscribe = _keys(proto.resource_names_subscribe, proto.resource_locators_subscribe, most)
    unsubscribe = _keys(proto.resource_names_unsubscribe, proto.resource_locators_unsubscribe, most)
    return DeltaRequest(
        subscribe + (odd.subscribe[:most] if odd is not None else ()),
        unsubscribe,  # what is not UTF-8 never was subscribed
        _versions(proto.initial_resource_versions, most),
        proto.response_nonce,
        _rejection(proto),
    )


def _versions(versions: Mapping[str, str], most: int) -> dict[str, str]:
    return dict(versions if len(versions) <= most else islice(versions.items(), most))


def _keys(names: Iterable[str], locators: Iterable[AnyType], most: int) -> tuple[Key, ...]:
    """DYN-14: names and locators may be mixed; both count."""
    return (
        *((name, None) for name in islice(names, most)),
        *((locator.name, Params(locator.dynamic_parameters)) for locator in islice(locators, most)),
    )


def _rejection(proto: AnyType) -> Rejection | None:
    if not proto.HasField("error_detail"):
        return None
    return Rejection(proto.error_detail.code, bounded(proto.error_detail.message, TEXT_BYTES))


def _name_in(node: bytes) -> bytes:
    """The id of a node, without reading the rest of it: SRV-7 needs no more, and Envoy's node has 60 kB."""
    if not node:
        return b""
    _, start = read_varint(node, 1)
    return cut(node[start : start + 4096], 1)[0]


# -- responses out


# The contents of a type, by its v3 URL, in the words of v2 (VER-4).
ToV2 = Callable[[TypeUrl, bytes], bytes]


class Encoder:
    """Turns what sessions say into bytes, each thing once; in v3, or with `to_v2` in v2 (VER-3)."""

    def __init__(self, identifier: str, to_v2: ToV2 | None = None) -> None:
        self.is_v2 = to_v2 is not None
        self._to_v2 = to_v2
        self._control_plane = {
            True: join_field(7, join_field(1, identifier.encode())),
            False: join_field(6, join_field(1, identifier.encode())),
        }
        self._shared: dict[Send, bytes] = {}
        self._same: dict[int, tuple[Send, bytes]] = {}  # the same, by identity: most are one object
        self._held = 0

    def encode(self, send: Send) -> bytes:
        same = self._same.get(id(send))
        if same is not None:
            return same[1]
        found = self._encode(send)
        self._same[id(send)] = send, found
        return found

    def _encode(self, send: Send) -> bytes:
        found = self._shared.get(send)
        if found is None:
            found = b"".join(self._fields(send))
            self._held += len(found)
            if self._held > SHARED_BYTES:
                self.forget()
            self._shared[send] = found
        return found

    def encoding(self, send: Send) -> Steps[bytes]:
        """What `encode` does, in steps; most of it is to make the frames, which the variants keep."""
        same = self._same.get(id(send))
        if same is not None:
            return same[1]
        joined: list[bytes] = []
        parts: list[bytes] = []
        for part in self._fields(send):
            parts.append(part)
            if not part or len(parts) == EVERY:
                joined.append(b"".join(parts))  # few large pieces are joined in the end, and not very many small ones
                parts.clear()
                yield
        found = b"".join((*joined, *parts))
        self._same[id(send)] = send, found
        return found

    def forget(self) -> None:
        """A turn is over: what the next one says will differ."""
        self._shared.clear()
        self._same.clear()
        self._held = 0

    def _fields(self, send: Send) -> Iterator[bytes]:
        """What a response is made of, one field after the other; an empty one is a pause, where the next takes long."""
        return chain.from_iterable(self._delta(send) if send.delta else self._sotw(send))

    def _delta(self, send: Send) -> Iterable[Iterable[bytes]]:
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
        return (
            (join_field(1, send.version.encode()),),
            *[self.frames(variants, form) for variants, form in sotw_forms(send) if variants],
            (join_field(4, self._url(send.type_url)), join_field(5, send.nonce.encode())),
            (self._control_plane[False],),
            (join_field(7, _resource_error(error)) for error in send.errors) if send.errors else (),
        )

    def _url(self, type_url: TypeUrl) -> bytes:
        return (type_url if self._to_v2 is None else as_v2(type_url)).encode()

    def frames(self, variants: Iterable[Variant], form: str) -> Iterator[bytes]:
        """Each as the field of a response that it is."""
        key = form if self._to_v2 is None else f"v2-{form}"
        return (variant.frames.get(key) or self._frame(variant, form, key) for variant in variants)

    def _named(self, variants: tuple[Variant, ...], form: str, aliases: tuple[tuple[str, ...], ...]) -> Iterator[bytes]:
        """VHD-4: some have further aliases for this client; mostly the same for all, or there are none."""
        if not any(aliases):
            return self.frames(variants, form)
        fields = (
            self._aliased(variant, form, further) if further else self.frames((variant,), form)
            for variant, further in zip(variants, aliases, strict=True)
        )
        return chain.from_iterable(fields)

    def _aliased(self, variant: Variant, form: str, further: tuple[str, ...]) -> Iterator[bytes]:
        said = variant if self._to_v2 is None else _in_v2(variant, self._to_v2)
        parts = [_FORMS[form](said)]
        for piece in pieces(further):
            parts += [join_field(4, alias.encode()) for alias in piece]
            if len(piece) > SOME:
                yield b""
        yield join_field(2, b"".join(parts))

    def _frame(self, variant: Variant, form: str, key: str) -> bytes:
        said = variant if self._to_v2 is None else _in_v2(variant, self._to_v2)
        frame = join_field(2, _FORMS[form](said))
        if variant.base != FALSE:  # a frame weighs half of what a virtual host does; a million may be sent once each
            variant.frames = {**variant.frames, key: frame}
        return frame


def sotw_forms(send: Send) -> Iterator[tuple[tuple[Variant, ...], str]]:
    """What is in a response of state of the world, and in which form."""
    yield send.plain, "sotw-ttl" if send.ttl else "sotw"
    yield send.located, "sotw-located-ttl" if send.ttl else "sotw-located"
    yield send.beats, "sotw-ttl"  # TTL-2: Envoy goes by the time of what has contents only
    yield send.located_beats, "sotw-located-ttl"


def _in_v2(variant: Variant, to_v2: ToV2) -> Variant:
    """For as long as it takes to encode it. Its version stays: it is the same thing in other words."""
    extras = to_v2(RESOURCE, variant.extras) if variant.extras else b""
    body = to_v2(variant.type_url, variant.body)
    return replace(variant, type_url=as_v2(variant.type_url), body=body, extras=extras, ttl=None)  # v2 has no TTL


def _any(variant: Variant) -> bytes:
    return join_field(1, variant.type_url.encode()) + join_field(2, variant.body)


def _plain(variant: Variant) -> bytes:
    name = join_field(3, variant.name.encode())
    return join_field(1, variant.version.encode()) + join_field(2, _any(variant)) + name + variant.extras


def _located(variant: Variant) -> bytes:
    """DYN-2: resource_name in place of name, also where there are no constraints (DESIGN 6.1)."""
    return join_field(1, variant.version.encode()) + join_field(2, _any(variant)) + variant.extras + _locator(variant)


def _unresolved(name: str, version: str) -> bytes:
    """VHD-7: Envoy goes on with its request when it sees what it asked for among the aliases."""
    return join_field(1, version.encode()) + join_field(3, name.encode()) + join_field(4, name.encode())


def _locator(variant: Variant) -> bytes:
    return join_field(8, _resource_name(Absence(variant.name, variant.constraint)))


def _timed(variant: Variant, resource: bytes) -> bytes:
    """With the time to live, which is another field of discovery.Resource."""
    if variant.ttl is None:
        return resource
    seconds, micros = divmod(round(variant.ttl * 1e6), 1_000_000)
    return resource + join_field(6, Duration(seconds=seconds, nanos=micros * 1000).SerializeToString())


def _beat(variant: Variant, name: bytes) -> bytes:
    """TTL-2: the version that the client has, and for how long; no contents."""
    return _timed(variant, join_field(1, variant.version.encode()) + name)


def _wrapped(variant: Variant, resource: bytes) -> bytes:
    return join_field(1, wrapper_of(variant.type_url).encode()) + join_field(2, resource)


def _bare(variant: Variant) -> bytes:
    """XTP-10: a list collection, which is called `<T>Collection` (TP1), has no name but that of a wrapper."""
    return _any(variant) if not variant.type_url.endswith("Collection") else _wrapped(variant, _plain(variant))


def _bare_or_timed(variant: Variant) -> bytes:
    """TTL-1: the wrapper only where there is a time to live."""
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
    name = join_field(1, absence.name.encode())
    if absence.constraint == TRUE:
        return name
    return name + join_field(2, constraint_to_proto(absence.constraint).SerializeToString(deterministic=True))


def _resource_error(error: ResourceError) -> bytes:
    status = Status(code=error.code, message=error.message)
    return join_field(1, _resource_name(error.about)) + join_field(2, status.SerializeToString())
