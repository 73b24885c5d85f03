"""Virtual hosts on one delta stream: what Envoy gets without asking, and what it asks for by the host (VHDS).

Three things are different from other types:

- the wildcard of a client is the base set (VHD-13), and not all that there is. A client may unsubscribe a base host,
  which then stays away from it until it asks again (VHD-11);
- a route configuration whose listener waits for its virtual hosts needs a word about them, whatever it says (V3);
- Envoy makes its table anew with each response, so that one that does not keep up is let alone for a moment (VHD-24).
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

AHEAD = 4  # responses about virtual hosts that may be under way
PATIENCE = 0.5  # seconds


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
        self._released: dict[str, None] = {}  # route configurations whose listeners wait for a virtual host (V3)
        self._claims: Mapping[str, str] = {}  # virtual hosts that the client has, by whichever hosts
        self._answering: dict[
            str, dict[NameSubscription, None]
        ] = {}  # whom the last `collect` answered, by the virtual host
        self.is_alone = False  # there are no other types on this stream
        self.configs: Callable[[], Iterable[str]] = tuple  # route configurations with virtual hosts on demand

    # -- in

    def _claim(self, initial: Mapping[str, str]) -> None:
        self._claims = {**self._claims, **initial} if self._claims else initial

    def _subscribe(self, key: Key, initial: Mapping[str, str]) -> None:
        if self._declined:
            self._take_back(key)
        super()._subscribe(key, initial)

    def _take_back(self, key: Key) -> None:
        """VHD-11: a base host that was unsubscribed is asked for again, by itself or with all the others."""
        tag, meant = key[1], self._meant_base(key)
        back = {each for each in self._declined if each[1] == tag and (key[0] == WILDCARD or each[0] == meant)}
        self._declined = self._declined - back

    def _unsubscribe(self, key: Key, wanted: Container[Key]) -> None:
        """VHD-11: a base host goes with the last string that the client has for it, and stays away."""
        meant, tag = self._meant_base(key), key[1]
        super()._unsubscribe(key, wanted)
        if meant is not None and all(want.key[1] != tag for want in self._holders(meant)):
            self._declined = self._declined | {(meant, tag)}
            self._owed.pop((meant, tag), None)
            self.leaving.pop((meant, tag), None)

    def _meant_base(self, key: Key) -> str | None:
        """Which virtual host of the base set a string stands for, by its name or an alias; None: none of it."""
        name, tag = key
        wild = self._wild((WILDCARD, tag))
        if wild is None or name == WILDCARD:
            return None
        if wild.listing.member(name, wild.params) is not None:
            return name
        found = self.table.select(name, wild.params)
        return found.name if found is not None and wild.listing.member(found.name, wild.params) is not None else None

    def _drop_wild(self, wild: WildcardSubscription) -> None:
        super()._drop_wild(wild)
        self._declined = frozenset(key for key in self._declined if key[1] != wild.tag)
        if wild.tag is None:
            self._released.clear()

    # -- out

    def rerouted(self, config: str) -> Steps[None]:
        """VHD-16: where the route configuration itself goes by another stream, nothing else would say so."""
        if self.is_alone:
            yield from self.revisit({config})

    def revisit(self, configs: Collection[str]) -> Steps[None]:
        """VHD-16: route configurations changed, so their virtual hosts are sent again, after them.

        VHD-23: of one that is new Envoy does not ask for the base set (V4).
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
        """The base set of this client: route configurations and names."""
        for variant in wild.listing.snapshot(wild.params).variants:
            if (variant.name, wild.tag) not in self._declined:
                yield split(variant.name)[0], variant.name

    def collect(self) -> Steps[Batch]:
        self._answering.clear()
        batch = yield from super().collect()
        if self._claims and not self._waits:
            claims, self._claims = self._claims, {}
            if not self._wilds:
                yield from self._disclaim(claims, batch)
        return batch

    def _collect_want(self, want: NameSubscription, batch: Batch) -> None:
        answered, before = want.answered, want.held
        super()._collect_want(want, batch)
        if want.held is not None and not (answered and alike(before, want.held)):
            self._answering.setdefault(want.held.name, {})[want] = None

    def _disclaim(self, claims: Mapping[str, str], batch: Batch) -> Steps[None]:
        """DLT-14, where hosts were asked for: what the client has, and what none of them leads to now, goes."""
        if all(None not in (tag for _, tag in wants) for wants in self._wants.values()):
            return  # locators: each has been told what there is in place of it
        for number, (name, version) in enumerate(claims.items()):
            if number % EVERY == EVERY - 1:
                yield
            asked = self._find((name, None)) is not None or version.startswith(ABSENT)
            if not asked and not any(self._held(name, located=False)):
                batch.removed[name] = None

    def _start(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """VHD-13: the base set, and for route configurations without one an answer all the same."""
        yield from super()._start(wild, batch)
        if wild.tag is None:
            self._released.update(dict.fromkeys(self.configs()))

    def _collect_wild(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        yield from super()._collect_wild(wild, batch)
        if self._released and wild.tag is None and wild.started:
            released, self._released = self._released, {}
            based = {config for config, _ in self._base(wild)}
            for config in released:
                if config not in based:
                    batch.removed[f"{config}/_"] = None  # V3: the cheapest answer that ends Envoy's waiting

    def _may_take_leave(self) -> bool:
        """What the client asks for by hosts may turn out to be what it has."""
        return not self._waits

    @property
    def pending(self) -> bool:
        return bool(self._released) or super().pending

    @property
    def paced_until(self) -> float | None:
        """VHD-24: Envoy makes its whole table anew with each response, which takes the longer the more it has (V18).

        So where it does not keep up, what is asked meanwhile waits for it and goes out together. A client that answers
        nothing waits for a moment only.
        """
        late = len(self.in_flight) >= AHEAD and self.pending
        return self.progress.sent_at + PATIENCE if late and self.progress.sent_at is not None else None

    def _completed(self, send: Send, batch: Batch) -> Steps[Send]:
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
        """VHD-4: every explicit domain, and whatever this client called it.

        Where it is the answer to some hosts, and others have it already as it is, only those that it answers are named:
        otherwise the answers to a scan of hosts under a wildcard would grow with its square.

        A locator may have been given one that is for fewer than the virtual host is (HostSet.proven): of that it is
        known for this host alone.
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
