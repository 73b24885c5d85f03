"""The daemon's settings, as plain values. Whoever makes one has parsed and checked what the user wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .core.settings import Settings


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What `xdsprism serve` was told."""

    paths: tuple[Path, ...]
    listen: str = "127.0.0.1:18000"
    admin: str | None = "127.0.0.1:18001"  # None: off
    settings: Settings = field(default_factory=Settings)
