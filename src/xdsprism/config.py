"""The daemon's settings, as plain values. Whoever makes one has parsed and checked what the user wrote."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from .core.model.removal_guard import MAX_REMOVALS
from .core.model.settings import ENGINE, Engine, Settings, UpstreamForm
from .messages.verdicts import Validate
from .server.tls import Tls


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What `xdsprism serve` was told."""

    paths: tuple[Path, ...]
    listen: str = "127.0.0.1:18000"
    admin: str | None = "127.0.0.1:18001"  # None: off
    admin_hosts: tuple[str, ...] = field(default=(), kw_only=True)  # names of the admin port beside where it listens
    settings: Settings = field(default_factory=Settings)
    v2: bool = True  # beside v3, on the same port
    rest: str | None = None  # None: off
    engine: Engine = ENGINE
    max_connection_age: float | None = None  # seconds; None: any
    tls: Tls | None = None
    max_removals: float = MAX_REMOVALS  # per cent of a type, in one step; 100: any
    allow_empty: bool = False  # at the start
    validate: Validate = "envoy"


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """What `xdsprism relay` was told."""

    bootstrap: Path | None = None  # None: as the environment says
    listen: str = "127.0.0.1:18000"
    admin: str | None = "127.0.0.1:18001"
    admin_hosts: tuple[str, ...] = field(default=(), kw_only=True)
    settings: Settings = field(default_factory=Settings)
    v2: bool = True
    rest: str | None = None
    engine: Engine = ENGINE
    max_connection_age: float | None = None  # seconds; None: any
    tls: Tls | None = None
    delta: bool = True  # how the servers are asked, where they have it
    upstream_form: UpstreamForm = "auto"
    cache: Path | None = None
    group_by: Collection[str] | None = None
    linger: float = 30.0
    max_stale: float = 86400.0
    report_nacks: bool = False
    validate: Validate = "off"
