"""For tests of programs on xdsprism: a client in memory, without ports, threads or sleeps."""

from __future__ import annotations

from .memory_client import MemoryClient

__all__ = ["MemoryClient"]
