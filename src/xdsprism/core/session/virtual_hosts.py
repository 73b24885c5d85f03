"""Say what is different about virtual hosts (VHDS): the base set, and hosts that Envoy requests on demand.

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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from ..model.events import WILDCARD, Key, Send
from ..model.hosts import explicit, split
from ..model.steps import EVERY, Steps, cut, pieces
from ..model.types import Variant
from ..model.views import alike
from .batch import Batch
from .client_state import ClientState
from .context import SessionContext
from .in_flight import InFlight
from .refusals import ABSENT, absent_version
from .subscription import NameSubscription, WildcardSubscription
from .type_rules import TypeRules

AHEAD = 4  # responses about virtual hosts that may be in flight
PATIENCE = 0.5  # seconds that a response waits for a client with AHEAD of them in flight


class SotwVirtualHostRules(TypeRules):
    """The virtual hosts of one SotW stream. VHDS is a delta protocol, so none of its answers are given here."""

    __slots__ = ()

    has_fast_path = False  # a host may get another virtual host, and several strings may lead to one
    has_full_wildcard = False  # it stands for the base set
    may_overlap = False  # each host has one

    def deliver_located(self, batch: Batch, variant: Variant) -> None:
        """Put a virtual host into the batch, once for all hosts that it serves."""
        batch.locate(variant)


class VirtualHostRules(TypeRules):
    """The virtual hosts of one delta stream.

    is_alone: the stream is of the VHDS service, without other types. configs: returns the route configurations that use
    VHDS.
    """

    __slots__ = (
        "_answering",
        "_brought",
        "_client",
        "_configs",
        "_context",
        "_in_flight",
        "_is_alone",
        "_released",
    )

    has_fast_path = False  # as in SotW
    has_full_wildcard = False
    may_overlap = False

    def __init__(
        self,
        context: SessionContext,
        client: ClientState,
        in_flight: InFlight,
        configs: Callable[[], Iterable[str]],
        *,
        is_alone: bool,
    ) -> None:
        self._context = context
        self._client = client
        self._in_flight = in_flight
        self._configs = configs
        self._is_alone = is_alone
        self._released: dict[str, None] = {}  # route configurations whose listeners wait for a response (V3)
        self._brought: Mapping[str, str] = {}  # virtual hosts that the client holds from an earlier stream
        # By virtual host: the subscriptions that the last `collect` answered with it.
        self._answering: dict[str, dict[NameSubscription, None]] = {}

    # -- a request

    def note_brought(self, initial: Mapping[str, str]) -> None:
        """Note the virtual hosts that the client brought from an earlier stream."""
        self._brought = {**self._brought, **initial} if self._brought else initial

    def subscribing(self, key: Key) -> None:
        """Let the wildcard send a base host again that the client unsubscribed from (VHD-11).

        The client may ask for the one host, or for the whole base set.
        """
        declined = self._client.holdings.declined
        if declined:
            name, tag = key
            meant = self.member_meant(key)
            back = {each for each in declined if each[1] == tag and (name == WILDCARD or each[0] == meant)}
            self._client.holdings.take_back(back)

    def member_meant(self, key: Key) -> str | None:
        """Return the virtual host of the base set that this string means, by name or by host; None: none of it."""
        name, tag = key
        wild = self._client.subscriptions.wildcard(Key(WILDCARD, tag))
        if wild is None or name == WILDCARD:
            return None
        if wild.listing.member(name, wild.params) is not None:
            return name
        found = self._context.table.select(name, wild.params)
        return found.name if found is not None and wild.listing.member(found.name, wild.params) is not None else None

    def unsubscribed(self, member: str, key: Key) -> None:
        """Let a base host go with the last string that the client has for it (VHD-11)."""
        if all(want.key.tag != key.tag for want in self._client.subscriptions.holders(member)):
            self._client.holdings.decline(Key(member, key.tag))

    def wildcard_ended(self, wild: WildcardSubscription) -> None:
        """Forget which route configurations wait for an answer: the client left the base set."""
        if wild.tag is None:
            self._released.clear()

    # -- route configurations

    def rerouted(self, config: str) -> Steps[None]:
        """Send the virtual hosts of a changed route configuration again, if that goes by another stream (VHD-16).

        On ADS, the stream calls `revisit` after it has sent the route configuration.
        """
        if self._is_alone:
            yield from self.revisit({config})

    def revisit(self, configs: Collection[str]) -> Steps[None]:
        """Send the virtual hosts of these route configurations again (VHD-16), in steps.

        VHD-23: for a route configuration that is new to it, Envoy does not ask for the base set (V4), so the base set
        is sent.
        """
        for piece in pieces([*self._client.subscriptions.names.values()]):
            for want in [want for wants in piece for want in wants.values()]:
                if want.held is not None and split(want.name)[0] in configs:
                    self._client.holdings.ask_again(want)
            if len(piece) == EVERY:
                yield
        for wild in [*self._client.subscriptions.all_wildcards()]:
            for members in cut(self._base(wild)):
                for config, name in members:
                    if config in configs and self._client.subscriptions.find(wild.key_of(name)) is None:
                        self._client.holdings.owe(wild.key_of(name))
                if len(members) == EVERY:
                    yield
            if wild.tag is None and wild.started:
                self._released.update(dict.fromkeys(configs))

    def _base(self, wild: WildcardSubscription) -> Iterator[tuple[str, str]]:
        """Yield the base set of this client, as route configurations and names."""
        for variant in wild.listing.snapshot(wild.params).variants:
            if wild.key_of(variant.name) not in self._client.holdings.declined:
                yield split(variant.name)[0], variant.name

    # -- what is due

    @property
    def is_pending(self) -> bool:
        """Whether a route configuration waits for an answer."""
        return bool(self._released)

    @property
    def paced_until(self) -> float | None:
        """Return until when to send nothing, so that a slow client gets what it asks for together (VHD-24).

        Envoy rebuilds its whole table with each response, which takes the longer the more virtual hosts it has (V18). A
        client that ACKs nothing waits for a moment only.
        """
        sent_at = self._in_flight.progress.sent_at
        return sent_at + PATIENCE if len(self._in_flight) >= AHEAD and sent_at is not None else None

    def wildcard_started(self, wild: WildcardSubscription) -> None:
        """Note the route configurations that need an answer even without base hosts (VHD-13)."""
        if wild.tag is None:
            self._released.update(dict.fromkeys(self._configs()))

    def collected_wildcard(self, wild: WildcardSubscription, batch: Batch) -> None:
        """Answer each route configuration without base hosts."""
        if self._released and wild.tag is None and wild.started:
            released, self._released = self._released, {}
            based = {config for config, _ in self._base(wild)}
            for config in released:
                if config not in based:
                    batch.removed[f"{config}/_"] = None  # V3: the cheapest answer that ends Envoy's waiting

    def deliver_located(self, batch: Batch, variant: Variant) -> None:
        """Put a virtual host into the batch, once for all hosts that it serves."""
        batch.locate(variant)

    def collected_name(self, want: NameSubscription, before: Variant | None, *, was_answered: bool) -> None:
        """Note that a virtual host answers this host."""
        if want.held is not None and not (was_answered and alike(before, want.held)):
            self._answering.setdefault(want.held.name, {})[want] = None

    def needs_empty_resource(self, key: Key) -> bool:
        """Whether the client must be answered with an empty resource for a host that there is none for (VHD-7).

        Envoy's on-demand request ends neither by a removal nor by an error. A locator needs none of this: TP2's
        negative answer ends it.
        """
        return not key.is_locator

    # -- what the client holds from an earlier stream

    @property
    def knows_brought(self) -> bool:
        """Whether all requested hosts are resolved: one of them may lead to a virtual host that the client holds."""
        return not self._client.availability.is_waiting

    def collected(self, batch: Batch) -> Steps[None]:
        """Remove what the client brought and no longer asks for, in steps."""
        if self._brought and not self._client.availability.is_waiting:
            brought, self._brought = self._brought, {}
            if not self._client.subscriptions.wildcards:
                yield from self._remove_unasked(brought, batch)

    def _remove_unasked(self, brought: Mapping[str, str], batch: Batch) -> Steps[None]:
        """Remove virtual hosts that the client holds and that no requested host leads to (DLT-14), in steps."""
        if all(None not in [tag for _, tag in wants] for wants in self._client.subscriptions.names.values()):
            return  # locators only: each was answered by what replaces its variant
        for number, (name, version) in enumerate(brought.items()):
            if number % EVERY == EVERY - 1:
                yield
            asked = self._client.subscriptions.find(Key(name)) is not None or version.startswith(ABSENT)
            if not asked and not any(self._client.view.held(name, located=False)):
                batch.removed[name] = None

    # -- a response

    def complete(self, send: Send, batch: Batch) -> Steps[Send]:
        """Add aliases to the resources of a response, and the hosts that there is no virtual host for, in steps."""
        absent = absent_version(self._context.settings.epoch, self._context.stream, send.nonce)
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

        If the response answers new subscriptions, it names only the strings of these, and not the earlier strings of
        the client. Otherwise the answers to a scan of hosts under a wildcard domain would grow with the square of the
        number of hosts.

        A locator may have been given a variant whose constraints are narrower than those of the virtual host
        (`InOrder.select_for_cache`). This variant is known for the requested host only, so it gets no domains as
        aliases.
        """
        config, _ = split(variant.name)
        domains = explicit(variant.domains) if not located else ()
        strings = dict.fromkeys(f"{config}/{domain}" for domain in domains)
        wants = self._answering.get(variant.name) or self._client.subscriptions.aliased.get(variant.name, {})
        for piece in pieces(list(wants)):
            for want in piece:
                if want.located == located and want.held is not None and want.held.identity == variant.identity:
                    strings[want.name] = None
            if len(piece) == EVERY:
                yield
        return tuple(string for string in strings if string != variant.name and string not in variant.aliases)

    def polled(self) -> Steps[None]:
        """Forget which hosts the responses answer, in steps.

        With 200,000 hosts that is as much memory as the subscriptions take, which would be freed in one step at the end
        of the stream.
        """
        for piece in pieces([*self._answering]):
            for name in piece:
                del self._answering[name]
            if len(piece) == EVERY:
                yield


# Rules without state, shared by all sessions that they are for.
_ORDINARY = TypeRules()
_SOTW_VIRTUAL_HOSTS = SotwVirtualHostRules()


def rules_of(
    context: SessionContext,
    client: ClientState,
    in_flight: InFlight,
    configs: Callable[[], Iterable[str]],
    *,
    is_alone: bool,
) -> TypeRules:
    """Return the rules of a session by its type; `configs` and `is_alone` as in `VirtualHostRules`."""
    if not context.table.spec.on_demand:
        return _ORDINARY
    if not context.delta:
        return _SOTW_VIRTUAL_HOSTS
    return VirtualHostRules(context, client, in_flight, configs, is_alone=is_alone)
