"""How close a resource is to what an entry asked for, where names are not all that counts (VHD-3, DLT-20).

Whoever asks for a host gets a virtual host with a name of its own. The answer names the string among its aliases. Later
ones need not, and may be meant for others: then the domains tell whether it can still be the answer (VHD-12).
"""

from __future__ import annotations

from enum import IntEnum

from ..model.hosts import split, without_port
from ..model.types import VIRTUAL_HOST, Variant


class MatchRank(IntEnum):
    """Of two in one response, the closer one is meant."""

    LOST = 0  # it was the answer before, and can't be any more
    UNSURE = 1  # ... and may be, if ports do not count
    HELD = 2  # ... and may be
    OTHERWISE = 3
    MEANT = 4


def closeness(string: str, variant: Variant) -> MatchRank:
    """Of a virtual host the alias counts more: one that is called like a host need not be what serves it.

    Elsewhere a name counts more than another's alias.
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
    """Whether it has the host for a domain: nothing serves it before that (VHD-6)."""
    host = split(string)[1].lower()
    return host in variant.domains or without_port(host) in variant.domains


def _serves(variant: Variant, host: str) -> bool:
    """One whose domains are not known may serve any."""
    return not variant.domains or any(_fits(domain, host) for domain in variant.domains)


def _fits(domain: str, host: str) -> bool:
    if domain.startswith("*"):
        return host.endswith(domain[1:])
    return host.startswith(domain[:-1]) if domain.endswith("*") else host == domain
