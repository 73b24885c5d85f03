"""Former name of connection_limits.py, for the modules that still import from it."""

from __future__ import annotations

from .connection_limits import connections_for as room_for
from .connection_limits import descriptor_limit as descriptors
from .connection_limits import host_of

__all__ = ["descriptors", "host_of", "room_for"]
