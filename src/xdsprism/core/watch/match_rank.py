"""Rank how well a resource answers a subscription whose string is not the resource's name (VHD-3, DLT-20).

In VHDS a client subscribes to `<route config>/<host>` and gets a virtual host with a name of its own. The answer lists
the string among its aliases. Later updates need not list it, and may answer other hosts: then the domains of the
virtual host tell whether it can still serve this host (VHD-12).
"""

from __future__ import annotations

from enum import IntEnum

from ..model.hosts import split, without_port
from ..model.types import VIRTUAL_HOST, Variant


class MatchRank(IntEnum):
    """How well a resource fits a subscription; if two in one response fit, the higher rank wins."""

    LOST = 0  # held before, and its domains no longer have the host
    UNSURE = 1  # held before, and its domains have the host only if ports do not count
    HELD = 2  # held before, and its domains still have the host
    # It fits by name where an alias counts more, or by alias where a name counts more.
    OTHERWISE = 3
    # It is the answer to the subscription.
    MEANT = 4


def closeness(string: str, variant: Variant) -> MatchRank:
    """Return the rank of a resource for a subscription to `string`.

    Of a virtual host the alias counts more than the name: a virtual host that is named like a host need not serve it.
    Of other types the name counts more than an alias.
    """
    is_host = variant.type_url == VIRTUAL_HOST
    if string == variant.name:
        return MatchRank.OTHERWISE if is_host and string not in variant.aliases else MatchRank.MEANT
    if string in variant.aliases:
        return MatchRank.MEANT if is_host else MatchRank.OTHERWISE
    host = split(string)[1].lower()
    if _serves(variant, host):
        return MatchRank.HELD
    return MatchRank.UNSURE if _serves(variant, without_port(host)) else MatchRank.LOST


def owns(variant: Variant, string: str) -> bool:
    """Whether the virtual host has the host as an exact domain, which wins over all wildcard domains (VHD-6)."""
    host = split(string)[1].lower()
    return host in variant.domains or without_port(host) in variant.domains


def _serves(variant: Variant, host: str) -> bool:
    """Whether a domain of the virtual host covers the host; true if its domains are not known."""
    return not variant.domains or any(_fits(domain, host) for domain in variant.domains)


def _fits(domain: str, host: str) -> bool:
    """Whether a domain covers a host: `*.suffix`, `prefix.*`, `*`, or the host itself."""
    if domain.startswith("*"):
        return host.endswith(domain[1:])
    return host.startswith(domain[:-1]) if domain.endswith("*") else host == domain
