"""Remember in a Bloom filter which names a session dropped, so that it can send them if they are created (VHD-25).

Envoy requests a host or a cluster on demand once per stream, and waits for a push if there is none. Anybody can make it
request any number of names, so the session drops the oldest subscriptions that match nothing. If one of these names is
created later, Envoy must still get it. So the session marks each dropped name in a fixed number of bits. It then finds
every dropped name, and rarely takes another name for one. Such an error sends Envoy a resource that it did not ask for,
which it ignores.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..model.hosts import forms, split
from ..model.types import VIRTUAL_HOST, Change, TypeUrl

BITS = 1 << 23  # 1 MiB, for each type on a stream that drops names
_SHIFT = 23
LEFT = 10_000  # names remembered as unsubscribed after they were dropped


class ForgottenNames:
    """The names of one type that one session dropped. After a million of them, 1 in 20 other names is a false hit."""

    __slots__ = ("_bits", "_configs", "_is_host", "_left")

    def __init__(self, type_url: TypeUrl) -> None:
        self._is_host = type_url == VIRTUAL_HOST
        self._bits = bytearray(BITS // 8)
        self._configs: set[str] = set()  # for virtual hosts: the route configurations of the dropped hosts
        self._left: dict[str, None] = {}  # dropped names that the client unsubscribed from since, the oldest first

    def add(self, name: str) -> None:
        """Mark a dropped name. A host is marked in each form in which a domain may be written."""
        self._left.pop(name, None)
        if self._is_host:
            config, host = split(name)
            self._configs.add(config)
            for form in forms(host):
                self._mark(f"{config}/{form}")
        else:
            self._mark(name)

    def unsubscribe(self, name: str) -> None:
        """Note that the client no longer wants a dropped name, so that it is not sent if it is created.

        The filter can't unmark a name, so a list of limited length keeps the exceptions. It does not apply to hosts on
        demand.
        """
        if name in self:
            self._left[name] = None
            if len(self._left) > LEFT:
                del self._left[next(iter(self._left))]

    def awaits(self, name: str) -> bool:
        """Whether the name was dropped, and not unsubscribed since."""
        return name in self and name not in self._left

    def concerned(self, change: Change) -> Iterator[str]:
        """Yield the names to subscribe to again because of this change."""
        if not self._is_host:
            yield from filter(self.awaits, change.names)
            return
        config, _ = split(change.name)
        if config in self._configs and change.after is not None:
            domains = {domain for variant in change.after.variants for domain in variant.domains}
            # A wildcard domain may serve any of the dropped hosts.
            if any("*" in domain or f"{config}/{domain}" in self for domain in domains) or change.name in self:
                yield change.name

    def __contains__(self, name: str) -> bool:
        """Whether the name was marked, or looks as if it was."""
        return all(self._bits[place >> 3] & 1 << (place & 7) for place in _places(name))

    def _mark(self, name: str) -> None:
        """Set the bits of a name."""
        for place in _places(name):
            self._bits[place >> 3] |= 1 << (place & 7)


def _places(name: str) -> tuple[int, int]:
    """Return the two bits of a name. Python salts its hash per process, so a client can't choose names that collide."""
    value = hash(name)
    return value & BITS - 1, value >> _SHIFT & BITS - 1
