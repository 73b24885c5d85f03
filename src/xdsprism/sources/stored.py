"""What a program reads from its store: the variants of a resource, as values that it can't change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.model.constraints import TRUE
from ..core.model.expr import show
from ..core.model.types import TypeUrl, Variant
from ..messages.decoded import decoded


@dataclass(frozen=True, slots=True)
class StoredVariant:
    """One variant in a store: its contents, and who gets them."""

    type_url: TypeUrl
    name: str
    when: str | None  # the constraint, as an EXPR; None: every client matches
    version: str  # a hash of contents and constraint
    aliases: tuple[str, ...]
    ttl: float | None  # seconds
    origin: str  # FILE:LINE where it was written; empty if a program put it
    body: bytes  # the contents, encoded

    @property
    def resource(self) -> Any:
        """The contents: a new message each time, so that no change of it reaches the store."""
        return decoded(self.type_url, self.body)

    def __repr__(self) -> str:
        """Leave out the contents, which may be a secret (OPS-14)."""
        return f"<StoredVariant {self.type_url.rpartition('/')[2]} {self.name!r} when={self.when!r} {self.version}>"


def stored(variant: Variant) -> StoredVariant:
    """Return what a program may read of a variant."""
    return StoredVariant(
        variant.type_url,
        variant.name,
        show(variant.shown) if variant.shown != TRUE else None,
        variant.version,
        variant.aliases,
        variant.ttl,
        str(variant.origin) if variant.origin is not None else "",
        variant.body,
    )
