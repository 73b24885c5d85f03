"""Defines the daemon's settings as plain values. The command line parses and checks them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from .admin.access import Access
from .core.model.removal_guard import MAX_REMOVALS
from .core.model.settings import ENGINE, Engine, Settings, UpstreamForm
from .messages.validation import Validate
from .server.tls import Tls
from .sources.files import LoadProgress

# Shows how far something has come, while the block runs that it is given for.
ShowLoading = Callable[[Callable[[], LoadProgress]], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """The settings of `xdsprism serve`."""

    paths: tuple[Path, ...]
    listen: str = "127.0.0.1:18000"
    admin: str | None = "127.0.0.1:18001"  # None: off
    access: Access = field(default_factory=Access, kw_only=True)  # who may use the admin port
    settings: Settings = field(default_factory=Settings)
    v2: bool = True  # serve v2 beside v3, on the same port
    rest: str | None = None  # None: off
    engine: Engine = ENGINE
    max_connection_age: float | None = None  # seconds; None: no limit
    tls: Tls | None = None
    policy: Path | None = None  # None: every client may have everything
    csds: bool = True  # say which clients there are, and how far each is
    max_removals: float = MAX_REMOVALS  # per cent of a type that one change may remove; 100: no limit
    allow_empty: bool = False  # whether to start without any resource
    validate: Validate = "envoy"
    loading: ShowLoading | None = field(default=None, kw_only=True, compare=False)  # of the first load


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """The settings of `xdsprism relay`."""

    bootstrap: Path | None = None  # None: the one that the environment names
    listen: str = "127.0.0.1:18000"
    admin: str | None = "127.0.0.1:18001"
    access: Access = field(default_factory=Access, kw_only=True)
    settings: Settings = field(default_factory=Settings)
    v2: bool = True
    rest: str | None = None
    engine: Engine = ENGINE
    max_connection_age: float | None = None  # seconds; None: no limit
    tls: Tls | None = None
    policy: Path | None = None
    csds: bool = True
    delta: bool = True  # use delta with servers that support it
    upstream_form: UpstreamForm = "auto"
    cache: Path | None = None
    group_by: Collection[str] | None = None
    linger: float = 30.0  # seconds
    max_stale: float = 86400.0  # seconds
    report_nacks: bool = False
    validate: Validate = "off"
