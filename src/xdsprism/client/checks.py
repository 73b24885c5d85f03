"""What a resource has to be before anybody gets it: decodable, named, and in keeping with `validate.rules`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any as AnyType

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from ..core.codec import name_of
from ..core.replies import Check, Checked
from ..core.types import TypeUrl
from ..core.xdstp import is_xdstp
from ..errors import XdsError, show_path
from ..messages.protos import find_message, type_name
from ..messages.rules import UnknownType, check

# Says what is wrong with a message; nothing: it is good. Raising ValueError or XdsError says it too.
Validator = Callable[[AnyType], Iterable[str]]


def check_rules(message: AnyType) -> list[str]:
    """The default validator: what Envoy's own rules refuse, and one of gRPC's.

    A typed config of a type that is not installed is let pass: somebody else may know it.
    """
    found = check(message)
    faults = [_told(path, text) for path, text in found if not isinstance(text, UnknownType)] if found else []
    if isinstance(message, Cluster) and is_xdstp(message.name) and not _names_its_endpoints(message):
        faults.append("eds_cluster_config.service_name: needed, as the name of the cluster is an xdstp one")  # XTP-14
    return faults


def _told(path: tuple[str | int, ...], text: str) -> str:
    return f"{show_path(path)}: {text}" if path else text


def _names_its_endpoints(cluster: AnyType) -> bool:
    is_eds = cluster.WhichOneof("cluster_discovery_type") == "type" and cluster.type == Cluster.EDS
    return not is_eds or bool(cluster.eds_cluster_config.service_name)


def checking(validators: Mapping[TypeUrl, Validator]) -> Check:
    """Read and check; a type that has a validator of its own is checked by that one in place of the rules."""

    def check_contents(type_url: TypeUrl, body: bytes) -> Checked:
        kind = _kind(type_url)
        if kind is None:
            message: AnyType = Any(type_url=type_url, value=body)
            return Checked(message, "", _faults(validators.get(type_url), message))
        try:
            message = kind.FromString(body)
        except DecodeError as error:
            return Checked(None, "", (f"it can't be decoded: {error}",))
        return Checked(message, name_of(message) or "", _faults(validators.get(type_url, check_rules), message))

    return check_contents


def decoded(type_url: TypeUrl, body: bytes) -> AnyType:
    """A resource that was checked before, once more as a message."""
    kind = _kind(type_url)
    return kind.FromString(body) if kind is not None else Any(type_url=type_url, value=body)


@lru_cache(maxsize=256)
def _kind(type_url: TypeUrl) -> type[Message] | None:
    return find_message(type_name(type_url))


def _faults(validator: Validator | None, message: AnyType) -> tuple[str, ...]:
    if validator is None:
        return ()
    try:
        found = validator(message) or ()
        return (found,) if isinstance(found, str) else tuple(found)  # one reason is written without a list easily
    except (ValueError, XdsError) as error:
        return (str(error),)
    except Exception as error:  # noqa: BLE001 # a slip in somebody's validator must not end the stream, over and over
        return (f"its validator failed: {error!r}",)
