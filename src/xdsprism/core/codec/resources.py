"""Make variants of messages.

`variant_of` checks name, type and TTL of a message, and finds what the store has to know about it: its references, the
domains of a virtual host, how a route configuration routes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any as AnyType

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from ...errors import UsageError
from ..model.constraints import FALSE, TRUE, Constraint
from ..model.type_versions import as_v3
from ..model.types import LISTENER, PREFIX, ROUTE, VIRTUAL_HOST, Origin, Routing, TypeUrl, Variant, make_variant
from ..model.xdstp import own_name, spelled
from .references import references_of, unpacked

# The fields that name a resource, in the order in which they are looked for.
NAME_FIELDS = ("name", "cluster_name")

# Seconds. Two heartbeats go out in each TTL, and google.protobuf.Duration ends at 10,000 years.
MIN_TTL, MAX_TTL = 0.1, 315_576_000_000.0


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
    type_url = message.type_url if isinstance(message, Any) else PREFIX + message.DESCRIPTOR.full_name
    inner = None if isinstance(message, Any) else name_of(message)
    name, aliases = _names(type_url, name, inner, tuple(aliases))
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


def refuse_v2(type_url: TypeUrl) -> None:
    """Raise UsageError for a type of v2: the store only knows those of v3."""
    if as_v3(type_url) != type_url:
        raise UsageError(f"{type_url} is of xDS v2: give it as {as_v3(type_url)}, and clients of v2 get it in v2")


def _names(
    type_url: TypeUrl, name: str | None, inner: str | None, aliases: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """Return the name and aliases of a resource in their canonical spelling. `inner`: the name in the message.

    Raise UsageError if there is no name, or none that the type can have.
    """
    refuse_v2(type_url)
    # S14: Envoy adds by one name and removes by the other.
    if name is not None and inner and spelled(name) != spelled(inner):
        raise UsageError(f"the Resource is named {name!r} and its contents {inner!r}: both names must be the same")
    name = name or inner
    if not name:
        raise UsageError(f"{type_url.rpartition('/')[2]} has no name: give it one")
    if type_url != VIRTUAL_HOST:
        return own_name(name, type_url), tuple(own_name(alias, type_url) for alias in aliases)
    if not all(name.rpartition("/")):  # VHD-2
        raise UsageError(f"the name of a virtual host is <route configuration>/<virtual host>, not {name!r}")
    return name, aliases


def _unpacked(message: Message) -> Message | None:
    """Return the message in an Any, if the program knows its type and can read it."""
    try:
        return unpacked(message) if isinstance(message, Any) else message
    except DecodeError:
        return None


def check_ttl(ttl: float | None) -> float | None:
    """Return the TTL to the microsecond, so that every reader finds the same. Raise UsageError if out of range."""
    if ttl is not None and not MIN_TTL <= ttl <= MAX_TTL:
        raise UsageError(f"a ttl of {ttl} seconds: it must be {MIN_TTL} or more, as two heartbeats are sent within it")
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
    named = [field for field in NAME_FIELDS if field in fields]
    return next((field for field in named if fields[field].cpp_type == fields[field].CPPTYPE_STRING), None)


def domains_of(host: AnyType) -> tuple[str, ...]:
    """Return the domains of a virtual host in lower case, in which hosts are compared (VHD-6)."""
    return tuple(domain.lower() for domain in host.domains)


def routing_of(route: AnyType) -> Routing:
    """Return how a route configuration finds virtual hosts: by VHDS or not, with ports or without."""
    return _ROUTINGS[route.HasField("vhds"), route.ignore_port_in_host_matching]


_ROUTINGS = {(one, other): Routing(one, other) for one in (False, True) for other in (False, True)}
