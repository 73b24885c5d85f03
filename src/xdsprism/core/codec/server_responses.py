"""Encode the responses of a server.

A response is joined from pieces that were encoded once, without a protobuf object (DESIGN 9). Each variant keeps one
frame for each form in which it is sent. A whole response is kept until the end of the turn, so that all streams that
need the same response get the same bytes:

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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

from google.protobuf.duration_pb2 import Duration
from google.rpc.status_pb2 import Status

from ..model.constraints import FALSE, TRUE
from ..model.events import Absence, EncodedResponse, ResourceError, Send
from ..model.steps import EVERY, Steps, pieces
from ..model.type_versions import RESOURCE, as_v2, wrapper_of
from ..model.types import TypeUrl, Variant
from .constraints import constraint_to_proto
from .trimming import LARGE
from .wire import join_field

SOME = 16  # aliases of a virtual host in one piece, above which encoding pauses

SHARED_BYTES = 64 * 1024 * 1024  # bytes of whole responses to keep within one turn

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
            if not part or len(parts) == EVERY or len(part) > LARGE:
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
        """Return the groups of fields of a DeltaDiscoveryResponse. Each field is encoded when it is asked for."""
        # The numbers are those of DeltaDiscoveryResponse. `send.aliases` lists first those of plain, then those of
        # located ones.
        plain, located, beats, located_beats = send.plain, send.located, send.beats, send.located_beats
        return (
            (join_field(1, send.version.encode()),),
            self._named(plain, "delta", send.aliases[: len(plain)]) if plain else (),
            self._named(located, "delta-located", send.aliases[len(plain) :]) if located else (),
            map(partial(_unresolved_field, send.absent), send.unresolved),
            self.frames(beats, "delta-beat") if beats else (),
            self.frames(located_beats, "delta-located-beat") if located_beats else (),
            (join_field(4, self._url(send.type_url)), join_field(5, send.nonce.encode())),
            map(_removed_field, send.removed),
            (self._control_plane[True],),
            map(_withdrawn_field, send.withdrawn),
            map(partial(_error_field, 9), send.errors),
        )

    def _sotw(self, send: Send) -> Iterable[Iterable[bytes]]:
        """Return the groups of fields of a DiscoveryResponse."""
        return (
            (join_field(1, send.version.encode()),),
            # The numbers are those of DiscoveryResponse.
            *[self.frames(variants, form) for variants, form in sotw_forms(send) if variants],
            (join_field(4, self._url(send.type_url)), join_field(5, send.nonce.encode())),
            (self._control_plane[False],),
            map(partial(_error_field, 7), send.errors),
        )

    def _url(self, type_url: TypeUrl) -> bytes:
        """Return the encoded type URL, in the version of this encoder."""
        return (type_url if self._to_v2 is None else as_v2(type_url)).encode()

    def frames(self, variants: Iterable[Variant], form: str) -> Iterator[bytes]:
        """Yield each variant as an encoded `resources` field; encode only those without a kept frame of this form."""
        key = form if self._to_v2 is None else f"v2-{form}"
        for variant in variants:
            yield variant.frames.get(key) or self._frame(variant, form, key)

    def _named(self, variants: tuple[Variant, ...], form: str, aliases: tuple[tuple[str, ...], ...]) -> Iterable[bytes]:
        """Return the frames of variants, some with further aliases for this client (VHD-4)."""
        # Fast path: no virtual host with aliases of this client's own.
        if not any(aliases):
            return self.frames(variants, form)
        return self._each_named(variants, form, aliases)

    def _each_named(
        self, variants: tuple[Variant, ...], form: str, aliases: tuple[tuple[str, ...], ...]
    ) -> Iterator[bytes]:
        for variant, further in zip(variants, aliases, strict=True):
            yield from self._aliased(variant, form, further) if further else self.frames((variant,), form)

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


def _unresolved_field(version: str, name: str) -> bytes:
    """Encode the answer for a host that no virtual host serves; Envoy looks for its request in the aliases (VHD-7)."""
    answer = join_field(1, version.encode()) + join_field(3, name.encode()) + join_field(4, name.encode())
    return join_field(2, answer)


def _removed_field(name: str) -> bytes:
    return join_field(6, name.encode())


def _withdrawn_field(absence: Absence) -> bytes:
    return join_field(8, _resource_name(absence))


def _error_field(number: int, error: ResourceError) -> bytes:
    return join_field(number, _resource_error(error))


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
