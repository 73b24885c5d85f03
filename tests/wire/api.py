"""What the xDS API defines, read from the installed protos: tests compare with this, not with a list of their own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass

import envoy.api.v2
import envoy.service
from envoy.annotations import resource_pb2
from google.protobuf.descriptor import ServiceDescriptor

_PACKAGES = (envoy.service, envoy.api.v2)
_MESSAGES = {"v3": "envoy.service.discovery.v3", "v2": "envoy.api.v2"}  # where discovery requests are defined


@dataclass(frozen=True)
class Defined:
    """One method that takes discovery requests."""

    path: str
    type_url: str  # empty: aggregated
    delta: bool
    streams: bool  # if not, a unary fetch

    def __str__(self) -> str:
        return self.path.rpartition("/")[2]


def services(version: str) -> Iterator[ServiceDescriptor]:
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_pb2") and f".{version}." in module.name:
                yield from importlib.import_module(module.name).DESCRIPTOR.services_by_name.values()


def _type_url(service: ServiceDescriptor) -> str:
    name = service.GetOptions().Extensions[resource_pb2.resource].type
    return f"type.googleapis.com/{name}" if name else ""


def methods(version: str) -> list[Defined]:
    requests = {f"{_MESSAGES[version]}.{name}" for name in ("DiscoveryRequest", "DeltaDiscoveryRequest")}
    return [
        Defined(
            f"/{service.full_name}/{method.name}",
            _type_url(service),
            method.input_type.name.startswith("Delta"),
            method.client_streaming,
        )
        for service in services(version)
        for method in service.methods
        if method.input_type.full_name in requests
    ]


METHODS = methods("v3")
V2_METHODS = methods("v2")
STREAMS = [method for method in METHODS if method.streams]
TYPED = [method for method in STREAMS if method.type_url]
FETCHES = [method for method in METHODS if not method.streams]
