"""Names that a session does not remember any more, told from others without keeping them (VHD-25).

Envoy asks for a host or a cluster on demand once per stream, and waits for a push if there is none. Anybody can make it
ask for any number of names, so the oldest that there are none for are forgotten. If one of them is created, its Envoy
is to have it all the same. So a session marks what it forgets in a fixed number of bits (a Bloom filter): it finds
every name that was forgotten, and rarely one that was not. That costs a resource that nobody asked for, which Envoy
ignores.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..model.hosts import forms, split
from ..model.types import VIRTUAL_HOST, Change

BITS = 1 << 23  # in 1 MiB, for each type on a stream that forgets
_SHIFT = 23
LEFT = 10_000  # names that are remembered to have been unsubscribed after they were forgotten


class ForgottenNames:
    """What one session forgot of one type. Of a million names, 1 in 20 others is taken for one of them."""

    __slots__ = ("_bits", "_configs", "_left")

    def __init__(self) -> None:
        self._bits = bytearray(BITS // 8)
        self._configs: set[str] = set()  # of virtual hosts: their route configurations
        self._left: dict[str, None] = {}  # what was unsubscribed, the oldest first

    def add(self, name: str, *, is_host: bool) -> None:
        self._left.pop(name, None)
        if is_host:
            config, host = split(name)
            self._configs.add(config)
            for form in forms(host):
                self._mark(f"{config}/{form}")
        else:
            self._mark(name)

    def unsubscribe(self, name: str) -> None:
        """The client does not want it any more: one that is not a host on demand is not sent again."""
        if name in self:
            self._left[name] = None
            if len(self._left) > LEFT:
                del self._left[next(iter(self._left))]

    def awaits(self, name: str) -> bool:
        """Whether it was forgotten, and not unsubscribed since."""
        return name in self and name not in self._left

    def concerned(self, change: Change) -> Iterator[str]:
        """By which names to subscribe again, now that this changed."""
        if change.type_url != VIRTUAL_HOST:
            yield from filter(self.awaits, change.names)
            return
        config, _ = split(change.name)
        if config in self._configs and change.after is not None:
            domains = {domain for variant in change.after.variants for domain in variant.domains}
            # A wildcard may serve any of the hosts that were forgotten.
            if any("*" in domain or f"{config}/{domain}" in self for domain in domains) or change.name in self:
                yield change.name

    def __contains__(self, name: str) -> bool:
        return all(self._bits[place >> 3] & 1 << (place & 7) for place in _places(name))

    def _mark(self, name: str) -> None:
        for place in _places(name):
            self._bits[place >> 3] |= 1 << (place & 7)


def _places(name: str) -> tuple[int, int]:
    """Two bits. Python's hash differs in each process: nobody can choose names that meet."""
    value = hash(name)
    return value & BITS - 1, value >> _SHIFT & BITS - 1
