"""Checks the resources that a client receives: they must be decodable, have a name, and obey `validate.rules`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any as AnyType

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from ..core.codec.client_side import Check, Checked
from ..core.codec.resources import name_of
from ..core.model.types import CLUSTER, TypeUrl
from ..core.model.xdstp import is_xdstp
from ..errors import XdsError, show_path
from ..messages.convert import UnknownType
from ..messages.decoded import class_of
from ..messages.protos import find_message, type_name
from ..messages.rules import check
from .leds import COLLECTION, entry_faults, is_optional_name

_CLUSTER = type_name(CLUSTER)
_EDS = 3  # envoy.config.cluster.v3.Cluster.EDS

# Returns what is wrong with a message; nothing: it is valid. It may also raise ValueError or XdsError.
Validator = Callable[[AnyType], Iterable[str]]


def check_rules(message: AnyType) -> list[str]:
    """Check a message by Envoy's own rules, and by two of gRPC's. This is the default validator.

    A typed config of an unknown type passes, as the program that uses the resource may know the type.
    """
    known = [(path, text) for path, text in check(message) if not isinstance(text, UnknownType)]
    faults = [_with_path(path, text) for path, text in known if not is_optional_name(message, path)]
    if message.DESCRIPTOR.full_name == _CLUSTER and is_xdstp(message.name) and not _names_its_endpoints(message):
        faults.append("eds_cluster_config.service_name: needed, as the name of the cluster is an xdstp one")  # XTP-14
    if message.DESCRIPTOR.full_name == COLLECTION:
        faults += entry_faults(message)  # CLI-25
    return faults


def _with_path(path: tuple[str | int, ...], text: str) -> str:
    return f"{show_path(path)}: {text}" if path else text


def _names_its_endpoints(cluster: AnyType) -> bool:
    is_eds = cluster.WhichOneof("cluster_discovery_type") == "type" and cluster.type == _EDS
    return not is_eds or bool(cluster.eds_cluster_config.service_name)


def checking(validators: Mapping[TypeUrl, Validator]) -> Check:
    """Return a check that decodes and validates a resource. A validator for its type replaces the rules."""

    def check_contents(type_url: TypeUrl, body: bytes) -> Checked:
        validator = validators.get(type_url)
        kind = class_of(type_url) if validator is not None else _kind(type_url)
        if kind is None:
            message: AnyType = Any(type_url=type_url, value=body)
            return Checked(message, "", _faults(validator, message))
        try:
            message = kind.FromString(body)
        except DecodeError as error:
            return Checked(None, "", (f"it can't be decoded: {error}",))
        return Checked(message, name_of(message) or "", _faults(validator or check_rules, message))

    return check_contents


@lru_cache(maxsize=256)
def _kind(type_url: TypeUrl) -> type[Message] | None:
    return find_message(type_name(type_url))


def _faults(validator: Validator | None, message: AnyType) -> tuple[str, ...]:
    """Run a validator, and return its faults. What it raises is a fault, too."""
    if validator is None:
        return ()
    try:
        found = validator(message) or ()
        return (found,) if isinstance(found, str) else tuple(found)  # a validator may return a text without a list
    except (ValueError, XdsError) as error:
        return (str(error),)
    except Exception as error:  # noqa: BLE001 # an error in a program's validator must not end the stream each time
        return (f"its validator failed: {error!r}",)
