"""Message classes as programs import them: those of xds-protos, and whatever else the program has loaded itself.

All of xds-protos is over 600 modules and most of a second to import. What is wanted is found by the package's place on
disk: `envoy.config.cluster.v3.Cluster` is in one of the modules of `envoy/config/cluster/v3`.
"""

from __future__ import annotations

import importlib
import re
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

ROOTS = ("envoy", "xds", "udpa", "google")


def installed_class(full_name: str) -> type[Message] | None:
    """The class that a program gets by importing it, or None where there is none to import."""
    descriptor = installed(full_name)
    return message_factory.GetMessageClass(descriptor) if descriptor is not None else None


def installed(full_name: str) -> Descriptor | None:
    return _registered(full_name) or _imported(full_name)


def _registered(full_name: str) -> Descriptor | None:
    try:
        return descriptor_pool.Default().FindMessageTypeByName(full_name)
    except KeyError:
        return None


def _imported(full_name: str) -> Descriptor | None:
    words = full_name.split(".")
    for size in range(len(words) - 1, 0, -1):  # a nested message's package is shorter than what stands before its name
        for module in _by_likeness(".".join(words[:size]), words[size]):
            with suppress(ImportError, TypeError):  # another distribution's, broken or in conflict with xds-protos
                importlib.import_module(module)
            if found := _registered(full_name):
                return found
    return None


def _by_likeness(package: str, message: str) -> list[str]:
    """Order a package's modules so that the likely one comes first: `Cluster` is in `cluster_pb2`."""
    guess = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", message).lower()
    modules = _modules_of(package)
    return sorted(modules, key=lambda module: not guess.startswith(module.rpartition(".")[2].removesuffix("_pb2")))


@lru_cache(maxsize=4096)
def _modules_of(package: str) -> tuple[str, ...]:
    """List the modules of a package that hold generated protos, by the names of their files alone."""
    root, *inner = package.split(".")
    spec = find_spec(root) if root in ROOTS else None
    places = (Path(place, *inner) for place in spec.submodule_search_locations or ()) if spec else ()
    files = (file for place in places for file in sorted(place.glob("*_pb2.py")))
    return tuple(dict.fromkeys(f"{package}.{file.stem}" for file in files))
