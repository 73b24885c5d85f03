"""Finds the message classes that programs import: those of xds-protos, and others that the program has loaded.

xds-protos has over 600 modules, which take most of a second to import. So this module imports only those of one
package, by its place on disk: `envoy.config.cluster.v3.Cluster` is in one of the modules in `envoy/config/cluster/v3`.
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
    """Return the class that a program gets by importing it, or None if no module defines it."""
    descriptor = installed(full_name)
    return message_factory.GetMessageClass(descriptor) if descriptor is not None else None


def installed(full_name: str) -> Descriptor | None:
    """Find the descriptor of a message in protobuf's default pool, importing a module that defines it if necessary."""
    return _registered(full_name) or _imported(full_name)


def _registered(full_name: str) -> Descriptor | None:
    """Find a message in protobuf's default pool, which has what the program has imported so far."""
    try:
        return descriptor_pool.Default().FindMessageTypeByName(full_name)
    except KeyError:
        return None


def _imported(full_name: str) -> Descriptor | None:
    """Import the modules that may define a message until one does."""
    words = full_name.split(".")
    for size in range(len(words) - 1, 0, -1):  # try shorter packages too: the message may be nested in another
        for module in _likeliest_first(".".join(words[:size]), words[size]):
            with suppress(ImportError, TypeError):  # of another distribution: broken, or in conflict with xds-protos
                importlib.import_module(module)
            if found := _registered(full_name):
                return found
    return None


def _likeliest_first(package: str, message: str) -> list[str]:
    """Order a package's modules so that the likeliest comes first: `Cluster` is in `cluster_pb2`."""
    guess = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", message).lower()
    modules = _modules_of(package)
    return sorted(modules, key=lambda module: not guess.startswith(module.rpartition(".")[2].removesuffix("_pb2")))


@lru_cache(maxsize=4096)
def _modules_of(package: str) -> tuple[str, ...]:
    """List the modules of a package that hold generated protos, by their file names and without importing them."""
    root, *inner = package.split(".")
    spec = find_spec(root) if root in ROOTS else None
    places = (Path(place, *inner) for place in spec.submodule_search_locations or ()) if spec else ()
    files = (file for place in places for file in sorted(place.glob("*_pb2.py")))
    return tuple(dict.fromkeys(f"{package}.{file.stem}" for file in files))
