"""Serve virtual hosts on one delta stream (VHDS): the base set, and hosts that Envoy requests on demand.

Envoy subscribes to strings of the form `route configuration/host`. The store resolves the host to the virtual host that
serves it, as Envoy would by its domains, and the response names the requested strings as aliases (VHD-3, VHD-4). VHDS
differs from other types in these ways:

- The wildcard stands for the base set (VHD-13), and not for all virtual hosts. A client may unsubscribe from a base
  host, which then stays away until the client asks again (VHD-11).
- A listener whose route configuration uses VHDS waits for a response about its virtual hosts, whatever that says (V3).
  So a route configuration without base hosts is answered, too, by the removal of a name that nothing has.
- A host that nothing serves is answered by a resource without contents, with a new version each time (VHD-7, V8).
- When a route configuration is sent again, its virtual hosts follow it (VHD-16).
- Envoy rebuilds its whole table with each response. So if an Envoy is slow to ACK, the session waits for a moment, and
  then sends all that is due together (VHD-24).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace

from ..model.events import WILDCARD, Key, Send
from ..model.facts import Facts
from ..model.hosts import explicit, split
from ..model.limits import SubscriptionBudget
from ..model.settings import Settings
from ..model.steps import EVERY, Steps, cut, pieces
from ..model.table import Table
from ..model.types import Params, Variant
from ..model.views import alike
from .batch import Batch
from .delta import DeltaSession
from .interest import Interest
from .refusals import ABSENT
from .subscriptions import NameSubscription, WildcardSubscription

AHEAD = 4  # responses about virtual hosts that may be in flight
PATIENCE = 0.5  # seconds that a response waits for a client with AHEAD of them in flight


class VirtualHostSession(DeltaSession):
    """The virtual hosts of one delta stream."""

    __slots__ = ("_answering", "_claims", "_released", "configs", "is_alone")

    def __init__(
        self,
        table: Table,
        interest: Interest,
        settings: Settings,
        params: Params,
        stream: int,
        facts: Facts,
        room: SubscriptionBudget,
    ) -> None:
        super().__init__(table, interest, settings, params, stream, facts, room)
        self._released: dict[str, None] = {}  # route configurations whose listeners wait for a response (V3)
        self._claims: Mapping[str, str] = {}  # virtual hosts that the client holds from an earlier stream
        # By virtual host: the subscriptions that the last `collect` answered with it.
        self._answering: dict[str, dict[NameSubscription, None]] = {}
        self.is_alone = False  # the stream is of the VHDS service, without other types
        self.configs: Callable[[], Iterable[str]] = tuple  # returns the route configurations that use VHDS

    # -- in

    def _claim(self, initial: Mapping[str, str]) -> None:
        """Note the virtual hosts that the client holds from an earlier stream."""
        self._claims = {**self._claims, **initial} if self._claims else initial

    def _subscribe(self, key: Key, initial: Mapping[str, str]) -> None:
        """Begin a subscription to a host, even if it is a base host that the client unsubscribed from."""
        if self._declined:
            self._take_back(key)
        super()._subscribe(key, initial)

    def _take_back(self, key: Key) -> None:
        """Let the wildcard send a base host again that the client unsubscribed from (VHD-11).

        The client may ask for the one host, or for the whole base set.
        """
        tag, meant = key[1], self._meant_base(key)
        back = {each for each in self._declined if each[1] == tag and (key[0] == WILDCARD or each[0] == meant)}
        self._declined = self._declined - back

    def _unsubscribe(self, key: Key, wanted: Container[Key]) -> None:
        """End a subscription. A base host goes with the last string that the client has for it (VHD-11)."""
        meant, tag = self._meant_base(key), key[1]
        super()._unsubscribe(key, wanted)
        if meant is not None and all(want.key[1] != tag for want in self._holders(meant)):
            self._declined = self._declined | {(meant, tag)}
            self._owed.pop((meant, tag), None)
            self.leaving.pop((meant, tag), None)

    def _meant_base(self, key: Key) -> str | None:
        """Return the virtual host of the base set that this string means, by name or by host; None: none of it."""
        name, tag = key
        wild = self._wild((WILDCARD, tag))
        if wild is None or name == WILDCARD:
            return None
        if wild.listing.member(name, wild.params) is not None:
            return name
        found = self.table.select(name, wild.params)
        return found.name if found is not None and wild.listing.member(found.name, wild.params) is not None else None

    def _drop_wild(self, wild: WildcardSubscription) -> None:
        """End the subscription to the base set, and forget which base hosts the client unsubscribed from."""
        super()._drop_wild(wild)
        self._declined = frozenset(key for key in self._declined if key[1] != wild.tag)
        if wild.tag is None:
            self._released.clear()

    # -- out

    def rerouted(self, config: str) -> Steps[None]:
        """Send the virtual hosts of a changed route configuration again, if that goes by another stream (VHD-16).

        On ADS, the stream calls `revisit` after it has sent the route configuration.
        """
        if self.is_alone:
            yield from self.revisit({config})

    def revisit(self, configs: Collection[str]) -> Steps[None]:
        """Send the virtual hosts of these route configurations again (VHD-16), in steps.

        VHD-23: for a route configuration that is new to it, Envoy does not ask for the base set (V4), so the base set
        is sent.
        """
        for piece in pieces([*self._wants.values()]):
            for want in [want for wants in piece for want in wants.values()]:
                if want.held is not None and split(want.name)[0] in configs:
                    want.answered = False
                    self._dirty[want] = None
            if len(piece) == EVERY:
                yield
        for wild in [*self._wildcards()]:
            for members in cut(self._base(wild)):
                for config, name in members:
                    if config in configs and self._find((name, wild.tag)) is None:
                        self._owed[name, wild.tag] = None
                if len(members) == EVERY:
                    yield
            if wild.tag is None and wild.started:
                self._released.update(dict.fromkeys(configs))

    def _base(self, wild: WildcardSubscription) -> Iterator[tuple[str, str]]:
        """Yield the base set of this client, as route configurations and names."""
        for variant in wild.listing.snapshot(wild.params).variants:
            if (variant.name, wild.tag) not in self._declined:
                yield split(variant.name)[0], variant.name

    def poll(self, now: float, *, together: bool = True) -> Steps[list[Send]]:
        """Return the responses that are due, in steps, and forget which hosts they answer.

        With 200,000 hosts that is as much memory as the subscriptions take, which would be freed in one step at the end
        of the stream.
        """
        sends = yield from super().poll(now, together=together)
        for piece in pieces([*self._answering]):
            for name in piece:
                del self._answering[name]
            if len(piece) == EVERY:
                yield
        return sends

    def collect(self) -> Steps[Batch]:
        """Collect what the client must be sent, and remove what it claimed to hold and no longer asks for."""
        batch = yield from super().collect()
        if self._claims and not self._waits:
            claims, self._claims = self._claims, {}
            if not self._wilds:
                yield from self._disclaim(claims, batch)
        return batch

    def _collect_want(self, want: NameSubscription, batch: Batch) -> None:
        """Collect one host, and note that its virtual host answers it."""
        answered, before = want.answered, want.held
        super()._collect_want(want, batch)
        if want.held is not None and not (answered and alike(before, want.held)):
            self._answering.setdefault(want.held.name, {})[want] = None

    def _disclaim(self, claims: Mapping[str, str], batch: Batch) -> Steps[None]:
        """Remove virtual hosts that the client holds and that no requested host leads to (DLT-14), in steps."""
        if all(None not in (tag for _, tag in wants) for wants in self._wants.values()):
            return  # locators only: each was answered by what replaces its variant
        for number, (name, version) in enumerate(claims.items()):
            if number % EVERY == EVERY - 1:
                yield
            asked = self._find((name, None)) is not None or version.startswith(ABSENT)
            if not asked and not any(self._held(name, located=False)):
                batch.removed[name] = None

    def _start(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """Send the base set, and note the route configurations that need an answer even without base hosts (VHD-13)."""
        yield from super()._start(wild, batch)
        if wild.tag is None:
            self._released.update(dict.fromkeys(self.configs()))

    def _collect_wild(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """Collect the base set's changes, and an answer for each route configuration without base hosts."""
        yield from super()._collect_wild(wild, batch)
        if self._released and wild.tag is None and wild.started:
            released, self._released = self._released, {}
            based = {config for config, _ in self._base(wild)}
            for config in released:
                if config not in based:
                    batch.removed[f"{config}/_"] = None  # V3: the cheapest answer that ends Envoy's waiting

    def _may_take_leave(self) -> bool:
        """Whether all requested hosts are resolved: one of them may lead to a virtual host that the client holds."""
        return not self._waits

    @property
    def pending(self) -> bool:
        """Whether the next poll has something to look at, or a route configuration waits for an answer."""
        return bool(self._released) or super().pending

    @property
    def paced_until(self) -> float | None:
        """Return until when to send nothing, so that a slow client gets what it asks for together (VHD-24).

        Envoy rebuilds its whole table with each response, which takes the longer the more virtual hosts it has (V18). A
        client that ACKs nothing waits for a moment only.
        """
        late = len(self.in_flight) >= AHEAD and self.pending
        return self.progress.sent_at + PATIENCE if late and self.progress.sent_at is not None else None

    def _completed(self, send: Send, batch: Batch) -> Steps[Send]:
        """Add aliases to the resources of a response, and the hosts that there is no virtual host for, in steps."""
        absent = f"{ABSENT}{self.settings.epoch}.{self.stream}.{send.nonce}"  # V8: a new one each time
        aliases: list[tuple[str, ...]] = []
        named = 0  # strings since the last step
        for variants, located in ((send.plain, False), (send.located, True)):
            for variant in variants:
                aliases += ((yield from self._strings(variant, located=located)),)
                named += len(aliases[-1]) + 1
                if named > EVERY:
                    named = 0
                    yield
        return replace(send, unresolved=tuple(batch.unresolved), absent=absent, aliases=tuple(aliases))

    def _strings(self, variant: Variant, *, located: bool) -> Steps[tuple[str, ...]]:
        """Return the aliases of a virtual host: its explicit domains, and the strings that this client sent (VHD-4).

        If the response answers new requests, only the strings of these are named, and not those that the client asked
        by before. Otherwise the answers to a scan of hosts under a wildcard domain would grow with the square of their
        number.

        A locator may have been given a variant for fewer params than the virtual host is for (HostSet.proven). Such a
        variant is known for the requested host only, so it gets no domains as aliases.
        """
        config, _ = split(variant.name)
        domains = explicit(variant.domains) if not located else ()
        strings = dict.fromkeys(f"{config}/{domain}" for domain in domains)
        wants = self._answering.get(variant.name) or self._aliased.get(variant.name, {})
        for piece in pieces(list(wants)):
            for want in piece:
                if want.located == located and want.held is not None and want.held.identity == variant.identity:
                    strings[want.name] = None
            if len(piece) == EVERY:
                yield
        return tuple(string for string in strings if string != variant.name and string not in variant.aliases)
