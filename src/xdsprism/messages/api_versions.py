"""Converts the contents of resources between xDS v2 and v3 (gRFC A30, VER-4).

v2 and v3 messages are the same on the wire, except for the type URLs in Anys and TypedStructs. The protos name the v2
predecessor of each v3 message: `previous_message_type`. Names are looked up on first use, so that a server without v2
clients loads no protos of v2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError, Message
from udpa.annotations import migrate_pb2, versioning_pb2

from ..core.model.types import TypeUrl
from .protos import find_message, type_name
from .typed_parts import ANY, TYPED, typed_parts

MAX_DEPTH = 32  # of Anys nested in each other; deeper ones are not converted

# Every message with a counterpart in the other version is in a package of Envoy's. Contents without these bytes have
# nothing to convert, and are not parsed.
_ENVOY_TYPE = b"/envoy."

# The type URL of a v3 message, which `to_v3` has nothing to convert in.
_V3_TYPE = re.compile(rb"/envoy\.(?:[a-z0-9_]+\.)*v3[a-z0-9]*\.")

# The annotation of this message says v3 where v2 is meant; the message that it names never existed.
_CORRECTED = {"envoy.extensions.filters.http.ext_authz.v3.ExtAuthz": "envoy.config.filter.http.ext_authz.v2.ExtAuthz"}

_MONITORS = "envoy.extensions.resource_monitors"

# v2 packages without an annotation that says where they moved, or with a wrong one.
_MOVED = {
    "envoy.config.cluster.redis": "envoy.extensions.clusters.redis.v3",
    "envoy.config.filter.http.cache.v2alpha": "envoy.extensions.filters.http.cache.v3",
    "envoy.config.filter.thrift.router.v2alpha1": "envoy.extensions.filters.network.thrift_proxy.router.v3",
    "envoy.config.health_checker.redis.v2": "envoy.extensions.health_checkers.redis.v3",
    "envoy.config.resource_monitor.fixed_heap.v2alpha": f"{_MONITORS}.fixed_heap.v3",
    "envoy.config.resource_monitor.injected_resource.v2alpha": f"{_MONITORS}.injected_resource.v3",
}

Rename = Callable[[str], str | None]


def to_v2(type_url: TypeUrl, body: bytes) -> bytes:
    """Convert the contents of a resource for a client of v2; return the same object if nothing differs."""
    return _convert(type_url, body, v2_name, MAX_DEPTH)


def to_v3(type_url: TypeUrl, body: bytes) -> bytes:
    """Convert contents from v2 to v3. Contents with type URLs of v3 alone, the usual case, are not parsed (PRX-36)."""
    return _convert(type_url, body, v3_name, MAX_DEPTH) if _may_have_v2_types(body) else body


def _may_have_v2_types(body: bytes) -> bool:
    """Whether contents have a type URL of Envoy that is not of v3."""
    at = body.find(_ENVOY_TYPE)
    while at >= 0:
        if _V3_TYPE.match(body, at) is None:
            return True
        at = body.find(_ENVOY_TYPE, at + 1)
    return False


# -- names


@lru_cache(maxsize=4096)
def v2_name(full_name: str) -> str | None:
    """Return the v2 name of a v3 message, or None if v2 had no such message, even where the annotation names one."""
    kind = find_message(full_name)
    if kind is None:
        return None
    options: Any = kind.DESCRIPTOR.GetOptions()
    previous = _CORRECTED.get(full_name) or str(options.Extensions[versioning_pb2.versioning].previous_message_type)
    moved = ".v3." in previous  # the message moved within v3
    return previous if previous and not moved and find_message(previous) is not None else None


@lru_cache(maxsize=4096)
def v3_name(full_name: str) -> str | None:
    """Return the v3 name of a v2 message: where its annotation leads, if the v3 message names it as predecessor."""
    kind = find_message(full_name) if full_name.startswith("envoy.") and ".v3." not in full_name else None
    if kind is None:
        return None
    name = f"{_moved(kind.DESCRIPTOR)}.{_renamed(kind.DESCRIPTOR)}"
    return name if v2_name(name) == full_name else None


def _moved(descriptor: Any) -> str:
    """Return the v3 package of a v2 message."""
    package = descriptor.file.package
    annotated = descriptor.file.GetOptions().Extensions[migrate_pb2.file_migrate].move_to_package
    return str(_MOVED.get(package) or annotated or re.sub(r"[.]v2(alpha|beta)?[0-9]*$", "", package) + ".v3")


def _renamed(descriptor: Any) -> str:
    """Return the v3 name of a v2 message within its package."""
    own = descriptor.GetOptions().Extensions[migrate_pb2.message_migrate].rename or descriptor.name
    return f"{_renamed(descriptor.containing_type)}.{own}" if descriptor.containing_type else own


# -- contents


def _convert(type_url: TypeUrl, body: bytes, rename: Rename, depth: int) -> bytes:
    """Convert serialized contents, up to `depth` levels of nested Anys."""
    kind = find_message(type_name(type_url)) if depth and _ENVOY_TYPE in body else None
    if kind is None:
        return body
    try:
        message = kind.FromString(body)
    except DecodeError:  # pass it on: the client will NACK it
        return body
    return message.SerializeToString(deterministic=True) if _convert_message(message, rename, depth) else body


def _convert_message(message: Message, rename: Rename, depth: int) -> bool:
    """Convert a message in place; return whether anything changed. A loop: nesting may exceed Python's stack."""
    changed = False
    waiting = [message]
    while waiting:
        each: Any = waiting.pop()
        kind = each.DESCRIPTOR.full_name
        if kind in TYPED:
            changed |= _convert_typed(each, rename, depth, packed=kind == ANY)
        else:
            waiting += typed_parts(each)
    return changed


def _convert_typed(typed: Any, rename: Rename, depth: int, *, packed: bool) -> bool:
    """Convert an Any (`packed`) with its contents, or a TypedStruct, of which only the type URL differs."""
    before = typed.type_url, typed.value if packed else None
    if packed:
        typed.value = _convert(typed.type_url, typed.value, rename, depth - 1)
    authority, slash, name = typed.type_url.rpartition("/")
    typed.type_url = f"{authority}{slash}{(slash and rename(name)) or name}"
    return before != (typed.type_url, typed.value if packed else None)
