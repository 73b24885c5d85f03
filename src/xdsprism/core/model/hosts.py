"""Read the strings of VHDS: route configuration, host and port, and the domains of virtual hosts.

A client subscribes to `<route configuration>/<host>`, split at the last slash (VHD-2). host_lookup.py finds the virtual
host that serves it, and asked_hosts.py the subscribed hosts that a virtual host may serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def split(string: str) -> tuple[str, str]:
    """Split a subscription into route configuration, whose name may contain slashes, and host (VHD-2)."""
    config, _, host = string.rpartition("/")
    return config, host


def without_port(host: str) -> str:
    """Drop the port as Envoy does: digits after the last colon. `[::1]:80` has a port, `[::1]` has none."""
    head, colon, port = host.rpartition(":")
    return head if colon and port.isdigit() and not (":" in head and not head.endswith("]")) else host


def explicit(domains: Iterable[str]) -> Iterator[str]:
    """Yield the domains that are no wildcards."""
    for domain in domains:
        if "*" not in (domain[:1], domain[-1:]):
            yield domain


def forms(host: str) -> tuple[str, ...]:
    """Return the spellings by which domains may match the host: in lower case, and without its port too."""
    lower = host.lower()
    bare = without_port(lower)
    return (lower,) if bare == lower else (lower, bare)


def rest_of(domain: str) -> str:
    """Return a wildcard domain without its `*`."""
    return domain[1:] if domain.startswith("*") else domain[:-1]
