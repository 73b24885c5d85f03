"""Contents in the words of the other version of the API (gRFC A30, VER-4).

v2 and v3 are one on the wire but for the names of what is packed into an Any. The protos say what each v3 message was
called in v2: `previous_message_type`. A name is looked up when it is first met, so that nothing is imported for
versions that nobody speaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError, Message
from udpa.annotations import migrate_pb2, versioning_pb2

from ..core.model.types import TypeUrl
from .nested import ANY, TYPED, typed_parts
from .protos import find_message, type_name

MAX_DEPTH = 32  # of Anys in each other; what is deeper stays as it is

# Each message that has a twin is in a package of Envoy's: without this, contents need not be read at all.
_SIGN = b"/envoy."

# ... and one whose package is of v3 has none in the words of v3.
_NEW_SIGN = re.compile(rb"/envoy\.(?:[a-z0-9_]+\.)*v3[a-z0-9]*\.")

# The annotation has v3 where v2 was meant: no such message ever was.
_MISPRINTED = {"envoy.extensions.filters.http.ext_authz.v3.ExtAuthz": "envoy.config.filter.http.ext_authz.v2.ExtAuthz"}

_MONITORS = "envoy.extensions.resource_monitors"

# Packages that do not say, or not rightly, where they moved.
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
    """The contents of a resource for a client of v2; the same object where nothing differs."""
    return _convert(type_url, body, v2_name, MAX_DEPTH)


def to_v3(type_url: TypeUrl, body: bytes) -> bytes:
    """The way back. Contents in which all names are of v3, as nearly always, are searched and not parsed (PRX-36)."""
    return _convert(type_url, body, v3_name, MAX_DEPTH) if _has_old_names(body) else body


def _has_old_names(body: bytes) -> bool:
    at = body.find(_SIGN)
    while at >= 0:
        if _NEW_SIGN.match(body, at) is None:
            return True
        at = body.find(_SIGN, at + 1)
    return False


# -- names


@lru_cache(maxsize=4096)
def v2_name(full_name: str) -> str | None:
    """What a message of v3 was called in v2, or None where there was no such message in v2, whatever its proto says."""
    kind = find_message(full_name)
    if kind is None:
        return None
    options: Any = kind.DESCRIPTOR.GetOptions()
    previous = _MISPRINTED.get(full_name) or str(options.Extensions[versioning_pb2.versioning].previous_message_type)
    moved = ".v3." in previous  # only within v3
    return previous if previous and not moved and find_message(previous) is not None else None


@lru_cache(maxsize=4096)
def v3_name(full_name: str) -> str | None:
    """The way back. The protos of v2 say where a message went; that it is the right one, the new one says itself."""
    kind = find_message(full_name) if full_name.startswith("envoy.") and ".v3." not in full_name else None
    if kind is None:
        return None
    name = f"{_moved(kind.DESCRIPTOR)}.{_renamed(kind.DESCRIPTOR)}"
    return name if v2_name(name) == full_name else None


def _moved(descriptor: Any) -> str:
    package = descriptor.file.package
    told = descriptor.file.GetOptions().Extensions[migrate_pb2.file_migrate].move_to_package
    return str(_MOVED.get(package) or told or re.sub(r"[.]v2(alpha|beta)?[0-9]*$", "", package) + ".v3")


def _renamed(descriptor: Any) -> str:
    own = descriptor.GetOptions().Extensions[migrate_pb2.message_migrate].rename or descriptor.name
    return f"{_renamed(descriptor.containing_type)}.{own}" if descriptor.containing_type else own


# -- contents


def _convert(type_url: TypeUrl, body: bytes, rename: Rename, depth: int) -> bytes:
    kind = find_message(type_name(type_url)) if depth and _SIGN in body else None
    if kind is None:
        return body
    try:
        message = kind.FromString(body)
    except DecodeError:  # the client is to be the judge of it
        return body
    return message.SerializeToString(deterministic=True) if _convert_message(message, rename, depth) else body


def _convert_message(message: Message, rename: Rename, depth: int) -> bool:
    """Whether anything was changed. With a list of its own: messages may be nested as deep as Python's stack."""
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
    """An Any, or a TypedStruct: whose contents are no message, but whose type is one's."""
    before = typed.type_url, typed.value if packed else None
    if packed:
        typed.value = _convert(typed.type_url, typed.value, rename, depth - 1)
    authority, slash, name = typed.type_url.rpartition("/")
    typed.type_url = f"{authority}{slash}{(slash and rename(name)) or name}"
    return before != (typed.type_url, typed.value if packed else None)
