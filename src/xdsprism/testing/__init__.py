"""For tests of programs on xdsprism: both ends in memory, without ports, threads or sleeps."""

from __future__ import annotations

from .hub_transport import HubTransport
from .memory_client import MemoryClient
from .scripted_peer import PeerStream, ScriptedPeer
from .timeless import TimelessLoop, run_timeless

__all__ = ["HubTransport", "MemoryClient", "PeerStream", "ScriptedPeer", "TimelessLoop", "run_timeless"]
