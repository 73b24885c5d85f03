"""Finds a message type by name, and imports no more than it takes.

All of xds-protos is over 600 modules and most of a second to import. A file needs a few of them, which are found by the
package's place on disk: `envoy.config.cluster.v3.Cluster` is in one of the modules of `envoy/config/cluster/v3`.
"""

from __future__ import annotations

import importlib
import re
from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from ..core.types import PREFIX

ROOTS = ("envoy", "xds", "udpa", "google")

_known: dict[str, type[Message]] = {}


def type_name(type_url: str) -> str:
    """Cut `type.googleapis.com/` off; the full name alone is accepted too (DESIGN 3)."""
    return type_url.rpartition("/")[2]


def type_url(full_name: str) -> str:
    return PREFIX + full_name


def find_message(full_name: str) -> type[Message] | None:
    """Find the class for a message's full name, or None where no installed proto defines it."""
    found = _known.get(full_name)
    if found is None:
        descriptor = _registered(full_name) or _imported(full_name)
        if descriptor is not None:
            found = _known[full_name] = message_factory.GetMessageClass(descriptor)
    return found


def close_matches(full_name: str) -> list[str]:
    """Suggest existing types for a name that does not exist: first the package, then the message in it."""
    package, _, name = full_name.rpartition(".")
    near = [package] if package in _packages() else get_close_matches(package, _packages(), n=2, cutoff=0.8)
    return [f"{each}.{close}" for each in near for close in get_close_matches(name, _messages_of(each), n=1)]


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
    modules = _packages().get(package, ())
    return sorted(modules, key=lambda module: not guess.startswith(module.rpartition(".")[2].removesuffix("_pb2")))


def _messages_of(package: str) -> list[str]:
    names: list[str] = []
    for module in _packages()[package]:
        with suppress(ImportError, TypeError):
            described = importlib.import_module(module).DESCRIPTOR
            names += described.message_types_by_name
    return names


@lru_cache(maxsize=1)
def _packages() -> dict[str, tuple[str, ...]]:
    """List the modules of every package that holds generated protos, by the names of their files alone."""
    found: dict[str, list[str]] = {}
    for root in ROOTS:
        spec = find_spec(root)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            for file in sorted(Path(place).rglob("*_pb2.py")):
                parts = (root, *file.relative_to(place).with_suffix("").parts)
                found.setdefault(".".join(parts[:-1]), []).append(".".join(parts))
    return {package: tuple(dict.fromkeys(modules)) for package, modules in found.items()}
