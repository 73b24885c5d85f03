"""Read a client's node, and derive params from it for clients that send none of their own (DESIGN 6.2).

The setting `--node-params` lists names. A name is one of the node's own fields (`node.id`, `node.locality.zone`; all of
them are in `NODE_FIELDS`), or a key of the node's metadata. A metadata key may lead into nested objects by dots:
`labels.app`. The name is also the key of the param, so constraints say `node.locality.zone=a` and `labels.app=shop`.

- Without the setting, all top-level strings of the metadata are params, and none of the node's fields.
- Numbers and booleans count only where they are named, in their JSON form: `3`, `1.5`, `true`.
- A metadata key that itself contains a dot wins over the nested reading of the same name, at every level.
- `node.` is the prefix of the node's own fields: metadata keys that begin with it never count.
- An empty field gives no param. A metadata key that is missing, null, a list or an object gives none either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from math import isfinite
from operator import attrgetter
from typing import Any

from ...errors import UsageError
from ...similar import did_you_mean
from .events import Node
from .truncation import NAME_BYTES, bounded
from .types import NO_PARAMS, Params

OWN = "node."  # the prefix of the node's own fields
EXACT = 2**53  # up to here every integer is exact in a Struct, whose numbers are all doubles

FEATURES = 256  # client_features that are read of one node
OTHERS = 100  # metadata strings that are kept in addition to those that the settings name
# Values that may become params are kept whole, up to sizes that no real client has. These sizes are above those of
# Limits, so that a relay still sees that a value is too long to ask a server for.
VALUE_BYTES = 64 * 1024  # of one value; a longer one is cut, with a digest that keeps it distinct
METADATA = 4 * 1024 * 1024  # characters of all keys and values together, where the settings name no keys
ENTRY = 100  # added to the size of each entry, because even a short one takes memory

_MAJOR_MINOR = re.compile(r"(?<![\d.])\d+\.\d+")


def _version(proto: Any) -> str:
    """Return user_agent_version, or `major.minor.patch` of user_agent_build_version, which is what Envoy sends."""
    if proto.WhichOneof("user_agent_version_type") != "user_agent_build_version":
        return str(proto.user_agent_version)
    build = proto.user_agent_build_version
    if not build.HasField("version"):
        return ""
    return f"{build.version.major_number}.{build.version.minor_number}.{build.version.patch}"


def _major_minor(proto: Any) -> str:
    """Return the first `major.minor` in the version, so that one param covers all patch releases."""
    found = _MAJOR_MINOR.search(_version(proto))
    return found[0] if found is not None else ""


# The fields that can be named, and how each is read from envoy.config.core.v3.Node.
NODE_FIELDS: dict[str, Callable[[Any], str]] = {
    "node.id": attrgetter("id"),
    "node.cluster": attrgetter("cluster"),
    "node.locality.region": attrgetter("locality.region"),
    "node.locality.zone": attrgetter("locality.zone"),
    "node.locality.sub_zone": attrgetter("locality.sub_zone"),
    "node.user_agent_name": attrgetter("user_agent_name"),
    "node.user_agent_version": _version,
    "node.user_agent_version.major_minor": _major_minor,
}


def is_unknown_field(name: str) -> bool:
    """Whether the name has the prefix of the node's own fields and is none of them."""
    return name.startswith(OWN) and name not in NODE_FIELDS


def check_names(names: Collection[str] | None) -> None:
    """Raise UsageError for a setting that can't be a list of names."""
    if isinstance(names, str):
        raise UsageError(f"node_params is a list of names, as in node_params=[{names!r}]")
    for name in names or ():
        if is_unknown_field(name):
            known = ", ".join(NODE_FIELDS)
            hint = did_you_mean(name, NODE_FIELDS)
            raise UsageError(f"the node has no field {name!r} to take params from: use {known}{hint}")


def can_send(names: Collection[str] | None, key: str) -> bool:
    """Whether a client that sends no params of its own can have a param of this key."""
    return not key.startswith(OWN) if names is None else key in names


def params_of(node: Node, names: Collection[str] | None) -> Params:
    """Return the params of a node's plain subscriptions. names=None: all top-level strings of the metadata."""
    if names is None:
        own = [key for key in node.metadata if key.startswith(OWN)]
        return Params({key: node.metadata[key] for key in node.metadata if key not in own}) if own else node.metadata
    if not names:
        return NO_PARAMS
    strings = node.metadata.only([name for name in names if not name.startswith(OWN)])
    return Params({**strings, **node.named}) if node.named else strings


@lru_cache(maxsize=4096)
def with_defaults(params: Params, defaults: Params) -> Params:
    """Add defaults for absent keys.

    Cached, so that all subscriptions of a client share one object: a stream may have a hundred thousand.
    """
    return Params({**defaults, **params})


def node_of(proto: Any, names: Collection[str] | None = None) -> Node:
    """Read an envoy.config.core.v3.Node; of the values that `names` may lead to, only those named (SRV-25).

    Fields that identify the client are cut to a bounded length. Values that decide which variant the client gets are
    cut only if they are longer than those of any real client. DYN-43: Node.dynamic_parameters, which are TP1's context,
    never count.
    """
    fields = proto.metadata.fields
    strings = {key: value.string_value for key, value in fields.items() if value.HasField("string_value")}
    named = _named(proto, [name for name in names or () if name not in strings or name in NODE_FIELDS])
    features = frozenset(bounded(feature, NAME_BYTES) for feature in islice(proto.client_features, FEATURES))
    return Node(
        bounded(proto.id, NAME_BYTES, distinct=True),
        bounded(proto.cluster, NAME_BYTES),
        bounded(proto.user_agent_name, NAME_BYTES),
        Params(_kept(strings) if names is None else _of_use(strings, names)),
        features,
        named,
    )


def _kept(strings: dict[str, str]) -> dict[str, str]:
    """Return the metadata strings to keep where every string is a param.

    Past METADATA characters keep the shortest entries, because keys that decide between variants are short.
    """
    if sum(map(len, strings)) + sum(map(len, strings.values())) + ENTRY * len(strings) <= METADATA:
        return {key: bounded(value, VALUE_BYTES, distinct=True) for key, value in strings.items()}
    kept: dict[str, str] = {}
    left = METADATA
    for size, key in sorted((len(key) + min(len(value), VALUE_BYTES), key) for key, value in strings.items()):
        left -= size + ENTRY
        if left < 0:
            break
        kept[key] = bounded(strings[key], VALUE_BYTES, distinct=True)
    return kept


def _of_use(strings: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the metadata strings to keep where the settings name the params.

    Named strings are kept whole, because they decide. The others are only shown on pages: a few, and their beginnings.
    """
    others = islice([key for key in strings if key not in names], OTHERS)
    shown = {bounded(key, NAME_BYTES, distinct=True): bounded(strings[key], NAME_BYTES) for key in others}
    return shown | {name: bounded(strings[name], VALUE_BYTES, distinct=True) for name in names if name in strings}


def _named(proto: Any, names: Iterable[str]) -> Params:
    """Read the named fields and metadata values that are not top-level strings."""
    found: dict[str, str] = {}
    for name in names:
        value = NODE_FIELDS[name](proto) or None if name in NODE_FIELDS else _in_metadata(proto.metadata.fields, name)
        if value is not None:
            found[name] = bounded(value, VALUE_BYTES, distinct=True)
    return Params(found) if found else NO_PARAMS


def _in_metadata(fields: Any, name: str) -> str | None:
    """Look up a name, as a literal key first.

    Otherwise the part before a dot, the longest first, may be the key of a nested object that has the rest.
    """
    if name in fields:
        value = _scalar(fields[name])
        if value is not None:
            return value
    at = name.rfind(".")
    while at > 0:
        head = name[:at]
        if head in fields and fields[head].WhichOneof("kind") == "struct_value":
            value = _in_metadata(fields[head].struct_value.fields, name[at + 1 :])
            if value is not None:
                return value
        at = name.rfind(".", 0, at)
    return None


def _scalar(value: Any) -> str | None:
    """Return a google.protobuf.Value in its JSON form; a string as it is; None for null, lists and objects."""
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return str(value.string_value)
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind == "number_value" and isfinite(value.number_value):
        number: float = value.number_value
        return str(int(number)) if number.is_integer() and abs(number) <= EXACT else repr(number)
    return None


def write_named(proto: Any, params: Params) -> None:
    """Write these params into an envoy.config.core.v3.Node, the opposite of reading them (PRX-21)."""
    # In reverse order, the full version comes after its major.minor, which goes into the same field, and replaces it.
    for key in sorted(params, reverse=True):
        path = key.removeprefix(OWN).removesuffix(".major_minor") if key in NODE_FIELDS else ""
        if path:
            parent, _, field = path.rpartition(".")
            setattr(attrgetter(parent)(proto) if parent else proto, field, params[key])
        else:
            proto.metadata.update({key: params[key]})
