"""Test doubles for programs that use xdsprism: both ends in memory, without ports, threads or sleeps.

- `HubTransport` connects a Client to a Hub in the same process.
- `MemoryClient` is a delta client of a Store, without asyncio.
- `ScriptedPeer` is a server that sends what a test tells it to.
- `run_timeless` runs a coroutine in a loop whose clock jumps over every wait.
"""

from __future__ import annotations

from .hub_transport import HubTransport
from .memory_client import MemoryClient
from .scripted_peer import PeerStream, ScriptedPeer
from .timeless import TimelessLoop, run_timeless

__all__ = ["HubTransport", "MemoryClient", "PeerStream", "ScriptedPeer", "TimelessLoop", "run_timeless"]
