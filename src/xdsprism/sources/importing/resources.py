"""Defines what an import is made of: resources in JSON form, and the place that each comes from."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from ...core.model.types import TypeUrl
from ...messages.document import Path
from ...messages.json_parts import texts_in
from ...messages.protos import type_name

REDACTED = ("[redacted]", "W3JlZGFjdGVkXQ==")  # what Envoy writes in place of a secret; the second in base64


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the imported file."""

    type_url: TypeUrl
    name: str
    body: dict[str, Any]  # its JSON form, without @type
    path: Path  # where the file has it
    remarks: tuple[str, ...] = ()  # for the comment above it

    @property
    def key(self) -> tuple[TypeUrl, str]:
        return self.type_url, self.name

    @property
    def type_name(self) -> str:
        return type_name(self.type_url)

    def copy(self) -> Resource:
        """Return the resource with contents that may be changed."""
        return replace(self, body=deepcopy(self.body))


@dataclass(frozen=True, slots=True)
class Note:
    """What an author should know about a part of the file."""

    path: Path
    text: str


@dataclass(slots=True)
class Source:
    """What a file has: a bootstrap, and what a dump has beside it."""

    bootstrap: dict[str, Any]
    path: Path = ()  # of the bootstrap in the file
    is_dump: bool = False
    resources: list[Resource] = field(default_factory=list)  # that Envoy had from a control plane
    notes: list[Note] = field(default_factory=list)


def marks_in(body: Any) -> Iterator[Path]:
    """Yield the keys that begin with `$`, as in the metadata of a cluster: files of resources have marks there."""
    todo: list[tuple[Path, Any]] = [((), body)]
    while todo:
        path, item = todo.pop()
        if isinstance(item, dict):
            yield from ((*path, key) for key in item if key.startswith("$"))
            todo += [((*path, key), each) for key, each in reversed(item.items())]
        elif isinstance(item, list):
            todo += [((*path, index), each) for index, each in reversed(list(enumerate(item)))]


def redacted_paths(body: Any) -> Iterator[Path]:
    """Yield the places where Envoy left out a secret."""
    return (path for path, text in texts_in(body) if text in REDACTED)
