"""Resolves and binds listen addresses, explains why one can't be used, and formats peer addresses as gRPC does."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from ..errors import UsageError
from ..printable import printable
from .port_holder import holder_of

LOWEST = 1024  # the first port that needs no privilege

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return the peer of a transport, as in `ipv4:10.0.0.1:40000`."""
    return format_peer(transport.get_extra_info("peername"))


def format_peer(name: object) -> str:
    """Format a socket name as gRPC does: `ipv4:HOST:PORT` or `ipv6:[HOST]:PORT`."""
    if not isinstance(name, tuple):
        return "unknown"
    host, port = name[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches HOST:PORT."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_listen(listen: str, purpose: str = "") -> None:
    """Raise UsageError unless this is HOST:PORT."""
    host, colon, port = listen.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535
    if not colon or not is_port or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        what = f" for {purpose}" if purpose else ""
        raise UsageError(
            f"can't listen on {listen!r}{what}: it should be HOST:PORT, such as 127.0.0.1:18000 or [::1]:0"
        )


async def resolve(loop: asyncio.AbstractEventLoop, listen: str) -> list[Address]:
    """Return the addresses of HOST:PORT, without duplicates. Raises UsageError and OSError."""
    check_listen(listen)
    host, _, port = listen.rpartition(":")
    found = await loop.getaddrinfo(
        host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def bind_socket(address: Address, before: Sequence[socket.socket]) -> socket.socket:
    """Bind a socket to one of a host's addresses. For port 0, all of them get the port of the first (`before`)."""
    family, (host, port, *rest) = address
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it. Without it an update takes 40 ms; loops set it only for IPPROTO_TCP.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" and not before else 1)
        made.bind((host, port or (before[0].getsockname()[1] if before else 0), *rest))
    except OSError:
        made.close()
        raise
    return made


async def find_fault(loop: asyncio.AbstractEventLoop, listen: str) -> OSError | None:
    """Try to listen on an address. Return the error, or None if it can be used."""
    made: list[socket.socket] = []
    try:
        for address in await resolve(loop, listen):
            made.append(bind_socket(address, made))
    except OSError as error:
        return error
    finally:
        for each in made:
            each.close()
    return None


def why_not(listen: str, error: OSError) -> str:
    """Explain to the operator why the server can't listen on an address, and what to do."""
    host, _, port = listen.rpartition(":")
    if isinstance(error, socket.gaierror):
        return f"the host {host!r} is unknown ({error.strerror}); name an address of this machine, or 0.0.0.0 for all"
    if error.errno in (errno.EACCES, errno.EPERM):
        if 0 < int(port) < LOWEST:
            low = f"ports below {LOWEST} need root or CAP_NET_BIND_SERVICE"
            return f"permission denied: {low}; take a higher port, or give the program that capability"
        return "permission denied, by a rule of this machine for that port"
    if error.errno == errno.EADDRINUSE:
        holder = holder_of(int(port))
        who = f": {printable(holder)}" if holder else ""
        return f"the address is in use by another program{who}; end that, or take another port (0: any that is free)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; name one that is, or 0.0.0.0 for all"
    if error.errno == errno.EAFNOSUPPORT:
        return f"this machine has no addresses of the kind of {host}"
    return error.strerror or str(error)
